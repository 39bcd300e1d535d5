"""A claim that is not true does not stand: scored, checked and broken on real tiny models."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import shutil
import sys
from collections import defaultdict
from dataclasses import replace
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner
from victims import TEXTS as MORE
from victims import WORD_LIST, labelled, make_tokenizer, tiny_bert

import unshaken.leaderboard
from unshaken import Connection, connect
from unshaken.attacks import PWWS, Beam, Exhaustive, Genetic, HullAttack, Transfer, Victim
from unshaken.cli import app
from unshaken.cli.leaderboard import verify as verify_command
from unshaken.defences import ASCC, PTWD, RIFT, SWAP, FreeLB, PlainTeacher, Standard, training_cost
from unshaken.errors import UnshakenError
from unshaken.evaluation import Report, evaluate
from unshaken.evaluation.check import FLAGS
from unshaken.evaluation.environment import environment, now
from unshaken.evaluation.statistics import wilson
from unshaken.evaluation.training_record import TrainingRecord
from unshaken.examples import Example, Examples
from unshaken.leaderboard import (
    Entry,
    Scored,
    Track,
    Verdict,
    check_break,
    rank,
    read_entries,
    read_entry,
    score,
    submit,
    verify,
)
from unshaken.leaderboard.breaking import _require_wording
from unshaken.leaderboard.cost import cost_of
from unshaken.leaderboard.entry import append_break, read_breaks
from unshaken.leaderboard.page import build
from unshaken.leaderboard.score import clean_marks, held_marks, without_text
from unshaken.leaderboard.tracks import ATTACKS, SUITES, THREATS, suite
from unshaken.substitutions import All, Dictionary, TwoHops, Typos, Unmended, Unseen, WordNet
from unshaken.training.record import describe, describe_cost, described_sets, known_sets

TEXTS = [
    f"{text} {end}"
    for end in ("slow", "the end", "not bad")
    for text in ("a good film with a bad plot .", "bad film", "the plot was slow and the film was bad")
]
TRACK = Track(encoder="tiny", threat="known", task="own")


def record(seed: int, method: str = "plain") -> TrainingRecord:
    known = ({"name": WORD_LIST.name, "fingerprint": WORD_LIST.fingerprint},)
    details = {"defence": describe(SWAP(variants=4)), **describe_cost(SWAP(variants=4), None)}
    return TrainingRecord(method=method, seed=seed, base_model="tiny", task="own", substitutions=known, details=details)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three models as training leaves them, sentences and substitutes."""
    folder = tmp_path_factory.mktemp("board")
    tokenizer = make_tokenizer(folder)
    for number, seed in enumerate((4, 7, 9)):
        tiny_bert(tokenizer, seed=seed).float().save_pretrained(folder / f"seed{number}")
        tokenizer.save_pretrained(folder / f"seed{number}")
        record(number).save(folder / f"seed{number}")
    (folder / "words.json").write_text(json.dumps({key: list(value) for key, value in WORD_LIST.entries.items()}))
    rows = labelled(Victim.from_pretrained(folder / "seed0", device="cpu"), TEXTS)
    lines = [json.dumps({"text": row.texts[0], "label": row.label}) + "\n" for row in rows]
    (folder / "own.jsonl").write_text("".join(lines))
    return folder


@pytest.fixture(scope="module")
def victims(world: Path) -> list[Victim]:
    return [Victim.from_pretrained(world / f"seed{number}", device="cpu") for number in range(3)]


@pytest.fixture(scope="module")
def examples(victims: list[Victim]) -> Examples:
    return labelled(victims[0], TEXTS)


@pytest.fixture(scope="module")
def entry(victims: list[Victim], examples: Examples) -> Entry:
    return score(victims, examples, TRACK, WORD_LIST, name="plain", suite_name="mini", recheck=2)


# ------------------------------------------------------------------------------------------------------------- scoring


def test_the_score_is_the_worst_of_what_each_attack_does_alone(
    entry: Entry, victims: list[Victim], examples: Examples
) -> None:
    attacks = [
        PWWS(substitutions=WORD_LIST),
        Genetic(substitutions=WORD_LIST, population=20, generations=10),
        Exhaustive(substitutions=WORD_LIST, limit=1000),
    ]
    for model, victim in zip(entry.models, victims, strict=True):
        broken: set[str] = set()
        for attack in attacks:
            broken |= {row.example_id for row in attack(victim, examples) if row.outcome in ("success", "skipped")}
        assert model.worst == "".join("01"[row.id not in broken] for row in examples)
    shares = [model.worst.count("1") / len(examples) for model in entry.models]
    assert entry.share("worst").estimate == pytest.approx(np.mean(shares))
    assert 0 < entry.share("worst").estimate < entry.share("clean").estimate  # the case is a real one
    assert entry.cost == pytest.approx(SWAP(variants=4).passes().cost, abs=0.01)


def test_an_entry_says_what_was_scored_and_how(victims: list[Victim], examples: Examples, tmp_path: Path) -> None:
    few, begun = examples[:5], now()
    how: dict[str, Any] = {"suite_name": "mini", "recipe": "so", "recheck": 2, "out": tmp_path}
    entry = score(victims[:2], few, TRACK, WORD_LIST, name="mine", **how)
    assert (entry.name, entry.track, entry.suite, entry.recipe) == ("mine", TRACK, "mini", "so")
    assert (entry.data, entry.ids) == (few.fingerprint, tuple(row.id for row in few))
    assert entry.substitutions == {"name": WORD_LIST.name, "fingerprint": WORD_LIST.fingerprint}
    labels = [row.label for row in few]
    assert entry.majority == max(labels.count(0), labels.count(1)) / 5
    assert entry.code == environment()["code"]
    assert begun <= entry.created <= now()
    told = [(model.weights, model.fingerprint, model.record) for model in entry.models]
    assert told == [(one.name, one.fingerprint, record(seed)) for seed, one in enumerate(victims[:2])]
    for model, evaluation in zip(entry.models, Report.load(tmp_path).evaluations, strict=True):
        flags: dict[str, list[tuple[str, str]]] = {}
        for flag, verdict, evidence in model.flags:
            flags.setdefault(flag, []).append((verdict, evidence))
        ((_, evidence),) = flags["below-majority"]  # of this model alone
        assert evidence.startswith(f"accuracy {evaluation.clean} against")
        assert flags["few-seeds"] == [("raised", "2 training seeds")]
        assert {verdict for verdict, _ in flags["miscalibration"]} != {"unknown"}  # since an attack was repeated
        assert model.clean == "".join("01"[row.correct] for row in evaluation.predictions)
    with pytest.raises(UnshakenError, match="no model to score"):
        score([], few, TRACK, WORD_LIST, name="mine", **how)


def test_every_flag_is_told_with_its_verdict(entry: Entry) -> None:
    flags = {flag for flag, _, _ in entry.models[0].flags}
    assert {"randomness", "below-majority", "miscalibration", "same-substitutions", "few-seeds"} <= flags
    assert ("same-substitutions", "raised") in {(flag, verdict) for flag, verdict, _ in entry.models[0].flags}


def test_a_part_of_a_source_is_not_unseen() -> None:
    """Of two dictionaries the name says nothing; WordNet is WordNet, however much of it training took."""
    track, words = replace(TRACK, threat="unseen"), Dictionary(entries={"good": ["fine"]})
    record = TrainingRecord(
        method="m", seed=0, base_model="b", task="t", substitutions=(WordNet(limit=8).described(), words.described())
    )
    with pytest.raises(UnshakenError, match="training used wordnet itself"):
        track.require_fit(record, WordNet())
    assert track.require_fit(record, Dictionary(entries={"bad": ["poor"]})) is record
    hops = described_sets(known_sets(SWAP(substitutions=TwoHops(WordNet(), direct=True))))
    with pytest.raises(UnshakenError, match="training used wordnet itself"):  # which holds all of it
        track.require_fit(replace(record, substitutions=hops), WordNet())


def test_a_set_made_of_one_that_training_used_is_not_unseen() -> None:
    track, known = replace(TRACK, threat="unseen"), record(0)
    made_of_it = [
        Unmended(WORD_LIST),
        Unseen(WORD_LIST, (WordNet(),)),
        TwoHops(WORD_LIST, direct=True),
        All((Unmended(WORD_LIST), Typos())),
        All((All((Typos(), WORD_LIST)), WordNet())),
    ]
    for words in made_of_it:
        with pytest.raises(UnshakenError, match="training used dictionary itself"):
            track.require_fit(known, words)
    others = [
        TwoHops(WORD_LIST),  # training has met none of its swaps
        Unmended(Typos()),
        Unseen(WordNet(), (WORD_LIST,)),  # what is left out is no source
        All((TwoHops(WORD_LIST), Unmended(Typos()))),
    ]
    for words in others:
        assert track.require_fit(known, words) is known


def test_sets_within_joined_sets_are_known_too() -> None:
    inner = Dictionary(entries={"good": ["fine"]})
    nested = known_sets(SWAP(substitutions=All((All((inner, Unmended(WordNet()))), Typos()))))
    assert {one.fingerprint for one in (inner, WordNet(), Typos())} <= {one.fingerprint for one in nested}


def test_an_unseen_dictionary_is_checked_and_not_believed(victims: list[Victim], examples: Examples) -> None:
    track = replace(TRACK, threat="unseen")
    with pytest.raises(UnshakenError, match="training used dictionary itself"):
        score(victims[:1], examples, track, WORD_LIST, name="x", suite_name="mini", recheck=0)
    assert score(victims[:1], examples[:2], track, WordNet(), name="x", suite_name="mini", recheck=0).models
    with pytest.raises(UnshakenError, match="training used dictionary itself"):  # among others it is the same
        track.require_fit(record(0), All((WORD_LIST, Typos())))
    chosen = {"selected_by": {"substitutions": [{"name": "wordnet", "fingerprint": WordNet().fingerprint}]}}
    with pytest.raises(UnshakenError, match="training used wordnet itself"):  # it chose the checkpoint
        track.require_fit(replace(record(0), details=chosen), WordNet())
    for bent in (None, [], "x", {}, {"substitutions": None}, {"substitutions": ["x", {}, {"fingerprint": []}]}):
        strange = replace(record(0), substitutions=({"name": "x"},), details={"selected_by": bent})
        assert track.require_fit(strange, WordNet()) is strange


