"""SWAP against its definition, and what its draws may depend on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tiny import gradients, ready, run, tiny_model
from tiny_texts import TEXTS, text_step, tokenizer
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

from unshaken.defences import SWAP, Step
from unshaken.defences.swap import MOMENTUM
from unshaken.embedded import minilm_path
from unshaken.errors import UnshakenError
from unshaken.examples import Example
from unshaken.readers import KnownWords, parse
from unshaken.substitutions import All, Typos
from unshaken.substitutions.dictionary import Dictionary
from unshaken.substitutions.words import segment

WORDS = Dictionary(
    entries={"good": ["fine and great"], "bad": ["poor", "awful"], "film": ["movie"]}
)  # one of three pieces


def wordpiece_step(**options: Any) -> Step:
    """The same texts with BERT's own tokenizer, whose tokens SWAP puts together from words tokenised once."""
    made = AutoTokenizer.from_pretrained(minilm_path())
    torch.manual_seed(0)
    config = BertConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=3)
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        setattr(config, name, 0.2)
    model = BertForSequenceClassification(config).double().train()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(10)
    step = text_step(model, **options)
    inputs = made([text for (text,) in (example.texts for example in step.examples)], padding=True, return_tensors="pt")
    return replace(step, inputs=dict(inputs), tokenizer=made)


@pytest.mark.parametrize("wordpiece", [False, True])
@pytest.mark.parametrize("variants", [1, 2, 3])
def test_loss_and_gradients_are_those_of_the_worst_variant(wordpiece: bool, variants: int) -> None:
    """With dropout: none where variants are compared, and in the one pass over texts and worst variants."""
    step = wordpiece_step(progress=0.25) if wordpiece else text_step(tiny_model(dropout=0.2), progress=0.25)
    model: Any = step.model
    defence = ready(SWAP(substitutions=WORDS, variants=variants, beta=2.0), model, step.tokenizer)
    parts, found = run(defence, step)
    assert defence._assembler.usable == wordpiece
    drawn = [text for (text,) in defence.draw(step, step.examples)]
    assert len(drawn) == variants * len(TEXTS)
    assert any("fine and great" in text for text in drawn)

    model.eval()
    worst = []
    for row, label in enumerate(step.labels):
        own = [variant * len(TEXTS) + row for variant in range(variants)]
        losses = [
            F.cross_entropy(model(**step.tokenizer([drawn[number]], return_tensors="pt")).logits, label[None])
            for number in own
        ]
        worst.append(len(TEXTS) + own[torch.stack(losses).argmax()])
    model.train()
    model.zero_grad()
    every = step.tokenizer([*TEXTS, *drawn], padding=True, return_tensors="pt")
    torch.manual_seed(7)
    chosen = [*range(len(TEXTS)), *worst]
    clean, adversarial = model(**{name: values[chosen] for name, values in every.items()}).logits.chunk(2)
    penalty = F.kl_div(adversarial.log_softmax(-1), clean.log_softmax(-1), reduction="batchmean", log_target=True)
    torch.testing.assert_close(parts["swap"], 2.0 * penalty)
    torch.testing.assert_close(parts["task"], F.cross_entropy(clean, step.labels))
    (F.cross_entropy(clean, step.labels) + 2.0 * penalty).backward()
    torch.testing.assert_close(found, gradients(model))


def test_variants_are_read_part_by_part_as_whole_texts_are() -> None:
    words = All((WORDS, Typos()), limit=4)
    step = replace(wordpiece_step(), reader=parse("all", KnownWords.of(TEXTS, [WORDS])))
    assert any(step.reader(text) != text for example in step.examples for text in typed(example, words))
    defence = ready(SWAP(substitutions=words, rate=1.0), step.model, step.tokenizer)
    found, _ = defence.encode(step, step.examples)
    texts = [*(example.texts for example in step.examples), *defence.draw(step, step.examples)]
    expected = step.encode(texts)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert any(recipe is not None for recipe in defence._recipes.values())  # otherwise both are one way


