"""Connections: how a transformer's layers are joined, and the surgery that joins them."""

from collections.abc import Callable

from unshaken.connections.backbones import BACKBONES
from unshaken.connections.checks import check
from unshaken.connections.connection import Connection
from unshaken.connections.gradients import GRADIENTS, Detached, Implicit, Phantom, Unrolled
from unshaken.connections.layer import SolveRecord
from unshaken.connections.surgery import connect, connection_of, disconnect, solve_records

CONNECTIONS: dict[str, Callable[..., Connection]] = {
    "im-bert": Connection.im_bert,
    "ex-bert": Connection.ex_bert,
    "implicit": Connection,
    "runge-kutta": Connection.runge_kutta,
    "crank-nicolson": Connection.crank_nicolson,
}

__all__ = [
    "BACKBONES",
    "CONNECTIONS",
    "GRADIENTS",
    "Connection",
    "Detached",
    "Implicit",
    "Phantom",
    "SolveRecord",
    "Unrolled",
    "check",
    "connect",
    "connection_of",
    "disconnect",
    "solve_records",
]
