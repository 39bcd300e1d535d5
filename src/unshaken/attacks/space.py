"""`Space`: what an attacker may do to one example, as small integer rows over its attackable positions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from unshaken.attacks.constraints.base import Candidate
from unshaken.examples import Example
from unshaken.substitutions.words import Words
from unshaken.victims.base import Texts

PROBE = -1  # the choice that blots a word out, for attacks that ask how much it matters; never part of an answer


@dataclass(frozen=True, kw_only=True)
class Space:
    """The search space of one example.

    A candidate is a row of choices, one a position: 0 keeps the word, k takes its k-th substitute, `PROBE` blots it
    out. Searches work on rows; only the engine turns them into texts or tokens.
    """

    example: Example
    words: tuple[Words, ...]  # one a column
    places: tuple[tuple[int, int], ...]  # (column, word number) of each position, in reading order
    forms: tuple[tuple[str, ...], ...]  # of each position: the word, its substitutes, and last what PROBE writes
    frozen_columns: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.places)

    @cached_property
    def sizes(self) -> np.ndarray:
        """(positions,) how many choices each position has, the word itself included."""
        return np.array([len(forms) - 1 for forms in self.forms], np.int64)

    @property
    def log10_size(self) -> float:
        return float(np.log10(self.sizes).sum()) if len(self) else 0.0

    @property
    def size(self) -> int:
        return math.prod(self.sizes.tolist())

    @property
    def word_count(self) -> int:
        return sum(len(words) for column, words in enumerate(self.words) if column not in self.frozen_columns)

    @property
    def clean(self) -> np.ndarray:
        return np.zeros(len(self), np.int16)

    def with_choice(self, row: np.ndarray, position: int, choice: int) -> np.ndarray:
        changed = row.copy()
        changed[position] = choice
        return changed

    def substitutes_at(self, row: np.ndarray, position: int) -> np.ndarray:
        """The row with each substitute at one position, (substitutes, positions)."""
        rows = np.repeat(row[None], self.sizes[position] - 1, axis=0)
        rows[:, position] = np.arange(1, self.sizes[position])
        return rows

    def single_swaps(self, row: np.ndarray, positions: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """All rows that differ from `row` by one substitute, and which position each of them changes."""
        positions = np.arange(len(self)) if positions is None else positions
        counts = self.sizes[positions] - 1
        changed = np.repeat(positions, counts)
        rows = np.repeat(row[None], len(changed), axis=0)
        rows[np.arange(len(changed)), changed] = ragged_arange(counts) + 1
        return rows, changed

    def texts(self, row: np.ndarray) -> Texts:
        """The texts a row stands for."""
        edits: dict[int, list[tuple[int, int, str]]] = {}
        for position in np.flatnonzero(row).tolist():
            column, word = self.places[position]
            edits.setdefault(column, []).append((*self.words[column].spans[word], self.forms[position][row[position]]))
        return tuple(
            _edited(text, edits[column]) if column in edits else text for column, text in enumerate(self.example.texts)
        )

    def swaps(self, row: np.ndarray) -> tuple[tuple[int, int, str, str], ...]:
        """(column, word number, before, after) of each changed word."""
        return tuple(
            (*self.places[position], self.forms[position][0], self.forms[position][row[position]])
            for position in np.flatnonzero(row).tolist()
        )


def ragged_arange(counts: np.ndarray) -> np.ndarray:
    """0..c-1 for each count, end to end: [2, 3] -> [0, 1, 0, 1, 2]."""
    return np.asarray(np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts))


def candidates_of(
    space: Space, row: np.ndarray, previous: np.ndarray | None, changed_only: bool = False
) -> Iterator[Candidate]:
    """A row as constraints see it: one candidate a changed column, or only the column in which it left `previous`."""
    now, before = _by_column(space, row), _by_column(space, previous)
    for column, swaps in now.items():
        if not changed_only or swaps != before.get(column, {}):
            yield Candidate(original=space.words[column], swaps=swaps, previous=before.get(column, {}), column=column)


def _by_column(space: Space, row: np.ndarray | None) -> dict[int, dict[int, str]]:
    swaps: dict[int, dict[int, str]] = {}
    if row is not None:
        for position in np.flatnonzero(row).tolist():
            column, word = space.places[position]
            swaps.setdefault(column, {})[word] = space.forms[position][row[position]]
    return swaps


def _edited(text: str, edits: list[tuple[int, int, str]]) -> str:
    parts, end = [], 0
    for start, next_end, form in edits:
        before = text[end:start]
        # A deleted word takes one space along, as if it had never been typed.
        parts.append(before[:-1] if not form and before.endswith(" ") else before)
        parts.append(form)
        end = next_end
    return "".join([*parts, text[end:]])
