"""The engine under bad input, failing victims, full disks and kill -9."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from victims import TEXTS, WORD_LIST, bag_of_words, bag_victim, labelled, make_tokenizer, tiny_bert

from unshaken.attacks import PWWS, AttackResults, Genetic, Greedy, HotFlip, HullAttack, Random, Victim, WorstCase
from unshaken.attacks.constraints import FrozenColumns
from unshaken.errors import UnshakenError
from unshaken.examples import Example, Examples
from unshaken.substitutions.dictionary import Dictionary

ATTACK = PWWS(substitutions=WORD_LIST)


@pytest.fixture(scope="module")
def model_victim(tmp_path_factory: pytest.TempPathFactory) -> Any:
    tokenizer = make_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    return Victim.from_model(tiny_bert(tokenizer), tokenizer)


def plain(results: AttackResults) -> list[dict[str, Any]]:
    return [{key: value for key, value in asdict(row).items() if key != "seconds"} for row in results]


ODD_TEXTS = (
    "",
    " ",
    "good",
    "😀😀",
    "🇫🇷 👩‍👩‍👧",
    "\x00\u200b",
    "bad " * 2_000,
    "[SEP] good [MASK]",
    "<br />good",
    "!!!",
    "善",
)


@pytest.mark.parametrize(
    "attack",
    [
        ATTACK,
        Genetic(substitutions=WORD_LIST, population=4, generations=2),
        Greedy(substitutions=WORD_LIST, query_budget=50),
        HotFlip(substitutions=WORD_LIST),
        HullAttack(substitutions=WORD_LIST),
    ],
)
def test_odd_texts(attack: Any, model_victim: Any) -> None:
    examples = labelled(model_victim, ODD_TEXTS)
    results = attack(model_victim, examples)
    assert [row.outcome for row in results if row.outcome == "error"] == []
    for row in (results[0], results[1], results[3], results[9]):
        assert (row.outcome, row.queries) == ("failure", 1)


@pytest.mark.full
def test_ten_thousand_words_and_no_limit_of_length() -> None:
    """A function sees whole texts: 10,000 words of which 3,000 can change must neither fill the memory nor hang."""
    victim = bag_victim()
    text = "good film with the " * 1_500 + "and it is of a " * 800
    (row,) = PWWS(substitutions=WORD_LIST, query_budget=4_000)(victim, labelled(victim, [text]))
    assert row.words == 10_000
    assert row.queries <= 4_000


def test_words_beyond_the_truncation_are_left_alone(model_victim: Any) -> None:
    examples = labelled(model_victim, ["the end " * 40 + "good film", "good film " + "the end " * 40])
    hidden, seen = Random(substitutions=WORD_LIST, samples=40)(model_victim, examples)
    assert (hidden.queries, hidden.rows) == (1, 1)
    assert seen.rows > 1


@pytest.mark.parametrize(
    ("label", "message"), [(2, "knows the labels 0 to 1"), (-1, "knows the labels"), (0.5, "has the label 0.5")]
)
def test_labels_the_victim_does_not_know(label: Any, message: str) -> None:
    with pytest.raises(UnshakenError, match=message):
        ATTACK(bag_victim(), [Example(id="x", texts=("good",), label=label)])


def test_bad_calls_are_refused_at_the_start() -> None:
    victim, example = bag_victim(), Example(id="x", texts=("good film",), label=1)
    with pytest.raises(UnshakenError, match="no examples"):
        ATTACK(victim, [])
    with pytest.raises(UnshakenError, match="occurs twice"):
        ATTACK(victim, [example, example])
    with pytest.raises(UnshakenError, match="all examples must have one text"):
        ATTACK(victim, [example, Example(id="y", texts=("a", "b"), label=0)])
    with pytest.raises(UnshakenError, match="did you mean 'premise'"):
        PWWS(substitutions=WORD_LIST, frozen_columns=("premises",))(
            victim, Examples(rows=(Example(id="y", texts=("a", "b"), label=0),), columns=("premise", "hypothesis"))
        )
    with pytest.raises(UnshakenError, match="every column is frozen"):
        PWWS(substitutions=WORD_LIST, frozen_columns=(0,))(victim, [example])
    with pytest.raises(UnshakenError, match="at least one attack"):
        WorstCase(attacks=())


def test_substitutions_that_touch_no_word_are_an_error() -> None:
    victim = bag_victim()
    with pytest.raises(UnshakenError, match="change no word"):
        PWWS(substitutions=Dictionary(entries={"zebra": ["horse"]}))(victim, labelled(victim))
    with pytest.raises(UnshakenError, match="change no word"):
        PWWS(substitutions=WORD_LIST, constraints=(FrozenColumns(columns=(0,)),))(victim, labelled(victim))


def test_a_victim_that_always_fails_is_an_error_of_the_call() -> None:
    def broken(texts: list[str]) -> Any:
        raise ConnectionError("no route to host")

    examples = labelled(bag_victim())
    with pytest.raises(UnshakenError, match="answered no example: no route to host"):
        ATTACK(Victim.from_callable(broken, 2), examples)
    for answer, message in (
        (lambda texts: np.full((len(texts), 2), np.nan), "NaN"),
        (lambda texts: np.ones((len(texts), 3)) / 3, "expected"),
        (lambda texts: np.array([[3.0, -3.0]] * len(texts)), "softmax"),
    ):
        with pytest.raises(UnshakenError, match=message):
            ATTACK(Victim.from_callable(answer, 2), examples)


@pytest.mark.parametrize("kind", ["raises", "nan"])
def test_a_victim_that_fails_at_times_costs_only_those_examples(kind: str, tmp_path: Path) -> None:
    def shaky(texts: list[str]) -> Any:
        answers = np.array(bag_of_words(texts))
        for number, text in enumerate(texts):
            if "great" in text.lower():
                if kind == "raises":
                    raise RuntimeError("cannot read\nthis")
                answers[number] = np.nan
        return answers

    examples = labelled(bag_victim())
    out = tmp_path / "run.jsonl"
    results = ATTACK(Victim.from_callable(shaky, 2, name="bag"), examples, out=out)
    failed = {row.example_id for row in results if row.outcome == "error"}
    assert failed == {example.id for example in examples if "good" in example.texts[0].lower()}
    assert "\n" not in next(row.error for row in results if row.error)
    whole = plain(ATTACK(bag_victim(), examples))
    assert [row for row in plain(results) if row["example_id"] not in failed] == [
        row for row in whole if row["example_id"] not in failed
    ]
    # A resumed run tries the errors again.
    assert plain(ATTACK(bag_victim(), examples, out=out, resume=True)) == whole


def test_resume_continues_from_any_place(tmp_path: Path, model_victim: Any) -> None:
    examples = labelled(model_victim)
    attack = Genetic(substitutions=WORD_LIST, population=5, generations=3)
    whole = attack(model_victim, examples, out=tmp_path / "whole.jsonl")
    content = (tmp_path / "whole.jsonl").read_bytes()
    out = tmp_path / "part.jsonl"
    for cut in (0, 1, 40, len(content) // 3, len(content) // 2, len(content) - 1, len(content)):
        out.write_bytes(content[:cut])
        assert plain(attack(model_victim, examples, out=out, resume=True)) == plain(whole)
        assert {row.example_id for row in AttackResults.from_jsonl(out)} == {example.id for example in examples}


def test_resume_takes_more_examples(tmp_path: Path) -> None:
    victim = bag_victim()
    examples = labelled(victim)
    ATTACK(victim, examples[:3], out=tmp_path / "run.jsonl")
    assert plain(ATTACK(victim, examples, out=tmp_path / "run.jsonl", resume=True)) == plain(ATTACK(victim, examples))


def test_resume_refuses_another_run(tmp_path: Path) -> None:
    victim = bag_victim()
    examples = labelled(victim)
    out = tmp_path / "run.jsonl"
    Genetic(substitutions=WORD_LIST, population=4, generations=2)(victim, examples, out=out)
    with pytest.raises(UnshakenError, match="exists; resume it"):
        Genetic(substitutions=WORD_LIST, population=4, generations=2)(victim, examples, out=out)
    with pytest.raises(UnshakenError, match=r"settings\.population was 4 and is 5"):
        Genetic(substitutions=WORD_LIST, population=5, generations=2)(victim, examples, out=out, resume=True)
    other = Dictionary(entries={"good": ["nice"]})
    with pytest.raises(UnshakenError, match=r"settings\.substitutions\.fingerprint"):
        Genetic(substitutions=other, population=4, generations=2)(victim, examples, out=out, resume=True)
    other_victim = Victim.from_callable(bag_of_words, 2, name="another")
    with pytest.raises(UnshakenError, match=r"victim\.fingerprint"):
        Genetic(substitutions=WORD_LIST, population=4, generations=2)(other_victim, examples, out=out, resume=True)
    changed = [Example(id=row.id, texts=("good good",), label=row.label) for row in examples]
    with pytest.raises(UnshakenError, match="another text or label under the id"):
        Genetic(substitutions=WORD_LIST, population=4, generations=2)(victim, changed, out=out, resume=True)


KILLED = """
import sys, time
from victims import WORD_LIST, bag_of_words, bag_victim, labelled
from unshaken.attacks import PWWS, Victim
examples = labelled(bag_victim(), ["good film number %d was slow" % n for n in range(60)])
def slow(texts):
    time.sleep(0.02)
    return bag_of_words(texts)
