"""`attack` and `evaluate` as several processes of one launch: equal to one process, also where one is killed."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness import Command, finish, start
from tiny_commands import attacked, differences, evaluated, make_arguments

pytestmark = pytest.mark.dist
LAUNCHES = itertools.count(20_000)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return make_arguments(tmp_path_factory.mktemp("model"))


def ranks(count: int, *words: str) -> list[Command]:
    """The environment that torchrun gives its processes."""
    port = str(next(LAUNCHES))
    return [
        Command(
            words=words,
            environment={
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(count),
                "LOCAL_WORLD_SIZE": str(count),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
            },
        )
        for rank in range(count)
    ]


def run_all(commands: list[Command], log: Path) -> None:
    started = [start(command, log) for command in commands]
    for process in started:
        process.join()
    assert [process.exitcode for process in started] == [0] * len(commands), log.read_text()[-3000:]


def without_the_lock(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")} - {".lock"}


@pytest.mark.parametrize(("name", "read"), [("attack", attacked), ("evaluate", evaluated)])
def test_two_processes_are_one(model: list[str], tmp_path: Path, name: str, read: Any) -> None:
    finish(Command(words=[name, *model, "--out", str(tmp_path / "one")]), tmp_path / "log")
    run_all(ranks(2, name, *model, "--out", str(tmp_path / "two")), tmp_path / "log")
    assert differences(read(tmp_path / "two"), read(tmp_path / "one")) == []
    assert without_the_lock(tmp_path / "two") == without_the_lock(tmp_path / "one")
    assert (tmp_path / "log").read_text().count("Results: ") == (2 if name == "attack" else 0)  # rank 0 alone prints


def kill_one(commands: list[Command], log: Path, victim: int, moment: float) -> bool:
    """Kill one rank at a moment, then, as a launcher does, the others. Whether the run was hit before its end."""
    started = [start(command, log) for command in commands]
    started[victim].join(moment)
    hit = started[victim].exitcode is None
    for process in (started[victim], *started):
        process.kill()
        process.join()
    return hit


@pytest.mark.parametrize(
    ("name", "read", "kills"),
    [
        pytest.param("attack", attacked, 2, id="attack-short"),
        pytest.param("attack", attacked, 20, id="attack-long", marks=pytest.mark.slow),
        pytest.param("evaluate", evaluated, 20, id="evaluate-long", marks=pytest.mark.slow),
    ],
)
def test_a_killed_rank_loses_only_what_it_had_not_finished(
    model: list[str], tmp_path: Path, name: str, read: Any, kills: int
) -> None:
    """After each kill another number of processes goes on; what was there before is there after."""
    log, stream, done, number = tmp_path / "log", random.Random(5), 0, 0
    duration = finish(Command(words=[name, *model, "--out", str(tmp_path / "one")]), log)
    expected = read(tmp_path / "one")
    while done < kills:
        number += 1
        out, count = tmp_path / str(number), 2
        words = [name, *model, "--out", str(out), "--resume"]
        for _ in range(2):
            hit = kill_one(ranks(count, *words), log, stream.randrange(count), stream.uniform(0.3, 1.2) * duration)
            done, count = done + hit, count + 1
            duration *= 1.0 if hit else 0.7  # the machine was busier when it was measured
        before = finished(out)
        if stream.random() < 0.5:
            finish(Command(words=words), log)
        else:
            run_all(ranks(count, *words), log)
        assert differences(read(out), expected) == []
        assert without_the_lock(out) == without_the_lock(tmp_path / "one")
        assert before <= finished(out)
    print(f"{done} kills")


def finished(out: Path) -> set[tuple[str, str]]:
    """Attack and id of every whole line in a results file or a part of one."""
    found = set()
    for path in set(out.rglob("*.jsonl")) - set(out.rglob("answers.*")):
        for line in path.read_text().splitlines(keepends=True)[1:]:
            if line.endswith("\n"):
                found.add((re.sub(r"\.part-.*|\.jsonl", "", path.name), json.loads(line)["example_id"]))
    return found


LAUNCHERS = {
    "torchrun": ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
    # accelerate starts processes without MPI for GPUs only; attacks ask for the CPU themselves
    "accelerate": ["accelerate.commands.launch", *["--multi_gpu", "--num_processes", "2", "--num_machines", "1"]],
}


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize(("name", "read"), [("attack", attacked), ("evaluate", evaluated)])
def test_real_launchers(model: list[str], tmp_path: Path, launcher: str, name: str, read: Any) -> None:
    finish(Command(words=[name, *model, "--out", str(tmp_path / "one")]), tmp_path / "log")
    words = [*LAUNCHERS[launcher], "-m", "unshaken", name, *model, "--out", str(tmp_path / "two")]
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert differences(read(tmp_path / "two"), read(tmp_path / "one")) == []
    assert without_the_lock(tmp_path / "two") == without_the_lock(tmp_path / "one")


@pytest.mark.slow
def test_the_slurm_job(model: list[str], tmp_path: Path) -> None:
    """The job as it is, on a cluster of one machine: `srun` runs the command here, `scontrol` names this host."""
    finish(Command(words=["attack", *model, "--out", str(tmp_path / "one")]), tmp_path / "log")
    for name, script in {"srun": 'exec "$@"', "scontrol": "echo 127.0.0.1"}.items():
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{script}\n")
        (tmp_path / name).chmod(0o755)
    numbers = {"JOB_ID": "7", "JOB_NODELIST": "a", "NNODES": "1", "GPUS_ON_NODE": "2", "CPUS_PER_TASK": "2"}
    path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    job = Path(__file__).parents[2] / "configs" / "slurm" / "attack.sbatch"
    done = subprocess.run(
        ["bash", str(job), *model, "--out", str(tmp_path / "two")],
        env={**os.environ, **{f"SLURM_{key}": value for key, value in numbers.items()}, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert differences(attacked(tmp_path / "two"), attacked(tmp_path / "one")) == []
