"""Progress of a training run whose output goes to a file: a line now and then instead of a bar."""

from __future__ import annotations

import time

from unshaken.display import duration, note

PARTS = 10  # lines of a training run


class StepLines:
    """Called after each step, it says at every tenth of them how long the rest will take.

    Args:
        name: Of the run, where several are told of.
    """

    def __init__(self, name: str = "") -> None:
        self._name = f"{name}: " if name else ""
        self._first: tuple[int, float] | None = None

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._first is None:  # the first step is no measure: it warms up
            self._first = done, now
        elif done * PARTS // total > (done - 1) * PARTS // total:
            step, start = self._first
            left = (now - start) / (done - step) * (total - done)
            note(f"{self._name}step {done} of {total}" + (f", about {duration(left)} left" if done < total else ""))
