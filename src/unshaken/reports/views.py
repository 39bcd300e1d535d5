"""A report as text: a table in the terminal, Markdown, LaTeX and CSV. All text that comes from data is escaped."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from unshaken.display import spreadsheet_cell, visible
from unshaken.evaluation.comparison import Comparison, SeedSpread
from unshaken.evaluation.flags import FLAGS, Check
from unshaken.evaluation.results import CLEAN, AttackRun
from unshaken.pages import render_part
from unshaken.proportion import Proportion
from unshaken.reports.certified import NOTE, certified_rows, headings, terminal_certified, title
from unshaken.reports.charts import by_data, label

if TYPE_CHECKING:
    from unshaken.evaluation.report import Report


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the main table: a model on a data set under one condition."""

    data: str
    model: str
    condition: str
    accuracy: Proportion
    attack: AttackRun | None  # None for clean answers, groups and the worst case
    comparison: Comparison | None  # against the first model


def rows(report: Report) -> list[Row]:
    """The main table, by data set, then model, then condition; groups stand below the clean answers."""
    compared = {(item.data, item.model, item.condition): item for item in report.comparisons if item.seeds == 1}
    table = []
    for beside, evaluation in ((of_data, item) for of_data in by_data(report) for item in of_data):
        data, model = evaluation.data.name, report.name_of(evaluation)
        for condition in evaluation.conditions:
            attack = evaluation.run(condition) if condition in evaluation.attack_names else None
            table.append(
                Row(
                    data=data,
                    model=model,
                    condition=label(beside, evaluation, condition),
                    accuracy=evaluation.accuracy(condition),
                    attack=attack,
                    comparison=compared.get((data, model, condition)),
                )
            )
            if condition == CLEAN:
                table += [
                    Row(data=data, model=model, condition=group, accuracy=share, attack=None, comparison=None)
                    for group, share in evaluation.groups.items()
                ]
    return table


SHARES = ("data", "model", "condition", "accuracy [95%]", "n")
HEADINGS = (*SHARES, "success", "queries", "words", "difference", "p (Holm)")


def cells(row: Row) -> tuple[str, ...]:
    """The main table's cells as text: percentages, and points for the difference."""
    attack, other = row.attack and row.attack.counts, row.comparison
    return (
        row.data,
        row.model,
        row.condition,
        str(row.accuracy),
        str(row.accuracy.total),
        f"{100 * attack.success_rate:.1f}" if attack and attack.attacked else "",
        f"{attack.queries['mean']:.0f}" if attack else "",
        f"{100 * attack.words_changed:.1f}" if attack and attack.broken.hits else "",
        points(other) if other else "",
        p_text(other.p_adjusted) if other else "",
    )


def points(item: Comparison) -> str:
    """A difference in points with its interval."""
    low, high = (100 * bound for bound in item.interval)
    return f"{100 * item.difference:+.1f} [{low:+.1f}, {high:+.1f}]"


