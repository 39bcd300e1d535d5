"""Diagnostics: how well a layer's equation is solved, how steep the layer is, how a perturbation grows, what it costs.

Everything is measured on a model and a batch; nothing is assumed about the layers.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from unshaken.connections.backbones import stacks_of
from unshaken.connections.connection import Connection
from unshaken.connections.layer import ConnectedLayer, LayerEquation
from unshaken.connections.surgery import connect, connection_of, disconnect
from unshaken.solvers import Anderson, Broyden, FixedPoint, GradientDescent, NewtonKrylov, Solver
from unshaken.solvers.base import size

Batch = dict[str, Tensor]


@contextlib.contextmanager
def _equations(model: nn.Module) -> Iterator[dict[str, tuple[LayerEquation, Tensor]]]:
    """Collects each connected layer's equation and output during the forward passes inside."""
    seen: dict[str, tuple[LayerEquation, Tensor]] = {}
    stacks = stacks_of(model)
    main = next(iter(stacks))
    labels = {
        id(layer): str(number) if stack == main else f"{stack}:{number}"
        for stack, layers in stacks.items()
        for number, layer in enumerate(layers, start=1)
    }
    connected = [layer for layer in model.modules() if isinstance(layer, ConnectedLayer)]
    for layer in connected:
        original = layer._connect

        def observed(equation: LayerEquation, layer: Any = layer, original: Any = original) -> Any:
            output, solution = original(equation)
            seen[labels[id(layer)]] = (equation, output.detach())
            return output, solution

        layer._connect = observed  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        for layer in connected:
            del layer._connect


def layer_residuals(model: nn.Module, batch: Batch) -> dict[str, float]:
    """||z - g(z)|| / ||g(z)|| of each connected layer's output z, worst example of the batch."""
    with _equations(model) as seen, torch.no_grad():
        model(**batch)
        residuals = {}
        for label, (equation, z) in seen.items():
            image = equation.g(z)
            residuals[label] = float((size(image - z, equation.mask) / size(image, equation.mask)).max())
    return residuals


@dataclass(frozen=True, kw_only=True)
class ResidualCurve:
    """Worst relative residual of one layer after each number of evaluations of it."""

    layer: str
    solver: str
    evaluations: tuple[int, ...]  # forward evaluations
    vjps: tuple[int, ...]
    residuals: tuple[float, ...]


SOLVER_LADDER: tuple[Solver, ...] = (
    *(GradientDescent(steps=steps) for steps in (1, 5, 10, 15)),
    *(FixedPoint(steps=steps) for steps in (1, 2, 3, 5, 8)),
    *(Anderson(steps=steps) for steps in (1, 2, 3, 5, 8)),
    *(Broyden(steps=steps) for steps in (1, 2, 3, 5, 8)),
    *(NewtonKrylov(steps=steps, krylov=3) for steps in (1, 2)),
)


def residual_curves(
    model: nn.Module, batch: Batch, connection: Connection, solvers: tuple[Solver, ...] = SOLVER_LADDER
) -> list[ResidualCurve]:
    """The residual of every layer against evaluations, for each solver, on the inputs the plain model gives them."""
    with _connected_copy(model, replace(connection, layers="all")) as probe, _equations(probe) as seen, torch.no_grad():
        _pass_plain_states(probe, seen, batch)
        points: dict[tuple[str, str], list[tuple[int, int, float]]] = {}
        for label, (equation, _) in seen.items():
            for solver in solvers:
                guess = equation.explicit() if solver.starts_explicit else equation.first_guess()
                solution = solver(lambda z, equation=equation: equation.g(z), guess, equation.mask)  # type: ignore[misc]
                image = equation.g(solution.z)
                residual = float((size(image - solution.z, equation.mask) / size(image, equation.mask)).max())
                cost = solution.evaluations + int(solver.starts_explicit)
                points.setdefault((label, solver.name), []).append((cost, solution.vjps, residual))
    return [
        ResidualCurve(
            layer=layer,
            solver=solver,
            evaluations=tuple(point[0] for point in curve),
            vjps=tuple(point[1] for point in curve),
            residuals=tuple(point[2] for point in curve),
        )
        for (layer, solver), curve in points.items()
    ]


@contextlib.contextmanager
def _connected_copy(model: nn.Module, connection: Connection) -> Iterator[nn.Module]:
    probe = copy.deepcopy(model).eval()
    if connection_of(probe) is not None:
        disconnect(probe)
    yield connect(probe, connection)


def _pass_plain_states(probe: nn.Module, seen: dict[str, tuple[LayerEquation, Tensor]], batch: Batch) -> None:
    """Run the model so that every layer is seen with the plain model's hidden state as its input."""
    for layer in probe.modules():
        if isinstance(layer, ConnectedLayer):
            observed = layer._connect

            def plain(equation: LayerEquation, observed: Any = observed) -> Any:
                observed(equation)
                return equation.layer_of_h(), None

            layer._connect = plain  # type: ignore[method-assign]
    probe(**batch)


