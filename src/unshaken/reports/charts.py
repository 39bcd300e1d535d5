"""What the charts of a report show, as plain numbers: drawn as SVG by the page, by matplotlib for papers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unshaken.evaluation.comparison import alike, same_condition
from unshaken.evaluation.results import CLEAN, Evaluation, accuracy_at_budget
from unshaken.proportion import Proportion

if TYPE_CHECKING:
    from unshaken.evaluation.report import Report

BUDGETS = 100  # places on the axis of queries


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Accuracy of one model under one attack that was stopped after so many queries."""

    model: str
    attack: str
    points: tuple[tuple[int, float], ...]


@dataclass(frozen=True, kw_only=True)
class Point:
    """Clean accuracy of one model, and accuracy under the hardest condition it met."""

    model: str
    method: str
    condition: str
    clean: Proportion
    hard: Proportion


def by_data(report: Report) -> list[list[Evaluation]]:
    """The evaluations of each set of examples, in the order of the report."""
    groups: dict[str, list[Evaluation]] = {}
    for evaluation in report.evaluations:
        groups.setdefault(evaluation.data.fingerprint, []).append(evaluation)
    return list(groups.values())


def conditions(group: Sequence[Evaluation]) -> list[str]:
    """Every condition that one of them met, the worst case last."""
    names = dict.fromkeys(name for evaluation in group for name in evaluation.conditions[:-1])
    return list(names | dict.fromkeys(evaluation.conditions[-1] for evaluation in group))


def first_met(group: Sequence[Evaluation], condition: str) -> Evaluation | None:
    """The first of which anything is known under a condition: what others of that name are beside."""
    return next((item for item in group if alike([item], condition)), None)


def label(group: Sequence[Evaluation], evaluation: Evaluation, condition: str) -> str:
    """What to call a condition beside the others of its name: the first has the name, and those that are alike."""
    first, told = first_met(group, condition), evaluation.title(condition)
    return told if first is None or same_condition(first, evaluation, condition) else f"{told}, other settings"


def shares(report: Report, group: Sequence[Evaluation]) -> dict[str, dict[str, Proportion]]:
    """Condition, or group of examples, to the accuracy of each model under it."""
    by_condition: dict[str, dict[str, Proportion]] = {}
    for name in conditions(group):
        for evaluation in group:
            if name in evaluation.conditions:
                shown = by_condition.setdefault(label(group, evaluation, name), {})
                shown[report.name_of(evaluation)] = evaluation.accuracy(name)
    for evaluation in group:
        for name, share in evaluation.groups.items():
            by_condition.setdefault(name, {})[report.name_of(evaluation)] = share
    return by_condition


def curves(report: Report, group: Sequence[Evaluation]) -> list[Curve]:
    """Accuracy against queries, of every search on every model; of one that ended in errors alone nothing is known."""
    searches = [(item, name, run) for item in group for name, run in item.searches.items() if run.counts.answered]
    largest = max((result.queries for _, _, run in searches for result in run.results), default=1)
    budgets = sorted({1, *(round(largest ** (step / BUDGETS)) for step in range(BUDGETS + 1))} - {0})
    return [
        Curve(
            model=report.name_of(item),
            attack=label(group, item, name),
            points=tuple(zip(budgets, accuracy_at_budget(run, budgets), strict=True)),
        )
        for item, name, run in searches
    ]


def tradeoff(report: Report, group: Sequence[Evaluation]) -> list[Point]:
    """Clean against hardest accuracy of every model that was attacked."""
    return [
        Point(
            model=report.name_of(item),
            method=item.model.method,
            condition=label(group, item, item.conditions[-1]),
            clean=item.accuracy(CLEAN),
            hard=item.accuracy(item.conditions[-1]),
        )
        for item in group
        if item.attacks and item.accuracy(item.conditions[-1]).total
    ]
