"""Every success is confirmed by asking the victim about its final text alone, outside the search."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace

import numpy as np

from unshaken.attacks.constraints import Constraint, SentenceEncoder, SentenceSimilarity
from unshaken.attacks.results import AttackResult
from unshaken.victims.base import Victim

Reached = Callable[[np.ndarray, int], np.ndarray]  # answers (n, classes) and a label -> (n,) booleans

HELD = 4096  # successes that wait to be confirmed together at most, and
SECONDS = 5.0  # how long; a run that is killed loses no more than these
CLOSE = 1e-3  # log-probabilities; far above the rounding of float32


def confirmed(reached: Reached, victim: Victim, results: Sequence[AttackResult]) -> list[AttackResult]:
    """The results, with each success as the victim answers its text alone; what it does not bear out was withstood.

    A search sees its texts in batches, put together from tokens of single words and perhaps in half precision. These
    passes see none of that: the text as a string, in float32. They are no queries of the search. Where an answer is so
    near to another outcome that the rounding of a batch might decide, the text is passed truly by itself.
    """
    found = [row for row in results if row.outcome == "success"]
    answers = _answers(reached, victim, found)
    told = map(_confirmed, found, answers, _borne_out(reached, found, answers))
    return [next(told) if row.outcome == "success" else row for row in results]


def _borne_out(
    reached: Reached, found: Sequence[AttackResult], answers: Sequence[np.ndarray | Exception]
) -> list[bool]:
    """Which answers reach the goal: asked once for all texts of a label."""
    holds = np.zeros(len(found), bool)
    labels = np.array(
        [-1 if isinstance(answer, Exception) else row.label for row, answer in zip(found, answers, strict=True)]
    )
    for label in set(labels[labels >= 0].tolist()):
        own = np.flatnonzero(labels == label)
        holds[own] = reached(np.stack([np.asarray(answers[number]) for number in own.tolist()]), label)
    return list(map(bool, holds))


def held_together(
    victim: Victim,
    rounds: Iterable[Sequence[AttackResult]],
    confirm: Callable[[list[AttackResult]], list[AttackResult]],
) -> Iterator[AttackResult]:
    """Results that come in rounds, confirmed. Those of a fast victim wait, to be asked about in fewer passes, and are
    read meanwhile."""
    held: list[AttackResult] = []
    begun: list[Future[None]] = []
    since = time.monotonic()
    with ThreadPoolExecutor(max_workers=1) as reader:
        for results in rounds:
            held += results
            if not victim.runs_beside_python or len(held) >= HELD or time.monotonic() - since >= SECONDS:
                yield from confirm(_all_read(held, begun))
                held, begun, since = [], [], time.monotonic()
            elif texts := [row.adversarial for row in results if row.adversarial is not None]:
                begun.append(reader.submit(victim.read_ahead, texts))
        yield from confirm(_all_read(held, begun))


def _all_read(held: list[AttackResult], begun: Sequence[Future[None]]) -> list[AttackResult]:
    """The results, when nobody reads them any more. What failed there fails again, and is told, where it is asked."""
    wait([reading for reading in begun if not reading.cancel()])
    return held


def with_similarity(constraints: Sequence[Constraint], results: Sequence[AttackResult]) -> list[AttackResult]:
    """The results, each success with the least cosine similarity of a changed text with its original.

    Only where a constraint brings an encoder, which then reads all texts together.
    """
    measure = next((found for found in constraints if isinstance(found, SentenceSimilarity)), None)
    pairs = [
        (number, after, before)
        for number, row in enumerate(results)
        for after, before in zip(row.adversarial or (), row.original, strict=False)
        if after != before
    ]
    if measure is None or not pairs:
        return list(results)
    numbers, after, before = zip(*pairs, strict=True)
    least: dict[int, float] = {}
    for number, cosine in zip(numbers, SentenceEncoder.load(measure.model).cosine(after, before), strict=True):
        least[number] = min(cosine, least.get(number, 1.0))
    return [replace(row, similarity=least[number]) if number in least else row for number, row in enumerate(results)]


def _answers(reached: Reached, victim: Victim, found: Sequence[AttackResult]) -> list[np.ndarray | Exception]:
    """The answer to each text, or why there is none."""
    labels = np.array([row.label for row in found])
    try:
        texts = [row.adversarial for row in found if row.adversarial is not None]
        return list(victim.answers_alone(texts, lambda answers: _close(reached, answers, labels)))
    except Exception as error:
        if len(found) == 1:
            return [error]
    return [answer for row in found for answer in _answers(reached, victim, [row])]


def _close(reached: Reached, answers: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Which answers would end otherwise if one class were `CLOSE` more or less likely. (n, classes), (n,) -> (n,)"""
    nudges = CLOSE * np.eye(answers.shape[1])
    nudged = answers[:, None] + np.concatenate([nudges, -nudges])  # (n, nudges, classes)
    close = np.zeros(len(answers), bool)
    for label in set(labels.tolist()):
        own = labels == label
        ends = reached(nudged[own].reshape(-1, answers.shape[1]), label).reshape(int(own.sum()), -1)
        close[own] = ends.any(1) & ~ends.all(1)
    return close


def _confirmed(row: AttackResult, answer: np.ndarray | Exception, holds: bool) -> AttackResult:
    assert row.adversarial is not None  # it is a success
    if isinstance(answer, Exception):
        found = replace(row, outcome="error", error=" ".join(str(answer).split()) or type(answer).__name__)
    elif holds:
        after = float(np.exp(np.float64(answer[row.label])))
        return replace(row, adversarial_prediction=int(answer.argmax()), score_after=after)
    else:
        told = f"not confirmed: alone, {' | '.join(row.adversarial)!r} is answered {int(answer.argmax())}"
        found = replace(row, outcome="failure", error=told)
    return replace(found, adversarial=None, swaps=(), adversarial_prediction=None, similarity=None)
