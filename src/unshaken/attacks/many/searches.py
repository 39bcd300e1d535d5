"""Runs a batched search over all examples, cohort by cohort; what it cannot take is left to flights."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeGuard, overload

import numpy as np

from unshaken.attacks.many.cohort import Cohort, VictimFailure
from unshaken.attacks.many.goals import TensorGoal
from unshaken.attacks.questions import Searcher
from unshaken.attacks.results import AttackResult
from unshaken.attacks.space import Space
from unshaken.examples import Example
from unshaken.victims.base import Victim
from unshaken.victims.reworded import RewordedAssembler, RewordedTable
from unshaken.wordings import TokenAssembler, TokenTable

Prepared = list[tuple[list[Space], TokenTable | RewordedTable]]
CELLS = 1 << 26  # choices in one question of a cohort at most, about; 128 MB


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """No garbage collection while this is open: each would look through all that was made so far, for nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class ManySearcher(Searcher, Protocol):
    """An attack that can search many examples at once."""

    @property
    def searches_many(self) -> bool: ...
    def joins_cohorts(self, space: Space) -> bool: ...
    def search_many(self, cohort: Cohort, streams: Sequence[np.random.Generator]) -> Iterator[None]: ...


class ManySearches:
    """The searches of one run.

    Args:
        attack: An attack with a `search_many`.
        victim: One that answers tables.
        assembler: Its `tables`.
        spaces: Makes the search spaces of examples.

    Attributes:
        left: Examples that flights have to take: their texts cannot be put together from parts, or the model failed on
            their cohort, and only a search of its own shows which of them is at fault.
        answered: Whether the victim ever answered.
    """

    def __init__(
        self,
        attack: ManySearcher,
        victim: Victim,
        assembler: TokenAssembler | RewordedAssembler,
        spaces: Callable[[Sequence[Example]], list[Space]],
    ) -> None:
        self.attack, self.victim, self.assembler = attack, victim, assembler
        self.left: list[Example] = []
        self.answered = False
        self._spaces = spaces

    @staticmethod
    def serves(attack: Searcher) -> TypeGuard[ManySearcher]:
        """A budget in seconds is one example's own, so such attacks are left to flights."""
        many = getattr(attack, "searches_many", False)
        return bool(many) and attack.time_budget is None and TensorGoal.supports(attack.goal)

    def results(self, examples: Sequence[Example], size: int) -> Iterator[list[AttackResult]]:
        """Results as they are found, round by round, `size` examples side by side."""
        blocks = [examples[start : start + size] for start in range(0, len(examples), size)]
        for prepared in self._ahead(blocks):
            for spaces, table in prepared:
                yield from self._cohort(spaces, table)

    def _cohort(self, spaces: Sequence[Space], table: TokenTable | RewordedTable) -> Iterator[list[AttackResult]]:
        cohort = Cohort(self.attack, self.victim, spaces, table)
        try:
            cohort.start()
            self.answered = True
            yield cohort.finished()
            for _ in self.attack.search_many(cohort, _Streams(self.attack, cohort.spaces)):
                yield cohort.finished()
        except VictimFailure:
            self.left += [space.example for space in cohort.unfinished()]
        else:
            yield cohort.finished(all_done=True)

    @without_collection()
    def _prepare(self, examples: Sequence[Example]) -> Prepared:
        spaces = self._spaces(examples)
        self.left += [space.example for space in spaces if not self.attack.joins_cohorts(space)]
        spaces = [space for space in spaces if self.attack.joins_cohorts(space)]
        made = list(zip(spaces, self.assembler.recipes(spaces), strict=True))
        self.left += [space.example for space, recipe in made if recipe is None]
        model = self.victim.network
        assert model is not None  # who has tables has a model
        return [
            ([space for space, _ in part], self.assembler.table([recipe for _, recipe in part], model.device))
            for part in _parts([(space, recipe) for space, recipe in made if recipe is not None])
        ]

    def _ahead(self, blocks: Sequence[Sequence[Example]]) -> Iterator[Prepared]:
        """What is searched next; where the device works beside Python, it is made ready meanwhile."""
        if not self.victim.runs_beside_python:
            yield from map(self._prepare, blocks)
            return
        with ThreadPoolExecutor(max_workers=1) as worker:
            pending = None
            for block in blocks:
                following = worker.submit(self._prepare, block)
                if pending is not None:
                    yield pending.result()
                pending = following
            if pending is not None:
                yield pending.result()


class _Streams(Sequence[np.random.Generator]):
    """The random stream of each example, made where it is drawn from: many searches draw nothing."""

    def __init__(self, attack: Searcher, spaces: Sequence[Space]) -> None:
        self._attack, self._spaces = attack, spaces
        self._made: dict[int, np.random.Generator] = {}

    def __len__(self) -> int:
        return len(self._spaces)

    @overload
    def __getitem__(self, index: int) -> np.random.Generator: ...
    @overload
    def __getitem__(self, index: slice) -> list[np.random.Generator]: ...
    def __getitem__(self, index: int | slice) -> np.random.Generator | list[np.random.Generator]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if index not in self._made:
            self._made[index] = self._attack.random_stream(self._spaces[index].example)
        return self._made[index]


def _parts(chosen: Sequence[tuple[Space, Any]]) -> Iterator[list[tuple[Space, Any]]]:
    """Fewer examples at once where texts are so long that their questions would not fit into memory."""
    part: list[tuple[Space, Any]] = []
    rows = width = 0
    for space, recipe in chosen:
        rows, width = rows + int(space.sizes.sum()), max(width, len(space))
        if part and rows * width > CELLS:
            yield part
            part, rows, width = [], int(space.sizes.sum()), len(space)
        part.append((space, recipe))
    if part:
        yield part
