"""What a trial is, what it came to, and how a command is called in one."""

from __future__ import annotations

import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The harness that kills commands, tiny models and the fuzzed readers are those of the tests.
sys.path += [str(ROOT / "tests" / name) for name in ("tiny", "hostile")]

# What some commands import late; a trial is to hit work, and not to pay for imports.
LATE = ("pydantic.main", "scipy.stats", "scipy.ndimage", "matplotlib.figure", "unshaken.attacks", "unshaken.victims",
        "unshaken.reports.html", "unshaken.reports.figures", "unshaken.training.fine_tuning",
        "unshaken_experiments.work")  # fmt: skip
FAULTS = ("traceback", "hang", "wrong", "other")
PATIENCE = 600.0  # seconds after which a command hangs
ACTING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What became of one trial."""

    kind: str  # "kills: train"
    verdict: str  # held, refused, or one of FAULTS
    what: str = ""
    times: int = 1


Trials = Iterator[Trial]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much there is to do: what is asked for, less what earlier lines have."""

    scale: float = 1.0
    commands: tuple[str, ...] = ()  # all where empty
    done: Counter[str] = field(default_factory=Counter)  # kind -> trials

    def missing(self, kind: str, goal: int) -> int:
        return max(max(1, round(goal * self.scale)) - self.done[kind], 0)

    def draw(self, kind: str) -> random.Random:
        """A stream of its own, and another one where a kind goes on."""
        return random.Random(f"{kind} {self.done[kind]}")


Part = Callable[[Plan], Trials]


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended."""

    code: int | None  # None where it hung
    said: str

    @property
    def is_refusal(self) -> bool:
        """One line that begins with `error:` (or typer's box of usage), and no traceback.

        `reproduce` tells of each training run that failed in its table, and in one line that some are unfinished.
        """
        lines = [line for line in self.said.splitlines() if line.startswith("error: ")]
        is_told = self.code == 1 and "unfinished training runs: " in self.said
        is_one_line = self.code == 2 and (len(lines) == 1 or "Usage:" in self.said)
        return "Traceback" not in self.said and (is_told or is_one_line)

    @property
    def acts(self) -> bool:
        """Whether characters that act reached the terminal; colours are ours."""
        return ACTING.search(COLOURS.sub("", self.said.replace("\r", ""))) is not None

    def fault(self, where: str = "") -> tuple[str, str]:
        """Which fault it is, and what was said."""
        kind = "hang" if self.code is None else "traceback" if "Traceback" in self.said else "other"
        return "wrong" if self.code == 0 else kind, f"{where}exit {self.code}: {self.said[-1500:]}"

    def verdict(self, where: str = "") -> tuple[str, str]:
        """Held, refused or a fault, by how it ended alone."""
        if "Traceback (most recent call last)" in self.said:
            return "traceback", self.fault(where)[1]
        return ("held", "") if self.code == 0 else ("refused", "") if self.is_refusal else self.fault(where)


def call(words: list[str], folder: Path, limit: int | None = None) -> Ended:
    """A command in a process of its own, no file of which grows beyond `limit` bytes."""
    from harness import MODULES, Command, start

    MODULES[:] = dict.fromkeys([*MODULES, *LATE])
    log = Path(tempfile.mkstemp(dir=folder, suffix=".log")[1])
    if limit is None:
        process = start(Command(words=words), log)
    else:
        process = start(Command(words=[str(limit), *words], function=_limited), log)
    process.join(PATIENCE)
    hung = process.exitcode is None
    if hung:
        process.kill()
        process.join()
    if limit is not None:
        time.sleep(0.3)  # what stands between may be a little behind
    said = log.read_text(errors="replace")
    log.unlink()
    return Ended(code=None if hung else process.exitcode, said=said)


def _limited(words: list[str]) -> None:
    from unshaken.cli import main

    limit = int(words[0])
    # What is said goes through another process: the limit would cut a log as well.
    through = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    assert through.stdin is not None
    for stream in (1, 2):
        os.dup2(through.stdin.fileno(), stream)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    sys.argv = ["unshaken", *words[1:]]
    main()


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@contextmanager
def workspace() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="endurance-") as name:
        yield Path(name)
