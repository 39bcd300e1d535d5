"""`calibrated`: a victim whose confidence is right on clean texts, so that scores neither starve nor mislead a search.

A model can look robust because its probabilities are all 1 or all alike: a search that climbs them sees nothing. One
temperature for all logits changes no answer and takes that away (Raina et al. 2024, "Extreme Miscalibration and the
Illusion of Adversarial Robustness", arXiv 2402.17509; Guo et al. 2017 for the fit).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from unshaken.errors import UnshakenError
from unshaken.examples import Examples
from unshaken.victims.alone import Alone
from unshaken.victims.base import Victim
from unshaken.victims.batches import Batch
from unshaken.victims.hugging_face import ModelVictim
from unshaken.victims.wrapper import Wrapper

SAMPLE = 2000  # clean texts a temperature is fitted on: it is one number
RANGE = 1e4  # temperatures looked at, and their inverses


class Tempered(Wrapper):
    """A victim whose scores are flattened or sharpened; its answers stay the same."""

    def __init__(self, victim: Victim, temperature: float) -> None:
        super().__init__(victim, _name(victim, temperature))
        self.temperature = temperature

    @property
    def network(self) -> ModelVictim | None:
        return self.victim.network

    @property
    def fingerprint(self) -> str:
        return _fingerprint(self.victim, self.temperature)

    def _predict(self, texts: Sequence[tuple[str, ...]]) -> Any:
        return self._scaled(self.victim.log_probabilities(texts))

    def ask_again(self, texts: Sequence[tuple[str, ...]], number: int) -> Any:
        return self._scaled(self.victim.ask_again(texts, number)).astype(np.float32)

    def answer_alone(self, texts: tuple[str, ...]) -> Any:
        return self._scaled(self.victim.answer_alone(texts)).astype(np.float32)

    def _scaled(self, answers: Any) -> Any:
        scaled = answers.astype(np.float64) / self.temperature
        return scaled - np.logaddexp.reduce(scaled, axis=-1, keepdims=True)


class TemperedModel(ModelVictim):
    """The same of a model, which stays one: its logits are divided, and attacks are as fast as before."""

    def __init__(self, victim: ModelVictim, temperature: float) -> None:
        self.__dict__.update(vars(victim))  # one model, tokenizer and reader
        self.victim, self.temperature = victim, temperature
        self.name = _name(victim, temperature)
        self.notes = {}
        self.alone = Alone(self, victim.alone.padding, victim.alone.rows_are_apart)

    @property
    def folder(self) -> str:
        return self.victim.folder

    @property
    def exact(self) -> TemperedModel:
        return self if self.scoring_dtype is None else TemperedModel(self.victim.exact, self.temperature)

    @property
    def fingerprint(self) -> str:
        return _fingerprint(self.victim, self.temperature)

    def batch_logits(self, batch: Batch, model: Any) -> Tensor:
        return super().batch_logits(batch, model) / self.temperature


def at_temperature(victim: Victim, temperature: float) -> Tempered | TemperedModel:
    """The victim with its logits divided by a temperature."""
    if not 0 < temperature < np.inf:
        raise UnshakenError(f"temperature is {temperature}; it must be above 0")
    if isinstance(victim, ModelVictim):
        return TemperedModel(victim, temperature)
    return Tempered(victim, temperature)


def _name(victim: Victim, temperature: float) -> str:
    return f"{victim.name} at temperature {temperature:g}"


def _fingerprint(victim: Victim, temperature: float) -> str:
    return hashlib.sha256(f"temperature {temperature!r} {victim.fingerprint}".encode()).hexdigest()


def calibrated(victim: Victim, examples: Examples) -> Tempered | TemperedModel:
    """The victim at the temperature at which its confidence is right on these clean examples.

    Example:
        >>> evaluate([victim, calibrated(victim, data.validation)], data.test, attacks=[PWWS(scoring="probability")])
    """
    rows = examples.sample(SAMPLE, 0) if len(examples) > SAMPLE else examples
    if not len(rows):
        raise UnshakenError("no examples to fit a temperature on")
    strange = next((row.label for row in rows if row.label not in range(victim.num_labels)), None)
    if strange is not None:
        raise UnshakenError(f"a temperature is fitted on labels 0 to {victim.num_labels - 1}; one here is {strange!r}")
    answers, labels = victim.exact.log_probabilities([row.texts for row in rows]), [int(row.label) for row in rows]
    if (answers.argmax(1) == labels).all():  # the surer the better: scores would be all 1, and hide the model
        raise UnshakenError(
            f"{victim.name} is right on all {len(rows)} examples, so no temperature is best: calibrate on more of them"
        )
    fitted = fitted_temperature(answers, labels)
    return at_temperature(victim, float(f"{fitted:.3g}"))  # the same on machines that round unlike


def fitted_temperature(log_probabilities: np.ndarray, labels: Sequence[int]) -> float:
    """Where the cross-entropy is lowest. It is convex in the inverse temperature b, with this slope:

        mean over texts of (sum_k p_k(b) z_k) - z_y,     p(b) = softmax(b z)

    A victim that is right on every text has no best temperature: what is found is of no use.
    """
    scores = np.asarray(log_probabilities, np.float64)
    own = scores[np.arange(len(scores)), np.asarray(labels)]

    def slope(inverse: float) -> float:
        scaled = inverse * scores
        shares = np.exp(scaled - np.logaddexp.reduce(scaled, axis=-1, keepdims=True))
        return float(((shares * scores).sum(-1) - own).mean())

    low, high = -np.log(RANGE), np.log(RANGE)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(float(np.exp(middle))) < 0 else (low, middle)
    return float(np.exp(-(low + high) / 2))
