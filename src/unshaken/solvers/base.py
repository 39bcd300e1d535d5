"""What a solver is: it finds z with z = g(z), for every example of a batch on its own.

Solvers share one loop (`IterativeSolver.__call__`): evaluate g, measure each example's relative residual, keep the best
iterate, propose the next one. An example that has converged is frozen, one that diverges goes back to its best
iterate and takes ever smaller damped steps from there. No example sees another, so results do not depend on the batch.
"""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from unshaken.errors import UnshakenError

Map = Callable[[Tensor], Tensor]  # (batch, ...) -> (batch, ...)


@dataclass(frozen=True)
class Solution:
    """What a solver found, and what it cost. Failure is data: look at `residual` and `diverged`.

    Attributes:
        z: (batch, ...) What was found.
        residual: (batch,) ||g(z) - z|| / ||g(z0)|| of the best iterate at which g was evaluated, NaN if there was none.
            This is not z where the last iterate was the best: z is the step from it, which is mostly better, and to
            know by how much costs one evaluation more. `GradientDescent` spends it, and tells the residual of z.
        diverged: (batch,) Whether an iterate had to be given up.
        evaluations: Of g.
        vjps: Vector-Jacobian products of g.
    """

    z: Tensor
    residual: Tensor
    diverged: Tensor
    evaluations: int
    vjps: int = 0


@dataclass
class Iterate:
    """One evaluated iterate."""

    z: Tensor  # (batch, ...)
    image: Tensor  # (batch, ...) g(z)
    difference: Tensor  # (batch, features) g(z) - z, zero on padding
    residual: Tensor  # (batch,) size of the difference, relative to g(z0)


@dataclass
class Cost:
    """Counts what one solve spends."""

    evaluations: int = 0
    vjps: int = 0


@dataclass(frozen=True, kw_only=True)
class Solver(ABC):
    """Base of all solvers. A solver is hyperparameters; what changes during a solve lives in the call.

    Attributes:
        steps: Iterations at most. 0 leaves the first guess as it is.
        tolerance: Relative residual at which an example is done; 0 always takes all steps.
        growth: An iterate whose residual exceeds `growth` times the best one counts as diverged.
    """

    steps: int = 5
    tolerance: float = 0.0
    growth: float = 10.0

    name: ClassVar[str]
    starts_explicit: ClassVar[bool] = False  # whether the first guess is the explicit Euler step, not the input
    needs_vjp: ClassVar[bool] = False
    looks_at_end: ClassVar[bool] = False  # whether it evaluates, outside of any graph, what it returns
    mixes_images: ClassVar[bool] = False  # whether proposals are finite wherever images are

    def __post_init__(self) -> None:
        if self.steps < 0 or self.tolerance < 0 or self.growth <= 1:
            raise UnshakenError(
                f"{type(self).__name__}(steps={self.steps}, tolerance={self.tolerance}, growth={self.growth}): "
                "steps and tolerance are 0 or more and growth is above 1"
            )

    @property
    def evaluations_per_step(self) -> int:
        """Evaluations of g, and products with its Jacobian."""
        return 2 if self.needs_vjp else 1

    @property
    def has_course(self) -> bool:
        """Whether `course` gives a solve to walk."""
        return False

    @abstractmethod
    def __call__(self, g: Map, z0: Tensor, mask: Tensor | None = None) -> Solution:
        """Solve z = g(z) from `z0`. `mask` (batch, seq) is 1 for tokens that count in residuals, 0 for padding.

        Differentiable where gradients are enabled: the connection decides, by entering `no_grad` or not.
        """

    def course(self, z0: Tensor, mask: Tensor | None = None) -> Course | None:
        """A solve from `z0` that its caller walks, image by image; None where this solver has no such thing."""
        return None


class Course(Protocol):
    """A solve under way."""

    z: Tensor  # where g is to be evaluated next

    def take(self, image: Tensor) -> None:
        """Go on from g(z)."""

    def trusted(self) -> Tensor:
        """z, or the start for an example that ran away."""


