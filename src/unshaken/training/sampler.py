"""The order of training rows: batches that hold every class in equal shares, or texts of similar length."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence

from torch.utils.data import Sampler

from unshaken.errors import UnshakenError


class ClassBalancedSampler(Sampler[int]):
    """Deals rows out class by class, like cards: 0, 1, 2, 0, 1, 2, ...

    Every run of n consecutive rows holds each class n / classes times, rounded up or down. So every batch is balanced
    whatever its size, and so are gradient-accumulation steps and the shares of several processes, whether they get
    whole batches or parts of one.

    An epoch has as many rows as the data. Rows of a class come in random order without repetition until the class is
    exhausted, and then in a new random order: small classes are repeated, large ones are sampled anew each epoch.

    Args:
        labels: The class of each row.
        seed: Epoch e of seed s is the same on every process and after every resume.

    Example:
        >>> sampler = ClassBalancedSampler(train.labels)
        >>> DataLoader(train, sampler=sampler, batch_size=32, collate_fn=collator)
    """

    def __init__(self, labels: Sequence[int | float], seed: int = 0) -> None:
        if any(isinstance(label, float) for label in labels):
            raise UnshakenError("class-balanced batches need class labels, and these are regression targets")
        self.rows_of: dict[int, list[int]] = defaultdict(list)
        for row, label in enumerate(labels):
            self.rows_of[int(label)].append(row)
        if len(self.rows_of) < 2:
            raise UnshakenError(f"class-balanced batches need at least two classes; the data has {len(self.rows_of)}")
        self.length = len(labels)
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        source = random.Random(f"{self.seed} {self.epoch}")
        classes = sorted(self.rows_of)
        source.shuffle(classes)
        decks = [_deal_forever(self.rows_of[label], random.Random(source.random())) for label in classes]
        yield from itertools.islice((next(deck) for deck in itertools.cycle(decks)), self.length)


def _cut(rows: Sequence[int], size: int) -> list[Sequence[int]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _deal_forever(rows: Sequence[int], source: random.Random) -> Iterator[int]:
    while True:
        yield from source.sample(rows, len(rows))


class SimilarLengthSampler(Sampler[int]):
    """Batches of texts that are about equally long, so that little of a batch is padding.

    Rows are shuffled, sorted by length within stretches of 50 batches, and the batches are shuffled again. A batch is
    then no random sample of the rows, but every epoch still has every row, and every row other neighbours each time.

    Args:
        lengths: Of each row, in any unit that grows with its tokens.
        batch_size: Rows of one step over all processes.
        order: A sampler whose order is kept class by class, so that balanced batches stay balanced; shuffled where
            None.
        seed: Epoch e of seed s is the same on every process and after every resume.

    Example:
        >>> sampler = SimilarLengthSampler([len(text) for text in texts], batch_size=32)
        >>> DataLoader(texts, sampler=sampler, batch_size=32)
    """

    STRETCH = 50  # batches: long enough to sort well, short enough to mix

    def __init__(
        self, lengths: Sequence[int], batch_size: int, *, order: ClassBalancedSampler | None = None, seed: int = 0
    ) -> None:
        self.lengths, self.batch_size, self.order, self.seed = lengths, batch_size, order, seed
        rows_of = {} if order is None else order.rows_of
        self.class_of = {row: label for label, rows in rows_of.items() for row in rows}
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        if self.order is not None:
            self.order.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        source = random.Random(f"{self.seed} {self.epoch} lengths")
        rows = list(self.order) if self.order is not None else source.sample(range(len(self)), len(self))
        stretches = _cut(rows, self.STRETCH * self.batch_size)
        batches = [batch for stretch in stretches for batch in _cut(self._sorted(stretch), self.batch_size)]
        partial = [batches.pop()] if batches and len(batches[-1]) < self.batch_size else []  # stays the last one
        source.shuffle(batches)
        yield from itertools.chain.from_iterable([*batches, *partial])

    def _sorted(self, rows: Sequence[int]) -> list[int]:
        """By length, each class in the places it has."""
        waiting: dict[int | None, list[int]] = defaultdict(list)
        for row in sorted(rows, key=lambda row: -self.lengths[row]):
            waiting[self.class_of.get(row)].append(row)
        return [waiting[self.class_of.get(row)].pop() for row in rows]
