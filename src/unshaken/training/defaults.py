"""How long and how fast to train where nobody says: from the size of the model and the number of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

# Small encoders need a higher rate: at 2e-5, which suits BERT-base, MiniLM on 300 rows ends where it began.
RATES = ((40_000_000, 1e-4), (200_000_000, 3e-5))  # parameters below, rate
LARGE_RATE = 1e-5
FEWEST_STEPS = 300  # a head is learned in some hundred steps, however few the rows are
EPOCHS = (3, 20)  # at least, at most


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A learning rate and a number of epochs, and the sentences that say why."""

    learning_rate: float
    epochs: int
    rate_reason: str
    epochs_reason: str


def schedule(parameters: int, rows: int, rows_per_step: int) -> Schedule:
    """What to train with: enough steps for few rows, a rate for the size.

    Example:
        >>> schedule(22_000_000, 240, 16).epochs
        20
        >>> schedule(110_000_000, 67_000, 16).epochs
        3
    """
    rate = next((rate for limit, rate in RATES if parameters < limit), LARGE_RATE)
    steps = math.ceil(rows / rows_per_step)
    epochs = min(max(EPOCHS[0], math.ceil(FEWEST_STEPS / steps)), EPOCHS[1])
    return Schedule(
        learning_rate=rate,
        epochs=epochs,
        rate_reason=f"learning rate {rate:g} for {parameters / 1e6:.0f} million parameters (--learning-rate)",
        epochs_reason=f"{epochs} epochs ({epochs * steps:,} steps) for {rows:,} rows (--epochs)",
    )
