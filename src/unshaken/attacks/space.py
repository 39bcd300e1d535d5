"""`Space`: what an attacker may do to one example."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from unshaken.attacks.constraints.base import Candidate
from unshaken.examples import Example
from unshaken.wordings.choices import PROBE as PROBE  # re-exported: searches write it into their rows
from unshaken.wordings.choices import Wordings
from unshaken.wordings.choices import ragged_arange as ragged_arange


@dataclass(frozen=True, eq=False, kw_only=True)
class Space(Wordings):
    """The search space of one example: its wordings under an attack's constraints.

    A candidate is a row of choices, one for each position: 0 keeps the word, k takes its k-th substitute, `PROBE` blots
    it out. Searches work on rows; only the engine turns them into texts or tokens.
    """

    example: Example
    frozen_columns: tuple[int, ...] = ()

    @property
    def word_count(self) -> int:
        return sum(len(words) for column, words in enumerate(self.words) if column not in self.frozen_columns)


def candidates_of(
    space: Space, row: np.ndarray, previous: np.ndarray | None, changed_only: bool = False
) -> Iterator[Candidate]:
    """A row as constraints see it: one candidate a changed column, or only the column in which it left `previous`."""
    now, before = space.by_column(row), {} if previous is None else space.by_column(previous)
    for column, swaps in now.items():
        if not changed_only or swaps != before.get(column, {}):
            yield Candidate(original=space.words[column], swaps=swaps, previous=before.get(column, {}), column=column)
