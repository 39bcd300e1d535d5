"""Typing errors as substitutions: swapped, dropped and repeated letters, and neighbouring keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from unshaken.errors import UnshakenError
from unshaken.names import nearest
from unshaken.substitutions.base import Substitutions, content_hash

KINDS = ("swap", "drop", "repeat", "key")

_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


def _neighbours() -> dict[str, str]:
    """The keys that touch each letter's key on a QWERTY keyboard, where each row stands half a key to the right."""
    found: dict[str, str] = {}
    for row, letters in enumerate(_ROWS):
        for column, letter in enumerate(letters):
            places = ((row, -1), (row, 1), (row - 1, 0), (row - 1, 1), (row + 1, -1), (row + 1, 0))
            found[letter] = "".join(
                _ROWS[other][column + shift]
                for other, shift in places
                if 0 <= other < len(_ROWS) and 0 <= column + shift < len(_ROWS[other])
            )
    return found


NEIGHBOURS = _neighbours()


@dataclass(frozen=True, kw_only=True)
class Typos(Substitutions):
    """Every single typing error inside a word; its first and last letters stay, so that people still read it.

    Paper: Pruthi et al. 2019, "Combating Adversarial Misspellings with Robust Word Recognition", section 3 (internal
        edits of words of at least four letters).
    Relations: Unlike synonyms these break a word into other tokens, so a defence trained on synonyms has not seen them.
    Cost: No look-up; a word of n letters has about 8n candidates.

    Args:
        kinds: Which errors, of swap, drop, repeat and key; from the command line, joined by "|".
        min_length: Shorter words are left alone.

    Example:
        >>> Typos(kinds=("swap",)).candidates(["movie"], 0)
        ['mvoie', 'moive']
    """

    name: ClassVar[str] = "typos"
    by_word: ClassVar[bool] = True

    kinds: Sequence[str] = KINDS
    min_length: int = 4  # Pruthi et al. 2019, section 3

    def __post_init__(self) -> None:
        kinds = tuple(self.kinds.split("|")) if isinstance(self.kinds, str) else tuple(self.kinds)
        object.__setattr__(self, "kinds", kinds)
        for kind in kinds:
            if kind not in KINDS:
                raise UnshakenError(f"unknown kind of typo {kind!r}; {nearest(kind, KINDS)}")
        if not kinds or self.min_length < 3:
            raise UnshakenError(f"{self}: at least one kind, and min_length at least 3, or no letter is inside a word")

    @property
    def provenance(self) -> str:
        return f"typing errors ({', '.join(self.kinds)}; words of {self.min_length} letters or more)"

    @property
    def fingerprint(self) -> str:
        return content_hash([self.name, *self.kinds, str(self.min_length)])

    def candidates(self, words: Sequence[str], position: int) -> list[str]:
        word = words[position]
        if len(word) < self.min_length or not word.isalpha():
            return []
        found = dict.fromkeys(edited for kind in self.kinds for edited in _edits(word, kind))
        return [edited for edited in found if edited.lower() != word.lower()]


def _edits(word: str, kind: str) -> Iterator[str]:
    for at in range(1, len(word) - 1):
        before, letter, after = word[:at], word[at], word[at + 1 :]
        if kind == "swap" and len(after) > 1:
            yield before + after[0] + letter + after[1:]
        elif kind == "drop":
            yield before + after
        elif kind == "repeat":
            yield before + letter + letter + after
        elif kind == "key":
            for key in NEIGHBOURS.get(letter.lower(), ""):
                yield before + (key.upper() if letter.isupper() else key) + after


def kind_of_error(written: str, word: str) -> str | None:
    """Which of the kinds makes `written` of `word`; None if it takes another error than those inside a word."""
    if len(word) < 4 or (written[:1], written[-1:]) != (word[0], word[-1]):
        return None
    longer = len(written) - len(word)
    if longer == 0:
        at = [place for place, pair in enumerate(zip(written, word, strict=True)) if len(set(pair)) == 2]
        if len(at) == 1 and written[at[0]] in NEIGHBOURS.get(word[at[0]], ""):
            return "key"
        crossed = len(at) == 2 and at[1] == at[0] + 1 and written[at[0] : at[1] + 1] == word[at[0] : at[1] + 1][::-1]
        return "swap" if crossed else None
    kind = {-1: "drop", 1: "repeat"}.get(longer)
    return kind if kind and written in _edits(word, kind) else None
