"""`Spacing`: words spelt with gaps or cut in two are put together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

from unshaken.readers.base import REMEMBERED, Forms, Reader
from unshaken.readers.known import KnownWords

_SPELT = re.compile(r"(?<![^\W_])[^\W\d_](?:([ .\-_*])[^\W\d_])(?:\1[^\W\d_])+(?![^\W_])")
_LETTERS = re.compile(r"[^\W\d_]{2,}")
_TWO = re.compile(r"(?<![\w'’-])([^\W\d_]{2,})[ ]([^\W\d_]{2,})(?![\w'’-])")
# At the edges of what stands between two blanks: a letter alone, and a word that could be half of another.
_FIRST_LETTER = re.compile(r" [^\W\d_](?![^\W_])")
_LAST_LETTER = re.compile(r"(?<![^\W_])[^\W\d_]\Z")
_FIRST_WORD = re.compile(r" ([^\W\d_]{2,})(?![\w'’-])")
_LAST_WORD = re.compile(r"(?<![\w'’-])[^\W\d_]{2,}\Z")


@dataclass(frozen=True)
class _Edges:
    """What the forms of a part may be put together with.

    Attributes:
        first_letter: Whether one begins with a letter alone; `last_letter` likewise.
        first_words: Words they begin with that are the end of a known word, and whether they are known themselves.
        last_words: Words they end with that a known word begins with.
    """

    first_letter: bool
    last_letter: bool
    first_words: tuple[tuple[str, bool], ...]
    last_words: tuple[tuple[str, bool], ...]


@dataclass(frozen=True, kw_only=True)
class Spacing(Reader):
    """Reads `f r e e` and `f.r.e.e` as free, and `fr ee` where the whole is a word and one half is none.

    Args:
        known: The words it may put together.
    """

    name: ClassVar[str] = "spacing"
    knows: ClassVar[tuple[str, ...]] = ("spacing",)

    known: KnownWords = field(default_factory=KnownWords, repr=False)
    _whole: set[str] = field(default_factory=set, repr=False, compare=False, init=False)  # met before, and known
    _edges: dict[Forms, _Edges] = field(default_factory=dict, repr=False, compare=False, init=False)

    def __call__(self, text: str) -> str:
        text = self._spelt_joined(text)
        if self._no_half(text):
            return text
        at = 0
        while (found := _TWO.search(text, at)) is not None:
            first, second = found.groups()
            both = first in self._whole and second in self._whole
            if not both and self._is_cut(first.lower(), second.lower()):
                text = text[: found.start()] + first + second + text[found.end() :]
                at = found.start()
            else:
                at = found.start(2)
        return text

    def _spelt_joined(self, text: str) -> str:
        parts, end = [], 0
        while (found := _SPELT.search(text, end)) is not None:
            joined = self._put_together(found[0].split(found[1]), found[1])
            alone = joined[-2] in (found[1], " ")  # the last letter may begin what other gaps spell: g.o.o.d.f r e e
            parts += [text[end : found.start()], joined[:-1] if alone else joined]
            end = found.end() - alone
        return "".join([*parts, text[end:]])

    def _put_together(self, letters: list[str], gap: str) -> str:
        """The longest known word among them joined, and what stands beside it likewise."""
        for size in range(len(letters), 2, -1):
            for start in range(len(letters) - size + 1):
                word = "".join(letters[start : start + size])
                if word.lower() in self.known:
                    sides = (letters[:start], letters[start + size :])
                    left, right = (self._put_together(side, gap) for side in sides)
                    return " ".join(part for part in (left, word, right) if part)
        return gap.join(letters)

    def _no_half(self, text: str) -> bool:
        """Whether every word is known, so that none is half of another; the usual case, and so the quick one."""
        new = set(_LETTERS.findall(text)) - self._whole
        if len(self._whole) > 2**18:
            self._whole.clear()
        self._whole.update(word for word in new if word.lower() in self.known)
        return new <= self._whole

    def _is_cut(self, first: str, second: str) -> bool:
        return not (first in self.known and second in self.known) and first + second in self.known

    def stays_apart(self, parts: Sequence[Forms]) -> bool:
        """Whether no form of a part can be put together with a form of the next."""
        return not any(self._may_join(left, right) for left, right in pairwise(map(self._edges_of, parts)))

    def _may_join(self, left: _Edges, right: _Edges) -> bool:
        if left.last_letter and right.first_letter:
            return True
        return any(
            first + second in self.known
            for first, first_is_known in left.last_words
            for second, second_is_known in right.first_words
            if not (first_is_known and second_is_known)
        )

    def _edges_of(self, forms: Forms) -> _Edges:
        found = self._edges.get(forms)
        if found is None:
            if len(self._edges) >= REMEMBERED:
                self._edges.clear()
            firsts = (match[1].lower() for form in forms if (match := _FIRST_WORD.match(form)))
            lasts = (match[0].lower() for form in forms if (match := _LAST_WORD.search(form)))
            found = self._edges[forms] = _Edges(
                any(map(_FIRST_LETTER.match, forms)),
                any(map(_LAST_LETTER.search, forms)),
                tuple((word, word in self.known) for word in dict.fromkeys(firsts) if self.known.is_ending(word)),
                tuple((word, word in self.known) for word in dict.fromkeys(lasts) if self.known.is_beginning(word)),
            )
        return found
