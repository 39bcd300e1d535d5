"""How gradients flow through the solution of z = g(z): four modes, each a small frozen dataclass.

A mode sees a `Problem` (the equation of one layer on one batch) and a solver. Its value is the same with and without
gradients, in training and in evaluation; only what backward does differs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from unshaken.connections.implicit import Equation, differentiate_once, differentiate_repeatedly, kept
from unshaken.errors import UnshakenError
from unshaken.solvers import Anderson, Solution, Solver
from unshaken.solvers.base import Map

# Steps of the default backward solve: few, and on pretrained MiniLM enough for gradients of weights and of words with a
# cosine above 0.8 (layer form) or 0.5 (increment form, which is much harder) to those of a converged solve, by
# `benchmarks/connections.py --gradients`. Words that are attacked get at least five.
BACKWARD_STEPS = {"layer": 3, "increment": 6}
WORD_STEPS = 5


class Problem(Protocol):
    """The equation of one layer on one batch."""

    mask: Tensor | None
    form: str  # "layer" or "increment"
    base: Tensor  # what g adds to a function of z alone, with its graph

    def first_guess(self) -> Tensor:
        """The layer's input: free."""

    def explicit(self) -> Tensor:
        """The explicit Euler step: one evaluation."""

    def g(self, z: Tensor, *, inner: bool = False, base: Tensor | None = None) -> Tensor:
        """The right-hand side; `inner` marks the evaluations of a solver, `base` stands in for the problem's own."""

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


def _inner(problem: Problem) -> Map:
    return lambda z: problem.g(z, inner=True)


def _plain_solve(problem: Problem, solver: Solver, guess: Tensor | None = None) -> Solution:
    """Solve outside of any graph, and out of reach of a checkpoint, which would recompute the layer for every product
    of a descent."""
    with torch.no_grad(), kept():
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
        solver but the last, which the pass to the weights makes (`Anderson` without a tolerance; others make all).
        Memory does not grow with the steps of either.

    Attributes:
        solver: Solves the linear equation of the backward pass; None takes Anderson with three steps in the layer form
            and six in the increment form.
        order: Derivatives that may be taken. 2 makes Hessian-vector products exact, for two more evaluations and, in
            backward, one more solve and pass; 1 raises where a second derivative is asked for.
    """

    solver: Solver | None = None
    order: int = 1

    name: ClassVar[str] = "implicit"

    def __post_init__(self) -> None:
        if self.order < 1:
            raise UnshakenError(f"Implicit(order={self.order}): order is 1 or more")
        if self.solver is not None and self.solver.needs_vjp:
            raise UnshakenError(
                f"Implicit(solver={type(self.solver).__name__}()): a backward pass has nothing to descend by; "
                "solve it by Anderson, Broyden, FixedPoint or NewtonKrylov"
            )

    def needs_second_derivative(self, solver: Solver) -> bool:
        return self.order > 1

    def solve(self, problem: Problem, solver: Solver) -> tuple[Tensor, Solution]:
        solution = _plain_solve(problem, solver)
        backward = self.solver or Anderson(steps=BACKWARD_STEPS[problem.form])
        if self.order == 1:
            return differentiate_once(_of_both(problem), problem.base, solution.z, backward), solution
        return differentiate_repeatedly(problem.g, solution.z, backward, self.order), solution


def solve_for_words(mode: Gradient, problem: Problem, solver: Solver) -> tuple[Tensor, Solution]:
    """The value of `mode` with the implicit gradient, for attacks and defences that climb it."""
    own = mode.solver if isinstance(mode, Implicit) else None
    backward = own or Anderson(steps=max(WORD_STEPS, BACKWARD_STEPS[problem.form]))
    if isinstance(mode, Implicit):
        return replace(mode, solver=backward).solve(problem, solver)
    with torch.no_grad():
        value, solution = mode.solve(problem, solver)
    image = differentiate_once(_of_both(problem), problem.base, value, backward)
    return image + (value - image.detach()), solution


def _of_both(problem: Problem) -> Equation:
    return lambda base, z: problem.g(z, base=base)


GRADIENTS: dict[str, type[Gradient]] = {mode.name: mode for mode in (Detached, Implicit, Phantom, Unrolled)}
