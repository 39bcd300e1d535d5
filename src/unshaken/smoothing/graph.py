"""The graph of words that may stand in for each other, and the mean over neighbours that it defines."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from unshaken.errors import UnshakenError
from unshaken.substitutions import Substitutions, segment
from unshaken.substitutions.base import content_hash

LARGEST = 60_000_000  # entries of P^k, 0.7 GB


@dataclass(frozen=True, eq=False)
class WordGraph:
    """Words and who may replace whom, both ways, each word its own neighbour.

    Attributes:
        words: The nodes, in the form in which they are looked up.
        edges: Pairs of nodes, ordered: A + A^T + I without repeats. (2, edges)
    """

    words: tuple[str, ...]
    edges: Tensor

    @classmethod
    def build(
        cls,
        sets: Sequence[Substitutions],
        *,
        texts: Iterable[str] = (),
        fold: Callable[[str], str | None] = str.lower,
        most_words: int = 60_000,
    ) -> WordGraph:
        """All words of the sets with their substitutes; those of the texts come first where there are too many.

        Args:
            sets: Their edges are joined.
            texts: Training texts.
            fold: The node of a word as it is written, so that case variants share one; None for words without a node.
            most_words: Nodes at most.
        """
        counts = Counter(word.lower() for text in texts for word in segment(text))
        listed = chain((word for word, _ in counts.most_common()), *(one.vocabulary() or () for one in sets))
        number: dict[str, int] = {}
        pairs: set[tuple[int, int]] = set()

        def node(word: str) -> int | None:
            folded = fold(word)
            if folded is None or (folded not in number and len(number) >= most_words):
                return None
            return number.setdefault(folded, len(number))

        seen: set[str] = set()
        queue = dict.fromkeys(listed)
        while queue:  # substitutes have neighbours of their own, which must be right for an attacker who starts there
            substitutes: dict[str, None] = {}
            for word in queue:
                seen.add(word)
                if len(number) >= most_words and fold(word) not in number:
                    continue
                around = dict.fromkeys(other for one in sets for other in one.neighbours(word))
                start = node(word) if around else None
                for other in around if start is not None else ():
                    end = node(other)
                    if end is not None and end != start:
                        pairs |= {(start, end), (end, start)}  # type: ignore[arg-type]
                    substitutes[other] = None
            queue = {word: None for word in substitutes if word not in seen}
        if not pairs:
            raise UnshakenError("the substitution sets join no two words that a tokenizer can tell apart")
        loops = ((one, one) for one in range(len(number)))
        return cls(tuple(number), torch.tensor(sorted(chain(pairs, loops)), dtype=torch.int64).T.contiguous())

    def spelt(self, hops: int) -> Tensor:
        """A hash of the words, which nodes stand for, and of how far means reach. (4,)"""
        told = content_hash([str(hops), *self.words])
        return torch.tensor([int(told[at : at + 15], 16) for at in range(0, 60, 15)])

    def kernel(self, hops: int) -> Kernel:
        """P^hops, where P = D^-1 (A + A^T + I): each row is a mean over neighbours."""
        rows, columns = self.edges
        size = len(self.words)
        degree = torch.bincount(rows, minlength=size)
        with warnings.catch_warnings():  # torch 2.11 warns even of checks that were declined
            warnings.filterwarnings("ignore", "Sparse invariant checks")
            mean = torch.sparse_coo_tensor(self.edges, 1 / degree[rows].double(), (size, size), check_invariants=False)
            power = mean.coalesce()
        for _ in range(hops - 1):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Sparse (CSR tensor support|invariant checks)")  # of torch's inside
                power = torch.sparse.mm(power, mean).coalesce()
            if power._nnz() > LARGEST:
                raise UnshakenError(
                    f"{hops} hops over {size:,} words reach {power._nnz():,} pairs, which no memory should hold; take "
                    "fewer hops, or sets with fewer substitutes (limit=8)"
                )
        rows, columns = power.indices()
        offsets = np.concatenate([[0], np.cumsum(torch.bincount(rows, minlength=size).numpy())])
        return Kernel(torch.from_numpy(offsets), columns, power.values())


@dataclass(frozen=True, eq=False)
class Kernel:
    """A sparse matrix by rows: the neighbours of each node and how much each of them counts."""

    offsets: Tensor  # (nodes + 1,) where each row begins
    columns: Tensor  # (entries,)
    weights: Tensor  # (entries,) of each row they sum to one
    _copies: dict[tuple[torch.device, torch.dtype], Kernel] = field(default_factory=dict, repr=False)

    def like(self, values: Tensor) -> Kernel:
        """The same on the device and in the precision of `values`; copied once."""
        key = (values.device, values.dtype)
        if key not in self._copies:
            self._copies[key] = Kernel(
                self.offsets.to(values.device), self.columns.to(values.device), self.weights.to(values)
            )
        return self._copies[key]

    def rows(self, nodes: Tensor, values: Tensor) -> Tensor:
        """The rows `nodes` of the matrix times `values`, and no others. (n,), (nodes, hidden) -> (n, hidden)"""
        starts, ends = self.like(values).offsets[torch.stack([nodes, nodes + 1])]
        return self.means(starts, ends - starts, values)

    def means(self, starts: Tensor, lengths: Tensor, values: Tensor) -> Tensor:
        """The same for rows given by their first entry and how many they have; zero for those with none. (n,), (n,)"""
        own = self.like(values)
        first = lengths.cumsum(0) - lengths
        entries = torch.repeat_interleave(starts - first, lengths)
        entries += torch.arange(len(entries), device=entries.device)
        return torch.nn.functional.embedding_bag(
            own.columns[entries], values, first, mode="sum", per_sample_weights=own.weights[entries]
        )

    def __deepcopy__(self, memo: dict[int, object]) -> Kernel:
        return self  # nothing writes into it

    def __getstate__(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.offsets, self.columns, self.weights

    def __setstate__(self, state: tuple[Tensor, Tensor, Tensor]) -> None:
        for name, value in zip(("offsets", "columns", "weights", "_copies"), (*state, {}), strict=True):
            object.__setattr__(self, name, value)
