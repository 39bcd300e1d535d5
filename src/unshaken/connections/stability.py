"""Diagnostics: how well a layer's equation is solved, how steep the layer is, how a perturbation grows, what it costs.

Everything is measured on a model and a batch; nothing is assumed about the layers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from unshaken.connections.backbones import embeddings_of, labelled_layers, stacks_of
from unshaken.connections.connection import Connection, Where
from unshaken.connections.layer import ConnectedLayer, LayerEquation, part_label
from unshaken.connections.surgery import connected_copy
from unshaken.solvers import Anderson, Broyden, FixedPoint, GradientDescent, NewtonKrylov, Solver
from unshaken.solvers.base import masked, size

Batch = dict[str, Tensor]


@contextlib.contextmanager
def _equations(model: nn.Module) -> Iterator[dict[str, tuple[LayerEquation, Tensor]]]:
    """Collects each connected layer's equation and output during the forward passes inside."""
    seen: dict[str, tuple[LayerEquation, Tensor]] = {}
    labels = {id(layer): label for label, layer in labelled_layers(model).items()}
    connected = [layer for layer in model.modules() if isinstance(layer, ConnectedLayer)]
    for layer in connected:
        original = layer._connect

        def observed(equation: LayerEquation, layer: Any = layer, original: Any = original) -> Any:
            output, solution = original(equation)
            seen[part_label(labels[id(layer)], equation.part)] = (equation, output.detach())
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
        return {label: _residual(equation, z) for label, (equation, z) in seen.items()}


def _residual(equation: LayerEquation, z: Tensor) -> float:
    image = equation.g(z)
    return float((size(image - z, equation.mask) / size(image, equation.mask)).max())


@dataclass(frozen=True, kw_only=True)
class ResidualCurve:
    """Worst relative residual of one layer after each number of evaluations of it."""

    layer: str
    solver: str
    steps: tuple[int, ...]
    evaluations: tuple[int, ...]  # forward evaluations, the first guess included
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
    with _plain_equations(model, batch, replace(connection, layers="all")) as equations, torch.no_grad():
        points: dict[tuple[str, str], list[tuple[int, int, int, float]]] = {}
        for label, equation in equations.items():
            for solver in solvers:
                guess = equation.explicit() if solver.starts_explicit else equation.first_guess()
                solution = solver(lambda z, equation=equation: equation.g(z), guess, equation.mask)  # type: ignore[misc]
                residual = _residual(equation, solution.z)
                cost = solution.evaluations + int(solver.starts_explicit)
                points.setdefault((label, solver.name), []).append((solver.steps, cost, solution.vjps, residual))
    names = ("steps", "evaluations", "vjps", "residuals")
    return [
        ResidualCurve(layer=layer, solver=solver, **dict(zip(names, zip(*curve, strict=True), strict=True)))
        for (layer, solver), curve in points.items()
    ]


@contextlib.contextmanager
def _plain_equations(model: nn.Module, batch: Batch, connection: Connection) -> Iterator[dict[str, LayerEquation]]:
    """Each layer's equation under a connection, with the plain model's hidden state as its input."""
    probe = connected_copy(model, connection)
    with _equations(probe) as seen:
        for layer in probe.modules():
            if isinstance(layer, ConnectedLayer):
                observed = layer._connect

                def plain(equation: LayerEquation, observed: Any = observed) -> Any:
                    observed(equation)
                    return equation.layer_of_h(), None

                layer._connect = plain  # type: ignore[method-assign]
        with torch.no_grad():
            probe(**batch)
        yield {label: equation for label, (equation, _) in seen.items()}


def lipschitz_estimates(
    model: nn.Module, batch: Batch, iterations: int = 12, seed: int = 0, where: Where = "layers"
) -> dict[str, float]:
    """Largest singular value of each layer's Jacobian at the plain model's states, by power iteration on J^T J.

    An estimate from below of the layer's local Lipschitz constant; the largest over the batch.
    """
    generator = torch.Generator(device="cpu").manual_seed(seed)
    with _plain_equations(model, batch, _jacobians(where)) as equations:
        return {label: _largest_singular_value(one, iterations, generator) for label, one in equations.items()}


def _jacobians(where: Where) -> Connection:
    """A connection whose equations are asked for their derivatives alone."""
    return Connection(form="layer", where=where, solver=FixedPoint(steps=1))


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
            (pushed,) = torch.autograd.grad(pulled, dummy, v)  # J v, by differentiating it in u
            pushed = pushed if mask is None else pushed * mask
            sigma = size(pushed, None)
            (back,) = torch.autograd.grad(y, x, pushed)
            v = hold(back.detach())
    return float(sigma.max())


