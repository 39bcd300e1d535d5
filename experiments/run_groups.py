"""Runs the groups of `reproduce/groups.toml` on one device, in one pool: no worker waits while any group has work.

    python experiments/run_groups.py gte-sst2.jsonl minilm-imdb.jsonl --encoders MODELS --data DATA --out OUT \\
        --workers 16 --minutes 20

The same trainings as the commands that docs/results.md prints, which would run one group after the other. Groups are
named by their files, the most wanted first; each has a folder below OUT, for `results.py collect`. Complete runs that
are kept already are not run again. MODELS has a folder an encoder; one that is missing is waited for.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from results import groups, kept
from unshaken.errors import UnshakenError
from unshaken.files import locked
from unshaken.names import nearest
from unshaken_experiments import Workspace
from unshaken_experiments.schedule import Job, Task, merge, side_by_side, tidy


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("files", nargs="+")
    words.add_argument("--encoders", type=Path, required=True)
    words.add_argument("--data", type=Path, required=True)
    words.add_argument("--out", type=Path, required=True)
    words.add_argument("--workers", type=int, default=16)
    words.add_argument("--minutes", type=float, default=float("inf"))
    words.add_argument(
        "--only",
        nargs=2,
        action="append",
        default=[],
        metavar=("FILE", "METHOD"),
        help="of a file, this method; all if none is",
    )
    words.add_argument(
        "--again",
        action="append",
        default=[],
        metavar="FILE",
        help="of it, run what is kept already as well, with today's code",
    )
    words.add_argument("--seed", action="append", type=int, help="a seed of the recipe; all if not given")
    given = words.parse_args()
    known = [group.file for group in groups()]
    for file in given.files:
        if file not in known:
            raise UnshakenError(f"no group has the file {file!r}; {nearest(file, known)}")
    for file in [*given.again, *(file for file, _ in given.only)]:
        if file not in given.files:
            raise UnshakenError(f"{file!r} is not among the files to run; {nearest(file, given.files)}")
    if not given.data.is_dir():
        raise UnshakenError(f"no such folder: {given.data}")
    for file, name in given.only:
        methods = {name for group in groups() if group.file == file for name in group.method_names}
        if name not in methods:
            raise UnshakenError(f"{file} has no method {name!r}; {nearest(name, sorted(methods))}")
    seeds = {job.run.seed for group in groups() if group.file in given.files for job in group.jobs()}
    for seed in given.seed or []:
        if seed not in seeds:
            raise UnshakenError(f"these groups have no seed {seed}; they have {', '.join(map(str, sorted(seeds)))}")
    deadline = time.time() + 60 * given.minutes
    with locked(given.out):
        waiting = [task for file in given.files for task in tasks(file, given, deadline)]
        print(f"{len(waiting)} training runs", flush=True)
        for folder in sorted({encoder_of(task) for task in waiting if not is_ready(task)}):
            print(f"waiting for a model in {folder}", flush=True)
        do(waiting, given.workers)
        held = {job.run for job, workspace in waiting if workspace.keep_models}
        chosen = [task for file in given.files for task in tasks(file, given, deadline) if task[0].run in held]
        if chosen:
            print(f"{len(chosen)} of them are chosen", flush=True)
            do(chosen, given.workers)
        for file in given.files:
            tidy(*planned(file, given, deadline))


def do(waiting: list[Task], workers: int) -> None:
    for done, outcome in enumerate(side_by_side(waiting, workers, is_ready=is_ready), start=1):
        print(f"[{done}/{len(waiting)}] {outcome.run.name}: {outcome.summary}", flush=True)


def tasks(file: str, given: argparse.Namespace, deadline: float) -> Iterator[Task]:
    """What a file's groups lack: whole seeds first, and the longest first within a seed.

    Where a row chooses among candidates, all are trained, and their models kept, before the chosen ones are attacked.
    """
    jobs, workspace = planned(file, given, deadline)
    everything = {job.run: job.measures for group in groups() if group.file == file for job in group.jobs()}
    for job in jobs:
        known = None if file in given.again else kept(file).get(job.run.key)
        is_kept = known is not None and not known.lacks(job.measures)
        if not is_kept and workspace.outcome(job.run).lacks(job.measures):
            yield job, replace(workspace, keep_models=len(job.measures) < len(everything[job.run]))


def planned(file: str, given: argparse.Namespace, deadline: float) -> tuple[list[Job], Workspace]:
    """What is due of a file's groups by what is known now, finished or not, and where it is done."""
    own = [group for group in groups() if group.file == file]
    workspace = Workspace(
        encoders={group.encoder: str(given.encoders / group.encoder) for group in own},
        data=given.data,
        out=given.out / Path(file).stem,
        checkpoints=False,
        bf16=True,
        scoring_dtype=own[0].scoring_dtype,
        group_by_length=own[0].group_by_length,
        deadline=deadline,
    )
    methods = [name for of, name in given.only if of == file]
    wanted = [group.only(methods) for group in own] if methods else own
    known = {} if file in given.again else dict(kept(file))
    here = [workspace.outcome(job.run) for group in wanted for job in group.jobs()]
    known |= {outcome.run.key: outcome for outcome in here if outcome.training or outcome.error}
    jobs = merge(job for group in wanted for job in group.due(known))
    return [job for job in jobs if given.seed is None or job.run.seed in given.seed], workspace


def is_ready(task: Task) -> bool:
    return time.time() > task[1].deadline or (encoder_of(task) / "config.json").is_file()


def encoder_of(task: Task) -> Path:
    job, workspace = task
    return Path(workspace.encoders[job.run.encoder])


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        main()
    except UnshakenError as error:
        sys.exit(f"error: {error}")
