"""Which of a method's candidates its row shows: the best on rows held out of training, never by what is reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from unshaken_experiments.recipe import Column, Method, Recipe
from unshaken_experiments.runs import Outcome, Run


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What one cell is read from.

    Attributes:
        runs: Seed -> its training; only seeds at which every candidate was run.
        values: What was chosen; empty where there was nothing to choose.
        tried: Every candidate's training, at every seed.
        why: Why none is chosen; None where one is.
    """

    runs: Mapping[int, Run] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    tried: tuple[Run, ...] = ()
    why: str | None = None


def choose(
    recipe: Recipe,
    outcomes: Mapping[str, Outcome],
    encoder: str,
    method: Method,
    column: Column,
    *,
    seeds: Sequence[int],
    changes: Mapping[str, Any] | None = None,
) -> Choice:
    """The candidate with the best mean held-out score over the seeds at which all were run; the first of equals.

    A candidate whose numbers were lost (NaN) at one of them is out of the running. One that was not run, that ended in
    another error or that an older version trained without a held-out score is waited for: nothing is chosen among the
    rest.
    """
    by_seed = {seed: recipe.candidates(encoder, method, column, seed, changes) for seed in seeds}
    tried = tuple(run for runs in by_seed.values() for run in runs)
    if len(tried) == len(by_seed):
        return Choice(runs=dict(zip(by_seed, tried, strict=True)), tried=tried)
    candidates = list(zip(*by_seed.values(), strict=True))  # each with a training a seed
    settings = [runs[0].settings for runs in candidates]
    differing = [key for key in recipe.choose if len({getattr(one, key) for one in settings}) > 1]
    scores = {run: score for run in tried if (score := _score(outcomes.get(run.key))) is not None}
    whole = [place for place, runs in enumerate(by_seed.values()) if all(run in scores for run in runs)]
    named = " and ".join(differing)
    if not whole:
        why = f"{named} cannot be chosen: {len(scores)} of {len(tried)} trainings have a held-out score"
        return Choice(tried=tried, why=why)
    means = [fmean(scores[runs[place]] for place in whole) for runs in candidates]
    best = max(means)
    if best == -float("inf"):
        return Choice(tried=tried, why=f"{named} cannot be chosen: every value lost its numbers")
    chosen = means.index(best)
    return Choice(
        runs={list(by_seed)[place]: candidates[chosen][place] for place in whole},
        values={key: getattr(settings[chosen], key) for key in differing},
        tried=tried,
    )


def chosen(
    recipe: Recipe,
    outcomes: Mapping[str, Outcome],
    encoder: str,
    *,
    seeds: Sequence[int],
    changes: Mapping[str, Any] | None = None,
) -> set[Run]:
    """The trainings that rows are read from.

    A row whose candidates were not all tried at every seed has none yet: the mean over more seeds may choose another.
    """
    found: set[Run] = set()
    for method in recipe.methods:
        for column in recipe.measured:
            choice = choose(recipe, outcomes, encoder, method, column, seeds=seeds, changes=changes)
            is_over = all(
                (outcome := outcomes.get(run.key)) is not None and (outcome.training or outcome.error)
                for run in choice.tried
            )
            if is_over or len(choice.tried) == len(choice.runs):
                found.update(choice.runs.values())
    return found


def _score(outcome: Outcome | None) -> float | None:
    """The more the better, and minus infinity where there can be none; None where it is not known."""
    if outcome is None:
        return None
    held_out = outcome.training.get("held_out")
    if held_out is None:
        return -float("inf") if outcome.lost_its_numbers else None
    if held_out["best"] is None:
        return -float("inf")
    return float(-held_out["best"] if held_out["by"] == "loss" else held_out["best"])
