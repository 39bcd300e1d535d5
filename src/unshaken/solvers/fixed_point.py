"""Damped fixed-point (Picard) iteration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from unshaken.errors import UnshakenError
from unshaken.solvers.base import Cost, Iterate, IterativeSolver, Map


@dataclass(frozen=True, kw_only=True)
class FixedPoint(IterativeSolver):
    """z <- z + damping * (g(z) - z).

    Relations: `Anderson` with a window of 1 and the same damping.
    Cost: one evaluation of g a step, no backward pass. Converges like the spectral radius of g's Jacobian.

    Example:
        >>> FixedPoint(steps=20, damping=0.5)(lambda z: z.cos(), torch.ones(1, 1)).z
        tensor([[0.7391]])
    """

    damping: float = 1.0

    name: ClassVar[str] = "fixed-point"
    mixes_images: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.damping <= 1:
            raise UnshakenError(f"FixedPoint(damping={self.damping}): damping lies above 0 and is at most 1")

    def propose(self, g: Map, at: Iterate, mask: Tensor | None, memory: Any, cost: Cost) -> Tensor:
        if self.damping == 1:
            return at.image
        return at.z + self.damping * (at.image - at.z)
