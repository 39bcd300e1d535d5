"""White-box searches of a cohort: what they see inside the model, and what they ask because of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from unshaken.attacks.drawing import drawn_from
from unshaken.attacks.many.groups import first_best, within
from unshaken.attacks.questions import Inspection

if TYPE_CHECKING:
    from unshaken.attacks.many.cohort import Cohort


def looked_into(cohort: Cohort, active: Tensor, rows: Tensor, number: int) -> dict[int, np.ndarray]:
    """What the attack sees at the rows of some examples, (examples, places), at its look of this number."""
    numbers, texts = active.tolist(), rows[active].cpu().numpy()
    spaces = [cohort.spaces[example] for example in numbers]
    looks = [Inspection(space, row[: len(space)], number) for space, row in zip(spaces, texts, strict=True)]
    return dict(zip(numbers, cohort.attack.inspect(cohort.victim, looks), strict=True))


def best_promises(cohort: Cohort, walking: Tensor, rows: Tensor, seen: Sequence[np.ndarray], asked: int) -> Tensor:
    """Swap one more word of each row by what the best promises turn out to be worth, and leave it in `rows`.

    Args:
        cohort: The examples.
        walking: Those that are to take a step. (walking,)
        rows: The text so far of each example. (examples, places)
        seen: What each choice promises to those that walk, each (positions, choices).
        asked: How many promises are asked about at once; more where constraints refuse all of these.

    Returns:
        The examples that have taken one.
    """
    promises = np.full((len(seen), cohort.width, max(own.shape[1] for own in seen)), -np.inf)
    for row, own in enumerate(seen):
        promises[row, : own.shape[0], 1 : own.shape[1]] = np.where(np.isnan(own), -np.inf, own)[:, 1:]  # none is asked
    choices = promises.shape[2]
    open_places = (rows[walking] == 0)[..., None]
    flat = torch.from_numpy(promises).to(cohort.device).where(open_places, -torch.inf).flatten(1)
    order = flat.sort(dim=1, descending=True, stable=True).indices
    counts = flat.isfinite().sum(1)
    pending = torch.arange(len(walking), device=cohort.device)
    stepped = torch.zeros_like(cohort.alive)
    for first in range(0, int(counts.max()), asked):
        cohort.active()  # leaves out those whose budget is spent
        pending = pending[(counts[pending] > first) & cohort.alive[walking[pending]]]
        lengths = (counts[pending] - first).clamp_max(asked)
        total = int(lengths.sum())
        if total == 0:
            break
        of = pending.repeat_interleave(lengths, output_size=total)
        chosen, owner = order[of, first + within(lengths, total)], walking[of]
        candidates = rows[owner].scatter(1, (chosen // choices)[:, None], (chosen % choices)[:, None].short())
        answers = cohort.ask(owner, candidates, previous=rows[owner])
        cohort.settle(owner, candidates, answers)
        best = first_best(answers.values, owner, len(cohort))[walking[pending]]
        allowed = answers.values[best].isfinite()
        rows[walking[pending[allowed]]] = candidates[best[allowed]]
        stepped[walking[pending[allowed]]] = True
        pending = pending[~allowed]
    return walking[stepped[walking]]


def ask_draws(
    cohort: Cohort, weights: Mapping[int, np.ndarray], count: int, streams: Sequence[np.random.Generator]
) -> None:
    """Ask about texts of each example, drawn by its weights."""
    numbers = cohort.active().tolist()
    if not numbers or not count:
        return
    rows = np.zeros((len(numbers), count, cohort.width), np.int16)
    for at, number in enumerate(numbers):
        space = cohort.spaces[number]
        rows[at, :, : len(space)] = drawn_from(weights[number], space.sizes, count, streams[number])
    owner = torch.tensor(numbers, device=cohort.device).repeat_interleave(count)
    drawn = torch.from_numpy(rows).to(cohort.device).flatten(0, 1)
    cohort.settle(owner, drawn, cohort.ask(owner, drawn, in_order=True), first=True)
