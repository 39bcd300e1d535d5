"""The progress bar of a run: how many examples, how many of them held so far, how long it will take."""

from __future__ import annotations

from collections.abc import Sequence

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from unshaken.attacks.results import AttackResult


class ProgressBar:
    def __init__(self, title: str, total: int, done: Sequence[AttackResult]) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("accuracy under attack {task.fields[accuracy]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._answered = sum(row.outcome != "error" for row in done)
        self._held = sum(row.outcome == "failure" for row in done)
        self._task = self._progress.add_task(title, total=total, completed=len(done), accuracy=self._accuracy())

    def add(self, result: AttackResult) -> None:
        self._answered += result.outcome != "error"
        self._held += result.outcome == "failure"
        self._progress.update(self._task, advance=1, accuracy=self._accuracy())

    def _accuracy(self) -> str:
        return f"{self._held / self._answered:.1%}" if self._answered else "-"

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
