"""Balanced batches under every way in which accelerate cuts them, and batches of similar length."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest
from accelerate.data_loader import BatchSamplerShard
from torch.utils.data import BatchSampler

from unshaken.errors import UnshakenError
from unshaken.training.sampler import ClassBalancedSampler, SimilarLengthSampler

LABELS = [0] * 50 + [1] * 30 + [2] * 7


def is_balanced(rows: list[int]) -> bool:
    counts = Counter(LABELS[row] for row in rows)
    return max(counts[label] for label in range(3)) - min(counts[label] for label in range(3)) <= 1


@pytest.mark.parametrize("batch_size", [2, 6, 8, 16])
@pytest.mark.parametrize(("processes", "split"), [(1, False), (2, False), (2, True), (4, False)])
def test_every_share_of_every_batch_is_balanced(batch_size: int, processes: int, split: bool) -> None:
    batches = BatchSampler(ClassBalancedSampler(LABELS, seed=3), batch_size, drop_last=True)
    shares = [list(BatchSamplerShard(batches, processes, index, split_batches=split)) for index in range(processes)]
    assert len({len(share) for share in shares}) == 1
    for share in shares:
        assert all(is_balanced(batch) for batch in share)
        for accumulated in (first + second for first, second in pairwise(share) if processes == 1):
            assert is_balanced(accumulated)


@pytest.mark.parametrize("rows", [96, 90, 87, 65])
@pytest.mark.parametrize("processes", [2, 3, 8])
def test_shares_are_the_epoch_without_loss_and_without_overlap_but_for_padding(rows: int, processes: int) -> None:
    labels = [row % 3 for row in range(rows)]
    sampler = ClassBalancedSampler(labels, seed=3)
    batches = BatchSampler(sampler, 4, drop_last=False)
    shares = [list(BatchSamplerShard(batches, processes, index)) for index in range(processes)]
    dealt = [row for turn in zip(*shares, strict=True) for batch in turn for row in batch]  # as the run sees them
    assert dealt[:rows] == list(sampler)
    assert sorted(dealt[:rows]) == list(range(rows))
    padding = dealt[rows:]  # fills the last step of all processes with rows from the epoch's beginning
    assert len(padding) < 4 * processes
    assert padding == dealt[: len(padding)]


def test_an_epoch_repeats_small_classes_and_no_row_before_its_class_is_used_up() -> None:
    rows = list(ClassBalancedSampler(LABELS))
    assert len(rows) == len(LABELS)
    counts = Counter(rows)
    for label, size in enumerate((50, 30, 7)):
        drawn = [counts[row] for row in range(len(LABELS)) if LABELS[row] == label]
        assert max(drawn) - min(drawn) <= 1
        assert sum(drawn) == 29
        assert max(drawn) == -(-29 // size)


def test_epochs_differ_and_can_be_repeated() -> None:
    sampler = ClassBalancedSampler(LABELS, seed=1)
    first = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != first
    sampler.set_epoch(0)
    assert list(sampler) == first
    assert list(ClassBalancedSampler(LABELS, seed=2)) != first


def test_it_needs_classes() -> None:
    with pytest.raises(UnshakenError, match="regression"):
        ClassBalancedSampler([0.5, 1.0])
    with pytest.raises(UnshakenError, match="two classes"):
        ClassBalancedSampler([1, 1, 1])


LENGTHS = [int(random.Random(row).paretovariate(1.2) * 10) for row in range(1003)]


def padded(rows: list[int], batch_size: int) -> int:
    batches = BatchSampler(rows, batch_size, drop_last=False)  # type: ignore[arg-type]
    return sum(max(LENGTHS[row] for row in batch) * len(batch) for batch in batches)


@pytest.mark.parametrize("batch_size", [1, 8, 64])
def test_similar_lengths_give_every_row_once_with_little_padding(batch_size: int) -> None:
    rows = list(SimilarLengthSampler(LENGTHS, batch_size, seed=3))
    assert sorted(rows) == list(range(len(LENGTHS)))
    shuffled = random.Random(0).sample(rows, len(rows))
    if batch_size > 1:
        assert padded(rows, batch_size) - sum(LENGTHS) < 0.5 * (padded(shuffled, batch_size) - sum(LENGTHS))


@pytest.mark.parametrize("rows", [1003, 1000, 403, 5])
def test_batches_are_cut_from_fifty_at_a_time_sorted_by_length_and_what_is_left_comes_last(rows: int) -> None:
    shuffled = random.Random("3 0 lengths").sample(range(rows), rows)
    stretches = [shuffled[start : start + 50 * 8] for start in range(0, rows, 50 * 8)]
    rising = [sorted(LENGTHS[row] for row in stretch) for stretch in stretches]
    expected = [lengths[start : start + 8] for lengths in rising for start in range(0, len(lengths), 8)]
    drawn = [LENGTHS[row] for row in SimilarLengthSampler(LENGTHS[:rows], 8, seed=3)]
    found = [drawn[start : start + 8] for start in range(0, rows, 8)]
    assert sorted(found) == sorted(expected)
    if rows % 8:
        assert found[-1] == expected[-1]


def test_whoever_names_no_seed_gets_seed_0_and_two_classes_are_enough() -> None:
    assert list(ClassBalancedSampler(LABELS)) == list(ClassBalancedSampler(LABELS, seed=0))
    assert list(SimilarLengthSampler(LENGTHS, 8)) == list(SimilarLengthSampler(LENGTHS, 8, seed=0))
    assert sorted(ClassBalancedSampler([1, 0])) == [0, 1]


def test_similar_lengths_come_in_no_order_of_length() -> None:
    rows = list(SimilarLengthSampler(LENGTHS, 8, seed=3))
    means = [sum(LENGTHS[row] for row in batch) / 8 for batch in BatchSampler(rows, 8, drop_last=True)]  # type: ignore[arg-type]
    rising = sum(left < right for left, right in pairwise(means)) / len(means)
    assert 0.35 < rising < 0.65


def test_similar_lengths_differ_by_epoch_and_can_be_repeated() -> None:
    balanced = ClassBalancedSampler(LABELS, seed=1)
    for sampler in (
        SimilarLengthSampler(LENGTHS, 8, seed=1),
        SimilarLengthSampler(LENGTHS[: len(LABELS)], 8, order=balanced, seed=1),
    ):
        first = list(sampler)
        sampler.set_epoch(1)
        assert list(sampler) != first
        sampler.set_epoch(0)
        assert list(sampler) == first
    assert list(SimilarLengthSampler(LENGTHS, 8, seed=2)) != list(SimilarLengthSampler(LENGTHS, 8, seed=1))


@pytest.mark.parametrize("batch_size", [6, 8, 16])
def test_similar_lengths_keep_balanced_batches_balanced(batch_size: int) -> None:
    order = ClassBalancedSampler(LABELS, seed=3)
    sampler = SimilarLengthSampler(LENGTHS[: len(LABELS)], batch_size, order=order, seed=3)
    assert Counter(sampler) == Counter(order)
    assert all(is_balanced(batch) for batch in BatchSampler(sampler, batch_size, drop_last=True))
