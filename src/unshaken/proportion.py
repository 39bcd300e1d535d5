"""`Proportion`: a share of examples, and how sure it is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True, kw_only=True)
class Proportion:
    """A share of examples with its 95% Wilson interval.

    Example:
        >>> print(Proportion(hits=58, total=148))  # IM-BERT's 39.2% on AdvGLUE SST-2
        39.2 [31.7, 47.2]
    """

    hits: int
    total: int

    @property
    def value(self) -> float:
        return self.hits / self.total if self.total else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        return self.bounds()

    def bounds(self, confidence: float = 0.95) -> tuple[float, float]:
        """Wilson's interval (1927): it holds up where the normal one fails, with few examples or rates near 0 and 1."""
        if not self.total:
            return (math.nan, math.nan)
        z, total = NormalDist().inv_cdf((1 + confidence) / 2), self.total
        centre = (self.value + z**2 / (2 * total)) / (1 + z**2 / total)
        spread = math.sqrt(self.value * (1 - self.value) / total + z**2 / (4 * total**2))
        margin = z / (1 + z**2 / total) * spread
        low = 0.0 if self.hits == 0 else centre - margin  # exactly 0 and 1 at the ends, without rounding error
        return (low, 1.0 if self.hits == total else centre + margin)

    def __str__(self) -> str:
        if not self.total:
            return "none"
        low, high = self.interval
        return f"{100 * self.value:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
