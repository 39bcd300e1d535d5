"""What a recipe leaves behind: a Markdown page, the numbers as JSON, and its figure."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

from unshaken.errors import UnshakenError
from unshaken.files import write_json, write_text
from unshaken.substitutions.reach import HullCoverage
from unshaken_experiments.recipe import Recipe
from unshaken_experiments.runs import Outcome
from unshaken_experiments.schedule import at_most
from unshaken_experiments.table import Cell, View, cells, choices_line, markdown, mean_of, star_counts


@dataclass(frozen=True, kw_only=True)
class Saved:
    """Where the results are, and what a terminal shows of them."""

    paths: tuple[Path, ...]
    terminal: Any


def require_extras(recipes: Sequence[Recipe]) -> None:
    """Refuse before hours are spent what the page at their end would need."""
    needed = {"scipy"}
    for recipe in recipes:
        if recipe.figure is not None:
            needed |= {"matplotlib", "sklearn"} if recipe.figure.kind == "feature-map" else {"matplotlib"}
    missing = sorted(name for name in needed if importlib.util.find_spec(name) is None)
    if missing:
        raise UnshakenError(f"the results need {' and '.join(missing)}: pip install 'unshaken[report]'")


def save_results(
    recipe: Recipe,
    outcomes: Mapping[str, Outcome],
    encoder: str,
    out: Path,
    *,
    seeds: Sequence[int] | None = None,
    changes: Mapping[str, Any] | None = None,
    examples: int | None = None,
    clean_examples: int | None = None,
) -> Saved:
    """Write `NAME.md`, `NAME.json` and, for a figure with numbers, `NAME.png` and `NAME.svg`."""
    limits = {"examples": examples, "clean_examples": clean_examples}
    found = cells(recipe, outcomes, encoder, seeds=seeds, changes=changes, **limits)
    covered = coverage_line(recipe, outcomes, encoder, seeds=seeds, changes=changes)
    paths = [
        write_text(
            out / f"{recipe.name}.md",
            page(recipe, found, encoder, {**(changes or {}), **_fewer(recipe, examples, clean_examples)}, covered),
        ),
        write_json(
            out / f"{recipe.name}.json",
            {"recipe": recipe.name, "encoder": encoder, "cells": [asdict(cell) for cell in found]},
        ),
    ]
    if recipe.figure is not None:
        from unshaken.reports.figures import save_figure
        from unshaken_experiments.figure import draw

        figure = draw(recipe, outcomes, encoder, found, seeds=seeds, changes=changes)
        if figure is not None:
            paths += save_figure(figure, out / recipe.name)
    return Saved(paths=tuple(paths), terminal=_terminal(recipe, found))


def _fewer(recipe: Recipe, examples: int | None, clean_examples: int | None) -> dict[str, int]:
    """What was measured on fewer examples than the recipe says."""
    kinds = {"attacked examples at most": (examples, None), "clean examples at most": (None, clean_examples)}
    return {
        what: limit
        for what, limits in kinds.items()
        if (limit := max(limits, key=bool)) is not None
        and any(at_most(column.measure, *limits) != column.measure for column in recipe.columns if column.measure)
    }


def page(
    recipe: Recipe, found: Sequence[Cell], encoder: str, changes: Mapping[str, Any], coverage: str | None = None
) -> str:
    """The recipe as Markdown: what it claims, with which settings, the table, and what was not run."""
    lines = [f"# {recipe.title}", "", recipe.about.strip(), "", markdown(recipe, found, encoder=encoder), ""]
    lines += [star_counts(found, recipe.baseline), ""]
    lines += [f"Encoder: {encoder}. " + settings_line(recipe, changes), ""]
    lines += [] if coverage is None else [coverage, ""]
    lines += [f"- {note}" for note in recipe.notes]
    lines += [f"- Not run: {absent.what}: {absent.why}" for absent in recipe.not_run]
    return "\n".join(lines).rstrip() + "\n"


def coverage_line(
    recipe: Recipe,
    outcomes: Mapping[str, Outcome],
    encoder: str,
    *,
    seeds: Sequence[int] | None = None,
    changes: Mapping[str, Any] | None = None,
) -> str | None:
    """How much of what attacks may write the hulls of a table's methods held; None where no method has one."""
    hulls: dict[str, HullCoverage] = {}
    view = View(recipe, outcomes, encoder, tuple(seeds or recipe.seeds), changes)
    for method, column, seed in itertools.product(recipe.methods, recipe.measured, view.seeds):
        outcome = view.outcome(method, column, seed)
        found = None if outcome is None else HullCoverage.read(outcome.training.get("facts"))
        if found is not None:
            hulls[method.name] = min(found, hulls.get(method.name, found), key=lambda hull: hull.substitutes)
    if not hulls:
        return None
    by_share: dict[str, list[str]] = {}
    for name, hull in hulls.items():
        share = f"{hull.substitutes:.0%}{'' if hull.is_enough else ' **(below 95%)**'}"
        by_share.setdefault(share, []).append(name)
    told = [f"{share}: {'; '.join(names)}" for share, names in by_share.items()]
    return f"Substitutes that the hull held in training, {'. '.join(told)}."


def settings_line(recipe: Recipe, changes: Mapping[str, Any]) -> str:
    """The settings by where they come from."""

    def listed(values: Mapping[str, Any]) -> str:
        return ", ".join(f"{key} {value}" for key, value in values.items())

    kept = {key: value for key, value in recipe.paper_settings.items() if key not in changes}
    ours = {key: value for key, value in recipe.our_settings.items() if key not in changes}
    parts = [f"{recipe.paper} states: {listed(kept)}"] if kept else []
    parts += [f"ours: {listed(ours)}"] if ours else []
    parts += [f"changed for this run: {listed(changes)}"] if changes else []
    return ("; ".join(parts) + ".") if parts else ""


def _terminal(recipe: Recipe, found: Sequence[Cell]) -> Any:
    """paper / ours / interval / difference, a line a number; below them what was chosen."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(recipe.title), title_justify="left")
    for heading in ("method", "column", "paper", "ours", "95% interval", "difference", f"against {recipe.baseline}"):
        table.add_column(heading, justify="left" if heading in ("method", "column") else "right", overflow="fold")
    for cell in found:
        first = next(iter((cell.paper or {}).items()), None)
        difference = None if first is None else cell.difference(first[0])
        table.add_row(
            Text(cell.method),
            Text(cell.column),
            "" if first is None else f"{mean_of(first[1]):.4g}",
            Text(shorten(cell.why or "", 40, placeholder="...")) if cell.ours is None else f"{cell.ours:.4g}",
            "" if cell.low is None else f"{cell.low:.1f} to {cell.high:.1f}",
            "" if difference is None else f"{difference:+.1f}",
            "" if cell.gain is None else f"{cell.gain:+.1f}{'*' if cell.significant else ''}",
        )
    told = choices_line(recipe, found)
    return Group(table, Text(told)) if told else table
