"""Recipes as they are read, planned, carried out, resumed and set into tables."""

from __future__ import annotations

import dataclasses
import json
import os
import runpy
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from small_world import RECIPE, make_world
from transformers import AutoConfig, AutoModel, AutoTokenizer
from typer.testing import CliRunner
from victims import bag_victim

from unshaken.attacks import PWWS, AttackResult, AttackResults, Unflagged
from unshaken.attacks.constraints import MaxChanged, SentenceSimilarity
from unshaken.certificates import ALL_WORDS, Deletion, Safer
from unshaken.cli import app
from unshaken.detection import Agreement, Guarded, threshold_for
from unshaken.errors import UnshakenError
from unshaken.evaluation.training_record import TrainingRecord
from unshaken.examples import Examples
from unshaken.readers import KnownWords, Leet, Readers
from unshaken.readers import load as load_reader
from unshaken.substitutions import All, MaskedLM, Typos, Unseen, segment
from unshaken.tasks import load_task, trained_on
from unshaken.victims import Victim, Vote
from unshaken.victims.calibrated import calibrated
from unshaken_experiments import (
    Job,
    Measure,
    Measured,
    Outcome,
    Workspace,
    cells,
    cost,
    execute,
    execute_all,
    inputs,
    load_outcomes,
    load_recipe,
    markdown,
    parse_recipe,
    plan,
    tidy,
    unfinished,
    work,
)
from unshaken_experiments.cost import estimate, row_lengths
from unshaken_experiments.inputs import attack_of, parse_parts, plain, substitutions_of, training_rows
from unshaken_experiments.recipe import Claim
from unshaken_experiments.runs import OUT_OF_MEMORY, Run, make_settings
from unshaken_experiments.table import Cell, _shares, judge, star_counts, starred


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def finished(world: Path) -> tuple[Workspace, list[Outcome]]:
    """All runs of the small recipe, without checkpoints."""
    workspace = Workspace(
        encoders={"tiny": str(world / "encoder")}, data=world / "data", out=world / "out", checkpoints=False
    )
    return workspace, execute_all(plan([load_recipe(world / "small.toml")], "tiny"), workspace)


# ---------------------------------------------------------------------------------------------------------- the recipe


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("epochs = 2", "epoch = 2"), "unknown setting 'epoch'; did you mean 'epochs'?"),
        (('name = "plain", family', 'nam = "plain", family'), "unknown key 'nam'"),
        (('reference = "plain"', 'reference = "plan"'), "did you mean 'plain'?"),
        (('average = ["Clean", "PWWS"]', 'average = ["Cleen"]'), "did you mean 'Clean'?"),
        (("seeds = [0, 1]", "seeds = []"), "no seed"),
        (("seeds = [0, 1]", 'seeds = ["a"]'), "a whole number"),
        (('what = "gflops"', 'what = "flops"'), "none of"),
        (('title = "A small table"', "title = A small table"), "not TOML"),
        (('name = "swap", family', 'name = "plain", family'), "two methods of the name 'plain'"),
        (('[figure]\nkind = "trade-off"', '[figure]\nkind = "pie"'), "none of"),
        (('title = "A small table"', 'name = "x"\ntitle = "t"'), "its file's"),
    ],
)
def test_a_mistake_in_a_recipe_is_named(change: tuple[str, str], message: str) -> None:
    assert change[0] in RECIPE
    with pytest.raises(UnshakenError) as error:
        parse_recipe("small", RECIPE.replace(*change), "small.toml")
    assert message in str(error.value)


def test_whose_setting_wins() -> None:
    recipe = parse_recipe("small", RECIPE.replace('variants=2" }', 'variants=2", rows = 9 }'), "small.toml")
    plain, swap = recipe.methods[:2]
    changes = {"rows": 5, "epochs": 1}
    assert recipe.run("e", plain, recipe.columns[0], 0).settings.epochs == 2
    assert recipe.run("e", plain, recipe.columns[0], 0, changes).settings.rows == 5
    chosen = recipe.run("e", swap, recipe.columns[0], 0, changes).settings
    assert (chosen.rows, chosen.epochs) == (9, 1)  # what makes the method is its own


def test_a_run_is_its_settings() -> None:
    whole, part = (make_settings("x", {"task": "sst2", "epochs": epochs}) for epochs in (3, 3.0))
    assert whole == part
    recipe = parse_recipe("small", RECIPE, "small.toml")
    one = recipe.run("e", recipe.methods[0], recipe.columns[0], 0)
    assert one.key == recipe.run("e", recipe.methods[0], recipe.columns[3], 0).key
    others = [dataclasses.replace(one, seed=1), dataclasses.replace(one, encoder="f")]
    assert len({one.key, *(other.key for other in others)}) == 3


def test_recipes_that_share_a_training_share_it() -> None:
    recipe = parse_recipe("small", RECIPE, "small.toml")
    jobs = plan([recipe, dataclasses.replace(recipe, name="again")], "e")
    assert len(jobs) == 6  # three methods, two seeds
    assert {job.run.seed for job in jobs[:3]} == {0}  # a plan that is cut short has whole seeds
    assert len(jobs[0].measures) == 5  # a group is part of its set, an average is none


def test_limits_are_part_of_what_is_measured() -> None:
    recipe = parse_recipe("small", RECIPE, "small.toml")
    keys = {
        measure.key("sst2") for job in plan([recipe], "e", examples=3, clean_examples=4) for measure in job.measures
    }
    assert {"sst2 pwws n=3", "sst2 clean n=4", "advglue-sst2 clean n=4"} <= keys


def test_rows_and_columns_can_be_chosen() -> None:
    recipe = parse_recipe("small", RECIPE, "small.toml")
    chosen = recipe.only(["swap"], ["PWWS", "Both"])
    assert [row.name for row in chosen.methods] == ["plain", "swap"]  # with the row it is compared with
    assert [column.name for column in chosen.columns] == ["PWWS"]  # the average lacks a column
    with pytest.raises(UnshakenError, match="did you mean 'swap'"):
        recipe.only(["swop"])


def test_a_limit_adds_no_rows() -> None:
    recipe = parse_recipe("small", RECIPE.replace("epochs = 2", "epochs = 2\nrows = 7"), "small.toml")
    rows = [recipe.run("e", recipe.methods[0], recipe.columns[0], 0, {"rows": limit}).settings.rows for limit in (5, 9)]
    assert rows == [5, 7]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('average = ["Clean", "PWWS"]', 'average = ["Clean", "FLOPs"]'), "measured accuracies"),
        (('average = ["Clean", "PWWS"]', 'average = ["Both"]'), "measured accuracies"),
        (('average = ["Clean", "PWWS"]', 'worst_of = ["Both"]'), "the same examples"),
        (('average = ["Clean", "PWWS"]', 'worst_of = ["Clean", "PWWS"]'), "the same examples"),
        (('x = "Clean"\n', ""), "which it does not have"),
        (('y = ["PWWS"]\n', ""), "needs columns as its `y`"),
    ],
)
def test_what_cannot_be_shown_is_refused_before_it_is_run(change: tuple[str, str], message: str) -> None:
    assert change[0] in RECIPE
    with pytest.raises(UnshakenError, match=message):
        parse_recipe("small", RECIPE.replace(*change), "small.toml")


