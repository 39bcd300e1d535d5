"""`attack`, `evaluate` and `report`, killed at random moments and started again, end as if nobody had disturbed."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Command, finish, kill_and_resume
from tiny_commands import attacked, differences, evaluated, make_arguments


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return make_arguments(tmp_path_factory.mktemp("model"))


def reported(out: Path) -> dict[str, Any]:
    """Reports hold no time of their writing: every byte must agree."""
    return {str(path.relative_to(out)): path.read_bytes().hex() for path in sorted(out.rglob("*")) if path.is_file()}


def all_whole(out: Path) -> None:
    """After a kill, what has its final name can be read; only a JSONL file may end in a torn line."""
    for path in out.rglob("[!.]*"):
        if path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".html":
            assert path.read_text().endswith("</html>\n")
        elif path.suffix == ".jsonl":
            for line in path.read_text().splitlines(keepends=True):
                assert not line.endswith("\n") or json.loads(line)
        elif path.suffix == ".svg":
            assert path.read_text().endswith("</svg>\n")


def survive(
    command: Callable[[Path], Command], read: Callable[[Path], dict[str, Any]], tmp_path: Path, kills: int, seed: int
) -> None:
    undisturbed, out, log = tmp_path / "undisturbed", tmp_path / "run", tmp_path / "log"
    duration = finish(command(undisturbed), log)
    expected = read(undisturbed)
    assert expected
    stream, done = random.Random(seed), 0
    while done < kills:
        when = [stream.uniform(0.02, 0.98) * duration for _ in range(min(kills, 3))]
        hit = kill_and_resume(command(out), when, log, lambda: all_whole(out))
        assert differences(read(out), expected) == []
        assert {path.name for path in out.rglob("*")} - {".lock"} == {path.name for path in undisturbed.rglob("*")} - {
            ".lock"
        }
        done += hit
        if not hit:
            duration /= 2  # the machine was busier when it was measured
        shutil.rmtree(out)
    print(f"{done} kills in runs of {duration:.1f} s")


def attack_command(model: list[str], out: Path) -> Command:
    return Command(words=["attack", *model, "--out", str(out)])


def evaluate_command(model: list[str], out: Path) -> Command:
    return Command(words=["evaluate", *model, "--out", str(out)])


@pytest.fixture(scope="module")
def evaluation(model: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluation")
    finish(evaluate_command(model, folder / "run"), folder / "log")
    return folder / "run"


def report_command(evaluation: Path, out: Path) -> Command:
    words = ["report", str(evaluation), "--out", str(out / "report.html"), "--figures", str(out / "figures")]
    return Command(words=words, resume=())


def counted(out: Path) -> dict[str, Any]:
    """What a run in blocks came to; no block has a file of its own beside the others'."""
    found: dict[str, Any] = json.loads((out / "totals.json").read_text())
    assert found["rows"] == 40
    return found


def block_command(model: list[str], out: Path) -> Command:
    return Command(words=["attack", *model, "--block", "12", "--out", str(out)])


KILLS = [pytest.param(2, id="short"), pytest.param(24, id="long", marks=pytest.mark.slow)]


@pytest.mark.parametrize("kills", KILLS)
def test_attack(model: list[str], tmp_path: Path, kills: int) -> None:
    survive(lambda out: attack_command(model, out), attacked, tmp_path, kills, seed=1)


@pytest.mark.parametrize("kills", KILLS)
def test_attack_in_blocks(model: list[str], tmp_path: Path, kills: int) -> None:
    survive(lambda out: block_command(model, out), counted, tmp_path, kills, seed=4)


@pytest.mark.parametrize("kills", KILLS)
def test_evaluate(model: list[str], tmp_path: Path, kills: int) -> None:
    survive(lambda out: evaluate_command(model, out), evaluated, tmp_path, kills, seed=2)


@pytest.mark.parametrize("kills", KILLS)
def test_report(evaluation: Path, tmp_path: Path, kills: int) -> None:
    survive(lambda out: report_command(evaluation, out), reported, tmp_path, kills, seed=3)
