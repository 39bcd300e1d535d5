"""Reliability flags: signs that a number may be an illusion, each with its evidence and what would settle it.

In the spirit of AutoAttack's and RobustBench's flags. A check reads results only, so a loaded or merged report is
checked like a fresh one. Its verdict is `raised`, `clear`, or `unknown` where the evidence was not collected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from unshaken.display import in_words
from unshaken.evaluation.attack_checks import attack_checks
from unshaken.evaluation.check import FLAGS, Check, clear, raised, raised_if, trait, unknown
from unshaken.evaluation.results import AttackRun, Evaluation
from unshaken.proportion import Proportion

__all__ = ["FLAGS", "Check", "check_all"]

BELOW_MAJORITY = "below-majority"
ENOUGH_SEEDS = 3
MOSTLY_UNKNOWN = 0.2  # of the tokens; a subword tokenizer in its own language is far below


def check_all(evaluations: Sequence[Evaluation], names: Mapping[str, str]) -> tuple[Check, ...]:
    """All checks on all evaluations, in the order of `FLAGS`, the raised ones of each flag first."""
    checks = [check for evaluation in evaluations for check in _check(evaluation, names[evaluation.model.fingerprint])]
    checks += _few_seeds(evaluations, names)
    flags, verdicts = list(FLAGS), ["raised", "unknown", "clear"]
    return tuple(sorted(checks, key=lambda check: (flags.index(check.flag), verdicts.index(check.verdict))))


def _check(evaluation: Evaluation, name: str) -> Iterator[Check]:
    place = f"{name} on {evaluation.data.name}"
    yield _inference_loop(evaluation, place)
    yield _randomness(evaluation, place)
    yield _vote(evaluation, place)
    yield _batch_dependence(evaluation, place)
    yield _trained_on(evaluation, place)
    yield _unknown_words(evaluation, place)
    yield below_majority(place, evaluation.clean, evaluation.majority_baseline)
    if evaluation.attacks:
        yield from attack_checks(evaluation, place)


def _inference_loop(evaluation: Evaluation, subject: str) -> Check:
    flag, connection = "inference-loop", evaluation.model.connection
    if connection is None:
        return clear(flag, subject, "no connection")
    if connection.get("theta") == 0:
        return clear(flag, subject, "explicit connection, no solver")
    shown = in_words({key: connection[key] for key in ("layers", "theta", "solver") if key in connection})
    white_box = [run.attack for run in evaluation.attacks if trait(run, "white_box")]
    if white_box:
        return clear(flag, subject, f"connected ({shown}), attacked through the solver by {', '.join(white_box)}")
    return raised(
        flag,
        subject,
        f"connected ({shown}), and no attack took gradients through the solver",
        "run --attack hull, whose gradients pass through the solver, and repeat with other numbers of solver steps",
    )


def _randomness(evaluation: Evaluation, subject: str) -> Check:
    flag, difference, tolerance = "randomness", evaluation.probes.repeat_difference, evaluation.probes.tolerance
    evidence = f"two equal calls differ by at most {difference:.2g} in probability (tolerance {tolerance:.2g})"
    settle = "put the model into evaluation mode, or attack the mean of many answers to each text"
    return raised_if(not difference <= tolerance, flag, subject, evidence, settle)


def _vote(evaluation: Evaluation, subject: str) -> Check:
    flag, vote = "vote", evaluation.model.vote
    if vote is None:
        return clear(flag, subject, "no vote")
    source = vote.get("substitutions", {})
    shown = f"mean over {vote.get('k')} fixed rewordings by {source.get('name')} at rate {vote.get('rate')}"
    wide = [run.attack for run in evaluation.attacks if _asks_widely(run)]
    if wide:
        return clear(flag, subject, f"{shown}, attacked through the vote by {', '.join(wide)}")
    settle = "attack through the vote with a search that changes many words at once: --attack genetic"
    return raised(flag, subject, f"{shown}, and no population or beam searched through the vote", settle)


def _asks_widely(run: AttackRun) -> bool:
    """Whether a search kept several texts at once and asked the model itself."""
    return any(run.settings.get(key) is not None for key in ("population", "beam_width", "width"))


def _batch_dependence(evaluation: Evaluation, subject: str) -> Check:
    flag, difference, tolerance = "batch-dependence", evaluation.probes.batch_difference, evaluation.probes.tolerance
    evidence = f"one text at a time and all in one batch differ by at most {difference:.2g} (tolerance {tolerance:.2g})"
    settle = "mask padding in every layer, then evaluate with batches of one and compare"
    return raised_if(not difference <= tolerance, flag, subject, evidence, settle)


def _trained_on(evaluation: Evaluation, subject: str) -> Check:
    flag, seen, total = "trained-on", evaluation.probes.trained_on, len(evaluation.predictions)
    if seen is None:
        settle = "train with unshaken, which leaves hashes of its training texts, and evaluate on held-out rows"
        return unknown(flag, subject, "training left no hashes of its texts", settle)
    settle = "evaluate on rows that training did not see (held-out.jsonl, a test set)"
    return raised_if(bool(seen), flag, subject, f"{seen:,} of {total:,} texts were trained on", settle)


def _unknown_words(evaluation: Evaluation, subject: str) -> Check:
    flag, share = "unknown-words", evaluation.probes.unknown_words
    if share is None:
        return clear(flag, subject, "no tokenizer, or one without an unknown word")
    settle = "check that the tokenizer is the model's own, and that the texts are in its language"
    return raised_if(share > MOSTLY_UNKNOWN, flag, subject, f"{100 * share:.1f}% of the tokens are unknown", settle)


def below_majority(subject: str, accuracy: Proportion, baseline: float) -> Check:
    evidence = f"accuracy {accuracy} against {100 * baseline:.1f} for the most frequent label"
    settle = "check the label order of model and data, train longer, and read no difference at this level as robustness"
    return raised_if(not (accuracy.value > baseline or accuracy.value == 1), BELOW_MAJORITY, subject, evidence, settle)


def _few_seeds(evaluations: Sequence[Evaluation], names: Mapping[str, str]) -> Iterator[Check]:
    seeds: dict[tuple[tuple[str, str], str], dict[Any, bool]] = {}  # seed -> whether one of it was attacked
    for evaluation in evaluations:
        trained = seeds.setdefault((evaluation.model.kind, evaluation.data.name), {})
        trained[evaluation.model.seed] = bool(evaluation.attacks) or trained.get(evaluation.model.seed, False)
    for ((called, fingerprint), data), trained in seeds.items():
        subject = f"{names.get(fingerprint, called)} on {data}"
        evidence = f"{len(trained)} training seed{'s' if len(trained) > 1 else ''}"
        attacked = sum(trained.values()) or len(trained)
        if attacked < len(trained):
            evidence += f", {attacked} of them under attack"
        settle = f"train with {ENOUGH_SEEDS} seeds and merge their results with unshaken report"
        yield raised_if(attacked < ENOUGH_SEEDS, "few-seeds", subject, evidence, settle)
