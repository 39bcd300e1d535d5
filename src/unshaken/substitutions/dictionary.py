"""A substitution set from a JSON file of the form that Alzantot, Jia, ASCC and RIFT share: word to list of words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from unshaken.errors import UnshakenError
from unshaken.files import read_json
from unshaken.substitutions.base import Substitutions, content_hash
from unshaken.substitutions.words import Words


@dataclass(frozen=True, kw_only=True)
class Dictionary(Substitutions):
    """Replacements listed word by word, such as counter-fitted neighbours.

    Paper: Jia et al. 2019, section 5.1 (the 8 nearest counter-fitted neighbours of Alzantot et al. 2018).
    Relations: ASCC and RIFT train and test on the same file; test with another set too.

    Args:
        entries: Word to its replacements, best first.
        lowercase: Look a word up in lower case where it is not listed as written. RIFT's official code does not, so it
            never touches a capitalised word; False reproduces that.
        source: What the entries are, for reports.

    Example:
        >>> Dictionary(entries={"film": ["movie", "picture"]}).candidates(["A", "Film"], 1)
        ['movie', 'picture']
    """

    name: ClassVar[str] = "dictionary"
    by_word: ClassVar[bool] = True

    entries: Mapping[str, Sequence[str]] = field(repr=False, hash=False)
    lowercase: bool = True
    source: str = "a dictionary"

    def __post_init__(self) -> None:
        object.__setattr__(self, "entries", _checked(self.entries, self.source))

    @classmethod
    def load(cls, path: str | Path, lowercase: bool = True) -> Dictionary:
        """Read a JSON file, `{"film": ["movie", "picture"], "the": []}`."""
        return cls(entries=read_json(path), lowercase=lowercase, source=Path(path).name)

    @property
    def provenance(self) -> str:
        listed = sum(1 for replacements in self.entries.values() if replacements)
        return f"{self.source}: {listed} words with replacements (lowercase={self.lowercase})"

    @cached_property
    def fingerprint(self) -> str:
        rows = (
            part for word in sorted(self.entries) for part in (word, str(len(self.entries[word])), *self.entries[word])
        )
        return content_hash([f"lowercase={self.lowercase}", *rows])

    def vocabulary(self) -> list[str]:
        return [word for word, replacements in self.entries.items() if replacements]

    @cached_property
    def _known(self) -> dict[str, list[str]]:
        """What was asked before: of words with entries only, so that it stays small."""
        return {}

    def candidates(self, words: Sequence[str], position: int) -> list[str]:
        word = words[position]
        known = self._known.get(word)
        if known is None:
            found = self.entries.get(word) or (self.entries.get(word.lower()) if self.lowercase else None)
            if not found:
                return []
            lower = word.lower()
            known = self._known[word] = [replacement for replacement in found if replacement.lower() != lower]
        return list(known)

    def for_texts(self, texts: Sequence[Words]) -> list[list[list[str]]]:
        if self._may_read_context:
            return super().for_texts(texts)
        found = {word for words in texts for word in words.surfaces}
        distinct = {word: self.candidates((word,), 0) for word in found}
        return [[list(distinct[word]) for word in words.surfaces] for words in texts]


def _checked(entries: Any, source: str) -> dict[str, tuple[str, ...]]:
    if not isinstance(entries, Mapping):
        raise UnshakenError(f"{source}: expected an object of words, each with a list of words, not {_kind(entries)}")
    checked = {}
    for word, replacements in entries.items():
        if not isinstance(word, str):
            raise UnshakenError(f"{source}: the key {word!r} is {_kind(word)}, not a word")
        if not isinstance(replacements, list | tuple):
            raise UnshakenError(f"{source}: the entry of {word!r} is {_kind(replacements)}, not a list of words")
        for replacement in replacements:
            if not isinstance(replacement, str) or not replacement.strip():
                raise UnshakenError(f"{source}: the entry of {word!r} holds {replacement!r}, which is not a word")
        checked[word] = tuple(dict.fromkeys(replacements))
    if not any(checked.values()):
        raise UnshakenError(f"{source}: no word has a replacement")
    return checked


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", type(None): "null"}
    return kinds.get(type(value), f"the {type(value).__name__} {value!r}")
