"""The numbers of a recipe: the paper's, ours, how sure ours are, and how far the two and the methods are apart."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from typing import Any, Literal

from unshaken.evaluation.statistics import over_seeds_and_examples, wilson
from unshaken.reports.views import escape_markdown
from unshaken_experiments.choice import Choice, choose
from unshaken_experiments.recipe import Claim, Column, Method, Number, Recipe
from unshaken_experiments.runs import Measured, Outcome
from unshaken_experiments.schedule import at_most

DRAWN = "in the figure"  # no number
OTHER_EXAMPLES = "its runs answered different examples"
UNKNOWN_MODEL = "the records do not say that one model answered all of them"  # older ones have no fingerprint
SEEDS_FOR_A_CLAIM = 3
FALSE_DISCOVERIES = 0.05  # at most this share of a table's stars, on average
UNITS = {what: what.replace("-", "_") for what in ("gflops", "counted-gflops", "parameters", "seconds", "cost")}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One number of a table.

    Attributes:
        ours: Mean over seeds, in percent for accuracies; None where nothing was run.
        low: Lower end of the 95% interval of the mean over other seeds and other examples; over other examples alone
            where there is one seed.
        deviation: Between seeds; None for one seed.
        gain: Ours less the reference method's on the same examples and seeds, with its interval.
        gain_seeds: How many seeds both have.
        gain_p: Two-sided p-value of the gain.
        significant: Whether the gain holds among all of its table: at least three seeds, and a false discovery rate
            of 5% (Benjamini and Hochberg). One or two trainings of each say too little about their methods.
        majority: What always answering the most frequent label gives, in percent.
        paper: Paper's encoder -> its number.
        why: Why there is no number of ours.
        failed: Run -> what ended it. A mean without them is one of the runs that went well.
        chosen: Setting -> what the method chose on held-out rows; empty where nothing was to be chosen.
        undecided: Whether there is no number because the choice cannot be made yet.
        unconfirmed: How many answers count as withstood only because the text alone was answered otherwise than beside
            the texts that a search asked about with it, over all seeds.
    """

    method: str
    column: str
    ours: float | None = None
    low: float | None = None
    high: float | None = None
    deviation: float | None = None
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    gain_seeds: int = 0
    gain_p: float | None = None
    significant: bool = False
    majority: float | None = None
    examples: int | None = None
    seeds: tuple[int, ...] = ()
    paper: dict[str, Number] | None = None
    why: str | None = None
    failed: dict[str, str] = field(default_factory=dict)
    chosen: dict[str, Any] = field(default_factory=dict)
    undecided: bool = False
    unconfirmed: int = 0

    @property
    def stands_alone(self) -> bool:
        """Whether the gain's own interval leaves out zero, with enough seeds, whatever else its table asks."""
        if self.gain_low is None or self.gain_high is None or self.gain_seeds < SEEDS_FOR_A_CLAIM:
            return False
        return self.gain_low > 0 or self.gain_high < 0

    def difference(self, encoder: str) -> float | None:
        """Ours less the paper's."""
        value = None if self.paper is None else self.paper.get(encoder)
        return None if value is None or self.ours is None else self.ours - mean_of(value)


def mean_of(number: Number) -> float:
    return float(number[0] if isinstance(number, tuple) else number)


def cells(
    recipe: Recipe,
    outcomes: Mapping[str, Outcome],
    encoder: str,
    *,
    seeds: Sequence[int] | None = None,
    changes: Mapping[str, Any] | None = None,
    examples: int | None = None,
    clean_examples: int | None = None,
) -> list[Cell]:
    """Every cell of a recipe, methods outermost. `outcomes` are by run key; the rest is as it was for `plan`."""
    limits = (examples, clean_examples)
    view = View(recipe, outcomes, encoder, tuple(seeds if seeds is not None else recipe.seeds), changes, limits)
    return starred([view.cell(method, column) for method in recipe.methods for column in recipe.columns])


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """p-values such that keeping those up to q makes at most a share q of the kept ones false, on average.

    Milder than `holm`, which allows hardly one false one among all, and the right question of a table with dozens of
    differences.

    Paper: Benjamini and Hochberg (1995).
    """
    from scipy import stats

    return [float(value) for value in stats.false_discovery_control(p_values)] if len(p_values) else []


