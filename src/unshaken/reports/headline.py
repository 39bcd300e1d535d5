"""What a report says, in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unshaken.evaluation.comparison import by_method
from unshaken.evaluation.results import CLEAN, WORST_CASE, Evaluation
from unshaken.reports.views import p_text

if TYPE_CHECKING:
    from unshaken.evaluation.report import Report


def headline(report: Report) -> str:
    """The first set in plain words, of those attacked if any is: how much stays right, for which model most, by chance?

    Example:
        "Of 200 texts of sst2, rift answers 61.0% rightly under the worst of 2 attacks and plain 12.5%: 48.5 points
        more, which is more than chance (p < 0.001)."
    """
    sets = by_method(report.evaluations)
    methods = next((methods for methods in sets if methods[0][0].attacks), sets[0])
    first = methods[0][0]
    condition = first.conditions[-1]
    shares = _shares(report, methods, condition)
    start = f"Of {len(first.predictions):,} texts of {first.data.name}, "
    if len(shares) < 2:
        return start + _alone(report, methods[0])
    (reference, its), *others = shares.items()
    best, share = max(others, key=lambda item: item[1])
    return (
        f"{start}{best} answers {100 * share:.1f}% rightly{_under(first, condition)} and {reference} {100 * its:.1f}%"
        f"{_difference(report, first.data.name, best, condition)}."
    )


def _shares(report: Report, methods: list[list[Evaluation]], condition: str) -> dict[str, float]:
    """Name to accuracy: of each model, or the mean of a method's seeds; the reference first."""
    means = {(item.data, item.method): item for item in report.spreads if item.condition == condition}
    shares: dict[str, float] = {}
    for method in methods:
        first = method[0]
        if mean := means.get((first.data.name, first.model.method)):
            shares[first.model.method] = mean.accuracy.mean
            continue
        having = [item for item in method if condition in item.conditions and item.accuracy(condition).total]
        shares |= {report.name_of(item): item.accuracy(condition).value for item in having}
    return shares


def _alone(report: Report, seeds: list[Evaluation]) -> str:
    """One model, or the mean of one method's seeds."""
    evaluation = seeds[0]
    condition = evaluation.conditions[-1]
    (name, clean), *_ = _shares(report, [seeds], CLEAN).items()
    over = f" (mean of {len(seeds)} seeds)" if len(seeds) > 1 else ""
    told = f"{name} answers {100 * clean:.1f}% rightly"
    hard = _shares(report, [seeds], condition).get(name)
    if condition == CLEAN or hard is None:
        baseline = evaluation.majority_baseline
        return f"{told}{over}; always giving the most frequent label does {100 * baseline:.1f}%."
    return f"{told}, and {100 * hard:.1f}%{_under(evaluation, condition)}{over}."


def _under(evaluation: Evaluation, condition: str) -> str:
    if condition == CLEAN:
        return ""
    return (
        f" under the worst of {len(evaluation.attacks)} attacks"
        if condition == WORST_CASE
        else f" under {condition.removeprefix('then ')}"
    )


def _difference(report: Report, data: str, model: str, condition: str) -> str:
    key = (data, model, condition)
    item = next((one for one in report.comparisons if (one.data, one.model, one.condition) == key), None)
    if item is None:
        return ""
    chance = p_text(item.p_adjusted)
    p = (f"p {chance}" if chance.startswith("<") else f"p = {chance}").replace(" ", "\N{NO-BREAK SPACE}")
    over = f" over {item.seeds} seeds" if item.seeds > 1 else ""
    if not item.difference:
        return f": no difference{over}"
    if not item.significant:
        return f": {100 * item.difference:+.1f} points{over}, which chance may have done ({p})"
    more = "more" if item.difference > 0 else "fewer"
    return f": {100 * abs(item.difference):.1f} points {more}{over}, which is more than chance ({p})"
