"""What a search asks and is told, and the questions that many searches share. The engine stands on the other side."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from unshaken.attacks.goals import Goal, Scoring
from unshaken.attacks.results import AttackResults
from unshaken.attacks.space import PROBE, Space, ragged_arange
from unshaken.examples import Example
from unshaken.substitutions.base import Substitutions
from unshaken.substitutions.words import Words
from unshaken.victims.base import Victim

if TYPE_CHECKING:
    from unshaken.attacks.constraints import Constraint


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A question of a search to the victim.

    Attributes:
        rows: Candidates as choices, (n, positions).
        in_order: The algorithm would ask them one after another and stop at the first success. They are answered
            together, but only those up to that success count as queries.
        previous: The row that constraints may compare with, where an attack wants the last accepted text; or one for
            each of `rows`.
        look: Also look inside the model (`SearchAttack.inspect`), for white-box attacks: 1 for the first look at this
            example, 2 for the second. The one row is then no query.
    """

    rows: np.ndarray
    in_order: bool = False
    previous: np.ndarray | None = None
    look: int = 0


class Inspection(NamedTuple):
    """What a white-box search looks at."""

    space: Space
    row: np.ndarray
    number: int


@dataclass(frozen=True, kw_only=True)
class Scores:
    """The answer. A candidate that breaks a constraint or lies beyond the budget has the value -inf and no success."""

    values: np.ndarray  # (n,) higher is closer to the goal
    success: np.ndarray  # (n,) bool
    log_probabilities: np.ndarray  # (n, classes)
    inspection: Any = None  # what `SearchAttack.inspect` saw

    def best(self) -> int:
        """The first of the highest values: ties go to the lowest number, on every machine."""
        return int(self.values.argmax())

    def winner(self) -> int | None:
        """The success of the highest value. With three or more classes it need not have the highest of all values."""
        return int(np.where(self.success, self.values, -np.inf).argmax()) if self.success.any() else None


Search = Generator[Ask, Scores, np.ndarray | None]


class Searcher(Protocol):
    """What the engine needs of an attack; `SearchAttack` is one."""

    @property
    def name(self) -> str: ...
    @property
    def white_box(self) -> bool: ...
    @property
    def substitutions(self) -> Substitutions: ...
    @property
    def constraints(self) -> tuple[Constraint, ...]: ...
    @property
    def goal(self) -> Goal: ...
    @property
    def scoring(self) -> Scoring: ...
    @property
    def query_budget(self) -> int | None: ...
    @property
    def time_budget(self) -> float | None: ...
    @property
    def frozen_columns(self) -> tuple[str | int, ...]: ...

    def against(self, victim: Victim) -> Searcher: ...
    def search(self, space: Space, clean: Scores, rng: np.random.Generator) -> Search: ...
    @property
    def checks(self) -> tuple[Constraint, ...]: ...
    def merged(self, texts: Sequence[Words]) -> list[dict[int, list[str]]]: ...
    def inspect(self, victim: Victim, looks: Sequence[Inspection]) -> list[Any]: ...
    def probe_form(self, victim: Victim) -> str: ...
    def random_stream(self, example: Example) -> np.random.Generator: ...
    def no_results(self, victim: Victim) -> AttackResults: ...


BLOCK_CELLS = 1 << 22  # a question holds at most about this many choices, so that very long texts stay in memory


class Swaps(NamedTuple):
    """Single swaps: which row each starts from, which position it changes, and to which choice."""

    owners: np.ndarray
    positions: np.ndarray
    choices: np.ndarray

    def rows(self, start_rows: np.ndarray, block: slice | np.ndarray) -> np.ndarray:
        """The texts of some of them. (starts, positions) -> (n, positions)"""
        rows: np.ndarray = start_rows[self.owners[block]]
        rows[np.arange(len(rows)), self.positions[block]] = self.choices[block]
        return rows


def ask_swaps(space: Space, start_rows: np.ndarray) -> Generator[Ask, Scores, tuple[Swaps, Scores]]:
    """Ask about every way to swap one more word of each of `start_rows`, (starts, positions)."""
    owners, positions = np.nonzero(start_rows == 0)
    counts = space.sizes[positions] - 1
    swaps = Swaps(np.repeat(owners, counts), np.repeat(positions, counts), ragged_arange(counts) + 1)
    step = max(1, BLOCK_CELLS // max(1, len(space)))
    parts = []
    for start in range(0, len(swaps.owners), step):
        block = slice(start, start + step)
        parts.append((yield Ask(rows=swaps.rows(start_rows, block), previous=start_rows[swaps.owners[block]])))
    return swaps, join_scores(parts)


def ask_probes(space: Space, row: np.ndarray, positions: np.ndarray) -> Generator[Ask, Scores, Scores]:
    """Ask about `row` with each of `positions` blotted out."""
    step = max(1, BLOCK_CELLS // max(1, len(space)))
    parts = []
    for start in range(0, len(positions), step):
        chosen = positions[start : start + step]
        rows = np.repeat(row[None], len(chosen), axis=0)
        rows[np.arange(len(chosen)), chosen] = PROBE
        parts.append((yield Ask(rows=rows)))
    return join_scores(parts)


def ask_prefixes(
    space: Space, row: np.ndarray, order: np.ndarray, choices: np.ndarray
) -> Generator[Ask, Scores, np.ndarray | None]:
    """Apply `choices[i]` at `order[i]` one after another until the goal is reached.

    The texts do not depend on the answers, so they are asked about in growing blocks instead of one by one.
    """
    start, size = 0, 2
    while start < len(order):
        end = min(len(order), start + size)
        rows = np.repeat(row[None], end - start, axis=0)
        for index in range(start, end):
            rows[index - start :, order[index]] = choices[index]
        scores = yield Ask(rows=rows, in_order=True)
        if scores.success.any():
            return np.asarray(rows[scores.success.argmax()])
        row, start, size = rows[-1], end, min(2 * size, 256)
    return None


def ask_one_by_one(
    space: Space, row: np.ndarray, order: np.ndarray, choices: np.ndarray
) -> Generator[Ask, Scores, np.ndarray | None]:
    """The same under constraints on whole texts: a swap that they refuse is left out of all texts that follow."""
    for position, choice in zip(order.tolist(), choices.tolist(), strict=True):
        changed = space.with_choice(row, position, choice)
        scores = yield Ask(rows=changed[None], previous=row)
        if scores.success[0]:
            return changed
        if np.isfinite(scores.values[0]):
            row = changed
    return None


def join_scores(parts: Sequence[Scores]) -> Scores:
    if len(parts) == 1:
        return parts[0]
    return Scores(
        values=np.concatenate([part.values for part in parts]),
        success=np.concatenate([part.success for part in parts]),
        log_probabilities=np.concatenate([part.log_probabilities for part in parts]),
    )


def best_of_groups(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The first row of highest value in each group of consecutive rows. (n,), (groups,) -> (groups,)"""
    counts = np.diff(starts, append=len(values))
    highest = np.repeat(np.maximum.reduceat(values, starts), counts)
    hits = np.flatnonzero(values == highest)
    return hits[np.searchsorted(hits, starts)]
