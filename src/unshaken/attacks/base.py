"""What an attack is: settings, and a search that reads like its paper. The engine owns queries, budgets and success."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, Unpack

import numpy as np

from unshaken.attacks.engine import RunOptions, run
from unshaken.attacks.goals import SCORINGS, Goal, Scoring, Untargeted
from unshaken.attacks.questions import Ask, Inspection, Scores, Search
from unshaken.attacks.results import AttackResult, AttackResults
from unshaken.attacks.space import Space
from unshaken.errors import UnshakenError
from unshaken.examples import Example, random_stream
from unshaken.processes import WHOLE, Shard
from unshaken.substitutions import default_substitutions
from unshaken.substitutions.base import Substitutions
from unshaken.substitutions.words import Words
from unshaken.victims.base import Victim

if TYPE_CHECKING:
    from unshaken.attacks.constraints import Constraint
    from unshaken.attacks.many.cohort import Cohort

__all__ = ["Ask", "Attack", "AttackResult", "AttackResults", "Inspection", "Scores", "Search", "SearchAttack"]


@dataclass(frozen=True, kw_only=True)
class Attack(ABC):
    """Anything that attacks: a search, the transfer of another attack, the worst of several."""

    name: ClassVar[str]
    white_box: ClassVar[bool] = False  # follows gradients, and so needs the model itself
    needs_scores: ClassVar[bool] = True  # climbs the victim's scores: where those mislead, so is the search
    citation: ClassVar[tuple[str, ...]] = ()  # keys of citations.bib, or whole BibTeX entries

    @abstractmethod
    def __call__(
        self,
        victim: Victim,
        examples: Sequence[Example],
        *,
        out: Path | str | None = None,
        resume: bool = False,
        progress: bool = False,
        in_flight: int | None = None,
        shard: Shard = WHOLE,
    ) -> AttackResults:
        """Attack every example.

        Args:
            victim: The classifier.
            examples: What to attack; ids must be unique.
            out: A JSONL file to which each finished example is written at once.
            resume: Continue the run that `out` holds; its settings must be the same.
            progress: Show a progress bar with the accuracy under attack so far.
            in_flight: How many examples are searched side by side; if None 1,024 on a GPU and 256 elsewhere. It changes
                the speed, never the answer.
            shard: Attack this share of the examples only, and return its results. Each process writes a part of `out`,
                which `gather` makes one file of.
        """

    def goal_reached(self, log_probabilities: np.ndarray, label: int) -> np.ndarray:
        """Which answers count as success for examples of this label. (n, classes) -> (n,)"""
        return Untargeted().reached(log_probabilities, label)

    def files(self, out: Path) -> list[Path]:
        """Every results file of a run that writes to `out`; attacks made of others have one for each of them."""
        return [out]

    def no_results(self, victim: Victim) -> AttackResults:
        """Results without rows, for headers and as a start."""
        about = {"name": victim.name, "fingerprint": victim.fingerprint}
        return AttackResults(rows=(), attack=self.name, settings=self.settings(), victim=about)

    def settings(self) -> dict[str, Any]:
        """Every setting as plain JSON, for headers and reports."""
        own = {f.name: describe(getattr(self, f.name)) for f in dataclasses.fields(self)}
        traits = {trait: getattr(self, trait) for trait in ("white_box", "needs_scores", "citation")}
        told = {trait: describe(value) for trait, value in traits.items() if value != getattr(Attack, trait)}
        return {"name": self.name, **told, **own}


@dataclass(frozen=True, kw_only=True)
class SearchAttack(Attack):
    """Base of all searches: what may be changed, what counts, what it may cost.

    Attributes:
        substitutions: The allowed replacements of a word.
        constraints: What a changed text must also satisfy.
        goal: What counts as success.
        scoring: The score the search climbs.
        query_budget: Most queries per example; a search that wants more has failed.
        time_budget: Most seconds per example, checked between questions; results then depend on the machine.
        frozen_columns: Columns (by name or number) that stay as they are, such as the premise of NLI.
        seed: Each example draws from its own stream, made of this seed and its id.
    """

    probe: ClassVar[Literal["unknown", "delete"]] = "unknown"
    search_parts: ClassVar[tuple[str, ...]] = ()  # methods that `search` calls and `search_many` has written into it

    substitutions: Substitutions = field(default_factory=lambda: default_substitutions())
    constraints: tuple[Constraint, ...] = ()
    goal: Goal = field(default_factory=Untargeted)
    scoring: Scoring = "margin"
    query_budget: int | None = None
    time_budget: float | None = None
    frozen_columns: tuple[str | int, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.substitutions, Substitutions):
            raise UnshakenError(f"substitutions is {self.substitutions!r}; give a set in Python, or --substitutions")
        if not isinstance(self.goal, Goal):
            raise UnshakenError(f"goal is {self.goal!r}; give a goal in Python, such as Targeted(1)")
        if any(not hasattr(item, "check") for item in self.constraints or ()):
            raise UnshakenError(f"constraints is {self.constraints!r}; give a tuple of constraints, in Python")
        if self.scoring not in SCORINGS:
            raise UnshakenError(f"scoring is {self.scoring!r}; it must be one of {', '.join(SCORINGS)}")
        for budget in ("query_budget", "time_budget"):
            value = getattr(self, budget)
            if value is not None and value <= 0:
                raise UnshakenError(f"{budget} is {value}; it must be positive, or None for no limit")
        if isinstance(self.frozen_columns, (str, int)):
            object.__setattr__(self, "frozen_columns", (self.frozen_columns,))

    def against(self, victim: Victim) -> Self:
        """The same search by somebody who knows the victim's reader; records name it as it was asked for."""
        return dataclasses.replace(self, substitutions=self.substitutions.against(victim.reader))

    @abstractmethod
    def search(self, space: Space, clean: Scores, rng: np.random.Generator) -> Search:
        """Ask about rows of `space` until one succeeds, and return it; None if the search gives up."""

    def search_many(self, cohort: Cohort, streams: Sequence[np.random.Generator]) -> Iterator[None]:
        """The same search for many examples at once, as tensor work; optional, and only for speed.

        It must find what `search` finds. Each `yield` ends a round, after which finished examples leave.
        """
        raise NotImplementedError(f"{self.name} searches one example at a time")

    def joins_cohorts(self, space: Space) -> bool:
        """Whether an example may be searched with others; otherwise `search` takes it, or says why it cannot."""
        return True

    @property
    def searches_many(self) -> bool:
        """Whether `search_many` is there, and as new as `search` and its parts: a subclass with its own wants that."""
        own, *others = (
            next(owner for owner in type(self).__mro__ if name in vars(owner))
            for name in ("search_many", "search", *self.search_parts)
        )
        return own is not SearchAttack and all(issubclass(own, other) for other in others)

    def inspect(self, victim: Victim, looks: Sequence[Inspection]) -> list[Any]:
        """What a white-box search needs from inside the model, for many examples in one batch."""
        raise NotImplementedError(f"{self.name} asks to look inside the model and does not say how")

    def merged(self, texts: Sequence[Words]) -> list[dict[int, list[str]]]:
        """Of each text, what may stand for a word and the next one together, by the position of the first."""
        return [{} for _ in texts]

    def __call__(self, victim: Victim, examples: Sequence[Example], **options: Unpack[RunOptions]) -> AttackResults:
        return run(self, victim, examples, **options)

    def probe_form(self, victim: Victim) -> str:
        return victim.unknown if self.probe == "unknown" else ""

    @property
    def checks(self) -> tuple[Constraint, ...]:
        """The constraints that look at whole texts, during the search."""
        from unshaken.attacks.constraints import Constraint

        return tuple(found for found in self.constraints if type(found).check is not Constraint.check)

    def goal_reached(self, log_probabilities: np.ndarray, label: int) -> np.ndarray:
        return self.goal.reached(log_probabilities, label)

    def random_stream(self, example: Example) -> np.random.Generator:
        return random_stream(example.id, self.seed)


def describe(value: Any) -> Any:
    """A setting as plain JSON."""
    if isinstance(value, Substitutions):
        return value.described()
    if isinstance(value, Attack):
        return value.settings()
    if isinstance(value, Victim):
        return {"name": value.name, "fingerprint": value.fingerprint}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {f.name: describe(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"name": type(value).__name__, **parts}
    if isinstance(value, (list, tuple)):
        return [describe(item) for item in value]
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
