"""A against B on the same examples: McNemar's test, a paired bootstrap interval and Holm's correction.

Methods with several training seeds in common are compared as methods: seeds and examples could both have been others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unshaken.evaluation.results import Evaluation
from unshaken.evaluation.statistics import (
    Interval,
    SeedSummary,
    aggregate,
    holm,
    mcnemar,
    over_seeds_and_examples,
    paired_bootstrap,
    wilson,
)

SIGNIFICANT = 0.05


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One model against the reference, under one condition, on the same examples; or one method, over several seeds."""

    data: str
    condition: str
    reference: str
    model: str
    total: int
    difference: float
    interval: tuple[float, float]  # 95%, of the difference: paired bootstrap, or over seeds and examples
    only_reference: int  # examples that it alone gets right, added up over seeds
    only_model: int
    p_value: float  # McNemar, exact mid-p, two-sided; over several seeds, Student's t on crossed seeds and examples
    p_adjusted: float  # the same after Holm's correction over all comparisons of the report
    seeds: int = 1  # training seeds that both have; from two on, `model` and `reference` name methods

    @property
    def significant(self) -> bool:
        return self.p_adjusted < SIGNIFICANT


def compare(evaluations: Sequence[Evaluation], names: Mapping[str, str], seed: int = 0) -> tuple[Comparison, ...]:
    """Every model against the first one evaluated on the same data, under every condition that both have met.

    A method that shares two or more training seeds with the first method is compared once, over its seeds. `names` are
    by the fingerprints of models, `seed` is that of the bootstrap.
    """
    pairs: list[Comparison] = []
    for methods in by_method(evaluations):
        first, *others = methods
        pairs += [item for other in others for item in _against(first, other, names, seed)]
        if not others:  # seeds of one method: the first is the reference for want of another
            pairs += _each_against(first[0], first[1:], names, seed)
    adjusted = holm({str(number): pair.p_value for number, pair in enumerate(pairs)})
    return tuple(replace(pair, p_adjusted=adjusted[str(number)]) for number, pair in enumerate(pairs))


def by_method(evaluations: Sequence[Evaluation]) -> list[list[list[Evaluation]]]:
    """For each set of examples, the evaluations of each method, in the order in which they first occur."""
    by_data: dict[str, dict[tuple[str, str], list[Evaluation]]] = {}
    for evaluation in evaluations:
        methods = by_data.setdefault(evaluation.data.fingerprint, {})
        methods.setdefault(evaluation.model.kind, []).append(evaluation)
    return [list(methods.values()) for methods in by_data.values()]


def _against(
    first: Sequence[Evaluation], second: Sequence[Evaluation], names: Mapping[str, str], seed: int
) -> list[Comparison]:
    before, after = _by_seed(first), _by_seed(second)
    shared = [key for key in before if key in after]
    if len(shared) < 2:
        return _each_against(first[0], second, names, seed)
    pairs = [(before[key], after[key]) for key in shared]
    met = [item for pair in pairs for item in pair]
    conditions = [name for name in first[0].conditions if all(same_condition(first[0], item, name) for item in met)]
    return [item for condition in conditions if (item := _over_seeds(pairs, condition)) is not None]


def _each_against(
    reference: Evaluation, evaluations: Sequence[Evaluation], names: Mapping[str, str], seed: int
) -> list[Comparison]:
    pairs = (
        _pair(reference, evaluation, condition, names, seed)
        for evaluation in evaluations
        for condition in reference.conditions
        if same_condition(reference, evaluation, condition)
    )
    return [pair for pair in pairs if pair is not None]


def _by_seed(evaluations: Sequence[Evaluation]) -> dict[int, Evaluation]:
    """Training seed to evaluation; of two with the same seed the first."""
    first: dict[int, Evaluation] = {}
    for evaluation in evaluations:
        if evaluation.model.training is not None:
            first.setdefault(evaluation.model.training.seed, evaluation)
    return first


def same_condition(reference: Evaluation, evaluation: Evaluation, condition: str) -> bool:
    """A condition is shared where the attacks behind it have equal settings."""
    if condition not in evaluation.conditions:
        return False
    one, other = ([(run.attack, run.settings) for run in item.behind(condition)] for item in (reference, evaluation))
    return one == other


def _pair(
    reference: Evaluation, evaluation: Evaluation, condition: str, names: Mapping[str, str], seed: int
) -> Comparison | None:
    """One model against another. None of a single example that both answered: it has no spread."""
    first, second = reference.held(condition), evaluation.held(condition)
    shared = [key for key in first if key in second]
    if len(shared) < 2:
        return None
    before, after = [first[key] for key in shared], [second[key] for key in shared]
    test = mcnemar(before, after)
    difference = paired_bootstrap(after, before, seed=seed).difference
    low, high = _widened(difference, len(shared))
    return Comparison(
        data=evaluation.data.name,
        condition=condition,
        reference=names[reference.model.fingerprint],
        model=names[evaluation.model.fingerprint],
        total=len(shared),
        difference=difference.estimate,
        interval=(low, high),
        only_reference=test.only_a,
        only_model=test.only_b,
        p_value=test.mid_p,
        p_adjusted=test.mid_p,
    )