def lipschitz_estimates(model: nn.Module, batch: Batch, iterations: int = 12, seed: int = 0) -> dict[str, float]:
    """Largest singular value of each layer's Jacobian at the plain model's states, by power iteration on J^T J.

    An estimate from below of the layer's local Lipschitz constant; the largest over the batch.
    """
    generator = torch.Generator(device="cpu").manual_seed(seed)
    estimates = {}
    connection = Connection(form="layer", solver=FixedPoint(steps=1))
    with _connected_copy(model, connection) as probe, _equations(probe) as seen:
        with torch.no_grad():
            _pass_plain_states(probe, seen, batch)
        for label, (equation, _) in seen.items():
            estimates[label] = _largest_singular_value(equation, iterations, generator)
    return estimates


def _largest_singular_value(equation: LayerEquation, iterations: int, generator: torch.Generator) -> float:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    h = equation.h.detach()
    mask = None if equation.mask is None else equation.mask[..., None].to(h.dtype)

    def hold(v: Tensor) -> Tensor:  # only real tokens are perturbed and looked at; examples are normalised apart
        v = v if mask is None else v * mask
        return v / size(v, None).clamp_min(torch.finfo(v.dtype).tiny).reshape(-1, 1, 1)

    v = hold(torch.randn(h.shape, generator=generator, dtype=h.dtype).to(h.device))
    sigma = torch.zeros(len(h))
    with sdpa_kernel(SDPBackend.MATH), torch.enable_grad():
        for _ in range(iterations):
            x = h.requires_grad_()
            y = equation.layer(x)
            dummy = torch.zeros_like(y, requires_grad=True)
            (pulled,) = torch.autograd.grad(y, x, dummy, create_graph=True)  # J^T u, linear in u
            (pushed,) = torch.autograd.grad(pulled, dummy, v, retain_graph=True)  # J v, by differentiating it in u
            pushed = pushed if mask is None else pushed * mask
            sigma = size(pushed, None)
            (back,) = torch.autograd.grad(y, x, pushed)
            v = hold(back.detach())
    return float(sigma.max())


@dataclass(frozen=True, kw_only=True)
class Growth:
    """How a perturbation of the embeddings grows layer by layer: ||h'_t - h_t|| / ||h'_0 - h_0||, mean of the batch."""

    name: str
    ratios: tuple[float, ...]  # one a hidden state, the first is 1


def perturbation_growth(
    model: nn.Module, batch: Batch, connections: dict[str, Connection | None], scale: float = 1e-2, seed: int = 0
) -> list[Growth]:
    """Growth of a random perturbation of relative size `scale` on the embeddings, for each connection (None: plain)."""
    rows = []
    for name, connection in connections.items():
        probe = copy.deepcopy(model).eval()
        if connection_of(probe) is not None:
            disconnect(probe)
        if connection is not None:
            connect(probe, connection)
        embeddings = probe.get_input_embeddings()(batch["input_ids"])  # type: ignore[operator]
        noise = torch.randn(embeddings.shape, generator=torch.Generator().manual_seed(seed)).to(embeddings)
        noise = noise * batch["attention_mask"][..., None]
        noise = noise * (scale * size(embeddings, batch["attention_mask"]) / size(noise, None)).reshape(-1, 1, 1)
        rest = {key: value for key, value in batch.items() if key != "input_ids"}
        with torch.no_grad():
            clean = probe(inputs_embeds=embeddings, **rest, output_hidden_states=True).hidden_states
            moved = probe(inputs_embeds=embeddings + noise, **rest, output_hidden_states=True).hidden_states
        mask = batch["attention_mask"]
        distances = [size(b - a, mask) / size(a, mask) for a, b in zip(clean, moved, strict=True)]
        rows.append(Growth(name=name, ratios=tuple(float((d / distances[0]).mean()) for d in distances)))
    return rows


def recommended_solver(curves: list[ResidualCurve], target: float = 0.05) -> Solver:
    """The cheapest Anderson setting whose worst layer is below `target`; the best one tried where none is."""
    by_steps: dict[int, float] = {}
    for curve in curves:
        if curve.solver == Anderson.name:
            for steps, residual in zip(curve.evaluations, curve.residuals, strict=True):
                by_steps[steps] = max(by_steps.get(steps, 0.0), residual)
    good = [steps for steps, residual in sorted(by_steps.items()) if residual <= target]
    return Anderson(steps=good[0] if good else min(by_steps, key=lambda steps: by_steps[steps]))


def explicit_amplification(product: complex) -> float:
    """|1 + gamma lambda|: how the explicit Euler method scales a perturbation (Proposition 1: stable below 1)."""
    return abs(1 + product)


def implicit_amplification(product: complex) -> float:
    """1 / |1 - gamma lambda|: how the implicit Euler method scales a perturbation (Proposition 2)."""
    return 1 / abs(1 - product)
