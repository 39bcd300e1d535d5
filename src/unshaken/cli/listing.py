"""`unshaken list`: what there is, by kind."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from unshaken.cli.reproduce import PACKAGE, require_experiments
from unshaken.names import GROUPS, installed, lookup

KINDS = {
    "attacks": ("unshaken.attacks", "ATTACKS"),
    "backbones": ("unshaken.connections", "BACKBONES"),
    "connections": ("unshaken.connections", "CONNECTIONS"),
    "constraints": ("unshaken.attacks.constraints", "CONSTRAINTS"),
    "defences": ("unshaken.defences", "DEFENCES"),
    "gradients": ("unshaken.connections", "GRADIENTS"),
    "protocols": ("unshaken.tasks", "PROTOCOLS"),
    "recipes": (PACKAGE, "RECIPES"),
    "solvers": ("unshaken.solvers", "SOLVERS"),
    "substitutions": ("unshaken.substitutions", "SUBSTITUTIONS"),
    "tasks": ("unshaken.tasks", "TASKS"),
}
ENTRY_POINTS = {group.removeprefix("unshaken."): kind for kind, group in GROUPS.items()}


def list_names(kind: Annotated[str, typer.Argument(help=f"One of {', '.join(KINDS)}.")]) -> None:
    """List every attack, defence, solver, task or other name, with its first line of documentation."""
    import importlib

    from rich.table import Table

    from unshaken.display import Console

    module, name = lookup("kind", kind, KINDS)
    if module == PACKAGE:
        require_experiments()
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for key, value in sorted(getattr(importlib.import_module(module), name).items()):
        table.add_row(key, _first_line(value))
    for key, point in sorted(installed(ENTRY_POINTS.get(kind, "")).items()):
        table.add_row(key, f"installed: {point.value}")
    Console().print(table)


def _first_line(value: Any) -> str:
    for attribute in ("summary", "description", "title"):
        text = getattr(value, attribute, None)
        if isinstance(text, str):
            return text
    is_documented = callable(value) or isinstance(value, type)
    text = (value.__doc__ or "").strip() if is_documented else _fields(value)
    return text.split("\n", 1)[0]


def _fields(value: Any) -> str:
    """A row of data, such as a task or a backbone: what it holds."""
    from dataclasses import fields, is_dataclass

    if not is_dataclass(value) or isinstance(value, type):
        return ""
    shown = (item.name for item in fields(value) if getattr(value, item.name) not in (None, (), False, ""))
    return ", ".join(f"{name}={getattr(value, name)}" for name in list(shown)[1:4])
