"""Recipes of many examples at once: one pass over their parts, and slices of arrays that are made once for all."""

from __future__ import annotations

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
    slots: list[tuple[int, int, int, int]] = []  # as in `Recipe`, counting entries over all examples
    entries: list[int] = []
    ends = [(0, 0)]  # of the slots and entries of each example
    specials = [
        [(pool.number_of_token(token), of) for token, of in zip(*own, strict=True)] for own in template.specials
    ]

    def add(numbers: tuple[int, ...], place: int, column: int, kind: int) -> None:
        slots.append((len(entries), place, column, kind))
        entries.extend(numbers)

    for columns in examples:
        place = 0
        for number, (column, kind) in enumerate(zip(columns, template.kinds, strict=True)):
            for token, of in specials[number]:
                add((token,), FIXED, SPECIAL, of)
            for before, forms in zip(column.fixed, column.choices, strict=True):
                fixed = pool.number(before)
                if fixed != EMPTY:
                    add((fixed,), FIXED, number, kind)
                add(pool.group(forms), place, number, kind)
                place += 1
            tail = pool.number(column.tail)
            if tail != EMPTY:
                add((tail,), FIXED, number, kind)
        for token, of in specials[-1]:
            add((token,), FIXED, SPECIAL, of)
        ends.append((len(slots), len(entries)))
    return _sliced(pool, examples, np.array(slots, np.int64).reshape(-1, 4), entries, ends)


def _sliced(
    pool: PiecePool,
    examples: Sequence[Sequence[Column]],
    slots: Array,
    entries: Sequence[int],
    ends: Sequence[tuple[int, int]],
) -> list[Recipe]:
    if not examples:
        return []
    numbers, (slot_ends, entry_ends) = np.array(entries, np.int64), np.array(ends, np.int64).T
    longest = np.maximum.reduceat(pool.lengths()[numbers], slots[:, 0]) if len(slots) else slots[:, 0]
    special = slots[:, 2] == SPECIAL
    so_far = [np.concatenate([[0], np.cumsum(of)])[slot_ends] for of in (special, np.where(special, 0, longest))]
    slots[:, 0] -= np.repeat(entry_ends[:-1], np.diff(slot_ends))
    return [
        Recipe(
            pool=pool,
            slots=slots[ends[number][0] : ends[number + 1][0]],
            entries=numbers[ends[number][1] : ends[number + 1][1]],
            counts=np.array([len(forms) for column in columns for forms in column.choices], np.int64),
            specials=specials,
            longest=others,
        )
        for number, (columns, specials, others) in enumerate(
            zip(examples, *(np.diff(of).tolist() for of in so_far), strict=True)
        )
    ]
