"""How sure a number is: intervals over examples, paired tests of A against B, spread over seeds.

scipy counts; what is written here is which question to ask of it. `wilson`, the interval beside every accuracy, needs
the standard library alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unshaken.errors import UnshakenError
from unshaken.names import optional
from unshaken.proportion import Proportion

RESAMPLES = 9_999
_CELLS = 4_000_000  # resampled values held at once, about 32 MB


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An estimate and where the truth may lie."""

    estimate: float
    low: float
    high: float
    confidence: float
    method: str  # "wilson", "bootstrap", "student-t" or "crossed"
    p_value: float | None = None  # two-sided, of an estimate of zero; of "crossed" alone

    def __str__(self) -> str:
        """A share in per cent; what lies outside 0 to 100 is nobody's share."""
        if self.method == "bootstrap" and not 0 <= self.low <= self.high <= 1:  # as of queries: resampled shares do not
            return f"{self.estimate:.4g} [{self.low:.4g}, {self.high:.4g}]"
        return f"{100 * self.estimate:.1f} [{100 * max(0.0, self.low):.1f}, {100 * min(1.0, self.high):.1f}]"


@dataclass(frozen=True, kw_only=True)
class Difference(Interval):
    """Of two means. One of shares is shown in points, with its sign: it may lie below nothing."""

    def __str__(self) -> str:
        ends = self.estimate, self.low, self.high
        if not all(-1 <= end <= 1 for end in ends if self.method == "bootstrap"):  # as of queries
            return "{:+.4g} [{:+.4g}, {:+.4g}]".format(*ends)
        return "{:+.1f} [{:+.1f}, {:+.1f}]".format(*(100 * min(1.0, max(-1.0, end)) for end in ends))


@dataclass(frozen=True, kw_only=True)
class McNemar:
    """A against B on the same examples. Only the examples on which they differ say anything."""

    only_a: int  # examples that only A gets right
    only_b: int
    exact: float  # two-sided binomial p-value; never too small, often too large
    mid_p: float  # the same less half the observed outcome: closer to its level, see Fagerland et al. (2013)


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """Mean of A less mean of B over the same examples, with its bootstrap interval and two-sided p-value."""

    difference: Difference
    p_value: float


@dataclass(frozen=True, kw_only=True)
class SeedSummary:
    """One number per training seed, all of them kept."""

    values: tuple[float, ...]
    mean: float
    std: float | None  # of the sample (n - 1); None for one seed
    interval: Interval | None  # Student's t, of the mean; None for one seed. With three it is wide, and rightly so


def wilson(successes: int, total: int, confidence: float = 0.95) -> Interval:
    """Interval of a proportion. Holds up where the normal one fails: few examples, or rates near 0 and 1.

    Paper: Wilson (1927).

    Example:
        >>> interval = wilson(58, 148)  # IM-BERT's 39.2 % on AdvGLUE SST-2
        >>> round(interval.low, 3), round(interval.high, 3)
        (0.317, 0.472)
    """
    _check_confidence(confidence)
    if not 0 <= successes <= total or total < 1:
        raise UnshakenError(
            f"{successes} successes of {total}; there must be at least one example and no more successes"
        )
    share = Proportion(hits=successes, total=total)
    low, high = share.bounds(confidence)
    return Interval(estimate=share.value, low=low, high=high, confidence=confidence, method="wilson")


