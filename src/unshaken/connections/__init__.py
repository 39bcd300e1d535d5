"""Connections: how a transformer's layers are joined, and the surgery that joins them.

In Python they are values, `Connection(layers="4-6")`; on the command line they have names, read by `parse`.
"""

from collections.abc import Callable
from typing import Any

from unshaken.connections.backbones import BACKBONES
from unshaken.connections.checks import check
from unshaken.connections.connection import Connection
from unshaken.connections.gradients import GRADIENTS, Detached, Implicit, Phantom, Unrolled
from unshaken.connections.graphs import Captured, captured
from unshaken.connections.layer import SolveRecord
from unshaken.connections.surgery import connect, connection_of, disconnect, solve_records
from unshaken.errors import UnshakenError
from unshaken.names import from_spec, lookup, parse_options
from unshaken.solvers import SOLVERS

CONNECTIONS: dict[str, Callable[..., Connection]] = {
    "im-bert": Connection.im_bert,
    "ex-bert": Connection.ex_bert,
    "implicit": Connection,
    "runge-kutta": Connection.runge_kutta,
    "crank-nicolson": Connection.crank_nicolson,
}


def parse(
    spec: str,
    *,
    layers: str | None = None,
    solver: str | None = None,
    gradient: str | None = None,
    form: str | None = None,
    theta: float | None = None,
    step: float | None = None,
    allow_paths: bool = False,
) -> Connection | None:
    """The connection a command line names, for example `runge-kutta:order=4`; None for "none"."""
    given = {"layers": layers, "solver": solver, "gradient": gradient, "form": form, "theta": theta, "step": step}
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    name, _, options = spec.partition(":")
    if name == "none":
        if changes:
            raise UnshakenError(f"{next(iter(changes))} is given without a connection; name one, such as im-bert")
        return None
    make = lookup("connection", name, CONNECTIONS)
    if solver is not None:
        changes["solver"] = from_spec("solver", solver, SOLVERS, allow_paths=allow_paths)
    if gradient is not None:
        changes["gradient"] = from_spec("gradient mode", gradient, GRADIENTS)
    changes |= parse_options("connection", spec, options)
    try:
        made = make(**changes)
    except TypeError as error:
        raise UnshakenError(f"connection {spec!r}: {error}") from error
    if made.theta == 0 and (solver is not None or gradient is not None):
        raise UnshakenError(
            f"connection {name} is explicit: there is nothing to solve, so leave solver and gradient out"
        )
    return made


__all__ = [
    "BACKBONES",
    "CONNECTIONS",
    "GRADIENTS",
    "Captured",
    "Connection",
    "Detached",
    "Implicit",
    "Phantom",
    "SolveRecord",
    "Unrolled",
    "captured",
    "check",
    "connect",
    "connection_of",
    "disconnect",
    "parse",
    "solve_records",
]
