"""Charts of the HTML page: tracks of HTML, which keep their type size on a phone, and small SVG plots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from unshaken.evaluation.results import CLEAN, Evaluation, Proportion, accuracy_at_budget
from unshaken.reports.tables import by_data, escape

if TYPE_CHECKING:
    from unshaken.evaluation.report import Report

SERIES = 8  # colours in the style sheet, and shapes here; more models repeat them
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 440, 270, 40, 42, 12, 14


def charts(report: Report) -> str:
    """All charts that the results allow."""
    models = list(report.model_names.values())
    drawn = []
    for group in by_data(report).values():
        name = group[0].data.name
        drawn.append(_figure(f"Accuracy on {name}", _conditions(report, group, models), _legend(report, group, models)))
        if any(evaluation.searches for evaluation in group):
            curve = _budget_curve(report, group, models)
            drawn.append(
                _figure(f"Accuracy on {name} against queries per example", curve, _budget_legend(report, group, models))
            )
        if len(group) > 2 and all(len(evaluation.conditions) > 1 for evaluation in group):
            scatter = _clean_against_robust(report, group, models)
            drawn.append(_figure(f"Clean against hardest accuracy on {name}", scatter, _legend(report, group, models)))
    return "".join(drawn)


def _figure(title: str, content: str, legend: str) -> str:
    return f"<figure><figcaption>{escape(title)}</figcaption>{content}{legend}</figure>"


def _legend(report: Report, group: Sequence[Evaluation], models: Sequence[str]) -> str:
    keys = [(models.index(report.name_of(item)), report.name_of(item)) for item in group]
    items = "".join(f'<li><i class="key s{index % SERIES}"></i>{escape(name)}</li>' for index, name in keys)
    return f'<ul class="legend">{items}</ul>'


# ------------------------------------------------------------------------------------------------------- tracks


def whisker_track(shares: Sequence[tuple[int, str, Proportion]], baseline: float | None) -> str:
    """Dots with their intervals on a track from 0 to 100. `shares` are (series, name, share)."""
    marks = f'<i class="baseline" style="left:{100 * baseline:.2f}%"></i>' if baseline is not None else ""
    for row, (series, name, share) in enumerate(shares):
        if not share.total:
            continue
        low, high = share.interval
        top = 100 * (row + 0.5) / len(shares)
        title = f"{name}: {share}".removeprefix(": ")
        marks += (
            f'<i class="whisker s{series % SERIES}" style="left:{100 * low:.2f}%;width:{100 * (high - low):.2f}%;'
            f'top:{top:.1f}%"></i>'
            f'<i class="dot s{series % SERIES}" style="left:{100 * share.value:.2f}%;top:{top:.1f}%" '
            f'title="{escape(title)}"></i>'
        )
    return f'<div class="track" style="--rows:{len(shares)}" aria-hidden="true">{marks}</div>'


def _conditions(report: Report, group: Sequence[Evaluation], models: Sequence[str]) -> str:
    """One track a condition (and a group of examples), one dot a model."""
    names = list(dict.fromkeys(name for item in group for name in item.conditions))
    groups = list(dict.fromkeys(name for item in group for name in item.groups))
    lines = ""
    for label, is_group in [*((name, False) for name in names), *((name, True) for name in groups)]:
        shares = [
            (models.index(report.name_of(item)), report.name_of(item), found)
            for item in group
            if (found := _share(item, label, is_group)) is not None
        ]
        track = whisker_track(shares, group[0].majority_baseline)
        lines += f'<div class="line"><span>{escape(group[0].title(label))}</span>{track}</div>'
    axis = (
        '<div class="axis" aria-hidden="true">'
        + "".join(f"<span>{tick}</span>" for tick in (0, 25, 50, 75, 100))
        + "</div>"
    )
    return f'<div class="tracks">{lines}{axis}<p class="muted small">Dashed: majority baseline.</p></div>'


def _share(evaluation: Evaluation, label: str, is_group: bool) -> Proportion | None:
    if is_group:
        return evaluation.groups.get(label)
    return evaluation.accuracy(label) if label in evaluation.conditions else None


# ---------------------------------------------------------------------------------------------------------- SVG


def _x(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _y(share: float) -> float:
    return TOP + (1 - share) * (HEIGHT - TOP - BOTTOM)


def _svg(title: str, axes: str, content: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{axes}{content}</svg>'


def _axes(x_label: str, y_label: str, x_ticks: Sequence[tuple[float, str]]) -> str:
    parts = []
    for tick in (0, 25, 50, 75, 100):
        y = _y(tick / 100)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick}</text>')
    for position, label in x_ticks:
        parts.append(
            f'<text x="{_x(position):.1f}" y="{HEIGHT - BOTTOM + 17}" text-anchor="middle">{escape(label)}</text>'
        )
    parts.append(f'<text x="{_x(0.5):.1f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>')
    middle = _y(0.5)
    parts.append(
        f'<text transform="translate(11 {middle:.1f}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>'
    )
    return "".join(parts)


def _budget_curve(report: Report, group: Sequence[Evaluation], models: Sequence[str]) -> str:
    """Accuracy against queries on a logarithmic axis: a line a model, a dash pattern an attack."""
    largest = max(result.queries for item in group for run in item.searches.values() for result in run.results)
    top = max(1.0, math.log10(max(largest, 1)))
    budgets = sorted({0, *(round(10 ** (top * step / 60)) for step in range(61)), largest})
    lines = ""
    patterns = _patterns(group)
    for item in group:
        series = models.index(report.name_of(item)) % SERIES
        for name, run in item.searches.items():
            values = accuracy_at_budget(item, run, budgets)
            points = " ".join(
                f"{_x(math.log10(max(budget, 1)) / top):.1f},{_y(value):.1f}"
                for budget, value in zip(budgets, values, strict=True)
            )
            title = f"{report.name_of(item)}, {name}: {100 * values[-1]:.1f}"
            lines += (
                f'<polyline class="curve s{series} d{patterns[name]}" points="{points}">'
                f"<title>{escape(title)}</title></polyline>"
            )
    ticks = [(power / top, f"{10**power:,}") for power in range(int(top) + 1)]
    return _svg("Accuracy against query budget", _axes("queries per example", "accuracy %", ticks), lines)


def _patterns(group: Sequence[Evaluation]) -> dict[str, int]:
    names = dict.fromkeys(name for item in group for name in item.searches)
    return {name: index % 4 for index, name in enumerate(names)}


def _budget_legend(report: Report, group: Sequence[Evaluation], models: Sequence[str]) -> str:
    keys = "".join(
        f'<li><svg class="sample" viewBox="0 0 28 8" aria-hidden="true"><line class="curve d{pattern}" x1="0" x2="28" '
        f'y1="4" y2="4"/></svg>{escape(name)}</li>'
        for name, pattern in _patterns(group).items()
    )
    return _legend(report, group, models) + f'<ul class="legend">{keys}</ul>'


def _clean_against_robust(report: Report, group: Sequence[Evaluation], models: Sequence[str]) -> str:
    content = ""
    for item in group:
        hard = item.conditions[-1]
        clean, robust = item.accuracy(CLEAN), item.accuracy(hard)
        (left, right), (low, high) = clean.interval, robust.interval
        series = models.index(report.name_of(item)) % SERIES
        x, y = _x(clean.value), _y(robust.value)
        title = f"{report.name_of(item)}: clean {clean}, {hard} {robust}"
        content += (
            f'<g class="point s{series}"><title>{escape(title)}</title>'
            f'<line x1="{_x(left):.1f}" x2="{_x(right):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_y(low):.1f}" y2="{_y(high):.1f}"/>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5"/></g>'
        )
    ticks = [(tick / 100, str(tick)) for tick in (0, 25, 50, 75, 100)]
    return _svg(
        "Clean against robust accuracy",
        _axes("clean accuracy %", "hardest attack %", ticks),
        content,
    )
