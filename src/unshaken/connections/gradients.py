"""How gradients flow through the solution of z = g(z): four modes, each a small frozen dataclass.

A mode sees a `Problem` (the equation of one layer on one batch) and a solver. Its value is the same with and without
gradients, in training and in evaluation; only what backward does differs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from unshaken.errors import UnshakenError
from unshaken.solvers import Anderson, Solution, Solver
from unshaken.solvers.base import Map, looking_later

# Steps of the default backward solve: few, and on pretrained MiniLM enough for gradients of weights and of words with a
# cosine above 0.8 (layer form) or 0.5 (increment form, which is much harder) to those of a converged solve, by
# `benchmarks/connections.py --gradients`. Words that are attacked get at least five.
BACKWARD_STEPS = {"layer": 3, "increment": 6}
WORD_STEPS = 5


class Problem(Protocol):
    """The equation of one layer on one batch."""

    mask: Tensor | None
    form: str  # "layer" or "increment"

    def first_guess(self) -> Tensor:
        """The layer's input: free."""

    def explicit(self) -> Tensor:
        """The explicit Euler step: one evaluation."""

    def g(self, z: Tensor, *, inner: bool = False) -> Tensor:
        """The right-hand side; `inner` marks the evaluations of a solver."""

    def solving(self) -> AbstractContextManager[None]:
        """Open while a solver evaluates g."""


@dataclass(frozen=True, kw_only=True)
class Gradient(ABC):
    """Base of the gradient modes."""

    name: ClassVar[str]

    @abstractmethod
    def solve(self, problem: Problem, solver: Solver) -> tuple[Tensor, Solution]:
        """The layer's output and how it was found."""

    def needs_second_derivative(self, solver: Solver) -> bool:
        """Whether training differentiates the layer twice, which few attention kernels can."""
        return False


def _kept() -> Any:
    """What is saved for backward inside stays as it is, also where a checkpoint asks to drop it.

    Without `detach`, an operation that saves its own output would hold itself alive, and memory would grow.
    """
    return torch.autograd.graph.saved_tensors_hooks(lambda saved: saved.detach(), lambda saved: saved)


def _inner(problem: Problem) -> Map:
    return lambda z: problem.g(z, inner=True)


def _plain_solve(problem: Problem, solver: Solver, guess: Tensor | None = None) -> Solution:
    """Solve outside of any graph, and out of reach of a checkpoint, which would recompute the layer for every product
    of a descent."""
    with torch.no_grad(), _kept():
        if guess is None:
            guess = problem.explicit() if solver.starts_explicit else problem.first_guess()
        with problem.solving():
            return solver(_inner(problem), guess.detach(), problem.mask)


@dataclass(frozen=True, kw_only=True)
class Detached(Gradient):
    """The value is the solution, the gradient that of the explicit step: the solve is a constant to backward.

    Paper: IE-Skips (official code), and the default reading of IM-BERT.
    Cost: one evaluation with gradients, which is also the solver's first guess. Memory does not grow with steps.
    """

    name: ClassVar[str] = "detached"

    def solve(self, problem: Problem, solver: Solver) -> tuple[Tensor, Solution]:
        explicit = problem.explicit()
        solution = _plain_solve(problem, solver, guess=explicit)
        return explicit + (solution.z - explicit.detach()), solution


@dataclass(frozen=True, kw_only=True)
class Unrolled(Gradient):
    """Backward runs through every step of the solver: exact for the algorithm, second order for descent.

    Cost: memory and backward grow with the number of steps.
    """

    name: ClassVar[str] = "unrolled"

    def needs_second_derivative(self, solver: Solver) -> bool:
        return solver.needs_vjp

    def solve(self, problem: Problem, solver: Solver) -> tuple[Tensor, Solution]:
        guess = problem.explicit() if solver.starts_explicit else problem.first_guess()
        with problem.solving():
            solution = solver(_inner(problem), guess, problem.mask)
        return solution.z, solution


@dataclass(frozen=True, kw_only=True)
class Phantom(Gradient):
    """Backward runs through `steps` evaluations at the solution (one step: Jacobian-free backpropagation).

    Paper: Fung et al. (2022), one step; Geng et al. (2021), several damped steps.
    Cost: `steps` evaluations with gradients beside the solver's. Memory does not grow with the solver's steps.
    """

    steps: int = 1
    damping: float = 1.0

    name: ClassVar[str] = "phantom"

    def __post_init__(self) -> None:
        if self.steps < 1 or not 0 < self.damping <= 1:
            raise UnshakenError(
                f"Phantom(steps={self.steps}, damping={self.damping}): steps is 1 or more, damping above 0, at most 1"
            )

    def solve(self, problem: Problem, solver: Solver) -> tuple[Tensor, Solution]:
        solution = _plain_solve(problem, solver)
        z = solution.z
        for _ in range(self.steps):
            z = problem.g(z) if self.damping == 1 else torch.lerp(z, problem.g(z), self.damping)
        return z, solution


@dataclass(frozen=True, kw_only=True)
class Implicit(Gradient):
    """Backward by the implicit function theorem: it solves u = J^T u + v at the solution.

    Paper: Bai, Kolter and Koltun (2019); exact where both solves have converged.
    Cost: one evaluation with gradients, and a vector-Jacobian product on its graph for each step of the backward
        solver. Memory does not grow with the steps of either.

    Attributes:
        solver: Solves the linear equation of the backward pass; None takes Anderson with three steps in the layer form
            and six in the increment form.
        order: Derivatives that may be taken. 2 makes Hessian-vector products exact, for two more evaluations; 1 raises
            where a second derivative is asked for.
    """

    solver: Solver | None = None
    order: int = 1

    name: ClassVar[str] = "implicit"

    def __post_init__(self) -> None:
        if self.order < 1:
            raise UnshakenError(f"Implicit(order={self.order}): order is 1 or more")

    def needs_second_derivative(self, solver: Solver) -> bool:
        return self.order > 1

    def solve(self, problem: Problem, solver: Solver) -> tuple[Tensor, Solution]:
        solution = _plain_solve(problem, solver)
        backward = self.solver or Anderson(steps=BACKWARD_STEPS[problem.form])
        if self.order == 1:
            return differentiate_once(problem.g, solution.z, backward), solution
        return differentiate_repeatedly(problem.g, solution.z, backward, self.order), solution


