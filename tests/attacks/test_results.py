"""Numbers of a run and its exports."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import pytest
from victims import WORD_LIST, bag_victim, labelled

from unshaken.attacks import PWWS, AttackResult, AttackResults
from unshaken.errors import UnshakenError
from unshaken.proportion import Proportion


def result(number: int, outcome: Any, **values: Any) -> AttackResult:
    return AttackResult(example_id=str(number), label=0, outcome=outcome, original=("a b c d",), words=4, **values)


RESULTS = AttackResults(
    rows=(
        result(0, "success", queries=10, swaps=((0, 0, "a", "x"),), adversarial=("x b c d",)),
        result(1, "success", queries=20, swaps=((0, 0, "a", "x"), (0, 1, "b", "y")), adversarial=("x y c d",)),
        result(2, "failure", queries=60),
        result(3, "failure", queries=40),
        result(4, "failure", queries=20),
        result(5, "skipped", queries=1),
        result(6, "error", queries=3, error="broken"),
    ),
    attack="test",
    settings={"name": "test"},
    victim={"name": "v", "fingerprint": "f"},
)


def test_numbers() -> None:
    assert RESULTS.errors == 1
    assert RESULTS.clean_accuracy == 5 / 6
    assert RESULTS.accuracy_under_attack == 3 / 6
    assert (RESULTS.success_rate, RESULTS.attacked) == (2 / 5, 5)
    # The two ways of counting belong together.
    assert RESULTS.accuracy_under_attack == pytest.approx(RESULTS.clean_accuracy * (1 - RESULTS.success_rate))
    assert RESULTS.queries == {"mean": 30.0, "median": 20, "max": 60}
    assert RESULTS.words_changed == (1 / 4 + 2 / 4) / 2
    assert RESULTS.summary()["success_rate_denominator"] == 5


def test_intervals_are_wilsons() -> None:
    from scipy.stats import binomtest

    for hits, total in ((0, 5), (3, 6), (77, 100), (1000, 1000)):
        expected = binomtest(hits, total).proportion_ci(method="wilson")
        assert Proportion(hits=hits, total=total).interval == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert RESULTS.intervals["accuracy_under_attack"] == Proportion(hits=3, total=6).interval
    assert all(map(math.isnan, Proportion(hits=0, total=0).interval))


def test_nothing_to_count_is_no_number() -> None:
    empty = AttackResults(rows=(result(0, "error"),), attack="test")
    assert math.isnan(empty.clean_accuracy)
    assert math.isnan(empty.words_changed)
    assert empty.summary()["accuracy_under_attack"] is None


def test_jsonl_reads_back_what_was_written(tmp_path: Path) -> None:
    assert AttackResults.from_jsonl(RESULTS.to_jsonl(tmp_path / "r.jsonl")) == RESULTS
    victim = bag_victim()
    results = PWWS(substitutions=WORD_LIST)(victim, labelled(victim), out=tmp_path / "run.jsonl")
    stored = AttackResults.from_jsonl(tmp_path / "run.jsonl")
    assert sorted(stored, key=lambda row: row.example_id) == sorted(results, key=lambda row: row.example_id)
    assert stored.settings == results.settings
    with pytest.raises(UnshakenError, match="cannot read"):
        AttackResults.from_jsonl(tmp_path / "none.jsonl")


def test_csv_runs_no_formula(tmp_path: Path) -> None:
    bad = ("=HYPERLINK(1)", "+1", "-1", "@x", "\tx", "plain")
    rows = tuple(
        AttackResult(example_id=f"={n}", label=0, outcome="success", original=(text,), adversarial=(text, "b"))
        for n, text in enumerate(bad)
    )
    path = AttackResults(rows=rows, attack="test").to_csv(tmp_path / "r.csv")
    with path.open(newline="") as stream:
        table = list(csv.DictReader(stream))
    assert [row["original"] for row in table] == [f"'{text}" for text in bad[:-1]] + ["plain"]
    assert {row["example_id"][:2] for row in table} == {"'="}
