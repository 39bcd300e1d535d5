"""The search of one example: what was already asked, and what it has cost."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from unshaken.attacks.outcomes import conclude
from unshaken.attacks.questions import Ask, Scores, Search, Searcher
from unshaken.attacks.results import AttackResult, Outcome
from unshaken.attacks.space import PROBE, Space
from unshaken.errors import UnshakenError
from unshaken.wordings import Recipe


class ExampleSearch:
    """Drives the search of one example.

    The engine calls `question` for the rows that were never asked before, gets them answered together with those of
    other examples, and hands the answers to `answer`; `ask` is then the next question, or `result` is there.
    """

    def __init__(
        self, attack: Searcher, space: Space, recipe: Recipe | None, num_labels: int, *, spent: float = 0.0
    ) -> None:
        self.attack = attack
        self.space = space
        self.recipe = recipe
        self.spent = spent  # seconds of a search before this one, which the budget counts
        self.ask = Ask(rows=space.clean[None])
        self.allowed: np.ndarray | None = None  # set by the engine where constraints look at whole texts
        self.inspection: Any = None  # set by the engine where the question asks for it
        self.result: AttackResult | None = None
        self._search: Search | None = None
        self._known: dict[bytes, int] = {}
        self._answers = np.empty((64, num_labels), np.float32)
        self._queries = 0
        self._started: float | None = None
        self._best: tuple[float, int] = (-np.inf, 0)  # value, answer
        self._numbers = np.empty(0, np.int64)
        self._asked = np.empty(0, np.int64)
        self._truncated = False

    def question(self) -> np.ndarray:
        """The rows of `ask` that the victim has yet to see, (new, positions)."""
        if self._started is None:
            self._started = time.perf_counter()
        rows = self.ask.rows
        self._asked = np.arange(len(rows)) if self.allowed is None else np.flatnonzero(self.allowed)
        budget = self.attack.query_budget
        left = len(rows) if budget is None else max(0, budget - self._queries)
        self._truncated = len(self._asked) > left
        self._asked = self._asked[:left]
        rows = rows[self._asked]
        keys = row_keys(self.recipe.canonical(rows) if self.recipe else rows)
        before = len(self._known)
        known = self._known
        self._numbers = np.fromiter((known.setdefault(key, len(known)) for key in keys), np.int64, len(keys))
        new, first = np.unique(self._numbers, return_index=True)
        return rows[first[new >= before]]

    def answer(self, log_probabilities: np.ndarray) -> None:
        """Take the answers to the rows of `question`, and go on to the next question or the result."""
        self._remember(log_probabilities)
        scores = self._scores()
        if self._search is None:
            self._begin(scores)
            return
        search = self._search
        self._advance(lambda: search.send(scores))

    def fail(self, message: str) -> None:
        """The victim could not answer."""
        self._stop()
        self.result = AttackResult(
            example_id=self.space.example.id,
            label=int(self.space.example.label),
            outcome="error",
            original=self.space.example.texts,
            queries=self._queries,
            rows=len(self._known),
            words=self.space.word_count,
            seconds=self._seconds(),
            error=message,
        )

    def _begin(self, clean: Scores) -> None:
        label = int(self.space.example.label)
        if clean.log_probabilities[0].argmax() != label:
            self._conclude("skipped", None)
        elif not len(self.space) or not self.attack.goal.applies(label):
            self._conclude("failure", None)
        else:
            search = self.attack.search(self.space, clean, self.attack.random_stream(self.space.example))
            self._search = search
            self._advance(lambda: next(search))

    def _advance(self, step: Callable[[], Ask]) -> None:
        try:
            following = step()
        except UnshakenError as error:  # a search that cannot be done on this example, such as too large a space
            self.fail(str(error))
        except StopIteration as stop:
            self._finish(stop.value)
        else:
            self._next(following)

    def _next(self, ask: Ask) -> None:
        budget, seconds = self.attack.query_budget, self.attack.time_budget
        spent = self._truncated or (budget is not None and self._queries >= budget)
        if spent or (seconds is not None and self.spent + self._seconds() >= seconds):
            self._stop()
            self._conclude("failure", None)
        else:
            self.ask = ask
            self.allowed = self.inspection = None

    def _remember(self, log_probabilities: np.ndarray) -> None:
        end = len(self._known)
        if end > len(self._answers):
            grown = np.empty((max(end, 2 * len(self._answers)), self._answers.shape[1]), np.float32)
            grown[: len(self._answers)] = self._answers
            self._answers = grown
        self._answers[end - len(log_probabilities) : end] = log_probabilities

    def _scores(self) -> Scores:
        count = len(self.ask.rows)
        label = int(self.space.example.label)
        answers = self._answers[self._numbers]  # (asked, classes)
        values = np.full(count, -np.inf)
        success = np.zeros(count, bool)
        log_probabilities = np.full((count, answers.shape[1]), -np.inf, np.float32)
        values[self._asked] = self.attack.goal.values(answers, label, self.attack.scoring)
        success[self._asked] = self.attack.goal.reached(answers, label)
        log_probabilities[self._asked] = answers
        probes = self.ask.rows.min(initial=0) == PROBE
        if probes:
            success &= ~(self.ask.rows == PROBE).any(1)
        elif len(answers):
            best = int(values[self._asked].argmax())
            if values[self._asked][best] > self._best[0]:
                self._best = (float(values[self._asked][best]), int(self._numbers[best]))
        if self.ask.look:
            pass
        elif self.ask.in_order and success[self._asked].any():
            self._queries += int(success[self._asked].argmax()) + 1
        else:
            self._queries += len(self._asked)
        return Scores(values=values, success=success, log_probabilities=log_probabilities, inspection=self.inspection)

    def _finish(self, row: np.ndarray | None) -> None:
        if row is None:
            self._conclude("failure", None)
            return
        number = self._known.get(row_keys(self.recipe.canonical(row[None]) if self.recipe else row[None])[0])
        if number is None:  # a search may return a text it never asked about; nothing is taken on trust
            search = self._search = _ask_about(row)
            self._advance(lambda: next(search))
            return
        reached = self.attack.goal.reached(self._answers[number][None], int(self.space.example.label))[0]
        if reached:
            self._best = (np.inf, number)
            self._conclude("success", row)
        else:
            self._conclude("failure", None)

    def _conclude(self, outcome: Outcome, row: np.ndarray | None) -> None:
        self.result = conclude(
            self.space,
            outcome,
            row=row,
            before=self._answers[0],
            after=self._answers[self._best[1]],
            queries=self._queries,
            rows=len(self._known),
            seconds=self._seconds(),
        )

    def _seconds(self) -> float:
        return 0.0 if self._started is None else time.perf_counter() - self._started

    def _stop(self) -> None:
        if self._search is not None:
            self._search.close()


def _ask_about(row: np.ndarray) -> Search:
    scores = yield Ask(rows=row[None])
    return row if scores.success[0] else None


def row_keys(rows: np.ndarray) -> list[bytes]:
    """Each row as something a dictionary can hold; rows of long texts as 128-bit digests, to save memory."""
    if rows.shape[1] == 0:
        return [b""] * len(rows)
    packed = np.ascontiguousarray(rows, np.int16)
    keys: list[bytes] = packed.view(f"V{packed.shape[1] * packed.itemsize}").ravel().tolist()
    return keys if rows.shape[1] <= 256 else [hashlib.blake2b(key, digest_size=16).digest() for key in keys]