@pytest.mark.parametrize("spec", ["os.path:join", "my_pkg.mine:MyAttack"])
def test_a_recipe_loads_no_class(spec: str) -> None:
    with pytest.raises(UnshakenError, match="command line only"):
        attack_of(spec, "wordnet", None)


def test_a_recipe_names_its_sets_in_one_place(world: Path) -> None:
    """What stood in a specification was written over in silence, and the table named it all the same."""
    settings = make_settings("here", {"task": "sst2", "defence": "swap:substitutions=wordnet"})
    with pytest.raises(UnshakenError, match="in `substitutions` of its settings"):
        parse_parts(settings)
    for spec in ("bae", "bert-attack", "clare"):
        with pytest.raises(UnshakenError, match="set of its own"):
            attack_of(spec, "wordnet", world / "data")


def test_a_recipe_reads_no_file(world: Path) -> None:
    with pytest.raises(UnshakenError, match="no files"):
        substitutions_of(f"dictionary:path={world / 'data' / 'counterfitted_neighbors.json'}", world / "data")
    with pytest.raises(UnshakenError, match="counterfitted_neighbors"):
        substitutions_of("counter-fitted", world)


def test_two_sets_are_joined_in_the_order_in_which_they_are_named(world: Path) -> None:
    names = ("typos", "counter-fitted")
    one, other = (substitutions_of(name, world / "data") for name in names)
    assert substitutions_of(",".join(names), world / "data") == All((one, other))


def test_guesses_that_nothing_was_told_of_are_those_of_the_model_in_the_data_folder(
    world: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    shutil.copy(world / "data" / "counterfitted_neighbors.json", data)
    with pytest.raises(UnshakenError, match="the folder masked-lm of the data folder, and there is none"):
        substitutions_of("unseen-guesses", data)
    (data / "masked-lm").mkdir()  # without a model in it
    with pytest.raises(UnshakenError, match="and there is none"):
        substitutions_of("unseen-guesses", data)
    (data / "masked-lm" / "config.json").write_text("{}")
    known = tuple(substitutions_of(name, data) for name in ("counter-fitted", "wordnet"))
    guesses = MaskedLM(model=str(data / "masked-lm"))
    assert substitutions_of("unseen-guesses", data) == Unseen(guesses, known)


def test_an_attack_is_held_to_the_constraints_of_its_measure_besides_its_own(world: Path) -> None:
    own = attack_of("pwws", "counter-fitted", world / "data")
    constraints = ("similarity:threshold=0.7", "max-changed:share=0.2")
    held = attack_of("pwws", "counter-fitted", world / "data", constraints)
    assert held == dataclasses.replace(
        own, constraints=(*own.constraints, SentenceSimilarity(threshold=0.7), MaxChanged(share=0.2))
    )
    with pytest.raises(UnshakenError, match="a recipe names no models; the embedded MiniLM reads"):
        attack_of("pwws", "counter-fitted", world / "data", ("similarity:model=somewhere",))


@pytest.mark.parametrize(("limit", "kept"), [(4, (4, 2)), (8, (8, 2)), (16, (16, 4)), (40, (40, 10)), (None, (58, 14))])
def test_rows_are_limited_as_eight_to_two(world: Path, limit: int | None, kept: tuple[int, int]) -> None:
    """72 rows in all: of a limit of so many as there are to train on, nothing is drawn."""
    whole = training_rows(make_settings("here", {"task": "sst2"}), 0, world / "data")
    found = training_rows(make_settings("here", {"task": "sst2", "rows": limit}), 0, world / "data")
    assert tuple(map(len, filter(None, found))) == kept
    for part, every in zip(found, whole, strict=True):
        assert part is not None
        assert every is not None
        assert set(part.texts) <= set(every.texts)


@pytest.fixture
def own(world: Path, tmp_path: Path) -> Path:
    """A data folder with own/mail, and beside own/ what no recipe may reach."""
    rows = [(f"the {noun} is {word}", word) for noun in ("film", "plot", "end", "movie") for word in ("good", "bad")]
    for place in ("own/mail", "secret"):
        (tmp_path / place).mkdir(parents=True)
        for split, texts in (("train", rows), ("test", [(f"not {text}", label) for text, label in rows])):
            lines = [json.dumps({"text": text, "label": label}) for text, label in texts]
            (tmp_path / place / f"{split}.jsonl").write_text("\n".join(lines))
    shutil.copy(world / "data" / "counterfitted_neighbors.json", tmp_path)
    return tmp_path


def test_own_data_are_trained_on_and_measured(own: Path, world: Path) -> None:
    recipe = parse_recipe("mine", RECIPE.replace('task = "sst2"', 'task = "own/mail"'), "mine.toml")
    recipe = recipe.only(["plain"], ["Clean", "PWWS"])
    workspace = Workspace(
        encoders={"tiny": str(world / "encoder")}, data=own, out=own / "out", checkpoints=False, keep_models=True
    )
    job = plan([recipe], "tiny")[0]
    train, validation = training_rows(job.run.settings, 0, own)
    assert validation is not None
    assert {row.texts[0].split()[0] for row in (*train, *validation)} == {"the"}  # none of the test file
    assert len(train) + len(validation) == 8
    outcome = execute(job.run, job.measures, workspace)
    assert outcome.error is None
    test = load_task(own / "own" / "mail").require("test")
    victim = Victim.from_pretrained(str(workspace.work(job.run) / "model"), max_length=16)
    right = victim.log_probabilities(test.texts).argmax(-1) == test.labels
    assert outcome.measured["own/mail clean"].held == "".join("01"[int(one)] for one in right)
    assert outcome.measured["own/mail clean"].data == test.fingerprint
    assert len(outcome.measured["own/mail pwws n=6"].held) == 6


def test_searches_may_be_answered_in_half_precision_and_clean_answers_are_not(own: Path, world: Path) -> None:
    run = Run(encoder="tiny", seed=0, settings=make_settings("here", {"task": "own/mail", "max_length": 16}))
    places = {"encoders": {"tiny": str(world / "encoder")}, "data": own, "checkpoints": False}
    measures = (Measure(), Measure(attack="genetic:population=4,generations=2"), Measure(attack="pwws"))
    full, half = (
        execute(run, measures, Workspace(out=own / str(dtype), scoring_dtype=dtype, **places))
        for dtype in (None, "bf16")
    )
    assert full.error is half.error is None
    assert [found.scoring_dtype for found in full.measured.values()] == [None] * 3
    assert [found.scoring_dtype for found in half.measured.values()] == [None, "bf16", "bf16"]
    assert half.measured["own/mail clean"].held == full.measured["own/mail clean"].held
    assert {found.model for found in (*full.measured.values(), *half.measured.values())} == {
        full.measured["own/mail clean"].model  # one model, however it answers
    }
    Workspace(out=own / "bf16", scoring_dtype="bf16", **places).claim()
    with pytest.raises(UnshakenError, match="scoring_dtype 'bf16', not None"):
        Workspace(out=own / "bf16", **places).claim()
    with pytest.raises(UnshakenError, match="did you mean"):
        Workspace(out=own / "bf16", scoring_dtype="bf61", **places).check()


def test_a_feature_map_shows_texts_as_the_model_reads_them(own: Path, world: Path) -> None:
    folder = shutil.copytree(world / "encoder", own / "model")
    plain = Victim.from_pretrained(str(folder))
    reading = Victim.from_model(
        plain.model, plain.tokenizer, reader=Readers((Leet(known=KnownWords.of(["a good film"])),))
    )
    rows = load_task(own / "own" / "mail").require("test")
    disguised = rows.with_rows(dataclasses.replace(row, texts=(row.texts[0].replace("good", "g00d"),)) for row in rows)
    assert disguised.texts != rows.texts
    assert work._features(reading, disguised)["places"] == work._features(plain, rows)["places"]
    assert work._features(plain, disguised)["places"] != work._features(plain, rows)["places"]


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("own/mial", "did you mean 'own/mail'"),
        ("own/../secret", "no folder"),
        ("own/", "no folder"),
        ("own/mail/../../secret", "no folder"),
        ("/own/mail", "unknown task"),
    ],
)
def test_own_data_are_nothing_but_a_folder_of_own(own: Path, task: str, message: str) -> None:
    with pytest.raises(UnshakenError, match=message):
        training_rows(make_settings("here", {"task": task}), 0, own)


