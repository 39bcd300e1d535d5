"""Words in disguise, which people read and a tokenizer does not: look-alikes, invisible signs, leetspeak, gaps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from unshaken.errors import UnshakenError
from unshaken.substitutions.base import Substitutions, content_hash

# Letters of other scripts that are drawn like Latin ones (a part of Unicode's confusables, by hand).
LOOKALIKES = {
    "a": "аɑα", "b": "Ьƅ", "c": "сϲ", "d": "ԁ", "e": "еҽ", "g": "ɡ", "h": "һ", "i": "іıι", "j": "јϳ", "k": "κк",
    "l": "ӏ", "m": "м", "n": "ո", "o": "оοօ", "p": "рρ", "q": "ԛ", "s": "ѕ", "t": "т", "u": "υս", "v": "ѵν", "w": "ԝ",
    "x": "хχ", "y": "уγ", "z": "ᴢ",
    "A": "АΑ", "B": "ВΒ", "C": "СϹ", "E": "ЕΕ", "H": "НΗ", "I": "ІΙ", "J": "Ј", "K": "КΚ", "M": "МΜ", "N": "Ν",
    "O": "ОΟ", "P": "РΡ", "S": "Ѕ", "T": "ТΤ", "X": "ХΧ", "Y": "ҮΥ", "Z": "Ζ",
}  # fmt: skip
INVISIBLE = "\u200b\u200c\u2060\u00ad"  # zero-width space and non-joiner, word joiner, soft hyphen
LEET = {"a": "4@", "b": "8", "e": "3", "g": "9", "i": "1!", "l": "1", "o": "0", "s": "5$", "t": "7+", "z": "2"}
GAPS = (" ", ".", "-")


@dataclass(frozen=True, kw_only=True)
class _Disguise(Substitutions):
    """Every word of letters can be written in disguise; nothing is looked up.

    Args:
        min_length: Shorter words are left alone.
        limit: The most candidates for one word; they are spread over its letters.
    """

    min_length: int = 3
    limit: int = 8

    about: ClassVar[str]
    by_word: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.min_length < 2 or self.limit < 1:
            raise UnshakenError(f"{self}: min_length is at least 2 and limit at least 1")

    @property
    def provenance(self) -> str:
        return f"{self.about} (words of {self.min_length} letters or more, limit={self.limit})"

    @property
    def fingerprint(self) -> str:
        return content_hash([self.name, self.provenance, *self._forms("abcdefghijklmnopqrstuvwxyz")])

    def candidates(self, words: Sequence[str], position: int) -> list[str]:
        word = words[position]
        if len(word) < self.min_length or not (word.isascii() and word.isalpha()):
            return []
        found = list(dict.fromkeys(form for form in self._forms(word) if form != word))
        step = max(1, -(-len(found) // self.limit))
        return found[::step][: self.limit]

    @abstractmethod
    def _forms(self, word: str) -> Iterator[str]: ...


@dataclass(frozen=True, kw_only=True)
class Homoglyphs(_Disguise):
    """One letter of a word drawn by another script.

    Paper: Boucher et al. 2022, "Bad Characters", section 4 (homoglyphs).

    Example:
        >>> Homoglyphs(limit=1).candidates(["film"], 0)
        ['fіlm']
    """

    name: ClassVar[str] = "homoglyphs"
    about: ClassVar[str] = "look-alike letters"

    def _forms(self, word: str) -> Iterator[str]:
        for at, letter in enumerate(word):
            for other in LOOKALIKES.get(letter, ""):
                yield word[:at] + other + word[at + 1 :]


@dataclass(frozen=True, kw_only=True)
class Invisible(_Disguise):
    """One sign inside a word that nobody sees.

    Paper: Boucher et al. 2022, "Bad Characters", section 4 (invisible characters).
    """

    name: ClassVar[str] = "invisible"
    about: ClassVar[str] = "invisible signs"

    def _forms(self, word: str) -> Iterator[str]:
        for at in range(1, len(word)):
            for sign in INVISIBLE:
                yield word[:at] + sign + word[at:]


@dataclass(frozen=True, kw_only=True)
class Leet(_Disguise):
    """Letters written as digits and signs, one of them or all: fr33, m0vie."""

    name: ClassVar[str] = "leet"
    about: ClassVar[str] = "leetspeak"

    def _forms(self, word: str) -> Iterator[str]:
        whole = "".join(LEET.get(letter, letter)[0] for letter in word.lower())
        if any(letter in LEET for letter in word.lower()):
            yield whole
        for at, letter in enumerate(word.lower()):
            for sign in LEET.get(letter, ""):
                yield word[:at] + sign + word[at + 1 :]


@dataclass(frozen=True, kw_only=True)
class Spacing(_Disguise):
    """A word spelt with gaps, `f r e e` or `f.r.e.e`, or cut in two."""

    name: ClassVar[str] = "spacing"
    about: ClassVar[str] = "odd spacing"

    def _forms(self, word: str) -> Iterator[str]:
        yield from (gap.join(word) for gap in GAPS)
        for at in range(2, len(word) - 1):
            yield f"{word[:at]} {word[at:]}"
