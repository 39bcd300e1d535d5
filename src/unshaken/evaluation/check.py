"""`Check`: one sign that a number may be an illusion, its verdict, and what would settle it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from unshaken.attacks import ATTACKS, Attack
from unshaken.evaluation.results import AttackRun

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
    "same-substitutions": "training or the reader knows every substitution that the attack may use",
    "knows-this-source": "the model's reader maps the attack's words back before the model sees them",
    "hull-coverage": "training searched fewer substitutes than the attacks may write",
    "truncated-substitutions": "the attack spent swaps on words the model never sees",
    "unconfirmed": "texts that fooled the model in the search did not when asked about alone; they count as withstood",
    "few-seeds": "one training run says little about the method: seeds often differ by more than methods",
}


@dataclass(frozen=True, kw_only=True)
class Check:
    """One reliability check on one subject.

    Attributes:
        flag: Key of `FLAGS`.
        subject: The model, data and attack it speaks of.
        evidence: What was measured.
        settle: What to run to settle it; empty if it is clear.
    """

    flag: str
    subject: str
    verdict: Verdict
    evidence: str
    settle: str = ""


def trait(run: AttackRun, name: str) -> bool:
    """A class attribute of the attack: its settings tell where it is not the usual one, or our class of that name."""
    return bool(run.settings.get(name, getattr(ATTACKS.get(run.attack, Attack), name)))


def clear(flag: str, subject: str, evidence: str) -> Check:
    return Check(flag=flag, subject=subject, verdict="clear", evidence=evidence)


def raised(flag: str, subject: str, evidence: str, settle: str) -> Check:
    return Check(flag=flag, subject=subject, verdict="raised", evidence=evidence, settle=settle)


def raised_if(bad: bool, flag: str, subject: str, evidence: str, settle: str) -> Check:
    return raised(flag, subject, evidence, settle) if bad else clear(flag, subject, evidence)


def unknown(flag: str, subject: str, evidence: str, settle: str) -> Check:
    return Check(flag=flag, subject=subject, verdict="unknown", evidence=evidence, settle=settle)
