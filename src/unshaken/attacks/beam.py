"""Greedy and beam search over single swaps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from unshaken.attacks.base import SearchAttack
from unshaken.attacks.many.groups import first_of_equals, rank_of
from unshaken.attacks.questions import Scores, Search, ask_swaps
from unshaken.attacks.space import Space
from unshaken.errors import UnshakenError

if TYPE_CHECKING:
    from unshaken.attacks.many.cohort import Cohort


@dataclass(frozen=True, kw_only=True)
class Beam(SearchAttack):
    """Keep the `width` best texts, swap one more word in each in every way, until none is left to swap.

    A step that lowers the score is taken all the same: what follows may more than make up for it, as in TextAttack's
    greedy and beam search.

    Relations: `Greedy` is the beam of width 1. Unlike PWWS it looks at all words again after each swap.
    Cost: width * substitutes queries per swap.

    Args:
        width: Texts that are kept.

    Example:
        >>> Beam(width=4)(victim, examples)
    """

    name: ClassVar[str] = "beam"

    width: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width < 1:
            raise UnshakenError(f"the beam width is {self.width}; it must be at least 1")

    def search(self, space: Space, clean: Scores, rng: np.random.Generator) -> Search:
        beam = space.clean[None]
        while (beam == 0).any():
            swaps, scores = yield from ask_swaps(space, beam)
            winner = scores.winner()
            if winner is not None:
                return np.asarray(swaps.rows(beam, np.array([winner]))[0])
            # Enough to fill the beam: a text of k swaps is reached from at most k texts.
            order = np.argsort(-scores.values, kind="stable")[: self.width * len(beam)]
            best = order[np.isfinite(scores.values[order])]
            if not len(best):
                return None  # constraints refuse every further swap
            rows = swaps.rows(beam, best)
            _, first = np.unique(rows, axis=0, return_index=True)
            beam = rows[np.sort(first)[: self.width]]
        return None

    def search_many(self, cohort: Cohort, streams: Sequence[np.random.Generator]) -> Iterator[None]:
        owner = cohort.active()
        beam = cohort.clean_rows(owner)  # (texts of all beams, places), with the example of each in `owner`
        while len(owner):
            start, place, choice = cohort.single_swaps(owner, beam)
            of = owner[start]
            rows = beam[start].scatter_(1, place[:, None], choice[:, None].short())
            answers = cohort.ask(of, rows, previous=beam[start])
            cohort.settle(of, rows, answers)
            yield
            beams = torch.zeros_like(cohort.places).index_add(0, owner, torch.ones_like(owner))
            order = answers.values.sort(dim=0, descending=True, stable=True).indices
            order = order[of[order].sort(dim=0, stable=True).indices]  # by example, and the best first within it
            open_still = answers.values[order].isfinite() & cohort.alive[of[order]]
            tried = open_still & (
                rank_of(torch.ones_like(open_still), of[order], len(cohort)) <= self.width * beams[of[order]]
            )
            order = order[tried]
            order = order[first_of_equals(rows[order], of[order])]
            order = order[rank_of(torch.ones_like(order, dtype=torch.bool), of[order], len(cohort)) <= self.width]
            owner, beam = of[order], rows[order]


@dataclass(frozen=True, kw_only=True)
class Greedy(Beam):
    """Take the single swap that helps most, again and again.

    Relations: `Beam(width=1)`.
    Cost: All substitutes of all words not yet swapped, for each swap.

    Example:
        >>> Greedy()(victim, examples)
    """

    name: ClassVar[str] = "greedy"

    width: int = 1
