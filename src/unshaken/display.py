"""Text from data, shown where it could be taken for more than text: in a terminal, on a page, in a spreadsheet."""

from __future__ import annotations

import logging
import re
import sys
import warnings
from collections.abc import Mapping
from typing import Any, TextIO

# Controls but for tab and line feed, what turns the direction of writing, separators of lines, halves of pairs.
_HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
LONGEST = 4000  # characters of a note or complaint: it may quote a text from data
_SHORT = {"k": 1e3, "M": 1e6, "G": 1e9}
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def visible(text: str) -> str:
    """The text with each character that acts instead of showing written as its escape.

    Example:
        >>> visible("\\x1b[2J all gone")
        '\\\\x1b[2J all gone'
    """
    return _HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def duration(seconds: float) -> str:
    """How long something takes, as one says it.

    Example:
        >>> duration(42), duration(150), duration(9000), duration(5_000_000)
        ('42 s', '2 min', '2 h 30 min', '1,389 h')
    """
    if seconds < 120:
        return f"{seconds:.{0 if seconds >= 10 else 1}f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes < 6000 else f"{minutes / 60:,.0f} h"


def shortened(number: float) -> str:
    """A large number in about three digits, for a column that has to be narrow.

    Example:
        >>> shortened(872), shortened(19_990), shortened(484_911), shortened(50_340_834)
        ('872', '20 k', '485 k', '50.3 M')
    """
    if number < 10_000:
        return f"{number:,.0f}"
    letter, size = next((one, size) for one, size in _SHORT.items() if number < 999.5 * size or size == 1e9)
    number /= size
    return f"{number:,.0f} {letter}" if number >= 100 else f"{number:.3g} {letter}"


def counted(number: int, noun: str) -> str:
    """How many of something there are.

    Example:
        >>> counted(1, "example"), counted(2000, "example")
        ('1 example', '2,000 examples')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def in_words(value: Any) -> str:
    """Settings as a person would say them; what is None is left out, and so are all but 8 digits of a fingerprint.

    Example:
        >>> in_words({"layers": [4, 5], "solver": {"name": "anderson", "steps": 3}, "unroll": False, "seed": None})
        'layers 4, 5; solver anderson (steps 3); unroll no'
    """
    if isinstance(value, Mapping):
        rest = {key: item for key, item in value.items() if key != "name" and item not in (None, "", [], {})}
        told = "; ".join(f"{key.replace('_', ' ')} {in_words(item)}" for key, item in rest.items())
        name = str(value.get("name", ""))
        return f"{name} ({told})" if name and told else name or told
    if isinstance(value, list | tuple):
        return ", ".join(map(in_words, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)[:8] if re.fullmatch(r"[0-9a-f]{40,64}", str(value)) else str(value)


def note(text: str, *, kind: str = "note", file: TextIO | None = None) -> None:
    """One line for whoever watches, on stderr. The one way to print what may quote a file."""
    line = visible(text if len(text) < LONGEST else text[:LONGEST] + " ...").replace("\n", " ")
    print(f"{kind}: {line}", file=file or sys.stderr, flush=True)


class _ShownRecord(logging.LogRecord):
    def getMessage(self) -> str:  # noqa: N802
        return visible(super().getMessage())


def guard_terminal() -> None:
    """Show escapes in what libraries log and warn of, for they quote files too. For commands: it is process-wide."""
    logging.setLogRecordFactory(_ShownRecord)
    warnings.formatwarning = _formatted_warning


def _formatted_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    return f"{visible(filename)}:{lineno}: {category.__name__}: {visible(str(message))}\n"


def spreadsheet_cell(value: Any) -> Any:
    """A value for a CSV file. Spreadsheets run text that starts like a formula; an apostrophe before it stops them."""
    if value is None:
        return ""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
