"""Making one results file of the parts that several processes wrote."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from unshaken.attacks.base import Attack
from unshaken.attacks.parts import Part, parts_of
from unshaken.attacks.results import AttackResults
from unshaken.attacks.storage import Merged
from unshaken.errors import UnshakenError
from unshaken.examples import Example
from unshaken.processes import Shard, attempt, launch_id

PATIENCE = 600.0  # seconds in which the slowest process must have loaded its model
GRACE = 10.0  # seconds a process that ended without its results has, to be started again
POLL = 0.2


def gather(
    attack: Attack, out: Path | str, examples: Sequence[Example], shard: Shard, *, patience: float = PATIENCE
) -> AttackResults:
    """Wait for the other processes of this launch and merge what all have found into `out`, in the examples' order.

    Args:
        attack: What was run with `shard` on `examples`; the files of attacks inside it are merged as well.
        out: What was given to it as `out`.
        examples: All of them.
        shard: That of this process, which must be the first.
        patience: Seconds to wait while no other process is alive.

    Raises:
        UnshakenError: Where a process ended before its share was done. What it had finished is kept.

    Example:
        >>> shard = Shard.from_environment()
        >>> found = attack(victim, examples, out="run.jsonl", shard=shard)
        >>> if shard.leads:
        ...     found = gather(attack, "run.jsonl", examples, shard)
    """
    out, ids = Path(out), [example.id for example in examples]
    _wait(out, ids, shard, patience)
    found = Merged(out)
    missing = [key for key in ids if key not in found.rows]
    if missing:
        raise UnshakenError(
            f"{len(missing)} of {len(ids)} examples have no result in {out}, such as {missing[0]!r}: a process ended "
            "before its share was done; start again with resume, with any number of processes"
        )
    for inner in attack.files(out):
        if inner != out and parts_of(inner):
            Merged(inner).write(ids)
    merged = found.write(ids)
    return replace(merged, rows=merged.rows[: len(ids)])


def _wait(out: Path, ids: Sequence[str], shard: Shard, patience: float) -> None:
    """Return when every example has its result, every process has ended, or nothing has moved for too long."""
    others = set(range(shard.count)) - {shard.rank}
    sizes: dict[Path, int] = {}
    moved = said = time.monotonic()
    is_complete = False
    while True:
        parts = parts_of(out)
        writing = {part.rank for part in parts if part.is_being_written()}
        unseen = others - {part.rank for part in parts if (part.launch, part.attempt) == (launch_id(), attempt())}
        now = time.monotonic()
        if writing or _sizes(parts) != sizes:
            sizes, moved = _sizes(parts), now
            is_complete = not writing and _is_complete(out, ids)
        if is_complete or now - moved > (patience if unseen else min(GRACE, patience)):
            return
        if now - said > 30:
            said = now
            print(f"note: {out.name}: waiting for {_named(unseen | writing)} of {shard.count}", file=sys.stderr)
        time.sleep(POLL)


def _sizes(parts: Sequence[Part]) -> dict[Path, int]:
    return {part.path: part.path.stat().st_size for part in parts}


def _is_complete(out: Path, ids: Sequence[str]) -> bool:
    """An error is no result to end with: the process that has it may be trying again."""
    rows = Merged(out).rows
    return all(key in rows and rows[key].outcome != "error" for key in ids)


def _named(ranks: set[int]) -> str:
    shown = ", ".join(map(str, sorted(ranks)[:8])) + (", ..." if len(ranks) > 8 else "")
    return f"process{'es' if len(ranks) > 1 else ''} {shown}"
