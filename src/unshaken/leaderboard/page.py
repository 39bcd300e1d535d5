"""The board as one static page: it loads nothing and sends nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unshaken.display import counted
from unshaken.evaluation.flags import FLAGS
from unshaken.files import write_text
from unshaken.leaderboard.cost import cost_of
from unshaken.leaderboard.entry import Entry, Scored
from unshaken.leaderboard.ranking import SEEDS_TO_BE_RANKED, Ranked, rank
from unshaken.leaderboard.tracks import SUITES, THREATS
from unshaken.pages import render


def build(entries: Mapping[Path, Entry], out: Path | str) -> Path:
    """Write the page of all rankings."""
    page = render(
        "leaderboard/page.html",
        title="unshaken leaderboard",
        script="leaderboard/page.js",
        tables=[_table(ranking) for ranking in rank(entries).values()],
        count=len(entries),
        flags=FLAGS,
        needed=SEEDS_TO_BE_RANKED,
    )
    return write_text(out, page)


def _table(ranking: Sequence[Ranked]) -> dict[str, Any]:
    track = ranking[0].entry.track
    return {
        "title": str(track),
        "threat": THREATS[track.threat],
        "suite": SUITES.get(ranking[0].entry.suite, ranking[0].entry.suite),
        "examples": len(ranking[0].entry.ids),
        "public": ", ".join(map(_named, ranking[0].entry.public)),
        "substitutions": _named(ranking[0].entry.substitutions),
        # One number, unless an entry says what cannot be: then nobody's is shown as everybody's.
        "majority": "% or ".join(sorted({f"{100 * one.entry.majority:.1f}" for one in ranking})),
        "rows": [_row(one) for one in sorted(ranking, key=lambda one: one.rank or math.inf)],
    }


def _named(one: Mapping[str, str]) -> str:
    return f"{one.get('name', '')} ({one.get('fingerprint', '')[:8]})"


def _unknown(model: Scored) -> set[str]:
    """Flags whose evidence was not collected, and those of which an entry says nothing: left out is not clear."""
    told = {flag for flag, _, _ in model.flags}
    return {flag for flag, verdict, _ in model.flags if verdict == "unknown"} | (FLAGS.keys() - told)


def _row(one: Ranked) -> dict[str, Any]:
    entry = one.entry
    cost = cost_of(entry.models[0].record) if entry.cost is None else entry.cost
    raised = sorted({flag for model in entry.models for flag, verdict, _ in model.flags if verdict == "raised"})
    unknown = sorted({flag for model in entry.models for flag in _unknown(model)})
    return {
        "rank": one.rank,
        "tied": one.tied,
        "name": entry.name,
        "clean": str(one.clean),
        "worst": str(one.worst),
        "worst_value": one.worst.estimate,
        "unsettled": "" if not one.unsettled else f"{one.unsettled:,} of {len(entry.models) * len(entry.ids):,}",
        "clean_value": one.clean.estimate,
        "seeds": len(entry.models),
        "cost": "" if cost is None else f"{cost:.1f}",
        "raised": raised,
        "unknown": unknown,
        "breaks": one.breaks,
        "on_record": one.on_record,
        "attacks": {name: _under(entry, name) for name in entry.models[0].held},
        "evidence": _evidence(entry),
        "trained_from": sorted({model.record.base_model for model in entry.models}),
        "weights": [f"{model.weights} (seed {model.record.seed})" for model in entry.models],
        "recipe": entry.recipe,
        "code": " ".join(entry.code.values()),
        "created": entry.created,
    }


def _evidence(entry: Entry) -> list[tuple[str, str, str]]:
    """Each flag with its verdict and evidence, once, and the seeds of those models that it is about if not of all."""
    seeds: dict[tuple[str, ...], list[int]] = {}
    for model in entry.models:
        for told in dict.fromkeys(map(tuple, model.flags)):
            seeds.setdefault(told, []).append(model.record.seed)
    found = []
    for (flag, verdict, evidence), own in sorted(seeds.items()):
        which = "" if len(own) == len(entry.models) else f" (seed {', '.join(map(str, sorted(own)))})"
        found.append((f"{flag}{which}", verdict, evidence))
    return found


def _told_nothing(model: Scored, name: str) -> bool:
    """Whether an attack could be carried out on no example that was right: there is no share of none."""
    marks = model.held[name]
    return "?" in marks and all(mark == "?" for mark, right in zip(marks, model.clean, strict=True) if right == "1")


def _under(entry: Entry, name: str) -> str:
    """What an attack did; of one on what was left in counts, since a share of it says nothing about all examples."""
    if name not in entry.left:
        if silent := sum(_told_nothing(model, name) for model in entry.models):
            models = counted(len(entry.models), "model")
            return f"does not count: in {silent:,} of {models} it could be tried on no example"
        untried = sum(model.held[name].count("?") for model in entry.models)
        told = f" of those tried; {untried:,} of {len(entry.models) * len(entry.ids):,} in all models were not"
        return f"{entry.share(name)}{told if untried else ''}"
    marks = [
        mark
        for model in entry.models
        for mark, right in zip(model.held[name], model.clean, strict=True)
        if right == "1"
    ]
    standing = "had no wording that flips them" if name == "exhaustive" else "held"
    tried = marks.count("1") + marks.count("0")
    return f"on the examples left: of {tried:,} tried in all models {marks.count('1'):,} {standing}"
