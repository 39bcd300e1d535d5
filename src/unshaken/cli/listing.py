"""`unshaken list`: what there is, by kind."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from unshaken.cli.reproduce import PACKAGE, require_experiments

KINDS = {  # where the names are, and what they are
    "attacks": ("unshaken.attacks", "ATTACKS", "searches for a text that turns an answer around"),
    "backbones": ("unshaken.connections", "BACKBONES", "models whose layers can be connected"),
    "certificates": ("unshaken.certificates", "CERTIFICATES", "proofs that no attack of a kind turns an answer around"),
    "connections": ("unshaken.connections", "CONNECTIONS", "equations that layers solve"),
    "constraints": ("unshaken.attacks.constraints", "CONSTRAINTS", "what a changed text must also satisfy"),
    "defences": ("unshaken.defences", "DEFENCES", "training objectives that make a model hold"),
    "gradients": ("unshaken.connections", "GRADIENTS", "how gradients pass a solved layer"),
    "protocols": ("unshaken.tasks", "PROTOCOLS", "how rows are drawn and split"),
    "readers": ("unshaken.readers", "READERS", "what mends a text before the model reads it"),
    "recipes": (PACKAGE, "RECIPES", "tables and figures that `unshaken reproduce` runs again"),
    "solvers": ("unshaken.solvers", "SOLVERS", "ways to solve a layer's equation"),
    "substitutions": ("unshaken.substitutions", "SUBSTITUTIONS", "what a word may be swapped for"),
    "tasks": ("unshaken.tasks", "TASKS", "data sets by name, with rows, labels and source"),
}


def list_names(
    kind: Annotated[str | None, typer.Argument(help=f"One of {', '.join(KINDS)}; the kinds if none is given.")] = None,
    name: Annotated[str | None, typer.Argument(help="One of that kind, to see its options.")] = None,
) -> None:
    """List attacks, defences, tasks and all other names.

    Each comes with the first line of its documentation; a name by itself with its options.
    """
    import importlib

    from rich.table import Table

    from unshaken.console import Console
    from unshaken.names import GROUPS, installed, lookup

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    if kind is None:
        for known, (*_, what) in KINDS.items():
            table.add_row(known, what)
    else:
        module, attribute, _ = lookup("kind", kind, KINDS)
        if module == PACKAGE:
            require_experiments()
        entries = getattr(importlib.import_module(module), attribute)
        if name is None:
            for key, value in sorted(entries.items()):
                table.add_row(key, _first_line(value))
            singular = {group.removeprefix("unshaken."): one for one, group in GROUPS.items()}
            for key, point in sorted(installed(singular.get(kind, "")).items()):
                table.add_row(key, f"installed: {point.value}")
        else:
            value = lookup(kind.removesuffix("s"), name, entries)
            Console().print(_first_line(value), markup=False)
            for option, default in _options(value):
                table.add_row(f"  {option}", default)
    Console().print(table)


def _options(value: Any) -> list[tuple[str, str]]:
    """Each option with its default, as `name:option=value` takes them; the fields of a row of data."""
    import inspect
    from dataclasses import fields, is_dataclass

    if is_dataclass(value) and not isinstance(value, type):
        return [(item.name, str(getattr(value, item.name))) for item in fields(value)]
    made: dict[str, Any] = {item.name: item.default_factory for item in fields(value)} if is_dataclass(value) else {}
    found = []
    for option in inspect.signature(value).parameters.values() if callable(value) else ():
        if option.kind in (option.KEYWORD_ONLY, option.POSITIONAL_OR_KEYWORD):
            default = made[option.name]() if callable(made.get(option.name)) else option.default
            found.append((option.name, "needed" if default is option.empty else repr(default)))
    return found


def _first_line(value: Any) -> str:
    for attribute in ("summary", "description") if hasattr(value, "hub") else ("summary", "description", "title"):
        text = getattr(value, attribute, None)
        if isinstance(text, str):
            return text
    is_documented = callable(value) or isinstance(value, type)
    text = (value.__doc__ or "").strip() if is_documented else _fields(value)
    return text.split("\n", 1)[0]


def _fields(value: Any) -> str:
    """A row of data, such as a task or a backbone: what it holds."""
    from dataclasses import fields, is_dataclass

    from unshaken.tasks import Task

    if isinstance(value, Task):
        rows = ", ".join(f"{split} {count:,}" for split, count in value.sizes.items()) or "rows as published"
        source = f"package {value.package}" if value.package else f"hub {value.hub.path}" if value.hub else "--data"
        return f"{value.title}: {rows}; {', '.join(value.label_names) or 'targets'}; {source}"
    if not is_dataclass(value) or isinstance(value, type):
        return ""
    shown = (item.name for item in fields(value) if getattr(value, item.name) not in (None, (), False, ""))
    return ", ".join(f"{name}={getattr(value, name)}" for name in list(shown)[1:4])
