"""`Cohort`: examples searched together. It owns queries, repeats, budgets and success, as `ExampleSearch` does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unshaken.attacks.constraints.base import Candidate, Constraint, speaks_for_itself
from unshaken.attacks.many.goals import TensorGoal
from unshaken.attacks.many.groups import any_of, first_best, first_true, rank_of, within
from unshaken.attacks.outcomes import conclude
from unshaken.attacks.questions import Searcher
from unshaken.attacks.results import AttackResult
from unshaken.attacks.space import Space, candidates_of
from unshaken.victims.base import Victim
from unshaken.victims.reworded import RewordedTable
from unshaken.wordings import TokenTable
from unshaken.wordings.memory import Memory


@dataclass(frozen=True)
class Answers:
    """The answers to many rows. What a constraint refuses or lies beyond the budget has -inf and no success."""

    values: Tensor  # (n,) float64, higher is closer to the goal
    success: Tensor  # (n,) bool
    log_probabilities: Tensor  # (n, classes)


class VictimFailure(Exception):  # noqa: N818 - it says what happened
    """The model could not answer a batch; the examples behind it are searched one by one instead."""


class Cohort:
    """Some examples on the victim's device.

    A search asks about rows (`ask`), each with the number of its example in `owner`; rows of one example stand together
    and in order. Examples leave by `settle` (a text that reached the goal), by their budget, or when the search ends.

    Attributes:
        sizes: Choices of each place, 1 where an example has no such place. (examples, places)
        places: How many places each example has. (examples,)
        columns: The column of each place, -1 where an example has no such place. (examples, places)
        alive: Which examples are still searched. (examples,)
        clean: The answers to the texts as they are.
        notes: What constraints keep of the examples.
    """

    def __init__(
        self, attack: Searcher, victim: Victim, spaces: Sequence[Space], table: TokenTable | RewordedTable
    ) -> None:
        self.attack, self.victim, self.spaces, self.table = attack, victim, spaces, table
        self.device = table.device
        self.goal = TensorGoal(attack.goal, attack.scoring)
        self.width = table.places
        count = len(spaces)
        sizes = np.ones((count, self.width), np.int64)
        for row, space in enumerate(spaces):
            sizes[row, : len(space)] = space.sizes
        self.sizes = torch.from_numpy(sizes).to(self.device)
        self.places = torch.tensor([len(space) for space in spaces], device=self.device)
        self.labels = torch.tensor([int(space.example.label) for space in spaces], device=self.device)
        columns = np.full((count, self.width), -1, np.int64)
        for row, space in enumerate(spaces):
            columns[row, : len(space)] = [column for column, _ in space.places]
        self.columns = torch.from_numpy(columns).to(self.device)
        self.alive = torch.ones(count, dtype=torch.bool, device=self.device)
        self._reported = np.zeros(count, bool)
        self._won = torch.zeros_like(self.alive)
        self._spent = torch.zeros_like(self.alive)
        self._found = self.clean_rows(torch.arange(count, device=self.device))
        self._queries = torch.zeros_like(self.labels)
        self._asked_rows = torch.zeros_like(self.labels)
        self._best = torch.full((count,), -torch.inf, dtype=torch.float64, device=self.device)
        self._best_answer = torch.zeros(count, victim.num_labels, device=self.device)
        self._memory = Memory(victim.num_labels, self.device)
        self._started = time.perf_counter()
        self.notes: dict[Any, Any] = {}
        self.clean: Answers

    def start(self) -> None:
        """Ask about the texts as they are. Wrong answers and texts without places are not searched."""
        everyone = torch.arange(len(self), device=self.device)
        self.clean = self.ask(everyone, self.clean_rows(everyone))
        right = self.clean.log_probabilities.argmax(1) == self.labels
        self.alive &= right & (self.places > 0) & self.goal.applies(self.labels)

    def __len__(self) -> int:
        return len(self.spaces)

    @property
    def frozen_columns(self) -> tuple[int, ...]:
        """Columns that no example may change."""
        return self.spaces[0].frozen_columns

    def active(self) -> Tensor:
        """The numbers of the examples that are still searched. (active,)"""
        self.alive &= ~self._spent
        return self.alive.nonzero()[:, 0]

    def is_place(self) -> Tensor:
        """(examples, places)"""
        return torch.arange(self.width, device=self.device) < self.places[:, None]

    def clean_rows(self, owner: Tensor) -> Tensor:
        return torch.zeros(len(owner), self.width, dtype=torch.int16, device=self.device)

    def single_swaps(self, owner: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Every way to swap one more word of each row: the row it starts from, its place and its choice. Each (n,)"""
        open_places = (rows == 0) & self.is_place()[owner]
        start, place = open_places.nonzero(as_tuple=True)
        counts = self.sizes[owner[start], place] - 1
        total = int(counts.sum())
        repeated = torch.arange(len(start), device=self.device).repeat_interleave(counts, output_size=total)
        return start[repeated], place[repeated], within(counts, total) + 1

    def substitutes_at(self, owner: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
        """Every substitute at one place of each row: the row it starts from and its choice. Each (n,)"""
        counts = self.sizes[owner, place] - 1
        total = int(counts.sum())
        start = torch.arange(len(owner), device=self.device).repeat_interleave(counts, output_size=total)
        return start, within(counts, total) + 1

    def per_place(self, owner: Tensor, place: Tensor, values: Tensor) -> Tensor:
        """Values by example and place, -inf if there is none. (examples, places)"""
        spread = values.new_full((len(self), self.width), -torch.inf)
        return spread.index_put((owner, place), values)

    def ask(
        self,
        owner: Tensor,
        rows: Tensor,
        *,
        in_order: bool = False,
        probes: bool = False,
        previous: Tensor | None = None,
    ) -> Answers:
        """Ask about rows, (n,) and (n, places).

        Args:
            owner: The example of each row, ascending.
            rows: Choices, int16.
            in_order: As in `Ask`: only rows up to an example's first success count as queries.
            probes: Every row blots out a word. Such texts never succeed.
            previous: The rows that constraints compare with. (n, places)
        """
        self.alive &= ~self._spent
        asked, truncated = self._asked(owner, self._allowed(owner, rows, probes, previous))
        if asked is None:
            answers = self._answers(owner, rows)
        else:
            some = self._answers(owner[asked], rows[asked])
            answers = some.new_full((len(rows), some.shape[1]), -torch.inf)
            answers[asked] = some
        values = self.goal.values(answers, self.labels[owner])
        success = self.goal.reached(answers, self.labels[owner])
        was_asked = torch.ones_like(success)
        if asked is not None:
            was_asked = torch.zeros_like(success).index_fill(0, asked, True)
            values, success = values.masked_fill(~was_asked, -torch.inf), success & was_asked
        if probes:
            success = torch.zeros_like(success)
        else:
            self._keep_best(owner, values, answers)
        self._count(owner, was_asked, success if in_order else None, truncated)
        return Answers(values, success, answers)

    def look_ahead(self, owner: Tensor, rows: Tensor) -> None:
        """Have rows answered before they are asked about, in one go with others: fewer and fuller batches.

        What is asked afterwards counts as ever. Nothing is done where a constraint or the budget may refuse some.
        """
        if not self.attack.checks and self.attack.query_budget is None:
            self._answers(owner, rows)

    def settle(
        self, owner: Tensor, rows: Tensor, answers: Answers, *, first: bool = False, liking: Tensor | None = None
    ) -> None:
        """End the examples that have a success: with the first of theirs, or the one of highest value or liking."""
        hits = answers.success & self.alive[owner]
        if first:
            chosen = first_true(hits, owner, len(self))
        else:
            worth = answers.values if liking is None else liking
            chosen = first_best(worth.masked_fill(~hits, -torch.inf), owner, len(self))
        won = any_of(hits, owner, len(self))
        chosen = chosen.clamp_max(max(0, len(rows) - 1))
        if len(rows):
            self._found = rows[chosen].where(won[:, None], self._found)
            self._best_answer = answers.log_probabilities[chosen].where(won[:, None], self._best_answer)
        self._won |= won
        self.alive &= ~won

    def finished(self, *, all_done: bool = False) -> list[AttackResult]:
        """The results of examples that ended since the last call; of all that are left where the search is over."""
        if all_done:
            self.alive = torch.zeros_like(self.alive)
        ended = ~self.alive.cpu().numpy() & ~self._reported
        if not ended.any():
            return []
        self._reported |= ended
        seconds = time.perf_counter() - self._started
        # Each copy to the host is a wait: one for all whole numbers, and one for the answers.
        numbers = torch.stack([self._won, self._queries, self._asked_rows, self.labels], 1)
        whole = torch.cat([numbers, self._found], 1).cpu().numpy()
        (won, queries, asked, labels), found = whole[:, :4].T, whole[:, 4:]
        before, after = torch.stack([self.clean.log_probabilities, self._best_answer]).cpu().numpy()
        skipped = before.argmax(1) != labels
        return [
            conclude(
                self.spaces[number],
                "skipped" if skipped[number] else "success" if won[number] else "failure",
                row=found[number, : len(self.spaces[number])] if won[number] else None,
                before=before[number],
                after=after[number],
                queries=int(queries[number]),
                rows=int(asked[number]),
                seconds=seconds,
            )
            for number in np.flatnonzero(ended).tolist()
        ]

    def unfinished(self) -> list[Space]:
        """The examples whose results were not taken yet."""
        return [space for space, done in zip(self.spaces, self._reported.tolist(), strict=True) if not done]

    def _allowed(self, owner: Tensor, rows: Tensor, probes: bool, previous: Tensor | None) -> Tensor | None:
        """Which rows the constraints allow; None if they allow all. (n,)"""
        if not self.attack.checks or probes:
            return None
        before = torch.zeros_like(rows) if previous is None else previous
        changed = rows.any(1)
        left = changed.nonzero()[:, 0]
        # Texts are looked at only where the constraints that need none let them through.
        for constraint in sorted(self.attack.checks, key=lambda found: not found.reads_rows):
            some = (owner[left], rows[left], before[left])
            found = constraint.check_many(self, *some) if len(left) and speaks_for_itself(constraint) else None
            left = left[self.check_texts(constraint, *some) if found is None else found]
        return (~changed).index_fill(0, left, True)

    def check_texts(self, constraint: Constraint, owner: Tensor, rows: Tensor, previous: Tensor) -> Tensor:
        """Which rows a constraint allows that looks at texts. (n,)"""
        made = self.candidates(owner, rows, previous)
        allowed = np.ones(len(owner), bool)
        numbers = [number for number, own in enumerate(made) for _ in own]
        passed = constraint.check([candidate for own in made for candidate in own])
        np.logical_and.at(allowed, numbers, np.array(passed, bool))
        return torch.from_numpy(allowed).to(self.device)

    def candidates(
        self, owner: Tensor, rows: Tensor, previous: Tensor, changed_only: bool = False
    ) -> list[list[Candidate]]:
        """Each row as constraints see its texts; see `candidates_of`."""
        made = []
        for number, row, before in zip(*(part.cpu().numpy() for part in (owner, rows, previous)), strict=True):
            space = self.spaces[number]
            made.append(list(candidates_of(space, row[: len(space)], before[: len(space)], changed_only)))
        return made

    def _asked(self, owner: Tensor, allowed: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """The numbers of the rows that are asked (None: all), and whose budget cut some off. (n,), (examples,)"""
        budget = self.attack.query_budget
        if allowed is None and budget is None:
            return None, None
        chosen = self.alive[owner] if allowed is None else allowed & self.alive[owner]
        if budget is None:
            return chosen.nonzero()[:, 0], None
        left = (budget - self._queries).clamp_min(0)
        fits = chosen & (rank_of(chosen, owner, len(self)) <= left[owner])
        return fits.nonzero()[:, 0], any_of(chosen & ~fits, owner, len(self))

    def _answers(self, owner: Tensor, rows: Tensor) -> Tensor:
        """Log-probabilities of rows; those that were asked before are remembered. (n, classes)"""
        known = self._memory.look_up(self.table.keys(owner, rows))
        try:
            answers = self.victim.predict_table(self.table, owner[known.new], rows[known.new])
        except Exception as error:
            raise VictimFailure(str(error)) from error
        self._memory.add(answers)
        self._asked_rows.index_add_(0, owner[known.new], torch.ones_like(known.new))
        return self._memory.answers[known.numbers]

    def _keep_best(self, owner: Tensor, values: Tensor, answers: Tensor) -> None:
        """Remember the best answer of each example, for those that end without success."""
        if not len(values):
            return
        first = first_best(values, owner, len(self))
        at = first.clamp_max(len(values) - 1)
        better = (first < len(values)) & (values[at] > self._best)
        self._best = values[at].where(better, self._best)
        self._best_answer = answers[at].where(better[:, None], self._best_answer)

    def _count(self, owner: Tensor, asked: Tensor, success: Tensor | None, truncated: Tensor | None) -> None:
        counted = asked
        if success is not None:
            first = first_true(success, owner, len(self))
            counted = asked & (torch.arange(len(owner), device=self.device) <= first[owner])
        self._queries = self._queries.index_add(0, owner, counted.long())
        budget = self.attack.query_budget
        if budget is not None:
            self._spent = self._queries >= budget
            if truncated is not None:
                self._spent |= truncated
