"""Gradient descent on the squared residual: the solver of the IM-BERT paper."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from unshaken.errors import UnshakenError
from unshaken.names import nearest
from unshaken.solvers.base import Cost, Map, Solution, Solver, expand, masked, select, size

Reduction = Literal["sum", "token-mean", "mean"]
Safeguard = Literal["none", "polyak"]
EXPLOSION = 10.0  # an iterate this many times as large as the first is no approximation of anything


@dataclass(frozen=True, kw_only=True)
class GradientDescent(Solver):
    """z <- z - rate * grad ||z - g(z)||^2, from the explicit Euler step.

    The gradient is 2 (r - J^T r) with r = z - g(z). It is taken as one vector-Jacobian product with cotangent r,
    because the scalar ||r||^2 overflows in half precision.

    Paper: IM-BERT, Algorithm 1 (`steps` is T, `rate` is gamma); IE-Skips (Li, He and Lin 2020).
    Cost: one evaluation of g and one vector-Jacobian product a step, twice the T evaluations the paper counts, and one
        evaluation that measures the residual of what is returned. Converges like the squared condition number of
        I - J; five steps are a partial solve by construction.

    Attributes:
        rate: Descent step. The paper's gradient has no factor 1/2, so the effective step is twice this.
        reduction: What the squared norm sums over: tokens and features ("sum"), or a mean over features or over both.
        safeguard: "none" is Algorithm 1 to the letter. "polyak" shortens each example's step to
            min(rate, ||r||^2 / ||gradient||^2), which cannot run away where the rate is beyond the stability limit.

    Example:
        >>> GradientDescent(steps=50)(lambda z: z.cos(), torch.ones(1, 1)).z
        tensor([[0.7391]])
    """

    steps: int = 5  # paper section 4.1: T = 5
    rate: float = 0.1  # paper section 4.1: gamma = 0.1
    reduction: Reduction = "sum"  # the paper writes a norm; IE-Skips' official code sums
    safeguard: Safeguard = "none"
    growth: float = math.inf  # Algorithm 1 never looks back; only explosions are caught

    name: ClassVar[str] = "gradient-descent"
    starts_explicit: ClassVar[bool] = True  # Algorithm 1, line 2
    needs_vjp: ClassVar[bool] = True
    looks_at_end: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rate <= 0 or self.reduction not in ("sum", "token-mean", "mean"):
            raise UnshakenError(
                f"GradientDescent(rate={self.rate}, reduction={self.reduction!r}): rate is above 0 and reduction is "
                "'sum', 'token-mean' or 'mean'"
            )
        if self.safeguard not in ("none", "polyak"):
            hint = nearest(str(self.safeguard), ["none", "polyak"])
            raise UnshakenError(f"GradientDescent(safeguard={self.safeguard!r}): {hint}")

    def __call__(self, g: Map, z0: Tensor, mask: Tensor | None = None) -> Solution:
        # Its own loop: the product needs the graph from the iterate to its image, which the shared loop rewires.
        batch, cost = z0.shape[0], Cost()
        diverged = z0.new_zeros(batch, dtype=torch.bool)
        if self.steps == 0:
            return Solution(z0, z0.new_full((batch,), math.nan), diverged, 0)
        unrolled = torch.is_grad_enabled()
        z, step = z0, torch.zeros_like(z0)  # the iterate, and the step that led to it
        done = diverged
        best, best_z = z0.new_full((batch,), math.inf), z0
        start, scale = size(z0.detach(), mask), None

        def judge(image: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
            """Relative residual of z, and whether z is one to go back from."""
            nonlocal scale
            if scale is None:
                scale = size(image.detach(), mask).clamp_min(torch.finfo(image.dtype).tiny)
            relative = size(residual.detach(), mask) / scale
            calm = torch.isfinite(relative) & (relative <= best * self.growth)
            calm &= size(z.detach(), mask) <= EXPLOSION * torch.maximum(start, scale)
            return relative, ~calm

        for _ in range(self.steps):
            with torch.enable_grad():
                point = z if unrolled and z.requires_grad else z.detach().requires_grad_()
                image = g(point)
                residual = masked(point - image, mask).reshape(point.shape)
                cotangent = residual if unrolled else residual.detach()
                (pulled,) = torch.autograd.grad(image, point, cotangent, create_graph=unrolled)
            cost.evaluations += 1
            cost.vjps += 1
            relative, bad = judge(image, residual)
            diverged = diverged | bad
            improved = ~bad & (relative < best)
            best, best_z = torch.where(improved, relative, best), select(improved, z, best_z)
            descent = self._step(residual, residual - pulled, mask)
            if not unrolled:
                descent = descent.detach()
            # A diverged example takes back half of the step that led here; the others go on.
            step = select(bad, step * 0.5, -descent)
            z_next = select(bad, z - step, z + step)
            z = select(done, z, z_next) if self.tolerance > 0 else z_next
            if self.tolerance > 0:
                done = done | (best <= self.tolerance)
                if bool(done.all()):
                    break
        # Algorithm 1 never looks at the iterate it returns. One evaluation more tells how good that one is.
        with torch.no_grad():
            image = g(z.detach())
            cost.evaluations += 1
            relative, bad = judge(image, masked(z.detach() - image, mask).reshape(z.shape))
        diverged = diverged | bad
        known = torch.where(diverged, best, relative)
        known = torch.where(torch.isinf(known), torch.full_like(known, math.nan), known)
        return Solution(select(diverged, best_z, z), known, diverged, cost.evaluations, cost.vjps)

    def _step(self, residual: Tensor, slope: Tensor, mask: Tensor | None) -> Tensor:
        """rate_t * gradient, the gradient being 2 (r - J^T r) or a share of it."""
        share = self._share(residual, mask)
        gradient = 2 * share * slope
        if self.safeguard == "none":
            return self.rate * gradient
        # Polyak's step for a least value of zero; both norms are there already, so it costs no evaluation.
        value = (share * residual.square()).flatten(1).sum(1)
        square = gradient.square().flatten(1).sum(1)
        rate = (value / square.clamp_min(torch.finfo(square.dtype).tiny)).clamp_max(self.rate)
        return expand(rate, gradient) * gradient

    def _share(self, residual: Tensor, mask: Tensor | None) -> Tensor | float:
        if self.reduction == "sum":
            return 1.0
        features = residual.shape[-1]
        if self.reduction == "token-mean":
            return 1.0 / features
        if mask is None:
            return 1.0 / residual[0].numel()
        return (1.0 / (features * mask.sum(1).clamp_min(1).to(residual.dtype))).reshape(-1, *[1] * (residual.dim() - 1))
