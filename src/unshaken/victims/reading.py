"""`Reading`: any classifier with a reader before it, which is how a deployed guard gets one without being trained."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from unshaken.readers import Readers
from unshaken.victims.base import Texts, Victim
from unshaken.victims.wrapper import Wrapper


class Reading(Wrapper):
    """What a victim answers to texts as a reader reads them.

    A classifier of ours has its reader inside; this is for all others: an ONNX file, a web service, a function.

    Args:
        victim: Who is asked.
        reader: What stands before it.

    Example:
        >>> reader = unshaken.readers.parse("unicode,leet,spacing", KnownWords.of(texts))
        >>> scan(Reading(Victim.from_onnx("guard.onnx"), reader), data, protect="injection")
    """

    reader: Readers

    def __init__(self, victim: Victim, reader: Readers) -> None:
        super().__init__(victim)
        self.reader = reader

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(f"{self.reader.fingerprint} {self.victim.fingerprint}".encode()).hexdigest()

    def _predict(self, texts: Sequence[Texts]) -> np.ndarray:
        return self.victim.log_probabilities([self.reader.texts(row) for row in texts])

    def ask_again(self, texts: Sequence[Texts], number: int) -> np.ndarray:
        return self.victim.ask_again([self.reader.texts(row) for row in texts], number)

    def answer_alone(self, texts: Texts) -> np.ndarray:
        return self.victim.answer_alone(self.reader.texts(texts))
