"""One results file of several processes: each writes a part, `run.part-1-of-4.jsonl`, and the first merges them.

Whatever is in any part is done, so another number of processes, or a single one, can go on from the same parts.
"""

from __future__ import annotations

import glob
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from unshaken.attacks.results import AttackResult, AttackResults, read_results, say_if_torn
from unshaken.display import note
from unshaken.errors import UnshakenError
from unshaken.examples import Example
from unshaken.files import flock
from unshaken.processes import Shard, was_restarted

PATIENCE = 600.0  # seconds without a result of a process or a living one: the slowest must have loaded its model
GRACE = 10.0  # seconds that a process has to try again what ended in an error
POLL = 0.2
_SUFFIX = re.compile(r"\.part-\d+-of-\d+")


def part_path(whole: Path, shard: Shard) -> Path:
    """Where a process writes its share: the file itself where it has all the examples."""
    if shard.is_whole:
        return whole
    return whole.with_name(f"{whole.stem}.part-{shard.rank}-of-{shard.count}{whole.suffix}")


def parts_of(whole: Path) -> list[Path]:
    """All parts of a results file, in the order of their names; no link that leads nowhere, no folder, no pipe."""
    paths = whole.parent.glob(f"{glob.escape(whole.stem)}.part-*{glob.escape(whole.suffix)}")
    return sorted(path for path in paths if _SUFFIX.fullmatch(path.stem[len(whole.stem) :]) and path.is_file())


def refuse_earlier(whole: Path, shard: Shard) -> None:
    """A run that is not resumed begins with nothing: each process looks for its own part, the first for all others."""
    if was_restarted():
        return
    of_this_launch = {part_path(whole, Shard(rank=rank, count=shard.count)) for rank in range(shard.count)}
    others = [whole, *(part for part in parts_of(whole) if part not in of_this_launch)]
    for path in (part_path(whole, shard), *(others if shard.leads else ())):
        if path.exists():
            raise UnshakenError(f"{path} exists; resume it, remove it or write to another file")


def remove_parts(whole: Path) -> None:
    for part in parts_of(whole):
        part.unlink(missing_ok=True)


class Merged:
    """What a results file and its parts hold: of each example the first result, and an error only where no more is.

    Attributes:
        rows: Results by example id.
        header: Of the first file that has one.
        good_bytes: Of each file, how far it can be read: a torn last line is left out, which `says` says on stderr.
    """

    def __init__(self, path: Path, header: dict[str, Any] | None = None, *, says: bool = False) -> None:
        self.path = path
        self.header = header
        self._parts: list[Path] = []
        is_read = False
        while not is_read:
            is_read = self._read(says)

    def _read(self, says: bool) -> bool:
        """False where a part has vanished: the first process has just made one file of them, which is to be read."""
        self.rows: dict[str, AttackResult] = {}
        self.good_bytes: dict[Path, int] = {}
        self._parts = parts_of(self.path)
        for file in [*([self.path] if self.path.exists() else []), *self._parts]:
            try:
                self._add(file, says)
            except UnshakenError as error:
                if isinstance(error.__cause__, FileNotFoundError):
                    return False
                raise
        return True

    def _add(self, file: Path, says: bool) -> None:
        found, rows, good = read_results(file)
        self.good_bytes[file] = good
        if says and not (file in self._parts and _is_being_written(file)):
            say_if_torn(file, len(rows), good)
        if not found:
            return
        self.header = self.header or found
        _require_same(file, found, self.header)
        for row in rows:
            if not self.has(row.example_id):
                self.rows[row.example_id] = row

    def has(self, example_id: str) -> bool:
        """Whether an example is done. An error is no result to end with: it is tried again."""
        known = self.rows.get(example_id)
        return known is not None and known.outcome != "error"

    def write(self, ids: Sequence[str]) -> AttackResults:
        """Make one file of all, in the order of `ids`, and remove the parts; examples outside `ids` come last."""
        ordered = {key: self.rows[key] for key in ids if key in self.rows}
        header = self.header or {}
        everything = AttackResults(
            rows=tuple({**ordered, **self.rows}.values()),
            attack=header["attack"],
            settings=header["settings"],
            victim=header["victim"],
        )
        everything.to_jsonl(self.path)
        for part in self._parts:
            part.unlink(missing_ok=True)
        return everything


class Files(Protocol):
    """What `gather` needs of an attack."""

    def files(self, out: Path) -> list[Path]: ...


def gather(
    attack: Files, out: Path | str, examples: Sequence[Example], shard: Shard, *, patience: float = PATIENCE
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
    wait_for_others(out, shard, lambda: min(patience, _patience(Merged(out), ids)))
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


def _patience(found: Merged, ids: Sequence[str]) -> float:
    if all(map(found.has, ids)):
        return 0.0
    return GRACE if found.rows.keys() >= set(ids) else PATIENCE


def wait_for_others(whole: Path, shard: Shard, patience: Callable[[], float]) -> None:
    """Return when no process has been alive and no part has grown for as long as `patience` says of what is there."""
    moved = said = time.monotonic()
    last: object = None
    limit = PATIENCE
    while True:
        parts = parts_of(whole)
        is_busy = any(map(_is_being_written, parts))
        state = {part: _size(part) for part in parts}
        now = time.monotonic()
        if is_busy or state != last:
            moved = now
        if not is_busy:
            limit = patience() if state != last else limit
            if now - moved >= limit:
                return
            last = state
        if now - said > 30:
            said = now
            note(f"{whole.name}: waiting for the other {shard.count - 1} of {shard.count} processes")
        time.sleep(POLL)


def _is_being_written(part: Path) -> bool:
    """Its process holds a lock on it, which the system takes away when that ends, however it ends."""
    try:
        handle = os.open(part, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return not flock(handle, shared=True)
    finally:
        os.close(handle)


def _size(part: Path) -> int:
    try:
        return part.stat().st_size
    except FileNotFoundError:  # just merged
        return 0


def _require_same(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """A resumed run must be the same run; the first difference is named."""
    then, now = _flat(found), _flat(wanted)
    # A name may change with the folder; what the model answers may not.
    for key in sorted((then.keys() | now.keys()) - {"victim.name"}):
        if then.get(key) != now.get(key):
            raise UnshakenError(
                f"cannot resume {path}: {key} was {then.get(key)!r} and is {now.get(key)!r}; use the same settings or "
                "another file"
            )


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        parts = [_flat(item, f"{prefix}.{key}" if prefix else key) for key, item in value.items()]
        return {key: item for part in parts for key, item in part.items()}
    return {prefix: value}
