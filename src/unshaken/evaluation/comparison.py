"""A against B on the same examples: McNemar's test, a paired bootstrap interval and Holm's correction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from unshaken.evaluation.results import WORST_CASE, Evaluation
from unshaken.evaluation.statistics import SeedSummary, aggregate, holm, mcnemar, paired_bootstrap

SIGNIFICANT = 0.05


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One model against the reference, under one condition, on the same examples.

    Attributes:
        interval: 95% paired bootstrap interval of the difference.
        only_reference: Examples the reference alone gets right.
        only_model: Examples the model alone gets right.
        p_value: McNemar, exact mid-p, two-sided.
        p_adjusted: The same after Holm's correction over all comparisons of the report.
    """

    data: str
    condition: str
    reference: str
    model: str
    total: int
    difference: float
    interval: tuple[float, float]
    only_reference: int
    only_model: int
    p_value: float
    p_adjusted: float

    @property
    def significant(self) -> bool:
        return self.p_adjusted < SIGNIFICANT


def compare(evaluations: Sequence[Evaluation], names: Mapping[str, str], seed: int = 0) -> tuple[Comparison, ...]:
    """Every model against the first one evaluated on the same data, under every condition that both have met.

    Args:
        evaluations: Of any models on any data.
        names: Model fingerprint to the name it goes by.
        seed: Of the bootstrap.
    """
    pairs = []
    references: dict[str, Evaluation] = {}
    for evaluation in evaluations:
        reference = references.setdefault(evaluation.data.fingerprint, evaluation)
        if reference is evaluation:
            continue
        for condition in reference.conditions:
            if _same_condition(reference, evaluation, condition):
                pairs.append(_pair(reference, evaluation, condition, names, seed))
    adjusted = holm({str(number): pair.p_value for number, pair in enumerate(pairs)})
    return tuple(replace(pair, p_adjusted=adjusted[str(number)]) for number, pair in enumerate(pairs))


def _same_condition(reference: Evaluation, evaluation: Evaluation, condition: str) -> bool:
    """A condition is shared where the attacks behind it have equal settings."""
    if condition not in evaluation.conditions:
        return False
    if condition == WORST_CASE:
        return reference.attack_names == evaluation.attack_names and all(
            _same_condition(reference, evaluation, name) for name in reference.attack_names
        )
    if condition not in reference.attack_names:
        return True
    return reference.run(condition).settings == evaluation.run(condition).settings


def _pair(
    reference: Evaluation, evaluation: Evaluation, condition: str, names: Mapping[str, str], seed: int
) -> Comparison:
    first, second = reference.held(condition), evaluation.held(condition)
    shared = [key for key in first if key in second]
    before, after = [first[key] for key in shared], [second[key] for key in shared]
    test = mcnemar(before, after)
    difference = paired_bootstrap(after, before, seed=seed).difference
    return Comparison(
        data=evaluation.data.name,
        condition=condition,
        reference=names[reference.model.fingerprint],
        model=names[evaluation.model.fingerprint],
        total=len(shared),
        difference=difference.estimate,
        interval=(difference.low, difference.high),
        only_reference=test.only_a,
        only_model=test.only_b,
        p_value=test.mid_p,
        p_adjusted=test.mid_p,
    )


@dataclass(frozen=True, kw_only=True)
class SeedSpread:
    """One method on one data set under one condition, over its training seeds."""

    method: str
    data: str
    condition: str
    accuracy: SeedSummary


def over_seeds(evaluations: Sequence[Evaluation]) -> tuple[SeedSpread, ...]:
    """The spread of each method that was evaluated with two or more training seeds."""
    values: dict[tuple[str, str, str], dict[str, float]] = {}
    for evaluation in evaluations:
        for condition in evaluation.conditions:
            key = (evaluation.model.method, evaluation.data.name, condition)
            values.setdefault(key, {})[evaluation.model.fingerprint] = evaluation.accuracy(condition).value
    return tuple(
        SeedSpread(method=method, data=data, condition=condition, accuracy=aggregate(list(found.values())))
        for (method, data, condition), found in values.items()
        if len(found) > 1
    )