def starred(found: Sequence[Cell]) -> list[Cell]:
    """The cells of a table with `significant` set by all of their differences together."""
    asked = [cell for cell in found if cell.gain_p is not None and cell.gain_seeds >= SEEDS_FOR_A_CLAIM]
    corrected = benjamini_hochberg([cell.gain_p for cell in asked if cell.gain_p is not None])
    stars = {
        (cell.method, cell.column)
        for cell, p_value in zip(asked, corrected, strict=True)
        if p_value <= FALSE_DISCOVERIES
    }
    return [replace(cell, significant=(cell.method, cell.column) in stars) for cell in found]


def star_counts(found: Sequence[Cell], baseline: str) -> str:
    """What a star means, and how many there are with and without the correction."""
    asked = [cell for cell in found if cell.gain is not None and cell.gain_seeds >= SEEDS_FOR_A_CLAIM]
    if not asked:
        return f"No difference from {baseline} has the {SEEDS_FOR_A_CLAIM} seeds that a `*` needs."
    alone, together = sum(cell.stands_alone for cell in asked), sum(cell.significant for cell in asked)
    return (
        f"`*`: differs from {baseline} (at least {SEEDS_FOR_A_CLAIM} seeds, false discovery rate "
        f"{FALSE_DISCOVERIES:.0%} within the table): {together} of {len(asked)} differences; "
        f"{alone} if each is judged alone, by its 95% interval."
    )


