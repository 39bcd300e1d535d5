"""The engine: many searches side by side, their questions merged into full batches, each result written at once.

Every search is a generator that asks and is answered, so an example's path does not depend on its neighbours: the
answer is that of a search of its own, as far as the victim's answers do not depend on the batch. Those of a model in
float32 do, by rounding (about 1e-6): ties between candidates with equal tokens are exact and go to the first; near
ties, rare as they are, may fall either way. Load the victim with dtype=float64 where even those must agree.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

import numpy as np

from unshaken.attacks.confirming import confirmed, held_together, with_similarity
from unshaken.attacks.constraints import check
from unshaken.attacks.constraints.base import Candidate
from unshaken.attacks.example_search import ExampleSearch
from unshaken.attacks.input_checks import checked_input
from unshaken.attacks.many.searches import ManySearches
from unshaken.attacks.progress import ProgressBar
from unshaken.attacks.questions import Inspection, Searcher
from unshaken.attacks.results import AttackResult, AttackResults
from unshaken.attacks.shard_files import Merged, parts_of
from unshaken.attacks.space import PROBE, candidates_of
from unshaken.attacks.spaces import Spaces
from unshaken.attacks.storage import ResultsFile
from unshaken.errors import UnshakenError
from unshaken.examples import Example
from unshaken.processes import WHOLE, Shard
from unshaken.victims.base import Texts, Victim
from unshaken.victims.hugging_face import ModelVictim
from unshaken.wordings import Rows, TokenAssembler

BLOCK = 64  # examples that are set up together: enough to batch tokenising and constraints, few enough to start at once


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
        has_answered: The victim is known to work, so that examples alone can be at fault.
        is_wary: Texts that reach the goal are asked about alone at once, so that a search goes on where that does not
            bear it out.
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
        self._row_checks = [found for found in attack.checks if found.reads_rows]
        self._text_checks = [found for found in attack.checks if not found.reads_rows]
        self._assembler: TokenAssembler | None = None
        self._spaces: Spaces
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
        if isinstance(self.victim, ModelVictim):
            self._assembler = self.victim.assembler(len(examples[0].texts))
        self._spaces = Spaces(self.attack, self.victim, self.frozen, self._assembler)
        if not self._has_answered:
            self._spaces.require_effect(self._first)
        alone = list(examples)
        if (
            not self.is_wary
            and ManySearches.serves(self.attack)
            and (tables := self.victim.tables(len(examples[0].texts)))
        ):
            together = ManySearches(self.attack, self.victim, tables, self._spaces.of)
            rounds = together.results(examples, self.in_flight)
            yield from held_together(self.victim, rounds, self._confirmed)
            self._has_answered |= together.answered
            alone = together.left
        if alone:
            yield from self._one_by_one(alone)

    def _one_by_one(self, examples: Sequence[Example]) -> Iterator[AttackResult]:
        """By searches: each example has a search of its own, and their questions are merged."""
        # Two cohorts where the device works beside Python: one is answered while the other's questions are prepared.
        count = 2 if self.victim.runs_beside_python and self.in_flight > 1 else 1
        waiting = _in_blocks(examples, self._searches, BLOCK)
        with ThreadPoolExecutor(max_workers=1) as worker:
            cohorts = [_Cohort(self, worker if count > 1 else None) for _ in range(count)]
            size = max(1, self.in_flight // count)
            for cohort in cohorts:
                cohort.refill(waiting, size)
                cohort.ask()
            while any(cohort.is_busy for cohort in cohorts):
                for cohort in cohorts:
                    yield from cohort.take_answers()
                    cohort.refill(waiting, size)
                    cohort.ask()

    def _searches(self, examples: Sequence[Example]) -> list[ExampleSearch]:
        spaces = self._spaces.of(examples)
        recipes = self._assembler.recipes(spaces) if self._assembler else [None] * len(spaces)
        return [
            ExampleSearch(
                self.attack, space, recipe, self.victim.num_labels, spent=self.spent.get(space.example.id, 0.0)
            )
            for space, recipe in zip(spaces, recipes, strict=True)
        ]

    def check(self, searches: Sequence[ExampleSearch]) -> None:
        """Set which rows of the open questions the constraints allow, in one batch over all examples."""
        if not self._row_checks and not self._text_checks:
            return
        candidates: list[Candidate] = []
        owners: list[tuple[ExampleSearch, int]] = []
        for search in searches:
            rows, previous = search.ask.rows, search.ask.previous
            # A blotted word is no text, and the text itself is never refused.
            free = (rows == PROBE).any(1) | ~rows.any(1)
            checked = ~free
            columns = np.array([column for column, _ in search.space.places])
            words = [len(of_column) for of_column in search.space.words]
            for constraint in self._row_checks:
                checked &= constraint.check_rows(rows, previous, columns, words)
            search.allowed = checked | free
            for number in np.flatnonzero(checked).tolist() if self._text_checks else ():
                before = previous if previous is None or previous.ndim == 1 else previous[number]
                for candidate in candidates_of(search.space, rows[number], before):
                    candidates.append(candidate)
                    owners.append((search, number))
        for (search, number), passes in zip(owners, check(self._text_checks, candidates), strict=True):
            assert search.allowed is not None
            search.allowed[number] &= passes

    def encode(self, searches: Sequence[ExampleSearch], questions: Sequence[np.ndarray]) -> list[Rows | list[Texts]]:
        """The questions as the victim takes them: token rows for a model, texts for anything else."""
        assembled = iter(self._assembled(searches, questions))
        prepared: list[Rows | list[Texts]] = []
        for search, rows in zip(searches, questions, strict=True):
            if search.recipe is not None:
                prepared.append(next(assembled))
                continue
            texts = [search.space.write(row) for row in rows]
            model = isinstance(self.victim, ModelVictim) and texts
            prepared.append(self.victim.encode(texts) if model else texts)  # type: ignore[attr-defined]
        return prepared

    def _assembled(self, searches: Sequence[ExampleSearch], questions: Sequence[np.ndarray]) -> list[Rows]:
        """The token rows of all questions that can be put together from parts, in one go."""
        chosen = [(search.recipe, rows) for search, rows in zip(searches, questions, strict=True) if search.recipe]
        if not chosen:
            return []
        assert self._assembler is not None
        table = self._assembler.table([recipe for recipe, _ in chosen])
        counts = [len(rows) for _, rows in chosen]
        choices = np.zeros((sum(counts), table.places), np.int16)
        for end, (_, rows) in zip(np.cumsum(counts).tolist(), chosen, strict=True):
            choices[end - len(rows) : end, : rows.shape[1]] = rows
        return table.rows(np.repeat(np.arange(len(chosen)), counts), choices).split(counts)

    def answer(
        self,
        searches: Sequence[ExampleSearch],
        questions: Sequence[np.ndarray],
        prepared: Sequence[Rows | list[Texts]],
        finished: Sequence[AttackResult],
    ) -> tuple[list[np.ndarray | Exception], list[AttackResult]]:
        """Everything that runs the model, in one place: where there is a worker, it is the only one to touch it."""
        looked_into = [search for search in searches if search.ask.look]
        if looked_into:
            looks = [Inspection(search.space, search.ask.rows[0], search.ask.look) for search in looked_into]
            for search, seen in zip(looked_into, self.attack.inspect(self.victim, looks), strict=True):
                search.inspection = seen
        answers = self.predict(prepared)
        if self.is_wary:
            answers = list(map(self._looked_at_again, searches, questions, answers))
        return answers, self._confirmed(finished)

    def _looked_at_again(
        self, search: ExampleSearch, rows: np.ndarray, answers: np.ndarray | Exception
    ) -> np.ndarray | Exception:
        """The answers to an example's texts, those that reach the goal as each text alone is answered."""
        if isinstance(answers, Exception):
            return answers
        label, looked_at = int(search.space.example.label), answers.copy()
        is_text = ~(rows == PROBE).any(1)
        for number in np.flatnonzero(is_text & self.attack.goal.reached(answers, label)).tolist():
            try:
                looked_at[number] = self.victim.answer_alone(search.space.write(rows[number]))
            except Exception as error:  # only the guilty example fails
                return error
        return looked_at

    def _confirmed(self, results: Sequence[AttackResult]) -> list[AttackResult]:
        return with_similarity(self.attack.constraints, confirmed(self.attack.goal.reached, self.victim, results))

    def predict(self, questions: Sequence[Rows | list[Texts]]) -> list[np.ndarray | Exception]:
        """Answer all questions in one go; where that fails, one by one, so that only the guilty examples fail."""
        try:
            return self._answers(questions)
        except Exception as error:
            if len(questions) == 1:
                return [error]
        return [answer for question in questions for answer in self.predict([question])]

    def _answers(self, questions: Sequence[Rows | list[Texts]]) -> list[np.ndarray | Exception]:
        if not questions:
            return []
        filled = [question for question in questions if len(question)]
        if not filled:
            answers = np.empty((0, self.victim.num_labels), np.float32)
        elif isinstance(self.victim, ModelVictim):
            answers = self.victim.predict_rows(Rows.join([part for part in filled if isinstance(part, Rows)]))
        else:
            answers = self.victim.log_probabilities([text for part in filled for text in part])  # type: ignore[union-attr]
        ends = np.cumsum([len(question) for question in questions])
        self._has_answered = True
        return list(np.split(answers, ends[:-1]))

    def require_any_answer(self, answers: Sequence[np.ndarray | Exception]) -> None:
        """A victim that never answered anything is a mistake of the call, not of the examples."""
        if not self._has_answered and answers and isinstance(answers[0], Exception):
            message = " ".join(str(answers[0]).split()) or type(answers[0]).__name__
            raise UnshakenError(f"the victim {self.victim.name} answered no example: {message}") from answers[0]


