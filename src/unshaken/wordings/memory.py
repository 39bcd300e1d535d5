"""What was asked before, on the device: no text of a cohort goes through the model twice."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Lookup(NamedTuple):
    """Where the answers of some rows are, and which rows have to be asked first."""

    numbers: Tensor  # (n,) answer of each row
    new: Tensor  # (new,) rows whose answers come next, in this order


class Memory:
    """Answers by 64-bit keys. Two different texts share a key with a chance of about n^2 / 2^65 for n texts."""

    def __init__(self, classes: int, device: torch.device) -> None:
        self.answers = torch.empty(0, classes, device=device)
        self._keys = torch.empty(0, dtype=torch.long, device=device)  # sorted
        self._numbers = torch.empty(0, dtype=torch.long, device=device)  # of the answer of each key

    def look_up(self, keys: Tensor) -> Lookup:
        """Find rows by their keys, and give those that are new their numbers. (n,)"""
        distinct, inverse = torch.unique(keys, return_inverse=True)
        rows = torch.arange(len(keys), device=keys.device)
        first = rows.new_full((len(distinct),), len(keys)).scatter_reduce(0, inverse, rows, "amin")
        numbers = torch.full_like(distinct, -1)
        if len(self._keys):
            at = torch.searchsorted(self._keys, distinct).clamp_max(len(self._keys) - 1)
            numbers = self._numbers[at].where(self._keys[at] == distinct, -1)
        unknown = (numbers < 0).nonzero()[:, 0]
        unknown = unknown[first[unknown].argsort()]  # in the order in which they were asked
        numbers[unknown] = len(self.answers) + torch.arange(len(unknown), device=keys.device)
        self._keys, order = torch.cat([self._keys, distinct[unknown]]).sort()
        self._numbers = torch.cat([self._numbers, numbers[unknown]])[order]
        return Lookup(numbers[inverse], first[unknown])

    def add(self, answers: Tensor) -> None:
        """The answers of the last look-up's new rows."""
        self.answers = torch.cat([self.answers, answers])
