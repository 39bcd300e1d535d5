"""Batches that hold every class in equal shares."""

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


def _deal_forever(rows: Sequence[int], source: random.Random) -> Iterator[int]:
    while True:
        yield from source.sample(rows, len(rows))
