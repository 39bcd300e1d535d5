"""Readers: what stands between a text and the tokenizer. Off unless a user asks; saved with the model, without code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from unshaken.errors import UnshakenError
from unshaken.names import from_spec, split_specs
from unshaken.readers.base import FILE_NAME, Reader, Readers, from_dict, saved_reader
from unshaken.readers.known import KnownWords
from unshaken.readers.leet import Leet
from unshaken.readers.misread import Misread
from unshaken.readers.spacing import Spacing
from unshaken.readers.spelling import Spelling
from unshaken.readers.synonyms import Synonyms
from unshaken.readers.unicode import Unicode
from unshaken.substitutions.base import Substitutions
from unshaken.substitutions.joined import All

READERS: dict[str, type[Reader]] = {
    "unicode": Unicode,
    "leet": Leet,
    "spacing": Spacing,
    "spelling": Spelling,
    "synonyms": Synonyms,
}
OF_ALL = ("unicode", "leet", "spacing", "spelling")  # what "all" stands for


def parse(spec: str, known: KnownWords, sets: Sequence[Substitutions] = ()) -> Readers:
    """The readers a command line names, `unicode,spelling:doubt=20`, in the order in which they read; "all" is four.

    Args:
        spec: Their names with their settings.
        known: The words that they take for words.
        sets: Substitution sets whose words `synonyms` reads as one; that reader is not among "all".
    """
    if re.search(r"\bknown\s*=", spec):
        raise UnshakenError(f"readers {spec!r}: the words that a reader knows come from its model, not from a name")
    makers: dict[str, Any] = {
        "unicode": Unicode,
        "leet": partial(Leet, known=known),
        "spacing": partial(Spacing, known=known),
        "spelling": partial(Spelling, known=known),
    }
    specs = list(OF_ALL) if spec == "all" else split_specs("reader", spec)
    makers["synonyms"] = partial(_synonyms, sets, known)
    return Readers(tuple(from_spec("reader", one, makers) for one in specs))


def _synonyms(sets: Sequence[Substitutions], known: KnownWords) -> Synonyms:
    if not sets:
        raise UnshakenError("reader 'synonyms' gives the words of a substitution set one code; give parse() its sets")
    return Synonyms.of(sets[0] if len(sets) == 1 else All(tuple(sets)), known)


def load(folder: Path | str) -> Readers | None:
    """The reader of a model's folder; None if it has none."""
    return saved_reader(folder, READERS)


__all__ = [
    "FILE_NAME",
    "READERS",
    "KnownWords",
    "Leet",
    "Misread",
    "Reader",
    "Readers",
    "Spacing",
    "Spelling",
    "Synonyms",
    "Unicode",
    "from_dict",
    "load",
    "parse",
]
