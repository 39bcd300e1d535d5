"""Substitution sets as a command line names them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from unshaken.errors import UnshakenError
from unshaken.names import from_spec, nearest, parse_options, split_specs
from unshaken.substitutions.base import Substitutions
from unshaken.substitutions.dictionary import Dictionary
from unshaken.substitutions.joined import TwoHops
from unshaken.substitutions.unmended import Unmended

MADE_OF_ANOTHER: dict[str, tuple[Callable[[Substitutions], Substitutions], str]] = {
    TwoHops.name: (TwoHops, "two hops over which set? two-hops:wordnet"),
    Unmended.name: (Unmended, "what the reader of the attacked model does not mend of which set? unmended:typos"),
}


def parse_all(spec: str, table: Mapping[str, Any], *, allow_paths: bool = False) -> tuple[Substitutions, ...]:
    """Several sets joined by commas. A comma before `key=value` belongs to the set before it; a file is named plainly.

    Example:
        >>> parse_all("wordnet:rare=0.1,limit=8,dictionary:neighbours.json,two-hops:wordnet", SUBSTITUTIONS)
    """
    return tuple(_parse(one, table, allow_paths) for one in split_specs("substitutions", spec))


def _parse(spec: str, table: Mapping[str, Any], allow_paths: bool) -> Substitutions:
    name, _, options = spec.partition(":")
    name = name.strip().lower()
    if name in MADE_OF_ANOTHER:
        made, question = MADE_OF_ANOTHER[name]
        if not options:
            raise UnshakenError(f"substitutions {spec!r}: {question}")
        return made(_parse(options, table, allow_paths))
    if name == "dictionary" and not re.match(r"\w+=", options):
        path, _, rest = options.partition(",")
        if not path:
            raise UnshakenError(f"substitutions {spec!r}: which file? dictionary:FILE.json")
        return Dictionary.load(path, **_dictionary_options(spec, rest))
    found: Substitutions = from_spec("substitutions", spec, table, allow_paths=allow_paths)
    return found


def _dictionary_options(spec: str, text: str) -> dict[str, Any]:
    options = parse_options("substitutions", spec, text)
    for key in options:
        if key != "lowercase":
            raise UnshakenError(f"substitutions {spec!r} has no option {key!r}; {nearest(key, ['lowercase'])}")
    return options