def test_own_data_without_a_data_folder_ask_for_it() -> None:
    with pytest.raises(UnshakenError, match="--data"):
        training_rows(make_settings("here", {"task": "own/mail"}), 0, None)


def test_what_a_reader_leaves_is_estimated_as_the_whole(own: Path, world: Path) -> None:
    """The estimate knows no reader: at most all errors are left."""
    workspace = Workspace(encoders={"tiny": str(world / "encoder")}, data=own, out=own / "out")
    run = Run(encoder="tiny", seed=0, settings=make_settings("here", {"task": "own/mail", "max_length": 16}))
    planned = [
        estimate([Job(run=run, measures=(Measure(attack="pwws", substitutions=name),))], workspace).lines[0].queries
        for name in ("typos", "unmended:typos", "unmended:counter-fitted")
    ]
    assert planned[0] == planned[1] > planned[2] > 0


def test_an_estimate_reads_a_task_once_for_all_methods(own: Path, world: Path) -> None:
    workspace = Workspace(encoders={"tiny": str(world / "encoder")}, data=own, out=own / "out")
    measures = (Measure(), Measure(attack="pwws", substitutions="typos"))
    rows = {"task": "own/mail", "max_length": 16, "epochs": 5}
    methods = [make_settings("here", rows | {"defence": name}) for name in ("standard", "swap")]
    jobs = [
        Job(run=Run(encoder="tiny", seed=seed, settings=method), measures=measures)
        for method in methods
        for seed in (0, 1)
    ]
    alone = [estimate([job], workspace).lines[0] for job in jobs]
    inputs._task.cache_clear()
    lines = estimate(jobs, workspace).lines
    read = inputs._task.cache_info()
    assert read.hits + read.misses == 2 + 2 + 1  # training rows of each seed, test rows of each measure, lengths
    for count in ("runs", "rows", "passes", "attacked", "queries"):
        assert sum(getattr(line, count) for line in lines) == sum(getattr(line, count) for line in alone), count
    assert [line.rows for line in lines] == [2 * 6 * 5] * 2  # two of the eight are held out


def test_an_estimate_times_rows_as_long_as_the_rows_are(own: Path, world: Path, monkeypatch: Any) -> None:
    """Batches are padded to the longest of their rows, and not to the most that a row may have."""
    tokenizer = AutoTokenizer.from_pretrained(world / "encoder")
    texts = [("good",), ("the film is good",), ("the film is bad and the plot is bad",)]
    sizes = [len(text.split()) + 2 for (text,) in texts]  # a token each, and the two special ones
    assert row_lengths(tokenizer, texts, 128) == (max(sizes), round(sum(sizes) / 3))
    assert row_lengths(tokenizer, texts, 5) == (5, round((3 + 5 + 5) / 3))
    assert row_lengths(tokenizer, [("a film", "the end")], 128) == (7, 7)

    def timed(clock: Any, encoder: str, size: int, length: int, *, training: bool = False) -> float:
        return (100 if training else 1) * length

    monkeypatch.setattr(cost._Clock, "_timed", timed)
    workspace = Workspace(encoders={"tiny": str(world / "encoder")}, data=own, out=own / "out")
    length = 6  # of "the film is good"
    for most in (16, 128):
        settings = make_settings("here", {"task": "own/mail", "epochs": 1, "max_length": most})
        run = Run(encoder="tiny", seed=0, settings=settings)
        assert cost._Clock(workspace).seconds(run) == (100 * length, length)
        (line,) = estimate([Job(run=run, measures=(Measure(examples=5),))], workspace).lines
        assert line.seconds == 6 * 100 * length + 5 * length  # six rows of training, five answers


def test_a_recipe_names_no_teacher_of_its_own() -> None:
    settings = make_settings("here", {"task": "sst2", "defence": "swap+teacher:model=anywhere"})
    with pytest.raises(UnshakenError, match="names no models"):
        parse_parts(settings)


def test_unseen_neighbours_are_in_neither_dictionary(world: Path) -> None:
    found, words = substitutions_of("unseen-neighbours", world / "data"), segment("a good film with a slow plot")
    known = [substitutions_of(name, world / "data").for_text(words) for name in ("counter-fitted", "wordnet")]
    assert any(found.for_text(words))
    for own, *seen in zip(found.for_text(words), *known, strict=True):
        assert not set(own) & {word for other in seen for word in other}


