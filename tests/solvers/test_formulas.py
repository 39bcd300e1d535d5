"""Each solver against its formula, written out by dense matrices, and the path of a solve that goes back."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from unshaken.solvers import SOLVERS, Anderson, Broyden, FixedPoint, GradientDescent, NewtonKrylov
from unshaken.solvers.base import Solver, is_looking_later, looking_later


def curved(features: int = 4, batch: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    weight = 0.4 * torch.randn(features, features, generator=generator, dtype=torch.float64)
    return weight, torch.randn(batch, features, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("damping", [0.25, 1.0])
def test_a_fixed_point_step_is_its_formula(damping):
    """Without damping it is the image itself, bit for bit."""
    z0 = torch.linspace(-3, 3, 101)[None]
    expected = z0
    for _ in range(3):
        image = torch.cos(expected)
        expected = image if damping == 1 else expected + damping * (image - expected)
    assert torch.equal(FixedPoint(steps=3, damping=damping)(torch.cos, z0).z, expected)


@pytest.mark.parametrize("grad", [False, True], ids=["quick", "guarded"])
@pytest.mark.parametrize("rank", [1, 2, 16])
def test_broyden_is_its_dense_update(grad, rank):
    """B + (s - B y) s^T B / (s^T B y) with s the step and y the change of F, kept as the last `rank` of its terms."""
    weight, offset = curved()

    def g(z: Tensor) -> Tensor:
        return torch.tanh(z @ weight) + offset

    rows = []
    for row in offset:
        z, terms, before = torch.zeros(4).double(), [], None
        for _ in range(5):
            value = torch.tanh(z @ weight) + row - z
            if before is not None:
                s, y = z - before[0], value - before[1]
                inverse = sum(terms, -torch.eye(4).double())
                terms.append(torch.outer(s - inverse @ y, s @ inverse) / (s @ inverse @ y))
                terms = terms[-rank:]
            before = z, value
            z = z - sum(terms, -torch.eye(4).double()) @ value
        rows.append(z)
    with torch.set_grad_enabled(grad):
        found = Broyden(steps=5, rank=rank, growth=1e6)(g, torch.zeros(2, 4).double())
    torch.testing.assert_close(found.z, torch.stack(rows), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("krylov", [1, 2, 3])
def test_newton_krylov_is_the_least_squares_problem_on_its_krylov_space(krylov):
    """d of the space of F, A F, ... with A = I - J that makes ||A d - F|| smallest; the last token is padding."""
    weight, offset = curved(3, 2)
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])

    def g(z: Tensor) -> Tensor:  # (batch, 3 tokens, 3 features): neighbours see each other, but nobody sees padding
        seen = z * mask[..., None]
        return torch.tanh(seen @ weight + 0.5 * seen.roll(1, dims=1)) * mask[..., None] + offset[:, None]

    z = torch.zeros(2, 3, 3).double()
    for _ in range(2):
        image, rows = g(z), []
        jacobians = torch.autograd.functional.jacobian(g, z)
        for row in range(2):
            real = mask[row].repeat_interleave(3).bool()
            matrix = torch.eye(9).double() - jacobians[row, :, :, row].reshape(9, 9)
            matrix, value = matrix[real][:, real], (image - z)[row].flatten()[real]
            space = torch.stack([torch.linalg.matrix_power(matrix, power) @ value for power in range(krylov)], dim=1)
            shares = torch.linalg.lstsq(matrix @ space, value[:, None], driver="gelsd").solution[:, 0]
            step = image[row].flatten()  # padding takes its image
            step[real] = z[row].flatten()[real] + space @ shares
            rows.append(step.reshape(3, 3))
        z = torch.stack(rows)
    found = NewtonKrylov(steps=2, krylov=krylov)(g, torch.zeros(2, 3, 3).double(), mask)
    torch.testing.assert_close(found.z, z, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("solver", [Anderson(steps=5), Broyden(steps=5), FixedPoint(steps=5)], ids=lambda s: s.name)
@pytest.mark.parametrize("factor", [2.0**-40, 2.0**40])
def test_the_scale_of_a_problem_is_that_of_its_answer_and_of_nothing_else(solver, factor):
    """Not of a forward difference, which has a length of its own."""
    weight, offset = curved()
    found = [solver(lambda z, by=by: z @ weight + by * offset, 0 * offset).z / by for by in (1.0, factor)]
    torch.testing.assert_close(found[1], found[0], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("solver", [Anderson(steps=4), Broyden(steps=4), FixedPoint(steps=4), NewtonKrylov(steps=2)])
@pytest.mark.parametrize("grad", [False, True], ids=["quick", "guarded"])
def test_tokens_of_one_feature_need_no_axis_for_it(solver, grad):
    weight, offset = curved(5, 2)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])

    def g(z: Tensor) -> Tensor:
        return torch.tanh((z * mask) @ weight) + offset

    with torch.set_grad_enabled(grad):
        flat = solver(g, torch.zeros(2, 5).double(), mask)
        deep = solver(lambda z: g(z[..., 0])[..., None], torch.zeros(2, 5, 1).double(), mask)
    torch.testing.assert_close(flat.z, deep.z[..., 0])
    torch.testing.assert_close(flat.residual, deep.residual)


# -------------------------------------------------------------------------------------------------- what Anderson mixes


def test_anderson_ends_on_linear_problems_as_gmres_does():
    """Four features: with all iterates in the window, the fifth evaluation tells all there is to know."""
    weight, offset = curved()
    exact = torch.linalg.solve(torch.eye(4).double() - weight, offset, left=False)
    with torch.no_grad():
        found = Anderson(steps=6, window=6)(lambda z: z @ weight + offset, 0 * offset).z
    torch.testing.assert_close(found, exact, rtol=1e-4, atol=1e-4)


def test_the_ridge_is_never_below_the_precision_and_pulls_towards_the_plain_step():
    """Residuals 1 and -1 meet halfway; in bfloat16 the share of the older one is visibly less than a half."""

    def g(z: Tensor) -> Tensor:
        return 1 - z

    with torch.no_grad():
        z = Anderson(steps=2, ridge=0.0)(g, torch.zeros(1, 1, dtype=torch.bfloat16)).z
    eps = torch.finfo(torch.bfloat16).eps
    assert float(z) == float(torch.tensor(0.5 / (1 + eps), dtype=torch.bfloat16)) < 0.5


@pytest.mark.parametrize("sizes", [(-1.0, 1.0), (1.0, -1.0), (float("nan"), 1.0)])
def test_products_that_rounding_broke_leave_the_plain_step(sizes):
    """Both squares of a difference may cancel to 0 where its slope does not, and half precision overflows."""
    products = torch.diag(torch.tensor(sizes, dtype=torch.float64))[None]
    points, images = [torch.zeros(1, 1), torch.ones(1, 1)], [torch.full((1, 1), 3.0), torch.full((1, 1), 5.0)]
    assert float(Anderson()._mixed(products, (0, 1), points, images)) == 5


@pytest.mark.parametrize("tolerance", [0, 1e-9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("features", [4, 64, 768])
def test_residuals_that_differ_by_rounding_alone_are_not_mixed(
    features: int, dtype: torch.dtype, tolerance: float
) -> None:
    """z + c has one residual, c, wherever it is asked: each step is a plain one, where shares of 1e6 went far away."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(16, features, generator=generator, dtype=dtype)
    offset = 0.1 * torch.randn(16, features, generator=generator, dtype=dtype)
    seen = []

    def g(z: Tensor) -> Tensor:
        seen.append(z)
        return z + offset

    solution = Anderson(steps=4, tolerance=tolerance)(g, start)
    for number, z in enumerate(seen):
        torch.testing.assert_close(z, start + number * offset, rtol=0, atol=1e-5)
    steps = (solution.z - start).norm(dim=1) / offset.norm(dim=1)
    assert float(steps.max()) < 4.001


