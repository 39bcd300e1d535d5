"""Greedy and beam search over single swaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unshaken.attacks.base import SearchAttack
from unshaken.attacks.questions import Scores, Search, ask_swaps
from unshaken.attacks.space import Space
from unshaken.errors import UnshakenError


@dataclass(frozen=True, kw_only=True)
class Beam(SearchAttack):
    """Keep the `width` best texts, swap one more word in each in every way, until none is left to swap.

    A step that lowers the score is taken all the same: what follows may more than make up for it, as in TextAttack's
    greedy and beam search.

    Relations: `Greedy` is the beam of width 1. Unlike PWWS it looks at all words again after each swap.
    Cost: width * substitutes queries a swap.

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
