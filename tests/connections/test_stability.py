"""Diagnostics against values that are known."""

from __future__ import annotations

import re
from pathlib import Path

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
from unshaken.connections.gradients import Phantom
from unshaken.connections.quality import MODES, gradient_quality, noise
from unshaken.connections.stability import (
    SOLVER_LADDER,
    ResidualCurve,
    layer_residuals,
    lipschitz_estimates,
    perturbation_growth,
    recommended_solver,
    residual_curves,
    rightmost_eigenvalues,
)
from unshaken.embedded import minilm_path
from unshaken.solvers import SOLVERS, Anderson, Broyden, FixedPoint, GradientDescent, NewtonKrylov


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


@pytest.mark.parametrize("masked", [True, False])
def test_the_steepness_of_a_layer_is_the_largest_singular_value_of_its_jacobian(masked):
    """Over the real tokens of each text: neither may padding be moved, nor does it count what it moves."""
    model, batch = tiny("bert", num_hidden_layers=1).double(), tokens(length=6, padded=masked)
    layer = model.base_model.encoder.layer[0]
    h = model.base_model.embeddings(input_ids=batch["input_ids"]).detach()
    exact = []
    for row, real in enumerate(batch["attention_mask"].sum(1).tolist()):
        x = h[row : row + 1, :real]
        jacobian = torch.autograd.functional.jacobian(lambda x: layer(x), x).reshape(x.numel(), x.numel())
        exact.append(float(torch.linalg.matrix_norm(jacobian, 2)))
    given = batch if masked else {"input_ids": batch["input_ids"]}
    assert lipschitz_estimates(model, given, iterations=100) == {"1": pytest.approx(max(exact), rel=1e-3)}


def test_a_short_text_without_a_mask_has_no_more_eigenvalues_than_features():
    model, batch = tiny("bert", num_hidden_layers=1).double(), {"input_ids": torch.tensor([[7, 9]])}
    layer, h = model.base_model.encoder.layer[0], model.base_model.embeddings(input_ids=batch["input_ids"]).detach()
    jacobian = torch.autograd.functional.jacobian(lambda x: layer(x), h).reshape(h.numel(), h.numel())
    exact = float(torch.linalg.eigvals(jacobian).real.max())
    assert rightmost_eigenvalues(model, batch) == {"1": pytest.approx(exact, rel=1e-6)}


@pytest.mark.parametrize("options", [{}, {"scale": 0.7}])
def test_growth_is_that_of_passes_with_the_embeddings_moved(options):
    """With noise of the same seed, as large as `scale` times the embeddings of a text; 1% if nothing is said."""
    model, batch = tiny("bert"), tokens()
    embedded = model.get_input_embeddings()(batch["input_ids"]).detach()
    noise = torch.randn(embedded.shape, generator=torch.Generator().manual_seed(3))
    noise = noise * (embedded.flatten(1).norm(dim=1) / noise.flatten(1).norm(dim=1))[:, None, None]
    with torch.no_grad():
        clean, moved = (
            model(
                inputs_embeds=embedded + scale * noise,
                attention_mask=batch["attention_mask"],
                output_hidden_states=True,
            ).hidden_states
            for scale in (0.0, options.get("scale", 0.01))
        )
    real = batch["attention_mask"][..., None]
    distances = torch.stack(
        [
            ((b - a) * real).flatten(1).norm(dim=1) / (a * real).flatten(1).norm(dim=1)
            for a, b in zip(clean, moved, strict=True)
        ]
    )
    (row,) = perturbation_growth(model, batch, {"plain": None}, seed=3, **options)
    assert row.ratios == pytest.approx((distances / distances[0]).mean(1).tolist(), rel=1e-3)


def curve(layer: str, steps: tuple[int, ...], residuals: tuple[float, ...], solver: str = "anderson") -> ResidualCurve:
    none = tuple(0 for _ in steps)
    return ResidualCurve(layer=layer, solver=solver, steps=steps, evaluations=steps, vjps=none, residuals=residuals)


def test_the_cheapest_setting_that_is_good_enough_in_every_layer_is_recommended():
    curves = [
        curve("1", (1, 2, 3, 5), (0.3, 0.04, 0.01, 0.001)),
        curve("2", (1, 2, 3, 5), (0.2, 0.06, 0.04, 0.002)),
        curve("2", (1, 2, 3, 5), (0.0, 0.0, 0.0, 0.0), solver="broyden"),
    ]
    assert recommended_solver(curves) == (Anderson(steps=3), 0.04)
    assert recommended_solver(curves, target=0.06) == (Anderson(steps=2), 0.06)
    assert recommended_solver(curves, target=0.001) == (Anderson(steps=5), 0.002)


def test_the_ladder_has_the_columns_of_the_docs_and_steps_that_can_be_compared():
    page = (Path(__file__).parents[2] / "docs" / "connections.md").read_text(encoding="utf-8")
    head = page.split("<!-- residuals -->")[1].strip().splitlines()[0]
    names = {"descent": GradientDescent, "Picard": FixedPoint, "Anderson": Anderson, "Broyden": Broyden}
    columns = re.findall(r"(descent|Picard|Anderson|Broyden) (?:T=)?(\d+)", head)
    assert len(columns) > 5
    for name, steps in columns:
        assert names[name](steps=int(steps)) in SOLVER_LADDER
    (newton,) = re.findall(r"Newton-Krylov (\d+) x (\d+)", head)
    assert NewtonKrylov(steps=int(newton[0]), krylov=int(newton[1])) in SOLVER_LADDER
    steps = {kind: [solver.steps for solver in SOLVER_LADDER if isinstance(solver, kind)] for kind in SOLVERS.values()}
    assert steps[FixedPoint] == steps[Anderson] == steps[Broyden]  # a step of each is one evaluation
    assert all(rungs[0] == 1 and rungs == sorted(set(rungs)) for rungs in steps.values())


def test_curves_tell_what_a_solve_costs():
    """T steps of descent are 2 T + 1 passes, and one more measures what is returned; Anderson's are one each."""
    solvers = (GradientDescent(steps=2), GradientDescent(steps=5), Anderson(steps=2), Anderson(steps=5))
    for row in residual_curves(tiny("bert", num_hidden_layers=1), tokens(), Connection(form="layer"), solvers):
        passes = [sum(cost) for cost in zip(row.evaluations, row.vjps, strict=True)]
        assert row.steps == (2, 5)
        assert passes == ([6, 12] if row.solver == "gradient-descent" else [2, 5])


def test_noise_is_measured_on_each_text_alone_and_without_its_padding():
    model, seen = tiny("bert"), []
    model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    noise(model, tokens(), None)
    assert seen == [(3, 9), (1, 9), (1, 6), (1, 9)]


def test_gradient_quality_is_one_for_what_converges_and_nothing_for_blind_modes():
    rows = {row.mode: row for row in gradient_quality(gentle(), tokens(), Connection(form="layer"))}
    assert rows["converged"].words == pytest.approx(1, abs=1e-4)
    assert rows["implicit"].words > 0.9
    assert rows["implicit"].weights > 0.9
    assert rows["phantom 1"].words < rows["phantom 2"].words < rows["implicit"].words


def test_gradients_are_compared_under_the_name_and_the_steps_of_their_mode():
    for name, mode in MODES.items():
        assert name == (f"phantom {mode.steps}" if isinstance(mode, Phantom) else mode.name)


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
