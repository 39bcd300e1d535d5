"""Swaps that were chosen beforehand, applied one after another until the goal is reached; see `base.ask_prefixes`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import Tensor

from unshaken.attacks.many.groups import within

if TYPE_CHECKING:
    from unshaken.attacks.many.cohort import Cohort


def ask_many_prefixes(cohort: Cohort, rank: Tensor, choices: Tensor) -> Iterator[None]:
    """Apply `choices` in the order of `rank`, in growing blocks.

    Args:
        cohort: The examples.
        rank: When the swap of each place comes; the width of the cohort or more where it never does. (examples, places)
        choices: What each place becomes. (examples, places)
    """
    counts = (rank < cohort.width).sum(1)
    start, size = 0, 2
    while True:
        active = cohort.active()
        lengths = (counts[active] - start).clamp(0, size)
        total = int(lengths.sum())
        if total == 0:
            return
        owner = active.repeat_interleave(lengths, output_size=total)
        last = start + within(lengths, total)  # (n,) the last swap of each text
        rows = choices[owner].where(rank[owner] <= last[:, None], 0).short()
        cohort.settle(owner, rows, cohort.ask(owner, rows, in_order=True), first=True)
        start, size = start + size, min(2 * size, 256)
        yield


def ask_many_one_by_one(cohort: Cohort, rank: Tensor, choices: Tensor) -> Iterator[None]:
    """The same under constraints on whole texts: a swap that they refuse is left out of all texts that follow."""
    counts = (rank < cohort.width).sum(1)
    current = cohort.clean_rows(rank)
    for step in range(cohort.width):
        active = cohort.active()
        active = active[counts[active] > step]
        if not len(active):
            return
        changed = choices[active].where(rank[active] == step, current[active].long()).short()
        answers = cohort.ask(active, changed, previous=current[active])
        cohort.settle(active, changed, answers, first=True)
        current = current.index_put((active,), changed.where(answers.values.isfinite()[:, None], current[active]))
        yield