def rightmost_eigenvalues(
    model: nn.Module, batch: Batch, iterations: int = 60, seed: int = 0, where: Where = "layers"
) -> dict[str, float]:
    """Largest real part of an eigenvalue of each layer's Jacobian at the plain model's states; the batch's largest.

    Proposition 2 of the paper is about this number, in the layer form: an implicit step is stable for any step size
    where it is not above zero. By Arnoldi's method on the transposed Jacobian, whose eigenvalues are the same: an
    estimate from inside of the spectrum, which is close for eigenvalues that stand apart.
    """
    generator = torch.Generator(device="cpu").manual_seed(seed)
    with _plain_equations(model, batch, _jacobians(where)) as equations:
        return {label: _rightmost(equation, iterations, generator) for label, equation in equations.items()}


def _rightmost(equation: LayerEquation, iterations: int, generator: torch.Generator) -> float:
    with torch.enable_grad():
        x = equation.h.detach().requires_grad_()
        y = equation.layer(x)
    shape, tiny = x.shape, torch.finfo(x.dtype).tiny
    tokens = torch.full((len(x),), shape[1]) if equation.mask is None else equation.mask.sum(1).cpu()
    iterations = min(iterations, int(tokens.min()) * shape[2])  # a space cannot grow beyond the smallest text's
    basis = [masked(torch.randn(shape, generator=generator, dtype=x.dtype).to(x.device), equation.mask)]
    basis = [basis[0] / basis[0].norm(dim=1, keepdim=True)]  # (batch, features) each
    hessenberg = x.new_zeros(len(x), iterations + 1, iterations)
    for column in range(iterations):
        (pulled,) = torch.autograd.grad(y, x, basis[-1].reshape(shape), retain_graph=True)
        vector, known = masked(pulled, equation.mask), torch.stack(basis, dim=1)  # (batch, n, features)
        for _ in range(2):  # twice is enough: one pass leaves rounding in the directions that are there already
            overlap = known @ vector[:, :, None]
            vector = vector - (overlap.transpose(1, 2) @ known)[:, 0]
            hessenberg[:, : column + 1, column] += overlap[:, :, 0]
        length = vector.norm(dim=1)
        hessenberg[:, column + 1, column] = length
        basis.append(vector / length.clamp_min(tiny)[:, None])
    eigenvalues = torch.linalg.eigvals(hessenberg[:, :iterations].double().cpu())
    return float(eigenvalues.real.max())


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
        probe = connected_copy(model, connection)
        clean, moved = (_main_states(probe, batch, scale=reach, seed=seed) for reach in (0.0, scale))
        mask = batch["attention_mask"]
        distances = [size(b - a, mask) / size(a, mask) for a, b in zip(clean, moved, strict=True)]
        rows.append(Growth(name=name, ratios=tuple(float((d / distances[0]).mean()) for d in distances)))
    return rows


def _main_states(model: nn.Module, batch: Batch, scale: float, seed: int) -> list[Tensor]:
    """The input of the main stack's first layer and the output of each, with the token embeddings moved by `scale`."""
    states: list[Tensor] = []

    def move(module: nn.Module, inputs: Any, embeddings: Tensor) -> Tensor:
        states.clear()  # a pass in which a solve diverged is run again
        noise = torch.randn(embeddings.shape, generator=torch.Generator().manual_seed(seed)).to(embeddings)
        return embeddings + scale * noise * (size(embeddings, None) / size(noise, None)).reshape(-1, 1, 1)

    def keep(module: nn.Module, inputs: Any, output: Any) -> None:
        if not states:
            states.append(inputs[0].detach())
        states.append((output[0] if isinstance(output, tuple) else output).detach())

    layers = {id(layer): layer for layer in next(iter(stacks_of(model).values()))}  # a shared layer is hooked once
    hooks: list[Any] = [embeddings_of(model).register_forward_hook(move)]
    hooks += [layer.register_forward_hook(keep) for layer in layers.values()]
    try:
        with torch.no_grad():
            model(**batch)
    finally:
        for hook in hooks:
            hook.remove()
    return states


def recommended_solver(curves: list[ResidualCurve], target: float = 0.05) -> tuple[Solver, float]:
    """The cheapest Anderson setting whose worst layer is below `target`, or the best one tried where none is, with the
    worst residual it reached."""
    by_steps: dict[int, float] = {}
    for curve in curves:
        if curve.solver == Anderson.name:
            for steps, residual in zip(curve.steps, curve.residuals, strict=True):
                by_steps[steps] = max(by_steps.get(steps, 0.0), residual)
    good = [steps for steps, residual in sorted(by_steps.items()) if residual <= target]
    steps = good[0] if good else min(by_steps, key=lambda steps: by_steps[steps])
    return Anderson(steps=steps), by_steps[steps]
