"""Reliability checks of attacks: were they strong enough, new to the model, and right about what they found?"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from unshaken.evaluation.check import Check, clear, raised, raised_if, trait, unknown
from unshaken.evaluation.results import AttackRun, Evaluation, ModelInfo, accuracy_at_budget
from unshaken.evaluation.training_record import TrainingRecord
from unshaken.proportion import Proportion
from unshaken.substitutions import All
from unshaken.substitutions.reach import HullCoverage

SEARCH_SIZES = {"population", "generations", "beam_width", "width", "steps", "restarts", "asked", "samples"}
BUDGETS = SEARCH_SIZES | {"query_budget", "time_budget"}
NOTICEABLE = 0.02  # a recheck that breaks this share of examples more is no accident of ties


def attack_checks(evaluation: Evaluation, place: str) -> Iterator[Check]:
    """All checks of one evaluation's attacks."""
    yield _transfer(evaluation, place)
    yield _same_substitutions(evaluation, place)
    yield _hull_coverage(evaluation, place)
    for name, run in zip(evaluation.attack_names, evaluation.attacks, strict=True):
        subject = f"{place}, {name}"
        yield _budget(evaluation, run, subject)
        yield _truncated(run, subject)
        yield _known_source(evaluation, run, subject)
        yield _unconfirmed(run, subject)
        if trait(run, "needs_scores"):
            yield _miscalibration(evaluation, run, subject)


def _transfer(evaluation: Evaluation, subject: str) -> Check:
    flag = "transfer-beats-direct"
    runs = list(zip(evaluation.attack_names, evaluation.attacks, strict=True))
    first = next((number for number, (_, run) in enumerate(runs) if run.attack != "transfer"), len(runs))
    left = [run for _, run in runs[first:] if run.attack == "transfer" and run.left]
    transferred = [name for name, run in runs if run.attack == "transfer" and not run.left]
    # What a direct attack did to the examples that a transfer left says nothing of the two side by side.
    direct = [name for name, run in runs if run.attack != "transfer" and not run.left]
    beside = [[pair for name in direct if (pair := _both(evaluation, other, name))[1].total] for other in transferred]
    compared = [min(pairs, key=_lead) for pairs in beside if pairs]
    settle = "strengthen the direct attack: more budget, margin scoring, or gradients (--attack hull)"
    if left:  # each of which was tried on what direct attacks had not broken
        broken = sum(run.counts.broken.hits for run in left)
        told = f"transfers broke {broken} of {len(left[0].results)} examples that direct attacks had left standing"
        if broken or not compared:
            return raised_if(broken > 0, flag, subject, told, settle)
    if not compared:
        settle = "run --attack transfer:source=MODEL, with the undefended model as its source, beside a direct attack"
        return unknown(flag, subject, "no transfer attack beside a direct one", settle)
    best = max(compared, key=_lead)
    return raised_if(_lead(best) > 0, flag, subject, best[0], settle)


def _both(evaluation: Evaluation, transfer: str, direct: str) -> tuple[str, Proportion, Proportion]:
    """What a transfer and a direct attack leave of the examples that both were tried on: each passes over others."""
    by_transfer, by_direct = evaluation.held(transfer), evaluation.held(direct)
    shared = by_transfer.keys() & by_direct.keys()
    first, second = (
        Proportion(hits=sum(held[key] for key in shared), total=len(shared)) for held in (by_transfer, by_direct)
    )
    return f"accuracy {first} under {transfer}, {second} under {direct}", first, second


def _lead(pair: tuple[str, Proportion, Proportion]) -> int:
    """How many examples more the transfer broke."""
    return pair[2].hits - pair[1].hits


