"""Diagnostics against values that are known."""

from __future__ import annotations

import pytest
import torch
from models import SETTINGS, tiny, tokens
from transformers import BertConfig, BertForSequenceClassification

from unshaken import Connection, connect
from unshaken.connections.stability import (
    layer_residuals,
    lipschitz_estimates,
    perturbation_growth,
    recommended_solver,
    residual_curves,
)
from unshaken.solvers import Anderson, FixedPoint


def linear_bert(scale: float) -> BertForSequenceClassification:
    """A BERT whose one layer is x -> scale * x: attention and feed-forward are off, and LayerNorms are linear."""

    class Scale(torch.nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.factor * x

    config = BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, vocab_size=60)
    model = BertForSequenceClassification(config).eval()
    layer = model.bert.encoder.layer[0]
    for module in (layer.attention.output.dense, layer.output.dense):
        torch.nn.init.zeros_(module.weight)
        torch.nn.init.zeros_(module.bias)
    layer.attention.output.LayerNorm = torch.nn.Identity()
    layer.output.LayerNorm = Scale(scale)
    return model


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_the_steepness_of_a_scaling_is_its_factor(scale):
    assert lipschitz_estimates(linear_bert(scale), tokens()) == {"1": pytest.approx(scale, rel=1e-4)}


def test_growth_through_a_scaling_is_relative_and_therefore_one():
    kinds = {
        "plain": None,
        "explicit": Connection.ex_bert(),
        "implicit": Connection(form="layer", solver=Anderson(steps=9)),
    }
    for row in perturbation_growth(linear_bert(0.5), tokens(), kinds):
        assert row.ratios == pytest.approx([1.0, 1.0], rel=1e-3)


def test_residuals_fall_with_steps_and_are_those_of_the_output():
    model = connect(linear_bert(0.5), Connection(form="layer", solver=FixedPoint(steps=3)))
    # z_k of z = h + z / 2 from h is h (2 - 2^-k): four evaluations in all, the residual is 2^-5 h of a size 2 - 2^-5.
    assert layer_residuals(model, tokens())["1"] == pytest.approx(2**-5 / (2 - 2**-5), rel=1e-3)


def test_the_recommendation_meets_its_target_or_says_what_it_reached():
    curves = residual_curves(tiny("bert"), tokens(), Connection())
    solver, reached = recommended_solver(curves, target=0.5)
    assert reached <= 0.5
    worst = max(dict(zip(c.steps, c.residuals, strict=True))[solver.steps] for c in curves if c.solver == "anderson")
    assert reached == worst
    assert recommended_solver(curves, target=0.0)[1] > 0


@pytest.mark.parametrize("kind", sorted(SETTINGS))
def test_every_backbone_can_be_examined(kind):
    model, batch = tiny(kind), tokens(kind)
    growth = perturbation_growth(model, batch, {"plain": None, "implicit": Connection(solver=FixedPoint(steps=2))})
    assert all(len(row.ratios) > 1 and row.ratios[0] == 1 for row in growth)
    assert all(torch.isfinite(torch.tensor(row.ratios)).all() for row in growth)
