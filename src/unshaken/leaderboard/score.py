"""`score`: run a track's suite on the models of a method and put what came out into an entry."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unshaken.attacks.transfer import NO_TEXT, Transfer
from unshaken.errors import UnshakenError
from unshaken.evaluation.environment import environment, now
from unshaken.evaluation.evaluate import evaluate
from unshaken.evaluation.results import Evaluation
from unshaken.evaluation.training_record import TrainingRecord
from unshaken.examples import Examples
from unshaken.leaderboard.cost import cost_of
from unshaken.leaderboard.entry import Entry, Scored, require_seeds_of_one_method
from unshaken.leaderboard.tracks import Track, suite
from unshaken.substitutions import Substitutions
from unshaken.victims.base import Victim


def score(
    victims: Sequence[Victim],
    examples: Examples,
    track: Track,
    substitutions: Substitutions,
    *,
    name: str,
    suite_name: str = "full",
    public: Sequence[Victim] = (),
    recheck: int = 100,
    recipe: str = "",
    out: Path | str | None = None,
    resume: bool = False,
    progress: bool = False,
) -> Entry:
    """Attack every model with the track's whole suite.

    The first attack is tried on all examples. The others can only add to the worst case, so each is spent on what those
    before it have left: the score is the same, for a part of the queries.

    Args:
        victims: The models of one method, one per training seed, each a folder with its training record.
        examples: What to attack; all entries of a ranking have the same.
        track: Where the entry stands.
        substitutions: What the attacks may swap.
        name: What the board calls the method.
        suite_name: "full", or "mini" for a CPU; the two are never ranked together.
        public: Models that anyone can have, whose adversarial texts are tried too.
        recheck: Attacks are repeated on this many examples under other scores, for the flag on masked scores.
        recipe: The command or file that trained the models.
        out: A folder in which a run that was stopped goes on.
    """
    victims = list(victims)
    if not victims:
        raise UnshakenError("no model to score")
    attacks = suite(suite_name, substitutions, public)
    records = [track.require_fit(TrainingRecord.load(victim.folder), substitutions) for victim in victims]
    require_seeds_of_one_method(name, [victim.fingerprint for victim in victims], records)
    how: dict[str, Any] = {"out": out, "resume": resume, "recheck": recheck, "progress": progress}
    report = evaluate(victims, examples, attacks.first, then=attacks.last, **how)
    checks = report.checks
    models = []
    for victim, record, evaluation in zip(victims, records, report.evaluations, strict=True):
        subject = report.name_of(evaluation)
        own = tuple(
            (check.flag, check.verdict, check.evidence)
            for check in checks
            if check.subject.startswith(f"{subject} on ") or check.flag == "few-seeds"
        )
        models.append(
            Scored(
                weights=victim.name,
                fingerprint=victim.fingerprint,
                record=record,
                clean=clean_marks(evaluation),
                held=held_marks(evaluation, list(attacks.named)),
                flags=own,
            )
        )
    runs = zip(*(evaluation.attacks for evaluation in report.evaluations), strict=True)
    return Entry(
        name=name,
        track=track,
        suite=suite_name,
        data=examples.fingerprint,
        ids=tuple(row.id for row in examples),
        substitutions={"name": substitutions.name, "fingerprint": substitutions.fingerprint},
        majority=examples.majority_baseline,
        models=tuple(models),
        cost=cost_of(records[0]),
        code=environment()["code"],
        created=now(),
        recipe=recipe,
        public=tuple(
            {"name": one.source.name, "fingerprint": one.source.fingerprint}
            for one in attacks.last
            if isinstance(one, Transfer) and isinstance(one.source, Victim)
        ),
        # As it was run, not as the suite plans it: a run that goes on may have attacks that were tried on all.
        left=tuple(name for name, own in zip(attacks.named, runs, strict=True) if any(run.left for run in own)),
    )


def clean_marks(evaluation: Evaluation) -> str:
    return "".join("01"[row.correct] for row in evaluation.predictions)


def held_marks(evaluation: Evaluation, names: Sequence[str]) -> dict[str, str]:
    """Of each attack, what became of each example; ? if it was not tried, because another had broken it."""
    marks = {"success": "0", "skipped": "0", "failure": "1", "error": "?"}
    found = {}
    for name, run in zip(names, evaluation.attacks, strict=True):
        outcomes = {result.example_id: marks[result.outcome] for result in run.results}
        found[name] = "".join(outcomes.get(row.id, "?") if row.correct else "0" for row in evaluation.predictions)
    return found


def without_text(evaluation: Evaluation, names: Sequence[str]) -> dict[str, set[str]]:
    """Of each attack, the examples of which a transfer's source gave no text to try: nothing failed there."""
    return {
        name: {result.example_id for result in run.results if result.error and result.error.endswith(NO_TEXT)}
        for name, run in zip(names, evaluation.attacks, strict=True)
    }
