"""Names on the command line and in recipes: look-up with nearest match, and `name:key=value` specifications.

"pwws"                        -> PWWS()
"genetic:population=20"       -> Genetic(population=20)
"mine:MyDefence"              -> the class MyDefence of module mine, here or installed (only if the caller allows it)

Installed packages add names of their own by entry points, `unshaken.attacks`, `unshaken.defences` and so on: they stand
for themselves, as the user installed them, in recipes and result files too.
"""

from __future__ import annotations

import ast
import difflib
import functools
import importlib
import importlib.metadata
import inspect
import os
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, cast

from unshaken.errors import UnshakenError

MOST = 40  # names in an error message
# What a thing is called in messages -> the group of entry points in which packages declare theirs.
GROUPS = {
    "attack": "unshaken.attacks",
    "defence": "unshaken.defences",
    "reader": "unshaken.readers",
    "solver": "unshaken.solvers",
    "substitutions": "unshaken.substitutions",
    "task": "unshaken.tasks",
}


# Where one specification ends and the next begins; a comma before key=value is of the same one. Others have commas.
BETWEEN = {
    "defence": r"\+(?=[A-Za-z_])",  # a plus before a letter: 1e+5 is a number
    "reader": r"[,+](?![^,+:]*=)",
}


def nearest(name: str, known: Iterable[str]) -> str:
    """The part of an error message that helps: the nearest match, or all names where none is near."""
    known = sorted(known)
    lowered = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    if matches:
        return f"did you mean {lowered[matches[0]]!r}?"
    more = f" and {len(known) - MOST:,} more" if len(known) > MOST else ""
    return "known: " + ", ".join(known[:MOST]) + more


T = TypeVar("T")


def lookup(kind: str, name: str, table: Mapping[str, T]) -> T:
    """`table[name]`, or what an installed package declares by that name, or an error that names the nearest of both."""
    key = name.strip().lower().replace("_", "-")
    if key in table:
        return table[key]
    added = installed(kind)
    if key in added:
        return cast("T", _load(kind, added[key]))
    raise UnshakenError(f"unknown {kind} {name!r}; {nearest(name, [*table, *added])}")


@functools.cache
def installed(kind: str) -> dict[str, importlib.metadata.EntryPoint]:
    """What other packages declare; nothing of them is imported before it is named."""
    points = importlib.metadata.entry_points(group=GROUPS[kind]) if kind in GROUPS else ()
    return {point.name.lower().replace("_", "-"): point for point in points}


def _load(kind: str, point: importlib.metadata.EntryPoint) -> Any:
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        package = point.dist.name if point.dist else "a package"
        raise UnshakenError(f"{kind} {point.name!r} of {package} ({point.value}) cannot be loaded: {error}") from error


def track_parts(text: str) -> tuple[str, str, str]:
    """Encoder, threat and task of a leaderboard's track. Here, because a slip is told before the board is imported."""
    encoder, threat, task = (*text.split("/", 2), "", "")[:3]  # a task may be a file in a folder
    if not (encoder and threat and task):
        raise UnshakenError(f"track {text!r}; it must be ENCODER/THREAT/TASK, such as minilm/known/sst2")
    return encoder, threat, task


def split_specs(kind: str, text: str) -> list[str]:
    """The specifications of several of a kind.

    Example:
        >>> split_specs("attack", "pwws,genetic:population=20,generations=10")
        ['pwws', 'genetic:population=20,generations=10']
    """
    return [spec.strip() for spec in re.split(BETWEEN.get(kind, r",(?![^,:]*=)"), text)]


def from_spec(kind: str, spec: str, table: Mapping[str, Any], *, allow_paths: bool = False) -> Any:
    """Make the object that `spec` describes, for example `genetic:population=20,generations=10`.

    `allow_paths` also takes `module:Class`; it is set for the command line and Python only, never for text that comes
    out of a result or recipe file, because importing a module runs its code.
    """
    name, _, options = spec.partition(":")
    if name not in table and options.partition(":")[0].isidentifier():
        if not allow_paths:
            raise UnshakenError(f"{kind} {spec!r} is a class path; class paths are taken from the command line only")
        class_name, _, options = options.partition(":")
        factory = import_object(kind, name, class_name)
    else:
        factory = lookup(kind, name, table)
    return _call(kind, spec, factory, parse_options(kind, spec, options))


