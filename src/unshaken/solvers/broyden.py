"""Broyden's method: Newton with a Jacobian that is learned from the iterates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from unshaken.errors import UnshakenError
from unshaken.solvers.base import Cost, Iterate, IterativeSolver, Map, masked, where_real


@dataclass
class _InverseJacobian:
    """The inverse Jacobian of F(z) = g(z) - z as -I + sum_i u_i v_i^T, and the last point it was updated at."""

    rank: int
    left: list[Tensor] = field(default_factory=list)  # u_i: (batch, features)
    right: list[Tensor] = field(default_factory=list)  # v_i: (batch, features)
    point: Tensor | None = None
    value: Tensor | None = None

    def apply(self, x: Tensor) -> Tensor:
        return sum((u * (v * x).sum(1, keepdim=True) for u, v in zip(self.left, self.right, strict=True)), -x)

    def apply_transposed(self, x: Tensor) -> Tensor:
        return sum((v * (u * x).sum(1, keepdim=True) for u, v in zip(self.left, self.right, strict=True)), -x)

    def update(self, point: Tensor, value: Tensor) -> None:
        """Broyden's good update by Sherman and Morrison."""
        if self.point is not None and self.value is not None:
            moved, changed = point - self.point, value - self.value
            right = self.apply_transposed(moved)
            scale = (right * changed).sum(1, keepdim=True)
            # An example that did not move (it converged or was put back) must not change its Jacobian.
            usable = scale.abs() > torch.finfo(scale.dtype).eps * (right.norm(dim=1) * changed.norm(dim=1))[:, None]
            left = (moved - self.apply(changed)) / torch.where(usable, scale, torch.ones_like(scale))
            self.left.append(torch.where(usable, left, torch.zeros_like(left)))
            self.right.append(right)
            del self.left[: -self.rank], self.right[: -self.rank]
        self.point, self.value = point, value


@dataclass(frozen=True, kw_only=True)
class Broyden(IterativeSolver):
    """z <- z - B F(z) with F(z) = g(z) - z and B the inverse Jacobian learned so far, B = -I at the start.

    Paper: Broyden (1965); used for deep equilibrium models by Bai, Kolter and Koltun (2019).
    Relations: the first step is `FixedPoint`'s.
    Cost: one evaluation of g a step; memory of two vectors a step up to `rank`; no backward pass.

    Example:
        >>> Broyden(steps=8)(lambda z: z.cos(), torch.ones(1, 1)).z
        tensor([[0.7391]])
    """

    rank: int = 16

    name: ClassVar[str] = "broyden"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rank < 1:
            raise UnshakenError(f"Broyden(rank={self.rank}): rank is 1 or more")

    def new_memory(self) -> _InverseJacobian:
        return _InverseJacobian(self.rank)

    def propose(self, g: Map, at: Iterate, mask: Tensor | None, memory: Any, cost: Cost) -> Tensor:
        memory.update(masked(at.z, mask), at.difference)
        step = -memory.apply(at.difference).reshape(at.z.shape)
        return where_real(mask, at.z + step, at.image)
