"""Constraints on words alone: stop words, frozen columns, no repeat, share of changed words, part of speech."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from unshaken.attacks.constraints.base import Candidate, Choices, Constraint, Together
from unshaken.errors import UnshakenError
from unshaken.substitutions.function_words import is_function_word
from unshaken.substitutions.wordnet import table as wordnet_table
from unshaken.substitutions.words import Words, match_case


@dataclass(frozen=True, kw_only=True)
class StopWords(Constraint):
    """Function words stay: pronouns, articles, prepositions, conjunctions, auxiliaries, negations.

    Paper: Jin et al. 2020, section 3 (TextFooler drops stop words). The list here is our own.
    Cost: A set look-up for each word.

    Args:
        extra: More words that must stay, in lower case; from the command line, joined by "|".

    Example:
        >>> StopWords().allowed_positions(segment("it is not a good film"))
        [4, 5]
    """

    name: ClassVar[str] = "stop-words"

    extra: Sequence[str] = ()

    def __post_init__(self) -> None:
        if isinstance(self.extra, str):
            object.__setattr__(self, "extra", tuple(self.extra.split("|")))

    def allowed_positions(self, words: Words, column: int = 0) -> list[int]:
        return [at for at, word in enumerate(words) if not is_function_word(word) and word.lower() not in self.extra]


@dataclass(frozen=True, kw_only=True)
class FrozenColumns(Constraint):
    """Some columns of a pair stay as they are, such as the premise of an inference task.

    Example:
        >>> FrozenColumns(columns=(0,)).allowed_positions(segment("a premise"), column=0)
        ()
    """

    name: ClassVar[str] = "frozen-columns"

    columns: Sequence[int] = (0,)

    def __post_init__(self) -> None:
        if isinstance(self.columns, int):
            object.__setattr__(self, "columns", (self.columns,))

    def allowed_positions(self, words: Words, column: int = 0) -> Sequence[int]:
        return () if column in self.columns else range(len(words))


@dataclass(frozen=True, kw_only=True)
class NoRepeat(Constraint):
    """A word that was changed is not changed again, nor changed back.

    Relations: TextAttack's RepeatModification. Searches that visit each position once obey it by construction.
    """

    name: ClassVar[str] = "no-repeat"

    def check(self, candidates: Sequence[Candidate]) -> list[bool]:
        return [all(c.swaps.get(at) == word for at, word in c.previous.items()) for c in candidates]

    def check_rows(
        self, rows: np.ndarray, previous: np.ndarray | None, columns: np.ndarray, words: Sequence[int]
    ) -> np.ndarray:
        if previous is None:
            return np.ones(len(rows), bool)
        return np.asarray(((previous == 0) | (rows == previous)).all(1))

    def check_many(self, cohort: Together, owner: Tensor, rows: Tensor, previous: Tensor) -> Tensor:
        return ((previous == 0) | (rows == previous)).all(1)


@dataclass(frozen=True, kw_only=True)
class MaxChanged(Constraint):
    """At most a share of the words of a text is changed, and never less than one word is allowed.

    Paper: Alzantot et al. 2018, section 4 (at most 20% of the words).

    Args:
        share: Largest share of changed words, over 0 and at most 1.

    Example:
        >>> MaxChanged(share=0.1).most(words=25)
        2
    """

    name: ClassVar[str] = "max-changed"

    share: float = 0.2  # Alzantot et al. 2018, section 4

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise UnshakenError(f"MaxChanged(share={self.share}): a share over 0 and at most 1")

    def most(self, words: int) -> int:
        """How many words of a text of this length may change."""
        # A share like 0.3 is not a binary fraction: 0.3 * 10 must still give 3.
        return max(1, math.floor(self.share * words + 1e-9))

    def check(self, candidates: Sequence[Candidate]) -> list[bool]:
        return [len(candidate.swaps) <= self.most(len(candidate.original)) for candidate in candidates]

    def check_rows(
        self, rows: np.ndarray, previous: np.ndarray | None, columns: np.ndarray, words: Sequence[int]
    ) -> np.ndarray:
        kept = [(rows[:, columns == at] != 0).sum(1) <= self.most(count) for at, count in enumerate(words)]
        return np.asarray(np.all(kept, axis=0))

    def check_many(self, cohort: Together, owner: Tensor, rows: Tensor, previous: Tensor) -> Tensor:
        most = [[self.most(len(words)) for words in space.words] for space in cohort.spaces]
        limits = torch.tensor(most, device=rows.device)[owner]  # (n, columns)
        changed, columns = rows != 0, cohort.columns[owner]
        counts = [(changed & (columns == column)).sum(1) for column in range(limits.shape[1])]
        return (torch.stack(counts, 1) <= limits).all(1)


@dataclass(frozen=True, kw_only=True)
class PartOfSpeech(Constraint):
    """A substitute can be the part of speech that the word is in its place.

    The word is tagged in its context. A substitute is not: a tagger that reads the context makes of any word what the
    context asks for ("a quickly film" has an adjective). What a substitute can be is asked of the tagger's lexicon, its
    rules of endings and WordNet.

    The tagger is TextBlob's, after Brill, which carries its lexicon and rules in the wheel (`pip install textblob`). On
    coarse tags it agrees with NLTK's averaged perceptron on 92% of the words of SST-2 dev and 95% of SNLI's.

    Paper: Jin et al. 2020, section 3 step 2. The official code also lets nouns and verbs replace each other.
    Cost: About 0.2 ms for each word that has substitutes.

    Args:
        noun_verb: Let nouns and verbs replace each other.
        window: Words on either side that the tagger reads.

    Example:
        >>> PartOfSpeech().allowed_choices([segment("a young face")], [[[], ["youthful", "quickly"], ["look"]]])
        [[[], ['youthful'], ['look']]]
    """

    name: ClassVar[str] = "part-of-speech"

    noun_verb: bool = True  # official code; the paper compares plain tags
    window: int = 6

    def allowed_choices(self, texts: Sequence[Words], choices: Sequence[Choices]) -> list[list[list[str]]]:
        return [
            [self._same_tag(words, at, found) if found else [] for at, found in enumerate(of_text)]
            for words, of_text in zip(texts, choices, strict=True)
        ]

    def _same_tag(self, words: Words, position: int, substitutes: Sequence[str]) -> list[str]:
        start = max(0, position - self.window)
        wanted = {_tags(words[start : position + self.window + 1])[position - start]}
        if self.noun_verb and wanted & {"n", "v"}:
            wanted = {"n", "v"}
        return [word for word in substitutes if wanted & _possible_tags(match_case(words[position], word))]


_COARSE = {"N": "n", "V": "v", "M": "v", "J": "a", "R": "r"}


def coarse_tags(words: tuple[str, ...]) -> tuple[str, ...]:
    """Coarse tags: WordNet's letters for the open classes, the treebank's tags for the others."""
    return tuple(fine if fine == "RP" else _COARSE.get(fine[0], fine) for _, fine in _tagger()(list(words)))


_tags = lru_cache(maxsize=1 << 14)(coarse_tags)  # of windows, which repeat; whole texts would fill the memory


@lru_cache(maxsize=1 << 16)
def _possible_tags(word: str) -> frozenset[str]:
    return frozenset({*_tags((word,)), *(part for _, part, _ in wordnet_table().readings(word.lower()))})


@lru_cache(maxsize=1)
def _tagger() -> Callable[[list[str]], list[list[str]]]:
    try:
        # The public tag() leaves out the tagger's own rules of context and morphology.
        from textblob._text import find_tags
        from textblob.en import lexicon
    except ImportError as error:
        raise UnshakenError(f"tags of words need a tagger: pip install textblob ({error})") from error

    def tag(tokens: list[str]) -> list[list[str]]:
        found: list[list[str]] = find_tags(
            tokens, lexicon=lexicon, morphology=lexicon.morphology, context=lexicon.context
        )
        return found

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it reads its files on first use and leaves them open
        tag(["unheardofword", "."])
    return tag
