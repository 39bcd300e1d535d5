"""Two processes share the trainings of a recipe: what they leave is what one leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from small_world import make_world

from unshaken.processes import Shard
from unshaken_experiments import load_recipe, plan
from unshaken_experiments.launch import alone


def numbers(out: Path) -> dict[str, Any]:
    found = {}
    for path in (out / "runs").glob("*.json"):
        content = json.loads(path.read_text())
        found[path.name] = {key: value["held"] for key, value in content["measured"].items()}
    return found


@pytest.mark.dist
def test_two_processes_leave_what_one_leaves(tmp_path: Path) -> None:
    world = make_world(tmp_path)
    words = (
        f"-m unshaken reproduce {world / 'small.toml'} --encoder {world / 'encoder'} --data {world / 'data'}".split()
    )
    words += ["--method", "swap", "--no-checkpoints", "--set", "epochs=1", "--out"]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    commands = {"one": [sys.executable, *words], "two": [*launcher, *words]}
    for name, command in commands.items():
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(
            [*command, str(tmp_path / name)], capture_output=True, text=True, check=False, env=environment
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        assert done.stdout.count("A small table") == 1  # the first process speaks for all
    assert numbers(tmp_path / "two") == numbers(tmp_path / "one")
    assert len(numbers(tmp_path / "two")) == 4


def test_every_training_has_one_owner(tmp_path: Path) -> None:
    jobs = plan([load_recipe("im-bert-table-3")], "e")
    for count in (1, 2, 5):
        shares = [[job for job in jobs if Shard(rank=rank, count=count).owns(job.run.key)] for rank in range(count)]
        assert sorted(job.run.key for share in shares for job in share) == sorted(job.run.key for job in jobs)


def test_a_training_does_not_see_the_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "4,7"}.items():
        monkeypatch.setenv(key, value)
    with alone():
        assert "WORLD_SIZE" not in os.environ
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "7"
    assert (os.environ["RANK"], os.environ["CUDA_VISIBLE_DEVICES"]) == ("3", "4,7")
