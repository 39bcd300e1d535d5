"""DeepWordBug: typing errors in the words that matter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from unshaken.attacks.base import SearchAttack
from unshaken.attacks.goals import Scoring
from unshaken.attacks.questions import Ask, Scores, Search, ask_one_by_one, ask_prefixes
from unshaken.attacks.space import PROBE, Space
from unshaken.errors import UnshakenError
from unshaken.substitutions.base import Substitutions
from unshaken.substitutions.typos import Typos


@dataclass(frozen=True, kw_only=True)
class DeepWordBug(SearchAttack):
    """Put one typing error into one word after another, the words that matter most first.

    With F the probability of the true label, word i matters by what it adds to the text before it and after it:
    F(x_1..x_i) - F(x_1..x_{i-1}) + tail_weight * (F(x_i..x_n) - F(x_{i+1}..x_n)).

    Paper: Gao et al. 2018, "Black-box Generation of Adversarial Text Sequences to Evade Deep Learning Classifiers",
        section 3: the combined score (THS + lambda TTS) and its character transformations, at most 30 edits.
    Relations: Which error a word gets is drawn at random and never asked about beforehand, as in the paper.
        `Greedy(substitutions=Typos())` asks about every error of every word, which is stronger and dearer. Words
        that `substitutions` leaves alone (short ones) stay in the heads and tails.
    Cost: Two queries per word for the order, and one per edit.

    Args:
        substitutions: The errors: `Typos()` (swapped, dropped, repeated letters, neighbouring keys) where not given.
        edits: Most words that get an error.
        tail_weight: Lambda of the paper.

    Example:
        >>> DeepWordBug()(victim, examples)
    """

    name: ClassVar[str] = "deepwordbug"
    citation: ClassVar[tuple[str, ...]] = ("gao-etal-2018-black-box",)
    probe: ClassVar = "delete"

    substitutions: Substitutions = field(default_factory=Typos)
    scoring: Scoring = "probability"
    edits: int = 30  # paper section 4: the largest edit distance
    tail_weight: float = 1.0  # paper section 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.edits < 1:
            raise UnshakenError(f"edits is {self.edits}; it must be at least 1")

    def search(self, space: Space, clean: Scores, rng: np.random.Generator) -> Search:
        count = len(space)
        gone = np.tri(count, k=0, dtype=bool).T  # row i: position i and all behind it
        heads = yield Ask(rows=np.where(gone, np.int16(PROBE), space.clean))  # x_1..x_{i-1}
        tails = yield Ask(rows=np.where(gone.T, np.int16(PROBE), space.clean))  # x_{i+1}..x_n
        # Scores rise as the true label falls: what a word adds to F it takes from the score.
        whole = clean.values[0]
        left, right = (np.where(np.isfinite(part.values), part.values, whole) for part in (heads, tails))  # in budget
        by_head = left - np.append(left[1:], whole)
        by_tail = right - np.append(whole, right[:-1])
        order = np.argsort(-(by_head + self.tail_weight * by_tail), kind="stable")[: self.edits]
        choices = rng.integers(1, space.sizes)
        ask = ask_one_by_one if self.checks else ask_prefixes
        return (yield from ask(space, space.clean, order, choices[order]))
