"""Exhaustive search: the exact answer where the space is small."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from unshaken.attacks.base import SearchAttack
from unshaken.attacks.questions import BLOCK_CELLS, Ask, Scores, Search
from unshaken.attacks.space import Space
from unshaken.errors import UnshakenError

if TYPE_CHECKING:
    from unshaken.attacks.many.cohort import Cohort


@dataclass(frozen=True, kw_only=True)
class Exhaustive(SearchAttack):
    """Ask about every text, those with the fewest changed words first.

    A failure proves that no text of the space fools the victim, and a success changes as few words as any can. Examples
    whose space is larger than `limit` end as errors and are counted apart; the accuracy is exact for those that remain.

    Relations: On SNLI-sized problems (about 2,000 texts per example) it is cheaper than `Genetic`, and exact.
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

    def joins_cohorts(self, space: Space) -> bool:
        return space.size <= self.limit  # the others end as errors, each by itself

    def search_many(self, cohort: Cohort, streams: Sequence[np.random.Generator]) -> Iterator[None]:
        every = {number: all_rows(cohort.spaces[number]) for number in cohort.active().tolist()}
        start, size = 1, 64
        while True:
            active = [number for number in cohort.active().tolist() if len(every[number]) > start]
            if not active:
                return
            for part in _parts(active, size * cohort.width):
                blocks = [every[number][start : start + size] for number in part]
                rows = np.concatenate([np.pad(block, ((0, 0), (0, cohort.width - block.shape[1]))) for block in blocks])
                owner = torch.from_numpy(np.repeat(part, [len(block) for block in blocks])).to(cohort.device)
                choices = torch.from_numpy(rows).to(cohort.device)
                cohort.settle(owner, choices, cohort.ask(owner, choices, in_order=True), first=True)
            start, size = start + size, min(2 * size, 8192)
            yield


def _parts(numbers: Sequence[int], cells: int) -> Iterator[Sequence[int]]:
    """So many examples at once that a question keeps within memory, where each brings so many choices."""
    step = max(1, BLOCK_CELLS // max(1, cells))
    for start in range(0, len(numbers), step):
        yield numbers[start : start + step]


def all_rows(space: Space) -> np.ndarray:
    """Every row of a space, (size, positions), by number of changed words and then in counting order."""
    numbers = np.arange(space.size)
    rows = np.stack(np.unravel_index(numbers, space.sizes.tolist()), axis=1).astype(np.int16)
    return np.asarray(rows[np.argsort((rows != 0).sum(1), kind="stable")])
