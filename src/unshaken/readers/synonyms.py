"""`Synonyms`: one code for each cluster of words that may stand in for each other (SEM)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from unshaken.errors import UnshakenError
from unshaken.readers.base import Forms, Reader
from unshaken.readers.known import KnownWords
from unshaken.substitutions.base import Substitutions, sources_of
from unshaken.substitutions.words import segment


@dataclass(frozen=True, kw_only=True)
class Synonyms(Reader):
    """Every word is read as the code of its cluster: the most frequent word first, its neighbours share its code.

    Paper: Wang et al. 2021, "Natural Language Adversarial Defense through Synonym Encoding", Algorithm 1.
    Relations: The hard form of a smoothed vocabulary; what a label needs to tell neighbours apart is lost.

    Args:
        codes: Word to code, both in lower case; a code is its own code.
        sets: Name and fingerprint of the sets that the codes are of: what a model behind this reader knows.
    """

    name: ClassVar[str] = "synonyms"

    codes: Mapping[str, str] = field(default_factory=dict, repr=False)
    sets: Sequence[Mapping[str, str]] = ()

    @classmethod
    def of(cls, substitutions: Substitutions, known: KnownWords) -> Synonyms:
        """Codes for the words of a set, by how often training has them."""
        vocabulary = substitutions.vocabulary()
        if vocabulary is None:
            raise UnshakenError(
                f"{substitutions.name} cannot list its words, so they have no clusters; take a dictionary or WordNet"
            )
        listed = [word.lower() for word in vocabulary]
        codes: dict[str, str] = {}
        for word in sorted(dict.fromkeys(listed), key=lambda word: (-known.counts.get(word, 0), word)):
            if word in codes:
                continue
            near = [other.lower() for other in substitutions.neighbours(word)]
            code = next((codes[other] for other in near if other in codes), word)
            for other in (word, *near):
                codes.setdefault(other, code)
        sets = (substitutions, *sources_of(substitutions))
        return cls(codes=codes, sets=[{"name": one.name, "fingerprint": one.fingerprint} for one in sets])

    def __call__(self, text: str) -> str:
        words = segment(text)
        swaps = {at: self.codes[word.lower()] for at, word in enumerate(words) if word.lower() in self.codes}
        return words.replace(swaps) if swaps else text

    def stays_apart(self, parts: Sequence[Forms]) -> bool:
        return not any("<" in form for forms in parts for form in forms)  # markup may go on beyond a blank
