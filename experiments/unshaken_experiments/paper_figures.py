"""Figures of the papers that no report has the numbers for: they are drawn from training logs and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unshaken.errors import UnshakenError
from unshaken.reports.figures import Series, finish, line_style, panel, percent, point_style, shown
from unshaken.reports.figures import panels as panels_of

Interval = tuple[float, float, float]  # mean and the ends of its 95% interval
NARROW_NAME = 34  # characters: two such names stand side by side below a figure
LINE = 0.22  # inches of a legend
BESIDE: dict[str, Any] = {"frameon": False, "fontsize": 9, "loc": "center left", "bbox_to_anchor": (1.01, 0.5)}


def tradeoff_panels(
    panels: Mapping[str, Mapping[str, tuple[Interval, Interval]]], *, x_label: str = "clean accuracy (%)", y_label: str
) -> Any:
    """Clean against robust accuracy with error bars, a panel per title, all on the same vertical scale.

    Args:
        panels: Title -> method -> its clean and its robust accuracy, as shares. A method looks the same in all of them.
    """
    figure, many = panels_of(len(panels))
    names = list(dict.fromkeys(name for methods in panels.values() for name in methods))
    drawn = {}
    for axes, (title, methods) in zip(many, panels.items(), strict=True):
        for name, pair in methods.items():
            (x, x_low, x_high), (y, y_low, y_high) = (percent(interval) for interval in pair)
            style = {
                **point_style(names.index(name)),
                "markersize": 7,
                "elinewidth": 1.2,
                "capsize": 2.5,
                "linestyle": "none",
            }
            ends = {"xerr": [[x - x_low], [x_high - x]], "yerr": [[y - y_low], [y_high - y]]}
            drawn[name] = axes.errorbar([x], [y], label=shown(name), **ends, **style)
        axes.set(title=shown(title), xlabel=x_label, ylim=(0, 100))
    many[0].set_ylabel(y_label)
    handles = [drawn[name] for name in names]
    many[-1].legend(handles=handles, **BESIDE)
    return figure


def tradeoff(points: Mapping[str, Sequence[tuple[Interval, Interval]]], *, y_label: str) -> Any:
    """Clean against robust accuracy with error bars, the names below.

    No front joins the points: it would tell apart what their intervals do not.

    Args:
        points: Method -> the clean and the robust accuracy of each of its settings, as shares.
    """
    columns = 1 if any(len(name) > NARROW_NAME for name in points) else 2
    figure, (axes,) = panels_of(1, 5.6, 3.8 + LINE * (-(-len(points) // columns)))
    for index, (name, pairs) in enumerate(points.items()):
        style = point_style(index)
        for pair in pairs:
            (x, x_low, x_high), (y, y_low, y_high) = (percent(interval) for interval in pair)
            ends = {"xerr": [[x - x_low], [x_high - x]], "yerr": [[y - y_low], [y_high - y]]}
            bars = {"ecolor": style["color"], "elinewidth": 0.9, "alpha": 0.45, "zorder": 1}
            axes.errorbar([x], [y], fmt="none", **ends, **bars)
        clean, robust = (percent(pair[side][0] for pair in pairs) for side in (0, 1))
        axes.scatter(clean, robust, label=spelt_out(name), s=46, alpha=0.85, zorder=3, **style)
    axes.set(xlabel="clean accuracy (%)", ylabel=y_label)
    figure.legend(frameon=False, fontsize=9, loc="outside lower left", ncols=columns)
    return figure


def spelt_out(name: str) -> str:
    """A name of a recipe, which is our own text: never shortened."""
    return name.replace("$", r"\$")


def distance_curves(runs: Series) -> Any:
    """Relative L2 distance to the pretrained weights during training (RIFT, Figure 2).

    Args:
        runs: Run -> (step, distance) points.
    """
    figure = sweep(runs, x_label="training step", y_label="relative L2 distance to the pretrained weights")
    figure.axes[0].set_ylim(0, None)
    return figure


def feature_map(
    features: Mapping[str, np.ndarray], labels: Sequence[int], label_names: Sequence[str] = (), *, seed: int = 0
) -> Any:
    """t-SNE of the examples' features, one panel a model (RIFT, Figure 3).

    Args:
        features: Model or moment -> features, (examples, hidden).
        labels: One an example.
        label_names: In label order.
        seed: Of t-SNE.
    """
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise UnshakenError("t-SNE needs scikit-learn: pip install 'unshaken[report]'") from error
    figure, panels = panels_of(len(features), height=3.6)
    classes = np.asarray(labels)
    for axes, (name, rows) in zip(panels, features.items(), strict=True):
        if len(rows) != len(classes) or len(rows) < 4:
            raise UnshakenError(
                f"{name}: {len(rows)} features for {len(classes)} labels; t-SNE needs 4 or more of both"
            )
        perplexity = min(30.0, (len(rows) - 1) / 3)
        places = TSNE(perplexity=perplexity, random_state=seed, init="pca").fit_transform(np.asarray(rows, np.float32))
        for index, label in enumerate(np.unique(classes)):
            chosen = places[classes == label]
            text = label_names[label] if label < len(label_names) else str(label)
            axes.scatter(chosen[:, 0], chosen[:, 1], s=14, label=shown(text), alpha=0.8, **point_style(index))
        axes.set(title=shown(name), xticks=[], yticks=[], xlabel="t-SNE 1", ylabel="t-SNE 2")
        axes.grid(visible=False)
        axes.legend(frameon=False, fontsize=9)
    return figure


def sweep(lines: Series, *, x_label: str, y_label: str) -> Any:
    """A number against a setting, one line a method (RIFT, Figure 2b).

    Args:
        lines: Method -> (setting, number) points.
        x_label: What the setting is.
        y_label: What the number is.
    """
    figure, axes = panel()
    for index, (name, points) in enumerate(lines.items()):
        axes.plot([x for x, _ in points], [y for _, y in points], label=shown(name), **line_style(index))
    axes.set(xlabel=x_label, ylabel=y_label)
    return finish(figure, axes)
