"""One call from labelled texts to a hardened model and a report; the recipes that measure it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

import unshaken
from unshaken.attacks import Genetic
from unshaken.cli.harden import harden as harden_command
from unshaken.defences import SWAP
from unshaken.errors import UnshakenError
from unshaken.evaluation import merge
from unshaken.examples import Example, Examples
from unshaken.readers import load as load_reader
from unshaken.smoothing import Smoothing, smoothing_of
from unshaken.substitutions import All, Dictionary, Typos, Unmended, WordNet, parse_substitutions
from unshaken.tasks import Standard, load_examples, load_task, save_examples
from unshaken.tasks.leakage import trained_on
from unshaken.tasks.load import split_seed
from unshaken.tasks.sampling import stratified_split
from unshaken.training import RobustTrainingArguments
from unshaken.training.fine_tuning import Plan, fine_tune
from unshaken.training.hardening import _rows

WORDS = Dictionary(entries={"good": ["fine", "great"], "bad": ["poor", "awful"], "film": ["movie"]})
MORE_WORDS = Dictionary(entries={"indeed": ["truly"]})


def rows(count: int, start: int = 0) -> Examples:
    texts = ["a good film", "a bad film", "great movie indeed", "an awful movie indeed"]
    return Examples(
        rows=tuple(Example(id=str(start + n), texts=(f"{texts[n % 4]} {n}",), label=1 - n % 2) for n in range(count)),
        label_names=("negative", "positive"),
    )


def test_a_set_for_attacks_alone_is_refused_before_the_plain_model_is_trained(tmp_path: Path) -> None:
    with pytest.raises(UnshakenError, match="is for attacks"):
        unshaken.harden("minilm", rows(16), rows(8, 100), out=tmp_path / "out", substitutions=(WORDS, Unmended(WORDS)))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        ({"hops": 9}, "hops is 9; it is 1 to 4"),
        ({"substitutions": (Dictionary(entries={"zzqq": ["qqzz"]}),)}, "no usable substitute for any word"),
    ],
)
def test_what_only_the_hardened_model_needs_is_looked_at_before_the_plain_one_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: dict[str, Any], told: str
) -> None:
    monkeypatch.setattr("unshaken.training.hardening.fine_tune", lambda plan: pytest.fail("a model was trained"))
    given = {"out": tmp_path / "out", "substitutions": (WORDS,), **mistake}
    with pytest.raises(UnshakenError, match=told):
        unshaken.harden("minilm", rows(100), rows(8, 100), **given)
    assert not (tmp_path / "out").exists()


def test_a_set_is_not_refused_for_words_that_come_late_among_the_texts_looked_at(planned: Any) -> None:
    late = rows(64).with_rows(
        row.with_texts(("a zebra",)) if place == 60 else row for place, row in enumerate(rows(64))
    )
    words = (Dictionary(entries={"zebra": ["horse"]}),)
    assert len(planned("base", late, rows(8, 100), substitutions=words)) == 2
    with pytest.raises(UnshakenError, match="any word of the first 64 texts"):
        unshaken.harden("base", rows(64), rows(8, 100), substitutions=words)


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Plan]]:
    """What `harden` would train, the plain model and the hardened one; neither is trained."""

    def call(*given: Any, **options: Any) -> list[Plan]:
        plans: list[Plan] = []

        def noted(plan: Plan) -> None:
            plans.append(plan)
            if len(plans) == 2:
                raise KeyboardInterrupt

        monkeypatch.setattr("unshaken.training.hardening.fine_tune", noted)
        with pytest.raises(KeyboardInterrupt):
            unshaken.harden(*given, out=tmp_path / "out", **options)
        return plans

    return call


def test_both_models_are_trained_alike_and_one_of_them_is_hardened(tmp_path: Path, planned: Any) -> None:
    train, validation, arguments = rows(16), rows(4, 200), {"max_length": 32, "use_cpu": True}
    given = {"validation": validation, "seed": 7, "arguments": arguments, "resume": True}
    plain, hardened = planned(
        "base", train, rows(8, 100), substitutions=(WORDS, MORE_WORDS), hops=3, variants=5, **given
    )
    alike = {"model": "base", "train": train, **given}
    bare = {"method": "plain", "out": tmp_path / "out" / "plain"}
    assert plain == Plan(**alike, **bare)  # smoothed over nothing, read by nothing, and defended by nothing
    defence = hardened.defence
    assert isinstance(defence, SWAP)
    assert (defence.substitutions, defence.variants) == (All((WORDS, MORE_WORDS)), 5)
    whole = {
        "method": "hardened",
        "out": tmp_path / "out" / "hardened",
        "smoothing": Smoothing(substitutions=(WORDS, MORE_WORDS), hops=3),
        "reader": "all",
    }
    assert hardened == Plan(**alike, **whole, defence=defence)


def test_harden_takes_two_hops_and_eight_synonyms_of_wordnet_if_nothing_is_said(planned: Any) -> None:
    """As the page and the description of the arguments have it."""
    plain, hardened = planned("base", rows(16), rows(8, 100))
    assert hardened.smoothing == Smoothing(substitutions=(WordNet(limit=8),), hops=2)
    assert (hardened.defence.substitutions, hardened.defence.variants) == (WordNet(limit=8), 4)
    for plan in (plain, hardened):
        assert (plan.validation, plan.seed, plan.arguments, plan.resume) == (None, 0, {}, False)


def test_the_command_chooses_what_the_function_does_if_nothing_is_said() -> None:
    function, command = (signature(one).parameters for one in (unshaken.harden, harden_command))
    for name, default in {"hops": 2, "attacked": 100, "seed": 0, "resume": False}.items():
        assert (function[name].default, command[name].default) == (default, default)
    assert parse_substitutions(command["substitutions"].default) == (WordNet(limit=8),)


def test_rows_to_report_on_are_those_given_before_those_of_the_data(tmp_path: Path) -> None:
    """And only rows that were held out of the data are kept in a file of their own."""
    given = rows(8, 100)
    for name, count in (("train", 20), ("test", 6)):
        save_examples(tmp_path / "data" / f"{name}.jsonl", rows(count, 1000 * count), label_column="verdict")
    task = load_task(tmp_path / "data", label_column="verdict")
    for data, own in ((task, task.test), (rows(16), None)):
        found = _rows(data, given, 0)
        assert found.test is given
        assert not found.kept
        assert own is None or (_rows(data, None, 0).test, _rows(data, None, 0).kept) == (own, False)
    assert len(_rows(rows(16), given, 0).train) == 16  # nothing is held out of them
    assert _rows(task, given, 0).label_column == "verdict"
    found = _rows(replace(task, test=None), None, 0)
    assert (found.test, found.kept) == (task.validation, True)
    assert set(found.test.texts).isdisjoint(found.train.texts)


def test_hardens_and_reports(tmp_path: Path, bert: Any) -> None:
    model, tokenizer = bert
    model.float().save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    arguments = {"max_steps": 2, "save_strategy": "no", "use_cpu": True, "max_length": 32, "disable_tqdm": True}
    found = unshaken.harden(
        str(tmp_path / "base"), rows(16), rows(8, 100), out=tmp_path / "out", substitutions=(WORDS,), attacked=2,
        variants=2, seed=3, arguments=arguments,
    )  # fmt: skip
    victim = unshaken.Victim.from_pretrained(found.hardened.folder, device="cpu")
    assert victim.reader is not None
    assert found.victim.max_length == 32  # as it was trained
    assert smoothing_of(victim.model)["substitutions"][0]["fingerprint"] == WORDS.fingerprint
    assert unshaken.Victim.from_pretrained(found.plain.folder, device="cpu").reader is None
    known = {entry["fingerprint"] for entry in found.hardened.record.substitutions}
    assert WORDS.fingerprint in known
    assert {item.model.method for item in found.report.evaluations} == {"plain", "hardened"}
    assert set(found.report.model_names.values()) == {"plain", "hardened"}  # and not the folders they lie in
    raised = {check.flag for check in found.report.flags if "hardened" in check.subject}
    assert not raised & {"knows-this-source", "same-substitutions"}  # the reader mends none of what it was attacked by
    runs = [run for item in found.report.evaluations for run in item.attacks]
    assert {run.attack for run in runs} == {"pwws", "genetic"}
    chosen = [row.texts for row in rows(8, 100).sample(2)]  # of all seeds the same
    for item in found.report.evaluations:
        assert not item.attacks or [row.texts for row in item.predictions] == chosen
    for run in runs:
        short = {"population": 20, "generations": 10, "seed": 3} if run.attack == "genetic" else {"scoring": "margin"}
        assert run.settings.items() >= short.items()
        assert [one["name"] for one in run.settings["substitutions"]["sources"]] == ["dictionary", "unmended"]
        assert run.settings["substitutions"] == All((WORDS, Unmended(Typos()))).described()  # of both models
    assert "batch-dependence" not in raised
    assert found.held_out is None  # rows to report on were given
    assert not (tmp_path / "out" / "held-out.jsonl").exists()
    assert (tmp_path / "out" / "report.json").is_file()

    # Trained on, it is read for as before, and what it knew it still knows.
    new = rows(16).with_rows(row.with_texts((f"{row.texts[0]} again",)) for row in rows(16))
    plan = Plan(
        model=str(found.hardened.folder), out=tmp_path / "on", method="on", train=new, validation=None,
        arguments=arguments,
    )  # fmt: skip
    further = fine_tune(plan)
    reader = load_reader(further.folder)
    assert reader is not None
    assert reader.fingerprint == victim.reader.fingerprint
    assert further.record.details["reader"] == "unicode,leet,spacing,spelling"
    assert further.record.fingerprints == known
    assert [trained_on(further.folder, part) for part in (rows(16), new, rows(20))] == [16, 16, 16]
    assert [trained_on(found.hardened.folder, part) for part in (rows(16), new)] == [16, 0]
    assert fine_tune(replace(plan, reader="unicode", out=tmp_path / "other")).record.details["reader"] == "unicode"
    bare = fine_tune(replace(plan, model=str(found.plain.folder), out=tmp_path / "bare"))
    assert load_reader(bare.folder) is None
    assert "reader" not in bare.record.details
    assert bare.record.substitutions == ()


def test_takes_what_people_have(tmp_path: Path, bert: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model in memory and a file: a fifth of the rows is kept for the report, and both come back."""
    model, tokenizer = bert
    size = sum(weight.numel() for weight in model.parameters())
    monkeypatch.setattr("unshaken.training.defaults.RATES", ((size + 1, 1e-4),))  # a lower one for larger models
    table = tmp_path / "reviews.csv"
    table.write_text("text,label\n" + "".join(f"{row.texts[0]},{('bad', 'good')[row.label]}\n" for row in rows(20)))
    arguments = {"max_steps": 1, "save_strategy": "no", "use_cpu": True, "disable_tqdm": True}
    small: dict[str, Any] = {"substitutions": (WORDS,), "attacked": 1, "variants": 2, "arguments": arguments}
    with pytest.raises(UnshakenError, match="tokenizer=tokenizer"):
        unshaken.harden(model.float(), table, out=tmp_path / "out", **small)
    found = unshaken.harden(model.float(), table, out=tmp_path / "out", tokenizer=tokenizer, **small)
    rates = {run.record.details["arguments"]["learning_rate"] for run in (found.plain, found.hardened)}
    assert rates == {1e-4}  # the rows that smoothing adds are no reason for a lower rate
    assert [len(item.predictions) for item in found.report.evaluations if item.data.name == "held out"] == [4, 4]
    assert len(found.report.comparisons) == 1  # of the clean answers: one attacked text has no spread
    assert found.report.save(tmp_path / "report.html").is_file()
    measured = next(item for item in found.report.evaluations if item.data.name == "held out")
    assert found.held_out == tmp_path / "out" / "held-out.jsonl"
    assert [row.texts for row in load_examples(found.held_out)] == [row.texts for row in measured.predictions]
    assert found.model.config.id2label == {0: "bad", 1: "good"}
    assert found.tokenizer.get_vocab() == found.victim.tokenizer.get_vocab()
    assert found.victim.reader is not None
    measured = {item.model.fingerprint for item in found.report.evaluations if item.model.method == "hardened"}
    assert measured == {found.victim.fingerprint}  # truncated as in the report, and on its device
    assert (found.victim.max_length, found.victim.device.type) == (RobustTrainingArguments.max_length, "cpu")
    assert len(repr(found)) < 1000  # no log of the training, no text; a folder may have a long name
    assert "<table" in found._repr_html_()
    rest = rows(20)
    split = _rows(rest, None, 0)
    assert (len(split.train), len(split.test)) == (16, 4)
    assert {row.id for row in split.train} | {row.id for row in split.test} == {row.id for row in rest}