def test_a_masked_language_model_made_of_an_encoder_guesses_what_its_texts_say(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one sentence with four nouns and three endings, a gap has one answer, or one of few."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "counterfitted_neighbors.json").write_text('{"film": ["plot"], "plot": ["film"]}')
    with pytest.raises(UnshakenError, match="folder masked-lm of the data folder"):
        substitutions_of("unseen-guesses", data)
    nouns, ends = ("film", "plot", "story", "movie"), ("slow", "dull", "long")
    said = [f"the {noun} was not {end}" for noun in nouns for end in ends]
    texts = [{"text": f"{one}<br />{other}"} for one in said for other in said]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    encoder = AutoConfig.from_pretrained(world / "encoder")
    encoder.update({"hidden_size": 64, "intermediate_size": 64, "hidden_dropout_prob": 0.0, "initializer_range": 0.05})
    AutoModel.from_config(encoder).save_pretrained(tmp_path / "encoder")
    AutoTokenizer.from_pretrained(world / "encoder").save_pretrained(tmp_path / "encoder")
    words = ["--model", tmp_path / "encoder", "--texts", tmp_path / "texts.jsonl", "--out", data / "masked-lm"]
    words += ["--epochs", "15", "--batch-size", "16", "--length", "13", "--learning-rate", "5e-3", "--held-out", "32"]
    script = str(Path(__file__).parents[2] / "experiments" / "masked_lm.py")

    def call(*more: Any) -> None:
        monkeypatch.setattr(sys, "argv", ["masked_lm.py", *map(str, (*words, *more))])  # the last of two counts
        runpy.run_path(script, run_name="__main__")

    (tmp_path / "empty.jsonl").touch()
    for more, told in (
        (("--texts", tmp_path / "empty.jsonl"), "has no rows"),
        (("--texts", tmp_path / "gone.jsonl"), "no such file"),
        (("--model", tmp_path / "gone"), "no such folder"),
        (("--batch-size", 1000), "144 stretches of 13 tokens; 32 are held out, and one batch to train on has 1000"),
    ):
        with pytest.raises(SystemExit, match=told):
            call(*more)
    assert not (data / "masked-lm").exists()
    capsys.readouterr()
    call()
    record = json.loads((data / "masked-lm" / "trained.json").read_text())
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("held out: ")]
    assert len(said) == 15
    assert said[-1] == f"held out: {record['held_out_loss']:.3f}"
    # Of ten words and marks each is 2.3. Where a word stands leaves the choice of four, of three or none: 0.5.
    assert 0.4 < record["held_out_loss"] < 1.5
    guesses = substitutions_of("unseen-guesses", data).for_text(segment("the film was not slow the story was not long"))
    # What the dictionary ("plot") or WordNet ("movie") swaps there is no guess that nothing was told of.
    assert guesses[1][0] == "story"
    assert set(guesses[4][:2]) == {"long", "dull"}
    assert not {"plot", "movie", "film"} & set(guesses[1])


def test_what_a_measure_asks_of_changed_texts_reaches_its_attack(world: Path) -> None:
    spec, substitutions = "genetic:population=4,generations=6,scoring=margin", "counter-fitted"
    free = Measure(attack=spec, substitutions=substitutions)
    held = dataclasses.replace(free, constraints=("max-changed:share=0.2",))
    assert held.key("sst2") == f"{free.key('sst2')} max-changed:share=0.2"
    with pytest.raises(UnshakenError, match="needs an attack"):
        Measure(constraints=("stop-words",))
    with pytest.raises(UnshakenError, match="names no models"):
        attack_of(spec, substitutions, world / "data", ("similarity:model=anywhere",))
    # A victim that falls as soon as two words are changed, and not before.
    rows = Examples.from_lists(["good film great plot fine end"], ["good"], label_names=("bad", "good"))
    original = ["good", "film", "great", "plot", "fine", "end"]

    def score(texts: list[str]) -> list[list[float]]:
        changed = [sum(a != b for a, b in zip(text.split(), original, strict=True)) for text in texts]
        return [[min(count, 2) * 0.4, 1 - min(count, 2) * 0.4] for count in changed]

    victim = Victim.from_callable(score, label_names=rows.label_names)
    attacks = [attack_of(spec, substitutions, world / "data", one.constraints) for one in (free, held)]
    assert [attack(victim, rows)[0].outcome for attack in attacks] == ["success", "failure"]


# ------------------------------------------------------------------------------------------------------------ the runs


def test_runs_are_measured_and_kept(finished: tuple[Workspace, list[Outcome]]) -> None:
    workspace, outcomes = finished
    good = [outcome for outcome in outcomes if outcome.error is None]
    assert len(good) == 4
    kept = {outcome.run.key: outcome for outcome in load_outcomes(workspace.runs)}
    assert kept.keys() == {outcome.run.key for outcome in outcomes}
    for outcome in good:
        assert outcome.measured.keys() == {"sst2 clean", "advglue-sst2 clean", "sst2 pwws n=6"}
        assert len(outcome.measured["sst2 pwws n=6"].held) == 6
        assert outcome.training["gflops"] > 0
        assert not workspace.work(outcome.run).exists()
        read = kept[outcome.run.key]
        assert read == outcome or json.loads(json.dumps(dataclasses.asdict(read))) == json.loads(
            json.dumps(dataclasses.asdict(outcome))
        )


def one_kept_training(world: Path, out: Path) -> tuple[Workspace, Run]:
    encoders = {"tiny": str(world / "encoder")}
    workspace = Workspace(encoders=encoders, data=world / "data", out=out, checkpoints=False, keep_models=True)
    jobs = plan([load_recipe(world / "small.toml")], "tiny")
    return workspace, next(job.run for job in jobs if job.run.settings.connection == "none")


def test_an_attack_on_calibrated_scores_is_kept_beside_the_other(world: Path, tmp_path: Path) -> None:
    workspace, run = one_kept_training(world, tmp_path)
    outcome = execute(run, [Measure(attack="pwws", examples=6, calibrated=each) for each in (False, True)], workspace)
    assert outcome.error is None
    as_it_is, at_temperature = (outcome.measured[f"sst2 pwws {word}n=6"] for word in ("", "calibrated "))
    assert as_it_is.model == at_temperature.model  # of one training, whatever its scores
    victim = Victim.from_pretrained(str(workspace.work(run) / "model"), max_length=run.settings.max_length)
    _, validation = training_rows(run.settings, run.seed, world / "data")
    headers = [path.read_text().splitlines()[0] for path in (workspace.work(run) / "attacks").glob("*.jsonl")]
    assert {json.loads(header)["victim"]["fingerprint"] for header in headers} == {
        victim.fingerprint,
        calibrated(victim, validation).fingerprint,
    }


