"""`Spacing`: words spelt with gaps or cut in two are put together."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar

from unshaken.readers.base import Reader
from unshaken.readers.known import KnownWords

_SPELT = re.compile(r"(?<![^\W_])[^\W\d_](?:([ .\-_*])[^\W\d_])(?:\1[^\W\d_])+(?![^\W_])")
_LETTERS = re.compile(r"[^\W\d_]{2,}")
_TWO = re.compile(r"(?<![\w'’-])([^\W\d_]{2,})[ ]([^\W\d_]{2,})(?![\w'’-])")


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

    def __call__(self, text: str) -> str:
        text = _SPELT.sub(self._join, text)
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

    def _join(self, found: re.Match[str]) -> str:
        return self._put_together(found[0].split(found[1]), found[1])

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
