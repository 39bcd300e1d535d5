"""Rows of unlike length on the device, longest first, from which padded batches are made there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unshaken.wordings import Rows, TokenTable


@dataclass(frozen=True)
class Batch:
    """Rows padded to the longest of them."""

    order: Tensor  # (batch,) row numbers
    ids: Tensor  # (batch, seq)
    types: Tensor  # (batch, seq)
    mask: Tensor  # (batch, seq)


class RaggedRows:
    """Ragged rows on the device, from which padded batches are gathered there: one copy instead of one per batch."""

    def __init__(self, rows: Rows, device: torch.device, pad: int) -> None:
        order = np.argsort(-rows.lengths, kind="stable")  # longest first, so that a lack of memory shows at once
        starts = np.cumsum(rows.lengths) - rows.lengths
        self.sorted_lengths = rows.lengths[order]
        self._order = torch.from_numpy(order).to(device)
        self._starts = torch.from_numpy(starts[order]).to(device)
        self._lengths = torch.from_numpy(self.sorted_lengths).to(device)
        self._ids = torch.from_numpy(rows.ids).to(device)
        self._types = torch.from_numpy(rows.types).to(device)
        self._pad = pad

    def batch(self, start: int, end: int) -> Batch:
        offsets = torch.arange(int(self.sorted_lengths[start]), device=self._ids.device)  # (seq,)
        mask = offsets < self._lengths[start:end, None]  # (batch, seq)
        source = (self._starts[start:end, None] + offsets).where(mask, 0)
        ids = self._ids[source].long().masked_fill(~mask, self._pad)
        types = self._types[source].long().masked_fill(~mask, 0)
        return Batch(self._order[start:end], ids, types, mask)


class AssembledRows:
    """Wordings on the device, from which padded batches are put together there."""

    def __init__(self, table: TokenTable, owner: Tensor, choices: Tensor) -> None:
        lengths, self._order = table.row_lengths(owner, choices).sort(descending=True, stable=True)
        self.sorted_lengths = lengths.cpu().numpy()  # batches are made by the host: its one wait
        self._table, self._owner, self._choices = table, owner, choices

    def batch(self, start: int, end: int) -> Batch:
        order = self._order[start:end]
        width = int(self.sorted_lengths[start])
        ids, types, mask = self._table.batch(self._owner[order], self._choices[order], width)
        return Batch(order, ids, types, mask)
