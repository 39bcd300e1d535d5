"""Figures: labelled, drawn from the numbers given, saved whole and the same each time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from report_parts import made_evaluation, run

from unshaken.errors import UnshakenError
from unshaken.evaluation.results import accuracy_at_budget
from unshaken.proportion import Proportion
from unshaken.reports import Report, figures
from unshaken_experiments import paper_figures as papers


def report() -> Report:
    plain = made_evaluation(run("xxxxxooo--"), run("xxooooxx--", "genetic"), model="plain", wrong=(8, 9))
    hard = made_evaluation(run("xooooooooo"), run("oooooooooo", "genetic"), model="hard")
    return Report(evaluations=(plain, hard))


def share(hits: int) -> Proportion:
    return Proportion(hits=hits, total=100)


FEATURES = np.random.default_rng(0).normal(size=(24, 8))
LEVELS = {"BERT": {"word": share(40), "human": share(30)}, "IM-BERT": {"word": share(55)}}
FIGURES = {
    "tradeoff": lambda: figures.tradeoff({"plain": [(0.9, 0.2)], "RIFT": [(0.85, 0.6), (0.8, 0.65)]}),
    "budget": lambda: figures.budget_curves(report()),
    "groups": lambda: figures.grouped_accuracy(LEVELS, group_label="attack level"),
    "layers": lambda: figures.layer_profile({"IM-BERT": [0.5, 0.3]}, {"BERT": [1.0, 3.0], "IM-BERT": [0.9, 1.1]}),
    "distance": lambda: papers.distance_curves({"plain": [(0, 0.0), (10, 0.2)], "RIFT": [(0, 0.0), (10, 0.1)]}),
    "features": lambda: papers.feature_map({"before": FEATURES, "after": FEATURES + 1}, [0, 1] * 12, ["no", "yes"]),
    "sweep": lambda: papers.sweep({"Anderson": [(1, 1.5), (5, 3.5)]}, x_label="solver steps", y_label="time"),
}


@pytest.mark.full
@pytest.mark.parametrize("name", FIGURES)
def test_each_figure_is_labelled_and_saved_twice_the_same(name: str, tmp_path: Path) -> None:
    figure = FIGURES[name]()
    for axes in figure.axes:
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        assert axes.get_legend() is not None
    png, svg = figures.save_figure(figure, tmp_path / name)
    assert png.read_bytes().startswith(b"\x89PNG")
    first = svg.read_bytes()
    assert b"<svg" in first
    figures.save_figure(FIGURES[name](), tmp_path / name)
    assert svg.read_bytes() == first
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [f"{name}.png", f"{name}.svg"]


def test_the_pareto_front_keeps_what_nothing_beats() -> None:
    points = [(0.9, 0.1), (0.8, 0.5), (0.85, 0.4), (0.7, 0.5), (0.8, 0.3), (0.6, 0.6)]
    assert figures.pareto_front(points) == [(0.6, 0.6), (0.8, 0.5), (0.85, 0.4), (0.9, 0.1)]


def test_accuracy_at_a_budget_is_of_what_was_answered() -> None:
    """Each break takes 10 queries; one example was wrong before, and of one nothing is known."""
    assert accuracy_at_budget(run("xxo-!"), [9, 10]) == [3 / 4, 1 / 4]


def test_budget_curves_end_at_the_accuracy_under_attack() -> None:
    (axes,) = figures.budget_curves(report()).axes
    ends = {line.get_label(): line.get_ydata()[-1] for line in axes.get_lines()}
    assert ends == pytest.approx(
        {"plain-0, pwws": 30.0, "plain-0, genetic": 40.0, "hard-0, pwws": 90.0, "hard-0, genetic": 100.0}
    )


def test_panels_have_each_mean_and_both_ends_of_each_interval() -> None:
    methods = {"plain": ((0.9, 0.88, 0.93), (0.2, 0.15, 0.22)), "RIFT": ((0.85, 0.8, 0.86), (0.6, 0.5, 0.65))}
    figure = papers.tradeoff_panels({"MiniLM": methods, "gte": {"plain": methods["plain"]}}, y_label="worst (%)")
    first, second = figure.axes
    assert [axes.get_title() for axes in figure.axes] == ["MiniLM", "gte"]
    assert [len(axes.containers) for axes in (first, second)] == [2, 1]
    for bar, (clean, robust) in zip(first.containers, methods.values(), strict=True):
        point, _, (across, up) = bar.lines
        assert (*point.get_xdata(), *point.get_ydata()) == pytest.approx((100 * clean[0], 100 * robust[0]))
        assert across.get_segments()[0][:, 0] == pytest.approx([100 * clean[1], 100 * clean[2]])
        assert up.get_segments()[0][:, 1] == pytest.approx([100 * robust[1], 100 * robust[2]])


def test_a_method_looks_the_same_in_every_panel_and_is_named_once() -> None:
    pair = ((0.9, 0.88, 0.93), (0.2, 0.15, 0.22))
    figure = papers.tradeoff_panels({"a": {"plain": pair, "RIFT": pair}, "b": {"RIFT": pair}}, y_label="worst (%)")
    (_, rift), (alone,) = (axes.containers for axes in figure.axes)
    looks = [(bar.lines[0].get_color(), bar.lines[0].get_marker()) for bar in (rift, alone)]
    assert looks[0] == looks[1]
    assert [text.get_text() for text in figure.axes[-1].get_legend().get_texts()] == ["plain", "RIFT"]


def test_a_trade_off_of_a_recipe_names_every_method_whole_and_leaves_the_points_their_room() -> None:
    long = "Likelier reader + smoothed 2 with typos + SWAP on what is left, M 8, p 0.7 of $w"
    settings = {"plain": [((0.9, 0.88, 0.93), (0.2, 0.15, 0.22))], long: 2 * [((0.85, 0.8, 0.86), (0.6, 0.5, 0.65))]}
    figure = papers.tradeoff(settings, y_label="worst (%)")
    (axes,), (legend,) = figure.axes, figure.legends
    figure.draw_without_rendering()
    assert [text.get_text().replace("\\$", "$") for text in legend.get_texts()] == ["plain", long]
    assert legend.get_window_extent().y1 < axes.get_window_extent().y0
    assert axes.get_window_extent().width > 0.75 * figure.bbox.width
    assert axes.get_window_extent().height > 3 * figure.dpi
    offsets = [points.get_offsets().tolist() for points in axes.collections if points.get_offsets().size > 2]
    assert [pytest.approx([85, 60])] * 2 == offsets[-1]
    assert not [line for line in axes.get_lines() if len(line.get_xdata()) > 1]  # nothing joins points


def test_a_report_gives_the_figures_it_has_numbers_for() -> None:
    assert set(figures.report_figures(report())) == {"made-budget", "made-tradeoff"}
    assert figures.report_figures(Report(evaluations=(made_evaluation(),))) == {}


def test_each_set_has_figures_of_its_own_whatever_its_name(tmp_path: Path) -> None:
    names = ("a b", "a-b", "A.B", "a-b-2", "x" * 70 + "1", "x" * 70 + "2")
    sets = [made_evaluation(run("x" * number + "o" * (10 - number)), data=name) for number, name in enumerate(names)]
    drawn = figures.report_figures(Report(evaluations=tuple(sets)))
    slugs = ["a-b", "a-b-2", "A-B-3", "a-b-2-2", "x" * 60, "x" * 60 + "-2"]
    assert list(drawn) == [f"{slug}-budget" for slug in slugs]
    ends = [figure.axes[0].get_lines()[0].get_ydata()[-1] for figure in drawn.values()]
    assert ends == pytest.approx([100 - 10 * number for number in range(len(names))])  # in their order


def test_what_ended_in_errors_alone_is_in_no_figure() -> None:
    failed = made_evaluation(run("!" * 10), model="failed")
    assert figures.report_figures(Report(evaluations=(failed,))) == {}
    drawn = figures.report_figures(Report(evaluations=(*report().evaluations, failed)))
    assert set(drawn) == {"made-budget", "made-tradeoff"}
    assert len(drawn["made-budget"].axes[0].get_lines()) == 4  # two models under two attacks
    named = [text.get_text() for text in drawn["made-tradeoff"].axes[0].get_legend().get_texts()]
    assert named[:2] == ["plain", "hard"]
    assert "failed" not in named


def test_a_front_is_of_models_that_met_the_same_attacks() -> None:
    both = [
        made_evaluation(run(word), run("xxxxxxxxoo", "genetic"), model=word) for word in ("xxxooooooo", "xooooooooo")
    ]
    one = made_evaluation(run("xooooooooo"), model="one attack alone")
    drawn = figures.report_figures(Report(evaluations=(*both, one)))
    named = [text.get_text() for text in drawn["made-tradeoff"].axes[0].get_legend().get_texts()]
    assert named == [item.model.method for item in both]
    assert "made-tradeoff" not in figures.report_figures(Report(evaluations=(both[0], one)))


def test_impossible_figures_are_refused() -> None:
    with pytest.raises(UnshakenError, match="no attack in this report"):
        figures.budget_curves(Report(evaluations=(made_evaluation(),)))
    with pytest.raises(UnshakenError, match="3 features for 2 labels"):
        papers.feature_map({"x": np.zeros((3, 2))}, [0, 1])


@pytest.mark.parametrize("name", ["$\\frac{$", "x" * 100_000, "_hidden", "\x1b[2J", "\\$a$ $b"])
def test_a_name_from_a_file_is_short_text_and_no_formula(name: str, tmp_path: Path) -> None:
    figure = figures.tradeoff({name: [(0.9, 0.2)], "plain": [(0.8, 0.3)]})
    png, svg = figures.save_figure(figure, tmp_path / "figure")
    assert png.stat().st_size < 200_000
    assert len(figure.axes[0].get_legend().get_texts()) == 3  # with the front
    assert "\x1b" not in svg.read_text()


def test_long_names_that_differ_at_their_ends_stay_apart_and_cover_no_points() -> None:
    common = "A reader that doubts, a vocabulary smoothed over two hops, and SWAP on what is left"
    drawn = figures.tradeoff({f"{common}{end}": [(0.9, 0.2)] for end in ("", ", M 8, p 0.7")})
    (axes,) = drawn.axes
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert len({text for text in texts if text.startswith("A reader")}) == 2
    assert axes.get_legend().get_window_extent().y1 < axes.get_window_extent().y0
