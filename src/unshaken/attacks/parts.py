"""The parts that several processes write beside a results file, and whether who writes them is still alive."""

from __future__ import annotations

import glob
import os
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from unshaken.display import note
from unshaken.files import flock
from unshaken.processes import Shard, attempt, launch_id, process_start

PATIENCE = 600.0  # seconds in which the slowest process must have loaded its model
GRACE = 10.0  # seconds that a process which ended without its results has, to be started again
POLL = 0.2
SKEW = 60.0  # seconds by which the processes of one launch may start one after another


@dataclass(frozen=True, kw_only=True)
class Part:
    """run.part-<launch>-<attempt>-<rank>-<random>.jsonl: no two processes ever write to one."""

    path: Path
    launch: str
    attempt: int
    rank: int

    def is_being_written(self) -> bool:
        """Its process holds a lock on it, which the system takes away when that ends, however it ends."""
        try:
            handle = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            return not flock(handle, shared=True)
        finally:
            os.close(handle)

    def size(self) -> int:
        try:
            return self.path.stat().st_size
        except FileNotFoundError:  # just merged
            return 0

    def is_of_this_launch(self) -> bool:
        """By its name, and not left by an earlier launch that the environment does not tell from this one."""
        if self.launch != launch_id():
            return False
        try:
            return self.path.stat().st_mtime > process_start() - SKEW or self.is_being_written()
        except FileNotFoundError:
            return False

    def is_of_this_start(self) -> bool:
        return self.attempt == attempt() and self.is_of_this_launch()


_NAME = re.compile(r"\.part-([0-9a-f]+)-(\d+)-(\d+)-[0-9a-f]+$")


def new_part(whole: Path, shard: Shard) -> Path:
    name = f"{whole.stem}.part-{launch_id()}-{attempt()}-{shard.rank}-{secrets.token_hex(4)}{whole.suffix}"
    return whole.with_name(name)


def parts_of(whole: Path) -> list[Part]:
    """All parts of a results file, in the order of their names."""
    found = []
    for path in sorted(whole.parent.glob(f"{glob.escape(whole.stem)}.part-*{glob.escape(whole.suffix)}")):
        match = _NAME.fullmatch(path.stem[len(whole.stem) :])
        if match and path.is_file():  # no link that leads nowhere, no folder, no pipe
            found.append(Part(path=path, launch=match[1], attempt=int(match[2]), rank=int(match[3])))
    return found


def wait_for_others(whole: Path, shard: Shard, is_complete: Callable[[], bool], patience: float = PATIENCE) -> None:
    """Return when the parts are complete, when every process has ended, or when nothing has moved for too long."""
    others = set(range(shard.count)) - {shard.rank}
    moved = said = time.monotonic()
    last: object = None
    while True:
        parts = parts_of(whole)
        writing = {part.rank for part in parts if part.is_being_written()}
        unseen = others - {part.rank for part in parts if part.is_of_this_start()}
        state = (writing, {part.path: part.size() for part in parts})
        now = time.monotonic()
        if writing or state != last:
            moved = now
        if not writing and state != last and is_complete():
            return
        if now - moved > (patience if unseen else min(GRACE, patience)):
            return
        last = state
        if now - said > 30:
            said = now
            note(f"{whole.name}: waiting for {_named(unseen | writing)} of {shard.count}")
        time.sleep(POLL)


def _named(ranks: set[int]) -> str:
    shown = ", ".join(map(str, sorted(ranks)[:8])) + (", ..." if len(ranks) > 8 else "")
    return f"process{'es' if len(ranks) > 1 else ''} {shown}"