def test_what_the_reader_mends_is_not_drawn() -> None:
    """Of typing errors only those are drawn that the reader makes another word of."""
    known = KnownWords.of([*TEXTS, "god", "flm"], [WORDS])  # "god" is "good" without a letter, and known
    step = replace(wordpiece_step(), reader=parse("spelling", known))
    defence = ready(SWAP(substitutions=All((WORDS, Typos()), limit=None), rate=1.0, variants=64), step.model)
    drawn = defence.draw(step, step.examples)
    written = {word for (text,) in drawn for word in segment(text)} - {word for text in TEXTS for word in segment(text)}
    assert {"god", "flm", "movie"} <= written
    assert not {word for word in written if step.reader(word) in ("good", "film")}
    bare = defence.draw(replace(step, reader=None), step.examples)
    assert {"fiilm", "gpod"} <= {word for (text,) in bare for word in segment(text)}


def typed(example: Example, words: All) -> list[str]:
    return [form for text in example.texts for forms in words.for_text(segment(text)) for form in forms]


def test_the_choice_is_made_without_dropout() -> None:
    model = tiny_model(dropout=0.4)
    step = text_step(model)
    defence = ready(SWAP(substitutions=WORDS), model, tokenizer())
    variants = step.encode(defence.draw(step, step.examples))
    torch.manual_seed(1)
    first = defence.losses(step, variants)
    torch.manual_seed(2)
    assert torch.equal(first, defence.losses(step, variants))
    assert model.training


def test_draws_depend_on_example_seed_and_progress_only() -> None:
    model = tiny_model()
    defence = ready(SWAP(substitutions=WORDS, variants=2), model, tokenizer())
    step = text_step(model, progress=0.5)
    whole = defence.draw(step, step.examples)
    assert defence.draw(step, step.examples[1:2]) == [whole[1], whole[1 + len(TEXTS)]]
    assert defence.draw(text_step(model, progress=0.75), step.examples) != whole
    other = ready(SWAP(substitutions=WORDS, variants=2, seed=1), model, tokenizer())
    assert other.draw(step, step.examples) != whole


def test_rate_and_columns() -> None:
    model = tiny_model()
    every = ready(SWAP(substitutions=WORDS, variants=1, rate=1.0, columns=(1,)), model, tokenizer())
    step = text_step(model, pairs=True)
    for example, (first, second) in zip(step.examples, every.draw(step, step.examples), strict=True):
        assert first == example.texts[0]
        assert not {"good", "bad", "film"} & set(second.split())
    assert every.passes().forward == 2  # with one variant there is nothing to compare


def test_draws_are_even_and_unrelated() -> None:
    model = tiny_model()
    words = Dictionary(entries={"good": ["fine", "great"], "bad": ["poor", "awful"]})
    defence = ready(SWAP(substitutions=words, variants=2, rate=0.6), model, tokenizer())
    examples = [Example(id=str(number), texts=("good bad",), label=0) for number in range(4000)]
    drawn = Counter(defence.draw(text_step(model), examples))
    shares = {"good": 0.4, "fine": 0.3, "great": 0.3, "bad": 0.4, "poor": 0.3, "awful": 0.3}
    assert len(drawn) == 9
    for (text,), count in drawn.items():
        first, second = text.split()
        assert count / 8000 == pytest.approx(shares[first] * shares[second], abs=0.015)


def test_greed_prefers_what_raised_the_loss_of_its_label() -> None:
    model = tiny_model()
    words = Dictionary(entries={"film": ["movie", "end", "plot"]})
    defence = ready(SWAP(substitutions=words, variants=3, rate=1.0, greed=1.0), model, tokenizer())
    assert defence.gains.dtype == torch.float32
    examples = [Example(id=str(label), texts=("The Film",), label=label) for label in (0, 1)]
    step = text_step(model)
    choices = np.array([[1, 1], [2, 2], [3, 3]])  # of each variant, at each example's one place
    defence.remember(examples, choices, torch.tensor([[0.0, 3.0], [1.0, 0.0], [5.0, 0.0]]))
    for number in range(40):  # gains of 0.9 and 0.6 against less than nothing: e^-9 and e^-9 are left for the others
        drawn = defence.draw(text_step(model, progress=number / 40), examples)
        assert drawn == [("The Plot",), ("The Movie",)] * 3
    torch.testing.assert_close(defence.gains[defence.gains != 0].sum(), torch.tensor(0.0))  # gains are above the mean

    other = ready(SWAP(substitutions=words, variants=3, rate=1.0, greed=1.0), model, tokenizer())
    other.load_state_dict(defence.state_dict())
    assert other.draw(step, examples) == defence.draw(step, examples)
    known = defence.gains.clone()
    defence.remember(examples, choices, torch.full((3, 2), torch.nan))
    assert torch.equal(defence.gains, known)


