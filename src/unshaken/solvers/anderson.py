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
        shares = self._shares(memory.residuals)
        mixed = combine(shares, memory.images)
        if self.damping < 1:
            mixed = torch.lerp(combine(shares, memory.points), mixed, self.damping)
        return mixed

    def _shares(self, residuals: list[Tensor]) -> Tensor:
        """The w_i of older iterates that make ||r_n + sum_i w_i (r_i - r_n)|| smallest, per example. -> (batch, n - 1)

        Solved for differences to the newest residual, so that the ridge pulls towards the plain step, not towards an
        average over old iterates.
        """
        newest = residuals[-1]
        if len(residuals) == 2:  # one unknown: a quotient
            difference = residuals[0] - newest
            square = torch.linalg.vecdot(difference, difference)
            bounded = square * (1 + self.ridge) + torch.finfo(square.dtype).tiny
            share: Tensor = -torch.linalg.vecdot(difference, newest) / bounded
            return share[:, None]
        differences = torch.stack(residuals[:-1], dim=1) - newest[:, None]  # (batch, n - 1, features)
        gram = differences @ differences.transpose(1, 2)
        slope = differences @ newest[:, :, None]  # (batch, n - 1, 1)
        diagonal = gram.diagonal(dim1=1, dim2=2)
        ridge = (self.ridge + torch.finfo(gram.dtype).eps) * diagonal.mean(1, keepdim=True)
        diagonal.add_(ridge + torch.finfo(gram.dtype).tiny)
        # solve_ex does not look at the result, so a GPU is not made to wait; a bad solution is caught by the loop.
        solved: Tensor = torch.linalg.solve_ex(gram, slope).result
        return -solved.squeeze(-1)


def combine(shares: Tensor, tensors: list[Tensor]) -> Tensor:
    """t_n + sum_i shares[:, i] * (t_i - t_n). (batch, n - 1), n x (batch, ...) -> (batch, ...)"""
    newest = total = tensors[-1]
    for index, tensor in enumerate(tensors[:-1]):
        total = torch.addcmul(total, expand(shares[:, index], tensor), tensor - newest)
    return total
