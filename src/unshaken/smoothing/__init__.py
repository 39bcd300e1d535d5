"""A smoothed vocabulary: words that may stand in for each other share what the model reads.

Each word of a substitution set becomes one token that reads E' = P^k Theta, where P averages over a word and the words
it may be swapped with, and Theta is trained. After training E' is written into ordinary rows.
"""

from __future__ import annotations

from unshaken.smoothing.embedding import SmoothedEmbedding
from unshaken.smoothing.graph import Kernel, WordGraph
from unshaken.smoothing.smoothing import Smoothing, parse
from unshaken.smoothing.surgery import settle, settled_on_save, smooth, smoothing_of, unsmooth

__all__ = [
    "Kernel",
    "SmoothedEmbedding",
    "Smoothing",
    "WordGraph",
    "parse",
    "settle",
    "settled_on_save",
    "smooth",
    "smoothing_of",
    "unsmooth",
]
