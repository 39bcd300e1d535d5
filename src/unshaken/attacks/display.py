"""Results for people: plain HTML for notebooks, in which texts are shown and never obeyed, and lines to print."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from unshaken.display import visible

if TYPE_CHECKING:
    from unshaken.attacks.results import AttackResult, AttackResults

SHOWN = 5  # broken texts below a table of results
BEFORE = "color:#b3261e;text-decoration:line-through"
AFTER = "color:#146c2e;font-weight:bold"


def results_html(results: AttackResults) -> str:
    """What a run gave in one sentence, then the first texts that it broke."""
    broken = [row for row in results if row.outcome == "success"]
    more = f"<p>and {len(broken) - SHOWN} more</p>" if len(broken) > SHOWN else ""
    return f"<p><b>{escape(repr(results))}</b></p>" + "".join(map(result_html, broken[:SHOWN])) + more


def result_html(row: AttackResult) -> str:
    """One example: what was changed, and how the answer moved."""
    texts = "<br>".join(_text_html(row, column) for column in range(len(row.original)))
    return f"<p>{texts}<br><small>{escape(_answer(row))}</small></p>"


def result_text(row: AttackResult) -> str:
    """The same to print: each changed word with an arrow to what took its place."""
    texts = []
    for column in range(len(row.original)):
        parts = (f"{kept}{before}→{after}" if before or after else kept for kept, before, after in changes(row, column))
        texts.append(visible("".join(parts)))
    return "\n".join([*texts, _answer(row)])


def _answer(row: AttackResult) -> str:
    before = "" if row.score_before is None else f" ({row.score_before:.0%} sure)"
    now = "" if row.adversarial_prediction is None else f", now {row.adversarial_prediction}"
    why = "" if row.error is None else f", {visible(row.error)}"
    return f"{row.outcome}: label {row.label}{before}{now}, {row.queries} queries{why}"


def changes(row: AttackResult, column: int) -> Iterator[tuple[str, str, str]]:
    """A text in pieces: what stays, then the word that goes and what takes its place; both are empty at the end."""
    from unshaken.substitutions.words import segment

    text, end = row.original[column], 0
    spans = segment(text).spans
    for _, position, before, after in (swap for swap in row.swaps if swap[0] == column):
        start, stop = spans[position]
        yield text[end:start], before, after
        end = stop
    yield text[end:], "", ""


def _text_html(row: AttackResult, column: int) -> str:
    parts = []
    for kept, before, after in changes(row, column):
        parts.append(_shown(kept))
        if before or after:
            parts.append(f'<span style="{BEFORE}">{_shown(before)}</span> <span style="{AFTER}">{_shown(after)}</span>')
    return "".join(parts)


def _shown(text: str) -> str:
    return escape(visible(text))
