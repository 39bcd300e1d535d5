"""`connection_cost`: what a connected model costs, in plain training and inference."""

from __future__ import annotations

from unshaken.connections.backbones import parse_layers
from unshaken.connections.connection import Connection
from unshaken.connections.gradients import BACKWARD_STEPS, Detached, Implicit, Phantom, Unrolled
from unshaken.solvers import Anderson


def connection_cost(
    connection: Connection | None, sizes: dict[str, int], *, pre_norm: bool = False
) -> tuple[float, float]:
    """(training, inference) in those of the plain model, by evaluations of its layers; docs/benchmarks.md has timings.

    A product with a layer's Jacobian counts as an evaluation, and a pass that carries the gradient as three (a forward
    and twice that backward). Training takes one derivative, also where a gradient allows more.

    Args:
        sizes: Layers of each stack, the main one first.
        pre_norm: Whether the form "auto" is the increment form.
    """
    if connection is None:
        return 1.0, 1.0
    training = inference = float(connection.order)
    if connection.is_implicit:
        solver, mode = connection.solver, connection.gradient_mode
        solving = solver.steps * solver.evaluations_per_step
        look = int(solver.looks_at_end and solver.steps > 0)
        at_solution = mode.steps if isinstance(mode, Phantom) else int(isinstance(mode, Implicit))
        differentiated = connection.theta < 1 or isinstance(mode, Detached)
        explicit = differentiated or solver.starts_explicit  # layer(h) is evaluated once, whatever asks for it
        inference = float(solving + look + explicit + at_solution)
        if isinstance(mode, Unrolled):  # every step carries the gradient
            training = solving + explicit + look / 3
        else:
            after = _differentiating(mode, connection.form, pre_norm) / 3 if isinstance(mode, Implicit) else at_solution
            training = (solving + look) / 3 + (explicit if differentiated else explicit / 3) + after
    share = len(parse_layers(connection.layers, sizes)) / sum(sizes.values())
    return 1 + share * (training - 1), 1 + share * (inference - 1)


def _differentiating(mode: Implicit, form: str, pre_norm: bool) -> int:
    """Evaluations at the solution, forward and backward."""
    form = {"auto": "increment" if pre_norm else "layer"}.get(form, form)
    solver = mode.solver or Anderson(steps=BACKWARD_STEPS[form])
    products = solver.steps * solver.evaluations_per_step
    if mode.order == 1:
        return 3 + products - solver.has_course  # the pass to the weights makes the last
    return 1 + mode.order * (3 + products)  # the graph of all products, and a pass and a solve for each order