class IterativeSolver(Solver):
    """A solver by `propose`: from the evaluated iterate to the next one. The loop around it is shared."""

    @abstractmethod
    def propose(self, g: Map, at: Iterate, mask: Tensor | None, memory: Any, cost: Cost) -> Tensor:
        """The next iterate, from the evaluated one and what `memory` kept of earlier ones."""

    def new_memory(self) -> Any:
        """State of one solve, changed by `propose`."""
        return None

    def __call__(self, g: Map, z0: Tensor, mask: Tensor | None = None) -> Solution:
        if self.steps == 0:
            batch = len(z0)
            return Solution(z0, z0.new_full((batch,), math.nan), z0.new_zeros(batch, dtype=torch.bool), 0)
        if self.tolerance > 0 or torch.is_grad_enabled():
            return self._guarded(g, z0, mask)
        quick = self._unguarded(g, z0, mask)
        looks = _looks.get()
        if looks is not None:
            looks.append(quick.diverged)
            return quick
        if not bool(quick.diverged.any()):
            return quick
        again = self._guarded(g, z0, mask)  # rare: what was spent in vain is counted too
        return replace(again, evaluations=again.evaluations + quick.evaluations)

    def _unguarded(self, g: Map, z0: Tensor, mask: Tensor | None) -> Solution:
        """All steps without a look at the residuals, which are judged once at the end.

        Where no example diverges this is what `_guarded` does, without the many small operations that make a GPU wait.
        """
        z, memory, cost = z0, self.new_memory(), Cost()
        points, sizes = [], []
        scale: Tensor | None = None
        for _ in range(self.steps):
            image = g(z)
            cost.evaluations += 1
            points.append(z)
            difference = masked(image - z, mask)
            sizes.append(torch.linalg.vector_norm(difference, dim=1))
            if scale is None:
                scale = size(image, mask)
            z = self.propose(g, Iterate(z, image, difference, sizes[-1]), mask, memory, cost)
        assert scale is not None  # there is at least one step
        return self._judged(points, z, torch.stack(sizes), scale, cost)

    def _judged(self, points: list[Tensor], z: Tensor, sizes: Tensor, scale: Tensor, cost: Cost) -> Solution:
        """The last proposal, or the best point where the last one was worse: chosen on the device, without a look.

        `sizes` (steps, batch) are those of the differences at `points`, `scale` (batch,) what they are relative to.
        """
        residuals = torch.nan_to_num(sizes / scale.clamp_min(torch.finfo(z.dtype).tiny), nan=math.inf, posinf=math.inf)
        least = residuals.cummin(0)
        best = least.values[-1]
        lost = torch.isinf(best)  # no image was finite: stay at the first guess
        bad = ~(residuals <= least.values * self.growth).all(0) | lost
        rejected = (residuals[-1] > best) | lost  # the next step from a worse iterate was never checked
        candidates = points[:-1] or points  # where the last point is the best, its proposal is kept
        if not self.mixes_images:
            bad = bad | ~torch.isfinite(z.flatten(1).sum(1))
            rejected, candidates = rejected | bad, points
        chosen = least.indices[-1].masked_fill(lost, 0)
        for number, point in enumerate(candidates):
            z = select(rejected & (chosen == number), point, z)
        return Solution(z, best, bad, cost.evaluations, cost.vjps)

    def _guarded(self, g: Map, z0: Tensor, mask: Tensor | None) -> Solution:
        """Step by step: each example is frozen when it is done, and put back to its best iterate when it diverges."""
        batch = z0.shape[0]
        z, memory, cost = z0, self.new_memory(), Cost()
        diverged = worsened = z0.new_zeros(batch, dtype=torch.bool)
        done: Tensor | None = None
        damping = z0.new_ones(batch, dtype=torch.float32)
        best: Iterate | None = None
        scale: Tensor | None = None
        for _ in range(self.steps):
            image = g(z)
            cost.evaluations += 1
            if scale is None:  # a fixed scale: relative to g(z), the residual of a diverging iterate looks small
                scale = size(image.detach(), mask).clamp_min(torch.finfo(image.dtype).tiny)
            difference = masked(image - z, mask)
            current = Iterate(z, image, difference, difference.norm(dim=1) / scale)
            finite = torch.isfinite(current.residual.detach())
            if best is None:  # an image that is not finite is no step to take: stay
                still = torch.zeros_like(difference)
                best = _choose(finite, current, Iterate(z, z, still, current.residual))
            bad = ~finite | (current.residual.detach() > best.residual.detach() * self.growth)
            diverged = diverged | bad
            improved = finite & ~(current.residual.detach() > best.residual.detach())
            worsened = ~improved
            best = _choose(improved, current, best)
            # A finite iterate teaches the solver something even where it is a step back; NaN does not.
            proposal = self.propose(g, _choose(finite, current, best), mask, memory, cost)
            damping = torch.where(bad, damping * 0.5, damping)
            usable = ~bad & torch.isfinite(proposal.detach().flatten(1).sum(1))
            target, base = select(usable, proposal, best.image), select(usable, z, best.z)
            z_next = _damped(base, target, damping)
            z = z_next if done is None else select(done, z, z_next)
            if self.tolerance > 0:
                arrived = best.residual.detach() <= self.tolerance
                done = arrived if done is None else done | arrived
                if bool(done.all()):
                    break
        assert best is not None  # there is at least one step
        z = select(worsened, best.z, z)  # the next step from a worse iterate was never checked: keep the best one
        return Solution(z, best.residual.detach(), diverged, cost.evaluations, cost.vjps)