def test_an_iterate_that_differs_by_rounding_alone_has_no_share_beside_one_that_is_far_away() -> None:
    """The ridge is a part of the mean square of all differences, and so far above rounding of the small one."""
    generator = torch.Generator().manual_seed(1)
    newest, far = torch.randn(2, 1, 768, generator=generator, dtype=torch.float64)
    residuals = [newest * (1 + 1e-8), far, newest]  # slots 0, 1 and 2, the newest last
    products = torch.tensor([[[float((one * other).sum()) for other in residuals] for one in residuals]]).double()
    points = [torch.full((1, 1), float(number)) for number in range(3)]
    images = [point + 10 for point in points]
    mixed = float(Anderson(window=3)._mixed(products, (0, 1, 2), points, images))
    only = float(Anderson(window=2)._mixed(products[:, 1:, 1:], (0, 1), points[1:], images[1:]))
    share = 12 - only  # of the far one, whose image is one below
    assert 0.2 < share < 0.8
    assert mixed == pytest.approx(only, abs=1e-4)


# ----------------------------------------------------------------------------------------------- what goes back and why


def test_descent_takes_back_half_of_a_step_that_diverged_and_half_of_the_rest():
    """r = z - g(z) = 2 z with gradient 8 z; 1 -> -9 is too far, so is -4, and -1.5 is not."""
    seen = []

    def g(z: Tensor) -> Tensor:
        seen.append(float(z.detach()))
        return -z

    solution = GradientDescent(steps=4, rate=1.25, growth=2.0)(g, torch.ones(1, 1, dtype=torch.float64))
    assert seen == [1, -9, -4, -1.5, 13.5]
    assert float(solution.z) == 1


