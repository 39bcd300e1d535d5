"""`KnownWords`: the words that need no mending, with counts."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from unshaken.examples import Examples
from unshaken.substitutions.base import Substitutions
from unshaken.substitutions.function_words import FUNCTION_WORDS, is_function_word
from unshaken.substitutions.wordnet import table
from unshaken.substitutions.words import segment

_LATIN = re.compile(r"[a-zß-öø-ɏ]{3,}")
# What begins a word where pieces within words have no "##": byte-level pieces, whose other letters are bytes in
# disguise, and sentence pieces.
_LATIN_AFTER = {"Ġ": re.compile(r"[a-z]{3,}"), "▁": _LATIN}


@dataclass(frozen=True, eq=False)
class KnownWords:
    """The words of training texts, dictionaries and the model, and those of WordNet, which ships with the package.

    WordNet's table here has the words with synonyms only: "money" and "french" are not among them.

    Attributes:
        counts: Lower-case words and how often training has them; words of a dictionary or of the model alone count 0.
    """

    counts: Mapping[str, int] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls, texts: Examples | Iterable[str] = (), substitutions: Iterable[Substitutions] = (), tokenizer: Any = None
    ) -> KnownWords:
        """From training texts, from the sets whose words the model shall read as they are, and from its tokenizer."""
        raw = (text for row in texts for text in row.texts) if isinstance(texts, Examples) else texts
        counts: dict[str, int] = dict.fromkeys(
            (
                word.lower()
                for one in substitutions
                for entry in one.vocabulary() or ()
                for word in (entry, *one.neighbours(entry))
            ),
            0,
        )
        counts |= dict.fromkeys(() if tokenizer is None else whole_words(tokenizer), 0)
        return cls(counts | Counter(word.lower() for text in raw for word in segment(text)))

    def __contains__(self, word: str) -> bool:
        return word in self.counts or in_wordnet(word)

    @cached_property
    def words(self) -> frozenset[str]:
        """All of them, to find many candidates at once."""
        return frozenset(self.counts) | table().words | FUNCTION_WORDS

    def rank(self, word: str) -> tuple[int, bool]:
        """The more, the likelier a reader of the training texts meets the word."""
        return self.counts.get(word, 0), in_wordnet(word)

    @cached_property
    def letters(self) -> str:
        """All letters of the words, for spelling."""
        own = {letter for word in self.counts for letter in word if letter.isalpha()}
        return "".join(sorted(own | set("abcdefghijklmnopqrstuvwxyz")))

    def is_beginning(self, letters: str) -> bool:
        """Whether a known word begins so."""
        return self.longest_beginning(letters) == len(letters)

    def is_ending(self, letters: str) -> bool:
        """Whether a known word ends so."""
        return self.longest_ending(letters) == len(letters)

    def longest_beginning(self, word: str) -> int:
        """The most letters of a word that a known word begins with, too."""
        return _longest_shared(self._in_order, word)

    def longest_ending(self, word: str) -> int:
        return _longest_shared(self._backwards, word[::-1])

    @cached_property
    def _in_order(self) -> list[str]:
        return sorted(self.words)

    @cached_property
    def _backwards(self) -> list[str]:
        return sorted(word[::-1] for word in self.words)


def whole_words(tokenizer: Any) -> list[str]:
    """The words of three and more Latin letters that a tokenizer reads in one piece, in lower case."""
    pieces = list(tokenizer.get_vocab())
    marked = {mark: [piece[1:] for piece in pieces if piece.startswith(mark)] for mark in _LATIN_AFTER}
    mark = max(marked, key=lambda mark: len(marked[mark]))
    # Each kind of vocabulary may hold a stray piece of the other: "####" is one of RoBERTa's, "▁" a letter of BERT's.
    if len(marked[mark]) > sum(piece.startswith("##") for piece in pieces):
        letters, pieces = _LATIN_AFTER[mark], marked[mark]
    else:
        letters = _LATIN
    return sorted({word for word in map(str.lower, pieces) if letters.fullmatch(word)})


def _longest_shared(words: list[str], word: str) -> int:
    """How many letters a word shares with the beginning of any of the words in order: its neighbours share most."""
    at = bisect_left(words, word)
    return max((_shared(word, other) for other in words[max(at - 1, 0) : at + 1]), default=0)


def _shared(first: str, second: str) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(first), len(second)))


def in_wordnet(word: str) -> bool:
    return word in table().words or is_function_word(word)
