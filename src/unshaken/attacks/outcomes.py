"""How the result of one example is written down, whichever engine found it."""

from __future__ import annotations

import numpy as np

from unshaken.attacks.results import AttackResult, Outcome
from unshaken.attacks.space import Space


def conclude(
    space: Space,
    outcome: Outcome,
    *,
    row: np.ndarray | None,  # the text that succeeded, as choices
    before: np.ndarray,  # log-probabilities of the text as it is (classes,)
    after: np.ndarray,  # those of `row`, or of the text that came closest (classes,)
    queries: int,  # texts the search asked about
    rows: int,  # texts that the model saw
    seconds: float,  # from the first question to the result
) -> AttackResult:
    """The result of an example that was searched."""
    example = space.example
    return AttackResult(
        example_id=example.id,
        label=int(example.label),
        outcome=outcome,
        original=example.texts,
        adversarial=None if row is None else space.write(row),
        swaps=() if row is None else space.swaps(row),
        prediction=int(before.argmax()),
        adversarial_prediction=None if row is None else int(after.argmax()),
        score_before=_probability(before, example.label),
        score_after=None if outcome == "skipped" else _probability(after, example.label),
        queries=queries,
        rows=rows,
        words=space.word_count,
        seconds=seconds,
    )


def _probability(log_probabilities: np.ndarray, label: float) -> float:
    return float(np.exp(np.float64(log_probabilities[int(label)])))
