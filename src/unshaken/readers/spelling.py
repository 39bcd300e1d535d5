"""`Spelling`: a word that nobody knows becomes the known word one edit away."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from unshaken.errors import UnshakenError
from unshaken.readers.base import Reader
from unshaken.readers.contractions import CONTRACTIONS, RARER
from unshaken.readers.known import KnownWords
from unshaken.substitutions.typos import kind_of_error
from unshaken.substitutions.words import match_case

# A special token, such as an attack's probe, is matched whole and stays: [UNK], <mask>, </s>.
_WORD = re.compile(r"\[[A-Z]+\]|</?[a-z]+>|[^\W\d_]+(?:['’\-‐‑][^\W\d_]+)*")
_POSSESSIVE = re.compile(r"(?<=\w)['’][sS]$")
_HYPHEN = re.compile(r"([\-‐‑])")
# How often people make each error, by and large: a letter has about five neighbouring keys to slip to.
LIKELY = {"swap": 1.0, "drop": 1.0, "repeat": 1.0, "key": 0.2, None: 0.001}


@dataclass(frozen=True, kw_only=True)
class Spelling(Reader):
    """Mends typing errors: a substituted, missing, extra or swapped letter.

    Of several known words one edit away, one with the same first and last letter is taken before others, then the one
    that the text most likely meant: how frequent it is in training times how usual the error is ("bst" is "best"
    without a letter, not "but" with an "s" for its "u"), then the first in the alphabet. Edits are written out and
    looked up, so there is no index to build or to keep; symmetric-delete indices (SymSpell) need 100 bytes and more for
    each deletion of each word.

    A contraction without its apostrophe gets it back ("dont"), unless it is a known word as well ("cant"). One with it
    stays, however the apostrophe is written.

    An attacker looks for errors that make another known word ("most" to "mist"). With `doubt` such a word is read as
    the far more frequent one, wherever it stands; a text that does mean mist is then misread.

    Paper: Pruthi et al. 2019, "Combating Adversarial Misspellings with Robust Word Recognition", for the idea of a
        reader before the model; theirs is a network. Kernighan, Church and Gale 1990, "A Spelling Correction Program
        Based on a Noisy Channel Model", for how it chooses.
    Cost: A dictionary look-up for a word met before; about a tenth of a millisecond for a new unknown one.

    Args:
        known: The words that need no mending.
        min_length: Shorter words are left alone.
        doubt: A known word gives way to one that is this many times as likely, if a usual error leads from there to
            here; None lets every known word stand. Below 10 many true words go.
    """

    name: ClassVar[str] = "spelling"
    knows: ClassVar[tuple[str, ...]] = ("typos",)
    word_local: ClassVar[bool] = True

    known: KnownWords = field(default_factory=KnownWords, repr=False)
    min_length: int = 3  # a word of four letters that lost one has three
    doubt: float | None = None
    _memory: dict[str, str] = field(default_factory=dict, repr=False, compare=False, init=False)

    def __post_init__(self) -> None:
        if self.min_length < 3:
            raise UnshakenError(f"Spelling(min_length={self.min_length}): at least 3, or particles are mended")
        if self.doubt is not None and self.doubt < 1:
            raise UnshakenError(f"Spelling(doubt={self.doubt}): at least 1, or a word gives way to a rarer one")

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
        if word[0] in "[<":
            return written
        if word not in self.known and word in CONTRACTIONS:
            return match_case(written, CONTRACTIONS[word])
        if word not in self.known and ((plain := word.replace("’", "'")) in RARER or plain in self.known):
            return written
        if word not in self.known and _HYPHEN.search(word):
            return "".join(part if _HYPHEN.match(part) else self._mended(part) for part in _HYPHEN.split(written))
        if word not in self.known and (own := _POSSESSIVE.search(written)):  # "film's" is no "films"
            return self._mended(written[: own.start()]) + written[own.start() :]
        seen = {word}
        while (better := self._meant(word)) not in seen:  # what is meant may itself be in doubt
            seen.add(word := better)
        return written if word == written.lower() else match_case(written, word)

    def _meant(self, word: str) -> str:
        """The likeliest known word one edit away; the word itself if it is known beyond doubt, or none is near."""
        known = word in self.known
        if len(word) < self.min_length or (known and self.doubt is None):
            return word
        if not known:
            return max(self._near(word), key=lambda other: self._fit(word, other), default=word)
        usual = [other for other in self._near(word) if kind_of_error(word, other)]
        best = max(usual, key=lambda other: self._likely(word, other), default=word)
        enough = (self.doubt or 1) * (self.known.counts.get(word, 0) + 1)
        return best if usual and self._likely(word, best)[0] >= enough else word

    def _fit(self, written: str, word: str) -> tuple[bool, float, bool]:
        ends = (word[0], word[-1]) == (written[0], written[-1])
        return ends, *self._likely(written, word)

    def _likely(self, written: str, word: str) -> tuple[float, bool]:
        count, in_wordnet = self.known.rank(word)
        return LIKELY[kind_of_error(written, word)] * (count + 0.5), in_wordnet

    def _near(self, word: str) -> list[str]:
        """The known words one edit away, in order."""
        # The letters before an edit begin a known word and those after it end one, so few places are worth a look.
        first = len(word) - self.known.longest_ending(word) - 2
        places = range(max(first, 0), self.known.longest_beginning(word) + 1)
        found = self.known.words.intersection(edits(word, self.known.letters, places))
        return sorted(other for other in found if len(other) >= 3 and other != word)


def edits(word: str, letters: str, places: Iterable[int] | None = None) -> Iterator[str]:
    """Every word one edit away: a letter dropped, two swapped, one replaced, one put in; all places if None."""
    for at in range(len(word) + 1) if places is None else places:
        before, after, rest = word[:at], word[at:], word[at + 1 :]
        if after:
            yield before + rest
            yield from [before + letter + rest for letter in letters]
        if rest:
            yield before + rest[0] + after[0] + rest[1:]
        yield from [before + letter + after for letter in letters]