class _Cohort:
    """Examples that are asked together."""

    def __init__(self, engine: _Engine, worker: ThreadPoolExecutor | None) -> None:
        self.engine = engine
        self.worker = worker
        self.searches: list[ExampleSearch] = []
        self._finished: list[AttackResult] = []  # to be confirmed with the next question
        self._pending: Future[tuple[list[np.ndarray | Exception], list[AttackResult]]] | None = None

    @property
    def is_busy(self) -> bool:
        return bool(self.searches or self._finished)

    def refill(self, waiting: Iterator[ExampleSearch], size: int) -> None:
        self.searches.extend(itertools.islice(waiting, size - len(self.searches)))

    def ask(self) -> None:
        if not self.is_busy:
            return
        self.engine.check(self.searches)
        questions = [search.question() for search in self.searches]
        prepared = self.engine.encode(self.searches, questions)
        asked = (self.searches, questions, prepared, self._finished)
        if self.worker is not None:
            self._pending = self.worker.submit(self.engine.answer, *asked)
        else:
            self._pending = Future()
            self._pending.set_result(self.engine.answer(*asked))

    def take_answers(self) -> Iterator[AttackResult]:
        if not self.is_busy or self._pending is None:
            return
        answers, results = self._pending.result()
        self.engine.require_any_answer(answers)
        for search, answer in zip(self.searches, answers, strict=True):
            if isinstance(answer, Exception):
                search.fail(" ".join(str(answer).split()) or type(answer).__name__)
            else:
                search.answer(answer)
        self._finished = [search.result for search in self.searches if search.result is not None]
        self.searches = [search for search in self.searches if search.result is None]
        yield from results


def _in_blocks(
    examples: Sequence[Example], build: Callable[[Sequence[Example]], list[ExampleSearch]], size: int
) -> Iterator[ExampleSearch]:
    for start in range(0, len(examples), size):
        yield from build(examples[start : start + size])


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