def test_votes_and_proofs_are_kept_by_example(world: Path, tmp_path: Path) -> None:
    workspace, run = one_kept_training(world, tmp_path)
    safer = "safer:samples=40,guesses=10,alpha=0.3"
    measures = [
        Measure(vote=3, examples=6),
        Measure(attack="pwws", vote=3, substitutions="typos", examples=6),
        Measure(attack="pwws", detector=4, examples=6),
        *(Measure(certificate=safer, radius=radius, examples=6) for radius in (None, 0, 1)),
        Measure(certificate="deletion:samples=40,guesses=10,alpha=0.3", radius=1, examples=6),
    ]
    outcome = execute(run, measures, workspace)
    assert outcome.error is None
    kept = {key: found.held for key, found in outcome.measured.items()}
    known = substitutions_of(run.settings.substitutions, world / "data")
    victim = Victim.from_pretrained(str(workspace.work(run) / "model"), max_length=run.settings.max_length)
    vote, rows = Vote(victim, 3, substitutions=known), inputs.test_rows(measures[0], run.settings.task, world / "data")
    right = vote.log_probabilities(rows.texts).argmax(-1) == rows.labels
    assert kept["sst2 clean vote=3 n=6"] == "".join(map(str, right.astype(int)))
    attacked = PWWS(substitutions=Typos())(vote, rows)
    assert kept["sst2 pwws typos vote=3 n=6"] == "".join(str(int(row.outcome == "failure")) for row in attacked)
    _, validation = training_rows(run.settings, run.seed, world / "data")
    detector = Agreement(Vote(victim, 4, substitutions=known))
    guarded = Guarded(detector, threshold_for(detector.suspicion(validation.texts), 0.01))
    attacked = PWWS(substitutions=known, goal=Unflagged())(guarded, rows)
    assert kept["sst2 pwws detector=4 n=6"] == "".join(str(int(row.outcome == "failure")) for row in attacked)
    proved = Safer(samples=40, guesses=10, alpha=0.3, substitutions=known)(victim, rows)
    for radius, name in ((ALL_WORDS, ""), (0, "r=0 "), (1, "r=1 ")):
        assert kept[f"sst2 {safer} {name}n=6"] == "".join(str(int(row.holds(radius))) for row in proved.rows)
    assert "1" in kept[f"sst2 {safer} r=0 n=6"]  # else nothing was told apart
    deleted = Deletion(samples=40, guesses=10, alpha=0.3)(victim, rows)
    assert kept["sst2 deletion:samples=40,guesses=10,alpha=0.3 r=1 n=6"] == "".join(
        str(int(row.holds(1))) for row in deleted.rows
    )


def test_measures_that_contradict_themselves_are_refused() -> None:
    both = {"attack": "pwws", "vote": 8, "detector": 8}
    for wrong in ({"certificate": "safer", "attack": "pwws"}, {"certificate": "safer", "vote": 8}, {"radius": 2}, both):
        with pytest.raises(UnshakenError, match="its measure"):
            Measure(**wrong)


def test_calibrated_answers_without_an_attack_are_refused() -> None:
    with pytest.raises(UnshakenError, match="needs an attack"):
        Measure(calibrated=True)


def test_an_impossible_run_is_named_and_stops_no_other(finished: tuple[Workspace, list[Outcome]]) -> None:
    failed = [outcome for outcome in finished[1] if outcome.error is not None]
    assert len(failed) == 2
    assert all("layer 9 does not exist" in str(outcome.error) for outcome in failed)


def test_what_is_finished_is_not_done_again(finished: tuple[Workspace, list[Outcome]], monkeypatch: Any) -> None:
    workspace, outcomes = finished
    jobs = [
        job
        for job in plan([load_recipe(workspace.out.parent / "small.toml")], "tiny")
        if job.run.settings.layers is None
    ]
    assert unfinished(jobs, workspace) == []
    monkeypatch.setattr("unshaken_experiments.work._train", lambda *_: pytest.fail("trained again"))
    again = execute(jobs[0].run, jobs[0].measures, workspace)
    assert again.measured == next(outcome for outcome in outcomes if outcome.run == jobs[0].run).measured


def test_what_a_kill_at_the_last_moment_leaves_is_removed(finished: tuple[Workspace, list[Outcome]]) -> None:
    workspace, _ = finished
    jobs = plan([load_recipe(workspace.out.parent / "small.toml")], "tiny", seeds=[0])
    for job in jobs:
        (workspace.work(job.run) / "model").mkdir(parents=True, exist_ok=True)
    tidy(jobs, dataclasses.replace(workspace, keep_models=True))
    assert all(workspace.work(job.run).exists() for job in jobs)
    tidy(jobs, workspace)
    assert {job.run for job in jobs if workspace.work(job.run).exists()} == {
        job.run for job in unfinished(jobs, workspace)
    }


def test_nothing_begins_after_the_deadline(world: Path, tmp_path: Path) -> None:
    workspace = Workspace(
        encoders={"tiny": str(world / "encoder")}, data=world / "data", out=tmp_path, deadline=time.time() - 1
    )
    jobs = plan([load_recipe(world / "small.toml")], "tiny", seeds=[0])
    assert all(not outcome.training for outcome in execute_all(jobs, workspace))
    assert len(unfinished(jobs, workspace)) == len(jobs)


def test_checkpoints_and_memory_select_the_same_epoch(world: Path, finished: tuple[Workspace, list[Outcome]]) -> None:
    workspace, outcomes = finished
    other = dataclasses.replace(workspace, out=world / "with-checkpoints", checkpoints=True, keep_models=True)
    job = next(
        job
        for job in plan([load_recipe(world / "small.toml")], "tiny")
        if job.run.settings.defence == "standard" and job.run.settings.layers is None
    )
    found = execute(job.run, job.measures, other)
    assert (
        found.measured["sst2 clean"].held == next(o for o in outcomes if o.run == job.run).measured["sst2 clean"].held
    )
    assert (other.work(job.run) / "model" / "config.json").is_file()


def test_a_teacher_is_the_plain_run_of_the_same_seed_and_is_counted(
    world: Path, tmp_path: Path, finished: tuple[Workspace, list[Outcome]]
) -> None:
    workspace, outcomes = finished
    standard = next(one for one in outcomes if one.run.settings.defence == "standard" and one.training)
    hardened = {"defence": "swap:variants=2+teacher", "smooth": "counter-fitted", "hops": 2, "reader": "unicode"}
    run = dataclasses.replace(standard.run, settings=dataclasses.replace(standard.run.settings, **hardened))
    assert plain(run.settings) == standard.run.settings

    kept = dataclasses.replace(workspace, out=tmp_path, keep_models=True)
    found = execute(run, [Measure()], kept)
    assert found.error is None
    teacher = Victim.from_pretrained(kept.work(run) / "teacher" / "model", max_length=16)
    assert found.training["facts"]["teacher"][:12] != found.measured["sst2 clean"].model
    assert teacher.fingerprint[:12] == standard.measured["sst2 clean"].model
    swap = next(one for one in outcomes if one.run.settings.defence == "swap:variants=2")
    assert found.training["cost"] == pytest.approx(swap.training["cost"] + 1 + 1 / 3, abs=2e-3)


def test_one_code_per_cluster_is_read_before_training_and_attack_and_is_known(
    world: Path, tmp_path: Path, finished: tuple[Workspace, list[Outcome]]
) -> None:
    workspace, outcomes = finished
    standard = next(one for one in outcomes if one.run.settings.defence == "standard" and one.training)
    settings = dataclasses.replace(standard.run.settings, reader="synonyms")
    run = dataclasses.replace(standard.run, settings=settings)
    kept = dataclasses.replace(workspace, out=tmp_path, keep_models=True)
    assert execute(run, [Measure()], kept).error is None
    folder = kept.work(run) / "model"
    words = substitutions_of("counter-fitted", world / "data")
    read = load_reader(folder)
    swapped = next(word for word in words.vocabulary() if words.neighbours(word))
    assert read(swapped) == read(words.neighbours(swapped)[0])
    (known,) = TrainingRecord.load(folder).substitutions
    assert known["fingerprint"] == words.fingerprint
    train, _ = training_rows(settings, run.seed, world / "data")
    assert any(read(row.texts[0]) != row.texts[0] for row in train)
    assert trained_on(folder, train) == len(train)  # rows that nobody should be measured on


