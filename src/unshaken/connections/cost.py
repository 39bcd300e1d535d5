"""`connection_cost`: what a connected model costs, in plain training and inference."""

from __future__ import annotations

from unshaken.connections.backbones import parse_layers
from unshaken.connections.connection import Connection
from unshaken.connections.gradients import BACKWARD_STEPS, Implicit, Unrolled
from unshaken.solvers import GradientDescent


def connection_cost(
    connection: Connection | None, sizes: dict[str, int], *, pre_norm: bool = False
) -> tuple[float, float]:
    """(training, inference) in those of the plain model, by evaluations of its layers; docs/benchmarks.md has timings.

    A descent evaluates and differentiates a layer once a step, other solvers evaluate it once a step, and one pass more
    carries the gradient (a forward and twice that backward). Second derivatives of `Implicit` are not counted.

    Args:
        sizes: Layers of each stack, the main one first.
        pre_norm: Whether the form "auto" is the increment form.
    """
    if connection is None:
        return 1.0, 1.0
    training = inference = float(connection.order)
    if connection.is_implicit:
        descends = isinstance(connection.solver, GradientDescent)
        solving = connection.solver.steps * (2 if descends else 1)
        explicit = connection.theta < 1 and not descends  # a descent starts from it
        inference = solving + 1.0 + explicit
        if isinstance(connection.gradient_mode, Unrolled):  # every evaluation carries the gradient
            training = float(solving + descends + explicit)
        else:
            training = (solving + 3 + _backward_products(connection, pre_norm)) / 3 + explicit
    share = len(parse_layers(connection.layers, sizes)) / sum(sizes.values())
    return 1 + share * (training - 1), 1 + share * (inference - 1)


def _backward_products(connection: Connection, pre_norm: bool) -> int:
    """Vector-Jacobian products of the backward solve but the last, which the pass to the weights makes."""
    mode = connection.gradient_mode
    if not isinstance(mode, Implicit):
        return 0
    form = {"auto": "increment" if pre_norm else "layer"}.get(connection.form, connection.form)
    return max(0, (BACKWARD_STEPS[form] if mode.solver is None else mode.solver.steps) - 1)
