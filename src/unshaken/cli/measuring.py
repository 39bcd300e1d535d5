"""How `attack` and `evaluate` run: all at once or block by block, with what it takes said before it is spent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unshaken.cli.data import blocks_of, load_sets

if TYPE_CHECKING:
    from unshaken.attacks.base import Attack
    from unshaken.certificates import Certificate
    from unshaken.evaluation import Report
    from unshaken.victims.base import Victim


def measured(
    victims: list[Victim],
    task: str,
    attacks: list[Attack],
    out: Path,
    views: Callable[[Report, Path], Path],
    *,
    names: list[str] | None,
    data: Path | None,
    count: int | None,
    block: int | None,
    columns: dict[str, Any],
    dry_run: bool,
    resume: bool,
    seed: int,
    recheck: int = 0,
    calibrate: bool = False,
    certificates: Sequence[Certificate] = (),
) -> tuple[Report, Path] | None:
    """The report and what `views` made of it; None after a dry run or blocks, and in all processes but the first."""
    from unshaken.console import Console
    from unshaken.display import note
    from unshaken.evaluation import evaluate, evaluate_blocks
    from unshaken.evaluation.forecast import drawn, forecast
    from unshaken.evaluation.outlook import outlook
    from unshaken.processes import Shard

    shard, console = Shard.from_environment(), Console()
    how: dict[str, Any] = {"seed": seed, "recheck": recheck}
    run = {**how, "out": out, "resume": resume, "progress": console.is_terminal and shard.leads, "shard": shard}
    blocks = None if block is None else blocks_of(task, block, count, victims[0], data=data, **columns)
    sets = load_sets(task, data, victims[0], count, seed, **columns) if blocks is None else {}
    if dry_run:
        how |= {"calibrate": calibrate, "views": views if blocks is None else None}
        for parts in [blocks] if blocks is not None else [[rows] for rows in sets.values()]:
            sample, rows, number = drawn(parts, seed)
            found = forecast(victims, sample, attacks, rows=rows, blocks=number, **how)
            console.print(f"{sample.name}: {found}", markup=False, highlight=False, soft_wrap=True)
        return None
    if blocks is not None:
        total = evaluate_blocks(victims, blocks, attacks, **run)
        if total is not None:
            console.print(total)
            console.print(f"Results: {out / 'blocks'}\nTotals: {out / 'totals.json'}", markup=False, soft_wrap=True)
        return None
    for examples in sets.values() if shard.leads else ():
        held_out = next(iter(sets.values())) if calibrate else False
        also: dict[str, Any] = {"certify": bool(certificates), "resumed": out if resume else None}
        if line := outlook(victims, examples, attacks, recheck=recheck, calibrate=held_out, **also):
            note(line)
    named = victims if names is None else dict(zip(names, victims, strict=True))
    report = evaluate(named, sets, attacks, calibrate=calibrate, certificates=certificates, **run)
    return (report, views(report, out)) if shard.leads else None