@pytest.mark.full
def test_side_by_side_equals_one_by_one(world: Path, finished: tuple[Workspace, list[Outcome]]) -> None:
    workspace, outcomes = finished
    other = dataclasses.replace(workspace, out=world / "side-by-side")
    jobs = [job for job in plan([load_recipe(world / "small.toml")], "tiny", seeds=[0]) if not job.run.settings.layers]
    for outcome in execute_all(jobs, other, workers=2):
        alone = next(one for one in outcomes if one.run == outcome.run)
        assert {key: found.held for key, found in outcome.measured.items()} == {
            key: found.held for key, found in alone.measured.items()
        }


def test_rows_keep_the_papers_ratio(world: Path) -> None:
    settings = make_settings("x", {"task": "sst2", "rows": 16})
    train, validation = training_rows(settings, 0, world / "data")
    assert (len(train), len(validation)) == (16, 4)  # type: ignore[arg-type]
    assert not {row.id for row in train} & {row.id for row in validation}  # type: ignore[union-attr]
    other, _ = training_rows(settings, 1, world / "data")
    assert len({row.id for row in train} & {row.id for row in other}) < 10  # of 16: each seed draws its own of the 58


def test_every_seed_is_measured_on_the_same_rows(finished: tuple[Workspace, list[Outcome]]) -> None:
    _, outcomes = finished
    data: dict[str, dict[int, str]] = {}
    for outcome in outcomes:
        for key, found in outcome.measured.items():
            data.setdefault(key, {})[outcome.run.seed] = found.data
    assert any(len(seeds) > 1 for seeds in data.values())
    assert all(len(set(seeds.values())) == 1 for seeds in data.values())


