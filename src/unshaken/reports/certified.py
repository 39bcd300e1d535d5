"""Certified accuracy as text: tables of its own, so that a lower bound is never read as an accuracy under attack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unshaken.certificates import Certified

if TYPE_CHECKING:
    from unshaken.evaluation.report import Report

RADII = (0, 1, 2, 4)
NOTE = (
    "Certified: right answers of the majority over random changes of a text that no attack of the certificate's kind "
    "can change, by an exact binomial bound. A lower bound, about another classifier than the model alone; accuracy "
    "under attack is an upper bound, and the two are not compared."
)


def headings(radii: Sequence[int] = RADII) -> tuple[str, ...]:
    shares = tuple("1 word" if own == 1 else f"{own} words" for own in radii)
    return ("certificate", "n", "abstains", *shares, "any words", "samples", "alpha", "asked per text", "seconds")


def cells(item: Certified, radii: Sequence[int] = RADII) -> tuple[str, ...]:
    """Percentages of the texts; what was drawn for each of them, and what it cost."""
    count = len(item.rows)
    shares = (item.accuracy(own) for own in radii)
    return (
        item.certificate,
        str(count),
        f"{100 * item.abstained:.1f}",
        *(f"{100 * share:.1f}" for share in shares),
        str(item.proved()),
        str(item.settings["samples"]),
        f"{item.settings['alpha']:g}",
        f"{item.asked / count:.0f}",
        f"{item.seconds:.1f}",
    )


def certified_rows(report: Report) -> list[tuple[str, ...]]:
    """All certificates of a report, after data set and model."""
    return [
        (evaluation.data.name, report.name_of(evaluation), *cells(item))
        for evaluation in report.evaluations
        for item in evaluation.certificates
    ]