def test_greed_draws_by_the_softmax_of_gains_and_evenly_among_the_unseen() -> None:
    model = tiny_model()
    words = Dictionary(entries={"film": ["movie", "end", "plot"], "bad": ["poor", "awful"]})
    defence = ready(SWAP(substitutions=words, variants=2, rate=1.0, greed=1.0), model, tokenizer())
    examples = [Example(id=str(number), texts=("bad film",), label=0) for number in range(3000)]
    drawn = Counter(word for (text,) in defence.draw(text_step(model), examples) for word in text.split())
    for word, share in {"movie": 1 / 3, "end": 1 / 3, "plot": 1 / 3, "poor": 1 / 2, "awful": 1 / 2}.items():
        assert drawn[word] / 6000 == pytest.approx(share, abs=0.02)
    first, _, entries = defence._entries(examples[:1])
    defence.gains[entries[first[1] + 1 : first[1] + 4].astype(np.int64)] = torch.tensor([0.2, 0.1, 0.0])
    drawn = Counter(word for (text,) in defence.draw(text_step(model), examples) for word in text.split())
    expected = torch.softmax(torch.tensor([2.0, 1.0, 0.0]), 0).tolist()
    for word, share in zip(("movie", "end", "plot"), expected, strict=True):
        assert drawn[word] / 6000 == pytest.approx(share, abs=0.02)
    assert drawn["poor"] / 6000 == pytest.approx(1 / 2, abs=0.02)


def test_repeated_sightings_count_as_one_after_the_other() -> None:
    model = tiny_model()
    defence = ready(SWAP(substitutions=WORDS, variants=2, greed=0.5), model, tokenizer())
    examples = [Example(id=str(number), texts=("film",), label=0) for number in range(2)]
    defence.remember(examples, np.array([[1, 1], [0, 0]]), torch.tensor([[1.0, 1.0], [0.0, 0.0]]))
    expected = 0.0
    for _ in range(2):
        expected += MOMENTUM * (0.5 - expected)
    assert defence.gains.max().item() == pytest.approx(expected)
    assert defence.gains.count_nonzero() == 1
    defence.remember(examples[:1], np.array([[1], [0]]), torch.tensor([[0.0], [0.4]]))  # a gain of -0.2, seen once
    assert defence.gains.sum().item() == pytest.approx(0.7 * expected - 0.3 * 0.2)


def test_spread_variants_replace_a_rising_share_of_the_words() -> None:
    model = tiny_model()
    words = Dictionary(entries={"good": ["fine"], "bad": ["poor"]})
    defence = ready(SWAP(substitutions=words, variants=4, rate=0.8, spread=True), model, tokenizer())
    examples = [Example(id=str(number), texts=("good bad",), label=0) for number in range(4000)]
    drawn = defence._choose(text_step(model), examples)  # (variants, places)
    assert drawn.mean(1) == pytest.approx([0.2, 0.4, 0.6, 0.8], abs=0.015)
    plain = ready(SWAP(substitutions=words, variants=4, rate=0.8), model, tokenizer())
    assert (plain._choose(text_step(model), examples)[-1] == drawn[-1]).all()