def test_a_model_without_its_record_and_a_threat_without_its_set_are_refused(
    world: Path, examples: Examples, tmp_path: Path
) -> None:
    shutil.copytree(world / "seed0", tmp_path / "model")
    (tmp_path / "model" / "unshaken_training.json").unlink()
    bare = Victim.from_pretrained(tmp_path / "model", device="cpu")
    with pytest.raises(UnshakenError, match="no record of its training"):
        score([bare], examples[:2], TRACK, WORD_LIST, name="x", suite_name="mini", recheck=0)
    with pytest.raises(UnshakenError, match="needs --substitutions typos, not dictionary"):
        replace(TRACK, threat="typos").require_fit(record(0), WORD_LIST)
    with pytest.raises(UnshakenError, match="needs several sources, such as --substitutions wordnet,typos, not dict"):
        replace(TRACK, threat="all").require_fit(record(0), WORD_LIST)


def test_what_cannot_stand_in_an_entry_is_refused_before_anything_is_attacked(
    world: Path, victims: list[Victim], examples: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attacked(*_: Any, **__: Any) -> None:
        raise AssertionError("hours of attacks would have gone by")

    monkeypatch.setattr(sys.modules["unshaken.leaderboard.score"], "evaluate", attacked)
    unrecorded, other = tmp_path / "unrecorded", tmp_path / "other"
    shutil.copytree(world / "seed0", unrecorded)
    (unrecorded / "unshaken_training.json").unlink()
    shutil.copytree(world / "seed1", other)
    record(1, "another method").save(other)
    bare, changed = (Victim.from_pretrained(folder, device="cpu") for folder in (unrecorded, other))
    for models, message in (
        ([victims[0], bare], "no record of its training"),
        ([victims[0], victims[0]], "one model is listed twice"),
        ([victims[0], changed], "several methods"),
    ):
        with pytest.raises(UnshakenError, match=message):
            score(models, examples, TRACK, WORD_LIST, name="x", suite_name="mini", recheck=0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("minilm/sst2", "ENCODER/THREAT/TASK"),
        ("minilm/knwon/sst2", "did you mean 'known'"),
        ("//", "ENCODER/THREAT"),
        ("/known/sst2", "ENCODER/THREAT"),
        ("minilm/known/", "ENCODER/THREAT"),
    ],
)
def test_tracks_that_are_none(text: str, message: str) -> None:
    with pytest.raises(UnshakenError, match=message):
        Track.parse(text)


def test_the_full_suite_needs_three_public_models(victims: list[Victim], examples: Examples) -> None:
    with pytest.raises(UnshakenError, match="2 public models; the full suite transfers from 3"):
        score(victims[:1], examples, TRACK, WORD_LIST, name="x", public=victims[1:])


def test_the_full_suite_needs_three_different_public_models(victims: list[Victim], examples: Examples) -> None:
    with pytest.raises(UnshakenError, match="one public model is given twice"):
        score(victims[:1], examples, TRACK, WORD_LIST, name="x", public=[victims[1], victims[2], victims[1]])


def test_transfers_are_those_of_the_public_models_that_an_entry_names(
    spared: tuple[Entry, Report], entry: Entry, victims: list[Victim], more: Examples, tmp_path: Path
) -> None:
    """Models that are wrong about everything have no text to transfer: who chooses them chooses an easier suite."""
    full = spared[0]
    assert entry.public == ()
    assert [one["name"] for one in full.public] == [victim.name for victim in victims]
    assert [one["fingerprint"] for one in full.public] == [victim.fingerprint for victim in victims]
    path = submit(full, tmp_path)
    assert read_entry(path) == full
    told = ", ".join(f"{victim.name} ({victim.fingerprint[:8]})" for victim in victims)
    page = build({path: full}, tmp_path / "board.html").read_text()
    assert f"Transfers come from {told}." in page.replace("&#34;", '"')
    assert "Transfers" not in build({path: entry}, tmp_path / "board.html").read_text()
    chosen = replace(full, name="chosen", public=({"name": "mine", "fingerprint": "f"}, *full.public[1:]))
    turned = replace(full, name="turned", public=full.public[::-1])
    rankings = rank({path: full, tmp_path / "chosen": chosen, tmp_path / "turned": turned}).values()
    names = [{one.entry.name for one in ranking} for ranking in rankings]
    assert sorted(map(sorted, names)) == [["chosen"], ["plain", "turned"]]
    # Whoever verifies may give them in any order, and more; with others the same texts cannot be tried.
    assert full.same_public([*victims[::-1], *victims]) == victims
    with pytest.raises(UnshakenError, match=r"was attacked with texts from mine, .*\(not given: mine\)"):
        verify(chosen, victims, more, WORD_LIST, public=victims, count=2)
    assert replace(full, public=()).same_public(victims[:2]) == victims[:2]  # of an earlier release


def test_the_full_suite_runs_every_attack(victims: list[Victim], examples: Examples) -> None:
    few = examples[:2]
    entry = score(victims[:1], few, TRACK, WORD_LIST, name="x", public=victims, recheck=0)
    assert list(entry.models[0].held) == [
        *("pwws", "beam", "genetic", "hull", "transfer", "transfer 1", "transfer 2", "exhaustive")
    ]


