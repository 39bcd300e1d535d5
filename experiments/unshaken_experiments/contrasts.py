"""What one change does in several methods at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unshaken_experiments.recipe import Recipe
from unshaken_experiments.runs import Outcome
from unshaken_experiments.table import OTHER_EXAMPLES, Cell, View, difference_of, table_of


def contrast(
    name: str,
    pairs: Sequence[tuple[str, str]],
    recipe: Recipe,
    outcomes: Mapping[str, Outcome],
    encoder: str,
    *,
    changes: Mapping[str, Any] | None = None,
    examples: int | None = None,
    clean_examples: int | None = None,
) -> list[Cell]:
    """What one change does in several methods: first less second method, the mean over pairs; a cell an accuracy.

    All pairs are measured on the same examples, so their differences are averaged example by example first.
    """
    import numpy as np

    view = View(recipe, outcomes, encoder, recipe.seeds, changes, (examples, clean_examples))
    methods = {method.name: method for method in recipe.methods}
    found = []
    for column in recipe.columns:
        if column.average or column.measure.what != "accuracy":
            continue
        if view.is_mixed(column, *(methods[method] for pair in pairs for method in pair)):
            found.append(Cell(method=name, column=column.name, why=OTHER_EXAMPLES))
            continue
        marks = {method: view.marks(methods[method], column) for pair in pairs for method in pair}
        seeds = sorted(set.intersection(*(set(of_method) for of_method in marks.values())))
        gains: dict[str, Any] = {}
        if seeds and len({len(of_method[seed]) for of_method in marks.values() for seed in seeds}) == 1:
            tables = {method: table_of(of_method, seeds) for method, of_method in marks.items()}
            gains = difference_of([np.mean([tables[one] - tables[other] for one, other in pairs], axis=0)])
        found.append(Cell(method=name, column=column.name, **gains))
    return found
