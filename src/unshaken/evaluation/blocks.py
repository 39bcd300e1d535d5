"""Sets of any length, a block at a time: each block is an evaluation of its own, and what is counted adds up.

Memory is that of one block. A block that is finished is never opened again, so a run of days resumes at once.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unshaken.attacks.base import Attack
from unshaken.console import terminal_table
from unshaken.display import visible
from unshaken.errors import UnshakenError
from unshaken.evaluation.evaluate import chosen_attacks, evaluate
from unshaken.evaluation.flags import BELOW_MAJORITY, below_majority
from unshaken.evaluation.report import Report
from unshaken.evaluation.results import ALL_LEVELS, CLEAN, Evaluation
from unshaken.examples import Examples
from unshaken.files import BLOCKS, locked, read_checked_json, write_checked_json, write_json
from unshaken.processes import WHOLE, Shard
from unshaken.proportion import Proportion
from unshaken.schema import decode, encode
from unshaken.victims.base import Victim

TALLY_FILE = "tally.json"  # written last: a block that has one is finished
TOTALS_FILE = "totals.json"


@dataclass(frozen=True, kw_only=True)
class Line:
    """One model under one condition."""

    model: str
    condition: str
    held: int
    total: int  # examples whose attack ended in an error are left out
    errors: int = 0
    attacked: int = 0  # examples that were right, of an attack
    queries: int = 0  # of these
    seconds: float = 0.0

    @property
    def accuracy(self) -> Proportion:
        return Proportion(hits=self.held, total=self.total)

    def __add__(self, other: Line) -> Line:
        counted = ("held", "total", "errors", "attacked", "queries", "seconds")
        return replace(self, **{key: getattr(self, key) + getattr(other, key) for key in counted})


@dataclass(frozen=True, kw_only=True)
class Raised:
    """A reliability flag that some blocks raised, or all of them together."""

    flag: str
    subject: str
    evidence: str  # of the first of them
    blocks: int


@dataclass(frozen=True, kw_only=True)
class Tally:
    """What one block or several came to.

    Attributes:
        identity: Digest of models, attacks, seed and rows: what a resumed run must share.
        rows: Examples.
        blocks: How many blocks these are.
        data: Their name.
        labels: How many rows have each label.
    """

    identity: str
    rows: int
    blocks: int
    lines: tuple[Line, ...]
    raised: tuple[Raised, ...]
    data: str
    labels: dict[str, int]

    @classmethod
    def of(cls, report: Report, identity: str) -> Tally:
        """The tally of one block."""
        lines = [
            _line(report.name_of(evaluation), evaluation, condition)
            for evaluation in report.evaluations
            for condition in evaluation.conditions
        ]
        raised = [
            Raised(flag=item.flag, subject=item.subject, evidence=item.evidence, blocks=1) for item in report.flags
        ]
        first = report.evaluations[0]
        labels = Counter(str(row.label) for row in first.predictions)
        return cls(
            identity=identity,
            rows=len(first.predictions),
            blocks=1,
            lines=tuple(lines),
            raised=tuple(raised),
            data=first.data.name,
            labels=dict(labels),
        )

    def __add__(self, other: Tally) -> Tally:
        lines = {(line.model, line.condition): line for line in self.lines}
        for line in other.lines:
            key = (line.model, line.condition)
            lines[key] = lines[key] + line if key in lines else line
        raised: dict[tuple[str, str], Raised] = {}
        for item in (*self.raised, *other.raised):
            known = raised.get((item.flag, item.subject))
            raised[item.flag, item.subject] = replace(known, blocks=known.blocks + item.blocks) if known else item
        both = Tally(
            identity=_digest([self.identity, other.identity]),
            rows=self.rows + other.rows,
            blocks=self.blocks + other.blocks,
            lines=tuple(lines.values()),
            raised=(),
            data=self.data,
            labels=dict(Counter(self.labels) + Counter(other.labels)),
        )
        others = [item for item in raised.values() if item.flag != BELOW_MAJORITY]
        return replace(both, raised=(*others, *both._below_majority()))

    def _below_majority(self) -> Iterator[Raised]:
        """Of all rows together: a block of a file that is sorted by its labels has another majority than the whole."""
        baseline = max(self.labels.values()) / self.rows
        for line in self.lines:
            if line.condition in (CLEAN, ALL_LEVELS):
                check = below_majority(f"{line.model} on {self.data}", line.accuracy, baseline)
                if check.verdict == "raised":
                    yield Raised(flag=check.flag, subject=check.subject, evidence=check.evidence, blocks=self.blocks)

    @classmethod
    def load(cls, path: Path) -> Tally:
        found = decode(cls, read_checked_json(path), str(path))
        for problem in found._contradictions():
            raise UnshakenError(f"{path}: {problem}; the file was changed after it was written")
        return found

    def _contradictions(self) -> Iterator[str]:
        """What no block comes to, and sums and shares rely on."""
        if len({(line.model, line.condition) for line in self.lines}) < len(self.lines):
            yield "two lines of one model and condition"
        if min(self.labels.values(), default=0) < 1 or sum(self.labels.values()) != self.rows:
            yield f"labels of {sum(self.labels.values())} rows, of {self.rows}"
        for line in self.lines:
            counts = line.held, line.total - line.held, line.errors, line.attacked, line.queries, line.seconds
            if min(counts) < 0 or line.total + line.errors > self.rows:
                yield f"{line.held} of {line.total} held, of {self.rows} rows"

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        rows = [
            (line.model, line.condition, str(line.accuracy), f"{line.total:,}", asked, f"{line.errors:,}")
            for line in self.lines
            for asked in [f"{line.queries / line.attacked:,.0f}" if line.attacked else ""]
        ]
        headings = ("model", "condition", "accuracy [95%]", "n", "queries", "errors")
        title = f"{self.rows:,} rows in {self.blocks:,} blocks"
        table = terminal_table(title, headings, rows, left=("condition",))
        flags = [
            Text(visible(f"{item.flag}: {item.subject}: {item.evidence} ({where})"))
            for item in self.raised
            for where in [
                "over all blocks" if item.flag == BELOW_MAJORITY else f"in {item.blocks} of {self.blocks} blocks"
            ]
        ]
        return Group(table, *flags)


def evaluate_blocks(
    victims: Any,
    blocks: Iterable[Examples],
    attacks: Attack | str | Sequence[Attack | str] = (),
    *,
    out: Path | str,
    resume: bool = False,
    seed: int = 0,
    recheck: int = 0,
    progress: bool = False,
    shard: Shard = WHOLE,
) -> Tally | None:
    """`evaluate` for sets that do not fit into memory; every argument but `blocks` is one of `evaluate`.

    Args:
        blocks: The examples, some thousands at a time, as `unshaken.tasks.load_blocks` gives them. Each is evaluated in
            `out/blocks/NUMBER`, and what all came to is in `out/totals.json`.

    Returns:
        What all blocks came to; None in every process but the first.

    Example:
        >>> evaluate_blocks(victim, load_blocks("a-million.csv", 20_000), ["pwws"], out="runs/large")
    """
    folder = Path(out)
    if (folder / BLOCKS).exists() and not resume and shard.leads:
        where = folder / BLOCKS
        raise UnshakenError(f"{where} exists; resume it (resume=True, or --resume), remove it or name another folder")
    models = [Victim.of(victim) for victim in (victims if isinstance(victims, list | tuple) else [victims])]
    chosen = chosen_attacks(attacks)
    settings = [[victim.fingerprint for victim in models], [item.settings() for item in chosen], seed, recheck]
    total: Tally | None = None
    number = -1
    with locked(folder):
        for number, rows in enumerate(blocks):
            place = folder / BLOCKS / f"{number:06d}"
            identity = _digest([settings, rows.fingerprint])
            tally = _finished(place, identity) if resume else None
            if tally is None:
                options: dict[str, Any] = {"seed": seed, "recheck": recheck, "progress": progress, "shard": shard}
                report = evaluate(models, rows, chosen, out=place, resume=resume, **options)
                if not shard.leads:
                    continue
                tally = Tally.of(report, identity)
                write_checked_json(place / TALLY_FILE, encode(tally))
            total = tally if total is None else total + tally
        if not shard.leads:
            return None
        _require_no_more(folder / BLOCKS, number + 1)
        if total is None:
            raise UnshakenError("no examples to evaluate on")
        write_json(folder / TOTALS_FILE, encode(total))
    return total


def _finished(place: Path, identity: str) -> Tally | None:
    path = place / TALLY_FILE
    if not path.exists() or b'"labels"' not in path.read_bytes():
        return None  # one of an earlier release is counted anew, from the results beside it
    tally = Tally.load(path)
    if tally.identity != identity:
        raise UnshakenError(
            f"cannot resume {place}: it was made of other rows, models, attacks or seeds; use the same ones and the "
            "same size of blocks, or another folder"
        )
    return tally


def _require_no_more(folder: Path, count: int) -> None:
    """Blocks beyond the last would be of other rows, which nobody counted."""
    beyond = sorted(path for path in folder.glob("[0-9]*") if path.name.isdecimal() and int(path.name) >= count)
    if beyond:
        raise UnshakenError(f"{beyond[0]} is of a longer set: this one has {count} blocks; use another folder")


def _line(model: str, evaluation: Evaluation, condition: str) -> Line:
    share, runs = evaluation.accuracy(condition), evaluation.behind(condition)
    results = evaluation.run(condition).results if condition in evaluation.attack_names else ()
    asked = [result.queries for result in results if result.outcome in ("success", "failure")]
    return Line(
        model=model,
        condition=evaluation.title(condition),
        held=share.hits,
        total=share.total,
        errors=len(evaluation.predictions) - share.total,
        attacked=len(asked),
        queries=sum(asked),
        seconds=sum(run.seconds for run in runs) if runs else evaluation.seconds,
    )


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
