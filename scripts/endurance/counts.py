"""The lines of trials, and the table they come to."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

from trials import FAULTS

BEGIN, END = "<!-- endurance -->", "<!-- /endurance -->"
HEADING = "| trials | day | commit | all | held | refused | tracebacks | hangs | wrong with exit 0 | other |"
COLUMNS = ("held", "refused", *FAULTS)
Row = tuple[str, str, str]  # a kind, the day, and the commit that was measured
Counts = dict[Row, Counter[str]]


def counted(out: Path) -> Counts:
    """How often each kind of trial came to each verdict, by the lines of `out`."""
    counts: Counts = {}
    for line in out.read_text().splitlines() if out.exists() else ():
        found = json.loads(line)
        row = found["kind"], found["day"], found["commit"]
        counts.setdefault(row, Counter())[found["verdict"]] += found["times"]
    return counts


def done(counts: Counts) -> Counter[str]:
    """Kind -> trials, of all days and commits."""
    return sum((Counter({kind: found.total()}) for (kind, _, _), found in counts.items()), Counter())


def has_fault(counts: Counts) -> bool:
    return any(found[fault] for found in counts.values() for fault in FAULTS)


def table(counts: Counts) -> str:
    """Counts in Markdown."""
    rows = [HEADING, "|---|---|---|" + "--:|" * 7]
    for (kind, day, commit), found in [*counts.items(), (("**all**", "", ""), sum(counts.values(), Counter()))]:
        numbers = [f"{number:,}" for number in (found.total(), *(found[column] for column in COLUMNS))]
        rows.append("| " + " | ".join([kind, day, commit and f"`{commit}`", *numbers]) + " |")
    return "\n".join(rows) + "\n"


def _parts(page: Path) -> tuple[str, str, str]:
    """A page before, between and after its two marks."""
    before, rest = page.read_text().split(BEGIN)
    said, after = rest.split(END)
    return before, said, after


def written(page: Path) -> Counts:
    """Counts as `table` wrote them; its last row, the sum, names no commit."""
    counts = {}
    for line in _parts(page)[1].splitlines():
        if line.startswith("|") and "`" in line:
            kind, day, commit, _, *numbers = [cell.strip(" `").replace(",", "") for cell in line.strip("|").split("|")]
            counts[kind, day, commit] = Counter(dict(zip(COLUMNS, map(int, numbers), strict=True)))
    return counts


def together(before: Counts, counts: Counts) -> Counts:
    """New rows stand for older ones of their kind if they are as many trials; fewer go on where those stopped.

    Of two rows of one day and commit each number is the larger one: trials that are counted twice are not added up,
    and no fault is lost.
    """
    had, has = done(before), done(counts)
    kept = {row: found for row, found in before.items() if has[row[0]] < had[row[0]]}
    return kept | {row: kept.get(row, Counter()) | found for row, found in counts.items()}


def record(page: Path, counts: Counts) -> None:
    """Put counts between the page's two marks, beside what it has."""
    before, _, after = _parts(page)
    page.write_text(before + BEGIN + "\n" + table(together(written(page), counts)) + END + after)


def measured_commit(root: Path) -> str:
    words = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(words, capture_output=True, text=True).stdout.strip() or "an unknown commit"
