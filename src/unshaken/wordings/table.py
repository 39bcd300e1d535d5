"""`TokenTable`: choice rows of many examples to token rows, by gathers and sums on any device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unshaken.wordings.choices import Array
from unshaken.wordings.pool import EMPTY, PADDING, PiecePool, joined
from unshaken.wordings.rows import Rows

FIXED = -1  # a slot that no place chooses
SPECIAL = -1  # a slot of no column, which truncation spares
CELLS = 1 << 22  # tokens or slots that are worked on at once, to bound memory


@dataclass(frozen=True)
class Template:
    """The special tokens around the columns, and the type of each column's own tokens."""

    specials: tuple[tuple[list[int], list[int]], ...]  # tokens and types before each column, and after the last
    kinds: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: Any, columns: int) -> Template | None:
        """None where it cannot be read off a sample."""
        body = tokenizer("a", add_special_tokens=False)["input_ids"]
        sample = tokenizer(*["a"] * columns)
        ids = sample["input_ids"]
        if len(body) != 1 or ids.count(body[0]) != columns:
            return None
        types = sample.get("token_type_ids") or [0] * len(ids)
        specials: list[tuple[list[int], list[int]]] = [([], [])]
        kinds = []
        for token, kind in zip(ids, types, strict=True):
            if token == body[0]:
                kinds.append(kind)
                specials.append(([], []))
            else:
                specials[-1][0].append(token)
                specials[-1][1].append(kind)
        return cls(tuple(specials), tuple(kinds))


@dataclass(frozen=True)
class Recipe:
    """How the tokens of one example are put together: slots in reading order, each with one token list a choice."""

    pool: PiecePool  # what the numbers of token lists mean
    slots: Array  # (slots, 4): first of its entries, the place that chooses or FIXED, column or SPECIAL, token type
    entries: Array  # (entries,) number of a token list; choices with equal tokens have equal numbers
    counts: Array  # (places,) choices of each place, the probe included
    specials: int  # special tokens
    longest: int  # other tokens of the longest wording

    def clean_tokens(self) -> list[int]:
        """The tokens of the text as it is, untruncated."""
        return self.pool.end_to_end(self.entries[self.slots[:, 0]].tolist())

    def canonical(self, rows: Array) -> Array:
        """Rows with equal tokens made equal: two substitutes unknown to the tokenizer are one and the same."""
        return np.asarray(self._aliases[self._offsets + rows % self.counts])

    @cached_property
    def _offsets(self) -> Array:
        return np.asarray(np.cumsum(self.counts) - self.counts)

    @cached_property
    def _aliases(self) -> Array:
        """For each choice of each place, the first with the same tokens."""
        aliases: list[int] = []
        for first, count in zip(self.slots[self.slots[:, 1] != FIXED, 0].tolist(), self.counts.tolist(), strict=True):
            seen: dict[int, int] = {}
            lists = self.entries[first : first + count].tolist()
            aliases.extend(seen.setdefault(number, choice) for choice, number in enumerate(lists))
        return np.array(aliases, np.int16)


