"""The equation on layers whose solution is known, and the gradient modes against numerical derivatives."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck

from table import solvers
from unshaken import UnshakenError
from unshaken.connections import Connection, Detached, Implicit, Phantom, Unrolled
from unshaken.connections.dropout import SharedDropout
from unshaken.connections.gradients import solve_for_words
from unshaken.connections.layer import LayerEquation
from unshaken.solvers import SOLVERS, Anderson, FixedPoint, GradientDescent

BATCH, SEQ, HIDDEN = 2, 3, 2


def equation(connection: Connection, h: Tensor, layer, form: str = "layer", step: object = None) -> LayerEquation:
    return LayerEquation(
        call=layer,
        h=h,
        dtype=h.dtype,
        precision=None,
        connection=connection,
        form=form,
        step=connection.step if step is None else step,
        mask=None,
        dropout=SharedDropout(nn.Identity().eval(), "shared", h.device),
    )


def solve(connection: Connection, h: Tensor, layer, form: str = "layer") -> Tensor:
    return connection.gradient_mode.solve(equation(connection, h, layer, form), connection.solver)[0]


@pytest.fixture
def affine():
    """layer(x) = x W + b on every token."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(HIDDEN, HIDDEN, generator=generator, dtype=torch.float64) * 0.25
    bias = torch.randn(HIDDEN, generator=generator, dtype=torch.float64)
    h = torch.randn(BATCH, SEQ, HIDDEN, generator=generator, dtype=torch.float64)
    return weight, bias, h


@pytest.mark.parametrize("solver", solvers(), ids=str)
@pytest.mark.parametrize("form", ["layer", "increment"])
@pytest.mark.parametrize(("theta", "step"), [(1.0, 1.0), (1.0, 0.1), (0.5, 1.0), (0.3, 0.7)])
def test_affine_layers_are_solved_exactly(affine, solver, form, theta, step):
    weight, bias, h = affine
    identity = torch.eye(HIDDEN, dtype=torch.float64)
    # f(x) = x A + b with A the layer's matrix, less the identity in the increment form.
    matrix = weight if form == "layer" else weight - identity
    right = h + step * ((1 - theta) * (h @ matrix + bias) + theta * bias)
    exact = torch.linalg.solve(identity - step * theta * matrix, right, left=False)
    connection = Connection(form=form, theta=theta, step=step, solver=solver, gradient=Unrolled())
    ours = solve(connection, h, lambda x: x @ weight + bias, form)
    torch.testing.assert_close(ours, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", ["layer", "increment"])
def test_explicit_euler_and_runge_kutta_are_their_formulas(affine, form):
    weight, bias, h = affine

    def layer(x: Tensor) -> Tensor:
        return torch.tanh(x @ weight + bias)

    def f(x: Tensor) -> Tensor:
        return layer(x) if form == "layer" else layer(x) - x

    step = 0.3
    euler = equation(Connection(theta=0.0, step=step), h, layer, form).explicit()
    torch.testing.assert_close(euler, h + step * f(h))
    k1 = f(h)
    k2 = f(h + step * k1)
    second = equation(Connection.runge_kutta(order=2, step=step), h, layer, form).runge_kutta()
    torch.testing.assert_close(second, h + step / 2 * (k1 + k2))
    k2 = f(h + step / 2 * k1)
    k3 = f(h + step / 2 * k2)
    k4 = f(h + step * k3)
    fourth = equation(Connection.runge_kutta(order=4, step=step), h, layer, form).runge_kutta()
    torch.testing.assert_close(fourth, h + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4))


def test_runge_kutta_of_order_four_is_more_exact_than_euler():
    """dx/dt = -x over one unit of time, in one step: exp(-1)."""
    h = torch.ones(1, 1, 1, dtype=torch.float64)
    exact = torch.exp(torch.tensor(-1.0, dtype=torch.float64))
    errors = [
        float((equation(Connection(theta=0.0, order=order), h, lambda x: -x).runge_kutta() - exact).abs())
        for order in (2, 4)
    ]
    assert errors[1] < errors[0] / 10


@pytest.mark.parametrize("kind", list(SOLVERS.values()), ids=list(SOLVERS))
@pytest.mark.parametrize("mode", [Implicit(), Phantom(), Unrolled()], ids=lambda mode: mode.name)
def test_descent_starts_at_the_explicit_step_and_all_others_at_the_input(affine, kind, mode):
    """Algorithm 1, line 2. A guess that costs nothing is worth more to solvers that take it along."""
    weight, bias, h = affine
    starts = []

    @dataclass(frozen=True, kw_only=True)
    class Seen(kind):
        def __call__(self, g, z0, mask=None):
            starts.append(z0.detach())
            return super().__call__(g, z0, mask)

    solve(Connection(form="layer", solver=Seen(), gradient=mode), h, lambda x: x @ weight + bias)
    explicit = kind is GradientDescent
    torch.testing.assert_close(starts[0], h + (h @ weight + bias) if explicit else h)