@pytest.mark.parametrize("form", ["file", "table", "examples"])
def test_seeds_share_the_rows_that_are_held_out_of_own_data(tmp_path: Path, form: str) -> None:
    """A task of ours has a test split, and its seeds may select by rows of their own."""
    table = [{"text": row.texts[0], "label": ("bad", "good")[row.label]} for row in rows(40)]
    file = save_examples(tmp_path / "reviews.jsonl", rows(40))
    data = {"file": file, "table": table, "examples": rows(40)}[form]
    first, second = (_rows(data, None, seed) for seed in (0, 1))
    assert first.test.texts == second.test.texts
    assert set(first.test.texts) == set(stratified_split(rows(40), 0.2)[1].texts)  # in whatever form they come
    assert set(first.train.texts) == set(second.train.texts)
    assert split_seed("SST2", 3) == 3


def test_rows_are_held_out_only_if_nothing_else_is_reported_on(tmp_path: Path) -> None:
    """A fifth of a file's rows was held out all the same, to select an epoch that nothing selects."""
    file = save_examples(tmp_path / "alone" / "train.jsonl", rows(40))
    assert len(_rows(file, rows(8, 100), 0).train) == 40
    assert (len(_rows(file, None, 0).train), len(_rows(file, None, 0).test)) == (32, 8)
    folder = save_examples(tmp_path / "data" / "train.jsonl", rows(40)).parent
    save_examples(folder / "test.jsonl", rows(8, 100))
    found = _rows(folder, None, 0)
    assert (len(found.train), len(found.test), found.kept) == (40, 8, False)
    # A task whose test labels nobody has is reported on by its development set.
    glue = tmp_path / "glue" / "SST-2"
    glue.mkdir(parents=True)
    for name, count in (("train", 20), ("dev", 10)):
        lines = "".join(f"film {name} {number}\t{number % 2}\n" for number in range(count))
        (glue / f"{name}.tsv").write_text("sentence\tlabel\n" + lines)
    sizes = {
        selects: {name: len(split) for name, split in load_task("sst2", data=tmp_path, protocol=chosen).splits.items()}
        for selects, chosen in ((True, Standard()), (False, Standard(selects=False)))
    }
    assert sizes == {True: {"train": 16, "validation": 4, "test": 10}, False: {"train": 20, "test": 10}}


