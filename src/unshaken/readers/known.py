"""`KnownWords`: the words that need no mending, with counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from unshaken.examples import Examples
from unshaken.substitutions.base import Substitutions
from unshaken.substitutions.function_words import FUNCTION_WORDS, is_function_word
from unshaken.substitutions.wordnet import table
from unshaken.substitutions.words import segment


@dataclass(frozen=True, eq=False)
class KnownWords:
    """The words of training texts and of dictionaries, and those of WordNet, which ships with the package.

    Attributes:
        counts: Lower-case words and how often training has them; words of a dictionary alone count 0.
    """

    counts: Mapping[str, int] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, texts: Examples | Iterable[str] = (), substitutions: Iterable[Substitutions] = ()) -> KnownWords:
        """From training texts, and from the sets whose words the model shall read as they are."""
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


def in_wordnet(word: str) -> bool:
    return word in table().words or is_function_word(word)
