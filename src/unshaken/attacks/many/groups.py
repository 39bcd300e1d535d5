"""Work on rows that belong to groups: the first of the highest, numbers within a group, ranks."""

from __future__ import annotations

import torch
from torch import Tensor


def first_best(values: Tensor, group: Tensor, groups: int) -> Tensor:
    """The first row of highest value in each group; the number of rows where a group is empty. (n,) -> (groups,)"""
    highest = values.new_full((groups,), -torch.inf).scatter_reduce(0, group, values, "amax")
    return first_true(values == highest[group], group, groups)


def first_true(chosen: Tensor, group: Tensor, groups: int) -> Tensor:
    """The first row that is chosen in each group; the number of rows where none is. (n,) -> (groups,)"""
    rows = torch.arange(len(group), device=group.device)
    nowhere = rows.new_full((groups,), len(group))
    return nowhere.scatter_reduce(0, group, rows.where(chosen, len(group)), "amin")


def within(counts: Tensor, total: int) -> Tensor:
    """0..c-1 for each count, end to end: [2, 3] -> [0, 1, 0, 1, 2]."""
    starts = counts.cumsum(0) - counts
    return torch.arange(total, device=counts.device) - starts.repeat_interleave(counts, output_size=total)


def rank_of(chosen: Tensor, group: Tensor, groups: int) -> Tensor:
    """How many rows of the same group are chosen up to and with each row; groups are runs of rows. (n,) -> (n,)"""
    so_far = chosen.long().cumsum(0)
    before = torch.zeros(groups, dtype=torch.long, device=group.device)
    before = before.scatter_reduce(0, group, so_far - chosen.long(), "amin", include_self=False)
    return so_far - before[group]


def any_of(chosen: Tensor, group: Tensor, groups: int) -> Tensor:
    """Whether a row of the group is chosen. (n,) -> (groups,)"""
    return torch.zeros(groups, dtype=torch.long, device=group.device).index_add(0, group, chosen.long()) > 0


def first_of_equals(rows: Tensor, group: Tensor) -> Tensor:
    """Which rows are the first of their group with these values. (n, width), (n,) -> (n,) booleans"""
    _, inverse = torch.unique(torch.cat([group[:, None], rows.long()], 1), dim=0, return_inverse=True)
    numbers = torch.arange(len(rows), device=rows.device)
    first = numbers.new_full((len(rows) + 1,), len(rows)).scatter_reduce(0, inverse, numbers, "amin")
    return first[inverse] == numbers
