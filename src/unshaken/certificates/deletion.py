"""`Deletion`: delete words of a text at random, and take the majority; it bounds insertions and deletions too."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unshaken.certificates.base import MAJORITY, Certificate, largest_radius
from unshaken.errors import UnshakenError
from unshaken.victims.base import Texts


@dataclass(frozen=True, kw_only=True)
class Deletion(Certificate):
    """Whatever few words are inserted, deleted or replaced, the majority over random deletions stays.

    Words are what white space separates, and each is deleted with probability `rate`. Let z be the longest common
    subsequence of text and changed text. With probability rate^(n - |z|) all of the text outside z is deleted, and what
    is left is drawn as from z itself; likewise for the changed text. So its share is at least
    rate^(n' - n) (share - 1 + rate^(n - |z|)), which is least where all r edits replace words: share - 1 + rate^r.

    Paper: Huang et al. 2024, "CERT-ED: Certifiably Robust Text Classification for Edit Distance", after RS-Del (Huang
        et al. 2023), whose theorem this is.
    Cost: guesses + samples forward passes for each text. Models must be trained on texts with deleted words.

    Args:
        rate: Probability that a word is deleted.

    Example:
        >>> Deletion(rate=0.9)(victim, examples).accuracy(radius=2)
    """

    name: ClassVar[str] = "deletion"
    citation: ClassVar[tuple[str, ...]] = ("huang-etal-2024-cert",)

    rate: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.rate < 1:
            raise UnshakenError(f"Deletion(rate={self.rate}): a probability above 0 and below 1")

    def draw(self, texts: Texts, count: int, rng: np.random.Generator, mask: str) -> list[Texts]:
        columns = [text.split() for text in texts]
        kept = [rng.random((count, len(column))) >= self.rate for column in columns]
        return [
            tuple(" ".join(itertools.compress(column, own[number])) for column, own in zip(columns, kept, strict=True))
            for number in range(count)
        ]

    def radius(self, texts: Texts, share: float) -> int:
        return largest_radius(share - 1 + self.rate**edits > MAJORITY for edits in itertools.count())