@dataclass(frozen=True)
class View:
    """One recipe on one encoder, with what was measured of its runs."""

    recipe: Recipe
    outcomes: Mapping[str, Outcome]
    encoder: str
    seeds: tuple[int, ...]
    changes: Mapping[str, Any] | None
    limits: tuple[int | None, int | None] = (None, None)
    _choices: dict[tuple[str, str], Choice] = field(default_factory=dict, compare=False)

    def cell(self, method: Method, column: Column) -> Cell:
        paper = {
            encoder: numbers[method.name][column.name]
            for encoder, numbers in self.recipe.paper_numbers.items()
            if column.name in numbers.get(method.name, {})
        }
        named: dict[str, Any] = {"method": method.name, "column": column.name, "paper": paper}
        named["failed"] = self._failed(method, column)
        choices = [self.choice(method, part) for part in self._parts(column) or [column]]
        if undecided := next((choice.why for choice in choices if choice.why is not None), None):
            return Cell(**named, why=undecided, undecided=True)
        if all(choice.values == choices[0].values for choice in choices):
            named["chosen"] = dict(choices[0].values)
        if self.is_mixed(column, method):
            return Cell(**named, why=OTHER_EXAMPLES)
        reference = next(row for row in self.recipe.methods if row.name == self.recipe.baseline)
        is_paired = method.name != reference.name and not self.is_mixed(column, method, reference)
        if column.average:
            return self._average(method, column, named, reference if is_paired else None)
        if column.measure.what == "features":
            drawn = any(outcome.features for seed in self.seeds if (outcome := self.outcome(method, column, seed)))
            return Cell(**named, why=DRAWN if drawn else self._why(method, column))
        if column.measure.what != "accuracy":
            return self._plain(method, column, named)
        found = self.marks(method, column)
        if not found:
            return Cell(**named, why=self._why(method, column))
        rival = self.marks(reference, column) if is_paired else {}
        asked = [self._measured(method, column, seed) for seed in found] if not column.parts else []
        named["unconfirmed"] = sum(one.unconfirmed or 0 for one in asked if one is not None)
        return Cell(**named, **_shares([found]), **_gains([found], [rival]), majority=self._majority(method, column))

    def is_mixed(self, column: Column, *methods: Method) -> bool:
        """Whether runs answered different examples: files may change under a path, and as many rows look alike."""
        for part in self._parts(column) or [column]:
            found = [self._measured(method, part, seed) for method in methods for seed in self.seeds]
            if len({one.data for one in found if one is not None}) > 1:
                return True
        return False

    def _parts(self, column: Column) -> list[Column]:
        return [part for part in self.recipe.columns if part.name in column.parts]

    def choice(self, method: Method, column: Column) -> Choice:
        place = (method.name, column.name)
        if place not in self._choices:
            self._choices[place] = choose(
                self.recipe, self.outcomes, self.encoder, method, column, seeds=self.seeds, changes=self.changes
            )
        return self._choices[place]

    def outcome(self, method: Method, column: Column, seed: int) -> Outcome | None:
        """Of the training behind a cell; None where it was not run, or not chosen."""
        run = self.choice(method, column).runs.get(seed)
        return None if run is None else self.outcomes.get(run.key)

    def marks(self, method: Method, column: Column) -> dict[int, str]:
        """Seed -> which examples held."""
        if column.worst_of:
            attacks = [self.marks(method, part) for part in self._parts(column)]
            seeds = set.intersection(*(set(attack) for attack in attacks))
            worst = {
                seed: _worst([attack[seed] for attack in attacks])
                for seed in sorted(seeds)
                if self._is_one_model(method, self._parts(column), seed)
            }
            return {seed: marks for seed, marks in worst.items() if marks.strip("?")}
        found = {}
        for seed in self.seeds:
            measured = self._measured(method, column, seed)
            marks = "" if measured is None else measured.marks(column.measure.group)
            if marks.strip("?"):  # something is known
                found[seed] = marks
        return found

    def _is_one_model(self, method: Method, columns: Sequence[Column], seed: int) -> bool:
        """A worst case is one of a model: not of a training and of the same one done again."""
        found = [self._measured(method, column, seed) for column in columns]
        models = {(len(one.held), one.model, one.data) for one in found if one is not None and one.model}
        return len(models) == 1 and all(one is not None and one.model for one in found)

    def _measured(self, method: Method, column: Column, seed: int) -> Measured | None:
        outcome = self.outcome(method, column, seed)
        if outcome is None:
            return None
        return outcome.measured.get(at_most(column.measure, *self.limits).key(outcome.run.settings.task))

    def _majority(self, method: Method, column: Column) -> float | None:
        if column.parts or column.measure.group is not None:
            return None
        for seed in self.seeds:
            measured = self._measured(method, column, seed)
            if measured is not None:
                return 100 * measured.majority
        return None

    def _why(self, method: Method, column: Column) -> str:
        errors = list(self._failed(method, column).values())
        if errors:
            return errors[0]
        parts = self._parts(column)
        if column.worst_of:
            seeds = set.intersection(*(set(self.marks(method, part)) for part in parts))
            if seeds and not any(self._is_one_model(method, parts, seed) for seed in seeds):
                return UNKNOWN_MODEL
        return "not all of its columns were run" if parts else "not run"

    def _failed(self, method: Method, column: Column) -> dict[str, str]:
        return {
            outcome.run.name: outcome.error
            for part in (self._parts(column) or [column])
            for run in self.choice(method, part).tried
            if (outcome := self.outcomes.get(run.key)) is not None and outcome.error
        }

    def _plain(self, method: Method, column: Column, named: dict[str, Any]) -> Cell:
        """A number of the training itself; no examples stand behind it, so it has a deviation and no interval."""
        values = {}
        for seed in self.seeds:
            outcome = self.outcome(method, column, seed)
            training = {} if outcome is None else outcome.training
            if column.measure.what == "distance" and training.get("distance"):
                values[seed] = float(training["distance"][-1][1])
            elif column.measure.what in UNITS and UNITS[column.measure.what] in training:
                values[seed] = float(training[UNITS[column.measure.what]])
        if not values:
            return Cell(**named, why=self._why(method, column))
        deviation = stdev(values.values()) if len(values) > 1 else None
        return Cell(**named, ours=fmean(values.values()), deviation=deviation, seeds=tuple(values))

    def _average(self, method: Method, column: Column, named: dict[str, Any], reference: Method | None) -> Cell:
        """The mean of the columns it names, where all of them are there; None: there is nothing to compare with."""
        columns = self._parts(column)
        found = [self.marks(method, part) for part in columns]
        if not all(found):
            return Cell(**named, why=self._why(method, column))
        rivals = [{} if reference is None else self.marks(reference, part) for part in columns]
        return Cell(**named, **_shares(found), **_gains(found, rivals))


