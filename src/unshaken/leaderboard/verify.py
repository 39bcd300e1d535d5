"""`verify`: run a part of an entry's suite again, and refuse what does not come out as claimed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unshaken.evaluation.evaluate import evaluate
from unshaken.evaluation.statistics import wilson
from unshaken.examples import Examples
from unshaken.leaderboard.entry import Entry, Scored, worst_of
from unshaken.leaderboard.score import clean_marks, held_marks
from unshaken.leaderboard.tracks import Suite, suite
from unshaken.substitutions import Substitutions
from unshaken.victims.base import Victim

WORST = "all attacks"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a check found.

    Attributes:
        refused: Each claim that does not hold, in words; empty if the entry stands.
        checked: Models and examples that were run again.
    """

    refused: tuple[str, ...]
    checked: str

    @property
    def stands(self) -> bool:
        return not self.refused


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
    what was measured. What the entry tried on all examples is tried on all, and the rest on what is left.
    """
    by_fingerprint = {victim.fingerprint: victim for victim in victims}
    entry.require_examples(examples)
    entry.require_substitutions(substitutions)
    places = np.sort(np.random.default_rng(seed).permutation(len(entry.ids))[:count])
    part = examples.part(entry.ids[place] for place in places)
    refused = []
    for model in entry.models:
        victim = by_fingerprint.get(model.fingerprint)
        if victim is None:
            refused.append(f"{model.weights}: no model with the fingerprint {model.fingerprint[:12]} was given")
            continue
        refused += _checked(entry, model, victim, part, places, suite(entry.suite, substitutions, public))
    return Verdict(refused=tuple(refused), checked=f"{len(entry.models)} models, {len(places)} examples each")


def _checked(
    entry: Entry, model: Scored, victim: Victim, part: Examples, places: np.ndarray, attacks: Suite
) -> list[str]:
    first = {name: attack for name, attack in attacks.named.items() if name not in entry.left}
    last = {name: attack for name, attack in attacks.named.items() if name in entry.left}
    again = evaluate(victim, part, list(first.values()), then=list(last.values())).evaluations[0]
    refused = []
    clean, claimed = clean_marks(again), "".join(model.clean[place] for place in places)
    wrong = [entry.ids[place] for place, one, other in zip(places, clean, claimed, strict=True) if one != other]
    if wrong:
        refused.append(f"{model.weights}: {len(wrong)} clean answers are not as claimed, such as {wrong[0]!r}")
    measured_marks, claims = held_marks(again, [*first, *last]), {**model.held, WORST: model.worst}
    for name, marks in {**measured_marks, WORST: worst_of(measured_marks)}.items():
        if name not in claims:
            refused.append(f"{model.weights}: the entry does not have the attack {name}")
            continue
        own = [claims[name][place] for place in places]
        if name == WORST:  # where a claim is left out of the score, and so no way out
            own = [mark.replace("?", "1") for mark in own]
        pairs = [(one == "1", other == "1") for one, other in zip(marks, own, strict=True) if "?" not in (one, other)]
        if not pairs:
            continue
        measured, share = sum(one for one, _ in pairs), sum(other for _, other in pairs) / len(pairs)
        interval = wilson(measured, len(pairs))
        if not interval.low <= share <= interval.high:
            refused.append(
                f"{model.weights}: under {name} it claims {share:.1%} of {len(pairs)} examples and keeps "
                f"{interval.estimate:.1%} [{interval.low:.1%}, {interval.high:.1%}]"
            )
    return refused
