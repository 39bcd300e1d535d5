"""What the commands bear: kills, full disks, damage, hostile models, hostile data, hostile names and fuzzed inputs.

    python scripts/endurance                        # all of it; hours on one core
    python scripts/endurance kills disks --scale 0.1
    python scripts/endurance kills --commands train,scan --minutes 10
    python scripts/endurance folders --record SECURITY.md

Every trial is a line of `--out`, with the commit that was measured, and the table at the end counts the lines. A trial
is *held* where the command ended as an undisturbed one does and *refused* where it ended with one line and exit code 2.
All else is a fault: a *traceback*, a *hang*, a *wrong* result with exit code 0, or any *other* end. The exit code is 1
where there is a fault. What `--out` has already is not done again, so that many short runs make a whole one. `--record`
puts the table into a page. Its rows stay until their kind is tried as often again, so that few trials wash no fault
away, and what they count is not done again either: a run goes on where `--out` was lost. Without parts the page is
written and nothing is tried.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from counts import counted, done, has_fault, measured_commit, record, table, together, written
from disturbed import damage, disks, kills
from fuzzed import fuzz
from strangers import files, folders, names
from trials import ROOT, Part, Plan

PARTS: dict[str, Part] = {
    "kills": kills,
    "disks": disks,
    "damage": damage,
    "folders": folders,
    "files": files,
    "names": names,
    "fuzz": fuzz,
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all where none")
    options.add_argument("--scale", type=float, default=1.0, help="share of the trials")
    options.add_argument("--commands", default="", help="of kills, disks and damage: train,attack; all where none")
    options.add_argument("--minutes", type=float, default=float("inf"), help="begin no trial after these")
    options.add_argument("--out", type=Path, default=Path("endurance.jsonl"))
    options.add_argument("--record", type=Path, metavar="PAGE", help="go on from the counts there, and write them")
    arguments = options.parse_args()
    if unknown := [part for part in arguments.parts if part not in PARTS]:
        options.error(f"unknown part {unknown[0]!r}")
    if arguments.parts or not arguments.record:
        before = written(arguments.record) if arguments.record else {}
        commands = tuple(filter(None, arguments.commands.split(",")))
        plan = Plan(scale=arguments.scale, commands=commands, done=done(together(before, counted(arguments.out))))
        carry_out(arguments.parts or list(PARTS), plan, arguments.out, time.monotonic() + 60 * arguments.minutes)
    counts = counted(arguments.out)
    if arguments.record:
        record(arguments.record, counts)
        counts = written(arguments.record)
    print(table(counts))
    sys.exit(has_fault(counts))


def carry_out(parts: list[str], plan: Plan, out: Path, end: float) -> None:
    """Do what is missing, a line a trial, until the end of the time."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    facts = {"day": time.strftime("%Y-%m-%d", time.gmtime()), "commit": measured_commit(ROOT)}
    with out.open("a") as stream:
        for part in parts:
            for trial in PARTS[part](plan):
                stream.write(json.dumps(vars(trial) | facts) + "\n")
                stream.flush()
                if time.monotonic() > end:
                    return


if __name__ == "__main__":
    main()