def _budget(evaluation: Evaluation, run: AttackRun, subject: str) -> Check:
    flag, settle = "more-budget-helps", "repeat with twice the budget until the accuracy stops falling"
    late, told = _out_of_time(run)
    if late:
        return raised(flag, subject, told, settle)
    given = run.settings.get("query_budget")
    budget = given if isinstance(given, int) else 0
    stopped = [result for result in run.results if result.outcome == "failure" and 0 < budget <= result.queries]
    if stopped:
        half, full = accuracy_at_budget(run, [budget // 2, budget])
        evidence = (
            f"{len(stopped)} examples ended at the budget of {budget} queries; accuracy {100 * half:.1f} at half the "
            f"budget, {100 * full:.1f} at all of it"
        )
        return raised_if(full < half, flag, subject, evidence, settle)
    if told:
        return clear(flag, subject, told)
    smaller = [other for other in evaluation.attacks if _has_less_budget(other, run)]
    if smaller:
        pairs = (_of_both(run, other, "success")[:2] for other in smaller)
        broken, before = min(pairs, key=lambda pair: pair[0] - pair[1])
        evidence = f"{broken} examples broken, {before} by the same attack with less budget"
        # Only the largest search can have been too small.
        is_largest = not any(_has_less_budget(run, other) for other in evaluation.attacks)
        return raised_if(is_largest and broken > before, flag, subject, evidence, settle)
    if any(run.settings.get(key) is not None for key in SEARCH_SIZES):
        settle = "repeat with a larger search, for example twice the population, beside this one"
        return unknown(flag, subject, "one search size only; no larger one to compare", settle)
    return clear(flag, subject, "every search ran to its end")


def _out_of_time(run: AttackRun) -> tuple[int, str]:
    """How many examples were broken in the second half of the seconds that others ran out of; in words, if any did."""
    budget = run.settings.get("time_budget")
    seconds = float(budget) if isinstance(budget, int | float) else math.inf
    stopped = sum(result.outcome == "failure" and result.seconds >= seconds for result in run.results)
    late = sum(result.outcome == "success" and result.seconds > seconds / 2 for result in run.results)
    told = f"{stopped} examples ended at the budget of {seconds:g} seconds; {late} were broken in its second half"
    return (late, told) if stopped else (0, "")


def _has_less_budget(one: AttackRun, other: AttackRun) -> bool:
    """Whether two runs are the same attack but for a budget that is smaller in the first."""
    differing = _differing(one, other)
    return bool(differing) and all(
        key in BUDGETS and _size(one.settings.get(key)) < _size(other.settings.get(key)) for key in differing
    )


def _of_both(one: AttackRun, other: AttackRun, outcome: str) -> tuple[int, int, int]:
    """How many examples came to this in each, of those that both had an answer to, and how many those are."""
    tried, too = (
        {row.example_id: row.outcome == outcome for row in run.results if row.outcome != "error"}
        for run in (one, other)
    )
    both = tried.keys() & too.keys()
    return sum(tried[key] for key in both), sum(too[key] for key in both), len(both)


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
    for name, other in zip(evaluation.attack_names, evaluation.attacks, strict=True):
        if _differing(run, other) == {"scoring"} and not (run.left or other.left):  # each breaks what the other cannot
            compared.append((name, *_of_both(run, other, "failure")))
    if not compared:
        settle = "evaluate with recheck=100 (--recheck 100): margin scoring and other temperatures on 100 examples"
        return unknown(flag, subject, "not repeated under other scores", settle)
    evidence = "; ".join(f"{held} of {total} hold, {other} under {variant}" for variant, held, other, total in compared)
    worse = [variant for variant, held, other, total in compared if held - other >= max(2, NOTICEABLE * total)]
    settle = f"attack all examples under {' and '.join(worse)} and report the lowest accuracy"
    return raised_if(bool(worse), flag, subject, evidence, settle)


def _same_substitutions(evaluation: Evaluation, subject: str) -> Check:
    flag, training = "same-substitutions", evaluation.model.training
    if training is None:
        settle = "train with unshaken, which leaves a record, or attack with two substitution sets"
        return unknown(flag, subject, "the model has no record of its training", settle)
    voted = _fingerprints(evaluation.model.vote)
    sets = [own for run in evaluation.attacks for own in _sets(run.settings) if "fingerprint" in own]
    used = {str(own["fingerprint"]) for own in sets}
    read_back = _read_back(evaluation.model)
    new = {str(own["fingerprint"]) for own in sets if not _has_seen(training, own, read_back)} - voted
    if used and not new:
        user = "the vote" if used <= voted else "training or the vote" if used & voted else "training"
        evidence = f"every attack used a set that {user} used ({', '.join(sorted(key[:8] for key in used))})"
        settle = "attack with another set as well, for example --substitutions typos"
        if read := sorted({str(part.get("name")) for own in sets for part in _parts(own)} & read_back):
            evidence += f", beside what the reader maps back ({', '.join(read)})"
            settle = "attack with a set that neither knows as well, for example --substitutions dictionary:FILE"
        return raised(flag, subject, evidence, settle)
    return clear(flag, subject, f"{len(new)} substitution set(s) new to the model")


READ_BACK = {
    "typos": "spelling",
    "homoglyphs": "unicode",
    "invisible": "unicode",
    "leet": "leet",
    "spacing": "spacing",
}  # substitution set -> the reader that maps it back


def _has_seen(training: TrainingRecord, own: Mapping[str, Any], read_back: set[str]) -> bool:
    """Whether training used this set; of one that joins several, each that the reader does not map back.

    What a reader leaves of a set is known to whoever knows the set.
    """
    if isinstance(source := own.get("source"), Mapping):
        return _has_seen(training, source, set())
    left = [part for part in _parts(own) if part.get("name") not in read_back]
    joined = bool(left) and all(_has_seen(training, part, read_back) for part in left)
    return joined or training.has_seen(str(own.get("name")), str(own.get("fingerprint", "")))


def _parts(own: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The sets that a joined one joins; of a record without them, their names, as far as its provenance tells."""
    if own.get("name") != All.name:
        return []
    sources = own.get("sources")
    if not isinstance(sources, list):
        return [{"name": name} for name in re.findall(r"(?:^| and )([^:]*): ", str(own.get("provenance", "")))]
    return [part for one in sources if isinstance(one, Mapping) for part in _parts(one) or [one]]


def _read_back(model: ModelInfo) -> set[str]:
    """The sets whose words the model's reader maps back."""
    return {name for name, by in READ_BACK.items() if model.readers & {"all", by}}


def _known_source(evaluation: Evaluation, run: AttackRun, subject: str) -> Check:
    flag, reader = "knows-this-source", ", ".join(sorted(evaluation.model.readers))
    if not reader:
        return clear(flag, subject, "no reader")
    known = sorted(_names(run.settings) & _read_back(evaluation.model))
    if not known:
        return clear(flag, subject, f"the reader ({reader}) maps back none of the attack's sets")
    evidence = f"the reader ({reader}) maps back {', '.join(known)}"
    settle = f"attack with what the reader leaves, too (--substitutions unmended:{known[0]}), or with another source"
    return raised(flag, subject, evidence, settle)


def _sets(settings: Any) -> Iterator[Mapping[str, Any]]:
    """All substitution sets in an attack's settings, also of attacks inside attacks."""
    if isinstance(settings, Mapping):
        own = settings.get("substitutions")
        yield from [own] if isinstance(own, Mapping) else []
    values = settings.values() if isinstance(settings, Mapping) else settings if isinstance(settings, list) else ()
    for value in values:
        yield from _sets(value)


def _names(settings: Any) -> set[str]:
    """The names of all sets, also of the sources of one that joins several."""
    names: set[str] = set()
    for own in _sets(settings):
        names |= {str(one["name"]) for one in (own, *_parts(own)) if "name" in one}
    return names


def _fingerprints(settings: Any) -> set[str]:
    return {str(own["fingerprint"]) for own in _sets(settings) if "fingerprint" in own}


def _hull_coverage(evaluation: Evaluation, subject: str) -> Check:
    flag, training = "hull-coverage", evaluation.model.training
    coverage = None if training is None else HullCoverage.read(training.details.get("facts"))
    if coverage is None:
        return clear(flag, subject, "no hull in the record of its training")
    settle = "train with pieces='mean', or compare with methods that see the same substitutes"
    return raised_if(not coverage.is_enough, flag, subject, f"its hull held {coverage}", settle)


def _truncated(run: AttackRun, subject: str) -> Check:
    flag = "truncated-substitutions"
    if run.truncated_swaps is None:
        settle = "evaluate through Victim.from_pretrained with a fast tokenizer"
        return unknown(flag, subject, "the victim does not say which words it reads", settle)
    unseen, total = run.truncated_swaps
    evidence = f"{unseen} of {total} swaps lie behind the truncation"
    settle = "raise max_length, or restrict the attack to the words the model reads"
    return raised_if(unseen > 0, flag, subject, evidence, settle)


def _unconfirmed(run: AttackRun, subject: str) -> Check:
    flag, count = "unconfirmed", run.counts.unconfirmed
    evidence = f"{count} of {run.counts.broken.hits + count} successes of the search were not confirmed"
    settle = "attack in float32, see to what makes answers depend on the batch or on chance, and attack again"
    return raised_if(count > 0, flag, subject, evidence, settle)
