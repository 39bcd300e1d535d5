"""Whether what a connected model computes can be relied on: its gradients, and its predictions in a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from unshaken.connections.backbones import embeddings_of
from unshaken.connections.connection import Connection
from unshaken.connections.gradients import Detached, Gradient, Implicit, Phantom
from unshaken.connections.layer import ConnectedLayer
from unshaken.connections.surgery import connected_copy
from unshaken.solvers import Anderson

Batch = dict[str, Tensor]
MODES: dict[str, Gradient] = {
    "detached": Detached(),
    "phantom 1": Phantom(),
    "phantom 2": Phantom(steps=2),
    "implicit": Implicit(),
}
CONVERGED = (60, 90)  # backward steps of the solve that others are compared with, and of the one that checks it


@dataclass(frozen=True, kw_only=True)
class GradientQuality:
    """Cosines of a mode's gradient with that of a converged backward solve at the same solution."""

    mode: str
    weights: float  # of the connected layers
    words: float  # at the embedded tokens


def gradient_quality(
    model: nn.Module, batch: Batch, connection: Connection, modes: Mapping[str, Gradient] = MODES
) -> list[GradientQuality]:
    """How near each mode comes to the gradient of the solution. The last row, "converged", is the comparison's own
    cosine with a longer solve: below 1 the equation of the gradient has not converged, and no row says much."""

    def found(mode: Gradient) -> tuple[Tensor, Tensor]:
        return gradients(connected_copy(model, replace(connection, gradient=mode)), batch)

    truth, check = (found(Implicit(solver=Anderson(steps=steps, window=10, tolerance=1e-6))) for steps in CONVERGED)
    rows = [(name, found(mode)) for name, mode in modes.items()]
    return [
        GradientQuality(mode=name, weights=_cosine(weights, truth[0]), words=_cosine(words, truth[1]))
        for name, (weights, words) in [*rows, ("converged", check)]
    ]


def noise(model: nn.Module, batch: Batch, connection: Connection | None) -> float:
    """Largest difference of a logit between each text alone, without its padding, and all of them in one batch.

    In exact arithmetic it is zero; a solver that amplifies rounding shows here, and attacks that compare scores across
    batches rest on it. `connection` None measures the plain model.
    """
    probe = connected_copy(model, connection)
    with torch.no_grad():
        together = probe(**batch).logits
        differences = []
        for row in range(len(together)):
            real = batch["attention_mask"][row].bool()
            alone = probe(**{name: value[row : row + 1, real] for name, value in batch.items()}).logits
            differences.append(float((alone[0] - together[row]).abs().max()))
    return max(differences)


def gradients(model: Any, batch: Batch) -> tuple[Tensor, Tensor]:
    """Gradients of a loss: of the connected layers' weights, and at the words."""
    embedded: list[Tensor] = []

    def keep(module: nn.Module, inputs: object, output: Tensor) -> None:
        output.retain_grad()
        embedded.append(output)

    model.zero_grad()
    hook = embeddings_of(model).register_forward_hook(keep)
    try:
        logits = model(**batch).logits
    finally:
        hook.remove()
    labels = torch.arange(len(logits), device=logits.device) % logits.shape[1]
    loss: Any = nn.functional.cross_entropy(logits, labels)
    loss.backward()
    words = next(word.grad for word in embedded if word.grad is not None)
    layers = [layer for layer in model.modules() if isinstance(layer, ConnectedLayer)]
    weights = [weight.grad.flatten() for layer in layers for weight in layer.parameters() if weight.grad is not None]
    return torch.cat(weights), words.flatten()


def _cosine(a: Tensor, b: Tensor) -> float:
    return float(torch.cosine_similarity(a.double(), b.double(), dim=0))
