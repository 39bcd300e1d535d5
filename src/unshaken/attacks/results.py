"""What an attack found: one `AttackResult` an example, and `AttackResults` with the numbers a report quotes."""

from __future__ import annotations

import csv
import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from html import escape
from pathlib import Path
from typing import Any, Literal, overload

from unshaken.attacks.display import Swap, changed_html, changed_text
from unshaken.display import note, spreadsheet_cell, visible
from unshaken.errors import UnshakenError
from unshaken.files import atomic_writer, parse_checked, with_check
from unshaken.proportion import Proportion
from unshaken.schema import decode

Outcome = Literal["skipped", "success", "failure", "error"]
SCHEMA = 1
SHOWN = 5  # broken texts below a table of results
# Attacks that pass over what is too large for them, or what their source gets wrong.
PASSING_OVER = ("exhaustive", "transfer")


@dataclass(frozen=True, kw_only=True)
class AttackResult:
    """What became of one example.

    Attributes:
        outcome: "skipped" where the victim was wrong to begin with, "success" where it was fooled, "failure" where it
            held, "error" where it could not answer.
        swaps: (column, word number, before, after) of each changed word, as written in the texts.
        score_before: Probability of the true label before the attack.
        score_after: The same for the adversarial texts, or for the strongest texts found where the attack failed.
        queries: Questions the algorithm asked, repeats included, as its paper counts them.
        rows: Distinct inputs that went through the model for it.
        similarity: Similarity of adversarial and original texts, where a constraint measured it.
        words: Words in the columns the attack may change.
        seconds: From start to end; examples overlap, so they do not add up to the time of the run.
        error: What went wrong: why there is no answer ("error"), or that the victim did not confirm what the search
            found ("failure").
    """

    example_id: str
    label: int
    outcome: Outcome
    original: tuple[str, ...]
    adversarial: tuple[str, ...] | None = None
    swaps: tuple[Swap, ...] = ()
    prediction: int | None = None
    adversarial_prediction: int | None = None
    score_before: float | None = None
    score_after: float | None = None
    queries: int = 0
    rows: int = 0
    similarity: float | None = None
    words: int = 0
    seconds: float = 0.0
    error: str | None = None

    def __str__(self) -> str:
        """To print: the text with an arrow from each changed word to what took its place, and what became of it."""
        return f"{changed_text(self.original, self.swaps)}\n{self._fate()}"

    def _repr_html_(self) -> str:
        """For notebooks: the text with each changed word struck through and what took its place beside it."""
        return f"<p>{changed_html(self.original, self.swaps)}<br><small>{escape(self._fate())}</small></p>"

    def _fate(self) -> str:
        before = "" if self.score_before is None else f" ({self.score_before:.0%} sure)"
        now = "" if self.adversarial_prediction is None else f", now {self.adversarial_prediction}"
        why = "" if self.error is None else f", {visible(self.error)}"
        return f"{self.outcome}: label {self.label}{before}{now}, {self.queries} queries{why}"

    @property
    def unconfirmed(self) -> bool:
        """A success in the search that the victim, asked about the text alone, did not bear out; it was withstood."""
        return self.outcome == "failure" and self.error is not None

    @classmethod
    def from_dict(cls, values: Any, where: str = "an attack result") -> AttackResult:
        return decode(cls, values, where)


@dataclass(frozen=True, kw_only=True)
class Header:
    """The first line of a results file: what was run on what."""

    schema: int
    attack: str
    settings: dict[str, Any]
    victim: dict[str, str]  # name and fingerprint


