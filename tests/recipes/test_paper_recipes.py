"""The papers' tables and figures as recipes: they load, they name real things, and their numbers hold together."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from statistics import mean

import pytest

from unshaken.attacks import ATTACKS
from unshaken.connections import Detached, Implicit
from unshaken.connections import parse as parse_connection
from unshaken.defences import Defence
from unshaken.defences import parse as parse_defence
from unshaken.names import from_spec
from unshaken.solvers import GradientDescent
from unshaken.tasks import PROTOCOLS, TASKS
from unshaken_experiments.recipe import Column, Method, Number, Recipe, load_recipe, recipe_names
from unshaken_experiments.runs import Run, Settings

PAPER_RECIPES = {name: load_recipe(name) for name in recipe_names() if re.match("(im-bert|rift)-(table|figure)-", name)}
EACH = pytest.mark.parametrize("recipe", PAPER_RECIPES.values(), ids=PAPER_RECIPES)
EXPECTED = {
    *(f"im-bert-table-{number}" for number in ("1", "2-500", "2-1000", "3", "4", "5", "6")),
    *(f"rift-table-{number}" for number in ("1", "2", "3a", "3b", "4a", "4b")),
    *(f"rift-figure-{number}" for number in ("2a", "2b", "3", "4")),
}


def runs(recipe: Recipe) -> Iterator[tuple[Method, Column, Run]]:
    for method in recipe.methods:
        for column in recipe.measured:
            yield method, column, recipe.run("encoder", method, column, recipe.seeds[0])


def of(recipe: str, method: str, column: str) -> Run:
    """The training behind a cell."""
    found = PAPER_RECIPES[recipe]
    return next(run for row, cell, run in runs(found) if (row.name, cell.name) == (method, column))


def middle(number: Number) -> float:
    return number[0] if isinstance(number, tuple) else number


def test_every_table_and_figure_is_there() -> None:
    assert set(PAPER_RECIPES) == EXPECTED


@EACH
def test_settings_make_real_objects(recipe: Recipe) -> None:
    for settings in {run.settings for _, _, run in runs(recipe)}:
        parse_defence(settings.defence)
        _connection(settings)
        from_spec("protocol", settings.protocol, PROTOCOLS)
        assert settings.task in TASKS
        _check_attack(settings.select_by, settings.task)


@pytest.mark.parametrize("name", recipe_names())
def test_a_table_never_mixes_balanced_and_random_batches(name: str) -> None:
    recipe = load_recipe(name)
    settings = {run.settings for _, _, run in runs(recipe)}
    if any(
        part.balanced_batches
        for one in settings
        for part in parse_defence(one.defence).modules()
        if isinstance(part, Defence)
    ):
        assert all(one.balanced for one in settings)
    assert len({one.select_by for one in settings}) == 1


def test_settings_of_before_keep_their_keys() -> None:
    """Runs that are kept were made before batches could be balanced and words whole."""
    run = Run(encoder="minilm", seed=0, settings=Settings(task="sst2"))
    old = {"encoder": "minilm", "seed": 0, "settings": asdict(run.settings)}
    for younger in ("smooth", "hops", "reader", "balanced", "word_level"):
        del old["settings"][younger]
    assert run.key == hashlib.sha256(json.dumps(old, sort_keys=True).encode()).hexdigest()[:12]
    for change in ({"balanced": True}, {"word_level": True}):
        assert replace(run, settings=replace(run.settings, **change)).key != run.key
    assert replace(run, settings=replace(run.settings, select_by="loss")).key == run.key


def _connection(settings: Settings) -> None:
    keys = ("layers", "solver", "gradient", "form", "theta", "step")
    parse_connection(settings.connection, **{key: getattr(settings, key) for key in keys})


def _check_attack(spec: str | None, task: str) -> None:
    if spec is not None:
        attack = from_spec("attack", spec, ATTACKS)
        assert set(attack.frozen_columns) <= set(TASKS[task].columns)


@EACH
def test_measurements_exist(recipe: Recipe) -> None:
    for _, column, run in runs(recipe):
        measure = column.measure
        tested = TASKS[measure.on or run.settings.task]
        _check_attack(measure.attack, tested.name)
        assert TASKS[run.settings.task].label_names == tested.label_names
        assert (tested.clean_task or tested.name).removesuffix("-mm") == run.settings.task
        assert measure.group in (None, "word", "sentence", "human")
        assert measure.group is None or tested.group_column is not None


@EACH
def test_clean_accuracy_stands_beside_every_robust_number(recipe: Recipe) -> None:
    names = [column.name for column in recipe.columns]
    assert "Clean" in names or "Clean Avg." in names
    for column in recipe.measured:
        if column.name.startswith("Clean"):
            assert (column.measure.what, column.measure.on, column.measure.attack) == ("accuracy", None, None)


@EACH
def test_numbers_are_percentages_flops_or_millions_of_parameters(recipe: Recipe) -> None:
    for rows in recipe.paper_numbers.values():
        for row in rows.values():
            for column, number in row.items():
                values = number if isinstance(number, tuple) else (number,)
                assert len(values) <= 2
                most = 500 if "FLOPs" in column or column == "Params" else 100
                assert all(0 < value < most for value in values)


@EACH
def test_every_row_has_a_number_or_is_named_as_ours(recipe: Recipe) -> None:
    if not recipe.paper_numbers:  # a figure without printed numbers
        assert recipe.figure is not None
        assert any("prints no numbers" in note for note in recipe.notes)
        return
    printed = {name for rows in recipe.paper_numbers.values() for name in rows}
    for method in recipe.methods:
        assert method.name in printed or any(f"{method.name}," in note and " ours" in note for note in recipe.notes)


def test_averages_are_means_but_for_those_the_notes_name() -> None:
    off = set()
    for name, recipe in PAPER_RECIPES.items():
        for column in recipe.columns:
            for encoder, rows in recipe.paper_numbers.items():
                for method, row in rows.items():
                    if column.average and {column.name, *column.average} <= set(row):
                        own = mean(middle(row[part]) for part in column.average)
                        if abs(middle(row[column.name]) - own) >= 0.1:  # both sides are rounded to 0.05
                            off.add((name, encoder, method))
    assert off == {
        ("im-bert-table-1", "bert-base-uncased", "CreAT"),
        ("im-bert-table-1", "bert-large", "SMART, test set"),
        ("im-bert-table-1", "roberta-large", "SMART, test set"),
        ("im-bert-table-1", "roberta-large", "InfoBERT, test set"),
        ("im-bert-table-1", "roberta-large", "FreeLB, test set"),
    }
    said = " ".join(note for note in PAPER_RECIPES["im-bert-table-1"].notes if "not the mean of" in note)
    assert all(method in said for method in ("CreAT", "SMART", "InfoBERT", "FreeLB"))


@EACH
def test_averages_are_of_measured_columns(recipe: Recipe) -> None:
    measured = {column.name for column in recipe.measured}
    for column in recipe.columns:
        assert set(column.average) <= measured


@EACH
def test_flops_follow_the_papers_own_count(recipe: Recipe) -> None:
    """T + 1 passes through each connected layer of twelve: a typing error in either would show."""
    for method in recipe.methods:
        row = recipe.paper_numbers.get("bert-base-uncased", {}).get(method.name, {})
        if "FLOPs as the paper counts" not in row or method.settings.get("defence"):
            continue
        steps = int(re.sub(r"\D", "", method.settings.get("solver", "5")))
        first, _, last = method.settings.get("layers", "1-12").partition("-")
        connected = (int(last) - int(first) + 1) if "connection" in method.settings else 0
        expected = 22.35 * (1 + steps * connected / 12)
        assert middle(row["FLOPs as the paper counts"]) == pytest.approx(expected, abs=0.02)


@EACH
def test_no_class_path_and_no_file(recipe: Recipe) -> None:
    for _, column, run in runs(recipe):
        measure = column.measure
        for text in (*vars(run.settings).values(), measure.on, measure.attack, measure.substitutions):
            assert not isinstance(text, str) or not re.search(r"[/\\]|path|\.[a-z]", text)


@EACH
def test_rows_differ(recipe: Recipe) -> None:
    """Two methods with one training would be a row that is not what it says."""
    for column in recipe.measured:
        trained = [run for _, cell, run in runs(recipe) if cell.name == column.name]
        assert len(set(trained)) == len(recipe.methods)


@pytest.mark.parametrize(
    "cells",
    [
        (
            ("im-bert-table-1", "BERT", "SST-2"),
            ("im-bert-table-3", "BERT", "All"),
            ("im-bert-table-6", "BERT", "Clean"),
        ),
        (("im-bert-table-1", "SMART", "RTE"), ("im-bert-table-4", "SMART", "Word RTE")),
        (("im-bert-table-1", "IM-BERT", "MNLI-m"), ("im-bert-table-4", "IM-BERT", "Human MNLI-mm")),
        (("im-bert-table-3", "Layer (4-6)", "Word"), ("im-bert-table-6", "IM-BERT (4-6)", "Accuracy")),
        *(
            (
                (f"rift-table-{number}", "RIFT", "PWWS"),
                (f"rift-table-3{letter}", "I(S;T|Y)", "Genetic"),
                (f"rift-table-4{letter}", best, "Clean"),
            )
            for number, letter, best in ((1, "a", "alpha=0.10"), (2, "b", "alpha=0.70"))
        ),
        *(
            ((f"rift-table-{number}", "Adv-Base", "PWWS"), (f"rift-table-4{letter}", "alpha=0.00", "PWWS"))
            for number, letter in ((1, "a"), (2, "b"))
        ),
        *(
            (
                ("rift-table-1", method, "PWWS"),
                ("rift-figure-2a", method, "Clean"),
                ("rift-figure-4", f"{method} (beta=10)", "PWWS"),
            )
            for method in ("Adv-Base", "Adv-PTWD", "Adv-Mixout", "RIFT")
        ),
        (
            ("rift-table-1", "Standard", "PWWS"),
            ("rift-figure-2b", "Standard", "PWWS"),
            ("rift-figure-3", "I(S;Y)", "Clean"),
        ),
    ],
    ids=lambda cells: "-".join(cells[0]),
)
def test_tables_that_share_a_row_share_its_training(cells: tuple[tuple[str, str, str], ...]) -> None:
    assert len({of(*cell) for cell in cells}) == 1


def test_the_papers_tables_agree_about_the_rows_they_share() -> None:
    printed: dict[tuple[object, ...], dict[float, str]] = {}
    for name, recipe in PAPER_RECIPES.items():
        for method, column, run in runs(recipe):
            for encoder, rows in recipe.paper_numbers.items():
                if column.name in rows.get(method.name, {}):
                    key = (encoder, run, column.measure)
                    printed.setdefault(key, {})[middle(rows[method.name][column.name])] = name
    assert max(map(len, printed.values())) == 2
    quarrels = {tuple(sorted(values.items())) for values in printed.values() if len(values) > 1}
    assert quarrels == {((29.1, "im-bert-table-6"), (31.1, "im-bert-table-1"))}
    assert any("29.1 here and 31.1 in Table 1" in note for note in PAPER_RECIPES["im-bert-table-3"].notes)


@pytest.mark.parametrize(
    "recipe", [found for found in PAPER_RECIPES.values() if found.figure], ids=lambda found: found.name
)
def test_figures_have_what_they_draw(recipe: Recipe) -> None:
    figure = recipe.figure
    assert figure is not None
    measured = {column.name: column.measure.what for column in recipe.measured}
    drawn = {"distance": "distance", "sweep": "distance", "feature-map": "features", "trade-off": "accuracy"}
    assert {measured[name] for name in figure.y} == {drawn[figure.kind]}
    if figure.kind in ("sweep", "trade-off"):
        lines: dict[str | None, list[float | None]] = {}
        for method in recipe.methods:
            lines.setdefault(method.family, []).append(method.x)
        assert all(places == sorted(set(places)) for places in lines.values())
        assert None not in lines
    if figure.kind == "trade-off":
        assert measured[str(figure.x)] == "accuracy"


@pytest.mark.parametrize("task", ["rte", "sst2"])
def test_im_bert_in_its_authors_regime(task: str) -> None:
    recipe = load_recipe(f"im-bert-authors-{task}")
    trained = {
        method.name: recipe.candidates("encoder", method, column, 0)
        for method in recipe.methods
        for column in recipe.measured
    }
    every = {run.settings for runs in trained.values() for run in runs}
    assert len(every) == 3 * len(recipe.methods)  # no two rows are one
    assert {(one.task, one.rows, one.epochs, one.batch_size) for one in every} == {(task, None, 3, 16)}
    for runs in trained.values():
        assert [run.settings.learning_rate for run in runs] == [2e-5, 5e-5, 1e-4]
    for name, (run, *_) in trained.items():
        keys = ("layers", "solver", "gradient", "form", "theta", "step")
        connection = parse_connection(run.settings.connection, **{key: getattr(run.settings, key) for key in keys})
        if "IM" not in name:
            assert connection is None or not connection.is_implicit
            continue
        assert connection is not None
        assert connection.layers == name.split(", ")[-1]
        if "Anderson" in name:
            assert isinstance(connection.gradient_mode, Implicit)
        else:
            solver = connection.solver
            assert isinstance(solver, GradientDescent)
            assert isinstance(connection.gradient_mode, Detached)
            assert (solver.steps, solver.rate) == (5, 0.1)
            assert (solver.safeguard == "polyak") == ("Polyak" in name)
