"""`verify`: run a part of an entry's suite again, and refuse what does not come out as claimed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from unshaken.attacks.results import PASSING_OVER
from unshaken.display import counted
from unshaken.errors import UnshakenError
from unshaken.evaluation.evaluate import evaluate
from unshaken.evaluation.flags import BELOW_MAJORITY, below_majority
from unshaken.evaluation.statistics import wilson
from unshaken.evaluation.training_record import TrainingRecord
from unshaken.examples import Examples
from unshaken.leaderboard.cost import cost_of
from unshaken.leaderboard.entry import Entry, Scored, worst_of
from unshaken.leaderboard.score import clean_marks, held_marks, without_text
from unshaken.leaderboard.tracks import Suite, suite
from unshaken.proportion import Proportion
from unshaken.substitutions import Substitutions
from unshaken.victims.base import Victim

WORST = "all attacks"
BY_CHANCE = 0.01  # how often claims that are true are refused because marks differ one way
# What some of the examples raise, all of them raise; other flags are about shares, which a part may have otherwise.
OF_THE_MODEL = {
    "inference-loop",
    "randomness",
    "vote",
    "batch-dependence",
    "trained-on",
    "same-substitutions",
    "knows-this-source",
}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a check found.

    Attributes:
        refused: Each claim that does not hold, in words; empty if the entry stands.
        checked: Models that were run again and examples whose worst case was compared; models that were not given were
            not.
        unchecked: Each model of which claims could not be checked, in words: nothing speaks against them, nor for them.
    """

    refused: tuple[str, ...]
    checked: str
    unchecked: tuple[str, ...] = ()

    @property
    def stands(self) -> bool:
        return not self.refused and not self.unchecked


def verify(
    entry: Entry,
    victims: Sequence[Victim],
    examples: Examples,
    substitutions: Substitutions,
    *,
    count: int = 50,
    seed: int = 0,
    public: Sequence[Victim] = (),
) -> Verdict:
    """Attack some of the examples again. The verifier chooses the seed, so that an entry cannot know which.

    A claim is refused if a model is another one than was scored, if a clean answer differs from what was claimed, or
    if the claimed share of examples that hold, under one attack or in the worst case, lies outside the 95% interval of
    what was measured. An interval of 50 examples is wide, but they are the same examples: it is refused as well if
    those whose mark differs, over all models, fell with the attacker more often than a fair coin would have it. What
    the record beside the weights says of sets, seed and cost has to be what the entry says and to fit its track, and
    flags that come out raised have to be told. What the entry tried on all examples is tried on all, and the rest on
    what is left. A claim about an example that could not be attacked here is not checked, and then no entry stands.
    Where the source of a transfer gets an example wrong, there is no text to try, and nothing failed.
    """
    by_fingerprint = {victim.fingerprint: victim for victim in victims}
    entry.require_examples(examples)
    entry.require_substitutions(substitutions)
    public = entry.same_public(public)
    places = np.sort(np.random.default_rng(seed).permutation(len(entry.ids))[:count])
    part = examples.part(entry.ids[place] for place in places)
    refused, unchecked, differing, run, compared = [], [], [], 0, 0
    if not math.isclose(entry.majority, examples.majority_baseline):
        refused.append(f"the majority baseline is {examples.majority_baseline:.1%}, not {entry.majority:.1%}")
    cost = cost_of(entry.models[0].record)
    if entry.cost is not None and (cost is None or not math.isclose(entry.cost, cost, rel_tol=0.01)):
        refused.append(f"its record of training does not cost {entry.cost:.1f} passes")
    for model in entry.models:
        victim = by_fingerprint.get(model.fingerprint)
        if victim is None:
            refused.append(f"{model.weights}: no model with the fingerprint {model.fingerprint[:12]} was given")
            continue
        run += 1
        refused += _misrecorded(entry, model, victim, substitutions)
        found = _checked(entry, model, victim, part, places, suite(entry.suite, substitutions, public))
        refused += found.refused
        unchecked += found.unchecked
        differing += found.differing
        compared += found.compared
    refused += _one_sided(differing)
    models = counted(run, "model") if run == len(entry.models) else f"{run} of {counted(len(entry.models), 'model')}"
    total = run * len(places)
    number = f"{counted(len(places), 'example')} each" if compared == total else f"{compared:,} of {total:,} examples"
    checked = f"{models}, {number}" if run else "nothing was attacked"
    return Verdict(refused=tuple(refused), checked=checked, unchecked=tuple(unchecked))


