"""`score`: run a track's suite on the models of a method and put what came out into an entry."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unshaken.attacks import Attack
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
    report = evaluate(victims, examples, attacks, out=out, resume=resume, recheck=recheck, progress=progress)
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
                held=held_marks(evaluation, attacks),
                flags=own,
            )
        )
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
    )


def clean_marks(evaluation: Evaluation) -> str:
    return "".join("01"[row.correct] for row in evaluation.predictions)


def held_marks(evaluation: Evaluation, attacks: Sequence[Attack]) -> dict[str, str]:
    """Of each attack, what became of each example. Transfers are told apart by their source."""
    found: dict[str, str] = {}
    for attack, run in zip(attacks, evaluation.attacks, strict=True):
        outcomes = {result.example_id: result.outcome for result in run.results}
        marks = {"success": "0", "skipped": "0", "failure": "1", "error": "?"}
        name = attack.name if attack.name not in found else f"{attack.name} {sum(attack.name in key for key in found)}"
        found[name] = "".join(marks[outcomes[row.id]] if row.correct else "0" for row in evaluation.predictions)
    return found