@dataclass(frozen=True, kw_only=True, repr=False)
class AttackResults(Sequence[AttackResult]):
    """The results of one attack, in the order of the examples.

    Examples that ended in an error are left out of every share and counted in `errors`.
    """

    rows: tuple[AttackResult, ...]
    attack: str
    settings: dict[str, Any] = field(default_factory=dict)
    victim: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        if not self.answered:
            return f"AttackResults({self.attack}: {len(self)} examples, none answered)"
        return (
            f"AttackResults({self.attack}: {len(self):,} examples, accuracy {self.clean_accuracy:.1%} before, "
            f"{self.accuracy_under_attack:.1%} under attack, {self.tally('success')} of {self.attacked} broken)"
        )

    def _repr_html_(self) -> str:
        """For notebooks: the sentence above, and the first texts that were broken."""
        broken = [row for row in self if row.outcome == "success"]
        more = f"<p>and {len(broken) - SHOWN} more</p>" if len(broken) > SHOWN else ""
        return f"<p><b>{escape(repr(self))}</b></p>" + "".join(row._repr_html_() for row in broken[:SHOWN]) + more

    def to_pandas(self) -> Any:
        """A DataFrame, one row per example."""
        import pandas

        return pandas.DataFrame([asdict(row) for row in self.rows])

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> AttackResult: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[AttackResult, ...]: ...
    def __getitem__(self, index: int | slice) -> AttackResult | tuple[AttackResult, ...]:
        return self.rows[index]

    def __iter__(self) -> Iterator[AttackResult]:
        return iter(self.rows)

    def tally(self, *outcomes: Outcome) -> int:
        return sum(row.outcome in outcomes for row in self.rows)

    @property
    def errors(self) -> int:
        return self.tally("error")

    @property
    def unconfirmed(self) -> int:
        """Successes of the search that did not hold when asked about alone; they count as withstood."""
        return sum(row.unconfirmed for row in self.rows)

    @property
    def attacked(self) -> int:
        """Examples the victim had right: the denominator of the success rate."""
        return self.tally("success", "failure")

    @property
    def answered(self) -> int:
        """Examples without an error: the denominator of both accuracies."""
        return len(self) - self.errors

    @property
    def clean(self) -> Proportion:
        return Proportion(hits=self.attacked, total=self.answered)

    @property
    def held(self) -> Proportion:
        """Examples that were right and stayed right; clean errors count against the victim."""
        return Proportion(hits=self.tally("failure"), total=self.answered)

    @property
    def broken(self) -> Proportion:
        """Of the examples that were right, those that no longer are."""
        return Proportion(hits=self.tally("success"), total=self.attacked)

    @property
    def clean_accuracy(self) -> float:
        return self.clean.value

    @property
    def accuracy_under_attack(self) -> float:
        return self.held.value

    @property
    def success_rate(self) -> float:
        return self.broken.value

    @property
    def queries(self) -> dict[str, float]:
        """Mean, median and largest number of queries over the attacked examples."""
        asked = [row.queries for row in self.rows if row.outcome in ("success", "failure")]
        if not asked:
            return {"mean": 0.0, "median": 0.0, "max": 0}
        return {"mean": statistics.fmean(asked), "median": statistics.median(asked), "max": max(asked)}

    @property
    def words_changed(self) -> float:
        """Mean share of words changed, over successes."""
        return _mean([len(row.swaps) / row.words for row in self.rows if row.outcome == "success" and row.words])

    @property
    def similarity(self) -> float:
        """Mean similarity to the original texts, over successes of which it was measured."""
        measured = [row.similarity for row in self.rows if row.outcome == "success" and row.similarity is not None]
        return _mean(measured)

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """95% Wilson intervals over examples."""
        return {
            "clean_accuracy": self.clean.interval,
            "accuracy_under_attack": self.held.interval,
            "success_rate": self.broken.interval,
        }

    def summary(self) -> dict[str, Any]:
        """The numbers of this run as plain JSON."""
        return {
            "attack": self.attack,
            "examples": len(self),
            "errors": self.errors,
            "unconfirmed": self.unconfirmed,
            "clean_accuracy": _rounded(self.clean_accuracy),
            "accuracy_under_attack": _rounded(self.accuracy_under_attack),
            "success_rate": _rounded(self.success_rate),
            "success_rate_denominator": self.attacked,
            "queries": {key: round(value, 1) for key, value in self.queries.items()},
            "rows": sum(row.rows for row in self.rows),
            "words_changed": _rounded(self.words_changed),
            "intervals": {key: [_rounded(bound) for bound in pair] for key, pair in self.intervals.items()},
        }

    def header(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "attack": self.attack, "settings": self.settings, "victim": self.victim}

    def to_jsonl(self, path: Path | str) -> Path:
        with atomic_writer(path) as stream:
            stream.write(result_line(self.header()))
            stream.writelines(result_line(asdict(row)) for row in self.rows)
        return Path(path)

    @classmethod
    def from_jsonl(cls, path: Path | str) -> AttackResults:
        header, rows, good = read_results(Path(path))
        say_if_torn(Path(path), len(rows), good)
        if not header:
            raise UnshakenError(f"{path} holds no results; its first line must be the header")
        return cls(rows=tuple(rows), attack=header["attack"], settings=header["settings"], victim=header["victim"])

    def to_csv(self, path: Path | str) -> Path:
        """A table for a spreadsheet. Cells that a spreadsheet would run as a formula get a leading apostrophe."""
        names = [f.name for f in fields(AttackResult)]
        with atomic_writer(path) as stream:
            writer = csv.writer(stream)
            writer.writerow(names)
            for row in self.rows:
                writer.writerow([_cell(getattr(row, name)) for name in names])
        return Path(path)


def read_results(path: Path) -> tuple[dict[str, Any], list[AttackResult], int]:
    """Header, results and the number of good bytes of a results file; a last line that is torn or bent is left out."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UnshakenError(f"cannot read {path}: {error.strerror}") from error
    records: list[Any] = []
    good = 0
    lines = content.splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        try:
            records.append(parse_checked(line, f"{path}: line {number}"))
        except UnshakenError as error:
            if 1 < number == len(lines) or not line.endswith(b"\n"):
                break
            raise UnshakenError(f"{error}; remove that line to go on without it") from error
        if not line.endswith(b"\n"):
            records.pop()
            break
        good += len(line)
    if not records:
        return {}, [], 0
    if not isinstance(records[0], dict) or records[0].get("schema") != SCHEMA:
        raise UnshakenError(f"{path} is no attack result of schema {SCHEMA}; its first line must be the header")
    decode(Header, records[0], f"{path}: line 1")
    rows = [AttackResult.from_dict(record, f"{path}: line {row}") for row, record in enumerate(records[1:], start=2)]
    return records[0], rows, good


def say_if_torn(path: Path, results: int, good: int) -> None:
    if path.stat().st_size > good:
        note(f"{path}: the last line is damaged; the {results} results before it are used")


def result_line(value: dict[str, Any]) -> str:
    """A line of a results file: it ends in a check, so that a bit that turns later is no other result."""
    return with_check(json.dumps(value, ensure_ascii=True, allow_nan=False)) + "\n"


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else math.nan


def _rounded(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)


def _cell(value: Any) -> Any:
    if isinstance(value, tuple):
        value = value[0] if len(value) == 1 and isinstance(value[0], str) else json.dumps(value, ensure_ascii=False)
    return spreadsheet_cell(value)
