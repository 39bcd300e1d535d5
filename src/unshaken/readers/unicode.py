"""`Unicode`: look-alike letters, invisible signs and stacked marks become plain text."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import ClassVar

import regex  # type: ignore[import-untyped]

from unshaken.readers.base import Reader
from unshaken.substitutions.disguises import LOOKALIKES

_PLAIN = {ord(other): letter for letter, others in LOOKALIKES.items() for other in others}
# Format characters (zero width, direction, soft hyphen), tags, fillers and variation selectors; emoji keep theirs.
_UNSEEN = regex.compile(
    r"(?<=\p{Extended_Pictographic}|\p{Emoji_Modifier})[\u200d\ufe0f\U000e0020-\U000e007f](*SKIP)(*FAIL)"
    r"|[\p{Cf}\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
_MARKS = regex.compile(r"(?<=[\p{Latin}\p{N}\p{P}\p{Zs}]\p{M}*)\p{Mn}")  # what no composed letter took up
_LETTERS = regex.compile(r"[^\W\d_]+")


@dataclass(frozen=True, kw_only=True)
class Unicode(Reader):
    """NFKC, then no invisible signs, no marks stacked on Latin letters, and no other script's letters in Latin words.

    Letters of another script are replaced only where a text is mostly Latin and every foreign letter of the word is
    drawn like a Latin one, so Russian and Greek stay Russian and Greek.

    Paper: Boucher et al. 2022, "Bad Characters", for the attacks; Unicode TR 39 for look-alikes.
    """

    name: ClassVar[str] = "unicode"
    knows: ClassVar[tuple[str, ...]] = ("homoglyphs", "invisible")

    def __call__(self, text: str) -> str:
        if text.isascii():
            return text
        for _ in range(4):  # what one step removes may let another compose
            before = text
            text = _UNSEEN.sub("", unicodedata.normalize("NFKC", text))
            text = unicodedata.normalize("NFKC", _MARKS.sub("", text))
            if text == before:
                break
        latin = sum(letter.isascii() and letter.isalpha() for letter in text)
        if 2 * latin > sum(map(str.isalpha, text)):
            text = _LETTERS.sub(lambda found: _latin(found[0]), text)
        return text


def _latin(word: str) -> str:
    plain = word.translate(_PLAIN)
    return plain if plain.isascii() else word
