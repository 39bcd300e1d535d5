"""`Unicode`: look-alike letters, invisible signs and stacked marks become plain text."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import regex  # type: ignore[import-untyped]

from unshaken.readers.base import Forms, Reader
from unshaken.substitutions.disguises import LOOKALIKES

TAGS = 0xE0000  # where tag characters begin: each ASCII character again
CANCEL = "\U000e007f"  # the tag that ends a flag
_PLAIN = {ord(other): letter for letter, others in LOOKALIKES.items() for other in others}
# Format characters (zero width, direction, soft hyphen), tags, fillers and variation selectors; emoji and flags keep
# theirs.
_TAG = r"[\U000e0020-\U000e007f]"
_UNSEEN = regex.compile(
    rf"(?<=\p{{Extended_Pictographic}}{_TAG}*)(?:[\u200d\ufe0f]|{_TAG})(*SKIP)(*FAIL)"
    r"|(?<=\p{Emoji_Modifier})[\u200d\ufe0f](*SKIP)(*FAIL)"
    r"|[\p{Cf}\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
# Tag characters repeat ASCII unseen. Language models read words of them, so those are read; inside of words they go.
_TAGGED = regex.compile(rf"(?<![\p{{L}}\p{{N}}\p{{Extended_Pictographic}}]|{_TAG}){_TAG}+(?![\p{{L}}\p{{N}}])")
_MARKS = regex.compile(r"(?<=[\p{Latin}\p{N}\p{P}\p{Zs}]\p{M}*)\p{Mn}")  # what no composed letter took up
_LETTERS = regex.compile(r"[^\W\d_]+")


@dataclass(frozen=True, kw_only=True)
class Unicode(Reader):
    """Tag characters as what they spell, NFKC, no invisible signs or stacked marks, and Latin words in Latin letters.

    Letters of another script are replaced only where a text is mostly Latin and every foreign letter of the word is
    drawn like a Latin one, so Russian and Greek stay Russian and Greek. A word of two scripts counts as Latin: no
    language writes so, people who hide words do.

    Paper: Boucher et al. 2022, "Bad Characters", for the attacks; Unicode TR 39 for look-alikes.
    """

    name: ClassVar[str] = "unicode"
    knows: ClassVar[tuple[str, ...]] = ("homoglyphs", "invisible")

    def __call__(self, text: str) -> str:
        if text.isascii():
            return text
        text = _normal(text)
        return _in_latin(text) if _surplus(text) > 0 else text

    def part(self, text: str) -> str:
        return text if text.isascii() else _in_latin(_normal(text))

    def stays_apart(self, parts: Sequence[Forms]) -> bool:
        """Whether all forms are plain, or texts are mostly Latin even where each part is the least Latin it can be."""
        return all(map(_are_ascii, parts)) or sum(map(_least_surplus, parts)) > 0


def _normal(text: str) -> str:
    """Without disguises but for letters of other scripts."""
    text = _TAGGED.sub(lambda found: "".join(chr(ord(tag) - TAGS) for tag in found[0] if tag != CANCEL), text)
    for _ in range(4):  # what one step removes may let another compose
        before = text
        text = _UNSEEN.sub("", unicodedata.normalize("NFKC", text))
        text = unicodedata.normalize("NFKC", _MARKS.sub("", text))
        if text == before:
            break
    return text


def _in_latin(text: str) -> str:
    return str(_LETTERS.sub(lambda found: _latin(found[0]), text))


def _surplus(text: str) -> int:
    """How many more letters of a text are Latin than not; above 0 the text is mostly Latin."""
    return 2 * sum(_latin_letters(found[0]) for found in _LETTERS.finditer(text)) - sum(map(str.isalpha, text))


@lru_cache(maxsize=1 << 16)
def _are_ascii(forms: Forms) -> bool:
    return all(map(str.isascii, forms))


@lru_cache(maxsize=1 << 16)
def _least_surplus(forms: Forms) -> int:
    return min(_surplus(_normal(form)) for form in forms)


def _latin_letters(word: str) -> int:
    """The ASCII letters of a word; all of them where the others are drawn like Latin ones beside at least one."""
    own = sum(map(str.isascii, word))
    return len(word) if own and _latin(word).isascii() else own


def _latin(word: str) -> str:
    plain = word.translate(_PLAIN)
    return plain if plain.isascii() else word
