"""Text from data, shown where it could be taken for more than text: in a terminal, on a page, in a spreadsheet."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

# Controls but for tab and line feed, what turns the direction of writing, separators of lines, halves of pairs.
_HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def visible(text: str) -> str:
    """The text with each character that acts instead of showing written as its escape.

    Example:
        >>> visible("\\x1b[2J all gone")
        '\\\\x1b[2J all gone'
    """
    return _HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def spreadsheet_cell(value: Any) -> Any:
    """A value for a CSV file. Spreadsheets run text that starts like a formula; an apostrophe before it stops them."""
    if value is None:
        return ""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


class Console(RichConsole):
    """A terminal in which texts, names and labels are shown and never obeyed: only rich itself moves the cursor."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))
