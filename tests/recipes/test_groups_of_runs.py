"""The script that runs the groups of `experiments/reproduce/groups.toml`, on a small world."""

from __future__ import annotations

import importlib.util
import json
import os
import runpy
import shutil
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_world import RECIPE, make_world

from unshaken_experiments import (
    Job,
    Measure,
    Measured,
    Outcome,
    Recipe,
    Run,
    Workspace,
    load_recipe,
    parse_recipe,
    plan,
    schedule,
)
from unshaken_experiments.runs import OUT_OF_MEMORY
from unshaken_experiments.table import Cell

PIPES = "CUDA_MPS_PIPE_DIRECTORY"
EXPERIMENTS = Path(__file__).parents[2] / "experiments"
GROUPS = """
[[group]]
file = "small.jsonl"
encoder = "encoder"
recipes = ["{recipe}"]
methods = ["swap"]
columns = ["Clean", "PWWS"]
workers = 2
limit = 16
examples = 3
group_by_length = true
settings = {{ epochs = 1 }}

[[group]]
file = "small.jsonl"
encoder = "encoder"
recipes = ["{recipe}"]
methods = ["plain"]
columns = ["AdvGLUE"]
workers = 2
limit = 16
settings = {{ epochs = 1 }}
"""


@pytest.fixture
def in_a_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], tuple[Path, Callable[..., str], list[str]]]:
    return lambda groups: make_groups(tmp_path, groups, monkeypatch, capsys)


