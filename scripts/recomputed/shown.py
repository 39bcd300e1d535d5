"""What stands on a page, and how it is held against what was computed."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .estimates import Estimate


@dataclass
class Findings:
    """What was checked, what was wrong and what nobody can compute, page by page."""

    cells: Counter[str] = field(default_factory=Counter)
    numbers: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    unchecked: dict[tuple[str, str, str], int] = field(default_factory=lambda: defaultdict(int))


@dataclass
class Place:
    """Where the checker is: page and table, for what it reports."""

    findings: Findings
    page: str
    table: str

    def named(self, table: str) -> Place:
        return Place(self.findings, self.page, table)

    def fail(self, row: str, column: str, shown: object, computed: object) -> None:
        where = " | ".join((self.page, self.table, row, column))
        self.findings.wrong.append(f"{where}: shown {shown}, computed {computed}")

    def cell(self, row: str, column: str, shown: str, computed: str | Sequence[Any]) -> None:
        """Hold a shown text against a pattern of texts and `Number`s, or against a text."""
        parts = [computed] if isinstance(computed, str) else list(computed)
        pattern = "".join(part.pattern if isinstance(part, Number) else re.escape(part) for part in parts)
        match = re.fullmatch(pattern, shown)
        numbers = [part for part in parts if isinstance(part, Number)]
        if match is None or not all(map(Number.is_shown_as, numbers, match.groups())):
            self.fail(row, column, shown or "nothing", "".join(map(str, parts)) or "nothing")
        self.findings.cells[self.page] += 1
        self.findings.numbers[self.page] += len(numbers)

    def skip(self, why: str, count: int = 1) -> None:
        self.findings.unchecked[self.page, self.table, why] += count


@dataclass(frozen=True)
class Number:
    """A number as a page has to show it: `.1f`, `+.1f`, `.4g`, ...

    Held against the shown one by its value: a number that lies on the border of two roundings may be shown as either.
    """

    value: float
    form: str = ".1f"

    def __str__(self) -> str:
        return format(self.value, self.form)

    @property
    def pattern(self) -> str:
        digits = int(re.sub(r"\D", "", self.form) or 0)
        if self.form.endswith("f"):
            sign = r"[+-]" if "+" in self.form else "-?"
            decimals = rf"\.\d{{{digits}}}" if digits else ""
            return rf"({sign}[\d,]+{decimals})"
        return r"(-?\d+(?:\.\d+)?(?:e[+-]\d+)?)"

    def is_shown_as(self, text: str) -> bool:
        digits = int(re.sub(r"\D", "", self.form))
        if self.form.endswith("g"):
            digits -= 1 + (math.floor(math.log10(abs(self.value))) if self.value else 0)
        return abs(float(text.replace(",", "")) - self.value) <= 0.5 * 10.0**-digits * (1 + 1e-6) + 1e-9


def grid(lines: Sequence[str]) -> list[list[str]]:
    """The cells of a Markdown table, heading first, without the line under it."""
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])] for line in lines]
    return [rows[0], *rows[2:]]


def plain(text: str) -> str:
    """Markdown's escapes taken back."""
    text = re.sub(r"&#(\d+);", lambda match: chr(int(match[1])), text)
    return re.sub(r"\\([\\`*_\[\]<>|~#])", r"\1", text).replace("&amp;", "&")


def blocks(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each filled place of a page: its name and its lines."""
    for match in re.finditer(r"<!-- ([a-z0-9-]+) -->\n(.*?)<!-- /\1 -->", text, flags=re.DOTALL):
        yield match[1], match[2].splitlines()


def is_table(line: str) -> bool:
    return line.startswith("|")


def tables_in(lines: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Each table: the number of its first line, and its lines."""
    start = None
    for number, line in enumerate([*lines, ""]):
        if is_table(line) and start is None:
            start = number
        elif not is_table(line) and start is not None:
            yield start, list(lines[start:number])
            start = None


def gain(one: Estimate | None, star: bool) -> list[Any]:
    """A difference with its interval, as pages show it."""
    if one is None or one.low is None or one.high is None:
        return ["not run"]
    last = "]" if one.seeds > 1 else "], one seed"
    shown = [Number(one.mean, "+.1f"), "\\*" if star else "", " ["]
    return [*shown, Number(one.low, "+.1f"), ", ", Number(one.high, "+.1f"), last]


def check_heading(place: Place, shown: Sequence[str], computed: Sequence[str]) -> bool:
    if [plain(name) for name in shown] != list(computed):
        place.fail("heading", "all", " | ".join(shown), " | ".join(computed))
        return False
    return True