def test_two_seeds_are_measured_on_the_same_rows(tmp_path: Path, bert: Any) -> None:
    model, tokenizer = bert
    arguments = {"max_steps": 1, "save_strategy": "no", "use_cpu": True, "max_length": 32, "disable_tqdm": True}
    reports = [
        unshaken.harden(
            model.float(), rows(40), tokenizer=tokenizer, out=tmp_path / str(seed), substitutions=(WORDS,), attacked=2,
            variants=2, seed=seed, arguments=arguments,
        ).report
        for seed in (0, 1)
    ]  # fmt: skip
    measured: dict[str, set[str]] = {}
    for item in merge(reports).evaluations:
        measured.setdefault(item.data.name, set()).add(item.data.fingerprint)
    assert sorted(measured) == ["held out", "the attacked sample"]
    assert all(len(fingerprints) == 1 for fingerprints in measured.values())


@pytest.mark.full
def test_a_stopped_run_goes_on(
    tmp_path: Path, bert: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, tokenizer = bert
    model.float().save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    arguments = {"max_steps": 2, "save_strategy": "steps", "save_steps": 1, "use_cpu": True, "disable_tqdm": True}
    given = (str(tmp_path / "base"), rows(16), rows(8, 100))
    options = {"substitutions": (WORDS,), "attacked": 4, "variants": 2, "arguments": {**arguments, "max_length": 32}}
    whole = unshaken.harden(*given, out=tmp_path / "whole", **options)
    search, done = Genetic.__call__, []

    def stopped(self: Genetic, *words: Any, **more: Any) -> Any:
        done.append(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(Genetic, "__call__", stopped)
    with pytest.raises(KeyboardInterrupt):
        unshaken.harden(*given, out=tmp_path / "run", **options)
    assert done
    monkeypatch.setattr(Genetic, "__call__", search)
    with pytest.raises(UnshakenError, match="resume"):
        unshaken.harden(*given, out=tmp_path / "run", **options)
    capsys.readouterr()
    found = unshaken.harden(*given, out=tmp_path / "run", resume=True, **options)
    assert "2 models, without what is finished: at most about" in capsys.readouterr().err
    unshaken.harden(*given, out=tmp_path / "run", resume=True, **options)
    assert "at most about" not in capsys.readouterr().err  # nothing is left
    assert [item.accuracy(name) for item in found.report.evaluations for name in item.conditions] == [
        item.accuracy(name) for item in whole.report.evaluations for name in item.conditions
    ]
    for name in ("model.safetensors", "tokenizer.json"):
        for tuned in ("plain", "hardened"):
            files = [(getattr(run, tuned).folder / name).read_bytes() for run in (whole, found)]
            assert files[0] == files[1], (tuned, name)


def test_recipes_name_real_sets(tmp_path: Path) -> None:
    from unshaken_experiments.inputs import COUNTER_FITTED_FILE, attack_of, smoothing_of, substitutions_of
    from unshaken_experiments.recipe import load_recipe

    (tmp_path / COUNTER_FITTED_FILE).write_text('{"good": ["fine"], "fine": ["thin"]}')
    for name in ("ours-smoothing", "ours-all-sources"):
        recipe = load_recipe(name)
        assert len(recipe.methods) >= 10
        settings = [
            recipe.run("encoder", method, column, 0).settings for method in recipe.methods for column in recipe.measured
        ]
        for chosen in set(settings):
            substitutions_of(chosen.substitutions, tmp_path)
            if "wordnet" not in (chosen.smooth or ""):
                smoothing = smoothing_of(chosen, tmp_path)
                assert (smoothing is None) == (chosen.smooth is None)
        for column in recipe.measured:
            attack_of(column.measure.attack, column.measure.substitutions, tmp_path)
    joined = substitutions_of("counter-fitted,wordnet:limit=8,typos", tmp_path)
    assert joined.candidates(["good"], 0)[0] == "fine"
    assert joined.sources[1] == WordNet(limit=8)
    assert substitutions_of("two-hops:counter-fitted", tmp_path).candidates(["good"], 0) == ["thin"]
