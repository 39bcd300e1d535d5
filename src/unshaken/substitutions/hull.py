"""The convex hull of a batch's substitutions: which tokens may change, and into which. `HullBuilder` makes it."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unshaken.substitutions.words import segment

SLOTS = 10  # official code: candidates are padded to 10 slots, where its list has 9 forms of a word at most


@dataclass(frozen=True, kw_only=True)
class HullWord:
    """A word that may change: where it stands and what it may become, itself first."""

    row: int
    column: int
    position: int
    choices: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Hull:
    """The substitutable tokens of one batch, flat: nothing is stored for tokens that cannot change.

    Attributes:
        words_of_rows: Of each batch row, its substitutable words: text column, position, and choices, itself first.
        rows: Batch row of each token. (tokens,)
        columns: Sequence position of each token, in the narrowed batch. (tokens,)
        word_of: Which word of the batch each token belongs to. (tokens,)
        candidates: Token ids a token may become, its own id first and in unused slots. (tokens, slots)
        allowed: Which slots of a word are in use. (words, slots)
        seeds: One number a batch row, from its text alone.
        further: For the second, third, ... piece of candidates that have one: where they stand in `candidates`, counted
            through, and the ids of that piece.
        pieces: Of how many pieces each candidate is, where some have several. (tokens * slots, 1)
        order: Which position of the batch stands at each position of the narrowed one, the width where padding stands;
            None where both are the same. (batch, seq)
        padding: Id of the padding token.
    """

    words_of_rows: tuple[tuple[tuple[int, int, tuple[str, ...]], ...], ...]
    rows: Tensor
    columns: Tensor
    word_of: Tensor
    candidates: Tensor
    allowed: Tensor
    seeds: tuple[int, ...]
    further: tuple[tuple[Tensor, Tensor], ...] = ()
    pieces: Tensor | None = None
    order: Tensor | None = None
    padding: int = 0

    def __len__(self) -> int:
        return len(self.allowed)

    @cached_property
    def words(self) -> tuple[HullWord, ...]:
        """The substitutable words of the batch, in order. Training asks for none, so they are made when asked for."""
        return tuple(
            HullWord(row=row, column=column, position=position, choices=choices)
            for row, words in enumerate(self.words_of_rows)
            for column, position, choices in words
        )

    def narrowed(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The batch with one position for each word of the hull, at the same width: padding fills the rest."""
        if self.order is None:
            return dict(inputs)
        return {
            name: F.pad(values, (0, 1), value=self.padding if name == "input_ids" else 0).gather(1, self.order)
            for name, values in inputs.items()
        }

    def vectors(self, table: nn.Module) -> Tensor:
        """The mean of the piece vectors of every candidate. (tokens, slots, hidden)"""
        # `.forward` and not a call: the hook that asks may be a hook of this very module.
        if self.pieces is None:
            vectors: Tensor = table.forward(self.candidates)
            return vectors
        # Looked up together: each look-up has a gradient as large as the table.
        ids = torch.cat([self.candidates.flatten(), *(ids for _, ids in self.further)])
        first, *rounds = table.forward(ids).split([self.candidates.numel(), *(len(ids) for _, ids in self.further)])
        flat: Tensor = first.clone()  # sums in place need memory of their own
        for (places, _), pieces in zip(self.further, rounds, strict=True):
            flat.index_add_(0, places, pieces)  # places of one round differ, so sums do not depend on their order
        return (flat / self.pieces.to(flat.dtype)).view(*self.candidates.shape, flat.shape[-1])

    def weights(self, logits: Tensor) -> Tensor:
        """Mixing weights, a point of the simplex for each word. (words, slots) -> (words, slots)"""
        return (logits + self._closed).softmax(-1)  # a sum costs nothing in backward, a filled mask does

    @cached_property
    def _closed(self) -> Tensor:
        """Minus infinity in unused slots, 0 in others. (words, slots)"""
        return torch.zeros(self.allowed.shape, device=self.allowed.device).masked_fill_(~self.allowed, -torch.inf)

    def at_tokens(self, weights: Tensor) -> Tensor:
        """The weights of each token's word. (words, slots) -> (tokens, slots)"""
        return weights if len(self.rows) == len(self) else weights[self.word_of]

    def noise(self, salt: object) -> Tensor:
        """Standard normal numbers that depend on each row's text and `salt` only, never on the batch around it."""
        salted, generator = repr(salt).encode(), torch.Generator()
        counts = np.array([len(words) for words in self.words_of_rows])
        widths = np.array([max([SLOTS, *(len(own[2]) for own in words)]) for words in self.words_of_rows])
        drawn = torch.empty(int((counts * widths).sum()))
        for seed, own in zip(self.seeds, torch.split(drawn, (counts * widths).tolist()), strict=True):
            own.normal_(generator=generator.manual_seed(zlib.crc32(salted, seed)))
        width = np.repeat(widths, counts)[:, None]  # (words, 1)
        slot = np.arange(self.allowed.shape[1])
        first = np.cumsum(width, axis=0) - width
        laid = np.where(slot < width, drawn.numpy()[first + np.minimum(slot, width - 1)], np.float32(0))
        return torch.from_numpy(laid).to(self.allowed.device)

    def texts(self, originals: Sequence[Sequence[str]], choice: Sequence[int]) -> list[tuple[str, ...]]:
        """The texts in which word `i` becomes its candidate `choice[i]`."""
        swaps: dict[tuple[int, int], dict[int, str]] = {}
        for word, slot in zip(self.words, choice, strict=True):
            if slot:
                swaps.setdefault((word.row, word.column), {})[word.position] = word.choices[slot]
        return [
            tuple(
                segment(text).replace(swaps[row, column], carry_case=False) if (row, column) in swaps else text
                for column, text in enumerate(texts)
            )
            for row, texts in enumerate(originals)
        ]
