"""Sentence similarity by any encoder, with the thresholds and the window of TextFooler."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from unshaken.attacks.constraints.base import Candidate, Constraint, Together
from unshaken.attacks.constraints.encoder import SentenceEncoder
from unshaken.attacks.constraints.many_texts import ManySimilarities
from unshaken.errors import UnshakenError

Metric = Literal["cosine", "angular", "jin2020"]


@dataclass(frozen=True, kw_only=True)
class SentenceSimilarity(Constraint):
    """A candidate stays close in meaning to the text it is compared with, as an encoder measures it.

    Paper: Jin et al. 2020, section 3 step 2 (Universal Sentence Encoder). The encoder here is any Hugging Face one;
        numbers with another encoder are not comparable, so reports name it.
    Relations: The defaults are those of TextAttack's TextFooler recipe: angular similarity of at least 1 - 0.5/pi on 15
        words around the swap, compared with the previous text, texts shorter than the window not checked. The official
        code is `metric="jin2020", threshold=0.5, short_threshold=0.1`: 0.7 is the default of its command line, and 0.5
        is what reproduces the paper's numbers (its issue 12).
    Cost: One encoder pass for each distinct window, in batches over all examples in flight.

    Args:
        model: Hub name or folder of an encoder; the embedded MiniLM if None.
        threshold: The least similarity allowed.
        metric: "cosine"; "angular", 1 - arccos(cosine)/pi; "jin2020", 1 - arccos(cosine), which can be negative.
        window: Words around the swap that are compared; whole texts if None.
        compared_with: "previous" text of the search, or the "original".
        short_threshold: The least similarity in texts shorter than the window; they are not checked if None.

    Example:
        >>> words = segment("a good film about the sea")
        >>> SentenceSimilarity(window=None, metric="cosine", threshold=0.8).check(
        ...     [Candidate(original=words, swaps={2: "movie"}), Candidate(original=words, swaps={5: "tax"})])
        [True, False]
    """

    name: ClassVar[str] = "similarity"

    model: str | None = None
    threshold: float = 1 - 0.5 / math.pi  # TextAttack's recipe; the authors' runs: 0.5 as "jin2020"
    metric: Metric = "angular"
    window: int | None = 15  # official code
    compared_with: Literal["previous", "original"] = "previous"  # official code
    short_threshold: float | None = None  # TextAttack's recipe; official code: 0.1 as "jin2020"

    def __post_init__(self) -> None:
        if self.metric not in ("cosine", "angular", "jin2020"):
            raise UnshakenError(f"SentenceSimilarity(metric={self.metric!r}): cosine, angular or jin2020")
        if self.compared_with not in ("previous", "original"):
            raise UnshakenError(f"SentenceSimilarity(compared_with={self.compared_with!r}): previous or original")
        if self.window is not None and self.window < 1:
            raise UnshakenError(f"SentenceSimilarity(window={self.window}): at least 1 word, or None for whole texts")
        for name in ("threshold", "short_threshold"):
            value = getattr(self, name)
            if value is not None and not -math.pi < value <= 1:
                raise UnshakenError(f"SentenceSimilarity({name}={value}): at most 1, where texts are equal")

    def scores(self, candidates: Sequence[Candidate]) -> list[float]:
        """The similarity of each candidate, in the unit of `metric`, of short texts too."""
        pairs = [self._compared(candidate) for candidate in candidates]
        cosines = SentenceEncoder.load(self.model).cosine([new for new, _ in pairs], [old for _, old in pairs])
        return self.of_cosines(torch.tensor(cosines, dtype=torch.float64)).tolist()

    def of_cosines(self, cosines: Tensor) -> Tensor:
        """Cosines in the unit of `metric`, float64. (n,)"""
        if self.metric == "cosine":
            return cosines.double()
        return 1 - cosines.double().acos() / (math.pi if self.metric == "angular" else 1.0)

    def as_cosines(self, scores: Tensor) -> Tensor:
        """The cosines that have these scores; beyond -1 for scores that no cosine is too low for. (n,)"""
        if self.metric == "cosine":
            return scores
        angles = (1 - scores) * (math.pi if self.metric == "angular" else 1.0)
        return angles.cos().where(angles <= math.pi, -torch.inf)

    def check(self, candidates: Sequence[Candidate]) -> list[bool]:
        least = [self._least(candidate) for candidate in candidates]
        checked = [row for row, threshold in enumerate(least) if threshold is not None]
        scores = dict(zip(checked, self.scores([candidates[row] for row in checked]), strict=True))
        return [threshold is None or scores[row] >= threshold for row, threshold in enumerate(least)]

    def check_many(self, cohort: Together, owner: Tensor, rows: Tensor, previous: Tensor) -> Tensor:
        return ManySimilarities.of(self, cohort).allowed(owner, rows, previous)

    def _least(self, candidate: Candidate) -> float | None:
        is_short = self.window is not None and len(candidate.original) < self.window
        return self.short_threshold if is_short else self.threshold

    def _compared(self, candidate: Candidate) -> tuple[str, str]:
        """(candidate, reference): the same stretch of words of both texts."""
        old = candidate.previous if self.compared_with == "previous" else {}
        changed = candidate.changed if self.compared_with == "previous" else tuple(sorted(candidate.swaps))
        if self.window is None or not changed:
            return candidate.text, candidate.original.replace(old, carry_case=False)
        start, stop = _window(changed[0], changed[-1], len(candidate.original), self.window)
        part = candidate.original.part(start, stop)
        new_text, old_text = (
            part.replace({at - start: word for at, word in swaps.items() if start <= at < stop}, carry_case=False)
            for swaps in (candidate.swaps, old)
        )
        return new_text, old_text


def _window(first: int, last: int, length: int, window: int) -> tuple[int, int]:
    """A stretch of `window` words centred on the swap, moved inward at either end of the text (official code).

    Several swaps at once widen it, so that all of them are inside.
    """
    half = (window - 1) // 2
    start, stop = first - half, last + half + 1
    if start < 0:
        start, stop = 0, max(stop, window)
    if stop > length:
        start, stop = min(start, length - window), length
    return max(start, 0), stop
