"""An attack on decisions alone, for victims that give no scores."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unshaken.attacks.base import SearchAttack
from unshaken.attacks.questions import Ask, Scores, Search
from unshaken.attacks.space import Space
from unshaken.errors import UnshakenError

BLOCK = 16  # draws that are asked about together; only those up to the first success count


@dataclass(frozen=True, kw_only=True)
class HardLabel(SearchAttack):
    """Draw texts until one is decided wrongly, then take back every swap that is not needed, and soften the others.

    Of the victim's answers it reads the decision and nothing else, so it works on an API that gives labels
    (`Victim.from_labels`), and no masking of scores can mislead it.

    Paper: After Maheshwary et al. 2021, "Generating Natural Language Attacks in a Hard Label Black Box Setting",
        section 3: random start (3.1), and the reduction of the search space (3.2), which takes swaps back one by one.
        Their third step breeds texts by an encoder's similarity; here a swap is exchanged for a nearer substitute, as
        `substitutions` ranks them.
    Relations: `Random` with an end: the same chance to fool the victim, with far fewer words changed.
    Cost: Up to `samples` queries, one for each swap of the first success, and one for each nearer substitute tried.

    Args:
        samples: Most texts drawn for the start.

    Example:
        >>> HardLabel()(Victim.from_labels(api, num_labels=2), examples)
    """

    name: ClassVar[str] = "hard-label"
    needs_scores: ClassVar[bool] = False
    citation: ClassVar[tuple[str, ...]] = ("maheshwary-etal-2021-generating",)

    samples: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples < 1:
            raise UnshakenError(f"samples is {self.samples}; it must be at least 1")

    def search(self, space: Space, clean: Scores, rng: np.random.Generator) -> Search:
        row, left = yield from self._start(space, rng)
        if row is None:
            return None
        # Where the budget ends, what was found is kept.
        for position in np.argsort(-row, kind="stable")[: np.count_nonzero(row)].tolist():  # the farthest first
            without = space.with_choice(row, position, 0)
            if left < 1:
                return row
            scores = yield Ask(rows=without[None], previous=row)
            left -= 1
            if scores.success[0]:
                row = without
        for position in np.flatnonzero(row).tolist():
            count = int(min(row[position] - 1, left))
            nearer = np.repeat(row[None], count, axis=0)
            nearer[:, position] = np.arange(1, count + 1)
            if count:
                scores = yield Ask(rows=nearer, in_order=True, previous=row)
                left -= queries_of(scores)
                if scores.success.any():
                    row = nearer[scores.success.argmax()]
        return row

    def _start(self, space: Space, rng: np.random.Generator) -> Generator[Ask, Scores, tuple[np.ndarray | None, float]]:
        """The first text drawn that is decided wrongly, and the queries left."""
        left = math.inf if self.query_budget is None else self.query_budget - 1
        for first in range(0, self.samples, BLOCK):
            count = min(BLOCK, self.samples - first)
            rows = rng.integers(space.sizes, size=(count, len(space)), dtype=np.int16)
            scores = yield Ask(rows=rows[: max(1, int(min(left, count)))], in_order=True)
            left -= queries_of(scores)
            if scores.success.any():
                return np.asarray(rows[scores.success.argmax()]), left
        return None, left


def queries_of(scores: Scores) -> int:
    """What a question in order has cost: up to the first success."""
    return int(scores.success.argmax()) + 1 if scores.success.any() else len(scores.success)
