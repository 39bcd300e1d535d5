"""Training a smoothed model: checkpoints hold Theta, a run goes on, the saved model is an ordinary one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification

from unshaken import RobustTrainer, RobustTrainingArguments, Smoothing, Victim, smooth
from unshaken.defences import ASCC, SWAP, HighTemperature, Standard
from unshaken.errors import UnshakenError
from unshaken.evaluation import TrainingRecord
from unshaken.examples import Example, Examples
from unshaken.readers import KnownWords, parse
from unshaken.substitutions import All, Dictionary, Homoglyphs, TwoHops, Typos, Unseen, WordNet, segment

TEXTS = ["a good film", "a bad plot", "fine movie", "awful picture", "nice slow film", "poor dull plot"] * 2
ROWS = Examples(rows=tuple(Example(id=str(n), texts=(text,), label=n % 2) for n, text in enumerate(TEXTS)))


def trainer(out: Path, model: Any, tokenizer: Any, defence: Any = None, reader: Any = None, **options: Any) -> Any:
    arguments = RobustTrainingArguments(
        str(out), max_steps=4, per_device_train_batch_size=4, save_strategy="steps", save_steps=2, use_cpu=True,
        eval_strategy="no", load_best_model_at_end=False, report_to="none", disable_tqdm=True, learning_rate=1e-2,
        save_total_limit=None, **options,
    )  # fmt: skip
    return RobustTrainer(
        model, arguments, defence=defence, processing_class=tokenizer, train_dataset=ROWS, reader=reader
    )


def test_checkpoints_resume_and_the_saved_model(tmp_path: Path, make_smoothed: Any, bert: Any) -> None:
    whole_model, tokenizer = make_smoothed(bert[1])
    theta = whole_model.get_input_embeddings().theta.detach().clone()
    words = KnownWords.of(ROWS)
    defence = SWAP(substitutions=Dictionary(entries={"good": ["fine"]}))
    whole = trainer(tmp_path / "whole", whole_model, tokenizer, defence, parse("unicode,spelling", words))
    whole.train()
    assert not torch.equal(whole_model.get_input_embeddings().theta, theta)
    halfway = load_file(tmp_path / "whole" / "checkpoint-2" / "model.safetensors")
    assert any(name.endswith(".theta") for name in halfway)
    assert any(name.endswith(".graph") for name in halfway)

    again_model, _ = make_smoothed(bert[1])
    defence = SWAP(substitutions=Dictionary(entries={"good": ["fine"]}))
    again = trainer(tmp_path / "whole", again_model, tokenizer, defence, parse("unicode,spelling", words))
    again.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    for name, value in again_model.state_dict().items():
        torch.testing.assert_close(value, whole_model.state_dict()[name], rtol=0, atol=0, msg=name)

    whole.save_model(str(tmp_path / "final"))
    assert not any(name.endswith((".theta", ".graph")) for name in load_file(tmp_path / "final" / "model.safetensors"))
    stock = AutoModelForSequenceClassification.from_pretrained(tmp_path / "final").eval()
    assert type(stock.get_input_embeddings()) is torch.nn.Embedding
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        torch.testing.assert_close(stock(**inputs).logits, whole_model.eval()(**inputs).logits)
    victim = Victim.from_pretrained(tmp_path / "final", device="cpu")
    assert victim.reader is not None
    odd, even = victim.log_probabilities([("a gооd fillm",)]), victim.log_probabilities([("a good film",)])
    assert (odd == even).all()


def test_what_is_pushed_is_what_is_saved(
    tmp_path: Path, make_smoothed: Any, bert: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed: list[str] = []
    hub = SimpleNamespace(upload_folder=lambda **options: pushed.append(options["folder_path"]))
    monkeypatch.setattr("transformers.trainer.hf_api", lambda: hub)
    model, tokenizer = make_smoothed(bert[1])
    own = trainer(tmp_path / "out", model, tokenizer, reader=parse("unicode", KnownWords.of(ROWS)))
    own.train()
    own.hub_model_id = "someone/something"
    own.push_to_hub()
    own.save_model(str(tmp_path / "saved"))
    (folder,) = pushed
    saved = load_file(tmp_path / "saved" / "model.safetensors")
    there = load_file(Path(folder) / "model.safetensors")
    assert there.keys() == saved.keys()
    assert all(torch.equal(there[name], saved[name]) for name in saved)
    assert TrainingRecord.load(folder) == TrainingRecord.load(tmp_path / "saved")
    names = {path.name for path in Path(folder).iterdir()}
    assert {path.name for path in (tmp_path / "saved").iterdir()} <= names
    assert "training_args.bin" not in names
    assert any(name.endswith(".theta") for name in model.state_dict())  # training can go on


def test_the_trainer_records_what_vocabulary_and_reader_know(tmp_path: Path, bert: Any) -> None:
    """An attack with these words is then told as one that training knows, and a plain model is no seed of this one."""
    plain = trainer(tmp_path / "plain", *bert)
    plain.save_model(str(tmp_path / "plain"))
    one, other, swapped = (Dictionary(entries={"good": [word]}) for word in ("fine", "great", "nice"))
    smoothed = smooth(*bert, Smoothing(substitutions=(one, All((other, one))), hops=2))
    hardened = trainer(tmp_path / "hard", *smoothed, SWAP(substitutions=swapped), parse("all", KnownWords.of(ROWS)))
    hardened.save_model(str(tmp_path / "hard"))
    records = [TrainingRecord.load(tmp_path / name) for name in ("plain", "hard")]
    assert [record and record.method for record in records] == [
        "standard",
        "swap + smoothed 2 + reader unicode,leet,spacing,spelling",
    ]
    assert records[1] is not None
    known = {own.fingerprint for own in (one, other, All((other, one)), swapped)}
    assert records[1].fingerprints == known
    assert len(records[1].substitutions) == len(known)
    assert records[1].details["reader"] == "unicode,leet,spacing,spelling"
    assert records[1].details["smoothing"]["hops"] == 2


@pytest.mark.parametrize("accumulation", [1, 4])
def test_other_defences_train_on_it(tmp_path: Path, make_smoothed: Any, bert: Any, accumulation: int) -> None:
    """A smoothed word is one piece, so the hull covers every word of the set."""
    from unshaken.defences.step import Step
    from unshaken.training.collator import TextCollator

    model, tokenizer = make_smoothed(bert[1])
    words = Dictionary(entries={"good": ["fine", "great"], "bad": ["awful"]})
    defence = ASCC(substitutions=words, steps=2) if accumulation == 1 else Standard() + HighTemperature()
    defence.setup(model, num_labels=2, tokenizer=tokenizer)
    batch = TextCollator(tokenizer)(ROWS.rows[:4])
    examples, labels = batch.pop("examples"), batch.pop("labels")
    step = Step(model=model, inputs=batch, labels=labels, examples=examples, tokenizer=tokenizer)
    sum(defence.loss(step).values()).backward()
    assert model.get_input_embeddings().theta.grad.abs().sum() > 0


def test_high_temperature_is_the_formula(make_smoothed: Any, bert: Any) -> None:
    from unshaken.defences.step import Step

    model, tokenizer = make_smoothed(bert[1])
    inputs = dict(tokenizer(TEXTS[:4], padding=True, return_tensors="pt"))
    labels = torch.tensor([0, 1, 0, 1])
    found = (Standard() + HighTemperature(temperature=50)).loss(Step(model=model, inputs=inputs, labels=labels))
    expected = torch.nn.functional.cross_entropy(model(**inputs).logits / 50, labels)
    torch.testing.assert_close(found["task"], expected)
    alone = HighTemperature(temperature=50).loss(Step(model=model, inputs=inputs, labels=labels))
    torch.testing.assert_close(alone["task"], expected)


def test_swap_draws_a_source_first() -> None:
    from unshaken.defences.step import Step

    few, many = Dictionary(entries={"good": ["fine"]}), Typos()
    defence = SWAP(substitutions=All((few, many), limit=None), variants=4000, rate=1.0)
    defence.setup(torch.nn.Linear(1, 1), num_labels=2)
    example = Example(id="0", texts=("good plots",), label=0)
    step = Step(model=torch.nn.Linear(1, 1), inputs={}, labels=torch.zeros(1, dtype=torch.long))
    drawn = [text for (text,) in defence.draw(step, [example])]
    assert 0.45 < sum(text.startswith("fine") for text in drawn) / len(drawn) < 0.55
    expected = {word for one in (few, many) for word in one.candidates(["good", "plots"], 0)}
    assert {text.split()[0] for text in drawn} == expected
    assert {text.split()[1] for text in drawn} == set(many.candidates(["good", "plots"], 1))


def test_joined_sets_and_two_hops() -> None:
    one = Dictionary(entries={"good": ["fine", "nice"], "fine": ["thin"], "nice": ["kind", "good"]})
    joined = All((one, Homoglyphs(limit=2)), limit=1)
    assert joined.candidates(["good"], 0) == ["fine", Homoglyphs(limit=2).candidates(["good"], 0)[0]]
    assert joined.for_text(segment("a good")) == [[], joined.candidates(["good"], 0)]
    assert joined.for_texts([segment("a good")]) == [joined.for_text(segment("a good"))]
    assert TwoHops(one).candidates(["Good"], 0) == ["thin", "kind"]
    assert TwoHops(one, direct=True).candidates(["good"], 0) == ["fine", "nice", "thin", "kind"]
    two = Dictionary(entries={"good": ["Fine", "nice"], "Fine": ["nice", "Good", "kind"], "nice": ["fine", "mild"]})
    assert TwoHops(two, direct=True).candidates(["GOOD"], 0) == ["Fine", "nice", "kind", "fine", "mild"]  # each once
    assert TwoHops(two).candidates(["good"], 0) == ["kind", "mild"]  # neither the word nor a near one in another case
    assert TwoHops(two, limit=1).candidates(["good"], 0) == ["kind"]
    cased = Dictionary(entries=dict(one.entries), lowercase=False)  # it touches no capitalised word
    assert (TwoHops(cased).candidates(["Good"], 0), TwoHops(cased).candidates(["good"], 0)) == ([], ["thin", "kind"])
    with pytest.raises(UnshakenError, match="TwoHops\\(limit=0\\): at least 1"):
        TwoHops(two, limit=0)
    assert All((one,)).fingerprint != All((one,), limit=None).fingerprint != TwoHops(one).fingerprint


def test_unseen_words_are_those_that_no_known_set_has_at_this_word() -> None:
    source = Dictionary(entries={"good": ["Fine", "film", "nice", "kind"], "film": ["good", "plot"]})
    known = (Dictionary(entries={"good": ["fine"]}), Dictionary(entries={"good": ["kind"], "plot": ["film"]}))
    unseen = Unseen(source, known)
    assert unseen.for_text(segment("a Good film")) == [[], ["film", "nice"], ["good", "plot"]]
    assert [unseen.candidates(["a", "Good", "film"], at) for at in range(3)] == unseen.for_text(segment("a Good film"))
    assert unseen.neighbours("good") == ["film", "nice"]
    assert Unseen(source, known, limit=1).neighbours("good") == ["film"]
    assert unseen.fingerprint != Unseen(source, known[:1]).fingerprint
    with pytest.raises(UnshakenError, match="0 known sets"):
        Unseen(source, ())


def test_what_is_unseen_asks_its_source_about_all_texts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A masked language model fills the gaps of many texts in one batch."""
    source, known = Dictionary(entries={"film": ["movie", "plot"], "good": ["fine"]}), WordNet()
    unseen, texts = Unseen(source, (known,)), [segment("a good film"), segment("film"), segment("")]
    expected = [[unseen.candidates(words.surfaces, at) for at in range(len(words))] for words in texts]
    assert expected[0][2] == ["plot"]
    asked = []
    whole = Dictionary.for_texts
    monkeypatch.setattr(Dictionary, "for_texts", lambda self, texts: asked.append(len(texts)) or whole(self, texts))
    assert unseen.for_texts(texts) == expected
    assert asked == [3]
    assert [unseen.for_text(words) for words in texts] == expected


def test_smoothed_over_two_sets_has_both_sets_edges(bert: Any) -> None:
    sets = (Dictionary(entries={"good": ["fine"]}), Dictionary(entries={"good": ["film"]}))
    model, _ = smooth(*bert, Smoothing(substitutions=sets))
    assert model.config.smoothing["words"] == 3
    assert len(model.get_input_embeddings().graph.T) == 3 + 2 * 2
