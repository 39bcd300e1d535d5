"""The parts that several processes write beside a results file, and whether who writes them is still alive."""

from __future__ import annotations

import glob
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from unshaken.files import flock
from unshaken.processes import Shard, attempt, launch_id


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


_NAME = re.compile(r"\.part-([0-9a-f]+)-(\d+)-(\d+)-[0-9a-f]+$")


def new_part(whole: Path, shard: Shard) -> Path:
    name = f"{whole.stem}.part-{launch_id()}-{attempt()}-{shard.rank}-{secrets.token_hex(4)}{whole.suffix}"
    return whole.with_name(name)


def parts_of(whole: Path) -> list[Part]:
    """All parts of a results file, in the order of their names."""
    found = []
    for path in sorted(whole.parent.glob(f"{glob.escape(whole.stem)}.part-*{glob.escape(whole.suffix)}")):
        match = _NAME.fullmatch(path.stem[len(whole.stem) :])
        if match:
            found.append(Part(path=path, launch=match[1], attempt=int(match[2]), rank=int(match[3])))
    return found
