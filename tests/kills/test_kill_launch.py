"""`torchrun -m unshaken train`: the first process speaks and writes for all, and a rank that dies costs nothing."""

from __future__ import annotations

import os
import random
import socket
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


def test_a_rank_without_the_other_ends_with_one_line(words: list[str], tmp_path: Path) -> None:
    """Started without a launcher, which would end it first."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    fixed = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    fixed |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    command = [sys.executable, "-m", "unshaken", *words, "--epochs", "500", "--out", str(tmp_path / "run")]
    ranks = []
    for rank in ("0", "1"):
        with (tmp_path / f"log-{rank}").open("w") as log:
            environment = {**fixed, "RANK": rank, "LOCAL_RANK": rank}
            ranks.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
    checkpoints = tmp_path / "run" / "checkpoints"
    while not list(checkpoints.glob("checkpoint-*/seal.json")):  # both are at work
        assert ranks[0].poll() is None, (tmp_path / "log-0").read_text()[-3000:]
        time.sleep(0.2)
    ranks[1].kill()
    code = ranks[0].wait(timeout=300)
    ranks[1].wait()
    said = (tmp_path / "log-0").read_text()
    assert code == 2, said[-3000:]
    assert "Traceback" not in said
    assert said.count("error: another process of this launch has ended") == 1


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
