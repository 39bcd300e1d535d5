"""What `attack` and `evaluate` say of time before they spend it, and what they do with large files: block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unshaken.cli import options
from unshaken.cli.columns import trained_columns
from unshaken.errors import UnshakenError

if TYPE_CHECKING:
    from unshaken.attacks.base import Attack
    from unshaken.evaluation import Report
    from unshaken.examples import Examples
    from unshaken.victims.base import Victim


def blocks_of(
    task: str,
    size: int,
    count: int | None,
    victim: Victim,
    *,
    data: Path | None = None,
    text_columns: list[str] | None = None,
    label_column: str | None = None,
) -> Iterable[Examples]:
    """The rows of one file, `size` at a time."""
    from unshaken.tasks import load_blocks

    if not Path(task).is_file():
        raise UnshakenError(f"--block reads one file from its first row to its last; {task!r} is none")
    options.refuse(f"{task} is a file; leave it out", data=data)
    if count is not None:
        raise UnshakenError("-n draws rows and --block takes all of them; leave one out")
    trained = trained_columns(victim, task)
    return load_blocks(
        task,
        size,
        text_columns=text_columns or trained.get("text_columns"),
        label_column=label_column or trained.get("label_column"),
        label_names=victim.label_names or None,
    )


def run_blocks(
    victims: Sequence[Victim], blocks: Iterable[Examples], attacks: Sequence[Attack], out: Path, **options: Any
) -> None:
    """Evaluate block by block, and print what all came to."""
    from unshaken.console import Console
    from unshaken.evaluation import evaluate_blocks

    found = evaluate_blocks(list(victims), blocks, list(attacks), out=out, **options)
    if found is not None:
        console = Console()
        console.print(found)
        console.print(f"Results: {out / 'blocks'}\nTotals: {out / 'totals.json'}", markup=False, soft_wrap=True)


def print_outlook(
    victims: Sequence[Victim], sets: Iterable[Examples], attacks: Sequence[Attack], **options: Any
) -> None:
    """A line for each set on how long the attacks take at most; options as for `outlook`."""
    from unshaken.display import note
    from unshaken.evaluation.outlook import outlook

    for rows in sets:
        if line := outlook(victims, rows, attacks, **options):
            note(line)


def print_forecast(
    victims: Sequence[Victim],
    sets: Iterable[Iterable[Examples]],
    attacks: Sequence[Attack],
    *,
    seed: int,
    recheck: int = 0,
    calibrate: bool = False,
    views: Callable[[Report, Path], Any] | None = None,
) -> None:
    """Measure samples of each set and print what the whole will take; nothing is kept.

    Args:
        sets: Each as its blocks.
    """
    from unshaken.console import Console
    from unshaken.evaluation.forecast import drawn, forecast

    for blocks in sets:
        sample, rows, number = drawn(blocks, seed)
        how: dict[str, Any] = {"seed": seed, "recheck": recheck, "calibrate": calibrate, "views": views}
        found = forecast(victims, sample, attacks, rows=rows, blocks=number, **how)
        Console().print(f"{sample.name}: {found}", markup=False, highlight=False, soft_wrap=True)
