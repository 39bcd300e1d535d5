"""Solves that their caller walks, solves that are differentiated, and what a solve that was given up costs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from unshaken.solvers import Anderson, Broyden, FixedPoint, GradientDescent


def turned(factor: float) -> Tensor:
    """A matrix that turns a vector and makes it `factor` times as long."""
    return factor * torch.eye(4, dtype=torch.float64).roll(1, 0)


@pytest.mark.parametrize("steps", [1, 4])
def test_a_course_is_the_solve_of_the_same_steps(steps):
    torch.manual_seed(0)
    weight, start = 0.3 * torch.randn(4, 4).double(), torch.randn(2, 4).double()

    def g(z: Tensor) -> Tensor:
        return torch.tanh(z @ weight) + start

    course = Anderson(steps=steps).course(start)
    assert course is not None
    assert course.trusted() is start
    for _ in range(steps):
        course.take(g(course.z))
    with torch.no_grad():
        torch.testing.assert_close(course.trusted(), Anderson(steps=steps)(g, start).z)


def test_only_solves_of_a_known_length_can_be_walked():
    start = torch.zeros(1, 4)
    for solver in (Anderson(steps=0), Anderson(tolerance=1e-3), FixedPoint(), Broyden()):
        assert solver.course(start) is None
        assert not solver.has_course


@pytest.mark.parametrize(("factor", "is_trusted"), [(9.0, True), (11.0, False)])
def test_a_course_goes_back_to_its_start_where_the_residual_grew_tenfold(factor, is_trusted):
    """The residual of z = z W + b at the second point is the first one's, turned and `factor` times as long."""
    offset = torch.tensor([[1.0, -2.0, 0.5, 3.0]], dtype=torch.float64)
    course = Anderson(steps=2).course(offset)
    assert course is not None
    for _ in range(2):
        course.take(course.z @ turned(factor) + offset)
    assert torch.equal(course.trusted(), course.z if is_trusted else offset)
    assert not torch.equal(course.z, offset)


@pytest.mark.parametrize(
    "solver",
    [
        Anderson(steps=2),
        Anderson(steps=4, ridge=1e-3),
        FixedPoint(steps=3),
        Broyden(),
        GradientDescent(steps=3),
        GradientDescent(steps=3, reduction="mean"),
        GradientDescent(steps=3, rate=1.0, safeguard="polyak"),
    ],
)
def test_a_solve_is_differentiated_by_its_start_and_by_its_equation(solver):
    torch.manual_seed(0)
    start, weight = torch.randn(1, 3).double().requires_grad_(), (0.4 * torch.randn(3, 3)).double().requires_grad_()
    assert gradcheck(lambda z0, w: solver(lambda z: torch.tanh(z @ w) + 1, z0).z, (start, weight), atol=1e-5)


def test_evaluations_of_a_solve_that_was_given_up_are_counted():
    calls = 0

    def g(z: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return -20 * z + 1

    with torch.no_grad():
        solution = FixedPoint(steps=4)(g, torch.ones(1, 1))
    assert (solution.evaluations, calls) == (8, 8)
    assert bool(solution.diverged)


def test_a_window_of_one_is_picard():
    with torch.no_grad():
        ours = Anderson(window=1, steps=5)(torch.cos, torch.ones(1, 1)).z
        torch.testing.assert_close(ours, FixedPoint(steps=5)(torch.cos, torch.ones(1, 1)).z)