def test_an_attack_is_marked_by_what_became_of_each_row_and_calibrated_on_validation_rows(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that training selected on: fitted to the rows that are reported, a temperature would know their labels."""
    outcomes: list[Any] = ["failure", "error", "success", "skipped", "failure", "success"]
    fitted_on: list[Examples] = []

    def attack(victim: Victim, rows: Examples, **_: Any) -> AttackResults:
        errors = [None, "it broke", None, None, "the text alone is answered otherwise", None]
        found = zip(rows, outcomes, errors, strict=True)
        told = [
            AttackResult(example_id=row.id, label=0, outcome=one, original=row.texts, error=error)
            for row, one, error in found
        ]
        return AttackResults(rows=tuple(told), attack="pwws")

    monkeypatch.setattr(work, "attack_of", lambda *_: attack)
    monkeypatch.setattr("unshaken.victims.calibrated.calibrated", lambda victim, rows: fitted_on.append(rows) or victim)
    recipe = load_recipe(world / "small.toml")
    run = recipe.run("tiny", recipe.methods[0], recipe.columns[0], 1)
    workspace = Workspace(encoders={}, data=world / "data", out=tmp_path)
    found = work._answers(bag_victim(), Measure(attack="pwws", examples=6, calibrated=True), run, workspace)
    assert (found.held, found.unconfirmed) == ("1?0010", 1)
    assert work._answers(bag_victim(), Measure(), run, workspace).unconfirmed is None
    assert fitted_on == [training_rows(run.settings, 1, world / "data")[1]]


# ----------------------------------------------------------------------------------------------------------- the table


def outcome_of(run: Any, held: str, training: dict[str, Any] | None = None) -> Outcome:
    marks = {"sst2 clean": held, "sst2 pwws n=6": "0" * len(held), "advglue-sst2 clean": held[:6]}
    measured = {
        key: Measured(
            held=value, majority=0.5, data="x", group_names=("word", "sentence"), groups="01" * (len(value) // 2)
        )
        for key, value in marks.items()
    }
    return Outcome(run=run, training=training or {}, measured=measured)


def table_of(plain: list[str], swap: list[str]) -> tuple[Any, dict[tuple[str, str], Any]]:
    recipe = parse_recipe("small", RECIPE, "small.toml")
    outcomes = {}
    for method, rows in zip(recipe.methods, (plain, swap), strict=False):
        for seed, held in enumerate(rows):
            run = recipe.run("e", method, recipe.columns[0], seed)
            outcomes[run.key] = outcome_of(run, held, {"gflops": 2.0 + seed, "distance": [[1, 0.1], [2, 0.2 + seed]]})
    found = cells(recipe, outcomes, "e", seeds=range(len(plain)))
    return recipe, {(cell.method, cell.column): cell for cell in found}


def test_numbers_of_a_table() -> None:
    _, found = table_of(["10101010", "11101010"], ["11111111", "11111110"])
    plain, swap = found["plain", "Clean"], found["swap", "Clean"]
    assert plain.ours == pytest.approx(100 * (4 + 5) / 16)
    assert plain.deviation == pytest.approx(100 * 0.125 / 2**0.5)
    assert plain.difference("bert-base-uncased") == pytest.approx(plain.ours - 90)
    assert swap.gain == pytest.approx(swap.ours - plain.ours)
    assert plain.low <= plain.ours <= plain.high
    assert plain.gain is None  # the reference is not compared with itself
    assert plain.majority == 50
    assert found["plain", "Word"].ours == pytest.approx(100)  # examples 0, 2 and 4 of the six
    assert found["plain", "Both"].ours == pytest.approx(plain.ours / 2)
    assert found["plain", "FLOPs"].ours == pytest.approx(2.5)
    assert found["plain", "Distance"].ours == pytest.approx(0.7)  # the last point of each curve
    assert found["too deep", "Clean"].ours is None


def test_equal_answers_gain_nothing_and_a_large_gain_is_significant() -> None:
    _, same = table_of(["10" * 40] * 3, ["10" * 40] * 3)
    assert (same["swap", "Clean"].gain, same["swap", "Clean"].significant) == (0, False)
    _, better = table_of(["10" * 40] * 3, ["11" * 40] * 3)
    assert better["swap", "Clean"].significant


def test_two_seeds_get_no_star_whatever_their_interval_says() -> None:
    recipe, found = table_of(["10" * 40] * 2, ["11" * 40] * 2)
    cell = found["swap", "Clean"]
    assert cell.gain_low > 0
    assert not cell.significant
    assert "\\*" not in markdown(recipe, list(found.values()))
    assert star_counts(list(found.values()), "plain") == "No difference from plain has the 3 seeds that a `*` needs."


def test_stars_hold_among_all_differences_of_their_table() -> None:
    """Twenty differences of p 0.04 are what chance gives; one of 0.001 among them is not."""
    several = [Cell(method="m", column=str(n), gain=1.0, gain_low=0.1, gain_high=2, gain_seeds=3, gain_p=0.04 + n / 1e4)
               for n in range(20)]  # fmt: skip
    assert [cell.significant for cell in starred(several)] == [True] * 20  # alike: none is more likely false
    unsure = [dataclasses.replace(cell, gain_p=0.5, gain_low=-1.0) for cell in several[5:]]
    clear = dataclasses.replace(several[0], column="clear", gain_p=0.001)
    mixed = starred([*several[:5], *unsure, clear])
    assert [cell.column for cell in mixed if cell.significant] == ["clear"]
    assert star_counts(mixed, "plain").endswith("1 of 21 differences; 6 if each is judged alone, by its 95% interval.")


def test_one_training_of_each_is_no_evidence_about_methods() -> None:
    _, found = table_of(["10" * 40], ["11" * 40])
    cell = found["swap", "Clean"]
    assert cell.gain_low > 0  # on these examples, for these two models
    assert (cell.gain_seeds, cell.significant) == (1, False)


def test_an_interval_has_a_width_where_all_answers_agree() -> None:
    _, found = table_of(["1" * 8] * 2, ["0" * 8] * 2)
    assert found["plain", "Clean"].low < 100
    assert found["swap", "Clean"].high > 0


def test_attacks_that_all_failed_to_run_give_no_number() -> None:
    _, found = table_of(["????????", "10101010"], ["11111111", "11111111"])
    assert found["plain", "Clean"].seeds == (1,)
    assert found["swap", "Clean"].gain_seeds == 1
    _, none = table_of(["????????"] * 2, ["11111111"] * 2)
    assert none["plain", "Clean"].ours is None
    assert none["swap", "Clean"].gain is None
    _, apart = table_of(["1111????"] * 2, ["????1111"] * 2)
    assert apart["swap", "Clean"].gain is None


def test_an_average_weighs_its_columns_alike_however_many_rows_they_have() -> None:
    shares = _shares([{0: "10", 1: "11"}, {0: "1111", 1: "1011"}])
    assert shares["ours"] == pytest.approx(100 * ((1 / 2 + 1) / 2 + (1 + 3 / 4) / 2) / 2)
    assert shares["examples"] == 6


def test_missing_attacks_are_left_out_of_the_share() -> None:
    _, found = table_of(["1?1?0?0?"] * 2, ["1?1?1?1?"] * 2)
    assert found["plain", "Clean"].ours == pytest.approx(50)
    assert found["swap", "Clean"].gain == pytest.approx(50)


def test_the_worst_case_holds_where_every_attack_failed() -> None:
    text = RECIPE.replace(
        '{ name = "Both", average = ["Clean", "PWWS"] }', '{ name = "Both", worst_of = ["Clean", "Other"] }'
    )
    text = text.replace('{ name = "FLOPs"', '{ name = "Other", measure = { attack = "genetic" } },\n  { name = "FLOPs"')
    recipe = parse_recipe("small", text, "small.toml")
    run = recipe.run("e", recipe.methods[0], recipe.columns[0], 0)
    held = {"sst2 clean": "1100?1?", "sst2 genetic": "10101?0"}
    outcome = Outcome(
        run=run, measured={key: Measured(held=value, majority=0.5, data="x", model="m") for key, value in held.items()}
    )
    found = {(cell.method, cell.column): cell for cell in cells(recipe, {run.key: outcome}, "e")}
    assert found["plain", "Both"].ours == pytest.approx(100 / 5)  # 1 0 0 0 ? ? 0
    assert found["swap", "Both"].ours is None


def test_a_worst_case_is_one_of_one_model() -> None:
    text = RECIPE.replace('average = ["Clean", "PWWS"]', 'worst_of = ["PWWS", "Other"]')
    text = text.replace(
        '{ name = "FLOPs"', '{ name = "Other", measure = { attack = "genetic", examples = 6 } },\n  { name = "FLOPs"'
    )
    recipe = parse_recipe("small", text, "small.toml")
    outcomes = {}
    # seed 1 was trained again before its second attack; nothing says which model answered for seed 2
    for seed, (first, other) in enumerate((("a", "a"), ("a", "b"), ("", ""))):
        run = recipe.run("e", recipe.methods[0], recipe.columns[0], seed)
        models = {"sst2 pwws n=6": first, "sst2 genetic n=6": other}
        measured = {key: Measured(held="111100", majority=0.5, data="x", model=model) for key, model in models.items()}
        outcomes[run.key] = Outcome(run=run, measured=measured)
    found = {(cell.method, cell.column): cell for cell in cells(recipe, outcomes, "e", seeds=[0, 1, 2])}
    assert found["plain", "PWWS"].seeds == (0, 1, 2)
    assert found["plain", "Both"].seeds == (0,)
    again = cells(recipe, outcomes, "e", seeds=[1, 2])
    later = {(cell.method, cell.column): cell for cell in again}
    assert later["plain", "Both"].why == "the records do not say that one model answered all of them"
    assert later["swap", "Both"].why == "not all of its columns were run"
    assert "| not known: the records do not say" in markdown(recipe, again, 2, "e")


def test_runs_that_answered_different_examples_are_neither_averaged_nor_compared() -> None:
    """A file may change under its path between two runs, and have as many rows as before."""
    recipe = parse_recipe("small", RECIPE, "small.toml")

    def shown(**data: tuple[str, str]) -> dict[str, Cell]:
        outcomes = {}
        for method in recipe.methods[:2]:
            for seed, rows in enumerate(data[method.name]):
                run = recipe.run("e", method, recipe.columns[0], seed)
                held = "1111" if method.name == "swap" else "1100"
                outcomes[run.key] = Outcome(
                    run=run, measured={"sst2 clean": Measured(held=held, majority=0.5, data=rows, model="m")}
                )
        found = cells(recipe, outcomes, "e", seeds=[0, 1])
        return {cell.method: cell for cell in found if cell.column == recipe.columns[0].name}

    same = shown(plain=("x", "x"), swap=("x", "x"))
    assert (same["plain"].ours, same["swap"].ours, same["swap"].gain) == (50, 100, 50)
    apart = shown(plain=("x", "x"), swap=("y", "y"))
    assert (apart["plain"].ours, apart["swap"].ours, apart["swap"].gain) == (50, 100, None)
    mixed = shown(plain=("x", "x"), swap=("x", "y"))
    assert (mixed["plain"].ours, mixed["swap"].ours) == (50, None)
    assert mixed["swap"].why == "its runs answered different examples"


def test_the_page_shows_paper_ours_and_what_was_not_run() -> None:
    recipe, found = table_of(["10101010"] * 2, ["11111111"] * 2)
    other = markdown(recipe, list(found.values()), encoder="minilm")
    assert "paper 90<br>" in other or "paper 90 |" in other
    assert "paper 90 (" not in other  # two encoders apart, a difference says nothing about the method
    text = markdown(recipe, list(found.values()), encoder="bert-base-uncased")
    assert "paper 90 (-40.0)" in text
    assert "The paper's encoder: bert-base-uncased." in text
    assert "paper 20 ± 1.5 (-20.0)" in text
    assert "not run" in text
    assert "Always answering the most frequent label: Clean 50.0" in text


def test_a_claim_repeats_is_refuted_or_cannot_be_told() -> None:
    claim = Claim(text="b is above a", method="b", over="a", column="c")
    rival = Cell(method="a", column="c", paper={"bert": (50.0, 1.0), "other": 1.0})

    def verdict(low: float, high: float, seeds: int = 3, paper: float = 60.0) -> str | None:
        gain = {"gain": (low + high) / 2, "gain_low": low, "gain_high": high, "gain_seeds": seeds}
        return judge(claim, Cell(method="b", column="c", paper={"bert": paper}, **gain), rival).verdict

    assert verdict(1, 3) == "repeats"
    assert verdict(-3, 9) == "no"  # a gain of 10 points, the paper's, is left out
    assert verdict(-3, 11) == "cannot tell"
    assert verdict(-3, -1, paper=45.0) == "no"
    assert verdict(-3, 1, paper=45.0) == "cannot tell"
    assert verdict(1, 3, seeds=2) is None
    assert judge(claim, Cell(method="b", column="c", paper={"bert": 60.0}), rival).paper == pytest.approx(10)


def test_a_table_says_which_runs_failed_and_that_a_mean_is_without_them() -> None:
    recipe = parse_recipe("small", RECIPE, "small.toml")
    outcomes = {}
    for method, seed in ((0, 0), (0, 1), (1, 0), (1, 1)):
        run = recipe.run("e", recipe.methods[method], recipe.columns[0], seed)
        right = {"sst2 clean": Measured(held="1111", majority=0.5, data="x")}
        lost = method == 1 or seed == 1
        error = f"step {7 + seed}: the gradient is not finite, first at x; lower the learning rate" if lost else None
        error = f"{OUT_OF_MEMORY}; fewer --workers" if (method, seed) == (1, 1) else error
        outcomes[run.key] = Outcome(run=run, error=error, measured={} if lost else right)
    found = cells(recipe, outcomes, "e")
    text = markdown(recipe, found, 2)
    rows = {line.split(" | ")[0].strip("| "): line for line in text.splitlines()}
    assert "100.0" in rows["plain, 1 of 2 seeds"]  # said once for the whole row
    assert text.count("of 2 seeds") == 1
    assert rows["swap"].count("failed") == len(recipe.columns)
    assert "- plain, 1 run: step 8: the gradient is not finite" in text
    assert "- swap, 1 run: step 7: the gradient is not finite" in text
    assert "- swap, 1 run: the GPU's memory is used up" in text


def test_data_cannot_break_out_of_a_table() -> None:
    hostile = RECIPE.replace('name = "swap", family', 'name = "a|b<script>", family')
    recipe = parse_recipe("small", hostile, "small.toml")
    text = markdown(recipe, cells(recipe, {}, "e"))
    assert "<script>" not in text
    assert all(line.count("|") - line.count("\\|") == 9 for line in text.splitlines() if line.startswith("|"))


# ----------------------------------------------------------------------------------------------------- the command line


@pytest.mark.full
def test_reproduce_from_the_command_line(world: Path, tmp_path: Path) -> None:
    fixed = [str(world / "small.toml"), "--encoder", str(world / "encoder"), "--data", str(world / "data")]
    fixed += ["--seeds", "0", "--method", "swap", "--examples", "4", "--set", "epochs=1"]
    run = CliRunner()
    planned = run.invoke(app, ["reproduce", *fixed, "--out", str(tmp_path / "out"), "--dry-run"])
    assert planned.exit_code == 0, planned.output
    assert "2 training runs, 0 of them finished" in planned.output
    assert not (tmp_path / "out").exists()
    done = run.invoke(app, ["reproduce", *fixed, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "out" / "small.md").read_text()
    assert "A small table" in page
    assert "changed for this run: epochs 1, attacked examples at most 4" in page
    assert "clean examples" not in page
    assert json.loads((tmp_path / "out" / "small.json").read_text())["encoder"] == "encoder"
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["im-bert-table-11"], "did you mean"),
        (["im-bert-table-3", "--seeds", "a"], "whole numbers"),
        (["im-bert-table-3", "--set", "epochs"], "KEY=VALUE"),
        (["im-bert-table-3", "--set", "epochs=many"], "a number"),
        (["im-bert-table-3", "--column", "Wort"], "did you mean 'Word'"),
        (["missing.toml"], "cannot read the recipe"),
        (["im-bert-table-3", "--data", "no/such/folder"], "no such folder"),
        (["im-bert-table-3", "--encoder", "./no-such-model"], "no such folder"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(words: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["reproduce", *words])
    assert result.exit_code != 0
    assert isinstance(result.exception, UnshakenError)
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)


def test_a_folder_holds_runs_of_one_kind(world: Path, tmp_path: Path) -> None:
    workspace = Workspace(encoders={"tiny": str(world / "encoder")}, data=world / "data", out=tmp_path / "out")
    workspace.claim()
    workspace.claim()
    dataclasses.replace(workspace, encoders={"other": "someone/other"}).claim()  # another name is another run
    twin = tmp_path / "encoder"
    twin.mkdir()
    for change in ({"data": None}, {"bf16": True}, {"group_by_length": True}, {"encoders": {"tiny": str(twin)}}):
        with pytest.raises(UnshakenError, match="name another --out"):
            dataclasses.replace(workspace, **change).claim()


def test_waiting_is_not_ended_by_the_error_of_an_earlier_command(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader of several processes: a run that failed before is being done again by another process."""
    from unshaken.console import Console
    from unshaken_experiments.command import _wait_for_others, _written

    job = plan([load_recipe(world / "small.toml")], "tiny")[0]
    workspace = Workspace(encoders={}, data=None, out=tmp_path)
    path = Outcome(run=job.run, error="out of memory").save(workspace.runs)
    begun = {job.run: _written(job, workspace)}
    waited = []

    def failed_again(seconds: float) -> None:
        waited.append(seconds)
        os.utime(path, (begun[job.run] + 5,) * 2)

    monkeypatch.setattr(time, "sleep", failed_again)
    _wait_for_others([job], begun, workspace, Console())
    assert len(waited) == 1


def test_what_the_page_needs_is_asked_for_before_training(world: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    words = [str(world / "small.toml"), "--encoder", str(world / "encoder"), "--data", str(world / "data")]
    result = CliRunner().invoke(app, ["reproduce", *words, "--out", str(tmp_path / "out")])
    assert "need matplotlib and scipy: pip install 'unshaken[report]'" in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_the_measure_of_an_attack_has_one_name() -> None:
    keys = {
        Measure(attack="pwws").key("sst2"),
        Measure(attack="pwws", examples=5).key("sst2"),
        Measure(attack="pwws", substitutions="wordnet").key("sst2"),
        Measure(on="rte").key("sst2"),
        Measure().key("sst2"),
    }
    assert len(keys) == 5