def test_a_solve_that_diverges_goes_back_to_its_best_iterate_by_ever_smaller_steps():
    """z = 1 - 4 z from 0, by hand: 1 is five times as bad, so half a step from 0; a quarter where that fails again."""
    seen = []

    def g(z: Tensor) -> Tensor:
        seen.append(float(z))
        return 1 - 4 * z

    solution = FixedPoint(steps=5, growth=2.0)(g, torch.zeros(1, 1, dtype=torch.float64))
    assert seen == [0, 1, 0.5, -0.25, 0.25]
    assert float(solution.z) == 0.25 + 0.25 * (0 - 0.25)
    assert float(solution.residual) == 0.25


def test_gradients_run_through_a_solve_that_went_back():
    solver = FixedPoint(steps=5, growth=2.0)
    start = torch.full((1, 1), 0.01, dtype=torch.float64, requires_grad=True)
    slope = torch.full((1,), -4.0, dtype=torch.float64, requires_grad=True)
    assert bool(solver(lambda z: 1 + slope * z, start).diverged)
    assert gradcheck(lambda z0, slope: solver(lambda z: 1 + slope * z, z0).z, (start, slope))


def test_a_neighbour_that_diverges_does_not_touch_a_bit():
    """Its own steps are not damped, which would round them where image and point lie apart."""
    slope, start = torch.tensor([[-6.0], [-0.7]]), torch.linspace(-2, 2, 128).reshape(2, 64)
    solver = FixedPoint(steps=4, growth=3.0)
    together = solver(lambda z: torch.cos(z) + slope * z, start)
    alone = solver(lambda z: torch.cos(z) + slope[1:] * z, start[1:])
    assert together.diverged.tolist() == [True, False]
    assert torch.equal(together.z[1:], alone.z)