@pytest.fixture(scope="module")
def more(victims: list[Victim]) -> Examples:
    """Texts of which each model holds some and loses others."""
    others = ("it is the end of the long film .", "the end of the plot", "a long and bad end", "not the film , the end")
    return labelled(victims[0], [*TEXTS, *others, *MORE[:2]])


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which `whole` was run."""
    return tmp_path_factory.mktemp("before")


@pytest.fixture(scope="module")
def whole(victims: list[Victim], more: Examples, before: Path) -> list[Scored]:
    """The full suite as it was run before: every attack on every example."""
    attacks = suite("full", WORD_LIST, victims).named
    report = evaluate(victims, more, list(attacks.values()), out=before)
    return [
        Scored(
            weights=victim.name,
            fingerprint=victim.fingerprint,
            record=record(seed),
            clean=clean_marks(found),
            held=held_marks(found, list(attacks)),
            flags=(),
        )
        for seed, (victim, found) in enumerate(zip(victims, report.evaluations, strict=True))
    ]


@pytest.fixture(scope="module")
def spared(victims: list[Victim], more: Examples, tmp_path_factory: pytest.TempPathFactory) -> tuple[Entry, Report]:
    """The full suite, whose last attacks are spent on what is left."""
    out = tmp_path_factory.mktemp("spared")
    entry = score(victims, more, TRACK, WORD_LIST, name="plain", public=victims, recheck=0, out=out)
    return entry, Report.load(out)


def test_what_is_left_gives_the_worst_case_of_every_attack_on_every_example(
    spared: tuple[Entry, Report], whole: list[Scored]
) -> None:
    entry, report = spared
    assert entry.left == ("beam", "genetic", "hull", "transfer", "transfer 1", "transfer 2", "exhaustive")
    tried = dict.fromkeys(entry.left, 0)
    for model, before, found in zip(entry.models, whole, report.evaluations, strict=True):
        assert model.worst == before.worst
        assert "1" in model.worst
        broken = set()  # in turn, by what was told of each attack
        for name, run in zip(model.held, found.attacks, strict=True):
            ids = [result.example_id for result in run.results]
            if name in entry.left:
                assert ids == [row.id for row in found.predictions if row.correct and row.id not in broken]
                tried[name] += len(ids)
            else:
                assert len(ids) == len(entry.ids)
            broken |= {result.example_id for result in run.results if result.outcome == "success"}
            known = [mark for mark, right in zip(model.held[name], model.clean, strict=True) if right == "1"]
            if name in entry.left:
                assert known.count("?") >= len(known) - len(ids)
            else:
                assert "?" not in known
        for name, marks in model.held.items():  # where an attack was tried, it found what it finds among all
            for mark, other in zip(marks, before.held[name], strict=True):
                assert mark in ("?", other)
    assert 0 < tried["exhaustive"] < len(entry.models) * len(entry.ids) / 2
    exhausted = [
        (place, model)
        for model in entry.models
        for place, (mark, right) in enumerate(zip(model.held["exhaustive"], model.clean, strict=True))
        if mark == "1" and right == "1"
    ]
    assert all(model.worst[place] == "1" for place, model in exhausted)
    assert exhausted


def test_a_run_from_before_that_goes_on_is_told_as_it_was_run(
    whole: list[Scored], before: Path, victims: list[Victim], more: Examples
) -> None:
    words: dict[str, Any] = {"name": "plain", "public": victims, "recheck": 0, "out": before, "resume": True}
    entry = score(victims, more, TRACK, WORD_LIST, **words)
    assert entry.left == ()
    assert [model.held for model in entry.models] == [model.held for model in whole]


def test_an_attack_on_what_was_left_has_no_share(spared: tuple[Entry, Report], whole: list[Scored]) -> None:
    """It would be the share of the rest: half of the hard ones, beside the wrong ones, of which none was tried."""
    entry = spared[0]
    assert entry.share("pwws").estimate == np.mean([model.held["pwws"].count("1") / len(entry.ids) for model in whole])
    with pytest.raises(UnshakenError, match="genetic was tried on what was left"):
        entry.share("genetic")


def test_both_kinds_of_entries_stand_and_lies_of_both_kinds_are_refused(
    spared: tuple[Entry, Report], whole: list[Scored], victims: list[Victim], more: Examples
) -> None:
    entry = replace(spared[0], models=spared[0].models[:1])
    earlier = replace(entry, models=(replace(whole[0], flags=entry.models[0].flags),), left=())
    for honest in (entry, earlier):
        assert verify(honest, victims, more, WORD_LIST, public=victims, count=len(more)).refused == ()
    for honest in (entry, earlier):
        (model,) = honest.models
        better = dict.fromkeys(model.held, model.clean)
        claim = replace(honest, models=(replace(model, held=better),))  # all its clean answers are right
        told = verify(claim, victims, more, WORD_LIST, public=victims, count=len(more)).refused
        assert any("under all attacks it claims 100.0%" in line for line in told)
        # What an attack broke is said not to have been tried: that wins nothing.
        passing = ("exhaustive", "transfer", "transfer 1", "transfer 2")  # of which an untried example may be held
        hidden = {name: marks if name in passing else marks.replace("0", "?") for name, marks in model.held.items()}
        claim = replace(honest, models=(replace(model, held=hidden),))
        assert claim.share("worst") == honest.share("worst")


def test_an_entry_of_an_earlier_release_is_read(
    whole: list[Scored], spared: tuple[Entry, Report], tmp_path: Path
) -> None:
    entry = spared[0]
    path = submit(replace(entry, models=tuple(whole), left=()), tmp_path)
    values = json.loads(path.read_text())
    del values["left"], values["public"]
    path.write_text(json.dumps(values))
    assert (read_entry(path).left, read_entry(path).public) == ((), ())
    page = build(read_entries(tmp_path), tmp_path / "board.html").read_text()
    assert "on the examples left" not in page
    with pytest.raises(UnshakenError, match="cannot all have been tried on what others left"):
        replace(entry, left=tuple(entry.models[0].held))


def test_the_page_tells_what_was_tried_on_what_is_left(spared: tuple[Entry, Report], tmp_path: Path) -> None:
    entry = spared[0]
    page = build({submit(entry, tmp_path): entry}, tmp_path / "board.html").read_text()
    known = [
        mark
        for model in entry.models
        for mark, right in zip(model.held["exhaustive"], model.clean, strict=True)
        if right == "1" and mark != "?"
    ]
    told = f"on the examples left: of {len(known)} tried in all models {known.count('1')} had no wording that flips"
    assert told in page


def test_marks_are_what_became_of_each_example() -> None:
    outcomes = {"e0": "success", "e1": "skipped", "e2": "failure", "e3": "error", "e5": "skipped"}
    rows = [SimpleNamespace(id=f"e{number}", correct=number != 1) for number in range(6)]  # the fifth was not tried
    results = [SimpleNamespace(example_id=key, outcome=outcome) for key, outcome in outcomes.items()]
    runs = [SimpleNamespace(results=results), SimpleNamespace(results=[])]
    evaluation: Any = SimpleNamespace(predictions=rows, attacks=runs)
    assert clean_marks(evaluation) == "101111"
    assert held_marks(evaluation, ["pwws", "beam"]) == {
        "pwws": "001??0",
        "beam": "?0????",
    }  # what an attack found wrong


def test_suites_are_what_the_page_says_of_them(victims: list[Victim]) -> None:
    mini, full = suite("mini", WORD_LIST, ()), suite("full", WORD_LIST, victims)
    words: dict[str, Any] = {"substitutions": WORD_LIST}
    assert mini.first == full.first == (PWWS(**words),)
    assert mini.last == (Genetic(**words, population=20, generations=10), Exhaustive(**words, limit=1000))
    transfers = [Transfer(source=victim, attack=PWWS(**words)) for victim in victims]
    assert full.last == (
        *(Beam(**words), Genetic(**words, population=60, generations=40), HullAttack(**words)),
        *(*transfers, Exhaustive(**words, limit=100_000)),
    )
    assert list(full.named.values()) == [*full.first, *full.last]
    assert {name: tuple(one.named) for name, one in (("full", full), ("mini", mini))} == ATTACKS
    with pytest.raises(UnshakenError, match="did you mean 'mini'"):
        suite("minni", WORD_LIST, ())


def test_a_track_is_read_as_it_is_written() -> None:
    assert Track.parse("minilm/known/own/data.csv") == Track(encoder="minilm", threat="known", task="own/data.csv")
    assert str(Track.parse("minilm/all/own/data.csv")) == "minilm/all/own/data.csv"


# ------------------------------------------------------------------------------------------------------------- entries


def test_an_entry_comes_back_as_it_was_and_is_never_written_over(entry: Entry, tmp_path: Path) -> None:
    path = submit(entry, tmp_path)
    assert read_entry(path) == entry
    assert read_entries(tmp_path) == {path: entry}
    with pytest.raises(UnshakenError, match="never written over"):
        submit(entry, tmp_path)


def made(name: str, rows: list[str], clean: str | None = None) -> Entry:
    models = tuple(
        Scored(
            weights=f"{name}-{seed}",
            fingerprint=f"{name}-{seed}",
            record=record(seed, name),
            clean=clean or "1" * len(row),
            held={"pwws": row},
            flags=(),
        )
        for seed, row in enumerate(rows)
    )
    return Entry(
        name=name,
        track=TRACK,
        suite="pwws alone",
        data="d",
        ids=tuple(f"e{number}" for number in range(len(rows[0]))),
        substitutions={"name": "x", "fingerprint": "f"},
        majority=0.5,
        models=models,
        cost=None,
        code={"version": "0"},
        created="now",
    )


def whole_suite(entry: Entry) -> Entry:
    """The same with marks of the whole mini suite: what PWWS left, nothing else broke."""
    models = (
        replace(model, held={**dict.fromkeys(("pwws", "genetic"), row), "exhaustive": "?" * len(row)})
        for model in entry.models
        for row in model.held.values()
    )
    return replace(entry, suite="mini", models=tuple(models))


def test_an_entry_that_leaves_out_attacks_of_its_suite_is_refused(tmp_path: Path) -> None:
    """Held against PWWS alone, an example would stand beside those that Genetic has tried, too."""
    entry = whole_suite(made("x", ["1110"] * 3))
    path = submit(entry, tmp_path)
    assert read_entry(path) == entry
    for left, message in (
        (("pwws",), "the suite 'mini' has the attacks genetic, exhaustive as well"),
        (("pwws", "genetic"), "the suite 'mini' has the attacks exhaustive as well"),
        (("exhaustive",), "only attacks that may pass over examples"),  # which untried examples would hold
        (("exhaustive", "transfer 1"), "only attacks that may pass over examples"),
    ):
        values = json.loads(path.read_text())
        for model in values["models"]:
            model["held"] = {name: model["held"].get(name, "????") for name in left}
        (tmp_path / "edited.json").write_text(json.dumps(values))
        with pytest.raises(UnshakenError, match=message):
            read_entry(tmp_path / "edited.json")
    with pytest.raises(UnshakenError, match="the suite 'full' has the attacks beam, hull, transfer, transfer 1"):
        submit(replace(entry, suite="full"), tmp_path)
    assert submit(replace(made("other", ["1"]), suite="of another release"), tmp_path).is_file()  # shown by its name


def test_claims_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(UnshakenError, match="holds that was wrong from the start"):
        made("x", ["11"], clean="10")
    with pytest.raises(UnshakenError, match="marks are"):
        made("x", ["1x"])
    with pytest.raises(UnshakenError, match="one model is listed twice"):
        replace(made("x", ["11"]), models=made("x", ["11"]).models * 2)
    with pytest.raises(UnshakenError, match="no attack told anything about x-2"):
        made("x", ["111?", "11??", "????"])
    other = made("y", ["11", "10"]).models[1]
    with pytest.raises(UnshakenError, match="several methods"):
        replace(made("x", ["11"]), models=(*made("x", ["11"]).models, other))
    first, second = made("x", ["11", "10"]).models
    stronger = replace(second, record=replace(second.record, base_model="larger"))
    with pytest.raises(UnshakenError, match="several ways under one name"):
        replace(made("x", ["11"]), models=(first, stronger))


def test_what_a_bounded_attack_passes_over_is_known_by_the_others() -> None:
    model = made("x", ["1111"]).models[0]
    assert replace(model, held={"pwws": "1101", "exhaustive": "1??0"}).worst == "1100"
    assert replace(model, held={"pwws": "1?01", "genetic": "1101"}).worst == "1?01"
    # A source that is wrong about an example has no text to try: no reason to leave the example out of the score.
    assert replace(model, held={"pwws": "1101", "transfer": "1?10", "transfer 1": "??11"}).worst == "1100"
    assert replace(model, held={"pwws": "1101", "hull": "1??1"}).worst == "1?01"


# ------------------------------------------------------------------------------------------------------------- ranking


def rows_of(share: float, seed: int) -> list[str]:
    """Three seeds that keep about this share of 200 examples; of one seed, the larger share holds the smaller."""
    draws = np.random.default_rng(seed).random((3, 200))
    return ["".join("1" if value < share else "0" for value in row) for row in draws]


def test_ranks_ties_and_too_few_seeds(tmp_path: Path) -> None:
    shares = {"best": 0.8, "second": 0.7, "third": 0.5}
    entries = [made(name, rows_of(share, 0)) for name, share in shares.items()]
    entries += [made("two seeds", ["1" * 200] * 2), made("two more", ["0" * 200] * 2)]
    (ranking,) = rank({submit(one, tmp_path): one for one in entries}).values()
    found = [(one.entry.name, one.rank, one.tied) for one in ranking]
    ranked = [("best", 1, False), ("second", 2, False), ("third", 3, False)]
    assert found == [("two seeds", None, False), *ranked, ("two more", None, False)]
    pair = {tmp_path / "a": entries[0], tmp_path / "b": made("noisy", rows_of(0.79, 1))}
    (tied,) = rank(pair).values()
    assert {(one.rank, one.tied) for one in tied} == {(1, True)}
    # The last is near the second and not near the first: a rank is shared with its best, or ties would chain on.
    first, second, last = (made(*item) for item in zip("abc", map(rows_of, (0.8, 0.7, 0.64), (7, 8, 9)), strict=True))
    for listed, ranks in (([first, second, last], [1, 1, 3]), ([second, last], [1, 1])):
        (ranking,) = rank({tmp_path / one.name: one for one in listed}).values()
        assert [one.rank for one in ranking] == ranks


def test_seeds_are_paired_by_their_number_however_models_are_listed(tmp_path: Path) -> None:
    """Seeds that differ by far more than the methods do: paired, each tells the same small difference."""
    best = ["1" * 180 + "0" * 20, "1" * 120 + "0" * 80, "1" * 60 + "0" * 140]
    one, other = made("best", best), made("second", [f"{'0' * 10}{row[10:]}" for row in best])
    for listed in (other, replace(other, models=other.models[::-1])):
        (ranking,) = rank({tmp_path / "a": one, tmp_path / "b": listed}).values()
        assert [(found.entry.name, found.rank) for found in ranking] == [("best", 1), ("second", 2)]


def test_what_others_broke_counts_in_the_order_and_in_ties(tmp_path: Path) -> None:
    """Third parties break half of what the better one holds."""
    best, second = made("best", ["1" * 100] * 3), made("second", ["1" * 80 + "0" * 20] * 3)
    entries = {submit(one, tmp_path): one for one in (best, second)}
    (ranking,) = rank(entries).values()
    assert [(one.entry.name, one.rank, one.tied, one.breaks) for one in ranking] == [
        *(("best", 1, False, 0), ("second", 2, False, 0))
    ]
    path = next(path for path, one in entries.items() if one.name == "best")
    for seed, example in itertools.product(range(3), range(50)):
        append_break(path, {"model": f"best-{seed}", "example": f"e{example}"})
    (ranking,) = rank(entries).values()
    found = [(one.entry.name, one.rank, one.tied, one.breaks, one.worst.estimate) for one in ranking]
    assert found == [("second", 1, False, 0, pytest.approx(0.8)), ("best", 2, False, 150, pytest.approx(0.5))]
    assert [one.clean.estimate for one in ranking] == [1, 1]


def test_an_entry_is_not_ranked_by_the_examples_on_which_its_attacks_worked(tmp_path: Path) -> None:
    """Of 200 examples 40 were attacked and held: that is 20%, below an entry that holds 60%."""
    few, most = made("few", ["1" * 40 + "?" * 160] * 3), made("most", ["1" * 120 + "0" * 80] * 3)
    entries = {submit(one, tmp_path): one for one in (few, most)}
    (ranking,) = rank(entries).values()
    found = [(one.entry.name, one.rank, one.worst.estimate, one.unsettled) for one in ranking]
    assert found == [("most", 1, pytest.approx(0.6), 0), ("few", 2, pytest.approx(0.2), 480)]
    assert str(ranking[1].worst) == str(made("few", ["1" * 40 + "0" * 160] * 3).share("worst"))
    page = build(entries, tmp_path / "board.html").read_text()
    (most_cells, most_details), (few_cells, few_details) = shown(page).values()
    told = f"{ranking[1].worst} 480 of 600 could not be attacked in full: not held"
    assert [most_cells[1], few_cells[1]] == [str(ranking[0].worst), told]
    share = f"{wilson(40, 40)} of those tried; 480 of 600 in all models were not"
    assert [most_details["pwws"], few_details["pwws"]] == [str(most.share("pwws")), share]
    # What others broke is settled by that.
    append_break(next(path for path, one in entries.items() if one is few), {"model": "few-1", "example": "e199"})
    (ranking,) = rank(entries).values()
    assert [one.unsettled for one in ranking] == [0, 479]


def test_what_an_attack_passes_over_by_design_counts_as_the_others_left_it(tmp_path: Path) -> None:
    entry = made("x", ["1110"] * 3)
    models = tuple(
        replace(model, held={**model.held, "transfer": "1??0", "exhaustive": "???0"}) for model in entry.models
    )
    entry = replace(entry, models=models)
    assert entry.share("worst").estimate == pytest.approx(0.75)
    assert entry.unsettled() == 0
    page = build({tmp_path / "x": entry}, tmp_path / "board.html").read_text()
    assert "could not be attacked" not in page


def test_an_attack_that_told_nothing_of_a_model_has_no_share_on_the_page(tmp_path: Path) -> None:
    """Not of the examples that were wrong from the start alone, either, which no attack can hold."""
    entry = made("x", ["1100"] * 3, clean="1110")
    told = {"hull": ("????", "???0", "1110"), "exhaustive": ("????",) * 3, "beam": ("1??0",) * 3}
    models = tuple(
        replace(model, held=model.held | {name: marks[seed] for name, marks in told.items()})
        for seed, model in enumerate(entry.models)
    )
    entry = replace(entry, models=models)
    ((_, details),) = shown(build({tmp_path / "x": entry}, tmp_path / "board.html").read_text()).values()
    assert details["hull"] == "does not count: in 2 of 3 models it could be tried on no example"
    assert details["exhaustive"] == "does not count: in 3 of 3 models it could be tried on no example"
    assert details["beam"] == f"{entry.share('beam')} of those tried; 6 of 12 in all models were not"
    assert details["pwws"] == str(entry.share("pwws"))


def test_a_better_share_ties_if_the_paired_difference_points_the_other_way(tmp_path: Path) -> None:
    """Three seeds far below the other entry and two more far above: on the seeds of both, the leader is behind."""
    kept = lambda share: "1" * share + "0" * (200 - share)  # noqa: E731
    leader = made("leader", [*[kept(60)] * 3, *[kept(190)] * 2])
    other = made("other", [kept(100)] * 3)
    (ranking,) = rank({tmp_path / "a": leader, tmp_path / "b": other}).values()
    assert [one.worst.estimate for one in ranking] == pytest.approx([0.56, 0.5])
    assert [(one.entry.name, one.rank, one.tied) for one in ranking] == [("leader", 1, True), ("other", 1, True)]


def test_more_seeds_are_left_out_of_a_pair_and_equal_entries_tie(tmp_path: Path) -> None:
    more = made("c", ["1" * 90 + "0" * 10] * 5)
    (ranking,) = rank({tmp_path / "c": more, tmp_path / "d": made("d", ["1" * 40 + "0" * 60] * 3)}).values()
    assert [(found.entry.name, found.rank, found.tied) for found in ranking] == [("c", 1, False), ("d", 2, False)]
    equal = [made(name, ["1" * 90 + "0" * 10] * 3) for name in "fe"]
    (ranking,) = rank({tmp_path / found.name: found for found in equal}).values()
    assert [(found.entry.name, found.rank, found.tied) for found in ranking] == [("e", 1, True), ("f", 1, True)]


def test_marks_that_do_not_fit_are_refused() -> None:
    entry = made("x", ["11", "10"])
    model = entry.models[0]
    for held in ({}, {"pwws": "1"}, {"pwws": ""}):
        with pytest.raises(UnshakenError, match="one mark per example"):
            replace(model, held=held)
    for clean in ("1?", "2 "):
        with pytest.raises(UnshakenError, match="marks are"):
            replace(model, clean=clean)
    for changed, message in (
        ({"ids": ("e0",)}, "1 ids and 2 marks"),
        ({"models": ()}, "at least one model"),
        ({"models": (model, replace(entry.models[1], held={"beam": "11"}))}, "the same suite"),
        ({"models": (model, replace(entry.models[1], record=model.record))}, "two models have one seed"),
    ):
        with pytest.raises(UnshakenError, match=message):
            replace(entry, **changed)  # type: ignore[arg-type]


def test_numbers_that_no_examples_have_are_refused() -> None:
    entry = made("x", ["11", "10"])
    for changed, message in (
        ({"ids": ("e0", "e0")}, "x: an example is listed twice"),
        ({"majority": 0.0}, "majority 0 and cost None"),
        ({"majority": 1.01}, "majority 1.01 and cost None"),
        ({"cost": 0.0}, r"majority 0.5 and cost 0.0"),
        ({"cost": -1.0}, r"majority 0.5 and cost -1.0"),
    ):
        with pytest.raises(UnshakenError, match=message):
            replace(entry, **changed)  # type: ignore[arg-type]
    assert replace(entry, majority=1.0, cost=0.1).cost == 0.1


def test_marks_of_other_examples_are_never_compared(tmp_path: Path) -> None:
    """An entry says itself which examples its marks are of: of one of them, or in another order, it is no pair."""
    honest, few = made("honest", rows_of(0.5, 1)), made("few", ["1"] * 3)
    turned = replace(honest, name="turned", ids=honest.ids[::-1])
    entries = {submit(one, tmp_path): one for one in (honest, few, turned)}
    assert {one.data for one in entries.values()} == {"d"}
    rankings = rank(entries).values()
    assert sorted([one.entry.name for one in ranking] for ranking in rankings) == [["few"], ["honest"], ["turned"]]
    page = build(entries, tmp_path / "board.html").read_text()
    assert (page.count(" 200 examples;"), page.count(" 1 examples;")) == (2, 1)


def test_a_majority_of_which_entries_say_different_things_is_nobodys(tmp_path: Path) -> None:
    entries = {tmp_path / name: made(name, ["10"] * 3) for name in "abc"}
    entries[tmp_path / "c"] = replace(entries[tmp_path / "c"], majority=0.01)
    assert "is right for <strong>1.0% or 50.0%</strong>" in build(entries, tmp_path / "board.html").read_text()


def test_an_interval_is_a_share_and_never_certain() -> None:
    """18 of 18 right is no proof of 100%, and no share lies above it."""
    certain, spread = made("x", ["1" * 18] * 3), made("y", ["1" * 18, "1" * 18, "1" * 15 + "000"])
    assert certain.share("clean").low < 0.9
    assert str(certain.share("clean")) == str(wilson(18, 18))
    assert str(spread.share("worst")).endswith(", 100.0]")


def test_other_examples_or_sets_are_other_rankings(tmp_path: Path) -> None:
    one, other = made("x", ["11"] * 3), replace(made("y", ["11"] * 3), data="other")
    assert len(rank({tmp_path / "a": one, tmp_path / "b": other})) == 2
    others = [
        replace(one, suite="full"),
        replace(one, track=replace(TRACK, task="another")),
        replace(one, substitutions={"name": "x", "fingerprint": "g"}),
        replace(one, name="z", majority=0.6),  # which is no other ranking
    ]
    assert [len(rank({tmp_path / "a": one, tmp_path / "b": other})) for other in others] == [2, 2, 2, 1]
    tracks = [replace(one, track=replace(TRACK, task=task)) for task in "cab"]
    ordered = rank({tmp_path / each.track.task: each for each in tracks})
    assert [ranking[0].entry.track.task for ranking in ordered.values()] == [
        "a",
        "b",
        "c",
    ]  # whatever the files are called


# ---------------------------------------------------------------------------------------------------- checked, broken


def test_an_honest_entry_stands(entry: Entry, victims: list[Victim], examples: Examples) -> None:
    assert verify(entry, victims, examples, WORD_LIST, count=len(TEXTS)).refused == ()


def test_the_command_verifies_as_many_examples_as_the_function_and_by_the_same_seed() -> None:
    function, command = (signature(one).parameters for one in (verify, verify_command))
    for name, default in {"count": 50, "seed": 0}.items():
        assert (function[name].default, command[name].default) == (default, default)


def test_the_seed_of_who_verifies_chooses_the_examples(
    entry: Entry, victims: list[Victim], examples: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[list[str]] = []

    def look(victim: Victim, part: Examples, *_: Any, **__: Any) -> Any:
        chosen.append([row.id for row in part])
        raise InterruptedError

    monkeypatch.setattr(sys.modules["unshaken.leaderboard.verify"], "evaluate", look)
    for seed in (0, 0, 1, 2):
        with pytest.raises(InterruptedError):
            verify(entry, victims, examples, WORD_LIST, count=4, seed=seed)
    assert chosen[0] == chosen[1]
    assert len(set(map(tuple, chosen))) > 1
    assert all(len(set(own)) == 4 and set(own) <= set(entry.ids) for own in chosen)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, str]]:
    """By id, the marks that a check of `made` entries measures, in place of attacks: "clean" and each attack's."""
    marks: dict[str, dict[str, str]] = {}
    board = sys.modules["unshaken.leaderboard.verify"]
    found = lambda _, part, *__, **___: SimpleNamespace(evaluations=[[row.id for row in part]], checks=())  # noqa: E731
    monkeypatch.setattr(board.TrainingRecord, "load", lambda _: record(0, "x"))
    monkeypatch.setattr(board, "evaluate", found)
    monkeypatch.setattr(board, "clean_marks", lambda ids: "".join(marks["clean"][key] for key in ids))
    rest = lambda ids, _: {name: "".join(own[key] for key in ids) for name, own in marks.items() if name != "clean"}  # noqa: E731
    monkeypatch.setattr(board, "held_marks", rest)
    monkeypatch.setattr(board, "without_text", lambda *_: defaultdict(set))
    return marks


