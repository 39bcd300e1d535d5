"""Figures for papers and docs: labelled, colour-blind safe, each saved as PNG and SVG.

Every function takes plain numbers and returns a matplotlib figure, so that a figure can be made from a report, from a
training log or from a notebook alike. `report_figures` makes those a report has the numbers for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unshaken.display import visible
from unshaken.errors import UnshakenError
from unshaken.evaluation.results import Evaluation
from unshaken.files import sync, writing
from unshaken.names import optional
from unshaken.proportion import Proportion
from unshaken.reports import charts

if TYPE_CHECKING:
    from unshaken.evaluation.report import Report

# Okabe and Ito's palette without yellow, which is too pale for lines; markers and dashes repeat what colours say.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")  # another number than colours: pairs repeat late
DASHES = ("-", "--", ":", "-.")

LONGEST_NAME = 60  # characters: a legend as wide as a name of 100,000 would take gigabytes
WIDE_NAME = 40  # a legend with longer names would cover points; it stands below the axes

Series = Mapping[str, Sequence[tuple[float, float]]]  # name -> (x, y) points


def save_figure(figure: Any, path: Path | str) -> tuple[Path, Path]:
    """Write `path` as PNG and as SVG, each whole or not there; equal figures give equal files."""
    path = Path(path)
    matplotlib = _matplotlib()
    png, svg = path.with_suffix(".png"), path.with_suffix(".svg")
    with matplotlib.rc_context({"svg.hashsalt": "unshaken"}):
        for target, metadata in ((png, {"Software": None}), (svg, {"Date": None})):
            with writing(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                part = target.with_name(f".{target.name}.part")
                figure.savefig(part, format=target.suffix[1:], dpi=200, metadata=metadata, bbox_inches="tight")
                sync(part)
                os.replace(part, target)
                sync(target.parent)
    return png, svg


def tradeoff(points: Series, *, x_label: str = "clean accuracy (%)", y_label: str = "accuracy under attack (%)") -> Any:
    """Clean against robust accuracy with the Pareto front (RIFT, Figure 4).

    Args:
        points: Method -> its (clean, robust) accuracies, one pair a setting, as shares.
    """
    figure, axes = panel()
    for index, (name, pairs) in enumerate(points.items()):
        clean, robust = percent(pair[0] for pair in pairs), percent(pair[1] for pair in pairs)
        axes.scatter(clean, robust, label=shown(name), s=46, zorder=3, **point_style(index))
    front = pareto_front([pair for pairs in points.values() for pair in pairs])
    if len(front) > 1:
        style = {"color": "#666666", "linewidth": 1.2, "linestyle": "--", "zorder": 2}
        axes.plot(percent(p[0] for p in front), percent(p[1] for p in front), label="Pareto front", **style)
    axes.set(xlabel=x_label, ylabel=y_label)
    return finish(figure, axes)


def pareto_front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that no other point beats in both coordinates, from left to right."""
    front: list[tuple[float, float]] = []
    for x, y in sorted(set(points), reverse=True):
        if not front or y > front[-1][1]:
            front.append((x, y))
    return front[::-1]


def budget_curves(report: Report, data: str | None = None) -> Any:
    """Accuracy against the queries an attack may ask: a colour per model, a dash pattern per attack."""
    curves = charts.curves(report, _of_data(report, data))
    if not curves:
        raise UnshakenError("no attack in this report was answered, so there is no accuracy against queries to draw")
    figure, axes = panel()
    models, attacks = (list(dict.fromkeys(getattr(one, kind) for one in curves)) for kind in ("model", "attack"))
    for one in curves:
        colour, dash = COLOURS[models.index(one.model) % len(COLOURS)], DASHES[attacks.index(one.attack) % len(DASHES)]
        label = f"{shown(one.model)}, {shown(one.attack)}"
        asked, right = zip(*one.points, strict=True)
        axes.step(asked, percent(right), where="post", label=label, color=colour, linestyle=dash)
    axes.set(xscale="log", ylim=(0, 100), xlabel="queries per example", ylabel="accuracy (%)")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    return finish(figure, axes)


def grouped_accuracy(values: Mapping[str, Mapping[str, Proportion]], *, group_label: str) -> Any:
    """Accuracy by group with 95% intervals: attack levels of AdvGLUE, or layer groups (IM-BERT, Table 3).

    Args:
        values: Model -> group -> accuracy.
        group_label: What the groups are, for the axis.
    """
    groups = list(dict.fromkeys(group for of_model in values.values() for group in of_model))
    figure, axes = panel(width=max(5.0, 1.1 * len(groups) + 1.5))
    width = 0.8 / max(1, len(values))
    for index, (model, of_model) in enumerate(values.items()):
        having = [(position, of_model[group]) for position, group in enumerate(groups) if group in of_model]
        x = [position + (index - (len(values) - 1) / 2) * width for position, _ in having]
        y = percent(share.value for _, share in having)
        bounds = [share.interval for _, share in having]
        errors = [
            [height - 100 * low for height, (low, _) in zip(y, bounds, strict=True)],
            [100 * high - height for height, (_, high) in zip(y, bounds, strict=True)],
        ]
        style = point_style(index)
        axes.errorbar(x, y, yerr=errors, fmt="none", ecolor=style["color"], elinewidth=1.4, capsize=3)
        axes.scatter(x, y, label=shown(model), s=46, zorder=3, **style)
    axes.set_xticks(range(len(groups)), [shown(group) for group in groups])
    axes.set(ylim=(0, 100), xlabel=group_label, ylabel="accuracy (%)")
    return finish(figure, axes)