@pytest.mark.parametrize("kind", list(SOLVERS.values()), ids=list(SOLVERS))
def test_an_example_that_is_done_does_not_move_while_its_neighbour_goes_on(kind):
    solver, slope = kind(steps=2000, tolerance=1e-3), torch.tensor([[0.05], [0.45]], dtype=torch.float64)
    together = solver(lambda z: 0.3 + slope * (z + z.sin()), torch.zeros(2, 1).double())
    alone = solver(lambda z: 0.3 + slope[:1] * (z + z.sin()), torch.zeros(1, 1).double())
    assert alone.evaluations < together.evaluations < 2000
    assert torch.equal(together.z[:1], alone.z)


@pytest.mark.parametrize("solver", [FixedPoint(steps=3), Anderson(steps=3, window=1)])
@pytest.mark.parametrize("grad", [False, True], ids=["quick", "guarded"])
def test_the_last_iterate_but_one_is_returned_where_it_is_the_best(solver, grad):
    """0 -> 1 -> 1.1 -> 1.6: residuals 1, 0.1 and 0.5, which is no divergence."""

    def g(z: Tensor) -> Tensor:
        return torch.where(z <= 1, 1 + 0.1 * z, 1.1 + 5 * (z - 1))

    with torch.set_grad_enabled(grad):
        solution = solver(g, torch.zeros(1, 1, dtype=torch.float64))
    assert float(solution.z) == 1
    torch.testing.assert_close(solution.residual, torch.tensor([0.1], dtype=torch.float64))
    assert not solution.diverged.any()


@pytest.mark.parametrize("solver", [FixedPoint(steps=3), Anderson(steps=3, window=1)])
def test_the_step_from_the_best_iterate_is_taken_also_if_one_before_was_bad(solver):
    """0 -> 1 -> 21 -> 21.5: residuals 1, 20 and 0.5. Images are finite, so what is made of them is."""

    def g(z: Tensor) -> Tensor:
        return torch.where(z <= 1, 1 + 20 * z, z + 0.5)

    with torch.no_grad(), looking_later():
        solution = solver(g, torch.zeros(1, 1, dtype=torch.float64))
    assert float(solution.z) == 21.5
    assert bool(solution.diverged)


def test_a_proposal_that_overflows_is_not_taken():
    """A secant between residuals that hardly differ is steep: in float16 the second step of Broyden is infinite."""

    def g(z: Tensor) -> Tensor:
        return 0.99875 * z + 100  # 100, then 199.875: residuals of 100 and 99.875

    start = torch.zeros(1, 1, dtype=torch.float16)
    with torch.no_grad(), looking_later():
        solution = Broyden(steps=2)(g, start)
    assert float(solution.z) == 100  # the better of the two that were evaluated
    assert bool(solution.diverged)


def test_a_look_is_put_off_while_it_is_put_off_and_no_longer():
    assert not is_looking_later()
    with looking_later():
        assert is_looking_later()
    assert not is_looking_later()


# ------------------------------------------------------------------------------------------------------------ gradients


@pytest.mark.parametrize("solver", [Anderson(steps=3), Broyden(steps=3), FixedPoint(steps=3)], ids=lambda s: s.name)
def test_padding_is_differentiated_by_its_image(solver):
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(1, 2, 2, generator=generator).double().requires_grad_()
    weight = (0.4 * torch.randn(2, 2, generator=generator)).double().requires_grad_()
    mask = torch.tensor([[1, 0]])
    assert gradcheck(lambda z0, w: solver(lambda z: torch.tanh(z @ w) + 1, z0, mask).z, (start, weight), atol=1e-5)


@pytest.mark.parametrize("solver", [Anderson(), Broyden(), FixedPoint(), NewtonKrylov()], ids=lambda s: s.name)
def test_what_a_solve_says_of_itself_holds_no_graph(solver: Solver) -> None:
    weight = torch.full((1,), 0.5, requires_grad=True)
    solution = solver(lambda z: weight * z + 1, torch.zeros(1, 1))
    assert solution.z.requires_grad
    assert not solution.residual.requires_grad
