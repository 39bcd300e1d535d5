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
from pathlib import Path

from results import groups, kept

from unshaken.recipes import Job, Measure, Outcome, Place, Run
from unshaken.recipes.schedule import Task, expected_cost, side_by_side


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("files", nargs="+")
    words.add_argument("--encoders", type=Path, required=True)
    words.add_argument("--data", type=Path, required=True)
    words.add_argument("--out", type=Path, required=True)
    words.add_argument("--workers", type=int, default=16)
    words.add_argument("--minutes", type=float, default=float("inf"))
    given = words.parse_args()
    unknown = set(given.files) - {group.file for group in groups()}
    if unknown:
        sys.exit(f"no group has the file {', '.join(sorted(unknown))}")
    deadline = time.time() + 60 * given.minutes
    waiting = [task for file in given.files for task in tasks(file, given, deadline)]
    print(f"{len(waiting)} trainings", flush=True)
    for done, outcome in enumerate(side_by_side(waiting, given.workers, is_ready=is_ready), start=1):
        say(done, len(waiting), outcome)


def tasks(file: str, given: argparse.Namespace, deadline: float) -> Iterator[Task]:
    """What a file's groups lack: whole seeds first, and the longest first within a seed."""
    wanted: dict[Run, dict[Measure, None]] = {}
    own = [group for group in groups() if group.file == file]
    for job in (job for group in own for job in group.jobs()):
        wanted.setdefault(job.run, {}).update(dict.fromkeys(job.measures))
    place = Place(
        encoders={group.encoder: str(given.encoders / group.encoder) for group in own},
        data=given.data,
        out=given.out / Path(file).stem,
        checkpoints=False,
        bf16=True,
        group_by_length=own[0].group_by_length,
        deadline=deadline,
    )
    for run in sorted(wanted, key=lambda run: (run.seed, -expected_cost(run))):
        job = Job(run=run, measures=tuple(wanted[run]))
        known = kept(file).get(run.key)
        if known is not None and not known.lacks(job.measures):
            continue
        if place.outcome(run).lacks(job.measures):
            yield job, place


def is_ready(task: Task) -> bool:
    job, place = task
    return time.time() > place.deadline or (Path(place.encoders[job.run.encoder]) / "config.json").is_file()


def say(done: int, total: int, outcome: Outcome) -> None:
    shares = [f"{key} {found.held.count('1') / len(found.held):.1%}" for key, found in outcome.measured.items()]
    told = outcome.error or f"{outcome.training.get('seconds')} s; {', '.join(shares)}"
    print(f"[{done}/{total}] {outcome.run.name}: {told}", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
