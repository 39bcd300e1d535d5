"""Random substitution: the floor every search must beat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from unshaken.attacks.base import SearchAttack
from unshaken.attacks.questions import Ask, Scores, Search
from unshaken.attacks.space import Space
from unshaken.errors import UnshakenError

if TYPE_CHECKING:
    from unshaken.attacks.many.cohort import Cohort


@dataclass(frozen=True, kw_only=True)
class Random(SearchAttack):
    """Draw texts from the whole space, each word uniformly from its choices, until one succeeds.

    Relations: The sanity floor. A search that finds less than this with as many queries is broken, or the victim's
        scores mislead it.
    Cost: Up to `samples` queries.

    Args:
        samples: Most texts drawn.

    Example:
        >>> Random(samples=50)(victim, examples)
    """

    name: ClassVar[str] = "random"
    needs_scores: ClassVar[bool] = False

    samples: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples < 1:
            raise UnshakenError(f"samples is {self.samples}; it must be at least 1")

    def search(self, space: Space, clean: Scores, rng: np.random.Generator) -> Search:
        left, size = self.samples, 8
        while left > 0:
            rows = rng.integers(space.sizes, size=(min(size, left), len(space)), dtype=np.int16)
            scores = yield Ask(rows=rows, in_order=True)
            if scores.success.any():
                return np.asarray(rows[scores.success.argmax()])
            left, size = left - size, min(2 * size, 256)
        return None

    def search_many(self, cohort: Cohort, streams: Sequence[np.random.Generator]) -> Iterator[None]:
        left, size = self.samples, 8
        while left > 0:
            active = cohort.active()
            if not len(active):
                return
            count = min(size, left)
            drawn = np.zeros((len(active), count, cohort.width), np.int16)
            for row, number in enumerate(active.tolist()):
                sizes = cohort.spaces[number].sizes
                drawn[row, :, : len(sizes)] = streams[number].integers(sizes, size=(count, len(sizes)), dtype=np.int16)
            rows = torch.from_numpy(drawn).to(cohort.device).flatten(0, 1)
            owner = active.repeat_interleave(count)
            cohort.settle(owner, rows, cohort.ask(owner, rows, in_order=True), first=True)
            left, size = left - size, min(2 * size, 256)
            yield
