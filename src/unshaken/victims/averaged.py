"""`Averaged`: a victim that answers at random, or sometimes not at all, asked again and averaged."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence

import numpy as np

from unshaken.errors import UnshakenError
from unshaken.victims.base import Texts, Victim, checked
from unshaken.victims.wrapper import Wrapper


class Averaged(Wrapper):
    """The mean of several answers to each text, where single answers are drawn at random.

    A search that climbs single answers of a random victim (dropout at inference, votes over random changes of a text,
    sampling behind an API) follows its noise, and every lucky draw looks like a success. The mean of many answers is
    what the defence rests on, so it is what must be attacked (Athalye et al. 2018, expectation over transformation).

    A query of an attack is one averaged answer: the victim behind it is asked `times` times.

    Args:
        victim: Who is asked.
        times: Answers to each text; their noise falls with the square root.
        attempts: How often to ask where the victim fails, as one behind a network will.
        wait: Seconds before the second attempt, doubled for each one after.

    Example:
        >>> PWWS()(Averaged(Victim.from_callable(noisy, 2), times=32), examples)
    """

    def __init__(self, victim: Victim, times: int = 16, *, attempts: int = 3, wait: float = 0.5) -> None:
        if times < 1 or attempts < 1 or wait < 0:
            raise UnshakenError(
                f"Averaged needs times >= 1, attempts >= 1 and wait >= 0; given {times}, {attempts}, {wait}"
            )
        super().__init__(victim, f"{victim.name} ({times} answers averaged)")
        self.times = times
        self.attempts = attempts
        self.wait = wait

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(f"averaged {self.times} {self.victim.fingerprint}".encode()).hexdigest()

    def _predict(self, texts: Sequence[Texts]) -> np.ndarray:
        return self._mean(texts, 0)

    def ask_again(self, texts: Sequence[Texts], number: int) -> np.ndarray:
        return checked(self._mean(texts, number), len(texts), self.num_labels, self.name)

    def _mean(self, texts: Sequence[Texts], number: int) -> np.ndarray:
        first = number * self.times
        answers = [self._ask(texts, one).astype(np.float64) for one in range(first, first + self.times)]
        return np.asarray(np.logaddexp.reduce(answers, axis=0) - np.log(self.times))

    def _ask(self, texts: Sequence[Texts], number: int) -> np.ndarray:
        for attempt in range(1, self.attempts):
            try:
                return self.victim.ask_again(texts, number)
            except Exception:  # whatever a network throws; the last attempt lets it through
                time.sleep(self.wait * 2 ** (attempt - 1))
        return self.victim.ask_again(texts, number)
