"""`unshaken list`: what there is, by kind."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from unshaken.cli.known import KINDS, require_known
from unshaken.cli.reproduce import PACKAGE, require_experiments


def list_names(
    kind: Annotated[str | None, typer.Argument(help=f"One of {', '.join(KINDS)}; the kinds if none is given.")] = None,
    name: Annotated[str | None, typer.Argument(help="One of that kind, to see its options.")] = None,
) -> None:
    """List attacks, defences, tasks and all other names.

    Each comes with the first line of its documentation; a name by itself with its options.
    """
    from rich.table import Table

    from unshaken.console import Console
    from unshaken.names import at, installed, lookup

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    if kind is None:
        for known, (*_, what) in KINDS.items():
            table.add_row(known, what)
    else:
        one, path, _ = lookup("kind", kind, KINDS)
        if path.startswith(PACKAGE):
            require_experiments()
        if name is not None:
            require_known(one, name)
        entries = at(path)
        if name is None:
            for key, value in sorted(entries.items()):
                table.add_row(key, _first_line(value))
            for key, point in sorted(installed(one).items()):
                table.add_row(key, f"installed: {point.value}")
        else:
            value = lookup(one, name, entries)
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
