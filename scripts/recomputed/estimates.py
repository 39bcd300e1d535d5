"""Means, intervals, differences and stars, written anew with numpy and scipy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

SEEDS_FOR_A_STAR = 3
FALSE_STARS = 0.05
CONFIDENCE = 0.95

Marks = dict[int, np.ndarray]  # seed -> 1, 0 and NaN for each example


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and examples, in percent, with its interval if examples stand behind it."""

    mean: float
    seeds: int
    low: float | None = None
    high: float | None = None
    p: float = 1.0


def crossed(tables: Sequence[np.ndarray], least: float, most: float) -> Estimate:
    """The mean of (seeds, examples), for other seeds and other examples: two crossed random effects.

    By mean squares: the variance of the mean is (MS of seeds + MS of examples - MS of what is left) / (seeds x
    examples), and no smaller than either effect alone. Several tables are averaged; they share their seeds.
    """
    tables = [table[:, ~np.isnan(table).all(axis=0)] for table in tables]
    seeds = len(tables[0])
    seed_means = np.mean([np.nanmean(table, axis=1) for table in tables], axis=0)
    mean = float(np.mean(seed_means))
    of_seeds = float(np.sum((seed_means - mean) ** 2)) / (seeds - 1) / seeds if seeds > 1 else 0.0
    effects, left = [(of_seeds, seeds - 1)], 0.0
    for table in tables:
        examples, share = table.shape[1], len(tables) ** 2
        if examples == 1:
            return Estimate(100 * mean, seeds, 100 * least, 100 * most)
        means, middle = np.nanmean(table, axis=0), np.nanmean(table)
        spread = float(np.sum((means - np.mean(means)) ** 2)) / (examples - 1)
        effects.append((spread / examples / share, examples - 1))
        if seeds > 1:
            rest = table - means[None, :] - np.nanmean(table, axis=1)[:, None] + middle
            left += float(np.nanmean(rest**2)) / ((seeds - 1) * (examples - 1)) / share
    of_examples = math.fsum(effect for effect, _ in effects[1:])
    variance = max(of_seeds + of_examples - left, of_seeds, of_examples)
    if variance <= 0:
        return Estimate(100 * mean, seeds, 100 * mean, 100 * mean, 1.0 if mean == 0 else 0.0)
    freedom = variance**2 / sum(effect**2 / free for effect, free in effects if effect > 0)
    error = math.sqrt(variance)
    reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * error
    p = 2 * float(stats.t.sf(abs(mean) / error, freedom))
    return Estimate(100 * mean, seeds, 100 * max(least, mean - reach), 100 * min(most, mean + reach), p)


def share_of(columns: Sequence[Marks]) -> Estimate | None:
    """Accuracy over the seeds that all columns have; Wilson's interval if every answer is the same."""
    seeds = sorted(set.intersection(*map(set, columns)))
    if not seeds:
        return None
    tables = [np.stack([column[seed] for seed in seeds]) for column in columns]
    found = crossed(tables, 0.0, 1.0)
    if found.low is not None and found.low == found.high:
        examples = sum(table.shape[1] for table in tables)
        z = float(stats.norm.ppf((1 + CONFIDENCE) / 2))
        share = round(found.mean / 100 * examples) / examples
        middle = (share + z**2 / (2 * examples)) / (1 + z**2 / examples)
        half = z / (1 + z**2 / examples) * math.sqrt(share * (1 - share) / examples + z**2 / (4 * examples**2))
        return Estimate(found.mean, found.seeds, 100 * max(0.0, middle - half), 100 * min(1.0, middle + half))
    return found


def difference_of(tables: Sequence[np.ndarray]) -> Estimate | None:
    if any(np.isnan(table).all(axis=1).any() for table in tables):
        return None  # a seed has no example that is known of both
    return crossed(tables, -1.0, 1.0)


def paired(columns: Sequence[Marks], rivals: Sequence[Marks]) -> Estimate | None:
    """First minus second on the same seeds and examples."""
    seeds = sorted(set.intersection(*map(set, [*columns, *rivals])))
    pairs = [(one[seed], other[seed]) for seed in seeds for one, other in zip(columns, rivals, strict=True)]
    if not seeds or any(len(one) != len(other) for one, other in pairs):
        return None
    tables = [np.stack([one[s] - other[s] for s in seeds]) for one, other in zip(columns, rivals, strict=True)]
    return difference_of(tables)


def over_seeds(one: Marks, other: Marks) -> Estimate:
    """First minus second by one number per seed: Student's t over the seeds."""
    found = 100 * np.array([np.mean(one[seed]) - np.mean(other[seed]) for seed in sorted(one.keys() & other.keys())])
    low, high = stats.t.interval(CONFIDENCE, len(found) - 1, float(np.mean(found)), stats.sem(found))
    return Estimate(float(np.mean(found)), len(found), float(low), float(high))


def stars(found: Mapping[Any, Estimate]) -> set[Any]:
    """Benjamini and Hochberg: the largest k such that the k-th smallest p-value is at most k / m of the rate."""
    asked = sorted((one.p, number) for number, one in enumerate(found.values()) if one.seeds >= SEEDS_FOR_A_STAR)
    kept = max((k for k, (p, _) in enumerate(asked, 1) if p <= k / len(asked) * FALSE_STARS), default=0)
    places = list(found)
    return {places[number] for _, number in asked[:kept]}
