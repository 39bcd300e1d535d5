"""`unshaken cite`: the papers behind a run, as BibTeX."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unshaken.cli import options


def cite(
    runs: Annotated[list[Path], typer.Argument(help="Folders or report.json files of runs, or folders of models.")],
) -> None:
    """Print the BibTeX of every method that a run used."""
    options.require_runs(runs)
    from unshaken.errors import UnshakenError
    from unshaken.evaluation import Report, TrainingRecord, citations

    found: list[str] = []
    for run in runs:
        record = next(filter(None, map(TrainingRecord.load, (run, run / "model"))), None)
        if (run / "report.json").is_file() or run.is_file():
            found += citations.of_evaluations(Report.load(run).evaluations)
        elif record is not None:
            found += citations.of_record(record)
        else:
            raise UnshakenError(f"{run} holds neither a report.json nor a model that unshaken trained")
    typer.echo("\n\n".join(dict.fromkeys(found)) or "% nothing but this library's own methods was used")
