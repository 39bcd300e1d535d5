"""`RanMask`: keep some words of a text at random, hide the others, and take the majority."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import ClassVar

import numpy as np

from unshaken.certificates.base import ALL_WORDS, MAJORITY, Certificate, largest_radius
from unshaken.errors import UnshakenError
from unshaken.victims.base import Texts


@dataclass(frozen=True, kw_only=True)
class RanMask(Certificate):
    """However some words are changed, the majority stays: most draws hide all of the changed words.

    Words are what white space separates. An attacker writes whatever he likes in place of some of them, but neither
    adds nor removes any. With k of n words kept, a draw misses r changed ones with probability C(n-r, k) / C(n, k), and
    then its answer is the same; so the winning share falls by at most delta = 1 - C(n-r, k) / C(n, k), and the text is
    certified while share - delta > 1/2.

    Paper: Zeng et al. 2021, "Certified Robustness to Text Adversarial Attacks by Randomized [MASK]". Their bound
        multiplies delta by lambda, the chance of the right answer where a changed word is seen, for which the released
        code puts the vote share of the unchanged text. That is no worst case: an attacker decides what is answered
        there. Here lambda is 1, which is sound and gives smaller radii (Levine and Feizi 2020).
    Cost: guesses + samples forward passes for each text. Models must be trained on masked texts to be right here.

    Args:
        keep: The share of words that are kept, at least one of them.
        mask: What stands for a hidden word; the model's own mask token if None.

    Example:
        >>> RanMask(keep=0.1)(victim, examples).accuracy(radius=2)
    """

    name: ClassVar[str] = "ranmask"
    citation: ClassVar[tuple[str, ...]] = ("zeng-etal-2023-certified",)

    keep: float = 0.1  # paper: 0.1 of the words on SST-2 and AG News
    mask: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.keep < 1:
            raise UnshakenError(f"RanMask(keep={self.keep}): a share of the words above 0 and below 1")

    def kept(self, words: int) -> int:
        return max(1, round(self.keep * words))

    def draw(self, texts: Texts, count: int, rng: np.random.Generator, mask: str) -> list[Texts]:
        columns = [text.split() for text in texts]
        sizes = [len(column) for column in columns]
        words = sum(sizes)
        if not words:
            return [texts] * count
        ends = np.cumsum(sizes)
        hidden = self.mask or mask
        found = []
        for _ in range(count):
            seen = set(rng.choice(words, self.kept(words), replace=False).tolist())
            shown = (
                " ".join(word if start + at in seen else hidden for at, word in enumerate(column))
                for column, start in zip(columns, (ends - sizes).tolist(), strict=True)
            )
            found.append(tuple(shown))
        return found

    def radius(self, texts: Texts, share: float) -> int:
        words = sum(len(text.split()) for text in texts)
        if not words:
            return ALL_WORDS if share > MAJORITY else -1
        kept = self.kept(words)  # at least one, so that no draw misses all words
        misses = (comb(words - changed, kept) / comb(words, kept) for changed in range(words + 1))
        return largest_radius(share - (1 - missed) > MAJORITY for missed in misses)
