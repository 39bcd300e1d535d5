"""Substitution sets: which words may stand in for which. `WordNet` is the default and ships with the package."""

from __future__ import annotations

from collections.abc import Callable

from unshaken.substitutions.base import Substitutions
from unshaken.substitutions.coverage import Coverage, coverage, require_coverage
from unshaken.substitutions.dictionary import Dictionary
from unshaken.substitutions.embedding import EmbeddingNeighbours
from unshaken.substitutions.masked_lm import MaskedLM
from unshaken.substitutions.specs import parse_all
from unshaken.substitutions.typos import Typos
from unshaken.substitutions.wordnet import WordNet
from unshaken.substitutions.words import Words, match_case, segment, visible_positions, visible_words

SUBSTITUTIONS: dict[str, Callable[..., Substitutions]] = {
    "wordnet": WordNet,
    "dictionary": Dictionary.load,
    "embedding": EmbeddingNeighbours,
    "masked-lm": MaskedLM,
    "typos": Typos,
}


def parse_substitutions(spec: str) -> tuple[Substitutions, ...]:
    """The sets a command line names, `wordnet:limit=8,dictionary:neighbours.json`."""
    return parse_all(spec, SUBSTITUTIONS)


def default_substitutions() -> Substitutions:
    """WordNet: shipped with the package, and the same everywhere."""
    return WordNet()


__all__ = [
    "SUBSTITUTIONS",
    "Coverage",
    "Dictionary",
    "EmbeddingNeighbours",
    "MaskedLM",
    "Substitutions",
    "Typos",
    "WordNet",
    "Words",
    "coverage",
    "default_substitutions",
    "match_case",
    "parse_substitutions",
    "require_coverage",
    "segment",
    "visible_positions",
    "visible_words",
]
