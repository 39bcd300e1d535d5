"""What a report says, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unshaken.evaluation.comparison import Comparison, alike, by_method, same_condition
from unshaken.evaluation.results import CLEAN, WORST_CASE, Evaluation
from unshaken.reports.views import p_text

if TYPE_CHECKING:
    from unshaken.evaluation.report import Report


@dataclass(frozen=True)
class _Share:
    """The accuracy of one model, or the mean of a method's seeds."""

    value: float
    totals: tuple[int, ...]  # examples that are known, of each seed

    def of(self, total: int) -> str:
        """In per cent, and of how many where some of all could not be attacked."""
        few, most = min(self.totals), max(self.totals)
        shown = f"{100 * self.value:.1f}%"
        if few == total:
            return shown
        return f"{shown} (of the {few:,}{'' if few == most else f' to {most:,}'} that could be attacked)"

    @property
    def over(self) -> str:
        return f" (mean of {len(self.totals)} seeds)" if len(self.totals) > 1 else ""


def headline(report: Report) -> str:
    """The first set in plain words, of those attacked if any is: how much stays right, for which model most, by chance?

    Of the others only those count that were attacked as the first model was.

    Example:
        "Of 200 texts of sst2, rift answers 61.0% rightly under the worst of 2 attacks and plain 12.5%: 48.5 points
        more, which is more than chance (p < 0.001)."
    """
    sets = by_method(report.evaluations)
    methods = next((methods for methods in sets if methods[0][0].attacks), sets[0])
    first = methods[0][0]
    condition, total = first.conditions[-1], len(first.predictions)
    shares = _shares(report, methods, condition)
    start = f"Of {total:,} texts of {first.data.name}, "
    if len(shares) < 2 or not _shares(report, methods[:1], condition):
        return start + _alone(report, methods[0])
    (reference, its), *others = shares.items()
    compared = {
        item.model: item for item in report.comparisons if (item.data, item.condition) == (first.data.name, condition)
    }

    def lead(other: tuple[str, _Share]) -> float:
        """On the same examples, where that is known: a share of few texts can be large by the choice of them."""
        name, share = other
        return compared[name].difference if name in compared else share.value - its.value

    best, share = max(others, key=lead)
    return (
        f"{start}{best} answers {share.of(total)} rightly{_under(first, condition)} and {reference} {its.of(total)}"
        f"{_difference(compared.get(best), total)}."
    )


def _shares(report: Report, methods: Sequence[Sequence[Evaluation]], condition: str) -> dict[str, _Share]:
    """Name to accuracy: of each model, or the mean of a method's seeds; under the attacks of the first, which leads."""
    first = methods[0][0]
    means = {(item.data, item.method): item for item in report.spreads if item.condition == condition}
    shares: dict[str, _Share] = {}
    for method in methods:
        seeds, mean = alike(method, condition), means.get((first.data.name, method[0].model.method))
        if mean and len(seeds) > 1 and same_condition(first, seeds[0], condition):
            totals = tuple(item.accuracy(condition).total for item in seeds)
            shares[mean.method] = _Share(mean.accuracy.mean, totals)
            continue
        for item in method:
            if same_condition(first, item, condition) and (found := item.accuracy(condition)).total:
                shares[report.name_of(item)] = _Share(found.value, (found.total,))
    return shares


def _alone(report: Report, seeds: Sequence[Evaluation]) -> str:
    """One model, or the mean of one method's seeds."""
    evaluation = seeds[0]
    condition, total = evaluation.conditions[-1], len(evaluation.predictions)
    (name, clean), *_ = _shares(report, [seeds], CLEAN).items()
    told = f"{name} answers {clean.of(total)} rightly"
    if not any(item.accuracy(condition).total for item in seeds if condition in item.conditions):
        return f"{told}{clean.over};{_under(evaluation, condition)} nothing is known, as each text ended in an error."
    hard = _shares(report, [seeds], condition).get(name)
    if condition == CLEAN or hard is None:
        baseline = evaluation.majority_baseline
        return f"{told}{clean.over}; always giving the most frequent label does {100 * baseline:.1f}%."
    apart = "" if clean.over == hard.over else clean.over
    return f"{told}{apart}, and {hard.of(total)}{_under(evaluation, condition)}{hard.over}."


def _under(evaluation: Evaluation, condition: str) -> str:
    if condition == CLEAN:
        return ""
    return (
        f" under the worst of {len(evaluation.attacks)} attacks"
        if condition == WORST_CASE
        else f" under {condition.removeprefix('then ')}"
    )


def _difference(item: Comparison | None, total: int) -> str:
    if item is None:
        return ""
    chance = p_text(item.p_adjusted)
    p = (f"p {chance}" if chance.startswith("<") else f"p = {chance}").replace(" ", "\N{NO-BREAK SPACE}")
    over = f" over {item.seeds} seeds" if item.seeds > 1 else ""
    if item.total < total:
        over += f" on the {item.total:,} known of both"
    if not item.difference:
        return f": no difference{over}"
    if not item.significant:
        return f": {100 * item.difference:+.1f} points{over}, which chance may have done ({p})"
    more = "more" if item.difference > 0 else "fewer"
    return f": {100 * abs(item.difference):.1f} points {more}{over}, which is more than chance ({p})"
