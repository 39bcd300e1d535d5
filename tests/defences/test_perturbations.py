"""Starts and steps of a perturbation against their closed forms."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tiny import ready, run, tiny_model, tiny_step
from tiny_texts import text_step

from unshaken.defences import SMART, FreeLB
from unshaken.defences.perturbations import ascend, random_start
from unshaken.errors import UnshakenError


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("magnitude", [1.0, 2.0])
def test_a_start_is_uniform_in_its_cube_and_leaves_padding_alone(norm: Any, magnitude: float) -> None:
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
    torch.manual_seed(0)
    found = random_start(torch.zeros(2, 4, 500).double(), mask, magnitude, norm)
    for row, tokens in enumerate((3, 4)):
        side = magnitude if norm == "linf" else magnitude / math.sqrt(tokens * 500)
        inside = found[row, :tokens]
        assert inside.abs().max().item() == pytest.approx(side, rel=0.01)
        assert inside.abs().max() <= side
        assert inside.mean().item() == pytest.approx(0, abs=0.05 * side)
        assert inside.std().item() == pytest.approx(side / math.sqrt(3), rel=0.05)
    assert (found[0, 3] == 0).all()


def test_no_start_draws_no_number() -> None:
    torch.manual_seed(4)
    expected = torch.rand(3)
    torch.manual_seed(4)
    assert (random_start(torch.ones(1, 2, 3), torch.ones(1, 2), 0, "l2") == 0).all()
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_in_a_gradient_moves_nothing(value: float) -> None:
    gradient = torch.tensor([[[3.0, 0.0], [0.0, 4.0], [value, value]]]).double()
    moved = ascend(torch.ones(1, 3, 2).double(), gradient, rate=0.5, max_norm=None, norm="l2")
    expected = torch.tensor([[[1.3, 1.0], [1.0, 1.4], [1.0, 1.0]]]).double()
    torch.testing.assert_close(moved, expected)
    still = ascend(torch.ones(1, 1, 2).double(), torch.full((1, 1, 2), value).double(), rate=9, max_norm=9, norm="l2")
    assert (still == 1).all()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_smart_moves_nothing_where_its_gradient_is_not_finite(value: float) -> None:
    """Rising elements of the ascent's gradient are broken; the loss is that of an ascent in which they stand still."""
    losses = []
    for instead in (value, 0.0):
        model = tiny_model(dropout=0.0)
        passes: list[Any] = []

        def spoil(module: Any, given: Any, passes: list[Any] = passes, instead: float = instead) -> None:
            passes.append(given)
            if len(passes) == 2:  # after the clean pass
                given[0].register_hook(lambda gradient: torch.where(gradient > 0, instead, gradient))

        model.bert.encoder.register_forward_pre_hook(spoil)
        defence = ready(SMART(step_size=0.3, noise=0.01, projection="ball", eps=9.0), model)
        losses.append(run(defence, tiny_step(model, progress=0.5))[0])
        assert len(passes) == 3
    torch.testing.assert_close(losses[0], losses[1])
    assert losses[0]["smoothness"] > 0


def test_smart_as_its_paper_has_it() -> None:
    paper = SMART.paper()
    assert (paper.weight, paper.step_size, paper.projection, paper.bregman_weight) == (1.0, 1e-3, "ball", 1.0)
    model = tiny_model()
    ready(paper, model)
    before = paper.teacher.classifier.weight.clone()
    with torch.no_grad():
        model.classifier.weight.add_(1.0)
    paper.after_step(model)
    torch.testing.assert_close(paper.teacher.classifier.weight, before + 0.01)


def test_the_first_step_alone_looks_whether_gradients_reach_the_words() -> None:
    model = tiny_model(dropout=0.0)
    model.bert.embeddings.register_forward_hook(
        lambda module, given, output: torch.cat([output[:, :1], output[:, 1:].detach()], dim=1)
    )
    defence = ready(FreeLB(), model)
    with pytest.raises(UnshakenError, match="zero at all tokens but one"):
        defence.loss(tiny_step(model))
    for progress in (0.5, 1.0):
        assert defence.loss(tiny_step(model, progress=progress))["adversarial"].isfinite()


def test_texts_are_encoded_to_the_length_of_the_step() -> None:
    step = text_step(tiny_model())
    step.max_length = 4
    encoded = step.encode([("good film " * 9,), ("bad",)])
    assert {values.shape[1] for values in encoded.values()} == {4}
    assert encoded.keys() == step.inputs.keys()
