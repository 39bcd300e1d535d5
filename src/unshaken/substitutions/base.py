"""What a substitution set is: for a word in its place, the replacements attacks choose from and defences expect."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

from unshaken.substitutions.words import Words


class Substitutions(ABC):
    """Base of all substitution sets. Subclasses are frozen dataclasses of their settings.

    Attributes:
        name: The name on the command line.
        provenance: Where the replacements come from and with which settings, in one line for reports.
        fingerprint: SHA-256 of the content, not of the path: equal sets have equal fingerprints on every machine.
        by_word: Whether the class that says so finds a word's candidates by the word alone.
    """

    name: ClassVar[str]
    by_word: ClassVar[bool] = False

    @property
    @abstractmethod
    def provenance(self) -> str: ...

    @property
    @abstractmethod
    def fingerprint(self) -> str: ...

    def described(self) -> dict[str, Any]:
        """For settings, records and reports."""
        return {"name": self.name, "provenance": self.provenance, "fingerprint": self.fingerprint}

    @abstractmethod
    def candidates(self, words: Sequence[str], position: int) -> list[str]:
        """Allowed replacements of `words[position]`, in a fixed order, best first where the source ranks them.

        They are lower-case unless the source says otherwise, and never the word itself in any case; `Words.replace`
        carries the case over. Set-valued sources ignore the other words, contextual ones read them.
        """

    def against(self, reader: Any) -> Substitutions:
        """The set as an attacker writes it who knows the reader of the model, None if it has none."""
        return self

    def vocabulary(self) -> Iterable[str] | None:
        """The words that have replacements, best known first; None if they cannot be listed."""
        return None

    def neighbours(self, word: str) -> list[str]:
        """The replacements of a word in any context."""
        return self.candidates([word], 0)

    def for_text(self, words: Words) -> list[list[str]]:
        """The candidates of every position of a text."""
        return [self.candidates(words.surfaces, position) for position in range(len(words))]

    def for_pairs(self, pairs: Sequence[tuple[Words, int]]) -> list[list[str]]:
        """What may stand for a word of a text and the next one together; nothing, unless a source says so."""
        return [[] for _ in pairs]

    @property
    def merges(self) -> bool:
        """Whether `for_pairs` has anything to say."""
        return type(self).for_pairs is not Substitutions.for_pairs

    def for_choices(self, choices: Sequence[Sequence[str]], position: int) -> list[list[str]] | None:
        """The candidates of each form of one word, where any word of the text may have any of its own forms.

        None if they depend on which forms the others have, or if a source does not say.
        """
        return None if self._may_read_context else [self.candidates((form,), 0) for form in choices[position]]

    @property
    def _may_read_context(self) -> bool:
        """Whether the words around one may count: they do unless the class that finds candidates says `by_word`."""
        finds = {"candidates", "for_text", "for_texts"}
        kind = next(one for one in type(self).__mro__ if finds & vars(one).keys())
        return not vars(kind).get("by_word", False)

    def for_texts(self, texts: Sequence[Words]) -> list[list[list[str]]]:
        """The candidates of every position of many texts; sources that run a model do it in full batches."""
        return [self.for_text(words) for words in texts]


def content_hash(parts: Iterable[str]) -> str:
    """SHA-256 over texts; their borders count, so ("ab", "c") and ("a", "bc") differ."""
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()


def made_of(one: Substitutions) -> list[Substitutions]:
    """The sets that a set is made of itself."""
    named = (*getattr(one, "sources", ()), getattr(one, "source", None))
    return [source for source in named if isinstance(source, Substitutions)]


def sources_of(one: Substitutions) -> Iterator[Substitutions]:
    """The sets that a set is made of, and those that they are made of."""
    for source in made_of(one):
        yield source
        yield from sources_of(source)
