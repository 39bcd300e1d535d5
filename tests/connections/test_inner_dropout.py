"""Which evaluations of a solve share a dropout mask, and what is left of the random stream."""

from __future__ import annotations

import pytest
import torch
from models import tiny, tokens
from torch import Tensor, nn

from unshaken import Connection, connect
from unshaken.connections import Detached, Implicit, Phantom, Unrolled, solve_records
from unshaken.connections.dropout import SharedDropout
from unshaken.connections.layer import LayerEquation
from unshaken.solvers import FixedPoint


def drawn(mode: str, *, is_training: bool = True) -> tuple[list[Tensor], Tensor]:
    """What two evaluations of a solver and the one behind it make of ones, and the next number of the stream."""
    layer = nn.Dropout(0.5).train(is_training)
    shared, ones = SharedDropout(layer, mode, torch.device("cpu")), torch.ones(100)
    torch.manual_seed(0)
    found = []
    with shared.solving():
        for _ in range(2):
            with shared.replayed(inner=True):
                found.append(layer(ones))
    with shared.replayed(inner=False):
        found.append(layer(ones))
    assert layer.training == is_training
    return found, torch.rand(1)


def after(draws: int) -> Tensor:
    torch.manual_seed(0)
    for _ in range(draws):
        nn.functional.dropout(torch.ones(100), 0.5)
    return torch.rand(1)


def test_a_shared_mask_is_drawn_once_for_all_evaluations():
    (first, second, last), following = drawn("shared")
    assert torch.equal(first, second)
    assert torch.equal(first, last)
    assert 0 in first
    assert torch.equal(following, after(1))


def test_stages_of_runge_kutta_share_one_mask():
    """Half of the ones are dropped and the others doubled: k1 = 2 and k2 = f(3) = 6 make 1 + (2 + 6) / 2."""
    layer, h = nn.Dropout(0.5).train(), torch.ones(1, 1, 100)
    equation = LayerEquation(
        call=layer,
        h=h,
        dtype=h.dtype,
        precision=None,
        connection=Connection.runge_kutta(order=2),
        form="layer",
        step=1.0,
        mask=None,
        dropout=SharedDropout(layer, "off", h.device),
    )
    assert set(equation.runge_kutta().unique().tolist()) == {1.0, 5.0}


def test_a_resampled_mask_is_drawn_for_each_of_them():
    (first, second, last), following = drawn("resample")
    assert not torch.equal(first, second)
    assert not torch.equal(second, last)
    assert torch.equal(following, after(3))


def test_off_is_off_in_the_solve_and_drawn_once_behind_it():
    (first, second, last), following = drawn("off")
    assert torch.equal(first, torch.ones(100))
    assert torch.equal(second, torch.ones(100))
    assert 0 in last
    assert torch.equal(following, after(1))


@pytest.mark.parametrize("mode", ["shared", "resample", "off"])
def test_evaluation_has_no_dropout_and_draws_nothing(mode):
    found, following = drawn(mode, is_training=False)
    assert all(torch.equal(values, torch.ones(100)) for values in found)
    assert torch.equal(following, after(0))


def test_modules_in_evaluation_stay_there():
    """Whoever switched a part of a layer to evaluation finds it there after a solve."""
    layer = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5).eval())
    with SharedDropout(layer, "off", torch.device("cpu")).solving():
        assert not any(module.training for module in layer.modules())
    assert [module.training for module in layer] == [True, False]


@pytest.mark.parametrize(
    ("gradient", "expected"), [(Implicit(), "off"), (Phantom(), "off"), (Detached(), "shared"), (Unrolled(), "shared")]
)
def test_the_mode_is_what_was_asked_for_or_what_suits_the_gradient(gradient, expected):
    assert Connection(gradient=gradient).inner_dropout_mode == expected
    for asked in ("shared", "resample", "off"):
        assert Connection(gradient=gradient, inner_dropout=asked).inner_dropout_mode == asked


@pytest.mark.parametrize(("mode", "is_same"), [("off", True), ("shared", False)])
def test_a_solve_without_dropout_is_the_solve_of_evaluation(mode, is_same):
    model = connect(tiny("bert", num_hidden_layers=1), Connection(solver=FixedPoint(steps=2), inner_dropout=mode))
    model.base_model.embeddings.dropout.p = 0.0
    found = []
    for is_training in (False, True):
        model.train(is_training)
        model(**tokens())
        found.append(solve_records(model)["1"].residual)
    assert torch.equal(found[0], found[1]) == is_same