def test_recall_crosses_the_worst_variant_of_each_example_with_a_fresh_draw() -> None:
    model = tiny_model()
    words = Dictionary(entries={"good": ["fine", "great"], "bad": ["poor", "awful"]})
    options: dict[str, Any] = {"substitutions": words, "variants": 2, "rate": 0.5}
    defence, plain = (ready(SWAP(**options, **more), model, tokenizer()) for more in ({"recall": 0.6}, {}))
    examples = [Example(id=str(number), texts=("good bad",), label=0) for number in range(3000)]
    step = text_step(model, progress=0.3)
    assert (defence._choose(step, examples) == plain._choose(step, examples)).all()  # nothing to recall
    # The second variant of even examples and the first of odd ones are the worst.
    choices = np.tile(np.array([[0, 1], [2, 1]]), (1, 3000))  # good and poor; great and poor
    losses = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).repeat(1, 1500)
    defence.remember_worst(examples, choices, losses)
    found = defence._choose(text_step(model, progress=0.6), examples).reshape(2, 1500, 2, 2)  # even and odd, two places
    fresh = {0: 0.5, 1: 0.25, 2: 0.25}
    for parity, kept in ((0, (2, 1)), (1, (0, 1))):
        for place, choice in enumerate(kept):
            share = (found[:, :, parity, place] == choice).mean()
            assert share == pytest.approx(0.6 + 0.4 * fresh[choice], abs=0.03)

    other = ready(SWAP(**options, recall=0.6), model, tokenizer()).half()
    assert other.worst.dtype == torch.int16
    other.load_state_dict(defence.state_dict())
    assert (other._choose(step, examples) == defence._choose(step, examples)).all()
    alone = defence._choose(step, examples[7:8])
    assert (alone == defence._choose(step, examples)[:, 14:16]).all()


def test_the_worst_variant_of_a_step_is_what_is_recalled() -> None:
    model = tiny_model(dropout=0.0)
    defence = ready(SWAP(substitutions=WORDS, variants=3, rate=0.7, recall=0.999), model, tokenizer())
    step = text_step(model, progress=0.1)
    drawn = defence.draw(step, step.examples)
    losses = defence.losses(step, step.encode(drawn))
    defence.loss(step)
    rows = len(TEXTS)
    worst = [drawn[int(number) * rows + row] for row, number in enumerate(losses.argmax(0))]
    again = defence.draw(text_step(model, progress=0.2), step.examples)
    assert sum(again[row] == worst[row] for row in range(rows)) >= rows - 1


def test_bad_input() -> None:
    alone = [{name: 0.5, "variants": 1} for name in ("greed", "recall", "spread")]
    for options in (
        {"variants": 0},
        {"rate": 0.0},
        {"rate": 1.5},
        {"greed": -0.1},
        {"greed": 1.5},
        {"recall": 1.0},
        *alone,
    ):
        with pytest.raises(UnshakenError):
            SWAP(**options)
    model = tiny_model()
    step = text_step(model)
    with pytest.raises(UnshakenError, match="call setup"):
        SWAP(substitutions=WORDS).loss(step)
    nothing = ready(SWAP(substitutions=Dictionary(entries={"nowhere": ["else"]})), model, tokenizer())
    texts = [step.examples[0].with_texts([f"text {number}"]) for number in range(64)]
    assert len(nothing.draw(step, texts[:63])) == 4 * 63  # too few to tell
    with pytest.raises(UnshakenError, match="no usable substitute"):
        nothing.draw(step, texts)
    step.labels = step.labels.double()
    with pytest.raises(UnshakenError, match="regression"):
        ready(SWAP(substitutions=WORDS), model, tokenizer()).loss(step)


def test_one_text_is_a_batch_and_another_length_is_obeyed() -> None:
    step = wordpiece_step()
    defence = ready(SWAP(substitutions=WORDS, rate=1.0), step.model, step.tokenizer)
    for length in (32, 5, 32):
        now = replace(step, max_length=length)
        found, _ = defence.encode(now, step.examples[:1])
        expected = now.encode([step.examples[0].texts, *defence.draw(now, step.examples[:1])])
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert found["input_ids"].shape[1] > 5
    assert defence._recipes  # otherwise both are one way
