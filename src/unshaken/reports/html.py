"""The report as one self-contained HTML page: it opens offline, and every text from data is shown, never run.

Numbers, tables, flags and charts are plain HTML, so the page reads without scripts. One script, the only one the
page's content security policy lets run, pages through the adversarial examples; their texts reach it as JSON and the
document as text nodes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from inspect import cleandoc
from typing import TYPE_CHECKING, Any

from unshaken.attacks import ATTACKS
from unshaken.display import in_words
from unshaken.evaluation.comparison import Comparison, alike, by_method, over_group, same_condition
from unshaken.evaluation.flags import FLAGS
from unshaken.evaluation.results import CLEAN, WORST_CASE, Evaluation
from unshaken.pages import render
from unshaken.proportion import Proportion
from unshaken.reports import charts
from unshaken.reports.browser import browser_data
from unshaken.reports.certified import NOTE, certified_rows, headings
from unshaken.reports.headline import headline
from unshaken.reports.views import called, p_text, points, spread_cells

if TYPE_CHECKING:
    from unshaken.evaluation.report import Report

SERIES = 8  # colours in the style sheet; more models repeat them
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 440, 270, 40, 42, 12, 14  # of an SVG plot, as charts.html draws it
TICKS = (0, 25, 50, 75, 100)
ANSWERS = {CLEAN: "the texts as they are", WORST_CASE: "right only where no attack changed the answer"}


def page(report: Report) -> str:
    """The whole page."""
    names = list(report.model_names.values())
    sets = list(dict.fromkeys(item.data.name for item in report.evaluations))
    attacks = list(dict.fromkeys(name for item in report.evaluations for name in item.attack_names))
    checks = report.checks
    return render(
        "reports/page/report.html",
        title=f"{_joined(names)} on {_joined(sets)} · robustness report",
        script="reports/page/browse.js",
        headline=headline(report),
        subtitle=[
            _count(len(names), "model"),
            _count(len(sets), "data set"),
            _count(len(attacks), "attack"),
            max(item.created for item in report.evaluations)[:10],
        ],
        tables=[_accuracy_table(report, methods) for methods in by_method(report.evaluations)],
        certified=(("data", "model", *headings()), certified_rows(report), NOTE),
        tests=[_test(report, item) for item in report.comparisons],
        spreads=[spread_cells(report, item) for item in report.spreads],
        flags=FLAGS,
        raised={flag: those for flag in FLAGS if (those := [one for one in report.flags if one.flag == flag])},
        others=[one for one in checks if one.verdict != "raised"],
        unknown=sum(one.verdict == "unknown" for one in checks),
        plots=[plot for group in charts.by_data(report) for plot in _plots(report, group, names)],
        series={name: number % SERIES for number, name in enumerate(names)},
        ticks=TICKS,
        attacks=_attacks(report),
        hints={name: about(name) for name in attacks},
        details=[_details(report, item) for item in report.evaluations],
        data=browser_data(report),
    )


def about(condition: str) -> str:
    """What a condition is: the first line that its attack says of itself."""
    known = ATTACKS.get(condition.removeprefix("then ").partition(" ")[0])
    if known is None:
        return ANSWERS.get(condition, "")
    return cleandoc(known.__doc__ or "").partition("\n")[0]


def _joined(names: Sequence[str]) -> str:
    shown = [name if len(name) < 40 else f"…{name[-38:]}" for name in names[:3]]
    return ", ".join(shown) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


# -------------------------------------------------------------------------------------------------------- tables


def _accuracy_table(report: Report, methods: Sequence[Sequence[Evaluation]]) -> dict[str, Any]:
    """One row for each model, or for each method with several seeds; one column for each condition and group."""
    group = [item for method in methods for item in method]
    first = group[0]
    names = charts.conditions(group)
    groups = list(dict.fromkeys(name for item in group for name in item.groups))
    columns = [*((first.title(name), about(name)) for name in names), *((name, "") for name in groups)]
    rows = []
    for method in methods:
        if _has_means(report, method):
            rows.append(_mark_others(report, group, method, names, _method_row(report, method, names, groups)))
        else:
            rows += [
                _mark_others(report, group, [item], names, _model_row(report, item, names, groups)) for item in method
            ]
    cut = sum(bool(row.truncated) for row in first.predictions)
    baseline = first.majority_baseline
    notes = [f"{len(first.predictions):,} examples", f"majority baseline {100 * baseline:.1f}"]
    notes += [f"{100 * cut / len(first.predictions):.0f}% truncated"] if cut else []
    _tell_reference(rows)
    return {"name": first.data.name, "notes": notes, "columns": columns, "rows": rows, "baseline": baseline}


def _tell_reference(rows: Sequence[dict[str, Any]]) -> None:
    """Say in a chip what the difference is to, where that is not the first row: one seed of what is a mean there."""
    for cell in (cell for row in rows for cell in row["cells"]):
        chip = cell and cell["chip"]
        if chip and chip.get("reference", rows[0]["name"]) != rows[0]["name"]:
            chip["text"] += f" to {chip['reference']}"


def _mark_others(
    report: Report, group: Sequence[Evaluation], method: Sequence[Evaluation], names: Sequence[str], row: dict[str, Any]
) -> dict[str, Any]:
    """The row with a mark where its attack has the name of its column, but not the settings of the first one there."""
    cells = list(row["cells"])
    for number, (name, cell) in enumerate(zip(names, cells, strict=False)):  # groups, which follow, have no attacks
        first = charts.first_met(group, name)
        if first and cell and not same_condition(first, alike(method, name)[0], name):
            title = f"not attacked as {report.name_of(first)} was; the settings of each are below"
            cells[number] = {**cell, "chip": {"kind": "plain", "text": "other settings", "title": title}}
    return {**row, "cells": cells}


def _model_row(report: Report, item: Evaluation, names: Sequence[str], groups: Sequence[str]) -> dict[str, Any]:
    name = report.name_of(item)
    tests = {(one.data, one.model, one.condition): one for one in report.comparisons if one.seeds == 1}
    cells = [
        _cell(item.accuracy(condition), tests.get((item.data.name, name, condition)))
        if condition in item.conditions
        else None
        for condition in names
    ]
    cells += [_cell(item.groups[one], None) if one in item.groups else None for one in groups]
    metric = item.data.metric
    has_own = metric != "accuracy" and metric in item.metrics
    note = f"{metric.replace('_', ' ')} {100 * item.metrics[metric]:.1f}" if has_own else ""
    return {"name": name, "note": note, "series": _series(report, item), "cells": cells}


def _has_means(report: Report, method: Sequence[Evaluation]) -> bool:
    """Whether a row of means tells all: not if one seed alone was attacked, or by other settings, or is there twice."""
    place = (method[0].data.name, method[0].model.method)
    counts = {one.condition: len(one.accuracy.values) for one in report.spreads if (one.data, one.method) == place}
    met = Counter(name for item in method for name in item.conditions if item.accuracy(name).total)
    return len(method) > 1 and bool(counts) and all(counts.get(name) == number for name, number in met.items())


def _method_row(
    report: Report, method: Sequence[Evaluation], names: Sequence[str], groups: Sequence[str]
) -> dict[str, Any]:
    first, name = method[0], method[0].model.method
    tests = {(one.data, one.model, one.condition): one for one in report.comparisons if one.seeds > 1}
    means = {(one.data, one.method, one.condition): one for one in report.spreads}
    cells: list[dict[str, Any] | None] = []
    for condition in names:
        key = (first.data.name, name, condition)
        if key not in means:
            cells.append(None)
            continue
        mean = means[key].interval
        bounds = max(0.0, mean.low), min(1.0, mean.high)
        cells.append(_shown(mean.estimate, bounds, tests.get(key)))
    seeds = alike(method, CLEAN)  # one a seed: seeds of the same examples are no more examples
    for one in groups:
        if one not in seeds[0].groups:
            cells.append(None)
            continue
        mean = over_group(seeds, one)
        cells.append(_shown(mean.estimate, (max(0.0, mean.low), min(1.0, mean.high)), None))
    sizes = sorted({len(one.accuracy.values) for key, one in means.items() if key[:2] == (first.data.name, name)})
    note = f"mean of {' to '.join(map(str, dict.fromkeys((sizes[0], sizes[-1]))))} seeds"
    return {"name": name, "note": note, "series": _series(report, first), "cells": cells}


def _series(report: Report, item: Evaluation) -> int:
    return list(report.model_names).index(item.model.fingerprint) % SERIES


def _cell(share: Proportion, comparison: Comparison | None) -> dict[str, Any] | None:
    return _shown(share.value, share.interval, comparison) if share.total else None


def _shown(value: float, interval: tuple[float, float], comparison: Comparison | None) -> dict[str, Any]:
    low, high = (100 * bound for bound in interval)
    return {"value": 100 * value, "low": low, "high": high, "chip": comparison and _chip(comparison)}


def _chip(item: Comparison) -> dict[str, str]:
    kind = "plain" if not item.significant else "good" if item.difference > 0 else "bad"
    mark = " ✓" if item.significant else ""
    title = f"p = {p_text(item.p_adjusted)} against {item.reference}"
    return {"kind": kind, "text": f"{100 * item.difference:+.1f}{mark}", "title": title, "reference": item.reference}


def _test(report: Report, item: Comparison) -> list[object]:
    alone = f"{item.only_model} : {item.only_reference}"
    sure = (p_text(item.p_value), p_text(item.p_adjusted))
    place = [item.data, called(report, item), item.model, item.reference]
    return [*place, points(item), alone, item.total, item.seeds, *sure]


def _attacks(report: Report) -> list[list[object]]:
    rows: list[list[object]] = []
    for evaluation in report.evaluations:
        for name, run in zip(evaluation.attack_names, evaluation.attacks, strict=True):
            counts, asked = run.counts, run.counts.queries
            broken = f"{100 * counts.success_rate:.1f} of {counts.attacked}" if counts.attacked else "–"
            queries = f"{asked['mean']:.0f} / {asked['median']:.0f} / {asked['max']}"
            words = f"{100 * counts.words_changed:.1f}".replace("nan", "–")
            similar = f"{counts.similarity:.3f}".replace("nan", "–")
            place = [report.name_of(evaluation), evaluation.data.name, name, broken.replace(" ", "\N{NO-BREAK SPACE}")]
            rows.append([*place, queries, words, similar, counts.errors, f"{run.seconds:.1f}"])
    return rows


def _details(report: Report, item: Evaluation) -> dict[str, Any]:
    """All settings behind one model's numbers, in words."""
    training, environment = item.model.training, dict(item.environment)
    facts = {
        "model": f"{item.model.name}, weights and configuration {item.model.fingerprint[:16]}",
        "reads": f"{item.model.max_length} tokens" if item.model.max_length else "",
        "connection": in_words(item.model.connection or {}),
        "vote": in_words(item.model.vote or {}),
        "temperature": "" if item.model.temperature is None else f"{item.model.temperature:g}",
        "reader": "taken away" if item.model.reader == "" else item.model.reader or "",
        "training": "" if training is None else f"{training.method}, seed {training.seed}, from {training.base_model}",
        "trained on": "" if training is None else training.task,
        "training settings": "" if training is None else in_words(training.details),
        "data": f"{item.data.name}, {len(item.predictions):,} examples, {item.data.fingerprint[:16]}",
        "metrics": in_words(item.metrics),
    }
    facts |= {
        f"attack {name}": in_words({key: value for key, value in run.settings.items() if key != "name"})
        for name, run in zip(item.attack_names, item.attacks, strict=True)
    }
    facts |= {"seed of samples and probes": str(item.seed), "made": item.created, "on": in_words(environment)}
    told = {name: text for name, text in facts.items() if text}
    return {"title": f"{report.name_of(item)} on {item.data.name}", "facts": told}


