"""What the hull and the teacher of the compared methods are worth: the tables of docs/defences/which.md."""

from __future__ import annotations

import results
from unshaken_experiments.contrasts import contrast
from unshaken_experiments.results import coverage_line
from unshaken_experiments.table import markdown, star_counts, starred

RECIPE = "ours-baselines"
BETAS = (1, 2, 4)


def _pairs(one: str, other: str) -> list[tuple[str, str]]:
    """Two methods at each beta; SWAP has none."""
    both = [[name if name.startswith("SWAP") else f"{name}, beta {beta}" for beta in BETAS] for name in (one, other)]
    return list(zip(*both, strict=True))


OLD = "RIFT, old hull, old teacher"
CONTRASTS = {
    "ASCC: the hull": _pairs("ASCC", "ASCC, old hull"),
    "RIFT: the hull, with the old teacher": _pairs("RIFT, old teacher", OLD),
    "RIFT: the hull, with the teacher": _pairs("RIFT", "RIFT, old hull"),
    "RIFT: the teacher, on the old hull": _pairs("RIFT, old hull", OLD),
    "RIFT: the teacher, on the hull": _pairs("RIFT", "RIFT, old teacher"),
    "RIFT: both": _pairs("RIFT", OLD),
    "RIFT minus ASCC": _pairs("RIFT", "ASCC"),
    "SWAP, M 4, minus RIFT as it was": _pairs("SWAP, M 4", OLD),
    "SWAP, M 4, minus RIFT": _pairs("SWAP, M 4", "RIFT"),
    "SWAP, M 4, minus ASCC": _pairs("SWAP, M 4", "ASCC"),
    "SWAP, M 4, minus SWAP, M 1": [("SWAP, M 4", "SWAP, M 1")],
}


def table() -> str:
    """Both tables of every encoder that has runs."""
    parts = [part for group in results.groups() if RECIPE in group.recipes for part in _of(group)]
    return "\n\n".join(parts)


def _of(group: results.Group) -> list[str]:
    if group not in list(results.of(RECIPE)):
        return [f"**{group.title}**: not run yet; `{group.command(RECIPE)}` runs it."]
    recipe, outcomes = group.recipe(RECIPE), results.kept(group.file)
    found = results.found(group, RECIPE)
    parts = [f"**{group.title}**", markdown(recipe, found, len(recipe.seeds), group.encoder)]
    covered = coverage_line(recipe, outcomes, group.encoder, changes=group.changes)
    parts += [star_counts(found, recipe.baseline), *([] if covered is None else [covered])]
    return [*parts, f"What each mend changes, {group.title}, in points, the mean over beta:", differences(group)]


def differences(group: results.Group) -> str:
    """A line a question; stars are for all questions of the table together."""
    recipe, outcomes = group.recipe(RECIPE), results.kept(group.file)
    rows = {
        name: contrast(name, pairs, recipe, outcomes, group.encoder, **group.options)
        for name, pairs in CONTRASTS.items()
    }
    cells = {(cell.method, cell.column): cell for cell in starred([cell for row in rows.values() for cell in row])}
    columns = [cell.column for cell in next(iter(rows.values()))]
    lines = [["", *columns], ["---"] * (len(columns) + 1)]
    lines += [[name, *(results.gain(cells[name, column]) for column in columns)] for name in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
