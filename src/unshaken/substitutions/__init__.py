"""Substitution sets: which words may stand in for which. `WordNet` is the default and ships with the package."""

from __future__ import annotations

from collections.abc import Callable

from unshaken.substitutions.base import Substitutions
from unshaken.substitutions.coverage import Coverage, coverage, require_coverage
from unshaken.substitutions.dictionary import Dictionary
from unshaken.substitutions.disguises import Homoglyphs, Invisible, Leet, Spacing
from unshaken.substitutions.embedding import EmbeddingNeighbours
from unshaken.substitutions.joined import All, TwoHops, Unseen
from unshaken.substitutions.masked_lm import MaskedLM
from unshaken.substitutions.specs import parse_all
from unshaken.substitutions.typos import Typos
from unshaken.substitutions.unmended import Unmended
from unshaken.substitutions.wordnet import WordNet
from unshaken.substitutions.words import Words, match_case, segment, visible_positions, visible_words

SUBSTITUTIONS: dict[str, Callable[..., Substitutions]] = {
    "wordnet": WordNet,
    "dictionary": Dictionary.load,
    "embedding": EmbeddingNeighbours,
    "masked-lm": MaskedLM,
    "typos": Typos,
    "homoglyphs": Homoglyphs,
    "invisible": Invisible,
    "leet": Leet,
    "spacing": Spacing,
}


def parse_substitutions(spec: str, *, allow_paths: bool = False) -> tuple[Substitutions, ...]:
    """The sets a command line names, `wordnet:limit=8,dictionary:neighbours.json`."""
    return parse_all(spec, SUBSTITUTIONS, allow_paths=allow_paths)


def joined_substitutions(spec: str, *, allow_paths: bool = False) -> Substitutions:
    """The one set a command line names; several, joined by commas, become `All`."""
    sets = parse_substitutions(spec, allow_paths=allow_paths)
    return sets[0] if len(sets) == 1 else All(sets)


def default_substitutions() -> Substitutions:
    """WordNet: shipped with the package, and the same everywhere."""
    return WordNet()


__all__ = [
    "SUBSTITUTIONS",
    "All",
    "Coverage",
    "Dictionary",
    "EmbeddingNeighbours",
    "Homoglyphs",
    "Invisible",
    "Leet",
    "MaskedLM",
    "Spacing",
    "Substitutions",
    "TwoHops",
    "Typos",
    "Unmended",
    "Unseen",
    "WordNet",
    "Words",
    "coverage",
    "default_substitutions",
    "joined_substitutions",
    "match_case",
    "parse_substitutions",
    "require_coverage",
    "segment",
    "visible_positions",
    "visible_words",
]