def tanh_layer(h: Tensor, weight: Tensor, connection: Connection, form: str) -> Tensor:
    return solve(connection, h, lambda x: torch.tanh(x @ weight), form)


def inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    h = torch.randn(1, SEQ, HIDDEN, generator=generator, dtype=torch.float64).requires_grad_()
    weight = (torch.randn(HIDDEN, HIDDEN, generator=generator, dtype=torch.float64) * 0.4).requires_grad_()
    return h, weight


EXACT = Anderson(steps=60, tolerance=1e-13)
TRUE_GRADIENTS = {
    "unrolled descent": Connection(form="layer", solver=GradientDescent(steps=4), gradient=Unrolled()),
    "unrolled Anderson": Connection(form="layer", solver=Anderson(steps=4), gradient=Unrolled()),
    "unrolled fixed point": Connection(form="layer", solver=FixedPoint(steps=4), gradient=Unrolled()),
    "implicit": Connection(form="layer", solver=EXACT, gradient=Implicit(solver=EXACT)),
    "implicit, second order": Connection(form="layer", solver=EXACT, gradient=Implicit(solver=EXACT, order=2)),
    "phantom, many steps": Connection(form="layer", solver=EXACT, gradient=Phantom(steps=40)),
}


@pytest.mark.parametrize("form", ["layer", "increment"])
@pytest.mark.parametrize("name", list(TRUE_GRADIENTS))
def test_true_gradients_agree_with_finite_differences(name, form):
    def function(h: Tensor, weight: Tensor) -> Tensor:
        return tanh_layer(h, weight, TRUE_GRADIENTS[name], form)

    assert gradcheck(function, inputs(), atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize(
    "name", ["unrolled descent", "unrolled fixed point", "implicit, second order", "phantom, many steps"]
)
def test_second_derivatives_agree_with_finite_differences(name):
    def function(h: Tensor, weight: Tensor) -> Tensor:
        return tanh_layer(h, weight, TRUE_GRADIENTS[name], "layer")

    assert gradgradcheck(function, inputs(), atol=1e-4)


def test_second_derivatives_by_the_input_and_by_a_weight_are_their_closed_form():
    """z = h + a z is h / (1 - a), here with a half for a, and the loss is the cube of it."""

    def loss(h: Tensor, a: Tensor) -> Tensor:
        return solve(TRUE_GRADIENTS["implicit, second order"], h.reshape(1, 1, 1), lambda x: a * x).pow(3).sum()

    h, a = torch.tensor(0.7, dtype=torch.float64), torch.tensor(0.5, dtype=torch.float64)
    found = torch.tensor(torch.autograd.functional.hessian(loss, (h, a)))
    mixed = 9 * h**2 * 2**4
    expected = torch.stack([6 * h * 2**3, mixed, mixed, 12 * h**3 * 2**5]).reshape(2, 2)
    torch.testing.assert_close(found, expected.to(found.dtype))


def test_detached_has_the_solution_for_value_and_the_explicit_step_for_gradient():
    h, weight = inputs()
    connection = Connection(form="layer", solver=GradientDescent(steps=5), gradient=Detached())
    ours = tanh_layer(h, weight, connection, "layer")
    unrolled = tanh_layer(
        h, weight, Connection(form="layer", solver=GradientDescent(steps=5), gradient=Unrolled()), "layer"
    )
    torch.testing.assert_close(ours, unrolled)
    cotangent = torch.randn_like(ours)
    explicit = h + torch.tanh(h @ weight)
    for mine, theirs in zip(
        torch.autograd.grad(ours, (h, weight), cotangent),
        torch.autograd.grad(explicit, (h, weight), cotangent),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("damping", [1.0, 0.3])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_phantom_is_a_truncated_neumann_series(affine, steps, damping):
    """For an affine layer the derivative of k evaluations at the solution is d sum_{i<k} ((1 - d) I + d W)^i."""
    weight, bias, h = affine
    h = h.clone().requires_grad_()
    connection = Connection(form="layer", solver=EXACT, gradient=Phantom(steps=steps, damping=damping))
    z = solve(connection, h, lambda x: x @ weight + bias)
    cotangent = torch.randn_like(z)
    (ours,) = torch.autograd.grad(z, h, cotangent)
    damped = (1 - damping) * torch.eye(HIDDEN).double() + damping * weight
    series = damping * sum(torch.linalg.matrix_power(damped, power) for power in range(steps))
    torch.testing.assert_close(ours, cotangent @ series.T)


@pytest.mark.parametrize(("form", "steps"), [("layer", 3), ("increment", 6)])
def test_the_default_backward_solve_is_as_long_as_it_says(affine, form, steps):
    """Three products in the layer form, six in the increment form, and five at least for words that are attacked."""
    weight, bias, h = affine
    products = 0

    def layer(x: Tensor) -> Tensor:
        def count(gradient: Tensor) -> None:
            nonlocal products
            products += 1

        y = x @ weight + bias
        if y.requires_grad:
            y.register_hook(count)
        return y

    h = h.clone().requires_grad_()
    connection = Connection(solver=FixedPoint(steps=2), gradient=Implicit())
    solve(connection, h, layer, form).sum().backward()
    assert products == steps
    for mode in (Implicit(), Phantom()):
        products = 0
        solve_for_words(mode, equation(connection, h, layer, form), connection.solver)[0].sum().backward()
        assert products == max(steps, 5)


def test_phantom_does_not_see_the_start_of_a_solve_that_was_given_up():
    """z = h + 50 z runs away, so its best iterate is h itself; as a constant to backward, it leaves h + 50 c."""
    h = torch.ones(1, 1, 1, dtype=torch.float64, requires_grad=True)
    z = solve(Connection(form="layer", solver=FixedPoint(steps=3), gradient=Phantom()), h, lambda x: 50 * x)
    z.sum().backward()
    assert float(z.detach()) == 51
    assert float(h.grad) == 1


@pytest.mark.parametrize("settings", [{"steps": 0}, {"damping": 0.0}, {"damping": 1.5}, {"damping": 2.0}])
def test_phantom_says_what_is_allowed(settings):
    with pytest.raises(UnshakenError, match="steps is 1 or more, damping above 0, at most 1"):
        Phantom(**settings)


@pytest.mark.parametrize("form", ["layer", "increment"])
@pytest.mark.parametrize(
    "connection",
    [
        Connection.ex_bert(),
        Connection.runge_kutta(order=2),
        Connection.runge_kutta(order=4),
        Connection(theta=0.4, solver=FixedPoint(steps=3), gradient=Unrolled()),
        Connection(theta=0.4, solver=EXACT, gradient=Implicit(solver=EXACT)),
    ],
    ids=["euler", "second order", "fourth order", "theta unrolled", "theta implicit"],
)
def test_gradients_of_every_equation_agree_with_finite_differences(connection, form):
    """By the input, the weights and a step that is learned."""

    def function(h: Tensor, weight: Tensor, step: Tensor) -> Tensor:
        problem = equation(connection, h, lambda x: torch.tanh(x @ weight), form, step)
        if connection.order > 1:
            return problem.runge_kutta()
        if connection.theta == 0:
            return problem.explicit()
        return connection.gradient_mode.solve(problem, connection.solver)[0]

    step = torch.tensor(0.6, dtype=torch.float64, requires_grad=True)
    assert gradcheck(function, (*inputs(), step), atol=1e-5)


@pytest.mark.parametrize("form", ["layer", "increment"])
@pytest.mark.parametrize("theta", [0.0, 0.4, 1.0])
def test_a_step_that_is_learned_is_a_step(affine, form, theta):
    weight, bias, h = affine
    connection = Connection(theta=theta, step=0.6, solver=FixedPoint(steps=2), gradient=Unrolled())
    found = []
    for step in (0.6, torch.tensor(0.6, dtype=torch.float64)):
        problem = equation(connection, h, lambda x: torch.tanh(x @ weight + bias), form, step)
        found.append(problem.explicit() if theta == 0 else Unrolled().solve(problem, connection.solver)[0])
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize(
    ("mode", "grows"), [("detached", False), ("phantom", False), ("implicit", False), ("unrolled", True)]
)
def test_only_unrolled_memory_grows_with_steps(mode, grows):
    """Counts the bytes autograd saves for backward."""

    def saved(steps: int) -> int:
        h, weight = inputs()
        total = 0

        def pack(tensor: Tensor) -> Tensor:
            nonlocal total
            total += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            tanh_layer(h, weight, Connection(form="layer", solver=FixedPoint(steps=steps), gradient=mode), "layer")
        return total

    assert (saved(20) > saved(2)) == grows
