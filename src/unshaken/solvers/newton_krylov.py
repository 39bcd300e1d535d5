"""Newton's method with GMRES and finite-difference Jacobian products (Jacobian-free Newton-Krylov)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from unshaken.errors import UnshakenError
from unshaken.solvers.base import Cost, Iterate, IterativeSolver, Map, expand, masked, rounding, where_real


@dataclass(frozen=True, kw_only=True)
class NewtonKrylov(IterativeSolver):
    """z <- z + d with (I - J) d = g(z) - z solved by `krylov` steps of GMRES; J v by a forward difference of g.

    Paper: Knoll and Keyes (2004). IM-BERT section 3.4 prefers descent because Newton's iteration needs the Jacobian
    and its inverse; this one needs neither, so that the argument can be tested.
    Relations: `Anderson` builds the same Krylov space without restarting it at each step.
    Cost: 1 + `krylov` evaluations of g a step; no backward pass.

    Example:
        >>> NewtonKrylov(steps=4, krylov=1)(lambda z: z.cos(), torch.ones(1, 1)).z
        tensor([[0.7391]])
    """

    steps: int = 2
    krylov: int = 3

    name: ClassVar[str] = "newton-krylov"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.krylov < 1:
            raise UnshakenError(f"NewtonKrylov(krylov={self.krylov}): krylov is 1 or more")

    @property
    def evaluations_per_step(self) -> int:
        return 1 + self.krylov

    def propose(self, g: Map, at: Iterate, mask: Tensor | None, memory: Any, cost: Cost) -> Tensor:
        shape, tiny = at.z.shape, torch.finfo(at.z.dtype).tiny
        size = at.difference.norm(dim=1)
        basis = [at.difference / size.clamp_min(tiny)[:, None]]
        # Forward difference: the best step is the square root of g's precision times the size of the point.
        reach = rounding(at.z.dtype) ** 0.5 * (1 + masked(at.z, mask).norm(dim=1))
        columns: list[Tensor] = []
        for count in range(1, self.krylov + 1):
            direction = basis[-1].reshape(shape)
            moved = g(at.z + expand(reach, direction) * direction)
            cost.evaluations += 1
            product = basis[-1] - masked(moved - at.image, mask) / reach[:, None]  # (I - J) v
            column = product.new_zeros(shape[0], self.krylov + 1)
            for index, vector in enumerate(basis):
                overlap = (vector * product).sum(1)
                product = product - overlap[:, None] * vector
                column = column.index_add(1, column.new_tensor([index], dtype=torch.long), overlap[:, None])
            norm = product.norm(dim=1)
            columns.append(column.index_add(1, column.new_tensor([count], dtype=torch.long), norm[:, None]))
            basis.append(product / norm.clamp_min(tiny)[:, None])
        hessenberg = torch.stack(columns, dim=2)  # (batch, krylov + 1, krylov)
        target = torch.zeros_like(hessenberg[:, :, :1])
        target[:, 0, 0] = size
        transposed = hessenberg.transpose(1, 2)
        normal = transposed @ hessenberg
        scale = normal.diagonal(dim1=1, dim2=2).mean(1).clamp_min(tiny)[:, None, None]
        ridge = 10 * torch.finfo(normal.dtype).eps * torch.eye(self.krylov, dtype=normal.dtype, device=normal.device)
        solved = torch.linalg.solve_ex(normal / scale + ridge, transposed @ target / scale).result  # (batch, krylov, 1)
        step = (torch.stack(basis[:-1], dim=2) @ solved).squeeze(-1).reshape(shape)
        return where_real(mask, at.z + step, at.image)
