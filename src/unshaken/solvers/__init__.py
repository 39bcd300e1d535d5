"""Solvers for z = g(z). A solver is a frozen dataclass; call it with g and a first guess."""

from unshaken.solvers.anderson import Anderson
from unshaken.solvers.base import Solution, Solver
from unshaken.solvers.broyden import Broyden
from unshaken.solvers.fixed_point import FixedPoint
from unshaken.solvers.gradient_descent import GradientDescent
from unshaken.solvers.newton_krylov import NewtonKrylov

SOLVERS: dict[str, type[Solver]] = {
    solver.name: solver for solver in (Anderson, Broyden, FixedPoint, GradientDescent, NewtonKrylov)
}

__all__ = ["SOLVERS", "Anderson", "Broyden", "FixedPoint", "GradientDescent", "NewtonKrylov", "Solution", "Solver"]