def claimed(clean: str, **held: str) -> tuple[Entry, list[Any], Examples]:
    """An entry of one model with these marks, its victim and its examples."""
    rows = tuple(Example(id=f"e{number}", texts=(str(number),), label=0) for number in range(len(clean)))
    examples, entry = Examples(rows=rows), made("x", [clean])
    # All examples are of one label, which is more than any wrong answer leaves.
    model = replace(entry.models[0], clean=clean, held=held, flags=(("below-majority", "raised", ""),))
    words = {"name": WORD_LIST.name, "fingerprint": WORD_LIST.fingerprint}
    entry = replace(entry, models=(model,), data=examples.fingerprint, substitutions=words)
    entry = replace(entry, majority=1.0, suite="mini")
    return entry, [SimpleNamespace(fingerprint=model.fingerprint, folder="x-0")], examples


def by_id(marks: str) -> dict[str, str]:
    return {f"e{number}": mark for number, mark in enumerate(marks)}


def test_a_claim_is_refused_exactly_outside_wilsons_interval(measured: dict[str, dict[str, str]]) -> None:
    total, z = 12, 1.959964
    for kept in range(total + 1):
        measured |= {"clean": by_id("1" * total), "pwws": by_id("1" * kept + "0" * (total - kept))}
        share = kept / total
        spread = z * np.sqrt(share * (1 - share) / total + z**2 / (4 * total**2))
        low, high = ((share + z**2 / (2 * total) + sign * spread) / (1 + z**2 / total) for sign in (-1, 1))
        for claims in range(total + 1):
            told = verify(*claimed("1" * total, pwws="0" * (total - claims) + "1" * claims), WORD_LIST).refused
            stands = low - 1e-6 <= claims / total <= high + 1e-6
            shares = [line for line in told if "examples and keeps" in line]
            assert len(shares) == (0 if stands else 2), (kept, claims)  # of the attack, and of all attacks
    assert told == ()  # all held, all claimed