def _worst(attacks: Sequence[str]) -> str:
    """An example is broken where one attack broke it, and unknown where none did and one could not be carried out."""
    return "".join("0" if "0" in marks else "?" if "?" in marks else "1" for marks in zip(*attacks, strict=True))


def table_of(marks: Mapping[int, str], seeds: Sequence[int]) -> Any:
    """(seeds, examples) of 1, 0 and NaN."""
    import numpy as np

    values = {"1": 1.0, "0": 0.0, "?": np.nan}
    return np.array([[values[mark] for mark in marks[seed]] for seed in seeds])


def _shares(columns: Sequence[Mapping[int, str]]) -> dict[str, Any]:
    """Mean over seeds (and columns), its interval, and the deviation between seeds."""
    import numpy as np

    seeds = sorted(set.intersection(*(set(column) for column in columns)))
    if not seeds:
        return {}
    tables = [table_of(column, seeds) for column in columns]
    examples = sum(table.shape[1] for table in tables)
    by_seed = np.mean([np.nanmean(table, axis=1) for table in tables], axis=0)
    found = over_seeds_and_examples(tables)
    if found.low == found.high:  # all answers right, or all wrong: others may not be
        found = wilson(round(found.estimate * examples), examples)
    return {
        "ours": 100 * float(by_seed.mean()),
        "low": 100 * max(0.0, found.low),
        "high": 100 * min(1.0, found.high),
        "deviation": 100 * float(by_seed.std(ddof=1)) if len(seeds) > 1 else None,
        "examples": examples,
        "seeds": tuple(seeds),
    }


def _gains(columns: Sequence[Mapping[int, str]], rivals: Sequence[Mapping[int, str]]) -> dict[str, Any]:
    """Mean difference on the same examples and seeds, with its interval; empty where there is nothing to pair."""
    seeds = sorted(set.intersection(*(set(column) for column in (*columns, *rivals))))
    pairs = list(zip(columns, rivals, strict=True))
    if not seeds or any(len(one[seed]) != len(other[seed]) for one, other in pairs for seed in seeds):
        return {}
    return difference_of([table_of(one, seeds) - table_of(other, seeds) for one, other in pairs])


def difference_of(tables: Sequence[Any]) -> dict[str, Any]:
    """The mean of differences (seeds, examples), with its interval; empty if a seed has no example known for both."""
    import numpy as np

    if not all(np.isfinite(table).any(axis=1).all() for table in tables):
        return {}
    found = over_seeds_and_examples(tables)
    return {
        "gain": 100 * found.estimate,
        "gain_low": 100 * max(-1.0, found.low),
        "gain_high": 100 * min(1.0, found.high),
        "gain_seeds": len(tables[0]),
        "gain_p": found.p_value,
    }


