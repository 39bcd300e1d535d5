"""Anderson acceleration: the best affine combination of the last few iterates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from unshaken.errors import UnshakenError
from unshaken.solvers.base import Cost, Evaluation, History, IterativeSolver, Map, expand


@dataclass(frozen=True, kw_only=True)
class Anderson(IterativeSolver):
    """Mixes the last `window` images with weights that sum to one and make the combined residual smallest.

    Paper: Anderson (1965); Walker and Ni (2011), where it is shown to be GMRES in disguise on linear problems.
    Relations: `FixedPoint` is the case window = 1.
    Cost: one evaluation of g a step and a (window x window) system an example; no backward pass.

    Attributes:
        window: Iterates that are mixed.
        damping: Share of the images (against the points) in the mixture.
        ridge: Added to the Gram matrix's diagonal, relative to its mean, so that scale does not matter.

    Example:
        >>> Anderson(steps=6)(lambda z: z.cos(), torch.ones(1, 1)).z
        tensor([[0.7391]])
    """

    window: int = 5
    damping: float = 1.0
    ridge: float = 1e-6

    name: ClassVar[str] = "anderson"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window < 1 or not 0 < self.damping <= 1 or self.ridge < 0:
            raise UnshakenError(
                f"Anderson(window={self.window}, damping={self.damping}, ridge={self.ridge}): window is 1 or more, "
                "damping lies above 0 and is at most 1, ridge is 0 or more"
            )

    def new_memory(self) -> History:
        return History(self.window)

    def propose(self, g: Map, at: Evaluation, mask: Tensor | None, memory: Any, cost: Cost) -> Tensor:
        memory.push(at)
        if len(memory.residuals) == 1:
            return at.z + self.damping * (at.image - at.z) if self.damping < 1 else at.image
        weights = self._weights(memory.residuals)
        mixed = combine(weights, memory.images)
        if self.damping < 1:
            mixed = torch.lerp(combine(weights, memory.points), mixed, self.damping)
        return mixed

    def _weights(self, residuals: list[Tensor]) -> Tensor:
        """argmin ||sum_i w_i r_i|| with sum_i w_i = 1, per example. -> (batch, n)

        Solved for differences to the newest residual, so that the ridge pulls towards the plain step, not towards an
        average over old iterates.
        """
        newest = residuals[-1][:, None]  # (batch, 1, features)
        differences = torch.stack(residuals[:-1], dim=1) - newest  # (batch, n - 1, features)
        gram = differences @ differences.transpose(1, 2)
        slope = differences @ newest.transpose(1, 2)  # (batch, n - 1, 1)
        scale = gram.diagonal(dim1=1, dim2=2).mean(1).clamp_min(torch.finfo(gram.dtype).tiny)[:, None, None]
        identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        ridge = self.ridge + torch.finfo(gram.dtype).eps
        # solve_ex does not look at the result, so a GPU is not made to wait; a bad solution is caught by the loop.
        older = -torch.linalg.solve_ex(gram / scale + ridge * identity, slope / scale).result.squeeze(-1)
        return torch.cat([older, 1 - older.sum(1, keepdim=True)], dim=1)


def combine(weights: Tensor, tensors: list[Tensor]) -> Tensor:
    """sum_i weights[:, i] * tensors[i]. (batch, n), n x (batch, ...) -> (batch, ...)"""
    total = expand(weights[:, 0], tensors[0]) * tensors[0]
    for index, tensor in enumerate(tensors[1:], start=1):
        total = torch.addcmul(total, expand(weights[:, index], tensor), tensor)
    return total
