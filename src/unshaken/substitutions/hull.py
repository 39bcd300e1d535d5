"""The convex hull of a batch's substitutions: which tokens may change, and into which. `HullBuilder` makes it."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
        words: The substitutable words of the batch, in order.
        rows: Batch row of each token. (tokens,)
        columns: Sequence position of each token, in the narrowed batch. (tokens,)
        word_of: Index into `words` of each token. (tokens,)
        candidates: Token ids a token may become, its own id first and in unused slots. (tokens, slots)
        allowed: Which slots of a word are in use. (words, slots)
        seeds: One number a batch row, from its text alone.
        further: For the second, third, ... piece of candidates that have one: where they stand in `candidates`, counted
            through, and the ids of that piece.
        order: Which position of the batch stands at each position of the narrowed one, the width where padding stands;
            None where both are the same. (batch, seq)
        padding: Id of the padding token.
    """

    words: tuple[HullWord, ...]
    rows: Tensor
    columns: Tensor
    word_of: Tensor
    candidates: Tensor
    allowed: Tensor
    seeds: tuple[int, ...]
    further: tuple[tuple[Tensor, Tensor], ...] = ()
    order: Tensor | None = None
    padding: int = 0

    def __len__(self) -> int:
        return len(self.words)

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
        vectors: Tensor = table.forward(self.candidates)
        if not self.further:
            return vectors
        flat, counts = vectors.flatten(0, 1), vectors.new_ones(self.candidates.numel(), 1)
        for places, ids in self.further:  # places of one round differ, so sums do not depend on their order
            flat = flat.index_add(0, places, table.forward(ids))
            counts[places] += 1
        return (flat / counts).view_as(vectors)

    def weights(self, logits: Tensor) -> Tensor:
        """Mixing weights, a point of the simplex for each word. (words, slots) -> (words, slots)"""
        return logits.masked_fill(~self.allowed, -torch.inf).softmax(-1)

    def entropy(self, weights: Tensor) -> Tensor:
        """Entropy of the mixing weights, summed over words; a vertex of the hull has none."""
        # torch.special.entr has an infinite gradient at 0, where unused slots stand
        return -(weights * weights.clamp_min(torch.finfo(weights.dtype).tiny).log()).sum()

    def noise(self, salt: object) -> Tensor:
        """Standard normal numbers that depend on each row's text and `salt` only, never on the batch around it."""
        sizes: list[list[int]] = [[] for _ in self.seeds]
        for word in self.words:
            sizes[word.row].append(len(word.choices))
        slots = self.allowed.shape[1]
        drawn = [torch.zeros(0, slots)]
        for seed, own in zip(self.seeds, sizes, strict=True):
            if own:
                generator = torch.Generator().manual_seed(zlib.crc32(repr(salt).encode(), seed))
                numbers = torch.randn(len(own), max(SLOTS, *own), generator=generator)
                drawn.append(F.pad(numbers, (0, slots))[:, :slots])
        return torch.cat(drawn).to(self.allowed.device)

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
