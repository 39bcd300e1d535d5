"""`CallableVictim`: any function from texts to probabilities."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from unshaken.victims.answers import as_probabilities
from unshaken.victims.base import Texts, Victim, log_of, require_classes


class CallableVictim(Victim):
    """A function from texts to probabilities."""

    def __init__(
        self,
        function: Callable[[list[Any]], Any],
        num_labels: int,
        *,
        label_names: Sequence[str] = (),
        name: str | None = None,
        batch_size: int = 256,
        unknown: str = "[UNK]",
        content: bytes | None = None,
    ) -> None:
        self.function = function
        self.num_labels = num_labels
        self.label_names = tuple(label_names)
        self.name = name or str(getattr(function, "__name__", type(function).__name__))
        self.batch_size = batch_size
        self.unknown = unknown
        require_classes(num_labels, self.name, label_names)
        self._content = content if content is not None else self.name.encode()

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self._content).hexdigest()

    def _predict(self, texts: Sequence[Texts]) -> np.ndarray:
        batches = [texts[start : start + self.batch_size] for start in range(0, len(texts), self.batch_size)]
        return np.concatenate([self._batch(batch) for batch in batches])

    def _batch(self, texts: Sequence[Texts]) -> np.ndarray:
        answers = self.function([row[0] if len(row) == 1 else row for row in texts])
        return log_of(as_probabilities(answers, self.label_names, self.num_labels, self.name), len(texts), self)
