"""Progress of a training run whose output goes to a file: a line now and then instead of a bar."""

from __future__ import annotations

import time

from unshaken.display import note

PARTS = 10  # lines of a training run


class StepLines:
    """Called after each step, it says at every tenth of them how long the rest will take."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._first is None:  # the first step is no measure: it warms up
            self._first = done, now
        elif done * PARTS // total > (done - 1) * PARTS // total:
            step, start = self._first
            left = (now - start) / (done - step) * (total - done)
            note(f"step {done} of {total}" + (f", about {in_minutes(left)} left" if done < total else ""))


def in_minutes(seconds: float) -> str:
    """A duration as one says it.

    Example:
        >>> in_minutes(42), in_minutes(150), in_minutes(9000)
        ('42 s', '2 min 30 s', '2 h 30 min')
    """
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
