"""Exhaustive search: the exact answer where the space is small."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unshaken.attacks.base import SearchAttack
from unshaken.attacks.questions import Ask, Scores, Search
from unshaken.attacks.space import Space
from unshaken.errors import UnshakenError


@dataclass(frozen=True, kw_only=True)
class Exhaustive(SearchAttack):
    """Ask about every text, those with the fewest changed words first.

    A failure proves that no text of the space fools the victim, and a success changes as few words as any can. Examples
    whose space is larger than `limit` end as errors and are counted apart; the accuracy is exact for those that remain.

    Relations: On SNLI-sized problems (about 2,000 texts an example) it is cheaper than `Genetic`, and exact.
    Cost: The size of the space where the victim holds; less where it does not.

    Args:
        limit: Largest space, in texts.

    Example:
        >>> Exhaustive(limit=20_000, frozen_columns=("premise",))(victim, examples)
    """

    name: ClassVar[str] = "exhaustive"
    needs_scores: ClassVar[bool] = False

    limit: int = 100_000

    def search(self, space: Space, clean: Scores, rng: np.random.Generator) -> Search:
        if space.size > self.limit:
            raise UnshakenError(
                f"the space has 10^{space.log10_size:.1f} texts, more than the limit of {self.limit}; raise it or use "
                "genetic"
            )
        rows = all_rows(space)
        start, size = 1, 64  # the first row is the clean text
        while start < len(rows):
            block = rows[start : start + size]
            scores = yield Ask(rows=block, in_order=True)
            if scores.success.any():
                return np.asarray(block[scores.success.argmax()])
            start, size = start + size, min(2 * size, 8192)
        return None


def all_rows(space: Space) -> np.ndarray:
    """Every row of a space, (size, positions), by number of changed words and then in counting order."""
    numbers = np.arange(space.size)
    rows = np.stack(np.unravel_index(numbers, space.sizes.tolist()), axis=1).astype(np.int16)
    return np.asarray(rows[np.argsort((rows != 0).sum(1), kind="stable")])
