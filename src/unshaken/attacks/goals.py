"""Goals of an attack, and the score that leads a search there. Higher is closer, whatever the goal and the scoring."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np

from unshaken.errors import UnshakenError

Scoring = Literal["probability", "log-probability", "margin"]
SCORINGS: tuple[Scoring, ...] = ("probability", "log-probability", "margin")


class Goal(ABC):
    """What counts as success, and how near to it an answer is."""

    def applies(self, label: int) -> bool:
        """Whether an example of this label can be attacked at all."""
        return True

    @abstractmethod
    def reached(self, log_probabilities: np.ndarray, label: int) -> np.ndarray:
        """(n, classes) -> (n,) booleans."""

    @abstractmethod
    def values(self, log_probabilities: np.ndarray, label: int, scoring: Scoring) -> np.ndarray:
        """(n, classes) -> (n,) float64 scores."""

    @abstractmethod
    def chance(self, values: np.ndarray, scoring: Scoring) -> np.ndarray:
        """Scores as shares of one, for searches that draw in proportion to them."""


@dataclass(frozen=True, kw_only=True)
class Untargeted(Goal):
    """Any wrong class, ahead of the true one by `margin` in log-probability (0: simply predicted)."""

    margin: float = 0.0

    def __post_init__(self) -> None:
        if self.margin < 0:
            raise UnshakenError(f"margin is {self.margin}; it must be 0 or more")

    def reached(self, log_probabilities: np.ndarray, label: int) -> np.ndarray:
        wrong = log_probabilities.argmax(-1) != label
        return np.asarray(wrong & (_lead(log_probabilities, label) >= self.margin))

    def values(self, log_probabilities: np.ndarray, label: int, scoring: Scoring) -> np.ndarray:
        if scoring == "margin":
            return _lead(log_probabilities, label)
        own = log_probabilities[:, label].astype(np.float64)
        return np.asarray(-own if scoring == "log-probability" else -np.exp(own))

    def chance(self, values: np.ndarray, scoring: Scoring) -> np.ndarray:
        if scoring == "margin":
            return _sigmoid(values)
        return np.asarray(np.maximum(0.0, 1 + values if scoring == "probability" else -np.expm1(-values)))


@dataclass(frozen=True, kw_only=True)
class Targeted(Goal):
    """The class `label`. Examples of that class cannot be attacked and count as having held."""

    label: int

    def applies(self, label: int) -> bool:
        return label != self.label

    def reached(self, log_probabilities: np.ndarray, label: int) -> np.ndarray:
        return np.asarray(log_probabilities.argmax(-1) == self.label)

    def values(self, log_probabilities: np.ndarray, label: int, scoring: Scoring) -> np.ndarray:
        if scoring == "margin":
            return -_lead(log_probabilities, self.label)
        target = log_probabilities[:, self.label].astype(np.float64)
        return np.asarray(target if scoring == "log-probability" else np.exp(target))

    def chance(self, values: np.ndarray, scoring: Scoring) -> np.ndarray:
        if scoring == "margin":
            return _sigmoid(values)
        return np.asarray(np.maximum(0.0, values if scoring == "probability" else np.exp(values)))


@dataclass(frozen=True, kw_only=True)
class Unflagged(Goal):
    """Flipped and not flagged: a wrong class other than the last one, by which a detector refuses a text."""

    def reached(self, log_probabilities: np.ndarray, label: int) -> np.ndarray:
        best = log_probabilities.argmax(-1)
        return np.asarray((best != label) & (best != log_probabilities.shape[1] - 1))

    def values(self, log_probabilities: np.ndarray, label: int, scoring: Scoring) -> np.ndarray:
        wrong = np.delete(log_probabilities, [label, -1], axis=1).astype(np.float64)
        if scoring == "margin":
            return np.asarray(wrong.max(-1) - log_probabilities[:, [label, -1]].max(-1))
        reached = np.logaddexp.reduce(wrong, axis=1)
        return np.asarray(reached if scoring == "log-probability" else np.exp(reached))

    def chance(self, values: np.ndarray, scoring: Scoring) -> np.ndarray:
        if scoring == "margin":
            return _sigmoid(values)
        return np.asarray(values if scoring == "probability" else np.exp(values))


def _lead(log_probabilities: np.ndarray, label: int) -> np.ndarray:
    """How far the best other class is ahead of `label`; equal to the difference of logits. (n, classes) -> (n,)"""
    others = np.delete(log_probabilities, label, axis=1)
    return others.max(-1).astype(np.float64) - log_probabilities[:, label]  # type: ignore[no-any-return]


def _sigmoid(values: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * values)))
