"""`Smoothing`: which words share what a model reads, and how far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unshaken.errors import UnshakenError
from unshaken.readers import Misread, Readers
from unshaken.substitutions import All, Substitutions, parse_substitutions

MOST_HOPS = 4  # further, and most words read the mean of the vocabulary


@dataclass(frozen=True, kw_only=True)
class Smoothing:
    """Every word of the substitution sets reads the mean of itself and its neighbours, `hops` times over.

    Paper: ours. Relatives: synonym encoding (Wang et al. 2019, one code for each cluster), RobEn (Jones et al. 2020),
        Dirichlet neighbourhood ensemble (Zhou et al. 2021), retrofitting (Faruqui et al. 2015).
    Relations: A change of the model, as a `Connection` is; every defence trains on it and every attack reads it.
    Cost: No pass. Theta adds a vector for each word, and the optimizer moves it.

    Args:
        substitutions: One set or several; their edges are joined. Each must be able to list its words, which sets that
            read the context (`masked-lm`) or make words up (`typos`) cannot; of the latter a reader leaves known words,
            those that it mistakes, and with a reader they are smoothed over (`unshaken.readers.Misread`).
        hops: How often the mean is taken. 1 keeps more of clean accuracy, 2 more under attack.
        most_words: The most words with a token of their own: those of the training texts first, then the sets' own
            order.

    Example:
        >>> smoothing = Smoothing(substitutions=Dictionary.load("neighbours.json"), hops=2)
        >>> model, tokenizer = unshaken.smooth(model, tokenizer, smoothing)
    """

    substitutions: Substitutions | Sequence[Substitutions]
    hops: int = 1
    most_words: int = 60_000

    def __post_init__(self) -> None:
        given = self.substitutions
        sets = (given,) if isinstance(given, Substitutions) else tuple(given)
        object.__setattr__(self, "substitutions", sets)
        if not sets or not all(isinstance(one, Substitutions) for one in sets):
            raise UnshakenError(f"Smoothing needs at least one substitution set, not {given!r}")
        if not 1 <= self.hops <= MOST_HOPS:
            raise UnshakenError(f"hops is {self.hops}; it is 1 to {MOST_HOPS}")
        if self.most_words < 2:
            raise UnshakenError(f"most_words is {self.most_words}; at least 2")

    @property
    def sets(self) -> tuple[Substitutions, ...]:
        return self.substitutions  # type: ignore[return-value]

    def read_by(self, reader: Readers | None) -> tuple[Substitutions, ...]:
        """The sets whose words can be listed; of one that makes words up, the words that the reader mistakes."""
        sets = (part for one in self.sets for part in _apart(one))
        return tuple(one if one.vocabulary() is not None else _misread(one, reader) for one in sets)

    def to_dict(self) -> dict[str, Any]:
        """For configurations, records and cards: what the model knows, with hashes."""
        return {"substitutions": [one.described() for one in self.sets], "hops": self.hops}


def _apart(source: Substitutions) -> tuple[Substitutions, ...]:
    """The sets that are joined to one which cannot list its words: most of them can."""
    if isinstance(source, All) and source.vocabulary() is None:
        return tuple(All((one,), source.limit) for one in source.sources)
    return (source,)


def _misread(source: Substitutions, reader: Readers | None) -> Misread:
    if reader is None:
        raise UnshakenError(
            f"{source.name} cannot list its words, so none can have a token of its own; smooth over a dictionary, "
            "WordNet or embedding neighbours, and leave typing errors to a reader (--reader all), with which they can "
            "be smoothed over as well"
        )
    return Misread(source, reader)


def parse(spec: str, hops: int = 1) -> Smoothing:
    """What a command line names: `wordnet,dictionary:neighbours.json`."""
    return Smoothing(substitutions=parse_substitutions(spec), hops=hops)