def test_what_could_not_be_attacked_here_is_not_checked(measured: dict[str, dict[str, str]]) -> None:
    claim = claimed("1" * 11 + "0", pwws="1" * 11 + "0", exhaustive="1" * 10 + "?0")
    # All or few of them: the lie may be about those.
    for marks, missing, compared in (("?" * 11, 11, 1), ("1" * 9 + "??", 2, 10)):
        measured |= {"clean": by_id("1" * 11 + "0"), "pwws": by_id(f"{marks}0"), "exhaustive": by_id("1" * 10 + "?0")}
        verdict = verify(*claim, WORD_LIST)
        assert not verdict.stands
        assert (verdict.refused, verdict.checked) == ((), f"1 model, {compared} of 12 examples")
        assert verdict.unchecked == (f"x-0: {missing} of 11 examples could not be attacked here",)
    measured["pwws"] = by_id("1" * 11 + "0")  # what exhaustive search passed over there, too, is known by the others
    verdict = verify(*claim, WORD_LIST)
    assert (verdict.stands, verdict.unchecked, verdict.checked) == (True, (), "1 model, 12 examples each")
    # Another attack broke it: the worst case is known, and what PWWS does to it, which is claimed, is not.
    measured["pwws"], measured["exhaustive"] = by_id("?" + "1" * 10 + "0"), by_id("0" + "1" * 10 + "0")
    verdict = verify(*claim, WORD_LIST)
    assert verdict.unchecked == ("x-0: 1 of 11 examples could not be attacked here",)
    # An attack on what is left has nothing to try where one before it broke the example.
    (entry, *rest), measured["pwws"] = claim, by_id("0" + "1" * 10 + "0")
    measured["exhaustive"] = by_id("?" + "1" * 10 + "0")
    (model,) = entry.models
    last = replace(model, held={"pwws": "0" + model.held["pwws"][1:], "genetic": "0" + "1" * 10 + "0"})
    measured["genetic"] = by_id("?" + "1" * 10 + "0")
    del measured["exhaustive"]
    verdict = verify(replace(entry, models=(last,), left=("genetic",)), *rest, WORD_LIST)
    assert (verdict.stands, verdict.checked) == (True, "1 model, 12 examples each")
    # Nor does an entry stand of which nothing was compared because it claims nothing.
    nothing = replace(last, held={"pwws": "?" * 11 + "0", "genetic": "?" * 11 + "0"})
    seed = next(seed for seed in range(9) if 11 not in np.random.default_rng(seed).permutation(12)[:4])
    verdict = verify(replace(entry, models=(nothing,)), *rest, WORD_LIST, count=4, seed=seed)
    assert (verdict.stands, verdict.checked) == (False, "1 model, 0 of 4 examples")
    assert verdict.unchecked == ("x-0: the entry claims nothing of the examples chosen; take more, or others",)


