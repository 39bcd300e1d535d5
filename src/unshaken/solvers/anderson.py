"""Anderson acceleration: the best affine combination of the last few iterates."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor

from unshaken.errors import UnshakenError
from unshaken.solvers.base import Cost, Iterate, IterativeSolver, Map, Solution, expand, size

ROUNDING = 4  # of a squared difference, in eps: it is made of four products, each a long sum


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
    mixes_images: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window < 1 or not 0 < self.damping <= 1 or self.ridge < 0:
            raise UnshakenError(
                f"Anderson(window={self.window}, damping={self.damping}, ridge={self.ridge}): window is 1 or more, "
                "damping lies above 0 and is at most 1, ridge is 0 or more"
            )

    def new_memory(self) -> History:
        return History(self.window)

    def propose(self, g: Map, at: Iterate, mask: Tensor | None, memory: Any, cost: Cost) -> Tensor:
        memory.push(at)
        residuals = torch.stack(memory.residuals, dim=1)  # (batch, n, features), zero on padding
        products = (residuals @ residuals.transpose(1, 2)).double()
        return self._mixed(products, tuple(range(len(memory.images))), memory.points, memory.images)

    @property
    def has_course(self) -> bool:
        return self.steps > 0 and self.tolerance == 0

    def course(self, z0: Tensor, mask: Tensor | None = None) -> AndersonCourse | None:
        return AndersonCourse(self, z0, mask) if self.has_course else None

    def _unguarded(self, g: Map, z0: Tensor, mask: Tensor | None) -> Solution:
        course = AndersonCourse(self, z0, mask)
        for _ in range(self.steps):
            course.take(g(course.z))
        return course.end()

    def _mixed(self, products: Tensor, order: tuple[int, ...], points: list[Tensor], images: list[Tensor]) -> Tensor:
        if len(order) == 1:
            return torch.lerp(points[-1], images[-1], self.damping) if self.damping < 1 else images[-1]
        shares = self._shares(products, order, torch.finfo(images[-1].dtype).eps).to(images[-1].dtype)
        mixed = combine(shares, images)
        return torch.lerp(combine(shares, points), mixed, self.damping) if self.damping < 1 else mixed

    def _shares(self, products: Tensor, order: tuple[int, ...], eps: float) -> Tensor:
        """The w_i of older iterates that make ||r_n + sum_i w_i (r_i - r_n)|| smallest, per example. -> (batch, n - 1)

        `products` (batch, width, width) holds <r_i, r_j> in the row of the later one. Solved for differences to the
        newest residual, so that the ridge pulls towards the plain step, not towards an average over old iterates.
        """
        count = len(order) - 1
        ridge = self.ridge + eps
        system = products.flatten(1) @ _normal_equations(order, products.shape[1], ridge, products.device)
        tiny = torch.finfo(system.dtype).tiny  # equal residuals: nothing to mix
        if count == 1:
            square, slope = system[:, :1], system[:, 1:]
            solved = slope / (square + tiny)
        elif count == 2:  # Cramer's rule
            (a, b, _, d), (u, v) = system[:, :4].unbind(1), system[:, 4:].unbind(1)
            solved = torch.stack((d * u - b * v, a * v - b * u), dim=1) / (a * d - b * b + tiny)[:, None]
        else:
            gram = system[:, : count * count].reshape(-1, count, count)
            gram = gram + tiny * torch.eye(count, dtype=gram.dtype, device=gram.device)
            # solve_ex does not look at the result, so a GPU is not made to wait.
            solved = torch.linalg.solve_ex(gram, system[:, count * count :, None]).result[:, :, 0]
        # Inner products are known to some eps of their size. A smaller square of a difference is rounding alone, and so
        # is its share, of whatever size. The other comparison is false for NaN.
        diagonal = system[:, : count * count : count + 1]
        squares = diagonal - ridge / (1 + ridge) * diagonal.mean(1, keepdim=True)  # without the ridge
        is_known = squares > ROUNDING * eps * products[:, order[-1], order[-1], None]
        return torch.where(is_known & (solved.abs() < 1 / eps), solved, 0.0)


class AndersonCourse:
    """The shared loop with as few and as small operations as it takes.

    Residuals lie in one tensor, and one product a step adds their inner products with the newest to the Gram matrix,
    from which both the size of the newest and the shares are read. Padding is left out of the products, a token at a
    time, so that nothing of the size of z is multiplied by the mask.
    """

    def __init__(self, solver: Anderson, z0: Tensor, mask: Tensor | None) -> None:
        self.solver, self.z, self.mask = solver, z0, mask
        self.width, self.batch = min(solver.window, solver.steps), len(z0)
        self.tokens = z0.shape[1] if z0.dim() > 2 or mask is not None else 1
        self.residuals = z0.new_empty(self.width, *z0.shape)
        self.by_token = self.residuals.view(self.width, self.batch * self.tokens, -1)
        self.weights = None if mask is None else mask.to(z0.dtype)[:, None]  # (batch, 1, tokens)
        self.products = z0.new_zeros(self.batch, self.width, self.width, dtype=torch.float64)
        self.all_points: list[Tensor] = []
        self.sizes: list[Tensor] = []
        self.points: list[Tensor] = []
        self.images: list[Tensor] = []
        self.order: tuple[int, ...] = ()  # the slots in use, oldest first
        self.first_image = z0  # until there is one

    def take(self, image: Tensor) -> None:
        step, width = len(self.sizes), self.width
        slot = step % width
        self.order = (*[used for used in self.order if used != slot], slot)
        torch.sub(image, self.z, out=self.residuals[slot])
        filled = len(self.order)
        row = torch.bmm(self.by_token[:filled].transpose(0, 1), self.by_token[slot, :, :, None])
        row = row.view(self.batch, self.tokens, filled)
        row = row.sum(1) if self.weights is None else torch.bmm(self.weights, row)[:, 0]
        self.products[:, slot, :filled] = row
        self.sizes.append(row[:, slot])
        if step == 0:
            self.first_image = image
        self.all_points.append(self.z)
        self.points, self.images = [*self.points, self.z][-width:], [*self.images, image][-width:]
        self.z = self.solver._mixed(self.products, self.order, self.points, self.images)

    def trusted(self) -> Tensor:
        """A mixture weighs all residuals, so unlike `end` this does not go back where the newest is not the least."""
        if not self.sizes:
            return self.z
        is_calm = self.sizes[-1] <= self.solver.growth**2 * self.sizes[0]  # false for NaN
        return torch.where(expand(is_calm, self.z), self.z, self.all_points[0])

    def end(self) -> Solution:
        cost, scale = Cost(evaluations=len(self.sizes)), size(self.first_image, self.mask)
        return self.solver._judged(self.all_points, self.z, torch.stack(self.sizes).sqrt(), scale, cost)


@cache
@torch.inference_mode(False)  # who asks first does not decide that nobody may differentiate through it
def _normal_equations(order: tuple[int, ...], width: int, ridge: float, device: torch.device) -> Tensor:
    """What makes the Gram matrix of differences, ridge included, and the slope of inner products of residuals.

    Both are linear in the products, so one small product makes them. (width^2, (n - 1)^2 + n - 1)
    """
    *older, newest = order
    count = len(older)
    unit = torch.eye(width * width, dtype=torch.float64)

    def product(i: int, j: int) -> Tensor:
        """Where <r_i, r_j> stands."""
        later, earlier = (i, j) if order.index(i) > order.index(j) else (j, i)
        return unit[later * width + earlier]

    size = product(newest, newest)
    gram = [[product(i, j) - product(i, newest) - product(j, newest) + size for j in older] for i in older]
    mean = torch.stack([gram[i][i] for i in range(count)]).mean(0)
    for i in range(count):
        gram[i][i] = gram[i][i] + ridge * mean
    slope = [size - product(i, newest) for i in older]  # downwards
    return torch.stack([*(entry for row in gram for entry in row), *slope], dim=1).to(device)


@dataclass
class History:
    """The last `window` iterates of a solve."""

    window: int
    points: list[Tensor] = field(default_factory=list)
    images: list[Tensor] = field(default_factory=list)
    residuals: list[Tensor] = field(default_factory=list)  # (batch, features)

    def push(self, at: Iterate) -> None:
        self.points.append(at.z)
        self.images.append(at.image)
        self.residuals.append(at.difference)
        for items in (self.points, self.images, self.residuals):
            del items[: -self.window]


def combine(shares: Tensor, tensors: list[Tensor]) -> Tensor:
    """t_n + sum_i shares[:, i] * (t_i - t_n). (batch, n - 1), n x (batch, ...) -> (batch, ...)"""
    newest = tensors[-1]
    if len(tensors) == 2:
        return torch.lerp(newest, tensors[0], expand(shares[:, 0], newest))
    total = newest * expand(1 - shares.sum(1), newest)
    for index, tensor in enumerate(tensors[:-1]):
        total = torch.addcmul(total, expand(shares[:, index], tensor), tensor)
    return total
