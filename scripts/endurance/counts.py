"""The lines of trials, and the table they come to."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

from trials import FAULTS

BEGIN, END = "<!-- endurance -->", "<!-- /endurance -->"
HEADING = "| trials | commit | all | held | refused | tracebacks | hangs | wrong with exit 0 | other |"
COLUMNS = ("held", "refused", *FAULTS)
Row = tuple[str, str]  # a kind, and the commit that was measured


def counted(out: Path) -> dict[Row, Counter[str]]:
    """How often each kind of trial came to each verdict, by the lines of `out`."""
    counts: dict[Row, Counter[str]] = {}
    for line in out.read_text().splitlines() if out.exists() else ():
        found = json.loads(line)
        counts.setdefault((found["kind"], found["commit"]), Counter())[found["verdict"]] += found["times"]
    return counts


def done(out: Path) -> Counter[str]:
    """Kind -> trials, of all commits."""
    return sum((Counter({kind: found.total()}) for (kind, _), found in counted(out).items()), Counter())


def has_fault(counts: dict[Row, Counter[str]]) -> bool:
    return any(found[fault] for found in counts.values() for fault in FAULTS)


def table(counts: dict[Row, Counter[str]]) -> str:
    """Counts in Markdown."""
    rows = [HEADING, "|---|---|" + "--:|" * 7]
    for (kind, commit), found in [*counts.items(), (("**all**", ""), sum(counts.values(), Counter()))]:
        cells = [kind, commit and f"`{commit}`", f"{found.total():,}", *(f"{found[column]:,}" for column in COLUMNS)]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def written(said: str) -> dict[Row, Counter[str]]:
    """Counts as `table` wrote them; its last row, the sum, names no commit."""
    counts = {}
    for line in said.splitlines():
        if line.startswith("|") and "`" in line:
            kind, commit, _, *numbers = [cell.strip(" `").replace(",", "") for cell in line.strip("|").split("|")]
            counts[kind, commit] = Counter(dict(zip(COLUMNS, map(int, numbers), strict=True)))
    return counts


def record(page: Path, counts: dict[Row, Counter[str]]) -> None:
    """Put counts between the page's two marks; what it has of kinds that were not tried again stays."""
    before, rest = page.read_text().split(BEGIN)
    said, after = rest.split(END)
    again = {kind for kind, _ in counts}
    kept = {row: found for row, found in written(said).items() if row[0] not in again}
    page.write_text(before + BEGIN + "\n" + table(kept | counts) + END + after)


def measured_commit(root: Path) -> str:
    words = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(words, capture_output=True, text=True).stdout.strip() or "an unknown commit"
