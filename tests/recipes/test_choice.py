"""Settings that a recipe chooses on rows held out of training: which candidate a row shows, and when it shows none."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from small_world import RECIPE, make_world

from unshaken.errors import UnshakenError
from unshaken.victims import Victim
from unshaken_experiments import (
    Cell,
    Measured,
    Outcome,
    Recipe,
    Run,
    Workspace,
    cells,
    execute,
    markdown,
    parse_recipe,
    plan,
)
from unshaken_experiments.figure import draw
from unshaken_experiments.inputs import attack_of, training_rows
from unshaken_experiments.results import coverage_line, save_results
from unshaken_experiments.runs import OUT_OF_MEMORY
from unshaken_experiments.work import _held_out

RATES = (1e-5, 1e-4, 1e-3)
CHOOSING = RECIPE.replace("learning_rate = 1e-3\n", "").replace(
    "seeds = [0, 1]", "seeds = [0, 1, 2]\nchoose = { learning_rate = [1e-5, 1e-4, 1e-3] }"
)
PLAIN_WITHOUT_DECAY = '{ name = "plain", family = "plain", settings = { weight_decay = 0.0 } }'
# The middle rate has the lowest mean. It is the lowest at no seed, and the last one has the lowest of all.
LOSSES = {1e-5: (0.2, 0.2, 0.9), 1e-4: (0.3, 0.3, 0.3), 1e-3: (0.9, 0.9, 0.1)}
CLEAN = {1e-5: "111110", 1e-4: "100000", 1e-3: "111111"}  # what is reported is worst where the choice falls
LOST = "step 3: the loss is not finite (task = nan)"


def recipe_of(text: str = CHOOSING) -> Recipe:
    return parse_recipe("small", text, "small.toml")


def outcome_of(run: Run, held_out: Mapping[str, Any] | None, held: str) -> Outcome:
    keys = ("sst2 clean", "sst2 pwws n=6", "advglue-sst2 clean")
    measured = {key: Measured(held=held, majority=0.5, data="x", model="m") for key in keys}
    training = {"gflops": 1.0, **({} if held_out is None else {"held_out": held_out})}
    return Outcome(run=run, training=training, measured=measured)


def ran(
    recipe: Recipe,
    scores: Mapping[float, Sequence[float]] = LOSSES,
    by: str = "loss",
    seeds: Sequence[int] = (0, 1, 2),
    changes: Mapping[str, Any] | None = None,
) -> dict[str, Outcome]:
    """All candidates of the plain method."""
    return {
        run.key: outcome_of(
            run,
            {"by": by, "best": scores[run.settings.learning_rate][seed]},
            CLEAN[run.settings.learning_rate],
        )
        for seed in seeds
        for run in recipe.candidates("e", recipe.methods[0], recipe.columns[0], seed, changes)
    }


def shown(recipe: Recipe, outcomes: Mapping[str, Outcome], column: str = "Clean", **options: Any) -> Cell:
    found = cells(recipe, outcomes, "e", **options)
    return next(cell for cell in found if (cell.method, cell.column) == ("plain", column))


def runs_at(recipe: Recipe, rate: float, seeds: Sequence[int] = (0, 1, 2)) -> list[Run]:
    return [
        run
        for seed in seeds
        for run in recipe.candidates("e", recipe.methods[0], recipe.columns[0], seed)
        if run.settings.learning_rate == rate
    ]


def test_every_candidate_is_planned_and_measured_alike() -> None:
    jobs = plan([recipe_of()], "e")
    assert len(jobs) == len({job.run.key for job in jobs}) == 3 * 3 * 3  # methods, rates, seeds
    assert len({job.measures for job in jobs}) == 1
    assert {job.run.seed for job in jobs[:9]} == {0}  # cut short, it has whole seeds with every candidate


def test_the_lowest_mean_loss_on_held_out_rows_decides_whatever_is_reported() -> None:
    recipe = recipe_of()
    for column in ("Clean", "PWWS", "Both"):
        cell = shown(recipe, ran(recipe), column)
        assert cell.chosen == {"learning_rate": 1e-4}
        assert cell.ours == pytest.approx(100 / 6)
        assert cell.seeds == (0, 1, 2)


def test_accuracy_under_attack_decides_by_the_highest_mean() -> None:
    recipe = recipe_of(CHOOSING.replace("epochs = 2", 'epochs = 2\nselect_by = "pwws"'))
    assert shown(recipe, ran(recipe, by="accuracy_under_attack")).chosen == {"learning_rate": 1e-3}


def test_one_seed_and_two_values_are_enough_and_what_all_candidates_share_is_not_told_as_chosen() -> None:
    two = CHOOSING.replace("[1e-5, 1e-4, 1e-3]", "[1e-4, 1e-3], weight_decay = [0.0, 0.1]")
    recipe = recipe_of(two.replace('{ name = "plain", family = "plain" }', PLAIN_WITHOUT_DECAY))
    outcomes = ran(recipe, seeds=(2,))
    assert len(outcomes) == 2
    cell = shown(recipe, outcomes, seeds=(2,))
    assert (cell.chosen, cell.seeds) == ({"learning_rate": 1e-3}, (2,))
    outcomes.popitem()
    assert shown(recipe, outcomes, seeds=(2,)).why == (
        "learning_rate cannot be chosen: 1 of 2 trainings have a held-out score"
    )


def test_the_first_of_equals_is_chosen() -> None:
    recipe = recipe_of()
    assert shown(recipe, ran(recipe, dict.fromkeys(RATES, (0.3, 0.3, 0.3)))).chosen == {"learning_rate": RATES[0]}


def test_nothing_is_chosen_among_some_of_the_candidates() -> None:
    recipe = recipe_of()
    outcomes = ran(recipe)
    for run in runs_at(recipe, 1e-3):
        del outcomes[run.key]
    cell = shown(recipe, outcomes)
    assert (cell.ours, cell.chosen, cell.undecided) == (None, {}, True)
    assert cell.why == "learning_rate cannot be chosen: 6 of 9 trainings have a held-out score"
    assert f"| plain | not run: {cell.why.replace('_', chr(92) + '_')}" in markdown(
        recipe, cells(recipe, outcomes, "e")
    )


def test_a_seed_without_all_candidates_is_left_out_of_choice_and_row() -> None:
    recipe = recipe_of()
    outcomes = ran(recipe)
    (missing,) = runs_at(recipe, 1e-3, [2])
    del outcomes[missing.key]
    cell = shown(recipe, outcomes)
    assert cell.chosen == {"learning_rate": 1e-5}  # by the first two seeds
    assert cell.seeds == (0, 1)
    assert "| plain, 2 of 3 seeds |" in markdown(recipe, cells(recipe, outcomes, "e"), 3)


@pytest.mark.parametrize("gone", ["no score", "memory"])
def test_what_has_no_score_counts_as_not_run(gone: str) -> None:
    recipe = recipe_of()
    outcomes = ran(recipe)
    for run in runs_at(recipe, 1e-5):
        if gone == "memory":
            outcomes[run.key] = Outcome(run=run, error=f"{OUT_OF_MEMORY}; fewer --workers need less")
        else:
            outcomes[run.key] = outcome_of(run, None, CLEAN[1e-5])  # as records from before have it
    cell = shown(recipe, outcomes)
    assert cell.ours is None
    assert "6 of 9 trainings" in str(cell.why)
    assert "cannot be chosen" in markdown(recipe, cells(recipe, outcomes, "e"))


@pytest.mark.parametrize("ending", ["error", "evaluation"])
def test_a_candidate_that_lost_its_numbers_loses_and_is_told(ending: str) -> None:
    recipe = recipe_of()
    outcomes = ran(recipe)
    (lost,) = runs_at(recipe, 1e-4, [1])
    if ending == "error":
        outcomes[lost.key] = Outcome(run=lost, error=LOST)
    else:
        outcomes[lost.key] = outcome_of(lost, {"by": "loss", "best": None}, CLEAN[1e-4])
    cell = shown(recipe, outcomes)
    assert cell.chosen == {"learning_rate": 1e-5}
    assert cell.seeds == (0, 1, 2)
    assert ("plain, 1 run: step 3" in markdown(recipe, cells(recipe, outcomes, "e"))) == (ending == "error")


def test_a_method_of_which_every_candidate_lost_its_numbers_has_no_number() -> None:
    recipe = recipe_of()
    outcomes = {key: Outcome(run=one.run, error=LOST) for key, one in ran(recipe).items()}
    cell = shown(recipe, outcomes)
    assert cell.ours is None
    assert cell.why == "learning_rate cannot be chosen: every value lost its numbers"


def test_each_training_of_a_method_chooses_its_own() -> None:
    text = CHOOSING.replace(
        '{ name = "AdvGLUE", measure = { on = "advglue-sst2" } }', '{ name = "RTE", settings = { task = "rte" } }'
    ).replace('average = ["Clean", "PWWS"]', 'average = ["Clean", "RTE"]')
    recipe = recipe_of(text)
    outcomes = ran(recipe)
    for seed in recipe.seeds:
        for run in recipe.candidates("e", recipe.methods[0], recipe.columns[1], seed):
            best = {1e-5: 0.1, 1e-4: 0.2, 1e-3: 0.3}[run.settings.learning_rate]
            answers = {"rte clean": Measured(held=CLEAN[run.settings.learning_rate], majority=0.5, data="x")}
            training = {"held_out": {"by": "loss", "best": best}}
            outcomes[run.key] = Outcome(run=run, training=training, measured=answers)
    assert shown(recipe, outcomes, "Clean").chosen == {"learning_rate": 1e-4}
    assert shown(recipe, outcomes, "RTE").chosen == {"learning_rate": 1e-5}
    both = shown(recipe, outcomes, "Both")
    assert both.chosen == {}
    assert both.ours == pytest.approx((100 / 6 + 500 / 6) / 2)
    page = markdown(recipe, cells(recipe, outcomes, "e"))
    assert (
        r"learning_rate 0.0001: plain (Clean, Word, PWWS, FLOPs, Distance). learning_rate 1e-05: plain (RTE)." in page
    )


def test_page_and_terminal_tell_what_was_chosen_and_from_what(tmp_path: Path) -> None:
    def told(text: str) -> tuple[str, str]:
        recipe = recipe_of(text)
        saved = save_results(recipe, ran(recipe) if recipe.choose else {}, "e", tmp_path)
        console = Console(width=1000, record=True, file=io.StringIO())
        console.print(saved.terminal)
        return (tmp_path / "small.md").read_text(), console.export_text()

    line = (
        "Chosen for each method on held-out training rows, by the mean over seeds "
        "(learning_rate of 1e-05, 0.0001, 0.001): learning_rate 0.0001: plain{}[a]."
    )
    page, terminal = told(CHOOSING.replace('"plain"', '"plain_[a]"'))
    assert line.format("\\_\\").replace("a]", "a\\]") in page
    assert line.format("_") in terminal
    assert "Chosen" not in "".join(told(RECIPE))


def test_what_a_user_a_method_or_a_column_says_is_not_chosen() -> None:
    text = CHOOSING.replace(
        '{ name = "Clean" }', '{ name = "Clean" }, { name = "Said", settings = { learning_rate = 9e-5 } }'
    )
    recipe = recipe_of(text.replace('variants=2" }', 'variants=2", learning_rate = 7e-5 }'))
    plain, swap = recipe.methods[:2]
    (of_column,) = recipe.candidates("e", plain, recipe.columns[1], 0)
    assert of_column.settings.learning_rate == 9e-5
    (own,) = recipe.candidates("e", swap, recipe.columns[0], 0)
    assert own.settings.learning_rate == 7e-5
    changes = {"learning_rate": 1e-3}
    (said,) = recipe.candidates("e", plain, recipe.columns[0], 0, changes)
    assert said.settings.learning_rate == 1e-3
    outcomes = {said.key: outcome_of(said, None, CLEAN[1e-3])}  # no score is needed
    cell = shown(recipe, outcomes, changes=changes)
    assert (cell.ours, cell.chosen) == (100, {})


def test_one_epoch_has_no_held_out_score_to_choose_by() -> None:
    with pytest.raises(UnshakenError, match="give it more epochs, or a value"):
        plan([recipe_of()], "e", changes={"epochs": 1})
    assert plan([recipe_of()], "e", changes={"epochs": 1, "learning_rate": 1e-3})


@pytest.mark.parametrize(
    ("choose", "message"),
    [
        ("{ learning_rat = [1, 2] }", "did you mean 'learning_rate'?"),
        ("{ rows = [10, 20] }", "cannot be chosen on held-out rows"),
        ("{ batch_size = [4, 8] }", "leave it out of the settings"),
        (f"{{ hops = {[*range(11)]}, weight_decay = {[*range(10)]} }}", "110 candidates a method"),
        ("{ learning_rate = [1e-5] }", "two or more values"),
        ("{ learning_rate = [1e-5, 1e-5] }", "two or more values"),
        ("{ learning_rate = 1e-5 }", "a list"),
    ],
)
def test_a_mistake_in_what_is_chosen_is_named(choose: str, message: str) -> None:
    with pytest.raises(UnshakenError) as error:
        recipe_of(CHOOSING.replace("{ learning_rate = [1e-5, 1e-4, 1e-3] }", choose))
    assert message in str(error.value)


@pytest.mark.parametrize("is_whole", [True, False])
def test_figure_and_coverage_are_of_what_was_chosen_at_the_first_seed_that_has_it(is_whole: bool) -> None:
    axes = 'kind = "trade-off"\nx = "Clean"\ny = ["PWWS"]'
    recipe = recipe_of(CHOOSING.replace(axes, 'kind = "distance"'))
    outcomes = ran(recipe)
    for key, one in outcomes.items():
        rate, share = one.run.settings.learning_rate, {1e-5: 0.5, 1e-4: 0.97, 1e-3: 0.6}[one.run.settings.learning_rate]
        told = {"hull_coverage": {"words": share, "substitutes": share, "texts": share}}
        distance = [[1, rate], [2, rate * (10 + one.run.seed)]]
        outcomes[key] = replace(one, training={**one.training, "facts": told, "distance": distance})
    if not is_whole:
        (missing,) = runs_at(recipe, 1e-3, [0])
        del outcomes[missing.key]
    (line,) = draw(recipe, outcomes, "e", ()).axes[0].lines
    seed, rate = (0, 1e-4) if is_whole else (1, 1e-4)
    assert list(line.get_ydata()) == pytest.approx([rate, rate * (10 + seed)])
    assert coverage_line(recipe, outcomes, "e") == "Substitutes that the hull held in training, 97%: plain."


def test_held_out_scores_are_by_what_selects_and_leave_out_lost_numbers() -> None:
    history = [
        {"eval_loss": 0.5, "eval_accuracy": 0.7, "eval_accuracy_under_attack": 0.2},
        {"loss": 0.1},  # of training
        {"eval_loss": math.nan, "eval_accuracy": 0.8, "eval_accuracy_under_attack": 0.4},
        {"eval_loss": 0.3, "eval_accuracy": 0.6, "eval_accuracy_under_attack": 0.1},
    ]
    by_epoch = {"loss": [0.5, None, 0.3], "accuracy": [0.7, 0.8, 0.6], "accuracy_under_attack": [0.2, 0.4, 0.1]}
    (by_loss,) = runs_at(recipe_of(), 1e-3, [0])
    by_attack = replace(by_loss, settings=replace(by_loss.settings, select_by="pwws"))
    assert _held_out(by_loss, history) == {"held_out": {"by": "loss", "best": 0.3, "by_epoch": by_epoch}}
    attacked = {"by": "accuracy_under_attack", "best": 0.4, "by_epoch": by_epoch}
    assert _held_out(by_attack, history) == {"held_out": attacked}
    lost = {"by": "loss", "best": None, "by_epoch": {"loss": [None]}}
    assert _held_out(by_loss, [{"eval_loss": math.nan}]) == {"held_out": lost}
    assert _held_out(by_attack, [{"eval_loss": 0.5}]) == {}


def keeping_models(tmp_path: Path, checkpoints: bool) -> Workspace:
    world = make_world(tmp_path)
    return Workspace(
        encoders={"tiny": str(world / "encoder")},
        data=world / "data",
        out=tmp_path / "out",
        keep_models=True,
        checkpoints=checkpoints,
    )


def test_a_training_that_an_attack_selects_keeps_its_accuracy_under_it(tmp_path: Path) -> None:
    workspace = keeping_models(tmp_path, checkpoints=False)
    recipe = recipe_of(CHOOSING.replace("epochs = 2", 'epochs = 2\nselect_by = "pwws"'))
    (run,) = (replace(run, encoder="tiny") for run in runs_at(recipe, 1e-3, [0]))
    held_out = execute(run, [recipe.columns[0].measure], workspace).training["held_out"]
    _, validation = training_rows(run.settings, run.seed, workspace.data)
    assert validation is not None
    victim = Victim.from_pretrained(str(workspace.work(run) / "model"), max_length=run.settings.max_length)
    results = attack_of("pwws", run.settings.substitutions, workspace.data)(victim, validation)
    assert held_out["by"] == "accuracy_under_attack"
    assert held_out["best"] == max(held_out["by_epoch"]["accuracy_under_attack"])
    assert held_out["best"] == pytest.approx(results.accuracy_under_attack)
    assert len(held_out["by_epoch"]["accuracy_under_attack"]) == 2


@pytest.mark.parametrize("checkpoints", [False, True])
def test_the_held_out_score_is_that_of_the_model_that_is_measured(tmp_path: Path, checkpoints: bool) -> None:
    workspace = keeping_models(tmp_path, checkpoints=checkpoints)
    recipe = recipe_of()
    (run,) = (replace(run, encoder="tiny") for run in runs_at(recipe, 1e-3, [0]))
    outcome = execute(run, [recipe.columns[0].measure], workspace)
    held_out = outcome.training["held_out"]
    _, validation = training_rows(run.settings, run.seed, workspace.data)
    assert validation is not None
    victim = Victim.from_pretrained(str(workspace.work(run) / "model"), max_length=run.settings.max_length)
    said = victim.log_probabilities(validation.texts)
    loss = -np.mean([row[label] for row, label in zip(said, validation.labels, strict=True)])
    assert held_out["by"] == "loss"
    assert held_out["best"] == min(held_out["by_epoch"]["loss"]) == pytest.approx(loss, abs=1e-4)
    assert len(held_out["by_epoch"]["loss"]) == len(held_out["by_epoch"]["accuracy"]) == 2