def layer_profile(residuals: Mapping[str, Sequence[float]], growth: Mapping[str, Sequence[float]]) -> Any:
    """Residual of the implicit solve, and growth of an input perturbation, layer by layer.

    Args:
        residuals: Model -> relative residual of each connected layer.
        growth: Model -> size of the perturbation after each layer, relative to its size at the input.
    """
    figure, (left, right) = panels(2)
    for axes, values, label in ((left, residuals, "relative residual"), (right, growth, "perturbation growth")):
        for index, (name, of_layer) in enumerate(values.items()):
            axes.plot(range(1, len(of_layer) + 1), of_layer, label=shown(name), **line_style(index))
        axes.set(xlabel="layer", ylabel=label, yscale="log")
        axes.xaxis.get_major_locator().set_params(integer=True)
        finish(figure, axes)
    return figure


def report_figures(report: Report) -> dict[str, Any]:
    """The figures that a report has the numbers for, by file name."""
    figures: dict[str, Any] = {}
    groups_of_data = charts.by_data(report)
    for group, slug in zip(groups_of_data, _slugs([group[0].data.name for group in groups_of_data]), strict=True):
        data = group[0].data.name
        if charts.curves(report, group):
            figures[f"{slug}-budget"] = budget_curves(report, data)
        points = charts.tradeoff(report, group)
        # No point tells its attack here, and one attack beside the worst of two would make a front of its own.
        points = [one for one in points if one.condition == points[0].condition]
        if len(points) > 1:
            pairs: dict[str, list[tuple[float, float]]] = {}
            for one in points:
                pairs.setdefault(one.method, []).append((one.clean.value, one.hard.value))
            figures[f"{slug}-tradeoff"] = tradeoff(pairs)
        groups = {report.name_of(item): item.groups for item in group if item.groups}
        if groups:
            figures[f"{slug}-groups"] = grouped_accuracy(groups, group_label="attack level")
    return figures


def _slugs(names: Sequence[str]) -> list[str]:
    """Each name as a part of a file's name; those that would share one ("a b", "a-b") are numbered in their order."""
    slugs: list[str] = []
    taken: set[str] = set()  # without case, which some file systems do not tell apart
    for name in names:
        plain = "".join(character if character.isalnum() else "-" for character in name[:LONGEST_NAME])
        numbered = (f"{plain}-{number}" for number in count(2))
        slugs.append(next(slug for slug in chain([plain], numbered) if slug.casefold() not in taken))
        taken.add(slugs[-1].casefold())
    return slugs


def _of_data(report: Report, data: str | None) -> list[Evaluation]:
    return [item for item in report.evaluations if data in (None, item.data.name)]


# ------------------------------------------------------------------------------------------------------- drawing


def _matplotlib() -> Any:
    return optional("matplotlib", "figures need matplotlib: pip install 'unshaken[report]'")


def panel(width: float = 5.6) -> tuple[Any, Any]:
    figure, (axes,) = panels(1, width, 3.8)
    return figure, axes


def panels(count: int, width: float = 4.4, height: float = 3.6) -> tuple[Any, list[Any]]:
    _matplotlib()
    # Not pyplot: it keeps every figure alive and needs a display.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * count, height), layout="constrained")
    for axes in (figure.add_subplot(1, count, number + 1) for number in range(count)):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#e5e5e5", linewidth=0.8)
        axes.set_axisbelow(True)
    return figure, figure.axes


def finish(figure: Any, axes: Any) -> Any:
    names = axes.get_legend_handles_labels()[1]
    if len(names) > 6:  # a long list would cover points
        axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.01, 0.5))
    elif any(len(name) > WIDE_NAME for name in names):
        axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(0, -0.14))
    elif names:
        axes.legend(frameon=False, fontsize=9)
    return figure


def shown(name: str) -> str:
    """A name from a file as a figure's text: short, without formulas (`$`), not hidden as a leading `_` would be."""
    half = LONGEST_NAME // 2  # names of variants differ at their ends
    text = visible(name if len(name) <= LONGEST_NAME else f"{name[:half]}…{name[-half:]}").replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def percent(values: Any) -> list[float]:
    return [100 * value for value in values]


def point_style(index: int) -> dict[str, Any]:
    return {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)]}


def line_style(index: int) -> dict[str, Any]:
    return {**point_style(index), "linestyle": DASHES[index % len(DASHES)], "markersize": 5}
