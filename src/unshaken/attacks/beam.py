"""Greedy and beam search over single swaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unshaken.attacks.base import Scores, Search, SearchAttack, ask_swaps
from unshaken.attacks.space import Space
from unshaken.errors import UnshakenError


@dataclass(frozen=True, kw_only=True)
class Beam(SearchAttack):
    """Keep the `width` best texts, swap one more word in each in every way, and go on while that helps.

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
        beam, value = space.clean[None], clean.values[0]
        for _ in range(len(space)):
            rows, values = [], []
            for row in beam:
                open_positions = np.flatnonzero(row == 0)
                changed, choices, scores = yield from ask_swaps(space, row, open_positions, previous=row)
                kept = np.argsort(-scores.values, kind="stable")[: self.width]
                best = int(kept[0])
                if scores.success[best]:
                    return space.with_choice(row, int(changed[best]), int(choices[best]))
                for number in kept.tolist():
                    rows.append(space.with_choice(row, int(changed[number]), int(choices[number])))
                    values.append(scores.values[number])
            distinct, first = np.unique(np.stack(rows), axis=0, return_index=True)
            scored = np.array(values)[first]
            if not scored.max() > value:
                return None
            kept = np.lexsort((first, -scored))[: self.width]
            beam, value = distinct[kept], scored.max()
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