def bootstrap(
    samples: Sequence[Sequence[float]],
    statistic: Callable[..., float] | None = None,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Percentile bootstrap over examples, for numbers that are no proportion: F1, mean queries, a difference of scores.

    Args:
        samples: One or more sequences over the same examples, which are resampled together.
        statistic: `statistic(*samples)`, such as F1 of labels and predictions; the mean of one sample if None.
        confidence: Of the interval.
        resamples: How often to resample.
        seed: The same seed gives the same interval.
    """
    resampled = _bootstrap(samples, statistic, confidence, resamples, seed)
    arrays = [np.asarray(sample) for sample in samples]
    estimate = float(np.mean(arrays[0]) if statistic is None else statistic(*arrays))
    return _bootstrap_interval(estimate, resampled, confidence)


def mcnemar(a_correct: Sequence[bool], b_correct: Sequence[bool]) -> McNemar:
    """Do A and B differ in accuracy, on the same examples in the same order?

    Paper: McNemar (1947); mid-p: Fagerland, Lydersen and Laake (2013).
    """
    a, b = _paired(a_correct, b_correct)
    only_a, only_b = int(np.sum(a & ~b)), int(np.sum(~a & b))
    binomial = _scipy_stats().binom(only_a + only_b, 0.5)
    fewer = min(only_a, only_b)
    tail = float(binomial.cdf(fewer))
    mid_p = 2 * tail - float(binomial.pmf(fewer))
    return McNemar(only_a=only_a, only_b=only_b, exact=min(1.0, 2 * tail), mid_p=min(1.0, mid_p))


def paired_bootstrap(
    a: Sequence[float],
    b: Sequence[float],
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> PairedDifference:
    """How much better is A than B, on the same examples: the mean difference with its interval and p-value.

    The p-value is twice the smaller share of resamples on one side of no difference, each share with one added, so it
    is never 0 and never below 2 / (resamples + 1).

    Paper: Efron and Tibshirani (1993), chapter 15; for NLP, Koehn (2004).
    """
    if len(a) != len(b):
        raise UnshakenError(f"{len(a)} values of A and {len(b)} of B; a paired test needs the same examples")
    differences = np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
    resampled = _bootstrap([differences], None, confidence, resamples, seed)
    at_most, at_least = np.sum(resampled.bootstrap_distribution <= 0), np.sum(resampled.bootstrap_distribution >= 0)
    p_value = min(1.0, 2 * float(min(at_most, at_least) + 1) / (resamples + 1))
    interval = _bootstrap_interval(float(np.mean(differences)), resampled, confidence)
    return PairedDifference(difference=Difference(**vars(interval)), p_value=p_value)


def aggregate(values: Sequence[float], confidence: float = 0.95) -> SeedSummary:
    """Mean and spread over training seeds."""
    _check_confidence(confidence)
    if not len(values):
        raise UnshakenError("no values to aggregate; there must be one per seed")
    mean = float(np.mean(values))
    kept = tuple(float(value) for value in values)
    if len(kept) == 1:
        return SeedSummary(values=kept, mean=mean, std=None, interval=None)
    std = float(np.std(kept, ddof=1))
    margin = float(_scipy_stats().t.ppf((1 + confidence) / 2, len(kept) - 1)) * std / math.sqrt(len(kept))
    low, high = mean - margin, mean + margin
    interval = Interval(estimate=mean, low=low, high=high, confidence=confidence, method="student-t")
    return SeedSummary(values=kept, mean=mean, std=std, interval=interval)


def over_seeds_and_examples(
    tables: Sequence[Any], confidence: float = 0.95, *, of_differences: bool = False
) -> Interval:
    """Mean of results whose seeds and examples could both have been others: what a new seed on new examples gives.

    Seeds and examples are crossed random effects. The variance of the mean is that between seeds, plus that between
    examples, less that of what is left, which is in both; Student's t takes Satterthwaite's degrees of freedom. A few
    seeds that differ make a wide interval so; drawn again with replacement they make one that is too narrow. With one
    seed it is the interval over examples alone.

    Paper: Satterthwaite (1946).

    Args:
        tables: (seeds, examples) each, with NaN where nothing is known. Of several, on the same seeds, the mean is
            taken: their examples are different ones, their seed effects may be shared.
        of_differences: The tables hold what one method has above another: the interval is a `Difference`.

    Example:
        >>> interval = over_seeds_and_examples([[[1, 1, 0, 1], [1, 0, 0, 1]]])
        >>> round(interval.estimate, 3), round(interval.low, 2), round(interval.high, 2)
        (0.625, -0.24, 1.49)
    """
    _check_confidence(confidence)
    arrays = [np.asarray(table, dtype=float) for table in tables]
    arrays = [array[:, np.isfinite(array).any(axis=0)] for array in arrays]
    seeds = {len(array) for array in arrays}
    if len(seeds) != 1 or not all(array.size and np.isfinite(array).any(axis=1).all() for array in arrays):
        raise UnshakenError("tables of seeds and examples need the same seeds, and a known result of each seed")
    kind = Difference if of_differences else Interval
    by_seed = np.mean([np.nanmean(array, axis=1) for array in arrays], axis=0)  # (seeds,)
    estimate, others = float(by_seed.mean()), len(by_seed) - 1
    between_seeds = float(np.var(by_seed, ddof=1)) / len(by_seed) if others else 0.0
    parts, in_both = [(between_seeds, others)], 0.0
    for array in arrays:
        by_example, free = np.nanmean(array, axis=0), array.shape[1] - 1
        if not free:  # one example says nothing about others
            return kind(estimate=estimate, low=-math.inf, high=math.inf, confidence=confidence, method="crossed")
        parts.append((float(np.var(by_example, ddof=1)) / len(by_example) / len(arrays) ** 2, free))
        if others:
            rest = array - by_example - np.nanmean(array, axis=1, keepdims=True) + np.nanmean(array)
            in_both += float(np.nanmean(rest**2)) / others / free / len(arrays) ** 2
    between_examples = sum(part for part, _ in parts[1:])
    variance = max(between_seeds + between_examples - in_both, between_seeds, between_examples)
    margin, p_value = 0.0, float(estimate == 0)
    if variance > 0:
        # Not frozen: scipy writes each frozen distribution a documentation of its own, which takes longer than this.
        student, freedom = _scipy_stats().t, variance**2 / sum(part**2 / free for part, free in parts if part > 0)
        margin = float(student.ppf((1 + confidence) / 2, freedom)) * math.sqrt(variance)
        p_value = 2 * float(student.sf(abs(estimate) / math.sqrt(variance), freedom))
    low, high = estimate - margin, estimate + margin
    return kind(estimate=estimate, low=low, high=high, confidence=confidence, method="crossed", p_value=p_value)


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """p-values corrected for asking several questions of one data set.

    Paper: Holm (1979).

    Example:
        >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
        {'a': 0.03, 'b': 0.06, 'c': 0.06}
    """
    corrected: dict[str, float] = {}
    largest = 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[name]))
        corrected[name] = largest
    return {name: corrected[name] for name in p_values}


def _bootstrap(
    samples: Sequence[Any], statistic: Callable[..., float] | None, confidence: float, resamples: int, seed: int
) -> Any:
    _check_confidence(confidence)
    sizes = sorted({len(sample) for sample in samples})
    if len(sizes) != 1 or sizes[0] < 2:
        raise UnshakenError(f"samples of {' and '.join(map(str, sizes))} examples; bootstrap needs the same 2 or more")
    if statistic is None and len(samples) != 1:
        raise UnshakenError(f"{len(samples)} samples and no statistic; name one, or give one sample for its mean")
    return _scipy_stats().bootstrap(
        tuple(samples),
        np.mean if statistic is None else statistic,
        vectorized=statistic is None,
        paired=True,
        method="percentile",
        confidence_level=confidence,
        n_resamples=resamples,
        batch=max(1, _CELLS // sizes[0]),
        rng=np.random.default_rng(seed),
    )


def _bootstrap_interval(estimate: float, resampled: Any, confidence: float) -> Interval:
    low, high = map(float, resampled.confidence_interval)
    return Interval(estimate=estimate, low=low, high=high, confidence=confidence, method="bootstrap")


def _paired(a: Sequence[bool], b: Sequence[bool]) -> tuple[Any, Any]:
    if len(a) != len(b) or not len(a):
        raise UnshakenError(f"{len(a)} results of A and {len(b)} of B; a paired test needs the same examples")
    return np.asarray(a, dtype=bool), np.asarray(b, dtype=bool)


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise UnshakenError(f"confidence {confidence}; it must be above 0 and below 1, such as 0.95")


def _scipy_stats() -> Any:
    return optional("scipy.stats", "this statistic needs scipy: pip install 'unshaken[report]'")
