"""`Spelling`: a word that nobody knows becomes the known word one edit away."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from unshaken.errors import UnshakenError
from unshaken.readers.base import Reader
from unshaken.readers.known import KnownWords
from unshaken.substitutions.words import match_case

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")


@dataclass(frozen=True, kw_only=True)
class Spelling(Reader):
    """Mends typing errors: a substituted, missing, extra or swapped letter.

    Of several known words one edit away, one with the same first and last letter is taken before others, then the most
    frequent in training, then the first in the alphabet. Edits are written out and looked up, so there is no index to
    build or to keep; symmetric-delete indices (SymSpell) need 100 bytes and more for each deletion of each word.

    Paper: Pruthi et al. 2019, "Combating Adversarial Misspellings with Robust Word Recognition", for the idea of a
        reader before the model; theirs is a network.
    Cost: A dictionary look-up for a word met before; about a tenth of a millisecond for a new unknown one.

    Args:
        known: The words that need no mending.
        min_length: Shorter words are left alone.
    """

    name: ClassVar[str] = "spelling"
    knows: ClassVar[tuple[str, ...]] = ("typos",)
    word_local: ClassVar[bool] = True

    known: KnownWords = field(default_factory=KnownWords, repr=False)
    min_length: int = 3  # a word of four letters that lost one has three
    _memory: dict[str, str] = field(default_factory=dict, repr=False, compare=False, init=False)

    def __post_init__(self) -> None:
        if self.min_length < 3:
            raise UnshakenError(f"Spelling(min_length={self.min_length}): at least 3, or particles are mended")

    def __call__(self, text: str) -> str:
        memory, words = self._memory, _WORD.findall(text)
        if len(memory) > 2**18:  # a new one, because another thread may be reading
            object.__setattr__(self, "_memory", memory := {})
        for word in set(words).difference(memory):
            memory[word] = self._mended(word)
        if all(map(operator.eq, words, map(memory.__getitem__, words))):
            return text
        return _WORD.sub(lambda found: memory[found[0]], text)

    def _mended(self, written: str) -> str:
        word = written.lower()
        if len(word) < self.min_length or word in self.known:
            return written
        # The letters before an edit begin a known word and those after it end one, so few places are worth a look.
        first = len(word) - self.known.longest_ending(word) - 2
        places = range(max(first, 0), self.known.longest_beginning(word) + 1)
        written_out = edits(word, self.known.letters, places)
        near = [other for other in self.known.words.intersection(written_out) if len(other) >= 3]
        if not near:
            return written
        ends = (word[0], word[-1])
        best = max(sorted(near), key=lambda other: ((other[0], other[-1]) == ends, *self.known.rank(other)))
        return match_case(written, best)


def edits(word: str, letters: str, places: Iterable[int] | None = None) -> Iterator[str]:
    """Every word one edit away: a letter dropped, two swapped, one replaced, one put in; all places where None."""
    for at in range(len(word) + 1) if places is None else places:
        before, after, rest = word[:at], word[at:], word[at + 1 :]
        if after:
            yield before + rest
            yield from [before + letter + rest for letter in letters]
        if rest:
            yield before + rest[0] + after[0] + rest[1:]
        yield from [before + letter + after for letter in letters]
