"""Every success is confirmed by asking the victim about its final text alone, outside the search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from unshaken.attacks.results import AttackResult
from unshaken.victims.base import Victim

Reached = Callable[[np.ndarray, int], np.ndarray]  # answers (n, classes) and a label -> (n,) booleans


def confirmed(reached: Reached, victim: Victim, results: Sequence[AttackResult]) -> list[AttackResult]:
    """The results, with each success as the victim answers its text alone; what it does not bear out was withstood.

    A search sees its texts in batches, padded, put together from tokens of single words and perhaps in half precision.
    These passes see none of that: the text as a string, by itself, in float32. They are no queries of the search.
    """
    return [_confirmed(reached, victim, row) if row.outcome == "success" else row for row in results]


def _confirmed(reached: Reached, victim: Victim, row: AttackResult) -> AttackResult:
    assert row.adversarial is not None  # it is a success
    try:
        answer = victim.answer_alone(row.adversarial)
    except Exception as error:
        found = replace(row, outcome="error", error=" ".join(str(error).split()) or type(error).__name__)
    else:
        if reached(answer[None], row.label)[0]:
            after = float(np.exp(np.float64(answer[row.label])))
            return replace(row, adversarial_prediction=int(answer.argmax()), score_after=after)
        told = f"not confirmed: alone, {' | '.join(row.adversarial)!r} is answered {int(answer.argmax())}"
        found = replace(row, outcome="failure", error=told)
    return replace(found, adversarial=None, swaps=(), adversarial_prediction=None, similarity=None)
