"""Recipes of many examples at once: one pass over their parts, and slices of arrays that are made once for all."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from unshaken.wordings.choices import Array
from unshaken.wordings.cuts import Column
from unshaken.wordings.pool import EMPTY, PiecePool
from unshaken.wordings.table import FIXED, SPECIAL, Recipe, Template


def recipes_of(pool: PiecePool, template: Template, examples: Sequence[Sequence[Column]]) -> list[Recipe]:
    """How the tokens of examples are put together.

    Args:
        pool: Knows all their parts.
        template: The special tokens around the columns.
        examples: The parts of each of their columns.
    """
    groups: list[tuple[int, ...]] = []  # the token lists of each slot
    places: list[int] = []
    runs: list[tuple[int, int, int]] = []  # slots that have a column and a kind in common
    ends = [0]  # of the slots of each example
    specials = [
        [(pool.number_of_token(token), of) for token, of in zip(*own, strict=True)] for own in template.specials
    ]

    def add_specials(number: int) -> None:
        for token, of in specials[number]:
            groups.append((token,))
            places.append(FIXED)
            runs.append((1, SPECIAL, of))

    for columns in examples:
        place = 0
        for number, (column, kind) in enumerate(zip(columns, template.kinds, strict=True)):
            add_specials(number)
            before = len(groups)
            chosen, fixed = pool.groups(column.choices), pool.numbers((*column.fixed, column.tail))
            if fixed.count(EMPTY) == len(fixed):
                groups += chosen
                places += range(place, place + len(chosen))
                fixed = []
            for at, list_number in enumerate(fixed):
                if list_number != EMPTY:
                    groups.append((list_number,))
                    places.append(FIXED)
                if at < len(chosen):
                    groups.append(chosen[at])
                    places.append(place + at)
            place += len(chosen)
            runs.append((len(groups) - before, number, kind))
        add_specials(-1)
        ends.append(len(groups))
    counts, columns_of, kinds = np.array(runs, np.int64).reshape(-1, 3).T
    sizes = np.fromiter(map(len, groups), np.int64, len(groups))
    entries = np.fromiter(itertools.chain.from_iterable(groups), np.int64, int(sizes.sum()))
    first = np.cumsum(sizes) - sizes
    slots = np.stack([first, np.array(places, np.int64), np.repeat(columns_of, counts), np.repeat(kinds, counts)], 1)
    return _sliced(pool, slots, sizes, entries, np.array(ends))


def _sliced(pool: PiecePool, slots: Array, sizes: Array, entries: Array, ends: Array) -> list[Recipe]:
    if len(ends) == 1:
        return []
    longest = np.maximum.reduceat(pool.lengths()[entries], slots[:, 0]) if len(slots) else slots[:, 0]
    special = slots[:, 2] == SPECIAL
    so_far = [np.concatenate([[0], np.cumsum(of)])[ends] for of in (special, np.where(special, 0, longest))]
    entry_ends = np.append(slots[:, 0], len(entries))[ends]
    slots[:, 0] -= np.repeat(entry_ends[:-1], np.diff(ends))
    chosen = slots[:, 1] != FIXED
    choice_ends, choices = np.concatenate([[0], np.cumsum(chosen)])[ends], sizes[chosen]
    bounds = zip(*(itertools.pairwise(of.tolist()) for of in (ends, entry_ends, choice_ends)), strict=True)
    return [
        Recipe(
            pool=pool,
            slots=slots[slice(*of_slots)],
            entries=entries[slice(*of_entries)],
            counts=choices[slice(*of_choices)],
            specials=own,
            longest=others,
        )
        for (of_slots, of_entries, of_choices), own, others in zip(
            bounds, *(np.diff(of).tolist() for of in so_far), strict=True
        )
    ]
