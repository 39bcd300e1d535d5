"""Attacks on text classifiers."""

from __future__ import annotations

import warnings
from typing import Any

from unshaken.attacks.alzantot import Alzantot
from unshaken.attacks.bae import BAE
from unshaken.attacks.base import Attack, SearchAttack
from unshaken.attacks.beam import Beam, Greedy
from unshaken.attacks.bert_attack import BertAttack
from unshaken.attacks.clare import CLARE
from unshaken.attacks.deep_word_bug import DeepWordBug
from unshaken.attacks.exhaustive import Exhaustive
from unshaken.attacks.genetic import Genetic
from unshaken.attacks.goals import Goal, Targeted, Unflagged, Untargeted
from unshaken.attacks.hard_label import HardLabel
from unshaken.attacks.pwws import PWWS
from unshaken.attacks.questions import Ask, Inspection, Scores, Search
from unshaken.attacks.random_swaps import Random
from unshaken.attacks.ray_engine import ray_attack
from unshaken.attacks.results import AttackResult, AttackResults
from unshaken.attacks.shard_files import gather
from unshaken.attacks.space import Space
from unshaken.attacks.textfooler import TextFooler
from unshaken.attacks.transfer import Transfer
from unshaken.attacks.white_box import HotFlip, HullAttack
from unshaken.attacks.worst_case import WorstCase, worst_of
from unshaken.names import from_spec
from unshaken.victims.base import Victim

ATTACKS: dict[str, type[Attack]] = {
    attack.name: attack
    for attack in (
        PWWS,
        Genetic,
        Alzantot,
        TextFooler,
        BAE,
        BertAttack,
        CLARE,
        DeepWordBug,
        Exhaustive,
        Greedy,
        Beam,
        Random,
        HardLabel,
        HullAttack,
        HotFlip,
        Transfer,
    )
}


def find_attack(attack: Attack | str) -> Attack:
    """An attack itself, or the one that a name describes: "pwws", "genetic:population=20", "my.module:MyAttack"."""
    return from_spec("attack", attack, ATTACKS) if isinstance(attack, str) else attack


def __getattr__(name: str) -> Any:
    if name == "Look":
        warnings.warn("unshaken.attacks.Look is called Inspection now", DeprecationWarning, stacklevel=2)
        return Inspection
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "ATTACKS",
    "BAE",
    "CLARE",
    "PWWS",
    "Alzantot",
    "Ask",
    "Attack",
    "AttackResult",
    "AttackResults",
    "Beam",
    "BertAttack",
    "DeepWordBug",
    "Exhaustive",
    "Genetic",
    "Goal",
    "Greedy",
    "HardLabel",
    "HotFlip",
    "HullAttack",
    "Inspection",
    "Random",
    "Scores",
    "Search",
    "SearchAttack",
    "Space",
    "Targeted",
    "TextFooler",
    "Transfer",
    "Unflagged",
    "Untargeted",
    "Victim",
    "WorstCase",
    "find_attack",
    "gather",
    "ray_attack",
    "worst_of",
]
