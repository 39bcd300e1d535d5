"""`Agreement`: how little a vote over rewordings agrees with the answer to the text itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unshaken.victims import Texts, Victim, Vote


@dataclass(frozen=True, eq=False)
class Agreement:
    """The suspicion of a text: one minus the probability that the vote gives to the model's own answer.

    An adversarial text is a rare wording that was searched for; most of its rewordings are answered otherwise.

    Paper: ours; Mozes et al. 2021 (frequency-guided substitutions) and Wang et al. 2022 (RS&V, randomized substitution
        and vote) are relatives.
    Cost: `k` forward passes beside that of the answer.

    Args:
        vote: The rewordings; the victim inside it gives the answer.

    Example:
        >>> Agreement(Vote(victim, k=16)).suspicion([("a fine film",)])
    """

    vote: Vote

    @property
    def victim(self) -> Victim:
        return self.vote.victim

    def suspicion(self, texts: Sequence[Texts]) -> np.ndarray:
        """From 0 (all agree) to 1, for each text. (n,)"""
        return self.answers_and_suspicion(texts)[1]

    def answers_and_suspicion(self, texts: Sequence[Texts]) -> tuple[np.ndarray, np.ndarray]:
        """Log-probabilities of the model (n, classes), and the suspicion (n,)."""
        answers = self.victim.log_probabilities(texts).astype(np.float64)
        return answers, doubt(answers, self.vote.log_probabilities(texts))


def doubt(answers: np.ndarray, votes: np.ndarray) -> np.ndarray:
    """One minus the probability that the votes give to the answers. (n, classes), (n, classes) -> (n,)"""
    return np.asarray(1 - np.exp(votes[np.arange(len(answers)), answers.argmax(-1)].astype(np.float64)))
