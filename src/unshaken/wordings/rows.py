"""`Rows`: token rows of different lengths, as a model victim takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Token rows of different lengths, end to end."""

    ids: np.ndarray  # (tokens,) int32
    types: np.ndarray  # (tokens,) int8, segment of each token
    lengths: np.ndarray  # (rows,) int64

    def __len__(self) -> int:
        return len(self.lengths)

    @classmethod
    def join(cls, parts: Sequence[Rows]) -> Rows:
        return cls(
            ids=np.concatenate([part.ids for part in parts]),
            types=np.concatenate([part.types for part in parts]),
            lengths=np.concatenate([part.lengths for part in parts]),
        )

    @classmethod
    def from_lists(cls, ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]] | None = None) -> Rows:
        lengths = np.array([len(row) for row in ids], np.int64)
        flat = np.fromiter(chain.from_iterable(ids), np.int32, int(lengths.sum()))
        if types is None:
            return cls(ids=flat, types=np.zeros(len(flat), np.int8), lengths=lengths)
        return cls(ids=flat, types=np.fromiter(chain.from_iterable(types), np.int8, len(flat)), lengths=lengths)

    def split(self, counts: Sequence[int]) -> list[Rows]:
        """The first `counts[0]` rows, the next `counts[1]`, and so on."""
        row_ends = np.cumsum(counts)[:-1]
        token_ends = np.concatenate([[0], np.cumsum(self.lengths)])[row_ends]
        parts = (np.split(self.ids, token_ends), np.split(self.types, token_ends), np.split(self.lengths, row_ends))
        return [Rows(ids=ids, types=types, lengths=lengths) for ids, types, lengths in zip(*parts, strict=True)]
