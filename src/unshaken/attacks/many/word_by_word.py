"""Words in a fixed order, each with its best substitute in the text so far: TextFooler, and PWWS as TextAttack has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from unshaken.attacks.many.groups import first_best

if TYPE_CHECKING:
    from unshaken.attacks.many.cohort import Answers, Cohort

# Of rows (n, places) that were made from others and are answered: which success to end with, the higher the better.
Prefer = Callable[[Tensor, Tensor, Tensor, "Answers"], Tensor]


def swap_word_by_word(
    cohort: Cohort, order: Tensor, *, beat_clean: bool = False, prefer: Prefer | None = None
) -> Iterator[None]:
    """Visit places in `order`, (examples, places), and keep the best substitute of each where it helps.

    Args:
        cohort: The examples.
        order: The places of each example, those it has first.
        beat_clean: A substitute helps where it beats the text as it was, not the text so far.
        prefer: Which of several successes to end with: owner, rows, the rows they were made from and answers -> (n,).
            That of the highest value if None.
    """
    rows, values = cohort.clean_rows(order), cohort.clean.values.clone()
    for step in range(cohort.width):
        active = cohort.active()
        active = active[cohort.places[active] > step]
        if not len(active):
            return
        place = order[active, step]
        start, choice = cohort.substitutes_at(active, place)
        owner = active[start]
        candidates = rows[owner].scatter(1, place[start, None], choice[:, None].short())
        answers = cohort.ask(owner, candidates, previous=rows[owner])
        liking = None if prefer is None else prefer(owner, candidates, rows[owner], answers)
        cohort.settle(owner, candidates, answers, liking=liking)
        best = first_best(answers.values, owner, len(cohort)).clamp_max(len(candidates) - 1)[active]
        better = answers.values[best] > (cohort.clean.values if beat_clean else values)[active]
        rows[active] = candidates[best].where(better[:, None], rows[active])
        values[active] = answers.values[best].where(better, values[active])
        yield


def probe_rows(cohort: Cohort, active: Tensor, blot: int) -> tuple[Tensor, Tensor, Tensor]:
    """Each example with each of its words blotted out: the example, the place and the row. (n,), (n,), (n, places)"""
    owner, place = cohort.is_place()[active].nonzero(as_tuple=True)
    owner = active[owner]
    return owner, place, cohort.clean_rows(owner).scatter_(1, place[:, None], blot)


def by_promise(promise: Tensor) -> Tensor:
    """Places by falling promise, ties in reading order. (examples, places)"""
    return torch.sort(promise, dim=1, descending=True, stable=True).indices
