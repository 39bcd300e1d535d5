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

    Attributes:
        texts: The texts as they are, one for each column.
        places: Column and word number of each place, in reading order.
        forms: Of each place, the word and then its substitutes in its case.
        probe: What `PROBE` writes; there are no probes if None.
    """

    texts: tuple[str, ...]
    places: tuple[tuple[int, int], ...]
    forms: tuple[tuple[str, ...], ...]
    probe: str | None = None

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
        """How many choices each place has, the word itself included. (places,)"""
        return np.array([len(forms) for forms in self.forms], np.int64)

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

    def form(self, position: int, choice: int) -> str:
        """What a choice writes at a place."""
        if choice != PROBE:
            return self.forms[position][choice]
        if self.probe is None:
            raise ValueError("these wordings have no probe")
        return self.probe

    def write(self, row: Sequence[int] | Array) -> tuple[str, ...]:
        """The texts of one wording."""
        edits: dict[int, list[tuple[int, int, str]]] = {}
        for position in np.flatnonzero(row).tolist():
            column, word = self.places[position]
            edits.setdefault(column, []).append(
                (*self.words[column].spans[word], self.form(position, int(row[position])))
            )
        return tuple(_edited(text, edits[at]) if at in edits else text for at, text in enumerate(self.texts))

    def swaps(self, row: Array) -> tuple[tuple[int, int, str, str], ...]:
        """(column, word number, before, after) of each changed word."""
        return tuple(
            (*self.places[position], self.forms[position][0], self.form(position, int(row[position])))
            for position in np.flatnonzero(row).tolist()
        )


def ragged_arange(counts: Array) -> Array:
    """0..c-1 for each count, end to end: [2, 3] -> [0, 1, 0, 1, 2]."""
    return np.asarray(np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts))


def _edited(text: str, edits: list[tuple[int, int, str]]) -> str:
    parts, end = [], 0
    for start, next_end, form in edits:
        before = text[end:start]
        # A deleted word takes one blank along, as if it had never been typed.
        parts.append(before[:-1] if not form and before.endswith(" ") else before)
        parts.append(form)
        end = next_end
    return "".join([*parts, text[end:]])