_looks: ContextVar[list[Tensor] | None] = ContextVar("flags of solves that are looked at later", default=None)


@contextlib.contextmanager
def looking_later() -> Iterator[list[Tensor]]:
    """While open, a quick solve does not look whether it diverged, which would make the host wait for a GPU.

    It returns its best iterate, and leaves its flags (batch,) in the list for whoever opened this to look at, once for
    all solves.
    """
    flags: list[Tensor] = []
    token = _looks.set(flags)
    try:
        yield flags
    finally:
        _looks.reset(token)


def is_looking_later() -> bool:
    return _looks.get() is not None


_precision: ContextVar[torch.dtype | None] = ContextVar("what g is computed in", default=None)


@contextlib.contextmanager
def computed_in(precision: torch.dtype) -> Iterator[None]:
    """While open, g rounds to this, whatever its values are held in: who takes differences of g must know."""
    token = _precision.set(precision)
    try:
        yield
    finally:
        _precision.reset(token)


def rounding(held_in: torch.dtype) -> float:
    """How far g is off by rounding, relative to its values, which are held in this."""
    return max(torch.finfo(dtype).eps for dtype in (held_in, _precision.get() or held_in))


def _choose(condition: Tensor, if_true: Iterate, if_false: Iterate) -> Iterate:
    return Iterate(
        select(condition, if_true.z, if_false.z),
        select(condition, if_true.image, if_false.image),
        select(condition, if_true.difference, if_false.difference),
        torch.where(condition, if_true.residual, if_false.residual),
    )


def expand(per_example: Tensor, like: Tensor) -> Tensor:
    """(batch,) -> (batch, 1, ..., 1), in the dtype of `like` unless it is a condition."""
    shaped = per_example.reshape(-1, *[1] * (like.dim() - 1))
    return shaped if per_example.dtype == torch.bool else shaped.to(like.dtype)


def _damped(base: Tensor, target: Tensor, damping: Tensor) -> Tensor:
    if damping.device.type == "cpu" and bool((damping == 1).all()):
        return target
    return torch.where(expand(damping < 1, base), base + expand(damping, base) * (target - base), target)


def select(condition: Tensor, if_true: Tensor, if_false: Tensor) -> Tensor:
    """Per example one or the other. Mostly all examples agree, and where looking is free nothing is copied then."""
    if condition.device.type == "cpu":  # on a GPU, looking would make the host wait
        if not bool(condition.any()):
            return if_false
        if bool(condition.all()):
            return if_true
    return torch.where(expand(condition, if_false), if_true, if_false)


def masked(x: Tensor, mask: Tensor | None) -> Tensor:
    """`x` with padding set to zero, flattened to (batch, features)."""
    if mask is not None:
        x = x * _like(mask, x).to(x.dtype)
    return x.flatten(1)


def size(x: Tensor, mask: Tensor | None) -> Tensor:
    """Norm of each example over the tokens that count. (batch, ...) -> (batch,)"""
    if x.dim() < 3:
        norm: Tensor = torch.linalg.vector_norm(masked(x, mask), dim=1)
        return norm
    by_token = torch.linalg.vector_norm(x.flatten(2), dim=2)  # the mask is then small, and `x` read once
    return torch.linalg.vector_norm(masked(by_token, mask), dim=1)  # type: ignore[no-any-return]


def where_real(mask: Tensor | None, on_tokens: Tensor, on_padding: Tensor) -> Tensor:
    """Padding has no equation of its own; it gets what it is given here."""
    if mask is None:
        return on_tokens
    return torch.where(_like(mask, on_tokens) != 0, on_tokens, on_padding)


def _like(mask: Tensor, x: Tensor) -> Tensor:
    """(batch, seq) -> (batch, seq, 1, ..., 1)"""
    return mask.reshape(*mask.shape, *[1] * (x.dim() - mask.dim()))
