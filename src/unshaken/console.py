"""The terminal that commands write to; a file of its own, because importing rich takes longer than `--help` may."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from unshaken.display import visible


class Console(RichConsole):
    """A terminal in which texts, names and labels are shown and never obeyed: only rich itself moves the cursor."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


def terminal_table(
    title: str, headings: Sequence[str], rows: Iterable[Sequence[str]], *, left: Collection[str] = (), **options: Any
) -> Table:
    """A table of texts and numbers: the first column and those named in `left` to the left, the others to the right.

    Cells are text, whatever they hold: rich reads no markup in them. Options are those of `rich.table.Table`.
    """
    table = Table(**{"title": Text(visible(title)), "title_justify": "left", "box": SIMPLE_HEAD, **options})
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number == 0 or heading in left else "right")
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    return table
