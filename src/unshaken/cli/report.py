"""`unshaken report`: one report from the results of several runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unshaken.cli import options
from unshaken.cli.known import names_in
from unshaken.errors import UnshakenError


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of evaluate, or their report.json files.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="The suffix decides: .html .md .tex .csv .json.")] = Path(
        "report.html"
    ),
    called: options.Names = None,
    figures: Annotated[Path | None, typer.Option(help="Also write figures, as PNG and SVG, into this folder.")] = None,
) -> None:
    """Merge the results of several runs into one report.

    Models are compared on the examples they share.
    """
    options.require_runs(runs)
    options.require_other_file(out, *(run / "report.json" if run.is_dir() else run for run in runs))
    known = (".json", *names_in("unshaken.evaluation.report:WRITERS"))
    if out.suffix not in known:
        raise UnshakenError(f"cannot write a report as {out.suffix or out.name!r}; known: {', '.join(known)}")
    _require_own(out)
    from unshaken.console import Console
    from unshaken.evaluation import Report, merge
    from unshaken.reports.figures import report_figures, save_figure

    merged = merge([Report.load(run) for run in runs])
    if names := options.model_names(called, len(merged.model_names)):
        merged = merged.renamed(dict(zip(merged.model_names, names, strict=True)))
    merged.save(out)
    console = Console()
    if figures is not None:
        drawn = report_figures(merged)
        for name, figure in drawn.items():
            save_figure(figure, figures / name)
        if not drawn:
            console.print(
                "note: no figures: they are of models under attack, and no attack here was answered", style="dim"
            )
    console.print(merged)
    console.print(f"Report: {out}", markup=False, soft_wrap=True)


BEGINNINGS: dict[str, str | tuple[str, ...]] = {
    ".html": "<!doctype html>",
    ".md": "# Robustness report",
    ".tex": "% Needs \\usepackage{booktabs}",
    ".csv": "data,model,condition,accuracy",
    ".json": ('{\n  "schema_version"', '{"schema_version"'),  # a long one is all on one line
}  # of reports, by which an earlier one is known


def _require_own(out: Path) -> None:
    """Write over an earlier report alone: any other file is somebody's work."""
    if not out.is_file():
        return
    with out.open("rb") as stream:
        begins = stream.read(64)
    if begins and not begins.decode("utf-8", "replace").startswith(BEGINNINGS[out.suffix]):
        raise UnshakenError(f"{out} is no report, and would be lost; name another file with --out")
