"""The figure of a recipe, drawn from its outcomes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from unshaken_experiments import paper_figures as papers
from unshaken_experiments.recipe import Method, Recipe
from unshaken_experiments.runs import Outcome
from unshaken_experiments.table import Cell, View


def draw(
    recipe: Recipe,
    outcomes: Mapping[str, Outcome],
    encoder: str,
    found: Sequence[Cell],
    *,
    seeds: Sequence[int] | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Any:
    """The figure; None where no number for it was run."""
    assert recipe.figure is not None
    view = View(recipe, outcomes, encoder, tuple(seeds or recipe.seeds), changes)
    of_first = {method.name: outcome for method in recipe.methods if (outcome := _first(view, method)) is not None}
    numbers = {(cell.method, cell.column): cell.ours for cell in found if cell.ours is not None}
    match recipe.figure.kind:
        case "distance":
            curves = {name: outcome.training["distance"] for name, outcome in of_first.items()}
            return papers.distance_curves(curves) if curves else None
        case "feature-map":
            return _feature_map(of_first)
        case "trade-off":
            return _trade_off(recipe, found)
        case "sweep":
            return _sweep(recipe, numbers)


def _first(view: View, method: Method) -> Outcome | None:
    """Of the first seed that has a training, which is the chosen one where there is a choice."""
    found = (view.outcome(method, view.recipe.measured[0], seed) for seed in view.seeds)
    return next((outcome for outcome in found if outcome is not None and outcome.training), None)


def _families(recipe: Recipe) -> dict[str, list[Any]]:
    families = defaultdict(list)
    for method in recipe.methods:
        families[method.family or method.name].append(method)
    return families


def _trade_off(recipe: Recipe, found: Sequence[Cell]) -> Any:
    assert recipe.figure is not None
    assert recipe.figure.x is not None
    clean, robust = recipe.figure.x, recipe.figure.y[0]
    cells = {(cell.method, cell.column): cell for cell in found if cell.ours is not None}
    points = {
        family: [
            (interval(cells[method.name, clean]), interval(cells[method.name, robust]))
            for method in methods
            if (method.name, clean) in cells and (method.name, robust) in cells
        ]
        for family, methods in _families(recipe).items()
    }
    named = {"plain" if family == "Standard" else family: pairs for family, pairs in points.items() if pairs}
    return papers.tradeoff(named, y_label=f"accuracy under {robust} (%)") if named else None


def interval(cell: Cell) -> papers.Interval:
    """A number with its ends, as shares; without an interval the ends are the number."""
    assert cell.ours is not None
    low, high = (cell.ours if end is None else end for end in (cell.low, cell.high))
    return cell.ours / 100, low / 100, high / 100


def _sweep(recipe: Recipe, numbers: Mapping[tuple[str, str], float]) -> Any:
    assert recipe.figure is not None
    lines = {}
    for column in recipe.figure.y:
        for family, methods in _families(recipe).items():
            points = [
                (method.x, numbers[method.name, column])
                for method in methods
                if method.x is not None and (method.name, column) in numbers
            ]
            if points:
                lines[f"{family}, {column}" if len(recipe.figure.y) > 1 else family] = points
    return papers.sweep(lines, x_label=recipe.figure.x or "", y_label=", ".join(recipe.figure.y)) if lines else None


def _feature_map(of_first: Mapping[str, Outcome]) -> Any:
    import numpy as np

    maps = {name: outcome.features for name, outcome in of_first.items() if outcome.features is not None}
    if not maps:
        return None
    features = {name: np.array(found["places"]) for name, found in maps.items()}
    one = next(iter(maps.values()))
    return papers.feature_map(features, one["labels"], one["label_names"])