PWWS(substitutions=WORD_LIST)(Victim.from_callable(slow, 2, name="bag"), examples, out=sys.argv[1], in_flight=2)
"""


@pytest.mark.full
def test_kill_9_and_resume_equals_an_uninterrupted_run(tmp_path: Path) -> None:
    out = tmp_path / "run.jsonl"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(out)], env=environment)
    deadline = time.monotonic() + 300  # a busy machine is slow to import
    while time.monotonic() < deadline and (not out.exists() or out.read_bytes().count(b"\n") < 5):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    found = out.read_bytes().count(b"\n")
    assert 5 <= found < 61
    victim = bag_victim()
    examples = labelled(victim, [f"good film number {n} was slow" for n in range(60)])
    assert plain(ATTACK(victim, examples, out=out, resume=True)) == plain(ATTACK(victim, examples))


def test_a_full_disk_is_a_clear_error_and_finished_work_is_kept(tmp_path: Path) -> None:
    """A limit on the size of files stands in for the disk."""
    victim = bag_victim()
    examples, out = labelled(victim), tmp_path / "run.jsonl"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_500, limits[1]))
    try:
        with pytest.raises(UnshakenError, match="File too large; finished examples are kept"):
            ATTACK(victim, examples, out=out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert out.stat().st_size == 2_500
    assert plain(ATTACK(victim, examples, out=out, resume=True)) == plain(ATTACK(victim, examples))


def test_unwritable_output_is_found_before_any_query(tmp_path: Path) -> None:
    asked = []

    def counting(texts: list[str]) -> Any:
        asked.append(len(texts))
        return bag_of_words(texts)

    (tmp_path / "file").write_text("")
    with pytest.raises(UnshakenError, match="cannot write"):
        ATTACK(Victim.from_callable(counting, 2), labelled(bag_victim()), out=tmp_path / "file" / "run.jsonl")
    assert asked == []


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    victim = bag_victim()
    out = tmp_path / "run.jsonl"
    ATTACK(victim, labelled(victim), out=out)
    lines = out.read_text().splitlines(keepends=True)
    lines[2] = lines[2][:20] + "\n"
    out.write_text("".join(lines))
    with pytest.raises(UnshakenError, match="line 3 is not JSON"):
        ATTACK(victim, labelled(victim), out=out, resume=True)
    out.write_text(json.dumps({"schema": 99}) + "\n")
    with pytest.raises(UnshakenError, match="schema"):
        AttackResults.from_jsonl(out)


def test_nothing_is_asked_twice(model_victim: Any) -> None:
    """Distinct texts of the space are an upper bound on what reaches the model, however many queries there are."""
    examples = labelled(model_victim, ["a good film with a bad plot"])
    results = Genetic(substitutions=WORD_LIST, population=20, generations=20)(model_victim, examples)
    space = 4 * 3 * 3 * 2
    assert results[0].rows <= space
    if results[0].outcome == "failure":
        assert results[0].queries > space


def test_a_time_budget_ends_a_search() -> None:
    def slow(texts: list[str]) -> Any:
        time.sleep(0.05)
        return bag_of_words(texts)

    examples = labelled(bag_victim(), ["a good , good film and a good end"])
    attack = Genetic(substitutions=Dictionary(entries={"good": ["great"]}), population=4, time_budget=0.1)
    (row,) = attack(Victim.from_callable(slow, 2), examples)
    assert row.outcome == "failure"
    assert row.queries < 4 + 40 * 3


def test_skipped_examples_are_not_attacked() -> None:
    victim = bag_victim()
    wrong = [Example(id=row.id, texts=row.texts, label=1 - int(row.label)) for row in labelled(victim)]
    results = ATTACK(victim, wrong)
    assert {row.outcome for row in results} == {"skipped"}
    assert {row.queries for row in results} == {1}
    assert results.clean_accuracy == results.accuracy_under_attack == 0


def test_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    victim = bag_victim()
    ATTACK(victim, labelled(victim, TEXTS[:3]), progress=True)
    assert "accuracy under attack" in capsys.readouterr().out


def test_substitutes_are_asked_for_once_and_together() -> None:
    """A set that runs a model (`MaskedLM`) gets all texts of a block in one call, the first block too."""
    calls: list[int] = []

    class Counting(Dictionary):
        def for_texts(self, texts: Any) -> Any:
            calls.append(len(texts))
            return super().for_texts(texts)

    victim = bag_victim()
    examples = labelled(victim, [f"a good film {number}" for number in range(70)])
    results = Random(substitutions=Counting(entries=WORD_LIST.entries), samples=3)(victim, examples)
    assert len(results) == 70
    assert calls == [64, 6]
