"""`SmoothedEmbedding`: a token table whose last rows are means over neighbouring words."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unshaken.errors import UnshakenError
from unshaken.recording import is_recorded
from unshaken.smoothing.graph import Kernel

TRAINING_ONLY = ("theta", "graph", "spelt")  # what a checkpoint holds beyond an ordinary one


class SmoothedEmbedding(nn.Embedding):
    """Tokens below `first` read their own row, tokens from `first` on read E' = P^k Theta at their word.

    Made from a model's own table by `smooth`, which swaps the class: references, hooks and names stay. Its state is an
    ordinary, longer table with E' written out, and beside it Theta and the graph for training to go on.
    """

    first: int
    theta: nn.Parameter  # (words, hidden)
    kernel: Kernel
    graph: Tensor  # (2, edges)
    spelt: Tensor  # (4,) a hash of its words in order and of the hops, which the edges do not tell
    words: Tensor  # (added tokens,) the node of each
    _spans: Tensor | None = None
    settled_in_state: bool = False  # whether the state holds the ordinary table alone

    def forward(self, input: Tensor) -> Tensor:
        if is_recorded():
            # How many neighbours there are depends on the texts, and a record would know those of one batch.
            raise UnshakenError(
                "a smoothed vocabulary is exported as the ordinary table that it stands for: "
                "unshaken.smoothing.settle(model) first, or export the model that was saved"
            )
        self._require_own_rows()
        added = input >= self.first  # (batch, seq)
        filler = 0 if self.padding_idx is None else self.padding_idx
        own = F.embedding(input.masked_fill(added, filler), self.weight, self.padding_idx)
        # Ordinary tokens are means over nothing: to pick out the others, or each word once, would make a GPU wait.
        starts, lengths = self._spans_on(input.device)[:, input.flatten()]
        smoothed = self.kernel.means(starts, lengths, self.theta).view_as(own)
        return smoothed.where(added[..., None], own)

    def _spans_on(self, device: torch.device) -> Tensor:
        """Where the neighbours of each token begin in the kernel, and how many there are. (2, tokens)"""
        if self._spans is None or self._spans.device != device:
            offsets = self.kernel.offsets
            starts, lengths = offsets[:-1], offsets.diff()
            of_words = torch.stack([starts, lengths])[:, self.words]
            self._spans = torch.cat([of_words.new_zeros(2, self.first), of_words], 1).to(device)
        return self._spans

    def _require_own_rows(self) -> None:
        """A table that was resized would be saved with rows that stand for other tokens, which no config describes."""
        if self.weight.shape[0] != self.first:
            raise UnshakenError(
                f"the token table of a smoothed vocabulary was resized, from {self.first} rows of its own to "
                f"{self.weight.shape[0]}; unsmooth(model, tokenizer), add your tokens and resize, then smooth again"
            )

    @torch.no_grad()
    def table(self) -> Tensor:
        """All rows as an ordinary table would hold them. (tokens, hidden)"""
        self._require_own_rows()
        nodes = torch.arange(len(self.theta), device=self.theta.device)
        smoothed = torch.cat([self.kernel.rows(some, self.theta) for some in torch.split(nodes, 4096)])
        return torch.cat([self.weight, smoothed[self.words.to(self.theta.device)].to(self.weight)])

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "weight"] = self.table()
        destination[prefix + "graph"], destination[prefix + "spelt"] = self.graph, self.spelt
        for name in TRAINING_ONLY if self.settled_in_state else ():
            del destination[prefix + name]

    def _load_from_state_dict(
        self, state: dict[str, Any], prefix: str, metadata: Any, strict: bool, missing: list[str], *rest: Any
    ) -> None:
        for name, own in (("graph", self.graph), ("spelt", self.spelt)):  # earlier versions wrote the first alone
            kept = state.pop(prefix + name, None)
            if kept is not None and not torch.equal(kept.to(own.device), own):
                raise RuntimeError(
                    "the checkpoint was smoothed over another graph of words; take the substitution sets and the hops "
                    "it was begun with"
                )
        weight = state.get(prefix + "weight")
        if weight is not None:
            state = {**state, prefix + "weight": weight[: self.first]}
        super()._load_from_state_dict(state, prefix, metadata, strict, missing, *rest)
