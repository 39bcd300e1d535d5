"""Diagnostics against values that are known."""

from __future__ import annotations

import pytest
import torch
from models import SETTINGS, tiny, tokens
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
)

from unshaken import Connection, connect
from unshaken.connections.quality import gradient_quality, noise
from unshaken.connections.stability import (
    layer_residuals,
    lipschitz_estimates,
    perturbation_growth,
    recommended_solver,
    residual_curves,
    rightmost_eigenvalues,
)
from unshaken.embedded import minilm_path
from unshaken.solvers import Anderson, FixedPoint, GradientDescent


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


def test_the_rightmost_eigenvalue_is_that_of_the_jacobian():
    """Against the whole spectrum of the dense Jacobian over the real tokens of each text."""
    model, batch = tiny("bert", num_hidden_layers=1).double(), tokens(length=6)
    layer = model.base_model.encoder.layer[0]
    h = model.base_model.embeddings(input_ids=batch["input_ids"]).detach()
    exact = []
    for row, real in enumerate(batch["attention_mask"].sum(1).tolist()):
        x = h[row : row + 1, :real]
        jacobian = torch.autograd.functional.jacobian(lambda x: layer(x), x).reshape(x.numel(), x.numel())
        exact.append(float(torch.linalg.eigvals(jacobian).real.max()))
    assert rightmost_eigenvalues(model, batch) == {"1": pytest.approx(max(exact), rel=1e-3)}


def test_gradient_quality_is_one_for_what_converges_and_nothing_for_blind_modes():
    rows = {row.mode: row for row in gradient_quality(gentle(), tokens(), Connection(form="layer"))}
    assert rows["converged"].words == pytest.approx(1, abs=1e-4)
    assert rows["implicit"].words > 0.9
    assert rows["implicit"].weights > 0.9
    assert rows["phantom 1"].words < rows["phantom 2"].words < rows["implicit"].words


def gentle():
    model = tiny("bert", num_hidden_layers=2)
    with torch.no_grad():
        for parameter in model.base_model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(0.5)
    return model


@pytest.mark.full
def test_on_pretrained_weights_descent_is_noise_and_anderson_is_not():
    """What an attack's exactness rests on: the same texts alone and in a batch."""
    path = str(minilm_path())
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(path, num_labels=2, dtype=torch.float32).eval()
    texts = ["A film of rare charm, told with wit.", "The plot is thin, and nobody seems to care.", "Not bad."]
    batch = dict(AutoTokenizer.from_pretrained(path)(texts, padding=True, return_tensors="pt"))
    plain = noise(model, batch, None)
    assert plain < 1e-6
    assert noise(model, batch, Connection(form="layer", solver=Anderson(steps=8))) < 1e-5
    assert noise(model, batch, Connection.im_bert(solver=GradientDescent(steps=15))) > 1e-4
    literal = noise(model, batch, Connection.im_bert(solver=GradientDescent(steps=5)))
    guarded = noise(model, batch, Connection.im_bert(solver=GradientDescent(steps=5, safeguard="polyak")))
    assert 1e-4 < guarded < literal / 1.5  # shorter steps make it less, a quarter here; they do not make it exact
