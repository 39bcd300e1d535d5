"""Reliability flags: signs that a number may be an illusion, each with its evidence and what would settle it.

In the spirit of AutoAttack's and RobustBench's flags. A check reads results only, so a loaded or merged report is
checked like a fresh one. Its verdict is `raised`, `clear`, or `unknown` where the evidence was not collected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from unshaken.attacks import ATTACKS, Attack
from unshaken.display import in_words
from unshaken.evaluation.results import AttackRun, Evaluation, accuracy_at_budget
from unshaken.substitutions.reach import HullCoverage

Verdict = Literal["raised", "clear", "unknown"]

FLAGS = {
    "inference-loop": "the model solves an equation at inference, which can hide gradients from attacks",
    "randomness": "equal inputs get different answers, which starves a search that compares scores",
    "vote": "the answer is a mean over rewordings, which hides from gradients and blunts swaps of single words",
    "batch-dependence": "an answer depends on the other texts of its batch",
    "transfer-beats-direct": "examples made against another model work better than attacking this one",
    "more-budget-helps": "the attack was stopped while it was still finding adversarial examples",
    "trained-on": "the model has seen these very texts in training",
    "unknown-words": "the tokenizer does not know most words, so the model cannot tell texts apart",
    "below-majority": "a classifier that always gives the most frequent label would do as well",
    "miscalibration": "scores too flat or too sharp mislead the search: other scores break more examples",
    "same-substitutions": "training has seen every substitution that the attack may use",
    "knows-this-source": "the model's reader maps the attack's words back before the model sees them",
    "hull-coverage": "training searched fewer substitutes than the attacks may write",
    "truncated-substitutions": "the attack spent swaps on words the model never sees",
    "unconfirmed": "texts that fooled the model in the search did not when asked about alone; they count as withstood",
    "few-seeds": "one training run says little about the method: seeds often differ by more than methods",
}
SEARCH_SIZES = {"population", "generations", "beam_width", "width", "steps", "restarts", "asked", "samples"}
BUDGETS = SEARCH_SIZES | {"query_budget", "time_budget"}
ENOUGH_SEEDS = 3
MOSTLY_UNKNOWN = 0.2  # of the tokens; a subword tokenizer in its own language is far below
NOTICEABLE = 0.02  # a recheck that breaks this share of examples more is no accident of ties


@dataclass(frozen=True, kw_only=True)
class Check:
    """One reliability check on one subject.

    Attributes:
        flag: Key of `FLAGS`.
        subject: The model, data and attack it speaks of.
        evidence: What was measured.
        settle: What to run to settle it; empty where it is clear.
    """

    flag: str
    subject: str
    verdict: Verdict
    evidence: str
    settle: str = ""

    @property
    def meaning(self) -> str:
        return FLAGS[self.flag]


def _trait(run: AttackRun, name: str) -> bool:
    """A class attribute of the attack: its settings tell where it is not the usual one, or our class of that name."""
    return bool(run.settings.get(name, getattr(ATTACKS.get(run.attack, Attack), name)))


def _clear(flag: str, subject: str, evidence: str) -> Check:
    return Check(flag=flag, subject=subject, verdict="clear", evidence=evidence)


def _raised(flag: str, subject: str, evidence: str, settle: str) -> Check:
    return Check(flag=flag, subject=subject, verdict="raised", evidence=evidence, settle=settle)


def _unknown(flag: str, subject: str, evidence: str, settle: str) -> Check:
    return Check(flag=flag, subject=subject, verdict="unknown", evidence=evidence, settle=settle)


def check_all(evaluations: Sequence[Evaluation], names: Mapping[str, str]) -> tuple[Check, ...]:
    """All checks on all evaluations, in the order of `FLAGS`, the raised ones of each flag first."""
    found = [check for evaluation in evaluations for check in _check(evaluation, names[evaluation.model.fingerprint])]
    found += _few_seeds(evaluations)
    flags, verdicts = list(FLAGS), ["raised", "unknown", "clear"]
    return tuple(sorted(found, key=lambda check: (flags.index(check.flag), verdicts.index(check.verdict))))


def _check(evaluation: Evaluation, name: str) -> Iterator[Check]:
    place = f"{name} on {evaluation.data.name}"
    yield _inference_loop(evaluation, place)
    yield _randomness(evaluation, place)
    yield _vote(evaluation, place)
    yield _batch_dependence(evaluation, place)
    yield _trained_on(evaluation, place)
    yield _unknown_words(evaluation, place)
    yield _below_majority(evaluation, place)
    if evaluation.attacks:
        yield _transfer(evaluation, place)
        yield _same_substitutions(evaluation, place)
        yield _hull_coverage(evaluation, place)
        for run_name, run in zip(evaluation.attack_names, evaluation.attacks, strict=True):
            subject = f"{place}, {run_name}"
            yield _budget(evaluation, run, subject)
            yield _truncated(run, subject)
            yield _known_source(evaluation, run, subject)
            yield _unconfirmed(run, subject)
            if _trait(run, "needs_scores"):
                yield _miscalibration(evaluation, run, subject)


def _inference_loop(evaluation: Evaluation, subject: str) -> Check:
    flag, connection = "inference-loop", evaluation.model.connection
    if connection is None:
        return _clear(flag, subject, "no connection")
    if connection.get("theta") == 0:
        return _clear(flag, subject, "explicit connection, no solver")
    shown = in_words({key: connection[key] for key in ("layers", "theta", "solver") if key in connection})
    white_box = [run.attack for run in evaluation.attacks if _trait(run, "white_box")]
    if white_box:
        return _clear(flag, subject, f"connected ({shown}), attacked through the solver by {', '.join(white_box)}")
    return _raised(
        flag,
        subject,
        f"connected ({shown}), and no attack took gradients through the solver",
        "run --attack hull, whose gradients pass through the solver, and repeat with other numbers of solver steps",
    )


def _randomness(evaluation: Evaluation, subject: str) -> Check:
    flag, difference, tolerance = "randomness", evaluation.probes.repeat_difference, evaluation.probes.tolerance
    evidence = f"two equal calls differ by at most {difference:.2g} in probability (tolerance {tolerance:.2g})"
    if difference <= tolerance:
        return _clear(flag, subject, evidence)
    settle = "put the model into evaluation mode, or attack the mean of many answers to each text"
    return _raised(flag, subject, evidence, settle)


def _vote(evaluation: Evaluation, subject: str) -> Check:
    flag, vote = "vote", evaluation.model.vote
    if vote is None:
        return _clear(flag, subject, "no vote")
    source = vote.get("substitutions", {})
    shown = f"mean over {vote.get('k')} fixed rewordings by {source.get('name')} at rate {vote.get('rate')}"
    wide = [run.attack for run in evaluation.attacks if _asks_widely(run)]
    if wide:
        return _clear(flag, subject, f"{shown}, attacked through the vote by {', '.join(wide)}")
    settle = "attack through the vote with a search that changes many words at once: --attack genetic"
    return _raised(flag, subject, f"{shown}, and no population or beam searched through the vote", settle)


def _asks_widely(run: AttackRun) -> bool:
    """Whether a search kept several texts at once and asked the model itself."""
    return any(run.settings.get(key) is not None for key in ("population", "beam_width", "width"))


def _batch_dependence(evaluation: Evaluation, subject: str) -> Check:
    flag, difference, tolerance = "batch-dependence", evaluation.probes.batch_difference, evaluation.probes.tolerance
    evidence = f"one text at a time and all in one batch differ by at most {difference:.2g} (tolerance {tolerance:.2g})"
    if difference <= tolerance:
        return _clear(flag, subject, evidence)
    settle = "mask padding in every layer, then evaluate with batches of one and compare"
    return _raised(flag, subject, evidence, settle)


def _trained_on(evaluation: Evaluation, subject: str) -> Check:
    flag, seen, total = "trained-on", evaluation.probes.trained_on, len(evaluation.predictions)
    if seen is None:
        settle = "train with unshaken, which leaves hashes of its training texts, and evaluate on held-out rows"
        return _unknown(flag, subject, "training left no hashes of its texts", settle)
    evidence = f"{seen:,} of {total:,} texts were trained on"
    if not seen:
        return _clear(flag, subject, evidence)
    return _raised(flag, subject, evidence, "evaluate on rows that training did not see (held-out.jsonl, a test set)")


def _unknown_words(evaluation: Evaluation, subject: str) -> Check:
    flag, share = "unknown-words", evaluation.probes.unknown_words
    if share is None:
        return _clear(flag, subject, "no tokenizer, or one without an unknown word")
    evidence = f"{100 * share:.1f}% of the tokens are unknown"
    if share <= MOSTLY_UNKNOWN:
        return _clear(flag, subject, evidence)
    settle = "check that the tokenizer is the model's own, and that the texts are in its language"
    return _raised(flag, subject, evidence, settle)


def _below_majority(evaluation: Evaluation, subject: str) -> Check:
    flag, accuracy, baseline = "below-majority", evaluation.clean, evaluation.majority_baseline
    evidence = f"accuracy {accuracy} against {100 * baseline:.1f} for the most frequent label"
    if accuracy.value > baseline or accuracy.value == 1:
        return _clear(flag, subject, evidence)
    settle = "check the label order of model and data, train longer, and read no difference at this level as robustness"
    return _raised(flag, subject, evidence, settle)


def _transfer(evaluation: Evaluation, subject: str) -> Check:
    flag = "transfer-beats-direct"
    runs = list(zip(evaluation.attack_names, evaluation.attacks, strict=True))
    transferred = [name for name, run in runs if run.attack == "transfer"]
    direct = [name for name, run in runs if run.attack != "transfer"]
    if not transferred or not direct:
        settle = "run --attack transfer:source=MODEL, with the undefended model as its source, beside a direct attack"
        return _unknown(flag, subject, "no transfer attack beside a direct one", settle)
    best_transfer, best_direct = (min(names, key=_hits_of(evaluation)) for names in (transferred, direct))
    by_transfer, by_direct = evaluation.accuracy(best_transfer), evaluation.accuracy(best_direct)
    evidence = f"accuracy {by_transfer} under {best_transfer}, {by_direct} under {best_direct}"
    if by_transfer.hits >= by_direct.hits:
        return _clear(flag, subject, evidence)
    settle = "strengthen the direct attack: more budget, margin scoring, or gradients (--attack hull)"
    return _raised(flag, subject, evidence, settle)


def _hits_of(evaluation: Evaluation) -> Callable[[str], int]:
    return lambda condition: evaluation.accuracy(condition).hits


def _budget(evaluation: Evaluation, run: AttackRun, subject: str) -> Check:
    flag, settle = "more-budget-helps", "repeat with twice the budget until the accuracy stops falling"
    given = run.settings.get("query_budget")
    budget = given if isinstance(given, int) else 0
    stopped = [result for result in run.results if result.outcome == "failure" and 0 < budget <= result.queries]
    if stopped:
        half, full = accuracy_at_budget(evaluation, run, [budget // 2, budget])
        evidence = (
            f"{len(stopped)} examples ended at the budget of {budget} queries; accuracy {100 * half:.1f} at half the "
            f"budget, {100 * full:.1f} at all of it"
        )
        return _raised(flag, subject, evidence, settle) if full < half else _clear(flag, subject, evidence)
    smaller = [other for other in evaluation.attacks if _has_less_budget(other, run)]
    if smaller:
        broken, before = run.counts.broken.hits, max(other.counts.broken.hits for other in smaller)
        evidence = f"{broken} examples broken, {before} by the same attack with less budget"
        # Only the largest search can have been too small.
        is_largest = not any(_has_less_budget(run, other) for other in evaluation.attacks)
        still_rising = is_largest and broken > before
        return _raised(flag, subject, evidence, settle) if still_rising else _clear(flag, subject, evidence)
    if any(run.settings.get(key) is not None for key in SEARCH_SIZES):
        settle = "repeat with a larger search, for example twice the population, beside this one"
        return _unknown(flag, subject, "one search size only; no larger one to compare", settle)
    return _clear(flag, subject, "every search ran to its end")


def _has_less_budget(one: AttackRun, other: AttackRun) -> bool:
    """Whether two runs are the same attack but for a budget that is smaller in the first."""
    differing = _differing(one, other)
    return bool(differing) and all(
        key in BUDGETS and _size(one.settings.get(key)) < _size(other.settings.get(key)) for key in differing
    )


def _differing(one: AttackRun, other: AttackRun) -> set[str]:
    """The settings in which two runs of one attack differ; of two attacks, their name."""
    if one.attack != other.attack:
        return {"name"}
    return {key for key in {*one.settings, *other.settings} if one.settings.get(key) != other.settings.get(key)}


def _size(budget: Any) -> float:
    return float(budget) if isinstance(budget, int | float) else float("inf")


def _miscalibration(evaluation: Evaluation, run: AttackRun, subject: str) -> Check:
    flag = "miscalibration"
    compared = [(item.variant, item.held, item.held_by_variant, item.total) for item in run.rechecks]
    held = run.counts.held.hits
    for name, other in zip(evaluation.attack_names, evaluation.attacks, strict=True):
        if _differing(run, other) == {"scoring"}:
            compared.append((name, held, run.counts.attacked - other.counts.broken.hits, len(run.results)))
    if not compared:
        settle = "evaluate with recheck=100 (--recheck 100): margin scoring and other temperatures on 100 examples"
        return _unknown(flag, subject, "not repeated under other scores", settle)
    evidence = "; ".join(f"{held} of {total} hold, {other} under {variant}" for variant, held, other, total in compared)
    worse = [variant for variant, held, other, total in compared if held - other >= max(2, NOTICEABLE * total)]
    if not worse:
        return _clear(flag, subject, evidence)
    settle = f"attack all examples under {' and '.join(worse)} and report the lowest accuracy"
    return _raised(flag, subject, evidence, settle)


def _same_substitutions(evaluation: Evaluation, subject: str) -> Check:
    flag, training = "same-substitutions", evaluation.model.training
    if training is None:
        settle = "train with unshaken, which leaves a record, or attack with two substitution sets"
        return _unknown(flag, subject, "the model has no record of its training", settle)
    seen = {known.get("fingerprint") for known in training.substitutions} | _fingerprints(evaluation.model.vote)
    used = {key for run in evaluation.attacks for key in _fingerprints(run.settings)}
    if used and used <= seen:
        evidence = f"every attack used a set that training used ({', '.join(sorted(key[:8] for key in used))})"
        return _raised(flag, subject, evidence, "attack with another set as well, for example --substitutions typos")
    return _clear(flag, subject, f"{len(used - seen)} substitution set(s) new to the model")


READ_BACK = {
    "typos": "spelling",
    "homoglyphs": "unicode",
    "invisible": "unicode",
    "leet": "leet",
    "spacing": "spacing",
}  # substitution set -> the reader that maps it back


def _known_source(evaluation: Evaluation, run: AttackRun, subject: str) -> Check:
    flag, training = "knows-this-source", evaluation.model.training
    reader = None if training is None else training.details.get("reader")
    if not isinstance(reader, str):
        return _clear(flag, subject, "training names no reader")
    names, parts = _names(run.settings), set(re.split(r"[,+]", reader))
    known = sorted(name for name in names & READ_BACK.keys() if reader == "all" or READ_BACK[name] in parts)
    if not known:
        return _clear(flag, subject, f"the reader ({reader}) maps back none of the attack's sets")
    evidence = f"the reader ({reader}) maps back {', '.join(known)}"
    return _raised(flag, subject, evidence, "attack with a source that no reader knows as well")


def _names(settings: Any) -> set[str]:
    """The names of all substitution sets in an attack's settings, also of the sources of one that joins several."""
    if isinstance(settings, Mapping):
        own = settings.get("substitutions")
        found = {str(own["name"])} if isinstance(own, Mapping) and "name" in own else set()
        if isinstance(own, Mapping):
            found |= {name for name in READ_BACK if f"{name}: " in str(own.get("provenance", ""))}
        return found.union(*(_names(value) for value in settings.values()))
    return set().union(*map(_names, settings)) if isinstance(settings, list) else set()


