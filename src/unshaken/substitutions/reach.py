"""How much of a data set a defence's own adversary reaches: nothing is an error, and less than the attacks is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from unshaken.errors import UnshakenError
from unshaken.substitutions.base import Substitutions

ENOUGH = 0.95  # below this share of the substitutes a hull is another adversary than the attacks, and tables say so


class TouchedWords:
    """Refuses a substitution set that touches no word of the data: a defence would train a plain model in silence."""

    def __init__(self, substitutions: Substitutions, patience: int = 64) -> None:
        self.substitutions = substitutions
        self.patience = patience
        self.texts = 0
        self.words = 0

    def saw(self, *, texts: int, words: int) -> None:
        self.texts += texts
        self.words += words
        if self.texts >= self.patience:
            self.require_some()

    def require_some(self) -> None:
        """Also at the end of a training on fewer texts than patience waits for."""
        if self.texts and not self.words:
            raise UnshakenError(
                f"{self.substitutions.provenance} has no usable substitute for any word of the first {self.texts} "
                "texts; check its language and case, or use another substitution set"
            )


@dataclass(frozen=True, kw_only=True)
class HullCoverage:
    """Which part of what an attack may do a hull contains, over the texts it was built for.

    Words beyond the truncation length do not count: the model never reads them.
    """

    words: float  # share of the words with substitutes that take part
    substitutes: float  # share of all their substitutes that take part
    texts: float  # share of the texts of which nothing is missing

    @property
    def is_enough(self) -> bool:
        return self.substitutes >= ENOUGH

    @classmethod
    def read(cls, facts: Any) -> HullCoverage | None:
        """From the facts of a training (`Defence.facts`), as a file has them; None if it had no hull."""
        found = facts.get("hull_coverage") if isinstance(facts, Mapping) else None
        names = [item.name for item in fields(cls)]
        if not isinstance(found, Mapping) or not all(isinstance(found.get(name), int | float) for name in names):
            return None
        return cls(**{name: float(found[name]) for name in names})

    @classmethod
    def of(cls, rows: Iterable[Reached]) -> HullCoverage:
        """The coverage of several texts; whole where none has a substitute."""
        found = list(rows)

        def share(part: int, whole: int) -> float:
            return part / whole if whole else 1.0

        return cls(
            words=share(sum(row.words for row in found), sum(row.all_words for row in found)),
            substitutes=share(sum(row.substitutes for row in found), sum(row.all_substitutes for row in found)),
            texts=share(sum(row.substitutes == row.all_substitutes for row in found), len(found)),
        )

    def __str__(self) -> str:
        return f"{self.words:.1%} of words, {self.substitutes:.1%} of substitutes, {self.texts:.1%} of texts wholly"


@dataclass(frozen=True, kw_only=True)
class Reached:
    """The same of one text, as counts."""

    words: int
    all_words: int
    substitutes: int
    all_substitutes: int