# -------------------------------------------------------------------------------------------------------- charts


def _plots(report: Report, group: Sequence[Evaluation], names: Sequence[str]) -> list[dict[str, Any]]:
    """The charts that the results of one set of examples allow."""
    data, models = group[0].data.name, [name for name in names if name in {report.name_of(item) for item in group}]
    plot: dict[str, Any] = {"models": models, "attacks": {}, "curves": [], "points": []}
    tracks = {
        label: [(name, *(100 * value for value in (one.value, *one.interval))) for name, one in of.items() if one.total]
        for label, of in charts.shares(report, group).items()
    }
    baseline = 100 * group[0].majority_baseline
    plots = [{**plot, "kind": "tracks", "title": f"Accuracy on {data}", "tracks": tracks, "baseline": baseline}]
    if curves := charts.curves(report, group):
        patterns = {name: number % 4 for number, name in enumerate(dict.fromkeys(one.attack for one in curves))}
        top = max(1.0, math.log10(curves[0].points[-1][0]))
        plots.append(
            {
                **plot,
                "kind": "curves",
                "title": f"Accuracy on {data} against queries per example",
                "axes": ("queries per example", "accuracy %"),
                "x_ticks": [(_x(power / top), f"{10**power:,}") for power in range(int(top) + 1)],
                "y_ticks": [(_y(tick / 100), tick) for tick in TICKS],
                "attacks": patterns,
                "curves": [
                    {
                        "model": one.model,
                        "pattern": patterns[one.attack],
                        "title": f"{one.model}, {one.attack}: {100 * one.points[-1][1]:.1f}",
                        "points": " ".join(f"{_x(math.log10(asked) / top):.1f},{_y(y):.1f}" for asked, y in one.points),
                    }
                    for one in curves
                ],
            }
        )
    if len(pairs := charts.tradeoff(report, group)) > 2:
        plots.append(
            {
                **plot,
                "kind": "points",
                "title": f"Clean against hardest accuracy on {data}",
                "axes": ("clean accuracy %", "hardest attack %"),
                "x_ticks": [(_x(tick / 100), tick) for tick in TICKS],
                "y_ticks": [(_y(tick / 100), tick) for tick in TICKS],
                "points": [
                    {
                        "model": one.model,
                        "title": f"{one.model}: clean {one.clean}, {one.condition} {one.hard}",
                        "x": [_x(value) for value in (one.clean.value, *one.clean.interval)],
                        "y": [_y(value) for value in (one.hard.value, *one.hard.interval)],
                    }
                    for one in pairs
                ],
            }
        )
    return plots


def _x(share: float) -> float:
    return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def _y(share: float) -> float:
    return round(TOP + (1 - share) * (HEIGHT - TOP - BOTTOM), 1)
