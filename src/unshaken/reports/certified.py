"""Certified accuracy as text: tables of its own, so that a lower bound is never read as an accuracy under attack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from unshaken.certificates import CERTIFICATES, Certificate, Certified
from unshaken.display import visible

if TYPE_CHECKING:
    from rich.console import Group

    from unshaken.evaluation.report import Report

RADII = (0, 1, 2, 4)
COLUMNS = ("samples", "alpha")  # settings that the table has columns for
NOTE = (
    "Certified: right answers of the majority over random changes of a text that no attack of the certificate's kind "
    "can change, by an exact binomial bound. A lower bound, about another classifier than the model alone; accuracy "
    "under attack is an upper bound, and the two are not compared."
)


def headings(radii: Sequence[int] = RADII) -> tuple[str, ...]:
    shares = tuple("1 word" if own == 1 else f"{own} words" for own in radii)
    return ("certificate", "n", "abstains", *shares, "any words", "samples", "alpha", "asked per text", "seconds")


def title(item: Certified) -> str:
    """Its kind, and the settings by which it is not the usual one: `ranmask:keep=0.5`."""
    kind = CERTIFICATES.get(item.certificate, Certificate)
    usual = {"name": item.certificate, **{own.name: own.default for own in fields(kind)}}
    told = [f"{key}={_short(value)}" for key, value in item.settings.items() if key not in COLUMNS]
    plain = {f"{key}={_short(value)}" for key, value in usual.items()}
    named = ",".join(part for part in told if part not in plain)
    return f"{item.certificate}:{named}" if named else item.certificate


def _short(value: Any) -> str:
    """A set of substitutions by its name and the start of its fingerprint: two sets may share a name."""
    return f"{value.get('name')} [{str(value.get('fingerprint'))[:6]}]" if isinstance(value, dict) else str(value)


def cells(item: Certified, radii: Sequence[int] = RADII) -> tuple[str, ...]:
    """Percentages of the texts; what was drawn for each of them, and what it cost."""
    count = len(item.rows)
    shares = (item.accuracy(own) for own in radii)
    return (
        title(item),
        str(count),
        f"{100 * item.abstained:.1f}",
        *(f"{100 * share:.1f}" for share in shares),
        str(item.proved()),
        str(item.settings["samples"]),
        f"{item.settings['alpha']:g}",
        f"{item.asked / count:.0f}",
        f"{item.seconds:.1f}",
    )


def terminal_certified(heading: str, found: Sequence[tuple[str, Certified]], radii: Sequence[int] = RADII) -> Group:
    """Shares in a table that eighty columns hold, what was drawn and what it cost below: one table cut its numbers."""
    from rich.console import Group
    from rich.text import Text

    from unshaken.console import terminal_table

    rows = [(name, dict(zip(headings(radii), cells(item, radii), strict=True))) for name, item in found]
    shares = headings(radii)[3 : 3 + len(radii) + 1]
    table = terminal_table(heading, ("", *shares), [(name, *(own[key] for key in shares)) for name, own in rows])
    table.columns[0].overflow = "fold"
    for column in table.columns[1:]:
        column.no_wrap = True
    costs = [
        f"{name}: {own['n']} texts, abstains from {own['abstains']}%, {own['samples']} samples, alpha {own['alpha']}, "
        f"{own['asked per text']} asked per text, {own['seconds']} seconds"
        for name, own in rows
    ]
    return Group(table, *(Text(visible(line), style="dim") for line in costs))


def certified_rows(report: Report) -> list[tuple[str, ...]]:
    """All certificates of a report, after data set and model."""
    return [
        (evaluation.data.name, report.name_of(evaluation), *cells(item))
        for evaluation in report.evaluations
        for item in evaluation.certificates
    ]
