"""Sets made of other sets: all sources at once, the words two swaps away, and what no known set has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from unshaken.errors import UnshakenError
from unshaken.substitutions.base import Substitutions, content_hash
from unshaken.substitutions.words import Words


@dataclass(frozen=True)
class All(Substitutions):
    """What a real adversary does: every source at every word.

    On a command line sets are joined by commas, `wordnet:limit=8,dictionary:neighbours.json,typos`.

    Args:
        sources: The sets, in the order of their candidates.
        limit: The most candidates that each source gives for one word, all if None.

    Example:
        >>> All((WordNet(), Typos(), Homoglyphs()))
    """

    name: ClassVar[str] = "all"

    sources: Sequence[Substitutions]
    limit: int | None = 8  # Jia et al. 2019: 8 neighbours

    def __post_init__(self) -> None:
        object.__setattr__(self, "sources", tuple(self.sources))
        if not self.sources:
            raise UnshakenError("All() joins substitution sets, and none is given")
        if self.limit is not None and self.limit < 1:
            raise UnshakenError(f"All(limit={self.limit}): at least 1, or None for all candidates")

    @property
    def provenance(self) -> str:
        each = "" if self.limit is None else f" (at most {self.limit} of each)"
        return " and ".join(f"{one.name}: {one.provenance}" for one in self.sources) + each

    @property
    def fingerprint(self) -> str:
        return content_hash([self.name, str(self.limit), *(one.fingerprint for one in self.sources)])

    def described(self) -> dict[str, Any]:
        """With the sets that it joins: which they are is not to be read from a text that may quote names of files."""
        parts = ({key: told for key, told in one.described().items() if key != "provenance"} for one in self.sources)
        return {**super().described(), "sources": list(parts)}

    def against(self, reader: Any) -> All:
        return replace(self, sources=tuple(one.against(reader) for one in self.sources))

    def candidates(self, words: Sequence[str], position: int) -> list[str]:
        return self._join([one.candidates(words, position) for one in self.sources])

    def by_source(self, words: Words) -> list[list[list[str]]]:
        """Of each word of a text, the candidates of each source; a repeat counts for the first that has it."""
        seen: list[set[str]] = [set() for _ in words]
        found: list[list[list[str]]] = [[] for _ in words]
        for one in self.sources:
            for at, own in enumerate(one.for_text(words)):
                new = [word for word in own[: self.limit] if word not in seen[at]]
                seen[at].update(new)
                found[at].append(new)
        return found

    def for_text(self, words: Words) -> list[list[str]]:
        return [self._join(own) for own in zip(*(one.for_text(words) for one in self.sources), strict=True)]

    def for_texts(self, texts: Sequence[Words]) -> list[list[list[str]]]:
        found = zip(*(one.for_texts(texts) for one in self.sources), strict=True)
        return [[self._join(own) for own in zip(*of_text, strict=True)] for of_text in found]

    def for_choices(self, choices: Sequence[Sequence[str]], position: int) -> list[list[str]] | None:
        found = [own for one in self.sources if (own := one.for_choices(choices, position)) is not None]
        return None if len(found) < len(self.sources) else [self._join(own) for own in zip(*found, strict=True)]

    def for_pairs(self, pairs: Sequence[tuple[Words, int]]) -> list[list[str]]:
        return [self._join(own) for own in zip(*(one.for_pairs(pairs) for one in self.sources), strict=True)]

    @property
    def merges(self) -> bool:
        return any(one.merges for one in self.sources)

    def vocabulary(self) -> list[str] | None:
        known = [one.vocabulary() for one in self.sources]
        if any(words is None for words in known):
            return None
        return list(dict.fromkeys(word for words in known for word in words or ()))

    def neighbours(self, word: str) -> list[str]:
        return self._join([one.neighbours(word) for one in self.sources])

    def _join(self, found: Sequence[Sequence[str]]) -> list[str]:
        return list(dict.fromkeys(word for own in found for word in own[: self.limit]))


@dataclass(frozen=True)
class TwoHops(Substitutions):
    """The substitutes of a word's substitutes, which a defence that knows the set may not have met at this word.

    Args:
        source: The set; it must not read the context.
        limit: The most candidates for one word, nearest first; all if None.
        direct: Keep the direct substitutes, too.
    """

    name: ClassVar[str] = "two-hops"
    by_word: ClassVar[bool] = True

    source: Substitutions
    limit: int | None = 8
    direct: bool = False

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise UnshakenError(f"TwoHops(limit={self.limit}): at least 1, or None for all candidates")

    @property
    def provenance(self) -> str:
        return f"two hops over {self.source.provenance} (limit={self.limit}, direct={self.direct})"

    @property
    def fingerprint(self) -> str:
        return content_hash([self.name, str(self.limit), str(self.direct), self.source.fingerprint])

    def against(self, reader: Any) -> TwoHops:
        return replace(self, source=self.source.against(reader))

    def candidates(self, words: Sequence[str], position: int) -> list[str]:
        near = self.source.neighbours(words[position])  # as it is written: a set may know words in one case alone
        far = (other for one in near for other in self.source.neighbours(one))
        known = {words[position].lower(), *(() if self.direct else map(str.lower, near))}
        found = dict.fromkeys((*near, *far) if self.direct else far)
        return [other for other in found if other.lower() not in known][: self.limit]


@dataclass(frozen=True)
class Unseen(Substitutions):
    """What a source has beyond the sets that a defence knows: the words it was never told about.

    Two sources overlap, so an attack with another source still asks partly about swaps that training has seen.

    Args:
        source: Where candidates come from, such as `EmbeddingNeighbours` or `MaskedLM`.
        known: The sets whose swaps are left out, all their candidates in the text at hand. A set that reads the context
            (WordNet, for participles) may know a pair of words in another text; a smoothed vocabulary knows it in all.
        limit: The most candidates for one word, after that; all if None.

    Example:
        >>> Unseen(EmbeddingNeighbours(model="out/model"), known=(WordNet(),))
    """

    name: ClassVar[str] = "unseen"

    source: Substitutions
    known: Sequence[Substitutions]
    limit: int | None = 8

    def __post_init__(self) -> None:
        object.__setattr__(self, "known", tuple(self.known))
        if not self.known or (self.limit is not None and self.limit < 1):
            raise UnshakenError(f"Unseen: {len(self.known)} known sets, limit={self.limit}; both are at least 1")

    @property
    def provenance(self) -> str:
        others = " and ".join(one.provenance for one in self.known)
        return f"{self.source.provenance}, without the swaps of {others} (limit={self.limit})"

    @property
    def fingerprint(self) -> str:
        own = (self.name, str(self.limit), self.source.fingerprint)
        return content_hash([*own, *(one.fingerprint for one in self.known)])

    def against(self, reader: Any) -> Unseen:
        return replace(self, source=self.source.against(reader))

    def vocabulary(self) -> list[str] | None:
        words = self.source.vocabulary()
        return None if words is None else list(words)

    def candidates(self, words: Sequence[str], position: int) -> list[str]:
        seen = [one.candidates(words, position) for one in self.known]
        return self._new(self.source.candidates(words, position), seen)

    def neighbours(self, word: str) -> list[str]:
        return self._new(self.source.neighbours(word), [one.neighbours(word) for one in self.known])

    def for_text(self, words: Words) -> list[list[str]]:
        return self.for_texts([words])[0]

    def for_texts(self, texts: Sequence[Words]) -> list[list[list[str]]]:
        found = zip(self.source.for_texts(texts), *(one.for_texts(texts) for one in self.known), strict=True)
        return [[self._new(own, seen) for own, *seen in zip(*of_text, strict=True)] for of_text in found]

    def for_choices(self, choices: Sequence[Sequence[str]], position: int) -> list[list[str]] | None:
        found = [one.for_choices(choices, position) for one in (self.source, *self.known)]
        told = [own for own in found if own is not None]
        return [self._new(own, seen) for own, *seen in zip(*told, strict=True)] if len(told) == len(found) else None

    def for_pairs(self, pairs: Sequence[tuple[Words, int]]) -> list[list[str]]:
        found = zip(self.source.for_pairs(pairs), *(one.for_pairs(pairs) for one in self.known), strict=True)
        return [self._new(own, seen) for own, *seen in found]

    @property
    def merges(self) -> bool:
        return self.source.merges

    def _new(self, found: Sequence[str], seen: Sequence[Sequence[str]]) -> list[str]:
        known = {word.lower() for own in seen for word in own}
        return [word for word in found if word.lower() not in known][: self.limit]
