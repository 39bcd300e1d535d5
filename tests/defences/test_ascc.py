"""ASCC against the official code's own layout, written out: padded slots for every token, a mask, two passes."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from literal_hull import WORDS, literal_loss, sensitive_model, start_of
from tiny import gradients, ready, run, tiny_model
from tiny_texts import text_step, tokenizer
from torch import Tensor, nn

from unshaken.defences import ASCC, PTWD, Step
from unshaken.errors import UnshakenError
from unshaken.readers import KnownWords, parse
from unshaken.substitutions import hull_search
from unshaken.substitutions.dictionary import Dictionary
from unshaken.substitutions.hull_search import HullSearch
from unshaken.word_gradients import refuse_blind_words


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"entropy": "mean"}, {"objective": "ce"}], ids=["official", "mean-entropy", "climbs-the-label"]
)
def test_loss_and_gradients_are_the_official_ones(pairs: bool, options: dict[str, Any]) -> None:
    """With dropout: drawn anew for every candidate of the training pass, never in the search."""
    model = sensitive_model(dropout=0.2)
    step = text_step(model, pairs=pairs)
    defence = ready(ASCC(substitutions=WORDS, beta=3.0, steps=4, **options), model, tokenizer())
    parts, found = run(defence, step)
    assert set(parts) == {"task", "ascc"}
    assert parts["ascc"] > 1e-4
    model.zero_grad()
    literal = {"mean_entropy": options.get("entropy") == "mean", "objective": options.get("objective", "kl")}
    expected, _ = literal_loss(model, step, start_of(defence, step), 4, 3.0, **literal)
    expected.backward()
    torch.testing.assert_close(sum(parts.values()), expected)
    torch.testing.assert_close(found, gradients(model), rtol=1e-4, atol=1e-6)  # mixing weights are single precision


def test_the_search_is_without_dropout_and_the_training_pass_with_it() -> None:
    model = sensitive_model(dropout=0.3)
    step = text_step(model)
    defence = ready(ASCC(substitutions=WORDS, steps=2), model, tokenizer())
    hull = defence.hull_of(step)
    torch.manual_seed(1)
    first = defence.worst(step, hull, hull.narrowed(step.inputs))
    torch.manual_seed(2)
    assert torch.equal(first, defence.worst(step, hull, hull.narrowed(step.inputs)))
    assert model.training
    assert run(defence, step, seed=1)[0]["ascc"] != run(defence, step, seed=2)[0]["ascc"]
    noisy = ready(ASCC(substitutions=WORDS, steps=2, attack_dropout=True), model, tokenizer())
    torch.manual_seed(1)
    first = noisy.worst(step, hull, hull.narrowed(step.inputs))
    torch.manual_seed(2)
    assert not torch.equal(first, noisy.worst(step, hull, hull.narrowed(step.inputs)))


def test_the_loss_of_an_example_does_not_depend_on_the_batch() -> None:
    model = sensitive_model()
    step = text_step(model)
    defence = ready(ASCC(substitutions=WORDS, steps=3), model, tokenizer())
    whole = sum(run(defence, step)[0].values())
    alone = []
    for row in range(len(step.labels)):
        length = int(step.inputs["attention_mask"][row].sum())
        inputs = {name: values[row : row + 1, :length] for name, values in step.inputs.items()}
        options = {"tokenizer": step.tokenizer, "max_length": step.max_length}
        part = Step(
            model=model,
            inputs=inputs,
            labels=step.labels[row : row + 1],
            examples=step.examples[row : row + 1],
            **options,
        )
        alone.append(sum(run(defence, part)[0].values()))
    torch.testing.assert_close(whole, torch.stack(alone).mean())


def test_a_warm_start_begins_where_the_last_search_of_word_and_label_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    model = sensitive_model()
    step = text_step(model)
    defence = ready(ASCC(substitutions=WORDS, steps=2, warm_start=True, objective="ce"), model, tokenizer())
    hull = defence.hull_of(step)
    guess = defence.search.first_guess(hull, step.max_length, step.progress)
    found = defence.worst(step, hull, hull.narrowed(step.inputs))
    assert not torch.equal(found, guess)
    ended = {}  # the last word of a label in the batch is the one remembered
    for number, word in enumerate(hull.words):
        ended[step.labels[word.row].item(), word.choices[0]] = found[number] - found[number].mean()
    for (label, word), logits in ended.items():
        kept = defence.memory[label, tokenizer().convert_tokens_to_ids(word)]
        torch.testing.assert_close(kept[: len(logits)], logits.to(kept.dtype))
    assert defence.memory.any(-1).sum() == len(ended)

    starts: list[Tensor] = []
    monkeypatch.setattr(
        HullSearch, "__call__", lambda self, model, hull, start, *_, **__: starts.append(start) or start
    )
    defence.worst(step, hull, hull.narrowed(step.inputs))
    again = [ended[step.labels[word.row].item(), word.choices[0]] for word in hull.words]
    torch.testing.assert_close(starts[0], guess + torch.stack(again))
    assert "memory" in defence.state_dict()


def test_it_tells_what_its_hull_held() -> None:
    model = tiny_model()
    defence = ready(ASCC(substitutions=WORDS), model, tokenizer())
    assert defence.facts() == {}
    run(defence, text_step(model))
    assert defence.facts() == {"hull_coverage": {"words": 1.0, "substitutes": 1.0, "texts": 1.0}}


def test_options_reach_the_search() -> None:
    names = {field.name for field in fields(HullSearch)}
    assert names <= {field.name for field in fields(ASCC)}
    official = ASCC()
    assert {name: getattr(official, name) for name in names} == {
        field.name: field.default for field in fields(HullSearch)
    }
    assert ASCC(init="clean", space="word").search == HullSearch(init="clean", space="word")


def test_a_batch_without_substitutable_words_is_the_task_alone() -> None:
    model = sensitive_model()
    step = text_step(model)
    defence = ready(ASCC(substitutions=Dictionary(entries={"nowhere": ["else"]})), model, tokenizer())
    parts, _ = run(defence, step)
    torch.testing.assert_close(parts["ascc"], torch.zeros_like(parts["ascc"]))
    for _ in range(9):
        defence.loss(step)
    with pytest.raises(UnshakenError, match="no usable substitute for any word of the first 66 texts"):
        defence.loss(step)


def test_bad_input() -> None:
    model = tiny_model()
    with pytest.raises(UnshakenError, match="token embeddings"):
        ASCC(substitutions=WORDS).setup(nn.Linear(2, 2), num_labels=2)
    with pytest.raises(UnshakenError, match="objective"):
        ASCC(objective="x")  # type: ignore[arg-type]
    with pytest.raises(UnshakenError, match="did you mean 'wordnet'"):
        ready(ASCC(substitutions="wordnett"), model)
    defence = ready(ASCC(substitutions=WORDS), model)
    step = text_step(model)
    step.tokenizer = None
    with pytest.raises(UnshakenError, match="processing_class"):
        defence.loss(step)
    step = text_step(model)
    step.examples = None
    with pytest.raises(UnshakenError, match="Examples"):
        defence.loss(step)
    step = text_step(model)
    step.labels = step.labels.double()
    with pytest.raises(UnshakenError, match="regression"):
        defence.loss(step)
    with pytest.raises(UnshakenError, match="whole objective"):
        ASCC() + ASCC()
    assert len((ASCC() + PTWD()).parts) == 2


def test_a_gradient_that_does_not_reach_the_words_is_refused_in_the_first_batch_that_has_any() -> None:
    model = tiny_model(dropout=0.0)

    def blind(layer: nn.Module, given: Any) -> Any:
        states, *rest = given
        return torch.cat([states[:, :1], states[:, 1:].detach()], 1), *rest

    model.bert.encoder.layer[0].register_forward_pre_hook(blind)
    step = text_step(model)
    made = tokenizer()(["zzz"] * len(step.labels), return_tensors="pt")
    wordless = replace(
        step,
        examples=[replace(example, texts=("zzz",)) for example in step.examples],
        inputs={name: made[name] for name in step.inputs},
    )
    defence = ready(ASCC(substitutions=WORDS), model, tokenizer())
    defence.loss(wordless)
    with pytest.raises(UnshakenError, match="zero at every word"):
        defence.loss(replace(step, progress=0.5))


def test_one_word_is_enough_to_look_at_and_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look makes a GPU wait."""
    model = sensitive_model()
    step = text_step(model)
    looked: list[int] = []

    def look(at_words: Tensor, at_logits: Tensor) -> None:
        looked.append(len(at_words))
        refuse_blind_words(at_words, at_logits)

    monkeypatch.setattr(hull_search, "refuse_blind_words", look)
    defence = ready(ASCC(substitutions=Dictionary(entries={"end": ["film"]}), steps=2), model, tokenizer())
    for _ in range(2):
        defence.loss(step)
    assert looked == [1]


def test_the_hull_holds_substitutes_as_the_models_reader_reads_them() -> None:
    """Those that it mends are no other point; training on them would spend steps on texts that no model reads."""
    reader = parse("spelling", KnownWords.of(["a good film", "a great movie"]))
    assert reader.texts(["goood", "greaat"]) == ("good", "great")
    substitutions = Dictionary(entries={"good": ["goood", "greaat"]})
    step = text_step(sensitive_model(), reader=reader)
    words = ready(ASCC(substitutions=substitutions), step.model, tokenizer()).hull_of(step).words
    assert len(words) == 4
    assert {found.choices for found in words} == {("good", "greaat")}