def _misrecorded(entry: Entry, model: Scored, victim: Victim, substitutions: Substitutions) -> Iterator[str]:
    """Where the record beside the weights is not the entry's: by that, a model stands in its track at its cost."""
    try:
        beside = entry.track.require_fit(TrainingRecord.load(victim.folder), substitutions)
    except UnshakenError as error:
        yield f"{model.weights}: {error}"
        return
    one, other = (
        (own.method, own.seed, own.base_model, own.task, own.used, own.recipe, cost_of(own))
        for own in (model.record, beside)
    )
    if one != other:
        yield f"{model.weights}: the entry's record of its training is not the one beside the weights"


def _one_sided(differing: Sequence[bool]) -> list[str]:
    """Whether the examples whose mark differs were mostly claimed to hold; rounding errs both ways."""
    total, fallen = len(differing), sum(differing)
    chance = sum(math.comb(total, number) for number in range(fallen, total + 1)) / 2**total
    if chance >= BY_CHANCE:
        return []
    return [f"in all models {fallen} examples that it claims to hold are broken, and {total - fallen} the other way"]


@dataclass(frozen=True, kw_only=True)
class _Found:
    """Of one model: what is refused and what was not checked, and what came of the worst case.

    Attributes:
        compared: Examples whose worst case is both claimed and measured.
        differing: Of each of them that differs, whether it was claimed to hold.
    """

    refused: list[str]
    unchecked: list[str]
    compared: int
    differing: list[bool]


def _checked(entry: Entry, model: Scored, victim: Victim, part: Examples, places: np.ndarray, attacks: Suite) -> _Found:
    first = {name: attack for name, attack in attacks.named.items() if name not in entry.left}
    last = {name: attack for name, attack in attacks.named.items() if name in entry.left}
    report = evaluate(victim, part, list(first.values()), then=list(last.values()))
    again, refused, differing, compared = report.evaluations[0], [], [], 0
    missing: set[int] = set()  # of the examples, those that are claimed and could not be attacked
    failed: dict[str, set[int]] = {}  # the same of each attack that may pass over examples, and did not mean to
    told = {flag for flag, verdict, _ in model.flags if verdict == "raised"}
    raised = [check.flag for check in report.checks if check.verdict == "raised" and check.flag in OF_THE_MODEL]
    right = Proportion(hits=model.clean.count("1"), total=len(model.clean))  # all its claims, not those of a part
    if below_majority(model.weights, right, entry.majority).verdict == "raised":
        raised.append(BELOW_MAJORITY)
    for flag in dict.fromkeys(raised):
        if flag not in told:
            refused.append(f"{model.weights}: the flag {flag} is raised, which the entry does not tell")
    clean, claimed = clean_marks(again), "".join(model.clean[place] for place in places)
    wrong = [entry.ids[place] for place, one, other in zip(places, clean, claimed, strict=True) if one != other]
    if wrong:
        refused.append(f"{model.weights}: {len(wrong)} clean answers are not as claimed, such as {wrong[0]!r}")
    measured_marks, claims = held_marks(again, [*first, *last]), {**model.held, WORST: model.worst}
    worst, textless = worst_of(measured_marks), without_text(again, [*first, *last])
    for name, marks in {**measured_marks, WORST: worst}.items():
        if name not in claims:
            refused.append(f"{model.weights}: the entry does not have the attack {name}")
            continue
        # What is not known to an entry is no claim, and no way out: in the score it counts as not held.
        own = [claims[name][place] for place in places]
        pairs = [(one == "1", other == "1") for one, other in zip(marks, own, strict=True) if "?" not in (one, other)]
        if name == WORST:
            compared, differing = len(pairs), [other for one, other in pairs if one != other]
        untried = {at for at, (one, other) in enumerate(zip(marks, own, strict=True)) if one == "?" != other}
        if name.split()[0] in PASSING_OVER:
            # Who scored it could try: here it failed, unless another broke the example or a source gave no text.
            failed[name] = {at for at in untried if worst[at] != "0" and part[at].id not in textless[name]}
        elif name == WORST or name in first:  # else others may have broken it
            missing |= untried
        if not pairs:
            continue
        measured, share = sum(one for one, _ in pairs), sum(other for _, other in pairs) / len(pairs)
        interval = wilson(measured, len(pairs))
        if not interval.low <= share <= interval.high:
            refused.append(
                f"{model.weights}: under {name} it claims {share:.1%} of {len(pairs)} examples and keeps "
                f"{interval.estimate:.1%} [{interval.low:.1%}, {interval.high:.1%}]"
            )
    unchecked, of = [], counted(clean.count("1"), "example")
    if missing:
        unchecked.append(f"{model.weights}: {len(missing)} of {of} could not be attacked here")
    for name, own_places in failed.items():
        if others := own_places - missing:
            unchecked.append(f"{model.weights}: {len(others)} of {of} could not be attacked here by {name}")
    if not unchecked and not compared:
        unchecked.append(f"{model.weights}: the entry claims nothing of the examples chosen; take more, or others")
    return _Found(refused=refused, unchecked=unchecked, compared=compared, differing=differing)
