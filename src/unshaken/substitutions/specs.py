"""Substitution sets as a command line names them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from unshaken.errors import UnshakenError
from unshaken.names import from_spec, nearest, parse_options
from unshaken.substitutions.base import Substitutions
from unshaken.substitutions.dictionary import Dictionary


def parse_all(spec: str, table: Mapping[str, Any], *, allow_paths: bool = False) -> tuple[Substitutions, ...]:
    """Several sets joined by commas. A comma before `key=value` belongs to the set before it; a file is named plainly.

    Example:
        >>> parse_all("wordnet:rare=0.1,limit=8,dictionary:neighbours.json", SUBSTITUTIONS)
    """
    found = []
    for one in split(spec):
        name, _, options = one.partition(":")
        if name.strip().lower() == "dictionary" and not re.match(r"\w+=", options):
            path, _, rest = options.partition(",")
            if not path:
                raise UnshakenError(f"substitutions {one!r}: which file? dictionary:FILE.json")
            found.append(Dictionary.load(path, **_dictionary_options(one, rest)))
        else:
            found.append(from_spec("substitutions", one, table, allow_paths=allow_paths))
    return tuple(found)


def split(spec: str) -> list[str]:
    """The specifications of several sets: at commas that no `key=` follows."""
    return re.split(r",(?![^,:]*=)", spec)


def _dictionary_options(spec: str, text: str) -> dict[str, Any]:
    options = parse_options("substitutions", spec, text)
    for key in options:
        if key != "lowercase":
            raise UnshakenError(f"substitutions {spec!r} has no option {key!r}; {nearest(key, ['lowercase'])}")
    return options
