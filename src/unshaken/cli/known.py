"""Names that options take, and whether one is known: told before torch is imported.

A method's name stands in its class or in the table of its package, and nowhere else. It is read there from the source,
because importing the package takes seconds, and a slip is to be answered at once.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import typer

from unshaken.cli.reproduce import PACKAGE
from unshaken.names import at, installed, lookup, split_specs

KINDS = {  # for `unshaken list`: what one is called, where the names are, and what they are
    "attacks": ("attack", "unshaken.attacks:ATTACKS", "searches for a text that turns an answer around"),
    "backbones": ("backbone", "unshaken.connections:BACKBONES", "models whose layers can be connected"),
    "certificates": (
        *("certificate", "unshaken.certificates:CERTIFICATES"),
        "proofs that no attack of a kind turns an answer around",
    ),
    "connections": ("connection", "unshaken.connections:CONNECTIONS", "equations that layers solve"),
    "constraints": (
        *("constraint", "unshaken.attacks.constraints:CONSTRAINTS"),
        "what a changed text must also satisfy",
    ),
    "defences": ("defence", "unshaken.defences:DEFENCES", "training objectives that make a model hold"),
    "gradients": ("gradient mode", "unshaken.connections:GRADIENTS", "how gradients pass a solved layer"),
    "protocols": ("protocol", "unshaken.tasks:PROTOCOLS", "how rows are drawn and split"),
    "readers": ("reader", "unshaken.readers:READERS", "what mends a text before the model reads it"),
    "recipes": ("recipe", f"{PACKAGE}:RECIPES", "tables and figures that `unshaken reproduce` runs again"),
    "solvers": ("solver", "unshaken.solvers:SOLVERS", "ways to solve a layer's equation"),
    "substitutions": ("substitutions", "unshaken.substitutions:SUBSTITUTIONS", "what a word may be swapped for"),
    "tasks": ("task", "unshaken.tasks:TASKS", "data sets by name, with rows, labels and source"),
}
TABLES = {one: path for one, path, _ in KINDS.values()} | {
    "dtype": "unshaken.pretrained:DTYPES",
    "family": "unshaken.scanning.families:FAMILIES",
    "form": "unshaken.connections.connection:Form",
    "suite": "unshaken.leaderboard.tracks:SUITES",
    "threat": "unshaken.leaderboard.tracks:THREATS",
    "where": "unshaken.connections.connection:Where",
}
MADE_OF_ANOTHER = ("two-hops", "unmended")  # sets, "two-hops:wordnet"
_WORDS = {"connection": ("none",), "reader": ("all",), "substitutions": MADE_OF_ANOTHER}  # which name no method
_BEFORE_ANOTHER = "|".join(f"{name}:" for name in MADE_OF_ANOTHER)


def named(kind: str, *flags: str, help: str) -> Any:
    """An option that takes names of a kind, once or several times; a slip is told before its command begins."""

    def check(given: Any) -> Any:
        for specs in (given,) if isinstance(given, str) else given or ():
            require_known(kind, specs)
        return given

    return typer.Option(*flags, help=help, callback=check)


def require_known(kind: str, specs: str) -> None:
    """Refuse a name that no table has; settings and classes of the user's own are left to who makes them."""
    names = dict.fromkeys((*names_in(TABLES[kind]), *_WORDS.get(kind, ())))
    for spec in split_specs(kind, specs):
        name, _, rest = re.sub(_BEFORE_ANOTHER, "", spec).partition(":")
        is_path = rest.partition(":")[0].isidentifier()
        key = name.strip().lower().replace("_", "-")
        if key and key not in names and not is_path and key not in installed(kind):
            lookup(kind, name, names)


def require_tasks(tasks: str) -> None:
    from unshaken.tasks import task_names

    task_names(tasks)


@functools.cache
def names_in(path: str) -> tuple[str, ...]:
    """The keys of a table, "unshaken.attacks:ATTACKS", or the words of a `Literal`; imported if no source has them."""
    module, _, table = path.partition(":")
    home, made = _definition(module, table)
    found: Iterable[ast.AST | None] = [None]
    match made:
        case ast.Dict(keys=keys):
            found = keys
        case ast.DictComp(generators=[ast.comprehension(iter=ast.Tuple(elts=classes))]):  # {one.name: one for one in
            found = [_name_of(home, one) for one in classes]
        case ast.Subscript(slice=ast.Tuple(elts=words)):
            found = words
    names = [one.value for one in found if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    if len(names) == len(list(found)):
        return tuple(names)
    imported = at(path)
    return get_args(imported) or tuple(imported)


def _name_of(home: str, made: ast.expr) -> ast.AST | None:
    """What a class has as its `name`."""
    own = _definition(home, made.id)[1] if isinstance(made, ast.Name) else None
    return _assigned(own.body, "name") if isinstance(own, ast.ClassDef) else None


def _definition(module: str, name: str) -> tuple[str, ast.AST | None]:
    """The module that makes what another may import, and the class or value that it is."""
    body = _source(module)
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.module and name in (alias.name for alias in node.names):
            return _definition(node.module, name)
        if isinstance(node, ast.ClassDef) and node.name == name:
            return module, node
    return module, _assigned(body, name)


def _assigned(body: list[ast.stmt], name: str) -> ast.AST | None:
    for node in body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=found)) | ast.Assign(targets=[ast.Name(id=found)]) if found == name:
                return node.value
    return None


@functools.cache
def _source(module: str) -> list[ast.stmt]:
    """The statements of a module of this package; none if its source is not at hand."""
    package, *inside = module.split(".")
    path = Path(__file__).parent.parent.joinpath(*inside)
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_bytes()).body if package == "unshaken" and file.is_file() else []
