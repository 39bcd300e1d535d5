"""`rank`: entries of one track by their worst case, with ties unless the difference is above zero."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unshaken.evaluation.statistics import Interval, over_seeds_and_examples
from unshaken.leaderboard.entry import Entry, broken_by_others

SEEDS_TO_BE_RANKED = 3


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """An entry with its place.

    Attributes:
        rank: None with fewer than three seeds.
        tied: Whether others share the rank because the paired difference does not tell which is better.
        breaks: Examples that third parties broke and the suite had not, in all models.
        on_record: Examples that third parties broke, whatever the suite had done to them.
        unsettled: Examples, in all models, of which the worst case is not known; they count as not held.
    """

    entry: Entry
    rank: int | None
    tied: bool
    clean: Interval
    worst: Interval
    breaks: int
    on_record: int
    unsettled: int


def rank(entries: Mapping[Path, Entry]) -> dict[tuple[str, ...], list[Ranked]]:
    """Rankings by what can be compared: track, suite, examples and substitution set.

    What others broke of a model, they broke of every entry that it stands in on the same words and examples: to submit
    it again, under another name or suite, does not mend it.
    """
    groups: dict[tuple[str, ...], list[tuple[Entry, list[tuple[str, str]]]]] = {}
    told: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for path, entry in entries.items():
        told.setdefault(_threat(entry), set()).update(broken_by_others(path, entry))
    for entry in entries.values():
        own = set(itertools.product((model.fingerprint for model in entry.models), entry.ids))
        groups.setdefault(entry.comparable, []).append((entry, sorted(own & told[_threat(entry)])))
    return {key: _rank(group) for key, group in sorted(groups.items())}


def _threat(entry: Entry) -> tuple[str, str]:
    """What a text that breaks one of its models has to be a wording of, and in which words."""
    return entry.data, entry.substitutions.get("fingerprint", "")


def _rank(group: Sequence[tuple[Entry, list[tuple[str, str]]]]) -> list[Ranked]:
    ordered = sorted(group, key=lambda item: (-item[0].share("worst", item[1]).estimate, item[0].name))
    places: list[int | None] = []
    first: int | None = None  # of those that share the current rank, the best
    ranked = 0
    for number, (entry, broken) in enumerate(ordered):
        if len(entry.models) < SEEDS_TO_BE_RANKED:
            places.append(None)
            continue
        ranked += 1
        if first is None or _is_better(ordered[first], (entry, broken)):
            first = number
            places.append(ranked)
        else:
            places.append(places[first])
    return [
        Ranked(
            entry=entry,
            rank=place,
            tied=place is not None and places.count(place) > 1,
            clean=entry.share("clean"),
            worst=entry.share("worst", broken),
            breaks=_not_found_by_the_suite(entry, broken),
            on_record=len(broken),
            unsettled=entry.unsettled(broken),
        )
        for (entry, broken), place in zip(ordered, places, strict=True)
    ]


def _not_found_by_the_suite(entry: Entry, broken: Sequence[tuple[str, str]]) -> int:
    marks = {(model.fingerprint, *own) for model in entry.models for own in zip(entry.ids, model.worst, strict=True)}
    return sum((*own, "0") not in marks for own in broken)


def _is_better(one: tuple[Entry, list[tuple[str, str]]], other: tuple[Entry, list[tuple[str, str]]]) -> bool:
    """Whether the interval of the paired difference, over other seeds and other examples, lies above zero.

    On the seeds that both have, the difference may point the other way than the shares that order them: no better.
    """
    # By seed, however an entry lists its models: a seed splits and orders the rows of training alike for all methods.
    orders = [np.argsort([model.record.seed for model in entry.models]) for entry, _ in (one, other)]
    marks = [entry.marks("worst", broken) for entry, broken in (one, other)]
    tables = [table[order] for table, order in zip(marks, orders, strict=True)]
    seeds = min(map(len, tables))
    difference = tables[0][:seeds] - tables[1][:seeds]
    return over_seeds_and_examples([difference]).low > 0
