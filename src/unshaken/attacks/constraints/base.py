"""What a constraint is, and how an attack applies several of them in batches, before a single query.

An attack asks in two places:

1. Before the search, once for each text: `restrict` takes the substitutes of every position and gives back those that
   all constraints allow. A position without substitutes is not attacked.
2. During the search, for whole candidate texts: `check` says which of many candidates, of any number of examples, are
   allowed. Cheap constraints come first in `constraints`; a candidate that one refuses never reaches the next. Those
   that need not see the text (`check_rows`) come before all others.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from torch import Tensor

from unshaken.substitutions.words import Words
from unshaken.wordings import Wordings

Choices = Sequence[Sequence[str]]  # the substitutes of each position of a text


class Together(Protocol):
    """Examples that are searched together, as far as constraints look at them; the engine's `Cohort` is one.

    Attributes:
        spaces: The wordings of each example.
        frozen_columns: Columns that no example may change.
        columns: The column of each place, -1 where an example has no such place. (examples, places)
        notes: What constraints keep of the examples.
    """

    columns: Tensor
    notes: dict[Any, Any]

    @property
    def spaces(self) -> Sequence[Wordings]: ...
    @property
    def frozen_columns(self) -> Collection[int]: ...
    def check_texts(self, constraint: Constraint, owner: Tensor, rows: Tensor, previous: Tensor) -> Tensor:
        """Which rows a constraint allows that looks at texts. (n,)"""

    def candidates(
        self, owner: Tensor, rows: Tensor, previous: Tensor, changed_only: bool = False
    ) -> list[list[Candidate]]:
        """Each row as constraints see its texts."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One changed text of one column, as a constraint sees it.

    Attributes:
        original: The words before the attack.
        swaps: Position to replacement of every changed word, written as in the text (its case already carried over).
        previous: The swaps of the text that this candidate was made from; none if it was made from the original.
        column: Which text of a pair this is.
    """

    original: Words
    swaps: Mapping[int, str]
    previous: Mapping[int, str] = field(default_factory=dict)
    column: int = 0

    @cached_property
    def text(self) -> str:
        return self.original.replace(self.swaps, carry_case=False)

    @cached_property
    def changed(self) -> tuple[int, ...]:
        """The positions where this text and the one it was made from differ."""
        positions = self.swaps.keys() | self.previous.keys()
        return tuple(sorted(at for at in positions if self.swaps.get(at) != self.previous.get(at)))


class Constraint(ABC):
    """Base of all constraints. Subclasses are frozen dataclasses of their settings and override one or two methods."""

    name: ClassVar[str]

    def allowed_positions(self, words: Words, column: int = 0) -> Sequence[int]:
        """Which words may be replaced at all."""
        return range(len(words))

    def allowed_choices(self, texts: Sequence[Words], choices: Sequence[Choices]) -> list[list[list[str]]]:
        """The substitutes that may stand in for each word of each text, judged one swap at a time in the original."""
        return [[list(of_word) for of_word in of_text] for of_text in choices]

    def check(self, candidates: Sequence[Candidate]) -> list[bool]:
        """Which candidate texts are allowed."""
        return [True] * len(candidates)

    def check_rows(
        self, rows: np.ndarray, previous: np.ndarray | None, columns: np.ndarray, words: Sequence[int]
    ) -> np.ndarray:
        """The same for many rows of one example at once: optional, for constraints that need not see the text.

        Args:
            rows: Candidates as choices, (n, positions); 0 keeps a word.
            previous: The row they were made from, or one for each; none if it was the original.
            columns: The column of each position.
            words: How many words each column has.

        Returns:
            (n,) booleans.
        """
        raise NotImplementedError(f"{self.name} looks at texts")

    def check_many(self, cohort: Together, owner: Tensor, rows: Tensor, previous: Tensor) -> Tensor | None:
        """The same for rows of many examples that are searched together: optional, for speed.

        Args:
            owner: The example of each row. (n,)
            rows: Candidates as choices; each changes some word. (n, places)
            previous: The rows they were made from. (n, places)

        Returns:
            (n,) booleans; None where the texts have to be looked at.
        """
        return None

    @property
    def reads_rows(self) -> bool:
        return type(self).check_rows is not Constraint.check_rows


def restrict(
    constraints: Sequence[Constraint],
    texts: Sequence[Words],
    choices: Sequence[Choices],
    columns: Sequence[int] | None = None,
) -> list[list[list[str]]]:
    """The substitutes of every position of many texts that all constraints allow.

    Args:
        constraints: Applied in their order.
        texts: The words of each text.
        choices: Of each text, the substitutes of each position: `Substitutions.for_text(words)`.
        columns: Which column of its example each text is; all are 0 if None.
    """
    remaining = []
    for row, (words, of_text) in enumerate(zip(texts, choices, strict=True)):
        allowed = open_positions(constraints, words, columns[row] if columns else 0)
        remaining.append([list(found) if at in allowed else [] for at, found in enumerate(of_text)])
    for constraint in constraints:
        if type(constraint).allowed_choices is not Constraint.allowed_choices:
            remaining = constraint.allowed_choices(texts, remaining)
    return remaining


def open_positions(constraints: Sequence[Constraint], words: Words, column: int = 0) -> Collection[int]:
    """The words that all constraints allow to be replaced."""
    allowed: Collection[int] = range(len(words))
    for constraint in constraints:
        if type(constraint).allowed_positions is not Constraint.allowed_positions:  # others allow all
            allowed = set(allowed).intersection(constraint.allowed_positions(words, column))
    return allowed


def speaks_for_itself(constraint: Constraint) -> bool:
    """Whether its `check_many` says what its `check` says; not if a subclass has changed `check` alone."""
    order = type(constraint).__mro__

    def rank(name: str) -> int:
        return next((rank for rank, kind in enumerate(order) if name in vars(kind)), len(order))

    return all(rank("check_many") <= rank(name) for name in ("check", "check_rows", "scores"))


def check(constraints: Sequence[Constraint], candidates: Sequence[Candidate]) -> list[bool]:
    """Which candidates all constraints allow; each constraint sees in one batch what those before it let through."""
    allowed = [True] * len(candidates)
    for constraint in constraints:
        rows = [row for row, passes in enumerate(allowed) if passes]
        if rows:
            for row, passes in zip(rows, constraint.check([candidates[row] for row in rows]), strict=True):
                allowed[row] = passes
    return allowed
