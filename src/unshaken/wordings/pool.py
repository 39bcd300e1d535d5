"""`PiecePool`: the tokens of every string that texts are put together from, kept once for all examples."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from unshaken.wordings.choices import Array

Encode = Callable[[list[str]], list[list[int]]]
EMPTY = 0  # the number of the empty token list
PADDING = 0  # where the padding token lies among all tokens


class PiecePool:
    """Strings by the number of their token list; strings with equal tokens have equal numbers.

    Args:
        encode: Gives the tokens of strings.
        pad: The token that stands before all lists, for rows that end early.
        limit: Tokens of a string that can ever be read; None if all of them count.
        specials: Tokens that stand alone.
    """

    def __init__(self, encode: Encode, pad: int, limit: int | None, specials: Sequence[int] = ()) -> None:
        self._encode, self._limit = encode, limit
        self._numbers: dict[str, int] = {"": EMPTY}
        self._by_tokens: dict[tuple[int, ...], int] = {(): EMPTY}
        self._lists: list[tuple[int, ...]] = [()]
        self._groups: dict[tuple[str, ...], tuple[int, ...]] = {}
        self._made = _Arrays(np.array([1]), np.array([0]), np.array([pad]))
        self._on: dict[torch.device, tuple[int, tuple[Tensor, Tensor, Tensor]]] = {}
        self._lock = threading.Lock()  # one thread prepares what another asks about
        for token in specials:
            self._number((token,))

    def __len__(self) -> int:
        """Strings and groups: a few strings make groups without end where substitutes depend on the text."""
        return len(self._numbers) + len(self._groups)

    def learn(self, strings: Iterable[str], groups: Iterable[tuple[str, ...]]) -> None:
        """Know the tokens of strings, and of groups of strings that take turns at a place."""
        fresh = [group for group in dict.fromkeys(groups) if group not in self._groups]
        # One by one: a difference of sets would go through all that is known.
        new = sorted({string for string in chain(strings, *fresh) if string not in self._numbers})
        with self._lock:
            for string, tokens in zip(new, self._encode(new) if new else (), strict=True):
                self._numbers[string] = self._number(tuple(tokens))
            for group in fresh:
                self._groups[group] = tuple([self._numbers[string] for string in group])

    def _number(self, tokens: tuple[int, ...]) -> int:
        number = self._by_tokens.setdefault(tokens, len(self._lists))
        if number == len(self._lists):
            self._lists.append(tokens)
        return number

    def numbers(self, strings: Iterable[str]) -> list[int]:
        """The token list of each string."""
        return list(map(self._numbers.__getitem__, strings))

    def number_of_token(self, token: int) -> int:
        """The list of one special token."""
        return self._by_tokens[(token,)]

    def groups(self, strings: Iterable[tuple[str, ...]]) -> list[tuple[int, ...]]:
        """The token lists of the strings of each group."""
        return list(map(self._groups.__getitem__, strings))

    def tokens(self, strings: Iterable[str]) -> list[int]:
        """All tokens of strings, end to end."""
        return self.end_to_end(map(self._numbers.__getitem__, strings))

    def end_to_end(self, numbers: Iterable[int]) -> list[int]:
        """All tokens of lists."""
        return list(chain.from_iterable(map(self._lists.__getitem__, numbers)))

    def lengths(self) -> Array:
        """Tokens of each list, those beyond the limit left out. (lists,)"""
        with self._lock:
            return self._arrays().lengths

    def on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Where each list starts and how long it is (lists,), and all tokens end to end, with padding first."""
        with self._lock:
            made = self._arrays()
            known = self._on.get(device)
            if known is None or known[0] < len(made.starts):
                parts = (made.starts, made.lengths, made.tokens)
                starts, lengths, tokens = (torch.from_numpy(part).to(device) for part in parts)
                known = self._on[device] = (len(made.starts), (starts, lengths, tokens))
            return known[1]

    def _arrays(self) -> _Arrays:
        if len(self._made.starts) < len(self._lists):
            new = self._lists[len(self._made.starts) :]
            self._made = self._made.extended([tokens[: self._limit] for tokens in new])
        return self._made


class _Arrays:
    """Token lists end to end."""

    def __init__(self, starts: Array, lengths: Array, tokens: Array) -> None:
        parts = (starts, lengths, tokens)
        self.starts, self.lengths, self.tokens = (part.astype(np.int64, copy=False) for part in parts)

    def extended(self, lists: Sequence[tuple[int, ...]]) -> _Arrays:
        lengths = np.array([len(tokens) for tokens in lists], np.int64)
        flat = np.fromiter((token for tokens in lists for token in tokens), np.int64, int(lengths.sum()))
        starts = len(self.tokens) + np.cumsum(lengths) - lengths
        parts = ((self.starts, starts), (self.lengths, lengths), (self.tokens, flat))
        return _Arrays(*(np.concatenate(pair) for pair in parts))


def joined(
    pools: Sequence[PiecePool], device: torch.device
) -> tuple[dict[PiecePool, int], tuple[Tensor, Tensor, Tensor]]:
    """The number of each pool's first list, and what `on` gives for all lists of all pools."""
    if len(pools) == 1:  # as it is but for those who keep recipes while many other strings pass
        return {pools[0]: 0}, pools[0].on(device)
    parts = [pool.on(device) for pool in pools]
    lists = np.cumsum([0, *(len(starts) for starts, _, _ in parts)]).tolist()
    tokens = np.cumsum([0, *(len(own) for _, _, own in parts)]).tolist()
    starts = [starts + first for (starts, _, _), first in zip(parts, tokens, strict=False)]
    joint = (torch.cat(starts), torch.cat([part[1] for part in parts]), torch.cat([part[2] for part in parts]))
    return dict(zip(pools, lists, strict=False)), joint
