"""The board as one static page: it loads nothing and sends nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from unshaken.display import visible
from unshaken.evaluation.flags import FLAGS
from unshaken.evaluation.statistics import Interval
from unshaken.files import write_text
from unshaken.leaderboard.entry import Entry
from unshaken.leaderboard.ranking import SEEDS_TO_BE_RANKED, Ranked, rank
from unshaken.leaderboard.tracks import SUITES, THREATS


def build(entries: Mapping[Path, Entry], out: Path | str) -> Path:
    """Write the page of all rankings."""
    from jinja2 import Environment, StrictUndefined

    folder = files("unshaken.leaderboard")
    script = folder.joinpath("page.js").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(folder.joinpath("page.html").read_text(encoding="utf-8"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    tables = [_table(key, ranking) for key, ranking in rank(entries).items()]
    page = template.render(
        tables=tables, count=len(entries), script=script, digest=digest, flags=FLAGS, needed=SEEDS_TO_BE_RANKED
    )
    return write_text(out, page)


def _table(key: tuple[str, ...], ranking: Sequence[Ranked]) -> dict[str, Any]:
    track = ranking[0].entry.track
    return {
        "title": visible(str(track)),
        "threat": THREATS[track.threat],
        "suite": SUITES.get(ranking[0].entry.suite, ranking[0].entry.suite),
        "examples": len(ranking[0].entry.ids),
        "substitutions": f"{visible(ranking[0].entry.substitutions.get('name', ''))} ({key[3][:8]})",
        "majority": f"{100 * ranking[0].entry.majority:.1f}",
        "rows": [_row(one) for one in ranking],
    }


def _row(one: Ranked) -> dict[str, Any]:
    entry = one.entry
    raised = sorted({flag for model in entry.models for flag, verdict, _ in model.flags if verdict == "raised"})
    unknown = sorted({flag for model in entry.models for flag, verdict, _ in model.flags if verdict == "unknown"})
    attacks = {name: entry.share(name) for name in entry.models[0].held}
    return {
        "rank": "" if one.rank is None else f"{one.rank}{' (tied)' if one.tied else ''}",
        "place": 10**6 if one.rank is None else one.rank,
        "name": visible(entry.name),
        "clean": _shown(one.clean),
        "worst": _shown(one.worst),
        "worst_value": one.worst.estimate,
        "clean_value": one.clean.estimate,
        "seeds": len(entry.models),
        "cost": "" if entry.cost is None else f"{entry.cost:.1f}",
        "raised": raised,
        "unknown": unknown,
        "breaks": one.breaks,
        "attacks": {visible(name): _shown(share) for name, share in attacks.items()},
        "evidence": sorted({tuple(map(visible, flag)) for model in entry.models for flag in model.flags}),
        "weights": [visible(model.weights) for model in entry.models],
        "recipe": visible(entry.recipe),
        "code": " ".join(visible(value) for value in entry.code.values()),
        "created": visible(entry.created),
    }


def _shown(share: Interval) -> str:
    return f"{100 * share.estimate:.1f} [{100 * max(0.0, share.low):.1f}, {100 * min(1.0, share.high):.1f}]"
