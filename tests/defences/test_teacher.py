"""PlainTeacher against its formula, and what it refuses."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import VOCABULARY, gradients, ready, run, tiny_model
from tiny_texts import TEXTS, text_step, tokenizer

from table import taught
from unshaken.defences import SWAP, Defence, PlainTeacher, Standard, parse
from unshaken.errors import UnshakenError
from unshaken.substitutions.dictionary import Dictionary
from unshaken.victims import Victim

WORDS = Dictionary(entries={"good": ["fine", "great"], "bad": ["poor", "awful"], "film": ["movie"]})


def alone(text: str) -> torch.Tensor:
    """The teacher's probabilities of one text, without anything of ours around it."""
    with torch.no_grad():
        return taught().model(**tokenizer()([text], return_tensors="pt")).logits.softmax(-1)[0]


@pytest.mark.parametrize("objective", [Standard, lambda: SWAP(substitutions=WORDS, beta=2.0)])
def test_it_adds_the_divergence_from_the_teacher_and_its_gradient(objective: Any) -> None:
    """By autograd for the objective beside it, and in closed form for the term: weight (q - p) / rows at each logit."""
    model = tiny_model(dropout=0.2)
    plain = ready(objective(), model, tokenizer())
    both = ready(objective() + PlainTeacher(model=taught(), weight=3.0), model, tokenizer())
    step = text_step(model)
    parts, found = run(both, step)
    clean = step.published["clean"].logits
    assert not taught().model.training

    p = torch.stack([alone(text) for text in TEXTS])
    q = clean.detach().softmax(-1)
    divergence = sum(p[i, c] * (p[i, c] / q[i, c]).log() for i in range(len(TEXTS)) for c in range(3)) / len(TEXTS)
    assert divergence > 0.01
    torch.testing.assert_close(parts["teacher"], 3 * divergence, rtol=1e-5, atol=1e-7)

    other = text_step(model)
    model.zero_grad()
    torch.manual_seed(7)
    losses = plain.loss(other)
    assert parts.keys() == losses.keys() | {"teacher"}
    logits = other.published["clean"].logits
    torch.stack(list(losses.values())).sum().backward(retain_graph=True)
    logits.backward(3 * (q - p) / len(TEXTS))
    torch.testing.assert_close(found, gradients(model), rtol=1e-4, atol=1e-6)


def test_the_teacher_learns_nothing() -> None:
    model = tiny_model()
    before = {name: value.clone() for name, value in taught().model.state_dict().items()}
    run(ready(PlainTeacher(model=taught()), model), text_step(model))
    assert all(parameter.grad is None for parameter in taught().model.parameters())
    torch.testing.assert_close(dict(taught().model.state_dict()), before, rtol=0, atol=0)


def test_a_model_that_answers_as_its_teacher_is_left_alone() -> None:
    model = tiny_model(dropout=0.0)
    defence = ready(PlainTeacher(model=Victim.from_model(tiny_model(), tokenizer(), max_length=24)), model)
    step = text_step(model)
    step.publish("clean", step.forward())
    penalty = defence.penalty(step)["teacher"]
    assert penalty.abs() < 1e-6
    penalty.backward()
    assert max(value.abs().max() for value in gradients(model).values()) < 1e-5


def test_a_teacher_is_read_from_its_folder_and_named_in_the_record(tmp_path: Path) -> None:
    taught().model.save_pretrained(tmp_path)
    known = copy.deepcopy(tokenizer())
    known.add_tokens([f"word{number}" for number in range(VOCABULARY - len(known))])  # as many as the model has
    known.save_pretrained(tmp_path)
    defence = parse(f"swap+teacher:model={tmp_path},weight=0.5")
    defence.parts[0].substitutions = WORDS
    model = tiny_model()
    ready(defence, model, tokenizer())
    parts, _ = run(defence, text_step(model))
    expected, _ = run(
        ready(SWAP(substitutions=WORDS) + PlainTeacher(model=taught()), model, tokenizer()), text_step(model)
    )
    torch.testing.assert_close(parts["teacher"], expected["teacher"] / 2, rtol=1e-4, atol=1e-6)
    assert defence.facts() == {"teacher": Victim.from_pretrained(tmp_path).fingerprint}


@pytest.mark.parametrize(
    ("defence", "message"),
    [
        (PlainTeacher(), "name a classifier: --defence swap[+]teacher:model=FOLDER"),
        (
            PlainTeacher(model=Victim.from_callable(lambda texts: [[0.5, 0.5]] * len(texts), num_labels=2)),
            "has 2 classes and the model 3",
        ),
    ],
)
def test_a_teacher_that_cannot_teach_is_refused_before_training(defence: Defence, message: str) -> None:
    with pytest.raises(UnshakenError, match=message):
        ready(defence, tiny_model())


def test_the_same_labels_in_another_order_are_refused() -> None:
    model, other = tiny_model(), tiny_model()
    model.config.id2label = {0: "bad", 1: "fair", 2: "good"}
    other.config.id2label = {0: "good", 1: "fair", 2: "bad"}
    with pytest.raises(UnshakenError, match="labels good, fair, bad, the model bad, fair, good"):
        ready(PlainTeacher(model=Victim.from_model(other, tokenizer(), max_length=24)), model)


def test_a_weight_is_above_zero() -> None:
    with pytest.raises(UnshakenError, match="weight is 0"):
        PlainTeacher(weight=0)
