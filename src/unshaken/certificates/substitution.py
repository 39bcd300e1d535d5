"""`Safer`: reword a text at random by synonyms, and take the majority."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from unshaken.certificates.base import ALL_WORDS, MAJORITY, Certificate, largest_radius
from unshaken.errors import UnshakenError
from unshaken.substitutions import default_substitutions
from unshaken.substitutions.base import Substitutions
from unshaken.substitutions.words import Words, match_case, segment
from unshaken.victims.base import Texts

# Words that neither join nor leave their neighbours however both are swapped: letters, with inner hyphens.
_PLAIN = re.compile(r"[A-Za-z]+(?:['’-][A-Za-z]+)*")
_CLITICS = {"s", "re", "ve", "ll", "d", "m", "em", "tis", "twas", "cause"}  # one word with an apostrophe before them
_MARKUP = re.compile(r"</?[A-Za-z][^<>]{0,200}>|&(?:[A-Za-z]{2,8}|#[0-9]{1,7});")  # as `segment` passes it over
_OPEN = re.compile(r"<[^<]*>|&\S*;")


@dataclass(frozen=True, kw_only=True)
class Safer(Certificate):
    """However words are swapped for their substitutes, the majority over random rewordings stays.

    Each word x is drawn from its neighbourhood P(x): itself and the words reached over the set's swaps, at most
    `neighbourhood` of them, nearest first. A swap of x for x' leaves the draw as it was with probability
    |P(x) & P(x')| / max(|P(x)|, |P(x')|); let q(x) be the least of these over what the set allows in place of x. If the
    attacker swaps r words, the winning share falls by at most 1 - Q with Q the product of the r smallest q, and the
    text is certified while share - 1 + Q > 1/2.

    Paper: Ye et al. 2020, "SAFER: A Structure-free Approach for Certified Robustness to Adversarial Word
        Substitutions", Theorem 1, which divides by |P(x)| and so needs neighbourhoods of one size; the larger of the
        two is sound for any sizes and the same where they are equal.
    Relations: `Vote` is a small, fixed sample of it, and proves nothing. SWAP trains for it.
    Cost: guesses + samples forward passes for each text.

    Args:
        substitutions: What an attacker may write, WordNet if none is given. It must not read the context.
        neighbourhood: Words in P(x) at most. Larger ones overlap more and say less about x.

    Example:
        >>> Safer(substitutions=Dictionary.load("neighbours.json"))(victim, examples).accuracy()
    """

    name: ClassVar[str] = "safer"
    citation: ClassVar[tuple[str, ...]] = ("ye-etal-2020-safer",)

    substitutions: Substitutions = field(default_factory=default_substitutions)
    neighbourhood: int = 100  # paper: K = 100
    _near: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False, compare=False, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.neighbourhood < 2:
            raise UnshakenError(f"Safer(neighbourhood={self.neighbourhood}): at least 2")
        if self.substitutions.vocabulary() is None:
            raise UnshakenError(
                f"{self.substitutions.name} cannot list its words, so nobody can draw from a word's neighbourhood; "
                "certify over a dictionary, WordNet or embedding neighbours"
            )

    def draw(self, texts: Texts, count: int, rng: np.random.Generator, mask: str) -> list[Texts]:
        return list(zip(*(self._reworded(segment(text), count, rng) for text in texts), strict=True))

    def _reworded(self, words: Words, count: int, rng: np.random.Generator) -> list[str]:
        forms = {at: self.forms(word) for at, word in enumerate(words)}
        forms = {at: own for at, own in forms.items() if len(own) > 1}
        drawn = {at: rng.integers(len(own), size=count).tolist() for at, own in forms.items()}
        return [
            words.replace({at: own[drawn[at][number]] for at, own in forms.items()}, carry_case=False)
            for number in range(count)
        ]

    def forms(self, word: str) -> tuple[str, ...]:
        """P(word) as it is written in its place, the word first."""
        return tuple(dict.fromkeys((word, *(match_case(word, other) for other in self._reached(word.lower())))))

    def _reached(self, word: str) -> tuple[str, ...]:
        """The words reached over the swaps of the set: nearest first, then in alphabetical order."""
        known = self._near.get(word)
        if known is None:
            found, edge = {word: None}, [word]
            while edge and len(found) < self.neighbourhood:
                near = {other.lower() for one in edge for other in self.substitutions.neighbours(one)}
                edge = sorted(other for other in near - found.keys() if _PLAIN.fullmatch(other))
                found |= dict.fromkeys(edge)
            known = self._near[word] = tuple(itertools.islice(found, self.neighbourhood))
        return known

    def overlap(self, word: str, here: Sequence[str] = ()) -> float:
        """q: the least overlap of the word's neighbourhood with that of anything an attacker may write for it.

        Args:
            here: What the set allows in place of the word where it stands. Of a set that reads the context and has a
                limit, such as WordNet within `All`, that may be more than it allows of the word alone.
        """
        others = (*self.substitutions.neighbours(word), *here)
        allowed = {match_case(word, other) for other in others} - {word}
        return min((self._shared(word, other) for other in allowed), default=1.0)

    def _shared(self, word: str, other: str) -> float:
        if not (_PLAIN.fullmatch(word) and _PLAIN.fullmatch(other)) or other.lower() in _CLITICS:
            return 0.0  # a phrase, a number or a clitic: other words may be found in the text then
        first, second = set(self.forms(word)), set(self.forms(other))
        return len(first & second) / max(len(first), len(second))

    def radius(self, texts: Texts, share: float) -> int:
        if any(map(_may_become_markup, texts)):
            return 0
        columns = map(segment, texts)
        found_words = (own for words in columns for own in zip(words, self.substitutions.for_text(words), strict=True))
        overlaps = sorted(own for word, here in found_words if (own := self.overlap(word, here)) < 1)
        products = itertools.accumulate(overlaps, lambda left, own: left * own, initial=1.0)
        found = largest_radius(share - 1 + product > MAJORITY for product in products)
        return ALL_WORDS if found == len(overlaps) else found


def _may_become_markup(text: str) -> bool:
    """Whether swaps could turn words into a tag or an entity, so that fewer words are found."""
    return bool(_OPEN.search(_MARKUP.sub(" ", text)))
