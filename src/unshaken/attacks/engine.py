"""The engine: many searches side by side, their questions merged into full batches, each result written at once.

Every search is a generator that asks and is answered, so an example's path does not depend on its neighbours: the
answer is that of a search of its own, as far as the victim's answers do not depend on the batch. Those of a model in
float32 do, by rounding (about 1e-6): ties between candidates with equal tokens are exact and go to the first; near
ties, rare as they are, may fall either way. Load the victim with dtype=float64 where even those must agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from unshaken.attacks.confirming import confirmed, held_together, with_similarity
from unshaken.attacks.input_checks import checked_input
from unshaken.attacks.many.searches import ManySearches
from unshaken.attacks.one_by_one import BLOCK, OneByOne
from unshaken.attacks.progress import ProgressBar
from unshaken.attacks.questions import Searcher
from unshaken.attacks.results import AttackResult, AttackResults
from unshaken.attacks.shard_files import Merged, parts_of
from unshaken.attacks.spaces import Spaces
from unshaken.attacks.storage import ResultsFile
from unshaken.errors import UnshakenError
from unshaken.examples import Example
from unshaken.processes import WHOLE, Shard
from unshaken.victims.base import Victim
from unshaken.victims.hugging_face import ModelVictim


class RunOptions(TypedDict, total=False):
    """How a run is carried out, as `Attack.__call__` says; none of it changes what is found."""

    out: Path | str | None
    resume: bool
    progress: bool
    in_flight: int | None
    shard: Shard


def run(
    attack: Searcher,
    victim: Victim,
    examples: Sequence[Example],
    *,
    out: Path | str | None = None,
    resume: bool = False,
    progress: bool = False,
    in_flight: int | None = None,
    shard: Shard = WHOLE,
) -> AttackResults:
    """Attack every example; see `Attack.__call__`."""
    frozen = checked_input(attack, victim, examples)
    empty = attack.no_results(victim)
    mine = [example for example in examples if shard.owns(example.id)]
    with ExitStack() as stack:
        file = None
        if out is not None:
            file = stack.enter_context(ResultsFile(out, empty.header(), resume=resume, shard=shard))
        done = file.of(mine) if file else {}
        bar = stack.enter_context(ProgressBar(attack.name, len(mine), list(done.values()))) if progress else None
        has_answered = bool(done) or getattr(examples, "is_part", False)
        engine = _Engine(
            attack.against(victim), victim, frozen, in_flight, first=examples[:BLOCK], has_answered=has_answered
        )
        for result in engine.results([example for example in mine if example.id not in done]):
            done[result.example_id] = result
            if file:
                file.append(result)
            if bar:
                bar.add(result)
    if out is not None and shard.is_whole and parts_of(Path(out)):  # of processes that had begun this run
        Merged(Path(out)).write([example.id for example in mine])
    return replace(empty, rows=tuple(done[example.id] for example in mine))


def side_by_side(victim: Victim) -> int:
    """Examples that are searched together: a GPU is fast only with large batches, a CPU as fast with small ones."""
    return 1024 if victim.runs_beside_python else 256


class _Engine:
    """One run's searches.

    Args:
        first: Examples of which a word must be open to change; otherwise the substitutions are a mistake of the call.
        has_answered: As `OneByOne` has it.
        is_wary: As well; searches on tensors cannot be.
    """

    def __init__(
        self,
        attack: Searcher,
        victim: Victim,
        frozen: tuple[int, ...],
        in_flight: int | None,
        *,
        first: Sequence[Example] = (),
        has_answered: bool = False,
        is_wary: bool = False,
    ) -> None:
        in_flight = side_by_side(victim) if in_flight is None else in_flight
        if in_flight < 1:
            raise UnshakenError(f"in_flight is {in_flight}; it must be at least 1")
        self.attack = attack
        self.victim = victim
        self.frozen = frozen
        self.in_flight = in_flight
        self._first = first
        self._has_answered = has_answered
        self.is_wary = is_wary
        self.spent: dict[str, float] = {}  # seconds of searches before this one

    def results(self, examples: Sequence[Example]) -> Iterator[AttackResult]:
        """Results in the order in which they are finished.

        What half precision or float32 has wrong to begin with, or what the one broke where the other does not bear it
        out, is searched again in full; what a model broke in company and the text alone does not bear out, warily.
        Otherwise a model would look better or worse by rounding. Not so under a budget of queries, which is spent by
        then; one of seconds goes on.
        """
        exact = self.victim.exact
        is_half = exact is not self.victim
        may_repeat = self.attack.query_budget is None and not self.is_wary
        can_repeat = may_repeat and (is_half or self.victim.network is not None)
        wrong = _wrong(exact, examples, self.in_flight) if may_repeat and is_half else frozenset()
        doubted: dict[str, AttackResult] = {}
        for result in self._results(examples):
            is_other = is_half and (result.outcome == "skipped" or result.example_id in wrong)
            if can_repeat and (result.unconfirmed or is_other):
                doubted[result.example_id] = result
            else:
                yield result
        again = [example for example in examples if example.id in doubted]
        if not again:
            return
        surer = _Engine(self.attack, exact, self.frozen, self.in_flight, has_answered=True, is_wary=not is_half)
        surer.spent = {name: self.spent.get(name, 0.0) + row.seconds for name, row in doubted.items()}
        for result in surer.results(again):
            before = doubted[result.example_id]
            yield replace(
                result,
                queries=before.queries + result.queries,
                rows=before.rows + result.rows,
                seconds=before.seconds + result.seconds,
            )

    def _results(self, examples: Sequence[Example]) -> Iterator[AttackResult]:
        if not examples:
            return
        texts = len(examples[0].texts)
        assembler = self.victim.assembler(texts) if isinstance(self.victim, ModelVictim) else None
        spaces = Spaces(self.attack, self.victim, self.frozen, assembler)
        has_answered = self._has_answered
        if not has_answered:
            spaces.require_effect(self._first)
        alone = list(examples)
        if not self.is_wary and ManySearches.serves(self.attack) and (tables := self.victim.tables(texts)):
            together = ManySearches(self.attack, self.victim, tables, spaces.of)
            yield from held_together(self.victim, together.results(examples, self.in_flight), self._confirmed)
            has_answered |= together.answered
            alone = together.left
        if alone:
            searches = OneByOne(
                self.attack,
                self.victim,
                spaces,
                assembler,
                confirm=self._confirmed,
                spent=self.spent,
                has_answered=has_answered,
                is_wary=self.is_wary,
            )
            yield from searches.results(alone, self.in_flight)

    def _confirmed(self, results: Sequence[AttackResult]) -> list[AttackResult]:
        return with_similarity(self.attack.constraints, confirmed(self.attack.goal.reached, self.victim, results))


def _wrong(victim: Victim, examples: Sequence[Example], size: int) -> frozenset[str]:
    """Examples that a victim has wrong to begin with; of those that it cannot answer the search will tell."""
    if len(examples) > size:
        blocks = (examples[start : start + size] for start in range(0, len(examples), size))
        return frozenset().union(*(_wrong(victim, block, size) for block in blocks))
    try:
        answers = victim.log_probabilities([example.texts for example in examples]).argmax(1).tolist()
    except Exception:
        return frozenset() if len(examples) < 2 else _wrong(victim, examples, 1)
    return frozenset(row.id for row, answer in zip(examples, answers, strict=True) if answer != int(row.label))
