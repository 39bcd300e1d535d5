"""`Leet`: digits and signs that stand for letters become letters, where that makes a word."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from typing import ClassVar

from unshaken.readers.base import Reader
from unshaken.readers.known import KnownWords
from unshaken.substitutions.disguises import LEET

_LETTERS: dict[str, str] = {}
for _letter, _signs in LEET.items():
    for _sign in _signs:
        _LETTERS[_sign] = _LETTERS.get(_sign, "") + _letter
_SIGNS = re.escape("".join(_LETTERS))
_DISGUISED = re.compile(  # letters and signs, at least one of each
    rf"(?<![\w{_SIGNS}])(?=[\w{_SIGNS}]*[A-Za-z])(?=[A-Za-z]*[{_SIGNS}])[A-Za-z{_SIGNS}]{{3,24}}(?!\w)"
)
MOST = 256  # readings of one word


@dataclass(frozen=True, kw_only=True)
class Leet(Reader):
    """Reads fr33 as free and m0vie as movie; what makes no known word stays (4x4, 3D, B2B).

    Args:
        known: The words it may read.
    """

    name: ClassVar[str] = "leet"
    knows: ClassVar[tuple[str, ...]] = ("leet",)
    word_local: ClassVar[bool] = True

    known: KnownWords = field(default_factory=KnownWords, repr=False)

    def __call__(self, text: str) -> str:
        return _DISGUISED.sub(self._read, text)

    def _read(self, found: re.Match[str]) -> str:
        written = found[0]
        for tail in ("", *(written[at:] for at in range(len(written) - 1, len(written) - 3, -1))):
            if tail and not all(sign in "!+$" for sign in tail):  # "gr8!": the sign ends a sentence
                break
            word = self._word(written.removesuffix(tail) if tail else written)
            if word is not None:
                return word + tail
        return written

    def _word(self, written: str) -> str | None:
        choices = [_LETTERS.get(sign, sign) for sign in written.lower()]
        readings = ("".join(letters) for letters in itertools.islice(itertools.product(*choices), MOST))
        known = [word for word in readings if word.isalpha() and len(word) > 2 and word in self.known]
        return max(sorted(known), key=self.known.rank) if known else None
