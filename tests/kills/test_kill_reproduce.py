"""`reproduce`, killed at random moments and started again, ends as if nobody had disturbed."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from harness import Command, finish, kill_and_resume, moments
from small_world import make_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_world(tmp_path_factory.mktemp("world"))


def command(world: Path, out: Path) -> Command:
    fixed = f"reproduce {world / 'small.toml'} --encoder {world / 'encoder'} --data {world / 'data'} --out {out}"
    return Command(words=[*fixed.split(), "--method", "swap"], resume=())  # the same command goes on by itself


def numbers(out: Path) -> dict[str, Any]:
    """What was found, without what it took; every file must be whole."""
    found = {}
    for path in sorted((out / "runs").glob("*.json")):
        content = json.loads(path.read_text())
        held = {key: value["held"] for key, value in content["measured"].items()}
        found[path.name] = (content["run"], held, content["training"]["distance"], content["error"])
    return {**found, "table": json.loads((out / "small.json").read_text())["cells"]}


def trial(world: Path, tmp_path: Path, kills_wanted: int, seed: int) -> int:
    duration = finish(command(world, tmp_path / "whole"), tmp_path / "whole.log")
    expected = numbers(tmp_path / "whole")
    kills, round_number = 0, 0
    while kills < kills_wanted:
        out = tmp_path / f"killed-{round_number}"
        drawn = list(itertools.islice(moments(seed + round_number, duration), 4))
        kills += kill_and_resume(command(world, out), drawn, tmp_path / f"{round_number}.log")
        assert numbers(out) == expected
        assert not list((out / "work").glob("*"))
        assert not list(out.rglob("*.part"))
        round_number += 1
    return kills


def test_killed_twice(world: Path, tmp_path: Path) -> None:
    assert trial(world, tmp_path, 2, seed=0) >= 2


@pytest.mark.slow
def test_killed_twenty_times(world: Path, tmp_path: Path) -> None:
    kills = trial(world, tmp_path, 20, seed=100)
    print(f"reproduce: {kills} kills survived")
    assert kills >= 20
