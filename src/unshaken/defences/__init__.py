"""Defences: what turns a batch into the loss of a training step. One file a method.

In Python they are classes that compose, `ASCC(beta=4) + PTWD()`; on the command line they have names, read by `parse`.
"""

from __future__ import annotations

import re

from unshaken.defences.base import PLAIN, Compose, Defence, Passes, Regulariser, Step
from unshaken.defences.standard import Standard
from unshaken.names import build

DEFENCES: dict[str, type[Defence]] = {
    "standard": Standard,
}


def parse(spec: str, *, allow_paths: bool = False) -> Defence:
    """The defence a command line names, for example `ascc+ptwd:weight=0.01`."""
    names = re.split(r"\+(?=[A-Za-z_])", spec)  # a plus before a letter: 1e+5 is a number
    parts: list[Defence] = [build("defence", name, DEFENCES, allow_paths=allow_paths) for name in names]
    return parts[0] if len(parts) == 1 else Compose(*parts)


__all__ = ["DEFENCES", "PLAIN", "Compose", "Defence", "Passes", "Regulariser", "Standard", "Step", "parse"]
