"""Making one results file of the parts that several processes wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from unshaken.attacks.base import Attack
from unshaken.attacks.parts import PATIENCE, parts_of, wait_for_others
from unshaken.attacks.results import AttackResults
from unshaken.attacks.storage import Merged
from unshaken.errors import UnshakenError
from unshaken.examples import Example
from unshaken.processes import Shard


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
    wait_for_others(out, shard, lambda: _is_complete(out, ids), patience)
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


def _is_complete(out: Path, ids: Sequence[str]) -> bool:
    """An error is no result to end with: the process that has it may be trying again."""
    rows = Merged(out).rows
    return all(key in rows and rows[key].outcome != "error" for key in ids)
