"""The script of endurance counts its lines, goes on where it stopped, and leaves rows that were not tried again."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest


@pytest.fixture
def counts(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(Path(__file__).resolve().parents[2] / "scripts" / "endurance"), *sys.path])
    import counts

    return counts


@pytest.fixture
def plan(counts):
    from trials import Plan

    return Plan


def lines(path, *trials):
    keys = ("kind", "verdict", "times", "commit")
    path.write_text("".join(json.dumps(dict(zip(keys, trial, strict=True))) + "\n" for trial in trials))
    return path


def test_rows_of_kinds_that_were_not_tried_again_stay(tmp_path, counts):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{counts.BEGIN}\n{counts.END}\nafter\n")
    out = lines(tmp_path / "1", ("kills: train", "held", 1_030, "aa"), ("kills: scan", "wrong", 2, "aa"))
    counts.record(page, counts.counted(out))
    out = lines(tmp_path / "2", ("kills: scan", "held", 3, "bb"), ("kills: scan", "held", 4, "bb"))
    counts.record(page, counts.counted(out))
    assert page.read_text().splitlines() == [
        "before",
        counts.BEGIN,
        counts.HEADING,
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
        "| kills: train | `aa` | 1,030 | 1,030 | 0 | 0 | 0 | 0 | 0 |",
        "| kills: scan | `bb` | 7 | 7 | 0 | 0 | 0 | 0 | 0 |",
        "| **all** |  | 1,037 | 1,037 | 0 | 0 | 0 | 0 | 0 |",
        counts.END,
        "after",
    ]


@pytest.mark.parametrize("fault", ["traceback", "hang", "wrong", "other"])
def test_one_fault_among_many_is_a_fault(tmp_path, counts, fault):
    good = ("kills: train", "held", 30, "aa"), ("kills: train", "refused", 30, "aa")
    assert not counts.has_fault(counts.counted(lines(tmp_path / "1", *good)))
    assert counts.has_fault(counts.counted(lines(tmp_path / "2", *good, ("kills: train", fault, 1, "aa"))))


def test_what_earlier_lines_have_is_not_done_again(tmp_path, counts, plan):
    out = lines(tmp_path / "1", ("kills: train", "held", 3, "aa"), ("kills: train", "wrong", 2, "bb"))
    again = plan(done=counts.done(out))
    assert [again.missing("kills: train", goal) for goal in (30, 5, 4)] == [25, 0, 0]
    assert again.missing("kills: scan", 30) == 30
    assert again.draw("kills: train").random() != plan().draw("kills: train").random()
    assert counts.done(tmp_path / "none") == Counter()


def test_a_run_after_a_smaller_one_tries_every_payload_once(plan):
    from strangers import PAYLOADS, payloads_left

    first = payloads_left(plan(scale=0.25), "names")
    rest = payloads_left(plan(done=Counter({"names": len(first)})), "names")
    assert 0 < len(first) < len(PAYLOADS)
    assert (*first, *rest) == PAYLOADS
