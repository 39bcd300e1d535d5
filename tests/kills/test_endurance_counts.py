"""The script of endurance counts its lines, goes on where it stopped, and keeps rows until they are tried as often."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path

import pytest


@pytest.fixture
def counts(monkeypatch):
    root = Path(__file__).resolve().parents[2]
    folders = [root / "scripts" / "endurance", root / "tests" / "hostile"]
    monkeypatch.setattr(sys, "path", [*map(str, folders), *sys.path])
    import counts

    return counts


@pytest.fixture
def plan(counts):
    from trials import Plan

    return Plan


def lines(path, *trials):
    keys = ("kind", "verdict", "times", "commit")
    rows = [dict(zip(keys, trial, strict=True)) | {"day": "2026-01-02"} for trial in trials]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def page(tmp_path, counts):
    """Two kinds are on it: a thousand kills that held, and seven of which two came to a wrong result."""
    path = tmp_path / "page.md"
    path.write_text(f"before\n{counts.BEGIN}\n{counts.END}\nafter\n")
    trials = ("kills: train", "held", 1_030, "aa"), ("kills: scan", "held", 5, "aa"), ("kills: scan", "wrong", 2, "aa")
    counts.record(path, counts.counted(lines(tmp_path / "1", *trials)))
    return path


def test_rows_that_are_tried_as_often_again_make_room(tmp_path, counts, page):
    out = lines(tmp_path / "2", ("kills: scan", "held", 3, "bb"), ("kills: scan", "held", 4, "bb"))
    for _ in range(2):  # writing the same again changes nothing
        counts.record(page, counts.counted(out))
        assert page.read_text().splitlines() == [
            "before",
            counts.BEGIN,
            counts.HEADING,
            "|---|---|---|--:|--:|--:|--:|--:|--:|--:|",
            "| kills: train | 2026-01-02 | `aa` | 1,030 | 1,030 | 0 | 0 | 0 | 0 | 0 |",
            "| kills: scan | 2026-01-02 | `bb` | 7 | 7 | 0 | 0 | 0 | 0 | 0 |",
            "| **all** |  |  | 1,037 | 1,037 | 0 | 0 | 0 | 0 | 0 |",
            counts.END,
            "after",
        ]


def test_fewer_trials_stand_beside_the_rows_they_go_on_from(tmp_path, counts, page):
    out = lines(tmp_path / "2", ("kills: scan", "held", 6, "bb"))
    for _ in range(2):
        counts.record(page, counts.counted(out))
        assert counts.written(page) == {
            ("kills: train", "2026-01-02", "aa"): Counter(held=1_030),
            ("kills: scan", "2026-01-02", "aa"): Counter(held=5, wrong=2),
            ("kills: scan", "2026-01-02", "bb"): Counter(held=6),
        }
        assert counts.done(counts.written(page)) == Counter({"kills: train": 1_030, "kills: scan": 13})
    assert counts.has_fault(counts.written(page))


def test_fewer_trials_of_the_same_day_and_commit_take_nothing_away(tmp_path, counts, page):
    out = lines(tmp_path / "2", ("kills: scan", "held", 3, "aa"), ("kills: scan", "hang", 1, "aa"))
    counts.record(page, counts.counted(out))
    row = next(line for line in page.read_text().splitlines() if "scan" in line)
    assert row == "| kills: scan | 2026-01-02 | `aa` | 8 | 5 | 0 | 0 | 1 | 2 | 0 |"


@pytest.mark.parametrize("fault", ["traceback", "hang", "wrong", "other"])
def test_one_fault_among_many_is_a_fault(tmp_path, counts, fault):
    good = ("kills: train", "held", 30, "aa"), ("kills: train", "refused", 30, "aa")
    assert not counts.has_fault(counts.counted(lines(tmp_path / "1", *good)))
    assert counts.has_fault(counts.counted(lines(tmp_path / "2", *good, ("kills: train", fault, 1, "aa"))))


def test_what_earlier_lines_have_is_not_done_again(tmp_path, counts, plan):
    out = lines(tmp_path / "1", ("kills: train", "held", 3, "aa"), ("kills: train", "wrong", 2, "bb"))
    again = plan(done=counts.done(counts.counted(out)))
    assert [again.missing("kills: train", goal) for goal in (30, 5, 4)] == [25, 0, 0]
    assert again.missing("kills: scan", 30) == 30
    assert again.draw("kills: train").random() != plan().draw("kills: train").random()
    assert counts.counted(tmp_path / "none") == {}


def test_a_run_after_a_smaller_one_tries_every_payload_once(plan):
    from strangers import PAYLOADS, payloads_left

    first = payloads_left(plan(scale=0.25), "names")
    rest = payloads_left(plan(done=Counter({"names": len(first)})), "names")
    assert 0 < len(first) < len(PAYLOADS)
    assert (*first, *rest) == PAYLOADS


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "json", "parquet"])
def test_rows_of_data_files_are_counted(counts, ending, tmp_path):
    from strangers import rows_in
    from targets import targets

    from unshaken.tasks import load_examples

    path = tmp_path / f"data.{ending}"
    for seed in targets()[ending].seeds:
        path.write_bytes(seed)
        assert rows_in(path) == len(load_examples(path)) > 2


def test_a_reader_that_takes_too_long_hangs_whatever_it_catches(counts, plan, monkeypatch):
    """Readers make their own error of any OSError, and a clock that raised one would count as bad input."""
    import fuzzed
    import targets

    from unshaken.errors import UnshakenError

    def slow(data):
        try:
            time.sleep(60)
        except Exception as error:
            raise UnshakenError("refused") from error

    monkeypatch.setattr(targets, "targets", lambda: {"slow": targets.Fuzzed(feed=slow, seeds=(b"x",))})
    monkeypatch.setattr(fuzzed, "LONGEST", 0.1)
    (trial,) = fuzzed.fuzz(plan(scale=1 / fuzzed.GOAL))
    assert (trial.kind, trial.verdict) == ("fuzz: slow", "hang")