def _hull_coverage(evaluation: Evaluation, subject: str) -> Check:
    flag, training = "hull-coverage", evaluation.model.training
    found = None if training is None else HullCoverage.read(training.details.get("facts"))
    if found is None:
        return _clear(flag, subject, "no hull in the record of its training")
    if found.is_enough:
        return _clear(flag, subject, f"its hull held {found}")
    settle = "train with pieces='mean', or compare with methods that see the same substitutes"
    return _raised(flag, subject, f"its hull held {found}", settle)


def _fingerprints(settings: Any) -> set[str]:
    """The fingerprints of all substitution sets in an attack's settings, also of attacks inside attacks."""
    if isinstance(settings, Mapping):
        own = settings.get("substitutions")
        found = {str(own["fingerprint"])} if isinstance(own, Mapping) and "fingerprint" in own else set()
        return found.union(*(_fingerprints(value) for value in settings.values()))
    return set().union(*map(_fingerprints, settings)) if isinstance(settings, list) else set()


def _truncated(run: AttackRun, subject: str) -> Check:
    flag = "truncated-substitutions"
    if run.truncated_swaps is None:
        settle = "evaluate through Victim.from_pretrained with a fast tokenizer"
        return _unknown(flag, subject, "the victim does not say which words it reads", settle)
    unseen, total = run.truncated_swaps
    evidence = f"{unseen} of {total} swaps lie behind the truncation"
    if not unseen:
        return _clear(flag, subject, evidence)
    return _raised(flag, subject, evidence, "raise max_length, or restrict the attack to the words the model reads")


def _unconfirmed(run: AttackRun, subject: str) -> Check:
    flag, count = "unconfirmed", run.counts.unconfirmed
    evidence = f"{count} of {run.counts.broken.hits + count} successes of the search were not confirmed"
    if not count:
        return _clear(flag, subject, evidence)
    settle = "attack in float32, see to what makes answers depend on the batch or on chance, and attack again"
    return _raised(flag, subject, evidence, settle)


def _few_seeds(evaluations: Sequence[Evaluation]) -> Iterator[Check]:
    seeds: dict[tuple[str, str], set[Any]] = {}
    for evaluation in evaluations:
        training = evaluation.model.training
        seed = evaluation.model.fingerprint if training is None else training.seed
        seeds.setdefault((evaluation.model.method, evaluation.data.name), set()).add(seed)
    for (method, data), found in seeds.items():
        subject, evidence = f"{method} on {data}", f"{len(found)} training seed{'s' if len(found) > 1 else ''}"
        if len(found) >= ENOUGH_SEEDS:
            yield _clear("few-seeds", subject, evidence)
        else:
            settle = f"train with {ENOUGH_SEEDS} seeds and merge their results with unshaken report"
            yield _raised("few-seeds", subject, evidence, settle)
