"""`Unmended`: what an attacker may still write where a model's reader mends the rest."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

from unshaken.errors import UnshakenError
from unshaken.substitutions.base import Substitutions, content_hash
from unshaken.substitutions.words import Words


class ReadsTexts(Protocol):
    """A model's reader, such as `unshaken.readers.Readers`."""

    @property
    def fingerprint(self) -> str: ...

    def __call__(self, text: str) -> str: ...


@dataclass(frozen=True)
class Unmended(Substitutions):
    """The adaptive attack on a reader: of a source, only what it does not read as the word itself.

    An attacker who has the model has its reader, and wastes no try on what it mends. What is left is read as another
    known word, or stays a word that nobody knows and falls into pieces. On a command line `unmended:typos`.

    Args:
        source: Such as `Typos()`.
        reader: If None that of the model under attack, whichever it is; for a model without one the source is used as
            it is.
        limit: The most candidates for one word; all if None.

    Example:
        >>> Genetic(substitutions=Unmended(Typos()))
    """

    name: ClassVar[str] = "unmended"

    source: Substitutions
    reader: ReadsTexts | None = None
    limit: int | None = None

    @property
    def provenance(self) -> str:
        who = "the model's reader" if self.reader is None else "the reader"
        return f"what {who} does not mend of {self.source.provenance}{self._limits}"

    @property
    def _limits(self) -> str:
        return "" if self.limit is None else f", at most {self.limit} for one word"

    @property
    def fingerprint(self) -> str:
        reader = "" if self.reader is None else self.reader.fingerprint
        return content_hash([self.name, str(self.limit), self.source.fingerprint, reader])

    def described(self) -> dict[str, Any]:
        """With its source: whether training knows it is asked about that."""
        return {**super().described(), "source": self.source.described()}

    def against(self, reader: Any) -> Substitutions:
        if self.reader is not None:
            return self
        source = self.source.against(reader)
        return replace(self, source=source, reader=_Nothing() if reader is None else reader)

    def candidates(self, words: Sequence[str], position: int) -> list[str]:
        return self._left(words[position], self.source.candidates(words, position))

    def neighbours(self, word: str) -> list[str]:
        return self._left(word, self.source.neighbours(word))

    def for_text(self, words: Words) -> list[list[str]]:
        return self.for_texts([words])[0]

    def for_texts(self, texts: Sequence[Words]) -> list[list[list[str]]]:
        found = zip(texts, self.source.for_texts(texts), strict=True)
        return [[self._left(word, own) for word, own in zip(*of_text, strict=True)] for of_text in found]

    def for_choices(self, choices: Sequence[Sequence[str]], position: int) -> list[list[str]] | None:
        found = self.source.for_choices(choices, position)
        return None if found is None else [self._left(*each) for each in zip(choices[position], found, strict=True)]

    def for_pairs(self, pairs: Sequence[tuple[Words, int]]) -> list[list[str]]:
        found = zip(pairs, self.source.for_pairs(pairs), strict=True)
        return [self._left(" ".join(words[at : at + 2]), own) for (words, at), own in found]

    @property
    def merges(self) -> bool:
        return self.source.merges

    def _left(self, word: str, found: Iterable[str]) -> list[str]:
        reader = self._known
        read = reader(word).lower()
        left = (other for other in found if reader(other).lower() != read)
        return list(itertools.islice(left, self.limit))

    def vocabulary(self) -> Iterable[str] | None:
        return self.source.vocabulary()

    @property
    def _known(self) -> ReadsTexts:
        if self.reader is None:
            raise UnshakenError(
                f"unmended:{self.source.name} is for attacks, which know the reader of the model that they attack; "
                f"here name {self.source.name}, or give Unmended a reader"
            )
        return self.reader


@dataclass(frozen=True)
class _Nothing:
    """What a model without a reader does to texts."""

    fingerprint: str = "no reader"

    def __call__(self, text: str) -> str:
        return text
