"""What an evaluation will cost, measured on a sample before it is spent."""

from __future__ import annotations

import heapq
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unshaken.attacks.base import Attack
from unshaken.attacks.engine import side_by_side
from unshaken.display import duration
from unshaken.errors import UnshakenError
from unshaken.evaluation.evaluate import evaluate
from unshaken.evaluation.report import Report
from unshaken.examples import Example, Examples
from unshaken.tasks.sampling import rank
from unshaken.victims.base import Victim
from unshaken.victims.calibrated import at_temperature

LONG_ENOUGH = 10.0  # seconds that the last measurement takes at least, where there are rows enough
POOL = 16_384  # rows drawn at most
WARM = 2.0  # temperature of a calibrated twin in measurements


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a run will take.

    Attributes:
        rows: Examples of the run.
        seconds: Predicted, without the start of Python and the loading of models.
        processor_seconds: The same by the processor's clock, which other programs on the machine do not move.
        bytes: Predicted size of its files.
        measured_rows: Examples that were measured.
        measured_seconds: What they took.
        measured_processor_seconds: The same by the processor's clock.
    """

    rows: int
    seconds: float
    processor_seconds: float
    bytes: int
    measured_rows: int
    measured_seconds: float
    measured_processor_seconds: float

    def __str__(self) -> str:
        whole = f"about {duration(self.seconds)} ({duration(self.processor_seconds)} of processor time)"
        sample = f"in {duration(self.measured_seconds)} ({duration(self.measured_processor_seconds)})"
        return (
            f"{self.rows:,} rows: {whole} and {self.bytes / 1e6:,.0f} MB of files, measured on {self.measured_rows:,} "
            f"rows {sample}; loading is not counted"
        )


def forecast(
    victims: Sequence[Victim],
    sample: Examples,
    attacks: Sequence[Attack],
    *,
    rows: int,
    blocks: int = 1,
    seed: int = 0,
    recheck: int = 0,
    calibrate: bool = False,
    views: Callable[[Report, Path], Any] | None = None,
) -> Forecast:
    """Evaluate samples of growing size, for good but in a folder that is thrown away, and draw the line on.

    The first sample warms up and does not count. Every sample has rows of its own, because texts that were seen before
    are quicker.

    Args:
        sample: Rows in a random order, as `drawn` gives them; no more than needed are used.
        rows: How many the run has.
        blocks: How many evaluations they are: each begins anew.
        seed, recheck, calibrate: As for `evaluate`.
        views: What is written besides the results, where a run writes more.
    """

    # A few rows may have no best temperature. Any costs the same.
    twins = [at_temperature(victim, WARM) for victim in victims] if calibrate else []

    def measured(some: Examples) -> tuple[int, float, float, int]:
        """Rows, seconds by both clocks and bytes of one evaluation."""
        with tempfile.TemporaryDirectory(prefix="unshaken-forecast-") as folder:
            begin, busy = time.perf_counter(), time.process_time()
            report = evaluate([*victims, *twins], some, list(attacks), out=folder, seed=seed, recheck=recheck)
            if views is not None:
                views(report, Path(folder))
            seconds, busy = time.perf_counter() - begin, time.process_time() - busy
            size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
            return len(some), seconds, busy, size

    cohort = max((side_by_side(victim) for victim in victims), default=1)  # time goes by whole cohorts
    start, size = 0, min(cohort, max(1, len(sample) // 16))
    points: list[tuple[int, float, float, int]] = []
    while start + size <= len(sample) and (len(points) < 3 or points[-1][1] < LONG_ENOUGH):
        points.append(measured(sample[start : start + size]))
        start += size
        size *= 1 if len(points) == 1 else 2
    if len(points) < 2:
        points.append(measured(sample))
    counts, times, busy, sizes = (np.array(values, float) for values in zip(*points[1:][-3:], strict=True))
    return Forecast(
        rows=rows,
        seconds=_drawn_on(counts, times, rows, blocks),
        processor_seconds=_drawn_on(counts, busy, rows, blocks),
        bytes=int(sizes[-1] / counts[-1] * rows),
        measured_rows=sum(point[0] for point in points),
        measured_seconds=sum(point[1] for point in points),
        measured_processor_seconds=sum(point[2] for point in points),
    )


def drawn(blocks: Iterable[Examples], seed: int, count: int = POOL) -> tuple[Examples, int, int]:
    """`count` rows of all blocks in a random order, drawn as they pass by, and how many rows and blocks there are."""
    kept: list[Example] = []
    total, number, first = 0, 0, None
    for block in blocks:
        first = first or block
        total, number = total + len(block), number + 1
        kept = heapq.nsmallest(count, [*kept, *block], key=lambda row: rank(row.id, seed))
    if first is None:
        raise UnshakenError("no examples to evaluate on")
    return first.with_rows(kept), total, number


def _drawn_on(counts: np.ndarray, times: np.ndarray, rows: int, blocks: int) -> float:
    """The line through the measurements; through the last one and nothing where it would fall or begin below it."""
    if len(counts) > 1:
        slope, offset = np.polyfit(counts, times, 1)
        if slope > 0 and offset >= 0:
            return float(offset * blocks + slope * rows)
    return float(times[-1] / counts[-1] * rows)