# -------------------------------------------------------------------------------------------------------------- claims


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A claim of a paper and what our runs say about it.

    Attributes:
        paper: The paper's difference, on the first of its encoders that has both numbers; None if it prints none.
        verdict: "repeats" if the interval of our difference is above zero; "no" if it is below zero, or leaves out a
            difference as large as the paper's; "cannot tell" otherwise; None with fewer than three seeds.
    """

    claim: Claim
    paper: float | None
    cell: Cell
    verdict: Literal["repeats", "no", "cannot tell"] | None


def judge(claim: Claim, cell: Cell, rival: Cell) -> Judged:
    """Hold a claim against our difference.

    Args:
        claim: What the paper says.
        cell: Our cell of the claim's method and column, compared with `claim.over`.
        rival: The cell of `claim.over`, for the paper's number.
    """
    pairs = [
        (mean_of((cell.paper or {})[encoder]), mean_of((rival.paper or {})[encoder]))
        for encoder in cell.paper or {}
        if encoder in (rival.paper or {})
    ]
    paper = pairs[0][0] - pairs[0][1] if pairs else None
    verdict: Literal["repeats", "no", "cannot tell"] | None = None
    if cell.gain_low is not None and cell.gain_high is not None and cell.gain_seeds >= SEEDS_FOR_A_CLAIM:
        is_refuted = cell.gain_high < max(0.0, paper or 0.0)
        verdict = "repeats" if cell.gain_low > 0 else "no" if is_refuted else "cannot tell"
    return Judged(claim=claim, paper=paper, cell=cell, verdict=verdict)


# ------------------------------------------------------------------------------------------------------------ markdown


def markdown(recipe: Recipe, found: Sequence[Cell], seeds: int | None = None, encoder: str | None = None) -> str:
    """The table: ours with its interval, and below it the paper's number.

    Args:
        encoder: Ours. The difference between ours and the paper's is shown on the paper's own encoder alone.
        seeds: How many there should be, so that numbers of fewer are marked; the most that a number has where None.
    """
    by_place = {(cell.method, cell.column): cell for cell in found}
    encoders = list(dict.fromkeys(encoder for cell in found for encoder in cell.paper or {}))
    seeds = seeds or max((len(cell.seeds) for cell in found), default=0)
    lines = [["", *(column.name for column in recipe.columns)], ["---"] * (len(recipe.columns) + 1)]
    for method in recipe.methods:
        own = [by_place[method.name, column.name] for column in recipe.columns]
        counts = {len(cell.seeds) for cell in own if cell.ours is not None}
        # What holds for the whole row is said once, beside its name.
        fewer = _fewer(counts.pop(), seeds) if len(counts) == 1 else ""
        shown = [_shown(cell, encoders, None if fewer else seeds, encoder) for cell in own]
        lines.append([escape_markdown(method.name) + fewer, *shown])
    lines[0] = [escape_markdown(name) for name in lines[0]]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    majorities = {
        column.name: by_place[recipe.methods[0].name, column.name].majority
        for column in recipe.columns
        if by_place[recipe.methods[0].name, column.name].majority is not None
    }
    if told := choices_line(recipe, found, escape_markdown):
        text += f"\n\n{told}"
    failed = _failures(recipe, found)
    if failed:
        text += "\n\nRuns that failed, which no mean holds:\n\n" + "\n".join(failed)
    if told := unconfirmed_line(recipe, found):
        text += f"\n\n{told}"
    if len(encoders) == 1:
        text += f"\n\nThe paper's encoder: {escape_markdown(encoders[0])}."
    if majorities:
        shares = ", ".join(f"{escape_markdown(name)} {value:.1f}" for name, value in majorities.items())
        text += f"\n\nAlways answering the most frequent label: {shares}."
    return text


def unconfirmed_line(recipe: Recipe, found: Sequence[Cell]) -> str:
    """What counts as withstood although a search had found an answer that is wrong: rounding decides there."""
    by_method: dict[str, list[str]] = {}
    for cell in found:
        if cell.unconfirmed:
            asked = (cell.examples or 0) * len(cell.seeds)
            by_method.setdefault(cell.method, []).append(
                f"{escape_markdown(cell.column)} {cell.unconfirmed} of {asked}"
            )
    listed = "; ".join(f"{escape_markdown(name)}: {', '.join(told)}" for name, told in by_method.items())
    return (
        f"Withstood only because the text alone was answered otherwise than in its batch: {listed}." if listed else ""
    )


def choices_line(recipe: Recipe, found: Sequence[Cell], escape: Callable[[str], str] = str) -> str:
    """What each method chose, and from what; a method that chose differently by column is named with its columns."""
    by_values: dict[str, list[str]] = {}
    keys: dict[str, None] = {}
    for method in recipe.methods:
        own: dict[str, list[str]] = {}
        for cell in found:
            if cell.method == method.name and cell.chosen:
                keys |= dict.fromkeys(cell.chosen)
                told = ", ".join(f"{key} {_value(value)}" for key, value in cell.chosen.items())
                own.setdefault(told, []).append(cell.column)
        for told, columns in own.items():
            where = "" if len(own) == 1 else f" ({', '.join(columns)})"
            by_values.setdefault(told, []).append(escape(method.name + where))
    if not by_values:
        return ""
    tried = "; ".join(f"{key} of {', '.join(_value(value) for value in recipe.choose[key])}" for key in keys)
    told = ". ".join(f"{values}: {'; '.join(methods)}" for values, methods in by_values.items())
    return f"Chosen for each method on held-out training rows, by the mean over seeds ({tried}): {told}."


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _failures(recipe: Recipe, found: Sequence[Cell]) -> list[str]:
    """A line a method and kind of error: how many runs, and what ended the first, without the advice behind it."""
    lines = []
    for method in recipe.methods:
        errors: dict[str, str] = {}
        for cell in found:
            errors |= cell.failed if cell.method == method.name else {}
        kinds: dict[str, list[str]] = {}
        for error in (errors[run] for run in sorted(errors)):
            reason = re.split(r"; |\. | Search for ", error)[0]
            kinds.setdefault(re.sub(r"\d+", "#", reason.partition(",")[0]), []).append(reason)
        for reasons in kinds.values():
            runs = f"{len(reasons)} run{'s' if len(reasons) > 1 else ''}"
            first = "" if len(set(reasons)) == 1 else "the first: "
            lines.append(f"- {escape_markdown(method.name)}, {runs}: {first}{escape_markdown(reasons[0])}")
    return lines


def _fewer(count: int, seeds: int) -> str:
    return f", {count} of {seeds} seeds" if count < seeds else ""


def _shown(cell: Cell, encoders: Sequence[str], seeds: int | None, own: str | None) -> str:
    parts = []
    if cell.ours is None:
        why = cell.why or "not run"
        state = "not known" if why == UNKNOWN_MODEL else "not run"
        told = why if why in ("not run", DRAWN) else f"{state}: {escape_markdown(why)}"
        parts.append("failed" if cell.failed and not cell.undecided else told)
    else:
        star = "\\*" if cell.significant else ""
        interval = "" if cell.low is None else f" [{cell.low:.1f}, {cell.high:.1f}]"
        ours = f"{cell.ours:.4g}" if cell.low is None else f"{cell.ours:.1f}"
        fewer = "" if seeds is None else _fewer(len(cell.seeds), seeds)
        parts.append(f"{ours}{star}{interval}{fewer}")
    for encoder, number in (cell.paper or {}).items():
        difference = cell.difference(encoder) if encoder == own else None
        apart = "" if difference is None else f" ({difference:+.1f})"
        name = "paper" if len(encoders) == 1 else escape_markdown(encoder)
        parts.append(f"{name} {_number(number)}{apart}")
    return "<br>".join(parts)


def _number(number: Number) -> str:
    return f"{number[0]:g} ± {number[1]:g}" if isinstance(number, tuple) and len(number) > 1 else f"{mean_of(number):g}"
