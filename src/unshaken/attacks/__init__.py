"""Attacks on text classifiers, and the victim they attack."""

from __future__ import annotations

from unshaken.attacks.base import Attack
from unshaken.attacks.beam import Beam, Greedy
from unshaken.attacks.exhaustive import Exhaustive
from unshaken.attacks.genetic import Genetic
from unshaken.attacks.goals import Goal, Targeted, Untargeted
from unshaken.attacks.pwws import PWWS
from unshaken.attacks.random_swaps import Random
from unshaken.attacks.results import AttackResult, AttackResults
from unshaken.attacks.victim import Victim

ATTACKS: dict[str, type[Attack]] = {
    attack.name: attack for attack in (PWWS, Genetic, Exhaustive, Greedy, Beam, Random)
}

__all__ = [
    "ATTACKS",
    "PWWS",
    "Attack",
    "AttackResult",
    "AttackResults",
    "Beam",
    "Exhaustive",
    "Genetic",
    "Goal",
    "Greedy",
    "Random",
    "Targeted",
    "Untargeted",
    "Victim",
]
