"""How gradients flow through the solution of z = g(z): four modes, each a small frozen dataclass.

A mode sees a `Problem` (the equation of one layer on one batch) and a solver. Its value is the same with and without
gradients, in training and in evaluation; only what backward does differs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from unshaken.errors import UnshakenError
from unshaken.solvers import Anderson, Solution, Solver
from unshaken.solvers.base import Map


class Problem(Protocol):
    """The equation of one layer on one batch."""

    mask: Tensor | None

    def first_guess(self) -> Tensor:
        """The layer's input: free."""

    def explicit(self) -> Tensor:
        """The explicit Euler step: one evaluation."""

    def g(self, z: Tensor, *, inner: bool = False) -> Tensor:
        """The right-hand side; `inner` marks the evaluations of a solver."""


@dataclass(frozen=True, kw_only=True)
class Gradient(ABC):
    """Base of the gradient modes."""

    name: ClassVar[str]

    @abstractmethod
    def solve(self, problem: Problem, solver: Solver) -> tuple[Tensor, Solution]:
        """The layer's output and how it was found."""


def _inner(problem: Problem) -> Map:
    return lambda z: problem.g(z, inner=True)


def _plain_solve(problem: Problem, solver: Solver, guess: Tensor | None = None) -> Solution:
    """Solve outside of any graph."""
    with torch.no_grad():
        if guess is None:
            guess = problem.explicit() if solver.starts_explicit else problem.first_guess()
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

    def solve(self, problem: Problem, solver: Solver) -> tuple[Tensor, Solution]:
        guess = problem.explicit() if solver.starts_explicit else problem.first_guess()
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
                f"Phantom(steps={self.steps}, damping={self.damping}): steps is 1 or more, damping above 0 and at most 1"
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

    Paper: Bai, Kolter and Koltun (2019). Right only where the forward solve has converged.
    Cost: one evaluation with gradients, and a vector-Jacobian product for each step of the backward solver.

    Attributes:
        solver: Solves the linear equation of the backward pass.
    """

    solver: Solver = field(default_factory=lambda: Anderson(steps=12, tolerance=1e-5))

    name: ClassVar[str] = "implicit"

    def solve(self, problem: Problem, solver: Solver) -> tuple[Tensor, Solution]:
        solution = _plain_solve(problem, solver)
        return differentiate_implicitly(problem.g, solution.z, self.solver), solution


def differentiate_implicitly(g: Map, z: Tensor, solver: Solver) -> Tensor:
    """g(z) at a solution z, with the derivative of the solution itself, to any order."""
    image = g(z.detach())
    if not (torch.is_grad_enabled() and image.requires_grad):
        return image
    point = z.detach().requires_grad_()
    return _ImplicitDerivative.apply(image, g, solver, point, g(point))  # type: ignore[no-any-return]


class _ImplicitDerivative(torch.autograd.Function):
    """The identity, whose backward turns v into the u of u = J^T u + v."""

    @staticmethod
    def forward(ctx: Any, image: Tensor, g: Map, solver: Solver, point: Tensor, at_point: Tensor) -> Tensor:
        solution = image.view_as(image)
        ctx.save_for_backward(solution)
        ctx.g, ctx.solver, ctx.point, ctx.at_point = g, solver, point, at_point
        return solution

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> Any:  # type: ignore[override]
        def pull(u: Tensor) -> Tensor:
            return torch.autograd.grad(ctx.at_point, ctx.point, u, retain_graph=True)[0] + v.detach()

        with torch.no_grad():
            u = ctx.solver(pull, v.detach()).z
        if torch.is_grad_enabled():  # somebody differentiates this backward pass: the solve is a function of the solution
            (solution,) = ctx.saved_tensors
            image = ctx.g(solution)

            def pull_again(u: Tensor) -> Tensor:
                return torch.autograd.grad(image, solution, u, create_graph=True)[0] + v

            u = differentiate_implicitly(pull_again, u, ctx.solver)
        return u, None, None, None, None


GRADIENTS: dict[str, type[Gradient]] = {mode.name: mode for mode in (Detached, Implicit, Phantom, Unrolled)}
