"""Every success is confirmed by asking the victim about its final text alone, outside the search."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from unshaken.attacks.results import AttackResult
from unshaken.victims.base import Texts, Victim

Reached = Callable[[np.ndarray, int], np.ndarray]  # answers (n, classes) and a label -> (n,) booleans

HELD = 4096  # successes that wait to be confirmed together at most, and
SECONDS = 5.0  # how long; a run that is killed loses no more than these


def confirmed(reached: Reached, victim: Victim, results: Sequence[AttackResult]) -> list[AttackResult]:
    """The results, with each success as the victim answers its text alone; what it does not bear out was withstood.

    A search sees its texts in batches, padded, put together from tokens of single words and perhaps in half precision.
    These passes see none of that: the text as a string, unpadded, in float32. They are no queries of the search.
    """
    found = [row for row in results if row.outcome == "success"]
    answers = iter(_answers(victim, [row.adversarial for row in found if row.adversarial is not None]))
    return [_confirmed(reached, row, next(answers)) if row.outcome == "success" else row for row in results]


def confirmed_together(
    reached: Reached, victim: Victim, rounds: Iterable[Sequence[AttackResult]]
) -> Iterator[AttackResult]:
    """The same for results that come in rounds. Those of a fast victim wait, to be asked about in fewer passes."""
    held: list[AttackResult] = []
    since = time.monotonic()
    for results in rounds:
        held += results
        if not victim.runs_beside_python or len(held) >= HELD or time.monotonic() - since >= SECONDS:
            yield from confirmed(reached, victim, held)
            held, since = [], time.monotonic()
    yield from confirmed(reached, victim, held)


def _answers(victim: Victim, texts: Sequence[Texts]) -> Sequence[np.ndarray | Exception]:
    """The answer to each text, or why there is none."""
    try:
        return list(victim.answers_alone(texts))
    except Exception as error:
        if len(texts) == 1:
            return [error]
    return [answer for text in texts for answer in _answers(victim, [text])]


def _confirmed(reached: Reached, row: AttackResult, answer: np.ndarray | Exception) -> AttackResult:
    assert row.adversarial is not None  # it is a success
    if isinstance(answer, Exception):
        found = replace(row, outcome="error", error=" ".join(str(answer).split()) or type(answer).__name__)
    elif reached(answer[None], row.label)[0]:
        after = float(np.exp(np.float64(answer[row.label])))
        return replace(row, adversarial_prediction=int(answer.argmax()), score_after=after)
    else:
        told = f"not confirmed: alone, {' | '.join(row.adversarial)!r} is answered {int(answer.argmax())}"
        found = replace(row, outcome="failure", error=told)
    return replace(found, adversarial=None, swaps=(), adversarial_prediction=None, similarity=None)
