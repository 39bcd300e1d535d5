"""Kill a command at chosen moments, resume it, and see it to its end.

Each start is a fresh process. Its parent has imported what the commands need, so that kills hit work and not imports.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MODULES = ["unshaken.cli", "unshaken.training", "unshaken.reports", "unshaken.tasks", "transformers.models.bert"]


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command line, or a function at the top of a module that takes the same words."""

    words: Sequence[str]
    resume: Sequence[str] = ("--resume",)  # what is added from the second start on
    environment: dict[str, str] = field(default_factory=dict)
    function: Callable[[Sequence[str]], None] | None = None  # in place of `unshaken WORDS`


def start(command: Command, log: Path, *, resume: bool = False) -> Any:
    """The command in a process of its own; what it prints is added to `log`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(MODULES)
    words = [*command.words, *(command.resume if resume else ())]
    process = context.Process(target=_run, args=(words, command.function, command.environment, str(log)))
    process.start()
    return process


def _run(words: list[str], function: Any, environment: dict[str, str], log: str) -> None:
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.environ.update(environment)
    if function is not None:
        function(words)
        return
    from unshaken.cli import main

    sys.argv = ["unshaken", *words]
    main()


def finish(command: Command, log: Path, *, resume: bool = False) -> float:
    """Run the command to its end, which must be a good one; the seconds it took."""
    process = start(command, log, resume=resume)
    before = time.monotonic()  # the first start also waits for the imports
    process.join()
    assert process.exitcode == 0, log.read_text()[-3000:]
    return time.monotonic() - before


def kill_and_resume(
    command: Command, moments: Sequence[float], log: Path, after_kill: Callable[[], None] = lambda: None
) -> int:
    """Kill the run with SIGKILL at each of `moments` (seconds after a start), and resume it until it is done.

    Returns how many kills hit a living process; a run that ends before its moment came is not killed any more.
    """
    kills = 0
    for moment in moments:
        process = start(command, log, resume=kills > 0)
        process.join(moment)
        if process.exitcode is not None:
            assert process.exitcode == 0, log.read_text()[-3000:]
            return kills
        process.kill()
        process.join()
        kills += 1
        after_kill()
    finish(command, log, resume=kills > 0)
    return kills


def moments(seed: int, duration: float) -> Iterator[float]:
    """Random moments of a run that takes `duration` seconds, without end."""
    stream = random.Random(seed)
    while True:
        yield stream.uniform(0.02, 0.98) * duration


@contextmanager
def limited_files(size: int) -> Iterator[None]:
    """No file grows beyond `size` bytes; Python ignores the signal, so that writes fail as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
