"""`Wordings`: the choices of one example, as small integer rows over the places where it may change."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from unshaken.substitutions.words import Words, match_case, segment

Array = np.ndarray[Any, np.dtype[Any]]

PROBE = -1  # the choice that blots a word out, for attacks that ask how much it matters; never part of an answer


@dataclass(frozen=True, eq=False, kw_only=True)
class Wordings:
    """All that may be written in place of one example.

    A wording is a row of choices, one for each place: 0 keeps the word, k takes its k-th substitute, and `PROBE` blots
    it out. Searches and defences work on rows; only at the end do they become texts or tokens.

    Two words may also be merged into one: the first place takes a form that stands for both, and the next place its
    last form, which is empty. Neither choice is made without the other, so `sizes` leaves them out.

    Attributes:
        texts: The texts as they are, one for each column.
        places: Column and word number of each place, in reading order.
        forms: Of each place, the word and then its substitutes in its case; then the words that it may be merged into
            with the next place, and then nothing, where it may be merged into the place before.
        probe: What `PROBE` writes; there are no probes if None.
        merged: How many words each place may be merged into with the next one; none anywhere if empty.
    """

    texts: tuple[str, ...]
    places: tuple[tuple[int, int], ...]
    forms: tuple[tuple[str, ...], ...]
    probe: str | None = None
    merged: tuple[int, ...] = ()

    @classmethod
    def of(cls, texts: tuple[str, ...], candidates: Sequence[Sequence[Sequence[str]]]) -> Wordings:
        """From the candidates of every word of every column; words without any stay as they are."""
        found = [
            (column, position, (surface, *(match_case(surface, substitute) for substitute in substitutes)))
            for column, (text, per_word) in enumerate(zip(texts, candidates, strict=True))
            for position, (surface, substitutes) in enumerate(zip(segment(text), per_word, strict=False))
            if substitutes
        ]
        return cls(texts=texts, places=tuple(at[:2] for at in found), forms=tuple(at[2] for at in found))

    def __len__(self) -> int:
        return len(self.places)

    @cached_property
    def words(self) -> tuple[Words, ...]:
        """The words of each column."""
        return tuple(segment(text) for text in self.texts)

    @cached_property
    def sizes(self) -> Array:
        """How many choices each place has by itself, the word included. (places,)"""
        sizes = np.array([len(forms) for forms in self.forms], np.int64)
        if self.merged:
            sizes -= self.merged
            sizes[1:] -= np.array(self.merged[:-1]) > 0
        return sizes

    @cached_property
    def hashes(self) -> Array:
        """A number for each form that depends on it and on the word it replaces, equal on every machine. (forms,)"""
        return np.array(
            [
                zlib.crc32(f"{forms[0]}\0{form}".lower().encode("utf-8", "surrogatepass"))
                for forms in self.forms
                for form in forms
            ],
            np.uint32,
        )

    @property
    def log10_size(self) -> float:
        return float(np.log10(self.sizes).sum()) if len(self) else 0.0

    @property
    def size(self) -> int:
        """How many wordings there are."""
        return math.prod(self.sizes.tolist())

    @property
    def clean(self) -> Array:
        return np.zeros(len(self), np.int16)

    def with_choice(self, row: Array, position: int, choice: int) -> Array:
        changed = row.copy()
        changed[position] = choice
        return changed

    def substitutes_at(self, row: Array, position: int) -> Array:
        """The row with each substitute at one place, (substitutes, places)."""
        rows = np.repeat(row[None], self.sizes[position] - 1, axis=0)
        rows[:, position] = np.arange(1, self.sizes[position])
        return rows

    def single_swaps(self, row: Array, positions: Array | None = None) -> tuple[Array, Array]:
        """All rows that differ from `row` by one substitute, and which place each of them changes."""
        positions = np.arange(len(self)) if positions is None else positions
        counts = self.sizes[positions] - 1
        changed = np.repeat(positions, counts)
        rows = np.repeat(row[None], len(changed), axis=0)
        rows[np.arange(len(changed)), changed] = ragged_arange(counts) + 1
        return rows, changed

    def merges(self) -> tuple[Array, Array]:
        """All rows in which two words are one and the others as they are, and the place of the first of the two."""
        counts = np.array(self.merged, np.int64)
        first = np.repeat(np.arange(len(counts)), counts)
        rows = np.repeat(self.clean[None], len(first), axis=0)
        each = np.arange(len(first))
        rows[each, first] = self.sizes[first] + ragged_arange(counts)
        rows[each, first + 1] = [len(self.forms[place]) - 1 for place in (first + 1).tolist()]
        return rows, first

    def form(self, position: int, choice: int) -> str:
        """What a choice writes at a place."""
        if choice != PROBE:
            return self.forms[position][choice]
        if self.probe is None:
            raise ValueError("these wordings have no probe")
        return self.probe

    def write(self, row: Sequence[int] | Array) -> tuple[str, ...]:
        """The texts of one wording."""
        swaps = self.by_column(row)
        return tuple(
            self.words[at].replace(swaps[at], carry_case=False) if at in swaps else text
            for at, text in enumerate(self.texts)
        )

    def by_column(self, row: Sequence[int] | Array) -> dict[int, dict[int, str]]:
        """What is written in place of which words, of each column in which any is."""
        swaps: dict[int, dict[int, str]] = {}
        for position in np.flatnonzero(row).tolist():
            column, word = self.places[position]
            swaps.setdefault(column, {})[word] = self.form(position, int(row[position]))
        return swaps

    def swaps(self, row: Array) -> tuple[tuple[int, int, str, str], ...]:
        """(column, word number, before, after) of each changed word."""
        changed = ((at, self.form(at, int(row[at]))) for at in np.flatnonzero(row).tolist())
        # A word that takes in the next one may stay as it is.
        return tuple((*self.places[at], self.forms[at][0], form) for at, form in changed if form != self.forms[at][0])


def ragged_arange(counts: Array) -> Array:
    """0..c-1 for each count, end to end: [2, 3] -> [0, 1, 0, 1, 2]."""
    return np.asarray(np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts))
