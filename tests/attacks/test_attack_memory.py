"""Memory over long runs: the engine itself keeps nothing of an example that is finished; a run keeps its results."""

from __future__ import annotations

import gc
from pathlib import Path

import psutil
import pytest
from victims import WORD_LIST, bag_victim

from unshaken.attacks import PWWS, AttackResult
from unshaken.attacks.engine import _Engine
from unshaken.examples import Example
from unshaken.files import parse_checked
from unshaken.substitutions.words import segment

MB = 1 << 20


def resident() -> float:
    gc.collect()
    return float(psutil.Process().memory_info().rss / MB)


def make_examples(count: int) -> list[Example]:
    """No two texts are equal, so that a memory of texts would show."""
    return [
        Example(id=f"e{n}", texts=(f"a good film, number {n} of x{n * 7}, was slow",), label=1) for n in range(count)
    ]


@pytest.mark.parametrize(
    "count", [pytest.param(5_000, marks=pytest.mark.full), pytest.param(100_000, marks=pytest.mark.slow)]
)
def test_the_engine_keeps_nothing_of_finished_examples(count: int) -> None:
    examples, curve = make_examples(count), []
    for example in make_examples(segment.cache_info().maxsize or 0):  # which remembers texts, but only so many
        assert segment(example.texts[0] + ".").surfaces
    engine = _Engine(PWWS(substitutions=WORD_LIST), bag_victim(), (), 256, first=examples[:64], has_answered=False)
    for number, result in enumerate(engine.results(examples), start=1):
        assert result.outcome in ("success", "failure")
        if number % (count // 5) == 0:
            curve.append(resident())
    print("MB after each fifth:", [round(value, 1) for value in curve])
    assert curve[-1] - curve[0] < 2 + count * 20e-6  # noise; a kept result would be a kilobyte


@pytest.mark.slow
def test_a_run_grows_by_its_results_alone(tmp_path: Path) -> None:
    examples, victim = make_examples(100_000), bag_victim()
    PWWS(substitutions=WORD_LIST)(victim, examples[:2_000], out=tmp_path / "warm-up.jsonl")
    before = resident()
    results = PWWS(substitutions=WORD_LIST)(victim, examples, out=tmp_path / "run.jsonl")
    grown = resident() - before
    with (tmp_path / "run.jsonl").open() as lines:
        next(lines)
        copies = [AttackResult.from_dict(parse_checked(line, "a line")) for line in lines]
    size = resident() - before - grown
    print(f"{len(results)} results: grown by {grown:.0f} MB; the results alone are {size:.0f} MB")
    assert len(copies) == len(results)
    assert grown < 1.5 * size + 20
