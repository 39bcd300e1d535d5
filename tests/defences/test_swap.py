"""SWAP against its definition, and what its draws may depend on."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tiny import gradients, ready, run, tiny_model
from tiny_texts import TEXTS, text_step, tokenizer

from unshaken.defences import SWAP
from unshaken.defences.swap import MOMENTUM
from unshaken.errors import UnshakenError
from unshaken.examples import Example
from unshaken.substitutions.dictionary import Dictionary

WORDS = Dictionary(
    entries={"good": ["fine and great"], "bad": ["poor", "awful"], "film": ["movie"]}
)  # one of three pieces


def test_loss_and_gradients_are_those_of_the_worst_variant() -> None:
    model = tiny_model(dropout=0.0)
    step = text_step(model, progress=0.25)
    defence = ready(SWAP(substitutions=WORDS, variants=3, beta=2.0), model, tokenizer())
    parts, found = run(defence, step)
    drawn = defence.draw(step, step.examples)
    assert len(drawn) == 3 * len(TEXTS)
    assert any("fine and great" in text for (text,) in drawn)

    worst = []
    for row, label in enumerate(step.labels):
        own = [drawn[variant * len(TEXTS) + row][0] for variant in range(3)]
        losses = [
            F.cross_entropy(model(**tokenizer()([text], return_tensors="pt")).logits, label[None]) for text in own
        ]
        worst.append(own[torch.stack(losses).argmax()])
    model.zero_grad()
    clean = model(**step.inputs).logits
    adversarial = model(**tokenizer()(worst, padding=True, return_tensors="pt")).logits
    penalty = F.kl_div(adversarial.log_softmax(-1), clean.log_softmax(-1), reduction="batchmean", log_target=True)
    torch.testing.assert_close(parts["swap"], 2.0 * penalty)
    torch.testing.assert_close(parts["task"], F.cross_entropy(clean, step.labels))
    (F.cross_entropy(clean, step.labels) + 2.0 * penalty).backward()
    torch.testing.assert_close(found, gradients(model))


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
    assert defence.draw(step, examples) == [("The Plot",), ("The Movie",)] * 3
    torch.testing.assert_close(defence.gains[defence.gains != 0].sum(), torch.tensor(0.0))  # gains are above the mean

    other = ready(SWAP(substitutions=words, variants=3, rate=1.0, greed=1.0), model, tokenizer())
    other.load_state_dict(defence.state_dict())
    assert other.draw(step, examples) == defence.draw(step, examples)
    known = defence.gains.clone()
    defence.remember(examples, choices, torch.full((3, 2), torch.nan))
    assert torch.equal(defence.gains, known)


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


def test_bad_input() -> None:
    for options in ({"variants": 0}, {"rate": 0.0}, {"rate": 1.5}, {"greed": -0.1}, {"greed": 0.5, "variants": 1}):
        with pytest.raises(UnshakenError):
            SWAP(**options)
    model = tiny_model()
    step = text_step(model)
    with pytest.raises(UnshakenError, match="call setup"):
        SWAP(substitutions=WORDS).loss(step)
    nothing = ready(SWAP(substitutions=Dictionary(entries={"nowhere": ["else"]})), model, tokenizer())
    with pytest.raises(UnshakenError, match="no usable substitute"):
        nothing.draw(step, [step.examples[0].with_texts([f"text {number}"]) for number in range(64)])
    step.labels = step.labels.double()
    with pytest.raises(UnshakenError, match="regression"):
        ready(SWAP(substitutions=WORDS), model, tokenizer()).loss(step)
