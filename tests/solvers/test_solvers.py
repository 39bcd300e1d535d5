"""Solvers on problems with known answers, alone and beside other examples of a batch."""

from __future__ import annotations

import ast
import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from table import solvers
from unshaken import UnshakenError
from unshaken.solvers import SOLVERS, Anderson, Broyden, FixedPoint, GradientDescent, NewtonKrylov
from unshaken.solvers.base import looking_later


def affine(batch: int = 4, features: int = 6, scale: float = 0.25, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """A x + b with its exact fixed point (I - A)^-1 b."""
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(batch, features, features, generator=generator, dtype=torch.float64) * scale
    offset = torch.randn(batch, features, generator=generator, dtype=torch.float64)
    exact = torch.linalg.solve(torch.eye(features, dtype=torch.float64) - matrix, offset)
    return matrix, offset, exact


def apply(matrix: Tensor, offset: Tensor) -> object:
    return lambda z: torch.einsum("bij,bj->bi", matrix, z) + offset


@pytest.mark.parametrize("solver", solvers(), ids=str)
def test_finds_the_exact_solution_of_affine_problems(solver):
    matrix, offset, exact = affine()
    solution = solver(apply(matrix, offset), torch.zeros_like(offset))
    torch.testing.assert_close(solution.z, exact, rtol=1e-4, atol=1e-4)
    assert solution.residual.max() < 1e-3
    assert not solution.diverged.any()


@pytest.mark.parametrize("solver", solvers(), ids=str)
def test_finds_the_fixed_point_of_the_cosine(solver):
    solution = solver(torch.cos, torch.ones(3, 1, dtype=torch.float64))
    torch.testing.assert_close(
        solution.z, torch.full((3, 1), 0.7390851332151607, dtype=torch.float64), rtol=1e-4, atol=0
    )


SHORTENED = [replace(solver, steps=min(solver.steps, 60)) for solver in solvers()]  # what holds at every step


@pytest.mark.parametrize("solver", SHORTENED, ids=str)
def test_an_example_does_not_see_its_neighbours(solver):
    matrix, offset, _ = affine()
    together = solver(apply(matrix, offset), torch.zeros_like(offset))
    for row in range(len(offset)):
        alone = solver(apply(matrix[row : row + 1], offset[row : row + 1]), torch.zeros_like(offset[row : row + 1]))
        torch.testing.assert_close(together.z[row : row + 1], alone.z, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(together.residual[row : row + 1], alone.residual, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("solver", solvers(), ids=str)
def test_padding_does_not_touch_the_solution(solver):
    """Two tokens of three features; the second is padding with an equation that blows up if it counts."""
    matrix, offset, exact = affine(batch=2, features=3)

    def g(z: Tensor) -> Tensor:  # (batch, 2, features)
        real = torch.einsum("bij,bj->bi", matrix, z[:, 0]) + offset
        return torch.stack([real, 5 * z[:, 1] + 1], dim=1)

    mask = torch.tensor([[1, 0], [1, 0]])
    solution = solver(g, torch.zeros(2, 2, 3, dtype=torch.float64), mask)
    torch.testing.assert_close(solution.z[:, 0], exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("solver", SHORTENED, ids=str)
def test_counts_what_it_evaluates(solver):
    matrix, offset, _ = affine()
    calls = 0

    def g(z: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return apply(matrix, offset)(z)

    solution = solver(g, torch.zeros_like(offset))
    assert solution.evaluations == calls
    assert solution.vjps == (calls - 1 if solver.needs_vjp else 0)  # descent looks once more at what it returns


@pytest.mark.parametrize("kind", list(SOLVERS.values()), ids=list(SOLVERS))
def test_stops_at_the_tolerance_and_freezes_who_is_done(kind):
    matrix, offset, _ = affine()
    matrix[0] = 0  # solved by one evaluation
    solution = kind(steps=2000, tolerance=1e-3)(apply(matrix, offset), torch.zeros_like(offset))
    assert solution.evaluations < 2000
    assert solution.residual.max() <= 1e-3
    # The easy example took its answer as soon as it had it, and the hard ones' iterations did not move it.
    torch.testing.assert_close(solution.z[0], offset[0], rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("kind", list(SOLVERS.values()), ids=list(SOLVERS))
def test_zero_steps_leave_the_guess(kind):
    guess = torch.randn(2, 3)
    solution = kind(steps=0)(torch.cos, guess)
    assert torch.equal(solution.z, guess)
    assert (solution.evaluations, solution.vjps) == (0, 0)
    assert solution.residual.isnan().all()


@pytest.mark.parametrize("kind", list(SOLVERS.values()), ids=list(SOLVERS))
def test_defaults_are_those_of_the_docs(kind):
    """A row of the page's table is a call with every setting that is this solver's own."""
    page = (Path(__file__).parents[2] / "docs" / "connections.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith(f"| `{kind.__name__}("))
    call = ast.parse(row.split("`")[1], mode="eval").body
    assert isinstance(call, ast.Call)
    told = {option.arg: ast.literal_eval(option.value) for option in call.keywords}
    made = {field.name: getattr(kind(), field.name) for field in fields(kind)}
    assert told == {name: value for name, value in made.items() if name not in ("tolerance", "growth")}


@pytest.mark.parametrize("solver", [FixedPoint(steps=40), Anderson(steps=12), Broyden(steps=12), NewtonKrylov(steps=3)])
def test_divergence_is_data_and_the_answer_stays_finite(solver):
    """Row 0 explodes under plain iteration, row 1 becomes NaN away from the start, row 2 is easy."""
    slope = torch.tensor([[-6.0], [0.0], [0.1]])

    def g(z: Tensor) -> Tensor:
        broken = torch.where(z > 0.5, torch.full_like(z, math.nan), z + 0.6)
        image = slope * z + 1
        return torch.cat([image[:1], broken[1:2], image[2:]])

    solution = solver(g, torch.zeros(3, 1))
    assert torch.isfinite(solution.z).all()
    assert bool(solution.diverged[1])
    assert not bool(solution.diverged[2])
    torch.testing.assert_close(solution.z[2], torch.tensor([1 / 0.9]), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("grad", [False, True])
def test_the_best_iterate_is_returned_and_its_residual_is_the_one_reported(grad):
    """z = -1.2 z + 1 creeps away from its solution under plain iteration: no step is better than the first guess."""
    with torch.set_grad_enabled(grad):
        solution = FixedPoint(steps=6)(lambda z: -1.2 * z + 1, torch.full((1, 1), 5.0, dtype=torch.float64))
    true = (-1.2 * solution.z + 1 - solution.z).abs() / 5.0  # |g(5)| = 5
    torch.testing.assert_close(solution.residual, true.flatten())


TOLD = {  # of z = z / 2 + 1 from 0, by hand: the iterates, of which the last is returned, and how many are evaluated
    "fixed-point": (FixedPoint(steps=3), [0, 1, 1.5, 1.75], 3),
    "anderson": (Anderson(steps=2, ridge=0), [0, 1, 2], 2),
    "broyden": (Broyden(steps=2), [0, 1, 2], 2),
    "newton-krylov": (NewtonKrylov(steps=1, krylov=1), [0, 2], 1),
    "gradient-descent": (GradientDescent(steps=2), [0, 0.1, 0.195], 3),  # the gradient is z / 2 - 1
}


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("grad", [False, True], ids=["quick", "guarded"])
def test_the_residual_is_that_of_the_best_evaluated_iterate_which_only_descent_returns(name, grad):
    solver, iterates, evaluated = TOLD[name]
    with torch.set_grad_enabled(grad):
        solution = solver(lambda z: z / 2 + 1, torch.zeros(1, 1, dtype=torch.float64))
    assert solution.z.item() == pytest.approx(iterates[-1], abs=1e-6)
    assert float(solution.residual) == pytest.approx(1 - iterates[evaluated - 1] / 2, abs=1e-6)  # g(0) = 1
    assert (evaluated == len(iterates)) is solver.looks_at_end
    assert solution.evaluations == solver.steps * (solver.evaluations_per_step - solver.needs_vjp) + solver.looks_at_end


def test_damped_fallback_rescues_a_diverging_fixed_point():
    """z = -1.8 z + 1 has a solution that plain iteration runs away from and damping finds."""
    solution = FixedPoint(steps=60, growth=2.0)(lambda z: -1.8 * z + 1, torch.zeros(1, 1, dtype=torch.float64))
    torch.testing.assert_close(solution.z, torch.full((1, 1), 1 / 2.8, dtype=torch.float64), rtol=1e-4, atol=1e-4)
    assert bool(solution.diverged)


def test_descent_reports_the_residual_of_what_it_returns():
    """At this rate the iterates swing out: the best one seen is not the last, which Algorithm 1 returns."""
    slope = torch.tensor([[3.0], [-1.0]], dtype=torch.float64)

    def g(z: Tensor) -> Tensor:
        return slope * z + 1

    start = torch.full((2, 1), 2.0, dtype=torch.float64)
    with torch.no_grad():
        solution = GradientDescent(steps=3, rate=0.3)(g, start)
    true = ((g(solution.z) - solution.z).abs() / g(start).abs()).flatten()
    assert not solution.diverged.any()
    assert float(true[0]) > float(((g(start) - start).abs() / g(start).abs())[0])
    torch.testing.assert_close(solution.residual, true)


def test_a_finite_explosion_of_descent_is_divergence():
    def g(z: Tensor) -> Tensor:
        return 3 * z + 1

    start = torch.ones(1, 1, dtype=torch.float64)
    with torch.no_grad():
        solution = GradientDescent(steps=8, rate=1.0)(g, start)  # z + 1/2 is multiplied by -7 at each step
    assert bool(solution.diverged)
    assert float(solution.z.abs().max()) <= 10 * 4  # of |g(1)| = 4, the larger of start and image
    torch.testing.assert_close(solution.residual, ((g(solution.z) - solution.z).abs() / 4).flatten())


@pytest.mark.parametrize(("size", "exploded"), [(9.5, False), (10.5, True)])
def test_an_iterate_ten_times_as_large_as_the_start_is_an_explosion(size, exploded):
    """g(z) = z / 2 at 1 has the gradient 1/2, so that a step of rate 2 (1 + size) leads to -size."""
    with torch.no_grad():
        solver = GradientDescent(steps=1, rate=2 * (1 + size))
        solution = solver(lambda z: 0.5 * z, torch.ones(1, 1, dtype=torch.float64))
    assert bool(solution.diverged) == exploded
    assert float(solution.z) == pytest.approx(1 if exploded else -size)


@pytest.mark.parametrize("reduction", ["sum", "token-mean", "mean"])
def test_a_polyak_step_halves_the_way_whatever_share_of_the_square_is_descended(reduction):
    """Of z = a z + b the square is descended to zero by half of the way, by Polyak's rate of any multiple of it."""
    a, b = 0.4, torch.arange(6.0, dtype=torch.float64).reshape(1, 2, 3)
    start, solution = torch.full_like(b, 7.0), b / (1 - a)
    solver = GradientDescent(steps=1, rate=1e6, reduction=reduction, safeguard="polyak")
    torch.testing.assert_close(solver(lambda z: a * z + b, start).z, (start + solution) / 2)


def test_polyak_steps_are_their_formula_and_do_not_run_away():
    """rate_t = min(rate, ||r||^2 / ||gradient||^2), an example at a time; a short rate stays as it is."""
    torch.manual_seed(0)
    matrices = torch.stack([torch.randn(4, 4), 12 * torch.randn(4, 4)]).double()
    offset = torch.randn(2, 4, dtype=torch.float64)

    def g(z: Tensor) -> Tensor:
        return torch.einsum("bij,bj->bi", matrices, torch.tanh(z)) + offset

    z, rates = torch.zeros(2, 4, dtype=torch.float64), []
    for _ in range(6):
        z = z.detach().requires_grad_()
        squares = (z - g(z)).square().sum(1)
        (gradient,) = torch.autograd.grad(squares.sum(), z)
        rates.append(torch.minimum(torch.tensor(0.1), squares.detach() / gradient.square().sum(1)))
        z = z - rates[-1][:, None] * gradient
    start = torch.zeros(2, 4, dtype=torch.float64)
    guarded = GradientDescent(steps=6, safeguard="polyak")(g, start)
    torch.testing.assert_close(guarded.z, z.detach())
    assert min(float(rate[1]) for rate in rates) < 0.1
    literal = GradientDescent(steps=6)(g, start)
    assert float(guarded.residual[1]) < float(literal.residual[1])


def test_descent_returns_its_best_iterate_when_it_explodes():
    solution = GradientDescent(steps=30, rate=1e8)(lambda z: 3 * z + 1, torch.zeros(2, 3))
    assert torch.isfinite(solution.z).all()
    assert solution.diverged.all()


@pytest.mark.parametrize("reduction", ["sum", "token-mean", "mean"])
@pytest.mark.parametrize("lengths", [(5, 3, 1), (5, 5, 5)], ids=["padded", "unmasked"])
def test_descent_is_algorithm_1_to_the_letter(reduction, lengths):
    """IM-BERT, Algorithm 1: x <- x - gamma * grad_x ||x - h - phi(x)||^2, from x = h + phi(h)."""
    torch.manual_seed(0)
    h, weight = torch.randn(3, 5, 4, dtype=torch.float64), torch.randn(4, 4, dtype=torch.float64) * 0.4
    mask = (torch.arange(5) < torch.tensor(lengths)[:, None]).long()

    def phi(x: Tensor) -> Tensor:
        return torch.tanh(x @ weight)

    x = h + phi(h)
    for _ in range(7):
        x = x.detach().requires_grad_()
        squares = ((x - h - phi(x)) * mask[..., None]) ** 2
        if reduction == "sum":
            loss = squares.sum()
        elif reduction == "token-mean":
            loss = squares.sum() / 4
        else:
            loss = (squares.sum((1, 2)) / (4 * mask.sum(1))).sum()
        (gradient,) = torch.autograd.grad(loss, x)
        x = x - 0.1 * gradient

    solver = GradientDescent(steps=7, rate=0.1, reduction=reduction)
    with torch.no_grad():
        ours = solver(lambda z: h + phi(z), h + phi(h), None if mask.all() else mask).z
    torch.testing.assert_close(ours, x.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Anderson(steps=-1), "steps"),
        (lambda: Anderson(window=0), "window"),
        (lambda: FixedPoint(damping=0), "damping"),
        (lambda: GradientDescent(rate=0), "rate"),
        (lambda: GradientDescent(reduction="median"), "reduction"),
        (lambda: GradientDescent(safeguard="polyack"), "did you mean 'polyak'"),
        (lambda: Broyden(rank=0), "rank"),
        (lambda: NewtonKrylov(krylov=0), "krylov"),
        (lambda: FixedPoint(growth=1.0), "growth"),
    ],
)
def test_bad_settings_say_what_is_allowed(make, message):
    with pytest.raises(UnshakenError, match=message):
        make()


def test_anderson_is_scale_invariant():
    """A ridge relative to the Gram matrix: scaling the problem by a million scales the answer and nothing else."""
    matrix, offset, _ = affine()
    solver = Anderson(steps=6)
    small = solver(apply(matrix, offset), torch.zeros_like(offset)).z
    large = solver(apply(matrix, offset * 1e6), torch.zeros_like(offset)).z
    torch.testing.assert_close(large / 1e6, small, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("grad", [False, True], ids=["quick", "guarded"])
@pytest.mark.parametrize(
    ("steps", "window", "damping", "ridge"),
    [
        (2, 5, 1.0, 0.0),
        (2, 5, 1.0, 0.5),
        (3, 5, 1.0, 0.0),
        (3, 5, 0.7, 0.3),
        (7, 3, 1.0, 0.0),
        (6, 5, 1.0, 0.0),
        (5, 5, 1.0, 0.5),
    ],
)
def test_anderson_is_its_least_squares_problem(grad, steps, window, damping, ridge):
    """Shares by `lstsq` on the differences to the newest residual, with rows for the ridge below; the second example
    has two tokens of padding."""
    torch.manual_seed(0)
    weight, offset = 0.3 * torch.randn(4, 4).double(), torch.randn(2, 5, 4).double()
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])

    def g(z: Tensor) -> Tensor:
        return torch.tanh(z @ weight) + z.roll(1, dims=1) / 3 + offset

    def mixed(points: list[Tensor]) -> Tensor:
        points = points[-window:]
        images = [g(z) for z in points]
        new = []
        for row in range(2):
            residuals = [((b - a) * mask[..., None])[row].flatten() for a, b in zip(points, images, strict=True)]
            shares = torch.zeros(0).double()
            if len(points) > 1:
                differences = torch.stack([r - residuals[-1] for r in residuals[:-1]], dim=1)
                size = (ridge * differences.square().sum(0).mean()).sqrt()
                system = torch.cat([differences, size * torch.eye(len(points) - 1).double()])
                newest = torch.nn.functional.pad(residuals[-1], (0, len(points) - 1))
                shares = -torch.linalg.lstsq(system, newest[:, None]).solution[:, 0]
            shares = torch.cat([shares, 1 - shares.sum()[None]])
            mean, image = (
                sum(share * z[row] for share, z in zip(shares, items, strict=True)) for items in (points, images)
            )
            new.append(mean + damping * (image - mean))
        return torch.stack(new)

    points = [torch.zeros(2, 5, 4).double()]
    for _ in range(steps):
        points.append(mixed(points))
    with torch.set_grad_enabled(grad):
        found = Anderson(steps=steps, window=window, damping=damping, ridge=ridge)(g, points[0], mask)
    torch.testing.assert_close(found.z.detach(), points[-1], rtol=1e-6, atol=1e-6)


def test_the_quick_loop_is_the_guarded_one_where_nothing_diverges():
    torch.manual_seed(0)
    weight, offset = 0.4 * torch.randn(6, 6), torch.randn(3, 5, 6)
    mask = torch.ones(3, 5)
    mask[1, 3:] = 0

    def g(z: Tensor) -> Tensor:
        return torch.tanh(z @ weight) + offset

    for solver in (Anderson(steps=3), Anderson(steps=9, window=4), FixedPoint(steps=5), Broyden(steps=4)):
        guarded = solver(g, torch.zeros(3, 5, 6), mask)
        with torch.no_grad():
            quick = solver(g, torch.zeros(3, 5, 6), mask)
        torch.testing.assert_close(quick.z, guarded.z, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(quick.residual, guarded.residual, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("solver", [FixedPoint(steps=9), Anderson(steps=6), Broyden(steps=6), NewtonKrylov(steps=3)])
def test_a_solve_that_is_looked_at_later_leaves_flags_and_its_best_iterate(solver):
    """Row 0 explodes, row 1 is NaN from the start, row 2 becomes NaN, row 3 is easy."""

    def g(z: Tensor) -> Tensor:
        broken = torch.where(z[2:3] > 0.5, torch.full_like(z[2:3], math.nan), z[2:3] + 0.6)
        return torch.cat([z[:1] ** 3 * 40 + 30, torch.full_like(z[1:2], math.nan), broken, 0.1 * z[3:] + 1])

    with torch.no_grad(), looking_later() as flags:
        solution = solver(g, torch.zeros(4, 1, dtype=torch.float64))
    assert torch.isfinite(solution.z).all()
    assert solution.diverged.tolist() == [True, True, solver.name != "newton-krylov", False]
    assert len(flags) == 1
    assert torch.equal(flags[0], solution.diverged)
    torch.testing.assert_close(solution.z[3], torch.full((1,), 1 / 0.9, dtype=torch.float64), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("solver", [Anderson, FixedPoint])
def test_a_tolerance_ends_a_solve_early_without_gradients_too(solver: Any) -> None:
    target = torch.tensor([[1.0, -2.0, 0.5]], dtype=torch.float64)
    with torch.no_grad():
        found = solver(steps=40, tolerance=1e-3)(lambda z: target + 0.3 * z, torch.zeros_like(target))
        every = solver(steps=40)(lambda z: target + 0.3 * z, torch.zeros_like(target))
    assert found.evaluations < 20
    assert every.evaluations == 40
    assert float(found.residual.max()) <= 1e-3


@pytest.mark.parametrize("kind", [Anderson, FixedPoint])
@pytest.mark.parametrize("damping", [0.0, 1.1, 2.0])
def test_damping_lies_above_0_and_at_most_at_1(damping: float, kind: Any) -> None:
    with pytest.raises(UnshakenError):
        kind(damping=damping)
    assert kind(damping=1.0).damping == 1


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (Anderson, {"window": 1, "ridge": 0.0}),
        (Broyden, {"rank": 1}),
        (NewtonKrylov, {"krylov": 1}),
        (FixedPoint, {"steps": 1, "growth": 1.5}),
        (GradientDescent, {"rate": 0.5}),
    ],
)
def test_the_least_that_is_allowed_is_allowed(kind: Any, settings: dict[str, Any]) -> None:
    solution = kind(**settings)(lambda z: 0.5 * z + 1, torch.ones(1, 1))
    assert float(solution.z.detach()) > 1  # towards 2