def solve_for_words(mode: Gradient, problem: Problem, solver: Solver) -> tuple[Tensor, Solution]:
    """The value of `mode` with the implicit gradient, for attacks and defences that climb it."""
    own = mode.solver if isinstance(mode, Implicit) else None
    backward = own or Anderson(steps=max(WORD_STEPS, BACKWARD_STEPS[problem.form]))
    if isinstance(mode, Implicit):
        return replace(mode, solver=backward).solve(problem, solver)
    with torch.no_grad():
        value, solution = mode.solve(problem, solver)
    image = differentiate_once(problem.g, value, backward)
    return image + (value - image.detach()), solution


def differentiate_once(g: Map, z: Tensor, solver: Solver) -> Tensor:
    """g(z) at a solution z, with the first derivative of the solution itself, by products on one graph of g."""
    if not torch.is_grad_enabled():
        return g(z)
    point = z.detach().requires_grad_()
    # The pass to the weights comes by here too, and nobody asks for what it leaves.
    point.register_post_accumulate_grad_hook(_forget)  # type: ignore[no-untyped-call]
    # A checkpoint drops what a graph saves and would run the layer again for every product. There the products get a
    # graph of their own, which is made in backward and dropped after it.
    is_checkpointed = torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
    image = g(point)
    if not _has_other_leaves(image, point):
        return image.detach()
    operator = _InverseOperator(point, None if is_checkpointed else image, solver, g)
    apply: Callable[[Tensor, _InverseOperator, bool], Tensor] = _ApplyInverse.apply
    return apply(image, operator, True)


def differentiate_repeatedly(g: Map, z: Tensor, solver: Solver, order: int = 1) -> Tensor:
    """g(z) at a solution z, with derivatives of the solution itself, exact up to `order`.

    z1 = c + A^-1 (g(c) - c) with the constant c = z and A = I - J is a Newton step: its value is the solution, its
    first derivative the implicit one. Each further step from there makes one more derivative exact.
    """
    image = g(z.detach())
    if not (torch.is_grad_enabled() and image.requires_grad):
        return image
    point = z.detach().requires_grad_()
    with _kept():
        operator = _InverseOperator(point, g(point), solver, g)
    apply: Callable[[Tensor, _InverseOperator, bool], Tensor] = _ApplyInverse.apply
    result = apply(image, operator, False)
    for _ in range(order - 1):
        result = result + apply(g(result) - result, operator, False)
    return result


def _forget(leaf: Tensor) -> None:
    leaf.grad = None


def _has_other_leaves(image: Tensor, point: Tensor) -> bool:
    """Whether anything but `point` is to get a gradient from `image`; false where weights and input are frozen."""
    seen: set[Any] = set()
    nodes: list[Any] = [image.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and leaf is not point:
            return True
        nodes += [parent for parent, _ in node.next_functions]
    return False


@dataclass(frozen=True)
class _InverseOperator:
    """(I - J)^-1 with J the Jacobian of g at `point`, applied from the left in backward passes."""

    point: Tensor
    at_point: Tensor | None  # g(point), with its graph; None: to be made when it is needed
    solver: Solver
    g: Map

    def image(self) -> Tensor:
        if self.at_point is not None:
            return self.at_point
        with torch.enable_grad(), _kept():
            return self.g(self.point)

    def pull(self, image: Tensor, u: Tensor, v: Tensor, *, differentiable: bool) -> Tensor:
        """J^T u + v."""
        options = {"create_graph": True} if differentiable else {"retain_graph": True}
        return torch.autograd.grad(image, self.point, u, **options)[0] + v


class _ApplyInverse(torch.autograd.Function):
    """The identity in value; backward turns v into the u of u = J^T u + v."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, operator: _InverseOperator, only_once: bool) -> Tensor:
        ctx.operator, ctx.only_once = operator, only_once
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> Any:
        operator = ctx.operator
        # Defences run backward in the middle of a step, where autocast would round the solver's own products.
        with torch.autocast(v.device.type, enabled=False):
            # Nobody could run a backward pass again: a solve that diverges leaves its best iterate, unseen.
            with torch.no_grad(), looking_later():
                image = operator.image()
                u = operator.solver(lambda u: operator.pull(image, u, v, differentiable=False), v.detach()).z
            if torch.is_grad_enabled() and ctx.only_once:
                refuse: Callable[[Tensor, Tensor], Tensor] = _RefuseSecondDerivative.apply
                u = refuse(u, operator.point)
            elif torch.is_grad_enabled():  # somebody differentiates this backward pass, and the solve with it
                u = differentiate_repeatedly(
                    lambda u: operator.pull(image, u, v, differentiable=True), u, operator.solver
                )
        return u, None, None


class _RefuseSecondDerivative(torch.autograd.Function):
    """The identity, which cannot be differentiated: the solve behind `u` was not recorded."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, point: Tensor) -> Tensor:
        return u.view_as(u)

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> Any:
        raise UnshakenError(
            "Implicit(order=1) has no second derivative: connect with gradient=Implicit(order=2) to differentiate twice"
        )


GRADIENTS: dict[str, type[Gradient]] = {mode.name: mode for mode in (Detached, Implicit, Phantom, Unrolled)}
