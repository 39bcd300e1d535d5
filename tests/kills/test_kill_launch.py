"""`torchrun -m unshaken train`: the first process speaks and writes for all, and a rank that dies costs nothing."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from test_kill_training import outcome, words

__all__ = ["words"]  # the fixture

pytestmark = pytest.mark.dist


def launch(words: list[str], out: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "unshaken"]
    return subprocess.Popen(
        [*command, *words, "--out", str(out), *more],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(words: list[str], out: Path, *more: str) -> str:
    process = launch(words, out, *more)
    text, errors = process.communicate(timeout=900)
    assert process.returncode == 0, errors[-3000:]
    return text


def test_the_first_process_speaks_for_all(words: list[str], tmp_path: Path) -> None:
    text = finish([*words, "--epochs", "1"], tmp_path / "run")
    assert text.count("note: validation is") == 1
    assert text.count("Report: ") == 1
    (checkpoint,) = (tmp_path / "run" / "checkpoints").glob("checkpoint-*")
    assert {path.name for path in checkpoint.glob("process-*")} == {"process-0.safetensors", "process-1.safetensors"}
    model = {path.name for path in (tmp_path / "run" / "model").iterdir()}
    assert {"README.md", "unshaken_training.json", "model.safetensors"} <= model
    assert (tmp_path / "run" / "report.json").is_file()


@pytest.mark.slow
def test_a_rank_that_is_killed_costs_nothing(words: list[str], tmp_path: Path) -> None:
    before = time.monotonic()
    finish(words, tmp_path / "whole")
    duration = time.monotonic() - before
    expected, moments, kills = outcome(tmp_path / "whole"), random.Random(4), 0
    while kills < 6:
        out = tmp_path / f"run-{kills}"
        for _ in range(2):
            process = launch(words, out, "--resume")
            time.sleep(moments.uniform(0.3, 0.95) * duration)
            ranks = psutil.Process(process.pid).children() if process.poll() is None else []
            if ranks:
                moments.choice(ranks).kill()
                kills += 1
            process.communicate()  # the launcher ends the other rank
        finish(words, out, "--resume")
        assert outcome(out) == expected