def make_groups(
    tmp_path: Path, groups: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[Path, Callable[..., str], list[str]]:
    """A folder with the scripts and some groups, a caller of them, and the words that run these.

    They run in this process, which has imported what each of them needs: a new one would take seconds for that.
    """
    world, workspace = make_world(tmp_path), tmp_path / "experiments"
    (workspace / "reproduce").mkdir(parents=True)
    for script in ("results.py", "run_groups.py"):
        shutil.copy(EXPERIMENTS / script, workspace)
    (workspace / "reproduce" / "groups.toml").write_text(groups.format(recipe=world / "small.toml"))

    monkeypatch.syspath_prepend(workspace)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")

    def call(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", list(words))
        monkeypatch.delitem(sys.modules, "results", raising=False)  # the script's own neighbour, read anew
        capsys.readouterr()
        try:
            runpy.run_path(str(workspace / words[0]), run_name="__main__")
        finally:
            monkeypatch.delitem(sys.modules, "results", raising=False)
        return capsys.readouterr().out

    places = ["--encoders", str(world), "--data", str(world / "data")]
    return workspace, call, ["run_groups.py", "small.jsonl", *places, "--workers", "2"]


@pytest.mark.full
def test_groups_share_their_trainings_and_are_not_run_twice(tmp_path: Path, in_a_world: Any) -> None:
    workspace, call, command = in_a_world(GROUPS)
    command, out = [*command, "--out"], str(tmp_path / "out")
    assert call(*command, out, "--only", "small.jsonl", "plain", "--seed", "1").startswith("1 training runs")
    assert call(*command, out, "--only", "small.jsonl", "plain").startswith("1 training runs")  # the other seed
    assert call(*command, out).startswith("2 training runs")  # the other
    with pytest.raises(SystemExit) as refused:
        call(*command, out, "--only", "small.jsonl", "plan")
    assert "did you mean 'plain'?" in str(refused.value)
    with pytest.raises(SystemExit) as refused:
        call(*command, out, "--again", "smal.jsonl")
    assert "did you mean 'small.jsonl'?" in str(refused.value)
    with pytest.raises(SystemExit) as refused:
        call(*command, out, "--seed", "7")
    assert "no seed 7; they have 0, 1" in str(refused.value)
    assert "small.jsonl: 4 of 4 planned runs" in call("results.py", "collect", str(tmp_path / "out"))
    kept = [json.loads(line) for line in (workspace / "reproduce" / "small.jsonl").read_text().splitlines()]
    assert [outcome["error"] for outcome in kept] == [None] * 4
    plain = [outcome for outcome in kept if outcome["run"]["settings"]["defence"] == "standard"]
    assert [len(outcome["measured"]) for outcome in plain] == [3, 3]  # one training for both groups
    assert all(outcome["training"]["group_by_length"] for outcome in kept)
    assert call(*command, str(tmp_path / "other")).strip() == "0 training runs"
    assert call(
        *command, str(tmp_path / "other"), "--again", "small.jsonl", "--only", "small.jsonl", "plain"
    ).startswith("2 training runs")


CHOOSING = RECIPE.replace("learning_rate = 1e-3\n", "").replace(
    "seeds = [0, 1]", "seeds = [0, 1]\nchoose = { learning_rate = [1e-5, 1e-3] }"
)


@pytest.mark.full
def test_of_candidates_the_chosen_ones_alone_are_attacked(tmp_path: Path, in_a_world: Any) -> None:
    one = GROUPS.split("\n\n")[0].replace('["swap"]', '["plain"]').replace("epochs = 1", "epochs = 2")
    _, call, command = in_a_world(one)
    (tmp_path / "small.toml").write_text(CHOOSING)
    out = tmp_path / "out"
    command += ["--out", str(out)]
    told = call(*command)
    assert told.startswith("4 training runs")
    assert "2 of them are chosen" in told
    runs = [json.loads(path.read_text()) for path in (out / "small" / "runs").glob("*.json")]
    best = {
        rate: [run["training"]["held_out"]["best"] for run in runs if run["run"]["settings"]["learning_rate"] == rate]
        for rate in (1e-5, 1e-3)
    }
    chosen = min(best, key=lambda rate: sum(best[rate]))
    for run in runs:
        attacked = (
            {"sst2 clean", "sst2 pwws n=3"} if run["run"]["settings"]["learning_rate"] == chosen else {"sst2 clean"}
        )
        assert run["measured"].keys() == attacked
        assert run["training"]["seconds"] > 0
    assert list((out / "small" / "work").iterdir()) == []  # the models of those not chosen are not kept
    assert "small.jsonl: 4 of 4 planned runs" in call("results.py", "collect", str(out))
    assert call(*command).strip() == "0 training runs"


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The module that makes the page, with one group of a small recipe that claims something."""
    spec = importlib.util.spec_from_file_location("results_of_a_small_group", EXPERIMENTS / "results.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    claims = 'claims = [{ text = "Swapping helps", method = "swap", over = "plain", column = "Clean" }]\nmethods = ['
    recipe = tmp_path / "small.toml"
    recipe.write_text(RECIPE.replace("methods = [", claims, 1))
    (tmp_path / "groups.toml").write_text(
        '[[group]]\nfile = "small.jsonl"\nencoder = "minilm"\nrecipes = ["small"]\nworkers = 1\n'
    )
    module.HERE, module.recipe_names, module.load_recipe = tmp_path, lambda: ["small"], lambda _: load_recipe(recipe)
    return module


def run_by(recipe: Recipe, method: int, seed: int, code: dict[str, str] | None) -> Outcome:
    answers = {"sst2 clean": Measured(held="10" * 4, majority=0.5, data="x", model="m")}
    environment = {} if code is None else {"code": code}
    run = recipe.run("minilm", recipe.methods[method], recipe.columns[0], seed)
    return Outcome(run=run, training={"seconds": 1.0}, measured=answers, environment=environment)


CODE = {"version": "0.1.0", "commit": "0123456789"}


@pytest.mark.parametrize("old", [None, 0, 1, 2])
def test_a_claim_is_marked_if_a_run_behind_it_names_no_commit(results: Any, tmp_path: Path, old: int | None) -> None:
    """Of the methods 0 and 1 the claim speaks; what else the table holds does not count."""
    recipe = load_recipe(tmp_path / "small.toml")
    kept = [run_by(recipe, method, seed, None if method == old else CODE) for method in range(3) for seed in (0, 1)]
    (tmp_path / "small.jsonl").write_text("".join(outcome.line() + "\n" for outcome in kept))
    claim, *notes = results.index().splitlines()[2:]
    assert ("rows † |" in claim) == (old in (0, 1))
    assert [note[:1] for note in notes] == (["", "†"] if old in (0, 1) else [])


@pytest.mark.parametrize("idle", [None, "plain", "swap"])
def test_a_claim_about_an_attack_says_if_a_model_did_not_learn(results: Any, tmp_path: Path, idle: str | None) -> None:
    """Both models have to answer the texts themselves better than one label for all would, which is half of them."""
    small = tmp_path / "small.toml"
    text = small.read_text().replace("seeds = [0, 1]", "seeds = [0, 1, 2]")
    small.write_text(text.replace('over = "plain", column = "Clean"', 'over = "plain", column = "PWWS"'))
    recipe = load_recipe(small)
    kept = []
    for number, method in enumerate(recipe.methods):
        clean = Measured(held=("10" if method.name == idle else "11011111") * 64, majority=0.5, data="x", model="m")
        attacked = Measured(held="110100", majority=0.5, data="x", model="m")
        measured = {"sst2 clean": clean, "sst2 pwws n=6": attacked}
        kept += [replace(run_by(recipe, number, seed, CODE), measured=measured) for seed in (0, 1, 2)]
    (tmp_path / "small.jsonl").write_text("".join(outcome.line() + "\n" for outcome in kept))
    verdict = results.index().splitlines()[2].split(" | ")[5]
    assert verdict == ("**cannot tell**" if idle is None else "did not learn")


def test_an_attack_waits_until_every_candidate_was_tried_at_every_seed(results: Any, tmp_path: Path) -> None:
    """At seed 0 the first rate is the better one, over both seeds the second."""
    small = tmp_path / "small.toml"
    small.write_text(CHOOSING)
    recipe = load_recipe(small)
    group = results.groups()[0].only(["plain"])
    losses = {(1e-5, 0): 0.1, (1e-3, 0): 0.3, (1e-5, 1): 0.9, (1e-3, 1): 0.3}
    runs = {
        (run.settings.learning_rate, seed): run
        for seed in (0, 1)
        for run in recipe.candidates("minilm", recipe.methods[0], recipe.columns[0], seed)
    }
    outcomes = {
        at: Outcome(run=run, training={"held_out": {"by": "loss", "best": losses[at]}}) for at, run in runs.items()
    }

    def attacked(*known: Outcome) -> set[Run]:
        due = group.due({outcome.run.key: outcome for outcome in known})
        assert {job.run for job in due} == set(runs.values())
        assert all({measure.attack for measure in job.measures} <= {None, "pwws"} for job in due)
        return {job.run for job in due if any(measure.attack for measure in job.measures)}

    first = [outcome for (_, seed), outcome in outcomes.items() if seed == 0]
    assert attacked() == attacked(*first) == attacked(*list(outcomes.values())[:3]) == set()
    assert attacked(*outcomes.values()) == {runs[1e-3, 0], runs[1e-3, 1]}
    lost = Outcome(run=runs[1e-3, 1], error="ValueError: the loss is not finite (task = nan)")
    assert attacked(*list(outcomes.values())[:3], lost) == {runs[1e-5, 0], runs[1e-5, 1]}


def test_of_two_tables_the_headline_takes_the_one_with_more_seeds(results: Any) -> None:
    """Both numbers of a method from one table; with as many seeds the later one, which has all defences."""

    def table(clean: float, **seeds: int) -> list[Cell]:
        own = [(method.replace("_", " "), tuple(range(count))) for method, count in seeds.items()]
        return [
            Cell(method=method, column=column, ours=value if ran else None, seeds=ran)
            for method, ran in own
            for column, value in (("Clean", clean), ("Worst, known", clean - 50))
        ]

    whole = table(90.0, Smoothed_1=3, SWAP=3, Standard=3)
    begun = table(80.0, Smoothed_1=0, SWAP=3, Standard=1, RIFT=1)
    for order, swap in (([whole, begun], 80.0), ([begun, whole], 90.0)):
        points = results.best_known(order)
        shown = {method: (clean.ours, worst.ours) for method, (clean, worst) in points.items()}
        wanted = {"Standard": 90.0, "RIFT": 80.0, "SWAP": swap, "Smoothed 1": 90.0}
        assert shown == {method: (clean, clean - 50) for method, clean in wanted.items()}
        assert list(shown) == list(wanted)  # as the figure lists them


def test_a_table_names_the_code_that_made_it(results: Any, tmp_path: Path) -> None:
    recipe = load_recipe(tmp_path / "small.toml")
    runs = [run_by(recipe, 0, seed, code) for seed, code in enumerate([CODE, {**CODE, "commit": "abcdef0"}, None])]
    assert results.made_by(runs[:1]) == "Made by commit `0123456` (version 0.1.0)."
    assert results.made_by(runs[2:]) == "Made by code before commits were recorded."
    told = "commits `0123456`, `abcdef0` (version 0.1.0) and code before commits were recorded (1 of 3 runs)"
    assert results.made_by(runs) == f"Made by {told}."


def test_plain_fine_tuning_of_another_encoder_is_not_called_bert(results: Any, tmp_path: Path) -> None:
    """On the page alone: runs, commands and the numbers of sentences go by the recipe's name."""
    path = tmp_path / "small.toml"
    named = path.read_text().replace('name = "plain"', 'name = "BERT"')
    path.write_text(named.replace('"plain" =', '"BERT" =').replace('over = "plain"', 'over = "BERT"')
                    .replace('reference = "plain"', 'reference = "BERT"'))  # fmt: skip
    recipe = load_recipe(path)
    kept = [run_by(recipe, method, seed, CODE) for method in (0, 1) for seed in (0, 1)]
    (tmp_path / "small.jsonl").write_text("".join(outcome.line() + "\n" for outcome in kept))
    page = results.section("small")
    assert "\n| plain | 50.0 " in page
    assert "<br>paper 90 |" in page
    assert "No difference from plain has" in page
    assert "plain fine-tuning, which the paper calls BERT" in page
    assert "| BERT" not in page
    assert results.number("small", "minilm", "BERT", "Clean") == "50.0"
    (tmp_path / "groups.toml").write_text((tmp_path / "groups.toml").read_text().replace("minilm", "bert-base"))
    results.groups.cache_clear()
    assert results.labels(results.groups()[0], "small")["BERT"] == "BERT"


def test_our_own_claims_have_no_number_of_a_paper(results: Any, tmp_path: Path) -> None:
    recipe = load_recipe(tmp_path / "small.toml")
    kept = [run_by(recipe, method, seed, CODE) for method in (0, 1) for seed in (0, 1)]
    (tmp_path / "small.jsonl").write_text("".join(outcome.line() + "\n" for outcome in kept))
    assert results.index().splitlines()[2].split(" | ")[2] == ""
    (tmp_path / "small.toml").write_text((tmp_path / "small.toml").read_text().replace('"ours"', '"RIFT"'))
    assert results.index().splitlines()[2].split(" | ")[2] == "not printed"


def test_every_group_names_rows_and_columns_of_its_recipes() -> None:
    """A name with a mistake would leave a row out, and nobody would notice before it was run."""
    groups = tomllib.loads((EXPERIMENTS / "reproduce" / "groups.toml").read_text(encoding="utf-8"))["group"]
    for group in groups:
        recipes = [load_recipe(name) for name in group["recipes"]]
        assert set(group.get("methods", ())) <= {row.name for recipe in recipes for row in recipe.methods}
        assert set(group.get("columns", ())) <= {column.name for recipe in recipes for column in recipe.columns}


def try_once(run: Run, measures: Sequence[Measure], workspace: Workspace) -> Outcome:
    """A run that finds the memory full: always where its seed is -1, and at the first try where its seed is 0.

    Plain runs come last, when others have left already, and find room.
    """
    tries = workspace.out / run.name
    first = not tries.exists()
    with tries.open("a") as stream:
        stream.write(".")
    is_plain = run.settings.defence == "standard" and run.settings.connection == "none"
    is_full = run.seed < 0 or (run.seed == 0 and first and not is_plain)
    return Outcome(run=run, error=f"{OUT_OF_MEMORY} (a test)" if is_full else None)


def test_two_tables_of_a_recipe_are_told_apart_by_their_titles() -> None:
    sys.path.insert(0, str(EXPERIMENTS))
    try:
        import results as pages
    finally:
        sys.path.remove(str(EXPERIMENTS))
    titles = [(name, group.title) for group in pages.groups() for name in group.recipes]
    assert len(set(titles)) == len(titles) > 30


@pytest.mark.parametrize("seeds", [(0, 1), (-1, 1)])
@pytest.mark.full
def test_what_the_memory_has_no_room_for_is_tried_again_with_fewer_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: tuple[int, int]
) -> None:
    jobs = plan([parse_recipe("small", RECIPE, "small.toml")], "encoder", seeds=seeds)
    workspace = Workspace(encoders={}, data=None, out=tmp_path)
    monkeypatch.setattr(schedule, "execute", try_once)
    outcomes = {outcome.run: outcome for outcome in schedule.side_by_side([(job, workspace) for job in jobs], 2)}
    assert outcomes.keys() == {job.run for job in jobs}
    tries = {run: len((tmp_path / run.name).read_text()) for run in outcomes}
    if seeds[0] == 0:
        assert [outcome.error for outcome in outcomes.values()] == [None] * 6
        assert sorted(tries.values()) == [1, 1, 1, 1, 2, 2]
    else:
        assert sum(outcome.lacked_memory for outcome in outcomes.values()) == 3
        assert sorted(tries.values())[:3] == [1, 1, 1]
        assert 3 < sum(tries[run] for run in tries if run.seed < 0) <= 6  # at most once beside another, and once alone


@pytest.mark.full
def test_a_task_that_is_not_ready_is_waited_for_while_others_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = plan([parse_recipe("small", RECIPE, "small.toml")], "encoder")
    workspace = Workspace(encoders={}, data=None, out=tmp_path)
    monkeypatch.setattr(schedule, "execute", try_once)

    def is_ready(task: tuple[Job, Workspace]) -> bool:
        return task[0] != jobs[0] or len(done) == len(jobs) - 1

    done: list[Run] = []
    for outcome in schedule.side_by_side([(job, workspace) for job in jobs], 2, is_ready=is_ready):
        done.append(outcome.run)
    assert done[-1] == jobs[0].run


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_several_workers_run_side_by_side_and_one_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    jobs = plan([parse_recipe("small", RECIPE, "small.toml")], "encoder")
    workspace = Workspace(encoders={}, data=None, out=tmp_path)
    asked: list[int] = []

    def beside(tasks: Sequence[tuple[Job, Workspace]], count: int) -> list[Outcome]:
        asked.append(count)
        return [Outcome(run=job.run) for job, _ in tasks]

    monkeypatch.setattr(schedule, "side_by_side", beside)
    monkeypatch.setattr(schedule, "execute", lambda run, measures, place: Outcome(run=run))
    told: list[tuple[int, int, Run]] = []
    found = schedule.execute_all(
        jobs, workspace, workers=workers, report=lambda done, total, run, outcome: told.append((done, total, run))
    )
    assert asked == ([] if workers == 1 else [workers])
    assert [outcome.run for outcome in found] == [job.run for job in jobs]
    assert told == [(number, len(jobs), job.run) for number, job in enumerate(jobs, start=1)]


def test_the_service_that_shares_a_gpu_is_begun_once_and_ended_whatever_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.delenv(PIPES, raising=False)
    monkeypatch.setattr(schedule.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(
        schedule.subprocess,
        "run",
        lambda words, **how: calls.append((*words[1:], how.get("input"), PIPES in os.environ)),
    )

    @schedule._sharing_the_gpu()
    def stopped() -> None:
        assert calls == [("-d", None, True)]
        assert all(Path(os.environ[name]).is_dir() for name in (PIPES, "CUDA_MPS_LOG_DIRECTORY"))
        with schedule._sharing_the_gpu():  # it runs already, whoever began it
            assert len(calls) == 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert calls[1:] == [("quit\n", True)]
    assert PIPES not in os.environ
    assert "CUDA_MPS_LOG_DIRECTORY" not in os.environ
    monkeypatch.setattr(schedule.shutil, "which", lambda name: None)
    with schedule._sharing_the_gpu():
        assert PIPES not in os.environ
    assert len(calls) == 2


def test_a_run_of_another_group_does_not_displace_what_a_group_asked(results: Any, tmp_path: Path) -> None:
    """The shared training was measured more often elsewhere, but not by what this file's tables show."""
    own = run_by(load_recipe(tmp_path / "small.toml"), method=0, seed=0, code=CODE)
    other = {f"sst2 clean vote={count}": own.measured["sst2 clean"] for count in (4, 8)}
    (tmp_path / "small.jsonl").write_text(own.line() + "\n")
    shared = tmp_path / "out" / "runs"
    shared.mkdir(parents=True)
    (shared / f"{own.run.name}.json").write_text(replace(own, measured=other).line())
    results.collect([str(tmp_path / "out")])
    assert (tmp_path / "small.jsonl").read_text() == own.line() + "\n"

    (tmp_path / "earlier").mkdir()
    job = next(job for job in results.groups()[0].jobs() if job.run == own.run)
    fuller = replace(own, measured={measure.key("sst2"): own.measured["sst2 clean"] for measure in job.measures})
    (shared / f"{own.run.name}.json").write_text(fuller.line())
    results.kept.cache_clear()
    results.collect([str(tmp_path / "out")])
    assert (tmp_path / "small.jsonl").read_text() == fuller.line() + "\n"
    assert (tmp_path / "earlier" / "small.jsonl").read_text() == own.line() + "\n"


def test_of_two_records_of_a_run_one_is_taken_whole_and_the_other_told_of(
    results: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever folder comes last: neither does a partial record displace a fuller one, nor one by other code it."""
    run = run_by(load_recipe(tmp_path / "small.toml"), method=0, seed=0, code=CODE).run
    keys = [measure.key("sst2") for job in results.groups()[0].jobs() if job.run == run for measure in job.measures]

    def record(folder: str, commit: str, measures: Sequence[str]) -> Outcome:
        answers = Measured(held="10" * 4, majority=0.5, data="x", model=f"model of {folder}")
        environment = {"code": {**CODE, "commit": commit}}
        made = Outcome(run=run, measured=dict.fromkeys(measures, answers), environment=environment)
        made.save(tmp_path / folder / "runs")
        return made

    assert len(keys) > 1
    others = [f"sst2 clean vote={count}" for count in range(len(keys) + 1)]  # more, but nothing that is asked here
    whole = record("b/whole", "aaaaaaa", keys)
    rest = [
        record("a", "bbbbbbb", keys[1:]),
        record("b/more", "bbbbbbb", [*keys[1:], *others]),
        record("c", "ccccccc", keys),
    ]
    for given in ("abc", "bac", "cab"):
        results.collect([str(tmp_path / folder) for folder in given])
        assert (tmp_path / "small.jsonl").read_text() == whole.line() + "\n"
        told = [line for line in capsys.readouterr().out.splitlines() if run.name in line]
        assert len(told) == len(given)
        assert all("Taken: Made by commit `aaaaaaa` (version 0.1.0). Not: Made by commit `" in line for line in told)
        results.kept.cache_clear()
    results.collect([str(tmp_path / "a")], again=True)  # by newer code, and less of it
    assert (tmp_path / "small.jsonl").read_text() == whole.line() + "\n"
    capsys.readouterr()
    results.kept.cache_clear()
    results.collect([str(tmp_path / "b" / "whole")])
    assert run.name not in capsys.readouterr().out
    # No answer is lost, and none is kept twice.
    left = (tmp_path / "earlier" / "small.jsonl").read_text().splitlines()
    assert sorted(left) == sorted(other.line() for other in rest)
    results.kept.cache_clear()
    results.collect([str(tmp_path / "c")], again=True)
    assert (tmp_path / "small.jsonl").read_text() == rest[2].line() + "\n"
    left = (tmp_path / "earlier" / "small.jsonl").read_text().splitlines()
    assert {whole.line(), *(other.line() for other in rest[:2])} <= set(left)