def test_what_exhaustive_search_or_a_transfer_alone_could_not_try_here_is_not_checked(
    measured: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = "1" * 11 + "0"
    entry, *rest = claimed(right, pwws=right, transfer=right, exhaustive="1" * 10 + "?0")
    for left in ((), ("transfer", "exhaustive")):
        measured |= {name: by_id(right) for name in ("clean", "pwws", "transfer", "exhaustive")}
        claim = (replace(entry, left=left), *rest, WORD_LIST)
        assert verify(*claim).stands
        for marks, number in (("?" * 11 + "0", 10), ("1" * 8 + "???0", 2)):  # of one the entry has no proof
            measured["exhaustive"] = by_id(marks)
            verdict = verify(*claim)
            assert (verdict.stands, verdict.refused, verdict.checked) == (False, (), "1 model, 12 examples each")
            assert verdict.unchecked == (f"x-0: {number} of 11 examples could not be attacked here by exhaustive",)
        measured |= {"transfer": by_id("?" * 11 + "0"), "exhaustive": by_id(right)}
        assert verify(*claim).unchecked == ("x-0: 11 of 11 examples could not be attacked here by transfer",)
        with monkeypatch.context() as patch:  # its source is wrong about nine of them, which is no failure
            texts = {"transfer": {f"e{number}" for number in range(9)}}
            patch.setattr(sys.modules["unshaken.leaderboard.verify"], "without_text", lambda *_, own=texts: own)
            assert verify(*claim).unchecked == ("x-0: 2 of 11 examples could not be attacked here by transfer",)
        # An attack before it broke two here, so that nothing was left to try.
        measured |= {"pwws": by_id("00" + right[2:]), "transfer": by_id("??" + right[2:])}
        assert verify(*claim).unchecked == ()


def test_a_source_without_a_text_is_told_from_a_transfer_that_failed() -> None:
    """The source is wrong about two of three texts; about the third it ends in an error when its words are swapped."""
    texts = ("good film", "bad plot", "good plot")

    def answers(texts: list[str]) -> np.ndarray:
        return np.array([[0.2, 0.8] if "good" in text or "fine" in text else [0.8, 0.2] for text in texts])

    def source(texts: list[str]) -> np.ndarray:
        if any(text not in known for text in texts):
            raise RuntimeError("out of memory")
        return np.array([[0.8, 0.2] if text == "good film" else [0.2, 0.8] for text in texts])

    known = set(texts)
    rows = tuple(Example(id=text, texts=(text,), label=int("good" in text)) for text in texts)
    words = Dictionary(entries={"good": ["fine"], "bad": ["poor"], "plot": ["film"]})
    transfer = Transfer(source=Victim.from_callable(source, 2, name="source"), attack=PWWS(substitutions=words))
    (found,) = evaluate(Victim.from_callable(answers, 2, name="own"), Examples(rows=rows), [transfer]).evaluations
    assert held_marks(found, ["transfer"]) == {"transfer": "???"}
    assert without_text(found, ["transfer"]) == {"transfer": {"good film", "bad plot"}}


def test_an_entry_does_not_stand_where_exhaustive_search_alone_fails(
    entry: Entry, victims: list[Victim], examples: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> Any:
        raise UnshakenError("no memory for it")
        yield  # as a search does

    monkeypatch.setattr(Exhaustive, "joins_cohorts", lambda *_: False)
    monkeypatch.setattr(Exhaustive, "search", failing)
    model = next(model for model in entry.models if "1" in model.held["exhaustive"])  # which that search proved
    verdict = verify(replace(entry, models=(model,)), victims, examples, WORD_LIST, count=len(examples))
    number, of = model.held["exhaustive"].count("1"), model.clean.count("1")
    line = f"{model.weights}: {number} of {of} examples could not be attacked here by exhaustive"
    assert (verdict.stands, verdict.refused, verdict.unchecked) == (False, (), (line,))


def test_a_lie_does_not_stand_where_attacks_fail(entry: Entry, victims: list[Victim], examples: Examples) -> None:
    own = {row.texts for row in examples}

    class OutOfMemory(Victim):
        """On every text but those of the examples."""

        def __init__(self, inner: Victim) -> None:
            self.inner, self.name = inner, inner.name
            self.num_labels, self.label_names = inner.num_labels, inner.label_names

        @property
        def fingerprint(self) -> str:
            return self.inner.fingerprint

        def _predict(self, texts: Any) -> np.ndarray:
            if any(tuple(row) not in own for row in texts):
                raise RuntimeError("CUDA out of memory")
            return self.inner._predict(texts)

    models = tuple(replace(model, held=dict.fromkeys(model.held, model.clean)) for model in entry.models)
    lie, failing = replace(entry, models=models), [OutOfMemory(victim) for victim in victims]
    verdict = verify(lie, failing, examples, WORD_LIST, count=len(examples))
    assert not verdict.stands
    assert len(verdict.unchecked) == len(victims)
    assert verdict.refused == ()


def test_what_was_not_tried_is_no_claim(
    measured: dict[str, dict[str, str]],
) -> None:
    measured |= {"clean": by_id("1" * 12), "pwws": by_id("0" * 11 + "1")}
    verdict = verify(*claimed("1" * 12, pwws="?" * 11 + "1"), WORD_LIST)  # which is 1 of 12 on the board, as measured
    assert (verdict.stands, verdict.checked) == (True, "1 model, 1 of 12 examples")
    measured |= {"clean": by_id("1" * 12), "pwws": by_id("1" * 12)}
    verdict = verify(*claimed("1" * 12, pwws="?" * 11 + "1"), WORD_LIST)  # an attack that worked here only
    assert (verdict.refused, verdict.unchecked) == ((), ())
    measured |= {"clean": by_id("1" * 12), "pwws": by_id("1" * 12), "beam": by_id("1" * 12)}
    assert verify(*claimed("1" * 12, pwws="1" * 12), WORD_LIST).refused == (
        "x-0: the entry does not have the attack beam",
    )


def test_the_claims_of_the_chosen_examples_are_checked(measured: dict[str, dict[str, str]]) -> None:
    truth = "".join(np.random.default_rng(0).choice(["0", "1"], 30))
    measured |= {"clean": by_id(truth), "pwws": by_id(truth)}
    lie = truth.index("1")
    other = truth[:lie] + "0" + truth[lie + 1 :]
    found = set()
    for seed in range(6):
        verdict = verify(*claimed(truth, pwws=truth), WORD_LIST, count=10, seed=seed)
        assert (verdict.stands, verdict.checked) == (True, "1 model, 10 examples each")
        told = verify(*claimed(other, pwws=other), WORD_LIST, count=10, seed=seed).refused
        is_chosen = lie in np.random.default_rng(seed).permutation(30)[:10]
        assert told == ((f"x-0: 1 clean answers are not as claimed, such as 'e{lie}'",) if is_chosen else ())
        found.add(is_chosen)
    assert found == {True, False}


def test_a_false_claim_is_refused(entry: Entry, victims: list[Victim], examples: Examples) -> None:
    model = entry.models[0]
    better = replace(model, held=dict.fromkeys(model.held, model.clean))
    lying = replace(entry, models=(better, *entry.models[1:]))
    assert any("it claims 100.0%" in line for line in verify(lying, victims, examples, WORD_LIST, count=9).refused)
    flipped = "0" + model.clean[1:]
    held = {name: "0" + marks[1:] for name, marks in model.held.items()}
    other = replace(entry, models=(replace(model, clean=flipped, held=held), *entry.models[1:]))
    assert any("clean answers are not" in line for line in verify(other, victims, examples, WORD_LIST, count=9).refused)


@pytest.mark.parametrize(("fallen", "other", "refused"), [(6, 0, False), (7, 0, True), (8, 1, False)])
def test_marks_that_differ_one_way_are_refused_inside_the_interval(
    measured: dict[str, dict[str, str]], fallen: int, other: int, refused: bool
) -> None:
    """The intervals of 60 examples are 25 points wide; a coin falls 7 of 7 times one way less than once in 100."""
    same = 60 - fallen - other
    marks = "1" * (same // 2) + "0" * (same - same // 2)
    measured |= {"clean": by_id("1" * 60), "pwws": by_id(marks + "0" * fallen + "1" * other)}
    told = verify(*claimed("1" * 60, pwws=marks + "1" * fallen + "0" * other), WORD_LIST, count=60).refused
    line = f"in all models {fallen} examples that it claims to hold are broken, and {other} the other way"
    assert told == ((line,) if refused else ())
    back = verify(*claimed("1" * 60, pwws=marks + "0" * fallen + "1" * other), WORD_LIST, count=60)
    assert back.stands  # as measured


def test_an_entry_that_was_edited_is_refused(
    entry: Entry, victims: list[Victim], examples: Examples, tmp_path: Path
) -> None:
    first, *rest = entry.models
    unseen = replace(entry, track=replace(TRACK, threat="unseen"))
    forgot = tuple(replace(model, record=replace(model.record, substitutions=())) for model in entry.models)
    silent = replace(first, flags=tuple(flag for flag in first.flags if flag[0] != "same-substitutions"))
    glossed = replace(first, flags=tuple((flag, "clear", "") for flag, _, _ in first.flags))
    tuned = replace(first.record, details={**first.record.details, "arguments": {"learning_rate": 1.0}})
    other = (
        replace(first, record=tuned),
        *(replace(model, record=replace(tuned, seed=model.record.seed)) for model in rest),
    )
    untold = f"{first.weights}: the flag same-substitutions is raised, which the entry does not tell"
    for edited, message in (
        (unseen, f"{first.weights}: training used dictionary itself; it stands in the track 'known' only"),
        (replace(entry, models=other), f"{first.weights}: the entry's record of its training is not the one"),
        (replace(entry, models=forgot), f"{first.weights}: the entry's record of its training is not the one"),
        (replace(entry, models=(silent, *rest)), untold),
        (replace(entry, models=(glossed, *rest)), untold),
        (replace(entry, cost=1.0), "its record of training does not cost 1.0 passes"),
        (replace(entry, majority=0.01), "the majority baseline is"),
    ):
        assert (
            read_entry(submit(edited, tmp_path / f"board{len(list(tmp_path.iterdir()))}")) == edited
        )  # no other sees it
        told = verify(edited, victims, examples, WORD_LIST, count=2).refused
        assert any(line.startswith(message) for line in told), (message, told)


def test_a_model_that_always_answers_alike_does_not_hide_it(world: Path, examples: Examples, tmp_path: Path) -> None:
    """Nothing changes its answer, so it holds what it is right about: that is no more than the majority."""
    shutil.copytree(world / "seed0", tmp_path / "model")
    model = Victim.from_pretrained(tmp_path / "model", device="cpu").network
    assert model is not None
    often = float(sum(examples.labels) * 2 > len(examples))
    with torch.no_grad():
        model.model.classifier.weight.zero_()
        model.model.classifier.bias.copy_(torch.tensor([1 - often, often]))
    model.model.save_pretrained(tmp_path / "model")
    victim = Victim.from_pretrained(tmp_path / "model", device="cpu")
    entry = score([victim], examples, TRACK, WORD_LIST, name="constant", suite_name="mini", recheck=2)
    assert entry.share("worst").estimate == entry.share("clean").estimate == entry.majority
    assert verify(entry, [victim], examples, WORD_LIST).stands
    (model_of_it,) = entry.models
    flags = tuple((flag, "clear" if flag == "below-majority" else told, why) for flag, told, why in model_of_it.flags)
    quiet = replace(entry, models=(replace(model_of_it, flags=flags),))
    told = verify(quiet, [victim], examples, WORD_LIST, count=4).refused
    assert told == (f"{victim.name}: the flag below-majority is raised, which the entry does not tell",)


def test_another_model_other_examples_and_another_set_are_refused(
    entry: Entry, victims: list[Victim], examples: Examples
) -> None:
    told = verify(entry, [], examples, WORD_LIST)
    assert all("no model with the fingerprint" in line for line in told.refused)
    assert (len(told.refused), told.checked) == (3, "nothing was attacked")
    told = verify(entry, victims[1:2], examples, WORD_LIST, count=4)
    assert (len(told.refused), told.checked) == (2, "1 of 3 models, 4 examples each")
    with pytest.raises(UnshakenError, match="other examples"):
        verify(entry, victims, examples[:3], WORD_LIST)
    with pytest.raises(UnshakenError, match="another set"):
        verify(entry, victims, examples, WordNet())


def test_a_third_partys_text_breaks_an_entry(
    entry: Entry, victims: list[Victim], examples: Examples, tmp_path: Path
) -> None:
    found = next(row for row in PWWS(substitutions=WORD_LIST)(victims[0], examples) if row.outcome == "success")
    example = examples.with_ids([found.example_id])[0]
    assert found.adversarial is not None
    broken = check_break(entry, victims[0], example, found.adversarial, WORD_LIST)
    assert (broken.example, broken.label) == (found.example_id, found.label)
    for texts, message in (
        (example.texts, "still gives the right answer"),
        ((example.texts[0] + "!",), "changes what follows"),
        ((example.texts[0].replace("film", "dog"),), "changes more than words that dictionary offers, at 'film'"),
        ((), "0 texts"),
    ):
        with pytest.raises(UnshakenError, match=message):
            check_break(entry, victims[0], example, texts, WORD_LIST)


def test_a_wording_is_one_that_can_be_written_with_the_set() -> None:
    """Of all texts of few letters, exactly those that swap words, also where substitutes begin alike."""
    table = Dictionary(entries={"ab": ["a", "aba", "b a"], "b": ["a", "ab"]})
    writable = {f"-{one} {other}!" for one in ("ab", "a", "aba", "b a") for other in ("b", "a", "ab")}
    accepted = set()
    for size in range(3, 7):
        for letters in itertools.product("ab ", repeat=size):
            for text in (f"-{''.join(letters)}!", f"-{''.join(letters)}", f"{''.join(letters)}!"):
                with contextlib.suppress(UnshakenError):
                    _require_wording("-ab b!", text, table)
                    accepted.add(text)
    assert accepted == writable


def test_a_break_of_another_model_example_or_a_wrong_answer_is_none(
    entry: Entry, victims: list[Victim], examples: Examples
) -> None:
    with pytest.raises(UnshakenError, match="is not a model of plain"):
        check_break(replace(entry, models=entry.models[1:]), victims[0], examples[0], ("x",), WORD_LIST)
    with pytest.raises(UnshakenError, match="was not scored on the example 'e99'"):
        check_break(entry, victims[0], replace(examples[0], id="e99"), ("x",), WORD_LIST)
    wrong = replace(examples[0], label=1 - int(examples[0].label))
    with pytest.raises(UnshakenError, match="without any change; that counts already"):
        check_break(entry, victims[0], wrong, wrong.texts, WORD_LIST)


@pytest.mark.parametrize("label", [0, 1])
def test_a_text_breaks_an_entry_exactly_where_the_answer_flips(label: int) -> None:
    """And not where the right answer is only less sure."""
    right = {"good film": 0.9, "fine film": 0.6, "nice film": 0.4}
    of_label = lambda text: [right[text], 1 - right[text]] if label == 0 else [1 - right[text], right[text]]  # noqa: E731
    victim = Victim.from_callable(lambda texts: list(map(of_label, texts)), 2)
    entry, _, examples = claimed("11", pwws="11")
    entry = replace(entry, models=(replace(entry.models[0], fingerprint=victim.fingerprint),))
    example = replace(examples[1], texts=("good film",), label=label)
    broken = check_break(entry, victim, example, ["nice film"], WORD_LIST)
    assert (broken.model, broken.example, broken.texts) == (victim.fingerprint, "e1", ("nice film",))
    assert (broken.prediction, broken.label) == (1 - label, label)
    with pytest.raises(UnshakenError, match="still gives the right answer"):
        check_break(entry, victim, example, ["fine film"], WORD_LIST)
    with pytest.raises(UnshakenError, match="another set"):
        check_break(entry, victim, example, ["nice film"], Dictionary(entries={"good": ["nice"]}))


def test_what_a_reader_does_not_mend_may_break_its_model_and_what_it_mends_may_not() -> None:
    """The suite attacks with what the model's reader leaves of a set; whoever breaks an entry has no more, nor less."""
    words = Unmended(Dictionary(entries={"good": ["fine", "nice"]}))

    class Reader:
        fingerprint = "reads fine as good"

        def __call__(self, text: str) -> str:
            return text.replace("fine", "good")

    victim = Victim.from_callable(
        lambda texts: [[0.9, 0.1] if text == "good film" else [0.4, 0.6] for text in texts], 2
    )
    victim.reader = Reader()  # type: ignore[assignment]
    entry, _, examples = claimed("1", pwws="1")
    told = {"name": words.name, "fingerprint": words.fingerprint}
    entry = replace(entry, models=(replace(entry.models[0], fingerprint=victim.fingerprint),), substitutions=told)
    example = replace(examples[0], texts=("good film",), label=0)
    assert check_break(entry, victim, example, ["nice film"], words).prediction == 1
    with pytest.raises(UnshakenError, match="changes more than words that unmended offers, at 'good'"):
        check_break(entry, victim, example, ["fine film"], words)


def test_a_break_lowers_the_worst_case_of_its_model_alone(tmp_path: Path) -> None:
    path = submit(made("x", ["11"] * 3), tmp_path)
    append_break(path, {"model": "x-1", "example": "e0"})
    append_break(path, {"model": "x-1", "example": "e0"})  # told twice, it counts once
    assert len(read_breaks(path)) == 2
    ((found,),) = rank(read_entries(tmp_path)).values()
    assert (found.worst.estimate, found.breaks) == (pytest.approx(5 / 6), 1)


def test_a_model_that_is_submitted_again_stays_broken(tmp_path: Path) -> None:
    """Under another name or suite, also on other seeds beside it; not where other words may be written."""
    first = made("x", ["1111"] * 3)
    again, fuller = replace(first, name="again"), replace(first, name="fuller", suite="a longer one")
    fewer = replace(first, name="fewer", models=first.models[1:])
    elsewhere = replace(first, name="elsewhere", substitutions={"name": "y", "fingerprint": "g"})
    others = made("others", ["1111"] * 3)
    entries = [first, again, fuller, fewer, elsewhere, others]
    path = submit(first, tmp_path)
    append_break(path, {"model": "x-0", "example": "e0"})
    append_break(path, {"model": "x-1", "example": "e3"})
    for one in entries[1:]:
        submit(one, tmp_path)
    found = {one.entry.name: one for ranking in rank(read_entries(tmp_path)).values() for one in ranking}
    held_in_all = lambda one: round(one.worst.estimate * 4 * len(one.entry.models))  # noqa: E731
    told = {name: (one.breaks, one.on_record, held_in_all(one)) for name, one in found.items()}
    assert told == {
        **dict.fromkeys(("x", "again", "fuller"), (2, 2, 10)),
        **{"fewer": (1, 1, 7), "elsewhere": (0, 0, 12), "others": (0, 0, 12)},
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            '{"model": "x-9", "example": "e0"}',
            "tells of the model 'x-9' and the example 'e0', and x does not have both",
        ),
        ('{"model": "x-0", "example": "e9"}', "tells of the model 'x-0' and the example 'e9'"),
        ('{"example": "e0"}', "tells of the model 'None'"),
        ('["x-0", "e0"]', "line 2 is no break"),
        ("", "line 2 is not JSON"),
    ],
)
def test_a_line_that_is_no_break_is_told(tmp_path: Path, line: str, message: str) -> None:
    path = submit(made("x", ["11"] * 3), tmp_path)
    file = append_break(path, {"model": "x-1", "example": "e0"})
    file.write_text(file.read_text() + line + "\n")
    with pytest.raises(UnshakenError, match=message):
        rank(read_entries(tmp_path))


def test_what_the_suite_had_broken_is_not_counted_as_broken_by_others(tmp_path: Path) -> None:
    path = submit(made("x", ["01?"] * 3), tmp_path)
    for example, counted in (("e0", 0), ("e1", 1), ("e2", 2)):  # what nobody had settled counts, too
        append_break(path, {"model": "x-1", "example": example})
        ((found,),) = rank(read_entries(tmp_path)).values()
        assert found.breaks == counted


# -------------------------------------------------------------------------------------------------- page and commands


def test_the_page_shows_and_sorts_without_obeying(browser: Any, tmp_path: Path) -> None:
    evil = "<script>document.title='obeyed'</script>"
    shares = {"low": "1000", evil: "1110", "two": "1111"}
    entries = [made(name, [row * 50] * (2 if name == "two" else 3)) for name, row in shares.items()]
    page = build({submit(one, tmp_path): one for one in entries}, tmp_path / "board.html")
    context = browser.new_context(viewport={"width": 390, "height": 800}, offline=True)
    tab = context.new_page()
    complaints: list[str] = []
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("console", lambda message: complaints.append(message.text))
    tab.goto(page.as_uri())
    assert tab.title() == "unshaken leaderboard"

    def names() -> list[str]:
        return [cell.inner_text() for cell in tab.query_selector_all("tr.entry th")]

    assert names() == [evil, "low", "two"]  # two seeds have no rank, and come last
    assert "not ranked" in tab.query_selector_all("tr.entry")[2].inner_text()
    for title, orders in {
        "Rank": [["low", evil, "two"], [evil, "low", "two"]],  # what has no value is last either way
        "Worst case": [["low", evil, "two"], ["two", evil, "low"]],
    }.items():
        for order in orders:
            tab.get_by_role("button", name=title).click()
            assert names() == order
    tab.get_by_role("button", name="Worst case").focus()
    for key, order in (("Enter", ["low", evil, "two"]), ("Space", ["two", evil, "low"])):
        tab.keyboard.press(key)
        assert names() == order
    assert tab.get_attribute("th:has-text('Worst case')", "aria-sort") == "descending"
    for row in tab.query_selector_all("tbody"):  # the details move with their entry
        assert row.query_selector("th").inner_text() in (row.query_selector("summary").get_attribute("aria-label"))
    width = tab.evaluate("document.documentElement.scrollWidth")
    assert width <= 390
    assert complaints == []
    context.close()


def shown(page: str) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Of each entry in the order of the page, the cells beside its name, and what its details say by their names."""
    found = {}
    for block in page.split("<tbody")[1:]:
        cells = [(kind, " ".join(re.sub("<[^<>]*>", "", own).split())) for kind, own in re.findall(CELL, block)]
        ((_, name),) = [cell for cell in cells if cell[0] == "h"]
        details = {key: " ".join(value.split()) for key, value in re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", block)}
        found[name] = [text for kind, text in cells if kind == "d"], details
    return found


CELL = r'<t([dh]) role="(?:cell|rowheader)" (?:data-label|scope)[^>]*>(.*)</t[dh]>'


def test_the_page_tells_what_the_entries_say(tmp_path: Path) -> None:
    # PWWS leaves four; Genetic breaks one of them, exhaustive search another, and passes over the third.
    held = {"pwws": "11110000", "genetic": "1101???0", "exhaustive": "10?????0"}
    flags = [
        [("miscalibration", "raised", "sure"), ("randomness", "clear", "alike"), ("few-seeds", "unknown", "of two")],
        [("miscalibration", "raised", "sure"), ("flat", "unknown", "not run"), ("randomness", "clear", "alike")],
        [
            ("below-majority", "raised", "low"),
            ("randomness", "clear", "alike"),
            ("transfer", "unknown", "none"),
            ("budget", "unknown", "one"),
        ],
    ]
    for own in flags[:2]:
        own.append(("below-majority", "clear", "high"))
    told: dict[str, Any] = {"majority": 0.625, "code": {"version": "1.2", "digest": "abc"}, "created": "2026-01-02"}
    told |= {"substitutions": {"name": "mine", "fingerprint": "0123456789"}, "suite": "mini"}
    one, last, few = (
        made("first", ["1" * 8] * 3),
        made("last", ["11000000", "01000000", "00000000"]),
        made("few", ["1" * 8]),
    )
    marks = [replace(model, clean="11111110", held=held) for model in one.models]
    models = tuple(replace(model, flags=tuple(own)) for model, own in zip(marks, flags, strict=True))
    first = replace(one, models=models, left=("genetic", "exhaustive"), recipe="so", cost=2.34, **told)
    last = replace(last, **told)
    few = replace(few, models=(replace(few.models[0], record=replace(record(0), method="few", details={})),), **told)
    last, few = whole_suite(last), whole_suite(few)
    entries = {submit(each, tmp_path): each for each in (few, last, first)}
    broken = next(path for path, each in entries.items() if each is last)
    for example in ("e0", "e7"):  # the suite had broken the second, too
        append_break(broken, {"model": "last-0", "example": example})
    page = build(entries, tmp_path / "board.html").read_text()
    text = " ".join(re.sub("<[^<>]*>", "", page).split())
    assert "3 entries." in text
    assert "fewer than 3 training seeds are listed" in text
    assert f"Threat: {THREATS['known']}. Suite: {SUITES['mini']}. 8 examples; substitutions: mine (01234567)." in text
    assert "right for 62.5%" in text
    found = shown(page)
    assert list(found) == ["first", "last", "few"]  # what has no rank is last, however much it holds
    clean, passes = [str(each.share("clean")) for each in (first, last, few)], training_cost(SWAP(variants=4))
    worst = [first.share("worst"), last.share("worst", [("last-0", "e0")]), few.share("worst")]
    assert [each.estimate for each in worst] == pytest.approx([2 / 8, 2 / 24, 1])
    others = "1 of 2 on record: the others did not count as held"
    # What an entry, or one of its models, says nothing of is unknown: to leave a flag out does not clear it.
    unknown = sorted({*FLAGS, "budget", "flat", "transfer"} - {"randomness", "below-majority"})
    silent = f"none {len(FLAGS)} unknown"
    raised = f"below-majority miscalibration {len(unknown)} unknown"
    assert [cells for cells, _ in found.values()] == [
        ["1 (tied)", str(worst[0]), clean[0], "2.3", "3", raised, "0"],
        ["1 (tied)", str(worst[1]), clean[1], f"{passes:.1f}", "3", silent, others],
        ["not ranked", str(worst[2]), clean[2], "not told", "1", silent, "0"],
    ]
    assert "--worst: 25.0%; --clean: 87.5%" in page
    assert f'title="{", ".join(unknown)}">{len(unknown)} unknown' in page
    assert list(found["first"][1].items()) == list(
        {
            "pwws": str(first.share("pwws")),
            "genetic": "on the examples left: of 12 tried in all models 9 held",
            "exhaustive": "on the examples left: of 6 tried in all models 3 had no wording that flips them",
            **{
                "below-majority (seed 0, 1)": "clear: high",
                "below-majority (seed 2)": "raised: low",
                "budget (seed 2)": "unknown: one",
                "few-seeds (seed 0)": "unknown: of two",
                "flat (seed 1)": "unknown: not run",
            },
            **{"miscalibration (seed 0, 1)": "raised: sure", "randomness": "clear: alike"},
            "transfer (seed 2)": "unknown: none",
            "trained from": "tiny",
            "weights": "first-0 (seed 0), first-1 (seed 1), first-2 (seed 2)",
            **{"recipe": "so", "scored by": "unshaken 1.2 abc, 2026-01-02"},
        }.items()
    )


def boxes(tab: Any, selector: str) -> list[dict[str, float]]:
    return [element.bounding_box() for element in tab.query_selector_all(selector)]


def test_the_page_is_laid_out_at_both_widths(browser: Any, tmp_path: Path) -> None:
    flags = [("miscalibration", "raised", "x"), ("same-substitutions", "raised", "x"), ("few-seeds", "unknown", "x")]
    flags += [(flag, "clear", "x") for flag in FLAGS if flag not in {flag for flag, _, _ in flags}]
    entries = []
    for name, share in (("Smoothed 2 + SWAP, recall 0.5", 0.8), ("plain", 0.1)):
        one = made(name, rows_of(share, 0))
        entries.append(replace(one, models=tuple(replace(model, flags=tuple(flags)) for model in one.models)))
    page = build({submit(one, tmp_path): one for one in entries}, tmp_path / "board.html")
    tab = browser.new_page(viewport={"width": 1280, "height": 800})
    tab.goto(page.as_uri())
    (rank_heading,) = boxes(tab, "th button:text('Rank')")
    assert rank_heading["height"] < 30  # the sign stands beside the word, on one line
    (footer,), (frame, *_) = boxes(tab, "footer a"), boxes(tab, "h1")
    assert abs(footer["x"] - frame["x"]) < 120  # "Made by" stands before the link
    assert tab.evaluate("getComputedStyle(document.querySelector('footer')).maxWidth") == tab.evaluate(
        "getComputedStyle(document.querySelector('main')).maxWidth"
    )
    (frame,) = boxes(tab, ".scroll")
    assert all(box["x"] + box["width"] <= frame["x"] + frame["width"] for box in boxes(tab, "tr.entry td"))
    tab.set_viewport_size({"width": 390, "height": 800})
    for entry_box in boxes(tab, "tr.entry"):
        assert entry_box["height"] < 320  # eight short lines, no empty room
    for cell in boxes(tab, "tr.entry > *"):
        assert cell["x"] + cell["width"] <= 390
        assert cell["height"] < 70
    assert [box["width"] > 0 for box in boxes(tab, "thead button")] == [True] * 8  # to sort by, on a phone too
    tab.close()


@pytest.mark.parametrize(
    "defence", [Standard(), FreeLB(steps=4), SWAP(variants=1), RIFT(), ASCC() + PTWD(), SWAP() + PlainTeacher()]
)
def test_the_cost_is_told_by_the_record_and_by_records_before_they_had_it(defence: Any) -> None:
    told = describe_cost(defence, None)
    assert told["passes"] == pytest.approx(training_cost(defence), abs=0.01)
    with_it = replace(record(0), details={"defence": describe(defence), **told})
    before = replace(record(0), details={"defence": describe(defence)})
    assert cost_of(with_it) == told["passes"]
    assert cost_of(before) == pytest.approx(told["passes"], abs=0.01)


def test_a_cost_that_nobody_can_know_is_not_told() -> None:
    for strange in ([], "x", ["x"], [{}], [{"name": "Mine"}], [{"name": "FreeLB", "steps": "x"}], [{"name": []}]):
        assert cost_of(replace(record(0), details={"defence": strange, "passes": "three"})) is None
    for passes in (True, -1, 0, float("nan"), float("inf")):
        assert cost_of(replace(record(0), details={"passes": passes})) is None
    assert cost_of(replace(record(0), details={"passes": 0.5})) == 0.5


def test_training_without_a_defence_costs_one_also_in_records_before_they_had_it() -> None:
    before = replace(record(0), details={"defence": None, "connection": None})
    assert cost_of(before) == training_cost(Standard()) == 1


@pytest.mark.parametrize(("layers", "connected"), [("all", 2), ("2", 1)])
def test_the_cost_of_a_connection_counts(tmp_path: Path, layers: str, connected: int) -> None:
    """IM-BERT: five evaluations and five products of a layer, a look, and a pass that carries the gradient."""
    connection = Connection.im_bert(layers)
    model = connect(tiny_bert(make_tokenizer(tmp_path)), connection)
    assert model.config.num_hidden_layers == 2
    cost = 1 + connected / 2 * ((5 + 5 + 1 + 3) / 3 - 1)
    for defence in (None, SWAP(variants=4)):
        passes = training_cost(defence or Standard()) * cost
        told = describe_cost(defence, model)
        assert told["passes"] == pytest.approx(passes, abs=0.01)
        details = {"connection": connection.to_dict(), "defence": defence and describe(defence)}
        assert cost_of(replace(record(0), details={**details, **told})) == told["passes"]
        assert cost_of(replace(record(0), details=details)) is None  # nobody can know how many layers there were


def test_a_defence_that_does_not_count_its_passes_has_a_record(tmp_path: Path) -> None:
    class Mine(Standard):
        def passes(self) -> Any:
            raise NotImplementedError

    assert describe_cost(Mine(), None) == {}
    assert describe_cost(None, None) == {"passes": 1.0}


def run(*words: Any, code: int = 0) -> str:
    found = CliRunner().invoke(app, ["leaderboard", *map(str, words)])
    assert found.exit_code == code, (found.output, found.exception)
    return " ".join(found.output.split())


def verify_found(path: Path, field: str, line: str, words: list[str]) -> str:
    """What the command prints if a check finds this."""
    verdict = Verdict(refused=(), checked="3 models, 13 of 15 examples", unchecked=())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unshaken.leaderboard, "verify", lambda *_, **__: replace(verdict, **{field: (line,)}))
        return run("verify", path, "-n", 5, *words, code=1)


def refused(*words: Any) -> str:
    found = CliRunner().invoke(app, ["leaderboard", *map(str, words)])
    assert isinstance(found.exception, UnshakenError)
    return str(found.exception)


def test_from_models_to_a_page_on_the_command_line(world: Path, tmp_path: Path) -> None:
    words = ["--substitutions", f"dictionary:path={world / 'words.json'}", "--device", "cpu"]
    track = f"tiny/known/{world / 'own.jsonl'}"
    models = [world / f"seed{number}" for number in range(3)]
    told = run(
        *("score", *models, "--track", track, "--name", "plain", "--suite", "mini", "--recheck", 0),
        *(*words, "--out", tmp_path / "run"),
    )
    entry = read_entry(tmp_path / "run" / "entry.json")
    assert f"plain: worst case {entry.share('worst')}, clean {entry.share('clean')}" in told
    run("submit", tmp_path / "run" / "entry.json", tmp_path / "board")
    (path,) = (tmp_path / "board").glob("*.json")
    assert "plain: stands (3 models, 5 examples each)" in run("verify", path, "-n", 5, *words)
    part = verify_found(path, "unchecked", "x-0: 2 of 5 examples could not be attacked here", words)
    assert "could not be checked: x-0: 2 of 5 examples could not be attacked here" in part
    assert "plain: could not be checked (3 models, 13 of 15 examples)" in part
    values = json.loads(path.read_text())
    values["models"][0]["held"] = dict.fromkeys(values["models"][0]["held"], values["models"][0]["clean"])
    (tmp_path / "lying.json").write_text(json.dumps(values))
    assert "refused" in run("verify", tmp_path / "lying.json", "-n", 9, *words, code=1)
    entry = read_entry(path)
    victim = Victim.from_pretrained(models[0], device="cpu")
    rows = [json.loads(line) for line in (world / "own.jsonl").read_text().splitlines()]
    from unshaken.tasks import load_examples

    own = load_examples(world / "own.jsonl")
    assert len(own) == len(rows) == len(entry.ids)
    found = next(row for row in PWWS(substitutions=WORD_LIST)(victim, own) if row.outcome == "success")
    assert found.adversarial is not None
    way = ("--example", found.example_id, "--text", found.adversarial[0], "--model", models[0])
    told = run("break", path, *way, *words)
    assert "Broken; on record" in told
    assert "The worst case is the same, since the example did not count as held." in told
    values = json.loads(path.read_text())  # the suite might have missed it
    place = values["ids"].index(found.example_id)
    for name, marks in values["models"][0]["held"].items():
        values["models"][0]["held"][name] = f"{marks[:place]}1{marks[place + 1 :]}"
    (tmp_path / "missed.json").write_text(json.dumps(values))
    missed = read_entry(tmp_path / "missed.json").share("worst")
    assert f"The worst case falls from {missed} to {entry.share('worst')}." in run(
        "break", tmp_path / "missed.json", *way, *words
    )
    assert "attacked with, dictionary; give that one by --substitutions" in refused("break", path, *way)
    unknown = (*way[:1], "nowhere", *way[2:])
    assert "plain was not scored on an example 'nowhere'" in refused("break", path, *unknown, *words)
    values["data"] = "of other texts under the same ids"
    (tmp_path / "other.json").write_text(json.dumps(values))
    assert "has other examples than those plain was scored on" in refused(
        "break", tmp_path / "other.json", *way, *words
    )
    assert "(1 entry)" in run("build", tmp_path / "board", "--out", tmp_path / "board.html")
    assert "plain" in (tmp_path / "board.html").read_text()


def test_a_file_of_one_class_is_read_by_the_models_names(world: Path, tmp_path: Path) -> None:
    """Alone, its only class would be the first, and every mark the wrong way round."""
    shutil.copytree(world / "seed0", tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    names = {"id2label": {"0": "bad", "1": "good"}, "label2id": {"bad": 0, "good": 1}}
    (tmp_path / "model" / "config.json").write_text(json.dumps({**config, **names}))
    victim = Victim.from_pretrained(tmp_path / "model", device="cpu")
    right = [row.texts[0] for row in labelled(victim, TEXTS) if row.label == 1][:2]
    file = tmp_path / "good.jsonl"
    file.write_text("".join(json.dumps({"text": text, "label": "good"}) + "\n" for text in right))
    run(
        *("score", tmp_path / "model", "--track", f"tiny/known/{file}", "--name", "plain", "--suite", "mini"),
        *(
            "--substitutions",
            f"dictionary:{world / 'words.json'}",
            "--recheck",
            0,
            "--device",
            "cpu",
            "--out",
            tmp_path,
        ),
    )
    assert read_entry(tmp_path / "entry.json").models[0].clean == "1" * len(right)


def test_several_sources_at_once_are_named_with_commas(world: Path, tmp_path: Path) -> None:
    words = f"dictionary:{world / 'words.json'},typos:kinds=swap"
    track = f"tiny/all/{world / 'own.jsonl'}"
    run(
        *("score", world / "seed0", "--track", track, "--name", "plain", "--suite", "mini", "--recheck", 0, "-n", 2),
        *("--substitutions", words, "--device", "cpu", "--out", tmp_path),
    )
    assert read_entry(tmp_path / "entry.json").substitutions["name"] == "all"


def test_an_empty_board_says_what_to_do(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["leaderboard", "build", str(tmp_path)])
    assert isinstance(result.exception, UnshakenError)
    assert "has no entries" in str(result.exception)
