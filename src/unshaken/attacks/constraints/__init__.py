"""Constraints on what an attack may write. See `base` for how they are applied."""

from __future__ import annotations

from unshaken.attacks.constraints.base import Candidate, Choices, Constraint, check, restrict
from unshaken.attacks.constraints.encoder import SentenceEncoder
from unshaken.attacks.constraints.language_model import LanguageModelScore
from unshaken.attacks.constraints.on_words import FrozenColumns, MaxChanged, NoRepeat, PartOfSpeech, StopWords
from unshaken.attacks.constraints.similarity import SentenceSimilarity

CONSTRAINTS: dict[str, type[Constraint]] = {
    constraint.name: constraint
    for constraint in (
        StopWords,
        FrozenColumns,
        NoRepeat,
        MaxChanged,
        PartOfSpeech,
        SentenceSimilarity,
        LanguageModelScore,
    )
}

__all__ = [
    "CONSTRAINTS",
    "Candidate",
    "Choices",
    "Constraint",
    "FrozenColumns",
    "LanguageModelScore",
    "MaxChanged",
    "NoRepeat",
    "PartOfSpeech",
    "SentenceEncoder",
    "SentenceSimilarity",
    "StopWords",
    "check",
    "restrict",
]