class TokenTable:
    """The recipes of some examples as tensors.

    Args:
        recipes: One for each example.
        columns: Texts of an example.
        room: Most tokens of a row, special ones apart; pairs lose tokens of the longer text first, as tokenizers do it.
        pad: Token and type of padding.
        device: Where the table lives and rows are made.
    """

    def __init__(
        self,
        recipes: Sequence[Recipe],
        *,
        columns: int,
        room: int,
        pad: tuple[int, int],
        device: torch.device | str = "cpu",
    ) -> None:
        self.device = torch.device(device)
        self.pad = pad
        self.places = max((len(recipe.counts) for recipe in recipes), default=0)
        self.longest = max((recipe.specials + min(room, recipe.longest) for recipe in recipes), default=0)
        entries = np.cumsum([0, *(len(recipe.entries) for recipe in recipes)])
        width = max((len(recipe.slots) for recipe in recipes), default=0) or 1
        nothing = (entries[-1], FIXED, SPECIAL, 0)  # a last entry, the empty list
        slots = np.full((len(recipes), width, 4), nothing, np.int64)
        counts = np.ones((len(recipes), self.places), np.int64)
        for row, recipe in enumerate(recipes):
            slots[row, : len(recipe.slots)] = recipe.slots
            slots[row, : len(recipe.slots), 0] += entries[row]
            counts[row, : len(recipe.counts)] = recipe.counts
        slots[..., 1][slots[..., 1] == FIXED] = self.places  # a column of zeros that is put beside the choices
        self._first, self._place, self._column, self._kind = (self._tensor(slots[..., part]) for part in range(4))
        self._counts = self._tensor(counts)
        first_list, (self._starts, self._lengths, self._tokens) = joined(
            list(dict.fromkeys(recipe.pool for recipe in recipes)), self.device
        )
        numbered = [recipe.entries + first_list[recipe.pool] for recipe in recipes]
        self._entries = self._tensor(np.concatenate([*numbered, [EMPTY]]))
        self._columns = columns
        seeded = torch.Generator().manual_seed(0)
        self._factors = torch.randint(-(2**63), 2**63 - 1, (width,), generator=seeded).to(self.device) | 1
        # Most tables hold no wording that is too long, and need no clipping.
        self._room = room if any(recipe.longest > room for recipe in recipes) else None

    def __len__(self) -> int:
        """How many examples it has."""
        return len(self._first)

    @property
    def slots(self) -> int:
        return self._first.shape[1]

    def _tensor(self, array: Array) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device, non_blocking=True)

    def lists(self, owner: Tensor, choices: Tensor) -> Tensor:
        """The token list that each slot takes. Wordings with equal lists have equal tokens.

        Args:
            owner: The example of each row. (n,)
            choices: The choices of each row, in any integer type. (n, places)
        """
        picked = torch.cat([choices.long() % self._counts[owner], owner.new_zeros(len(owner), 1)], 1)
        return self._entries[self._first[owner] + picked.gather(1, self._place[owner])]

    def keys(self, owner: Tensor, choices: Tensor) -> Tensor:
        """A number for each row, equal where the example and all lists are. (n,)"""
        step = max(1, CELLS // self.slots)
        blocks = range(0, max(1, len(owner)), step)
        lists = (self.lists(owner[at : at + step], choices[at : at + step]) for at in blocks)
        return torch.cat([(own * self._factors).sum(1) for own in lists]) + owner * -7046029254386353131

    def row_lengths(self, owner: Tensor, choices: Tensor) -> Tensor:
        """Tokens of each row. (n,)"""
        step = max(1, CELLS // self.slots)
        starts = range(0, max(1, len(owner)), step)
        blocks = ((owner[at : at + step], choices[at : at + step]) for at in starts)
        return torch.cat([self._kept(of, self.lists(of, chosen)).sum(1) for of, chosen in blocks])

    def batch(self, owner: Tensor, choices: Tensor, width: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Token ids, token types and mask of rows, padded to `width`, or to the longest of them. Each (n, width)"""
        lists = self.lists(owner, choices)
        kept = self._kept(owner, lists)
        ends = kept.cumsum(1)
        width = int(ends[:, -1].max()) if width is None else width
        at = torch.arange(width, device=self.device).expand(len(owner), width).contiguous()
        mask = at < ends[:, -1:]
        slot = torch.searchsorted(ends, at, right=True).clamp_max(ends.shape[1] - 1)  # the slot that each token is of
        within = at - (ends - kept).gather(1, slot)
        source = (self._starts[lists.gather(1, slot)] + within).masked_fill(~mask, PADDING)
        types = self._kind[owner].gather(1, slot).masked_fill(~mask, self.pad[1])
        return self._tokens[source], types, mask

    def rows(self, owner: Array, choices: Array) -> Rows:
        """Token rows without padding, on the host."""
        ids, types, lengths = [], [], []
        step = max(1, CELLS // max(1, self.longest, self.slots))
        for start in range(0, max(1, len(owner)), step):  # once even without rows, for the shapes
            of = torch.from_numpy(owner[start : start + step]).to(self.device)
            chosen = torch.from_numpy(np.ascontiguousarray(choices[start : start + step])).to(self.device)
            tokens, kinds, mask = self.batch(of, chosen, self.longest)
            ids.append(tokens[mask].cpu().numpy().astype(np.int32))
            types.append(kinds[mask].cpu().numpy().astype(np.int8))
            lengths.append(mask.sum(1).cpu().numpy())
        return Rows(ids=np.concatenate(ids), types=np.concatenate(types), lengths=np.concatenate(lengths))

    def _kept(self, owner: Tensor, lists: Tensor) -> Tensor:
        """How many tokens of each slot's list stay: truncation clips the last slots of a column. (n, slots)"""
        lengths = self._lengths[lists]
        if self._room is None:
            return lengths
        column = self._column[owner]
        own = [lengths.where(column == number, 0) for number in range(self._columns)]
        kept = lengths.where(column == SPECIAL, 0)
        for part, room in zip(own, _rooms([part.sum(1) for part in own], self._room), strict=True):
            before = part.cumsum(1) - part
            kept += part.minimum((room[:, None] - before).clamp_min(0))
        return kept


def _rooms(totals: list[Tensor], room: int) -> list[Tensor]:
    """How many tokens of each column stay: `longest_first`, as the tokenizers library does it."""
    if len(totals) == 1:
        return [totals[0].clamp_max(room)]
    shorter, longer = torch.minimum(*totals), torch.maximum(*totals)
    both = 2 * shorter > room  # neither fits beside the other: they share the room, the longer has the odd token
    first, second = shorter.clamp_max(room // 2), longer.minimum((room - shorter).masked_fill(both, room - room // 2))
    first_is_shorter = totals[0] <= totals[1]
    return [first.where(first_is_shorter, second), second.where(first_is_shorter, first)]
