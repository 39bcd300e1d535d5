"""Each example by a search of its own, the questions of many merged into full batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from unshaken.attacks.constraints import check
from unshaken.attacks.constraints.base import Candidate
from unshaken.attacks.example_search import ExampleSearch
from unshaken.attacks.questions import Inspection, Searcher
from unshaken.attacks.results import AttackResult
from unshaken.attacks.space import PROBE, candidates_of
from unshaken.attacks.spaces import Spaces
from unshaken.errors import UnshakenError
from unshaken.examples import Example
from unshaken.victims.base import Texts, Victim
from unshaken.victims.hugging_face import ModelVictim
from unshaken.wordings import Rows, TokenAssembler

BLOCK = 64  # examples that are set up together: enough to batch tokenising and constraints, few enough to start at once


class OneByOne:
    """Searches beside each other.

    Args:
        confirm: Asks about each success's text alone, on the thread that the model has.
        spent: Seconds of searches before these, by example.
        has_answered: The victim is known to work, so that examples alone can be at fault.
        is_wary: Texts that reach the goal are asked about alone at once, so that a search goes on where that does not
            bear it out.
    """

    def __init__(
        self,
        attack: Searcher,
        victim: Victim,
        spaces: Spaces,
        assembler: TokenAssembler | None,
        *,
        confirm: Callable[[Sequence[AttackResult]], list[AttackResult]],
        spent: Mapping[str, float],
        has_answered: bool,
        is_wary: bool,
    ) -> None:
        self.attack = attack
        self.victim = victim
        self._row_checks = [found for found in attack.checks if found.reads_rows]
        self._text_checks = [found for found in attack.checks if not found.reads_rows]
        self._confirm = confirm
        self._spaces = spaces
        self._assembler = assembler
        self._spent = spent
        self._has_answered = has_answered
        self._is_wary = is_wary

    def results(self, examples: Sequence[Example], in_flight: int) -> Iterator[AttackResult]:
        """Results in the order in which they are finished, of so many searches at a time."""
        # Two cohorts where the device works beside Python: one is answered while the other's questions are prepared.
        count = 2 if self.victim.runs_beside_python and in_flight > 1 else 1
        waiting = _in_blocks(examples, self._searches, BLOCK)
        with ThreadPoolExecutor(max_workers=1) as worker:
            cohorts = [_Cohort(self, worker if count > 1 else None) for _ in range(count)]
            size = max(1, in_flight // count)
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
                self.attack, space, recipe, self.victim.num_labels, spent=self._spent.get(space.example.id, 0.0)
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
        if self._is_wary:
            answers = list(map(self._looked_at_again, searches, questions, answers))
        return answers, self._confirm(finished)

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

    def __init__(self, asked: OneByOne, worker: ThreadPoolExecutor | None) -> None:
        self.asked = asked
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
        self.asked.check(self.searches)
        questions = [search.question() for search in self.searches]
        prepared = self.asked.encode(self.searches, questions)
        question = (self.searches, questions, prepared, self._finished)
        if self.worker is not None:
            self._pending = self.worker.submit(self.asked.answer, *question)
        else:
            self._pending = Future()
            self._pending.set_result(self.asked.answer(*question))

    def take_answers(self) -> Iterator[AttackResult]:
        if not self.is_busy or self._pending is None:
            return
        answers, results = self._pending.result()
        self.asked.require_any_answer(answers)
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