def p_text(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def baselines(report: Report) -> dict[str, float]:
    """Each data set's majority baseline."""
    return {evaluation.data.name: evaluation.majority_baseline for evaluation in report.evaluations}


def terminal(report: Report) -> Any:
    """One table a data set and the raised flags, for rich; narrow enough for 80 columns."""
    from rich.console import Group

    tables = [_terminal_table(report, data, baseline) for data, baseline in baselines(report).items()]
    flags = [
        line for flag in FLAGS for line in _terminal_flag(flag, [item for item in report.flags if item.flag == flag])
    ]
    return Group(*tables, *_terminal_certified(report), *flags)


def _terminal_certified(report: Report) -> list[Any]:
    from rich.text import Text

    found = [
        (f"{title(item)}, {report.name_of(evaluation)} on {evaluation.data.name}", item)
        for evaluation in report.evaluations
        for item in evaluation.certificates
    ]
    return [terminal_certified("Certified (%)", found), Text(NOTE, style="dim")] if found else []


def _terminal_flag(flag: str, checks: Sequence[Check]) -> list[Any]:
    """A raised flag once, with each place where it was."""
    from rich.text import Text

    if not checks:
        return []
    settle = "; ".join(dict.fromkeys(check.settle for check in checks))
    return [
        Text.assemble(("! ", "bold yellow"), (flag, "bold"), f": {FLAGS[flag]}"),
        *(Text(visible(f"    {check.subject}: {check.evidence}")) for check in checks),
        Text(f"    to settle it: {settle}", style="dim"),
    ]


def _terminal_table(report: Report, data: str, baseline: float) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    title = Text(f"{visible(data)}, majority baseline {100 * baseline:.1f}")
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("model and condition", overflow="fold")
    for heading in ("accuracy [95%]", "broken", "queries", "words"):
        table.add_column(heading, justify="right", no_wrap=True)
    compares = any(item.data == data for item in report.comparisons)
    for heading in ("points", "p") if compares else ():
        table.add_column(heading, justify="right", no_wrap=True)
    lines: list[tuple[str, ...]] = []
    for row in (row for row in rows(report) if row.data == data):
        _, model, condition, accuracy, _, success, queries, words, _, p = cells(row)
        points = f"{100 * row.comparison.difference:+.1f}" if row.comparison else ""
        lines.append((model, condition, accuracy, success, queries, words, *((points, p) if compares else ())))
    for item in (item for item in report.comparisons if item.data == data and item.seeds > 1):
        shown = (called(report, item), _mean(report, item), "", "", "", f"{100 * item.difference:+.1f}")
        lines.append((f"{item.model}, {item.seeds} seeds", *shown, p_text(item.p_adjusted)))
    for model, of_model in groupby(lines, key=lambda line: line[0]):
        # Text, not str: names from data may hold what rich would read as markup.
        table.add_row(Text(visible(model), style="bold"))
        for _, condition, *numbers in of_model:
            table.add_row(*(Text(visible(cell)) for cell in (f"  {condition}", *numbers)))
    return table


def _mean(report: Report, item: Comparison) -> str:
    """Of a method over its seeds, with its interval."""
    place = (item.model, item.data, item.condition)
    return next((str(one.interval) for one in report.spreads if (one.method, one.data, one.condition) == place), "")


def notebook(report: Report) -> str:
    """The accuracies and the raised flags as two tables."""
    shares = [
        (item.data.name, report.name_of(item), item.title(name), str(item.accuracy(name)), item.accuracy(name).total)
        for item in report.evaluations
        for name in item.conditions
    ]
    flags = [(check.flag, check.evidence) for check in report.flags]
    table = partial(render_part, "pages/parts.html", "bare_table")
    return table("results", SHARES, shares) + (table("flags", ("flag", "evidence"), flags) if flags else "")


# ------------------------------------------------------------------------------------------------------ Markdown


def markdown(report: Report) -> str:
    """GitHub-flavoured Markdown: the main table, seeds, comparisons and flags."""
    escape = escape_markdown
    parts = ["# Robustness report", markdown_table(HEADINGS, [cells(row) for row in rows(report)])]
    parts.append(
        "Accuracy in per cent with its 95% Wilson interval. Success: share of the originally right examples that the "
        "attack broke. Queries: mean over attacked examples. Words: share changed, over successes. Difference: points "
        "against the first model on the same examples, with a paired bootstrap interval; p: McNemar's mid-p, corrected "
        "by Holm."
    )
    parts += [f"- {escape(name)}: majority baseline {100 * value:.1f}" for name, value in baselines(report).items()]
    if proved := certified_rows(report):
        parts += ["## Certified", markdown_table(("data", "model", *headings()), proved), NOTE]
    if report.spreads:
        heading = ("method", "data", "condition", "seeds", "mean", "standard deviation", "95%", "each")
        parts += [
            "## Over training seeds",
            markdown_table(heading, [spread_cells(report, item) for item in report.spreads]),
        ]
        if methods := [item for item in report.comparisons if item.seeds > 1]:
            parts += [
                "## Methods over seeds and examples",
                markdown_table(METHODS, [_method_cells(report, item) for item in methods]),
            ]
    raised = [(check.flag, check.subject, check.evidence, check.settle) for check in report.flags]
    parts.append("## Reliability flags")
    parts.append(markdown_table(("flag", "where", "evidence", "what to run"), raised) if raised else "None raised.")
    unknown = sorted({check.flag for check in report.checks if check.verdict == "unknown"})
    if unknown:
        parts.append("Not checked: " + ", ".join(unknown) + ".")
    return "\n\n".join(parts) + "\n"


METHODS = ("method", "against", "data", "condition", "seeds", "n", "difference [95%]", "p (Holm)")


def called(report: Report, item: Comparison | SeedSpread) -> str:
    """What to call the condition: the answers to a static adversarial set are not clean ones."""
    return next((one.title(item.condition) for one in report.evaluations if one.data.name == item.data), item.condition)


def _method_cells(report: Report, item: Comparison) -> tuple[str, ...]:
    counts = (str(item.seeds), str(item.total))
    return (item.model, item.reference, item.data, called(report, item), *counts, points(item), p_text(item.p_adjusted))


def spread_cells(report: Report, spread: SeedSpread) -> tuple[str, ...]:
    accuracy, mean = spread.accuracy, spread.interval
    return (
        spread.method,
        spread.data,
        called(report, spread),
        str(len(accuracy.values)),
        f"{100 * accuracy.mean:.1f}",
        f"{100 * accuracy.std:.1f}" if accuracy.std is not None else "",
        f"[{100 * max(0.0, mean.low):.1f}, {100 * min(1.0, mean.high):.1f}]",
        ", ".join(f"{100 * value:.1f}" for value in accuracy.values),
    )


def markdown_table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    def line(values: Sequence[str]) -> str:
        return "| " + " | ".join(escape_markdown(value) for value in values) + " |"

    return "\n".join([line(headings), "|" + "---|" * len(headings), *(line(values) for values in lines)])


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no HTML, no table borders, no links of bare addresses, one line."""
    escaped = re.sub(r"([\\`*_\[\]<>|~#])", r"\\\1", visible(text).replace("&", "&amp;"))
    escaped = re.sub(r"://|@|(?<=www)\.", lambda match: "".join(f"&#{ord(c)};" for c in match[0]), escaped, flags=re.I)
    return re.sub(r"\s+", " ", escaped)


# --------------------------------------------------------------------------------------------------------- LaTeX

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip


def escape_latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in re.sub(r"\s+", " ", visible(text)))


def latex(report: Report) -> str:
    """A booktabs table, ready to be included in a paper."""
    lines = [
        "% Needs \\usepackage{booktabs}. Accuracy in per cent with 95% Wilson intervals; difference in points against",
        "% the first model on the same examples with paired bootstrap intervals; p by McNemar's mid-p after Holm.",
        r"\begin{tabular}{lllrrrrrrr}",
        r"\toprule",
        " & ".join(escape_latex(heading) for heading in HEADINGS) + r" \\",
        r"\midrule",
    ]
    lines += [" & ".join(_latex_cell(cell) for cell in cells(row)) + r" \\" for row in rows(report)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _latex_cell(text: str) -> str:
    escaped = escape_latex(text)
    # A cell that begins with [ would be read as the optional argument of the row break before it.
    return "{" + escaped + "}" if escaped.startswith("[") else escaped


# ----------------------------------------------------------------------------------------------------------- CSV

COLUMNS: dict[str, Callable[[Row], Any]] = {
    "data": lambda row: row.data,
    "model": lambda row: row.model,
    "condition": lambda row: row.condition,
    "accuracy": lambda row: row.accuracy.value,
    "low": lambda row: row.accuracy.interval[0],
    "high": lambda row: row.accuracy.interval[1],
    "hits": lambda row: row.accuracy.hits,
    "total": lambda row: row.accuracy.total,
    "success_rate": lambda row: row.attack and _known(row.attack.counts.success_rate),
    "attacked": lambda row: row.attack and row.attack.counts.attacked,
    "queries_mean": lambda row: row.attack and row.attack.counts.queries["mean"],
    "queries_median": lambda row: row.attack and row.attack.counts.queries["median"],
    "queries_max": lambda row: row.attack and row.attack.counts.queries["max"],
    "words_changed": lambda row: row.attack and _known(row.attack.counts.words_changed),
    "similarity": lambda row: row.attack and _known(row.attack.counts.similarity),
    "errors": lambda row: row.attack and row.attack.counts.errors,
    "seconds": lambda row: row.attack and row.attack.seconds,
    "difference": lambda row: row.comparison and row.comparison.difference,
    "difference_low": lambda row: row.comparison and row.comparison.interval[0],
    "difference_high": lambda row: row.comparison and row.comparison.interval[1],
    "p_value": lambda row: row.comparison and row.comparison.p_value,
    "p_adjusted": lambda row: row.comparison and row.comparison.p_adjusted,
}


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def csv_text(report: Report) -> str:
    """The main table with full precision, one line per model, data set and condition."""
    stream = io.StringIO()
    writer = csv.writer(stream)
    writer.writerow(COLUMNS)
    for row in rows(report):
        writer.writerow([spreadsheet_cell(column(row)) for column in COLUMNS.values()])
    return stream.getvalue()
