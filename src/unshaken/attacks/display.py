"""Changed texts for people: plain HTML for notebooks, in which texts are shown and never obeyed, and lines to print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from unshaken.display import visible
from unshaken.substitutions.words import segment

Swap = tuple[int, int, str, str]  # column, word number, before, after
BEFORE = "color:#b3261e;text-decoration:line-through"
AFTER = "color:#146c2e;font-weight:bold"


def changed_html(texts: Sequence[str], swaps: Sequence[Swap]) -> str:
    """Each changed word struck through, with what took its place beside it."""
    return "<br>".join(_column_html(text, swaps, column) for column, text in enumerate(texts))


def changed_text(texts: Sequence[str], swaps: Sequence[Swap]) -> str:
    """The same to print: each changed word with an arrow to what took its place."""
    lines = []
    for column, text in enumerate(texts):
        pieces = changes(text, swaps, column)
        parts = (f"{kept}{before}→{after}" if before or after else kept for kept, before, after in pieces)
        lines.append(visible("".join(parts)))
    return "\n".join(lines)


def changes(text: str, swaps: Sequence[Swap], column: int = 0) -> Iterator[tuple[str, str, str]]:
    """A text in pieces: what stays, then the word that goes and what takes its place; both are empty at the end."""
    spans, end = segment(text).spans, 0
    for _, position, before, after in (swap for swap in swaps if swap[0] == column):
        start, stop = spans[position]
        yield text[end:start], before, after
        end = stop
    yield text[end:], "", ""


def _column_html(text: str, swaps: Sequence[Swap], column: int) -> str:
    parts = []
    for kept, before, after in changes(text, swaps, column):
        parts.append(_shown(kept))
        if before or after:
            parts.append(f'<span style="{BEFORE}">{_shown(before)}</span> <span style="{AFTER}">{_shown(after)}</span>')
    return "".join(parts)


def _shown(text: str) -> str:
    return escape(visible(text))