def _over_seeds(pairs: Sequence[tuple[Evaluation, Evaluation]], condition: str) -> Comparison | None:
    """One method against another: the same seeds, the same examples. None of too few that both answered."""
    first, second = pairs[0]
    before, after = (_table([pair[side] for pair in pairs], condition) for side in (0, 1))
    change = after - before  # (seeds, examples), NaN where one of them proved nothing
    change = change[np.isfinite(change).any(axis=1)]
    if len(change) < 2 or np.isfinite(change).any(axis=0).sum() < 2:
        return None
    mean = over_seeds_and_examples([change], of_differences=True)
    total = int(np.isfinite(change).any(axis=0).sum())
    low, high = _widened(mean, total)
    p_value = mean.p_value
    assert p_value is not None  # there are two examples or more
    if mean.low == mean.high and mean.estimate:  # nothing varies: examples are counted, as no variance can be
        p_value = mcnemar([True] * total, [False] * total).mid_p
    return Comparison(
        data=second.data.name,
        condition=condition,
        reference=first.model.method,
        model=second.model.method,
        total=total,
        difference=mean.estimate,
        interval=(low, high),
        only_reference=int((change == -1).sum()),
        only_model=int((change == 1).sum()),
        p_value=p_value,
        p_adjusted=p_value,
        seeds=len(change),
    )


def _widened(difference: Interval, total: int) -> tuple[float, float]:
    """The ends of an interval; where all examples differ alike, by how many might not, for all that so few tell."""
    if difference.low < difference.high:
        return difference.low, difference.high
    value, others = difference.estimate, wilson(0, total).high  # an example more may be lost, and one be won
    return max(-1.0, value - others * (1 + value)), min(1.0, value + others * (1 - value))


def _table(evaluations: Sequence[Evaluation], condition: str) -> Any:
    """Who held what: (seeds, examples), NaN where nothing is known."""
    held = [evaluation.held(condition) for evaluation in evaluations]
    ids = [row.id for row in evaluations[0].predictions]
    return np.array([[float(one[key]) if key in one else np.nan for key in ids] for one in held])


@dataclass(frozen=True, kw_only=True)
class SeedSpread:
    """One method on one data set under one condition, over its training seeds."""

    method: str
    data: str
    condition: str
    accuracy: SeedSummary  # of each seed, with mean and spread
    interval: Interval  # of the mean, where other seeds and other examples could have been drawn


def over_seeds(evaluations: Sequence[Evaluation]) -> tuple[SeedSpread, ...]:
    """The spread of each method with two or more training seeds: each seed once, all under equal attacks."""
    return tuple(
        SeedSpread(
            method=group[0].model.method,
            data=group[0].data.name,
            condition=condition,
            accuracy=aggregate([item.accuracy(condition).value for item in having]),
            interval=mean_interval(_table(having, condition)),
        )
        for methods in by_method(evaluations)
        for group in methods
        for condition in dict.fromkeys(name for item in group for name in item.conditions)
        if len(having := alike(group, condition)) > 1
    )


def alike(group: Sequence[Evaluation], condition: str) -> list[Evaluation]:
    """What a mean is over: one evaluation a seed, of those that met the condition as the first of them did."""
    seeds = {item.model.seed: item for item in reversed(group) if _is_known(item, condition)}
    having = [item for item in group if seeds.get(item.model.seed) is item]
    return [item for item in having if same_condition(having[0], item, condition)]


def over_group(evaluations: Sequence[Evaluation], group: str) -> Interval:
    """The clean accuracy on the examples of one group, one evaluation a seed, over seeds and examples."""
    ids = [row.id for row in evaluations[0].predictions if row.group == group]
    right = [{row.id: float(row.correct) for row in item.predictions} for item in evaluations]
    return mean_interval(np.array([[one.get(key, np.nan) for key in ids] for one in right]))


def mean_interval(table: Any) -> Interval:
    """Over seeds and examples; where all are right, or none, nothing varies and Wilson's tells what that is worth."""
    interval = over_seeds_and_examples([table])
    if interval.low < interval.high:
        return interval
    total = int(np.isfinite(table).any(axis=0).sum())
    return wilson(round(interval.estimate * total), total)


def _is_known(evaluation: Evaluation, condition: str) -> bool:
    return condition in evaluation.conditions and evaluation.accuracy(condition).total > 0
