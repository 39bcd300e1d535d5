"""`Misread`: the words that a reader takes for each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from unshaken.errors import UnshakenError
from unshaken.readers.base import Readers
from unshaken.readers.known import KnownWords
from unshaken.substitutions.base import Substitutions, content_hash
from unshaken.substitutions.joined import All
from unshaken.substitutions.words import segment


@dataclass(frozen=True)
class Misread(Substitutions):
    """What is left of a source after the reader: known words that it makes of another word's typing errors.

    "from" with two letters swapped is "form", which is known and stays. An attacker who looks through a reader has only
    such words left, and they can be listed although the errors cannot: so a vocabulary can be smoothed over them.

    Args:
        source: Such as `Typos()`.
        reader: The reader of the model.
        limit: As many candidates of the source as an attacker has for one word, of each source of `All`; all if None.

    Example:
        >>> Misread(Typos(), reader).neighbours("from")
        ['form', 'farm']
    """

    name: ClassVar[str] = "misread"

    source: Substitutions
    reader: Readers
    limit: int | None = 8  # as in All

    def __post_init__(self) -> None:
        if self.reader.known is None:
            raise UnshakenError(f"{self.source.name}: its words are mended by no reader that knows words; add spelling")

    @property
    def provenance(self) -> str:
        each = "all" if self.limit is None else f"at most {self.limit}"
        return f"what the reader makes of {self.source.provenance}, {each} for one word"

    @property
    def fingerprint(self) -> str:
        return content_hash([self.name, str(self.limit), self.source.fingerprint, self.reader.fingerprint])

    def vocabulary(self) -> list[str]:
        """The words of the training texts: those an attacker starts from."""
        counts = self._known.counts
        return sorted((word for word in counts if counts[word]), key=lambda word: (-counts[word], word))

    def candidates(self, words: Sequence[str], position: int) -> list[str]:
        word = words[position].lower()
        read = (self.reader(other).lower() for other in self._offered(words, position))
        return [other for other in dict.fromkeys(read) if other != word and self._is_word(other)]

    def neighbours(self, word: str) -> list[str]:
        return self.candidates([word], 0) if self._known.counts.get(word.lower()) else []

    def _offered(self, words: Sequence[str], position: int) -> list[str]:
        if not isinstance(self.source, All):
            return self.source.candidates(words, position)[: self.limit]
        limits = [limit for limit in (self.limit, self.source.limit) if limit is not None]
        return replace(self.source, limit=min(limits, default=None)).candidates(words, position)

    def _is_word(self, text: str) -> bool:
        return text in self._known and len(segment(text)) == 1

    @property
    def _known(self) -> KnownWords:
        assert self.reader.known is not None
        return self.reader.known