def at(path: str) -> Any:
    """What "package.module:name" is, imported when it is asked for.

    For what knows its user while the user does not know it: the views of a result, the kinds of a victim.
    """
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def optional(module: str, otherwise: str) -> Any:
    """A module of a package that need not be installed, or an error that says what needs it and how to get it."""
    try:
        importlib.import_module(module.partition(".")[0])  # a part may be loaded where the whole is hidden
        return importlib.import_module(module)
    except ImportError as error:
        raise UnshakenError(otherwise) from error


@functools.cache  # each answer reads a whole description of a package
def version(library: str) -> str | None:
    """Of an installed package; None if it is not."""
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def import_object(kind: str, module_name: str, class_name: str) -> Any:
    """The class or object of that name; importing a module runs its code, so only people may name one."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # for the installed command, as `python -m` has it; last, so that it hides nothing
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise UnshakenError(f"cannot import {module_name!r} for {kind} {module_name}:{class_name}: {error}") from error
    try:
        return getattr(module, class_name)
    except AttributeError:
        public = [name for name in vars(module) if not name.startswith("_")]
        hint = nearest(class_name, public)
        raise UnshakenError(f"module {module_name!r} has no {class_name!r}; {hint}") from None


def parse_options(kind: str, spec: str, text: str) -> dict[str, Any]:
    """`steps=3,rate=0.1` as a dict; `kind` and `spec` are for the error message."""
    options: dict[str, Any] = {}
    for item in filter(None, text.split(",")):
        key, equals, value = item.partition("=")
        if not equals:
            raise UnshakenError(f"{kind} {spec!r}: {item!r} is not key=value")
        options[key.strip().replace("-", "_")] = literal(value.strip())
    return options


def literal(text: str) -> Any:
    """A number, true/false or none where the text is one, the text itself otherwise. Nothing is evaluated."""
    constants = {"true": True, "false": False, "none": None}
    if text.lower() in constants:
        return constants[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):  # the last two: thousands of signs or brackets
        return text


# Annotations are text, because every module has `from __future__ import annotations`.
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "bool": ((bool,), "true or false"),
    "None": ((type(None),), "none"),
}


def _check_type(kind: str, spec: str, key: str, value: Any, annotation: Any) -> None:
    """Refuse a value of another type than `int`, `float | None` and their like; other annotations are not looked at."""
    parts = annotation.split(" | ") if isinstance(annotation, str) else []
    if not parts or any(part not in _KINDS for part in parts):
        return
    if not any(isinstance(value, _KINDS[part][0]) and isinstance(value, bool) == (part == "bool") for part in parts):
        wanted = " or ".join(_KINDS[part][1] for part in parts)
        raise UnshakenError(f"{kind} {spec!r}: {key} is {value!r}; it takes {wanted}")


def _call(kind: str, spec: str, factory: Any, options: dict[str, Any]) -> Any:
    given = inspect.signature(factory).parameters
    parameters = {name: one for name, one in given.items() if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD)}
    known = {name: one.annotation for name, one in parameters.items()}
    for key, value in options.items():
        if key not in known:
            raise UnshakenError(f"{kind} {spec!r} has no option {key!r}; {nearest(key, known)}")
        _check_type(kind, spec, key, value, known[key])
    needed = [name for name, one in parameters.items() if one.default is one.empty and name not in options]
    if needed:
        raise UnshakenError(f"{kind} {spec!r} needs {' and '.join(needed)}, as in {spec.split(':')[0]}:{needed[0]}=...")
    try:
        return factory(**options)
    except UnshakenError:
        raise
    except (TypeError, ValueError) as error:
        raise UnshakenError(f"{kind} {spec!r}: {error}") from error
