"""The informative term against a loop over classes, and where its features come from."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tiny import ready, run, tiny_model, tiny_step
from torch import Tensor, nn

from unshaken.defences import InformativeTerm, Standard
from unshaken.errors import UnshakenError


def literal(term: InformativeTerm, student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
    """Class by class, on the rows of the class alone."""
    losses = []
    for label in range(3):
        rows = (labels == label).nonzero()[:, 0]
        if len(rows) < 2:
            continue
        s = F.normalize(term.student_projections[label](student[rows]), dim=-1)
        t = F.normalize(term.teacher_projections[label](teacher[rows]), dim=-1)
        scores = s @ t.T / 0.2
        paper = -sum(torch.log(scores[i, i].exp() / scores[i].exp().sum()) for i in range(len(rows))) / len(rows)
        code = -sum(torch.log(scores[j, j].exp() / scores[:, j].exp().sum()) for j in range(len(rows))) / len(rows)
        losses.append({"paper": paper, "code": code, "symmetric": (paper + code) / 2}[term.direction])
    return torch.stack(losses).mean()


@pytest.mark.parametrize("direction", ["paper", "code", "symmetric"])
@pytest.mark.parametrize("labels", [[0, 1, 2, 0, 1, 2], [0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 1, 2], [2, 2, 2, 2, 2, 2]])
def test_it_is_infonce_within_each_class(direction: Any, labels: list[int]) -> None:
    model = tiny_model()
    term = ready(InformativeTerm(direction=direction), model)
    student = torch.randn(6, 16).double().requires_grad_()
    teacher, classes = torch.randn(6, 16).double(), torch.tensor(labels)
    found, expected = term.loss_of(student, teacher, classes), literal(term, student, teacher, classes)
    torch.testing.assert_close(found, expected)
    projections = [parameter for parameter in term.parameters() if parameter.requires_grad]
    got = torch.autograd.grad(found, [student, *projections], retain_graph=True)
    wanted = torch.autograd.grad(expected, [student, *projections], materialize_grads=True)
    torch.testing.assert_close(got, wanted)


def test_a_batch_with_no_two_of_a_class_costs_nothing() -> None:
    term = ready(InformativeTerm(), tiny_model())
    features = torch.randn(3, 16).double().requires_grad_()
    loss = term.loss_of(features, features.detach(), torch.tensor([0, 1, 2]))
    loss.backward()
    assert loss == 0
    assert not features.grad.any()


def test_unconditional_compares_the_whole_batch() -> None:
    term = ready(InformativeTerm(conditional=False), tiny_model())
    assert len(term.student_projections) == 1
    assert not term.balanced_batches
    student, teacher = torch.randn(5, 16).double(), torch.randn(5, 16).double()
    s = F.normalize(term.student_projections[0](student), dim=-1)
    t = F.normalize(term.teacher_projections[0](teacher), dim=-1)
    expected = F.cross_entropy(s @ t.T / 0.2, torch.arange(5))
    torch.testing.assert_close(term.loss_of(student, teacher, torch.tensor([0, 1, 2, 0, 1])), expected)


def test_unconditional_takes_regression_labels() -> None:
    model = tiny_model(num_labels=1)
    parts, _ = run(ready(InformativeTerm(on="clean", conditional=False), model), tiny_step(model, regression=True))
    assert parts["informative"] > 0


@pytest.mark.parametrize(
    ("backbone", "feature", "pooled"),
    [
        ("bert", "auto", True),
        ("bert", "pooled", True),
        ("bert", "cls", False),
        ("albert", "auto", True),
        ("roberta", "auto", False),
        ("distilbert", "auto", False),
    ],
)
def test_features_are_those_of_the_pass_and_of_the_frozen_copy(backbone: str, feature: Any, pooled: bool) -> None:
    model = tiny_model(backbone, dropout=0.0)
    term = ready(InformativeTerm(on="clean", alpha=0.5, feature=feature), model)
    step = tiny_step(model)
    parts, _ = run(term, step)
    output = model.base_model(**step.inputs)
    features = output.pooler_output if pooled else output.last_hidden_state[:, 0]
    expected = literal(term, features, features, step.labels)  # student and teacher are still the same
    torch.testing.assert_close(parts["informative"], 0.5 * expected)
    before = run(term, step)[0]["informative"]
    with torch.no_grad():
        for parameter in model.base_model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    moved = model.base_model(**step.inputs)
    student = moved.pooler_output if pooled else moved.last_hidden_state[:, 0]
    torch.testing.assert_close(
        run(term, step)[0]["informative"], 0.5 * literal(term, student, features.detach(), step.labels)
    )
    assert run(term, step)[0]["informative"] != before


def test_the_teacher_stays_frozen_and_without_dropout() -> None:
    model = tiny_model(dropout=0.5)
    term = ready(InformativeTerm(on="clean"), model)
    term.train()
    assert not any(module.training for module in term.teacher.modules())
    run(term, tiny_step(model))
    assert all(parameter.grad is None for parameter in term.teacher.parameters())
    assert all(parameter.grad is not None for parameter in term.student_projections.parameters())
    assert all(parameter.grad is not None for parameter in term.teacher_projections.parameters())


def test_it_stands_beside_any_defence_that_makes_its_pass() -> None:
    model = tiny_model(dropout=0.0)
    alone, _ = run(ready(InformativeTerm(on="clean"), model), tiny_step(model))
    assert set(alone) == {"task", "informative"}
    beside, _ = run(ready(Standard() + InformativeTerm(on="clean"), model), tiny_step(model))
    assert set(beside) == set(alone)
    with pytest.raises(UnshakenError, match="reads the adversarial pass, but Standard has clean"):
        Standard() + InformativeTerm()


def test_bad_input() -> None:
    model = tiny_model()
    with pytest.raises(UnshakenError, match="no teacher"):
        InformativeTerm(on="clean").loss(tiny_step(model))
    one = tiny_model(num_labels=1)
    with pytest.raises(UnshakenError, match="conditional=False"):
        ready(InformativeTerm(on="clean"), one).loss(tiny_step(one, regression=True))
    with pytest.raises(UnshakenError, match="no pooler"):
        ready(InformativeTerm(feature="pooled"), tiny_model("roberta"))
    with pytest.raises(UnshakenError, match="no base_model"):
        InformativeTerm().setup(nn.Linear(2, 2), num_labels=2)
    with pytest.raises(UnshakenError, match="adversarial pass"):
        ready(InformativeTerm(), model).loss(tiny_step(model))
    for options in ({"direction": "x"}, {"on": "x"}, {"feature": "x"}):
        with pytest.raises(UnshakenError, match="it is one of"):
            InformativeTerm(**options)
