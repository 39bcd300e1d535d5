"""`Guarded`: a victim with a detector before it, for which "flagged" is one more answer."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from unshaken.detection.agreement import Agreement, doubt
from unshaken.errors import UnshakenError
from unshaken.victims import Texts
from unshaken.victims.reworded import RewordedAssembler, RewordedTable
from unshaken.victims.wrapper import Wrapper

if TYPE_CHECKING:
    from unshaken.victims.hugging_face import ModelVictim

SHARPNESS = 20.0  # of the flag's lead over the answer: it tells a search how far it is from passing


class Guarded(Wrapper):
    """Answers as the model does, or with one class more, "flagged", where the suspicion is above the threshold.

    The lead of "flagged" over the model's answer grows with the suspicion, so a search that climbs scores is led past
    the detector. Attack it with the goal `Unflagged`: flipped and not flagged.

    Args:
        detector: With the model that it guards.
        threshold: Suspicion above which a text is flagged.
    """

    def __init__(self, detector: Agreement, threshold: float) -> None:
        if not 0 <= threshold <= 1:
            raise UnshakenError(f"threshold is {threshold}; a suspicion is 0 to 1")
        super().__init__(detector.victim, f"{detector.victim.name} (guarded)")
        self.detector, self.threshold = detector, threshold
        self.num_labels += 1
        self.label_names = (*self.label_names, "flagged") if self.label_names else ()
        self.runs_beside_python = self.victim.runs_beside_python

    @property
    def network(self) -> ModelVictim | None:
        return self.victim.network

    @property
    def exact(self) -> Guarded:
        vote = self.detector.vote.exact
        return self if vote is self.detector.vote else Guarded(Agreement(vote), self.threshold)

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(f"guarded {self.threshold!r} {self.detector.vote.fingerprint}".encode()).hexdigest()

    def _predict(self, texts: Sequence[Texts]) -> np.ndarray:
        return self._with_flag(*self.detector.answers_and_suspicion(texts))

    def ask_again(self, texts: Sequence[Texts], number: int) -> np.ndarray:
        answers = self.victim.ask_again(texts, number).astype(np.float64)
        votes = self.detector.vote.ask_again(texts, number)
        return self._with_flag(answers, doubt(answers, votes)).astype(np.float32)

    def answer_alone(self, texts: Texts) -> np.ndarray:
        answers = self.victim.answer_alone(texts)[None].astype(np.float64)
        votes = self.detector.vote.answer_alone(texts)[None]
        return np.asarray(self._with_flag(answers, doubt(answers, votes))[0], np.float32)

    def tables(self, columns: int) -> RewordedAssembler | None:
        made = self.detector.vote.tables(columns)
        return None if made is None else made.with_itself()

    def predict_table(self, table: RewordedTable, owner: Tensor, choices: Tensor) -> Tensor:
        answers, *reworded = table.answers(self.victim, owner, choices)
        votes = self.detector.vote.mean(np.stack(reworded)).astype(np.float32)  # as the vote itself answers
        suspicion = doubt(answers, votes)
        return torch.from_numpy(self._with_flag(answers, suspicion)).float().to(table.device)

    def _with_flag(self, answers: np.ndarray, suspicion: np.ndarray) -> np.ndarray:
        flag = answers.max(-1) + SHARPNESS * (suspicion - self.threshold)  # a tie goes to the answer
        together = np.concatenate([answers, flag[:, None]], axis=1)
        return np.asarray(together - np.logaddexp.reduce(together, axis=1, keepdims=True))
