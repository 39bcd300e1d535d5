"""`Vote`: a victim that answers with the mean over fixed rewordings of each text."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from unshaken.errors import UnshakenError
from unshaken.substitutions import default_substitutions
from unshaken.substitutions.base import Substitutions
from unshaken.victims.base import Texts, Victim
from unshaken.victims.patterns import Patterns
from unshaken.victims.reworded import RewordedAssembler, RewordedTable
from unshaken.victims.wrapper import Wrapper
from unshaken.wordings import TokenAssembler

if TYPE_CHECKING:
    from unshaken.victims.hugging_face import ModelVictim


class Vote(Wrapper):
    """The mean of the answers to `k` rewordings of each text.

    Pattern j rewords the word at place i where a fixed number u[j, i] is below `rate`, by the substitute that a second
    fixed number chooses. Patterns belong to the model, not to the text: equal texts get equal answers, alone or in any
    batch, so nothing is random and an attacker may know everything. Every question of every attack goes through the
    vote; white-box attacks take gradients of the model at the text itself.

    Paper: ours, after random smoothing over synonyms (SAFER, Ye et al. 2020), of which it is a fixed, small sample. It
        proves nothing; `unshaken.certificates` does, with many random samples.
    Cost: `k` times the inference. A query of an attack is one answer of the vote.

    Args:
        victim: Who is asked.
        k: Patterns.
        rate: The share of words with substitutes that a pattern rewords.
        substitutions: What words are reworded to; WordNet if none is given.
        seed: Of the patterns.

    Example:
        >>> PWWS()(Vote(Victim.from_pretrained("out/model"), k=8, rate=0.5), examples)
    """

    def __init__(
        self,
        victim: Victim,
        k: int = 8,
        rate: float = 0.5,
        *,
        substitutions: Substitutions | None = None,
        seed: int = 0,
    ) -> None:
        if k < 1 or not 0 < rate <= 1 or seed < 0:
            raise UnshakenError(f"Vote needs k >= 1, 0 < rate <= 1 and seed >= 0; given {k}, {rate}, {seed}")
        super().__init__(victim, f"{victim.name} (vote of {k})")
        chosen = (substitutions or default_substitutions()).against(victim.reader)
        self.patterns = Patterns(k=k, rate=rate, seed=seed, substitutions=chosen)
        self.runs_beside_python = victim.runs_beside_python
        self.tokenizer = getattr(victim, "tokenizer", None)  # which words are visible, for reports

    @property
    def k(self) -> int:
        return self.patterns.k

    @property
    def substitutions(self) -> Substitutions:
        return self.patterns.substitutions

    @property
    def network(self) -> ModelVictim | None:
        return self.victim.network

    @property
    def fingerprint(self) -> str:
        own = f"vote {self.k} {self.patterns.rate!r} {self.patterns.seed} {self.substitutions.fingerprint}"
        return hashlib.sha256(f"{own} {self.victim.fingerprint}".encode()).hexdigest()

    def settings(self) -> dict[str, Any]:
        """For reports: what is asked in place of the text."""
        own = {"k": self.k, "rate": self.patterns.rate, "seed": self.patterns.seed}
        return {**own, "substitutions": self.substitutions.described()}

    def rewordings(self, texts: Sequence[Texts]) -> list[list[Texts]]:
        """What each text is read as, one for each pattern."""
        return self.patterns.rewordings(texts)

    def _predict(self, texts: Sequence[Texts]) -> np.ndarray:
        return self._voted(texts, self.victim.log_probabilities)

    def ask_again(self, texts: Sequence[Texts], number: int) -> np.ndarray:
        return self._voted(texts, lambda rows: self.victim.ask_again(rows, number)).astype(np.float32)

    def _voted(self, texts: Sequence[Texts], ask: Callable[[Sequence[Texts]], np.ndarray]) -> np.ndarray:
        rewordings = self.rewordings(texts)
        number: dict[Texts, int] = {}
        rows = np.array([[number.setdefault(row, len(number)) for row in own] for own in rewordings])  # (n, k)
        answers = ask(list(number)).astype(np.float64)
        return self.mean(answers[rows.T])

    def tables(self, columns: int) -> RewordedAssembler | None:
        inner = self.victim.tables(columns)
        return RewordedAssembler(inner, self.patterns.reworded) if isinstance(inner, TokenAssembler) else None

    def predict_table(self, table: RewordedTable, owner: Tensor, choices: Tensor) -> Tensor:
        return torch.from_numpy(self.mean(table.answers(self.victim, owner, choices))).float().to(table.device)

    def answer_alone(self, texts: Texts) -> np.ndarray:
        answers = [self.victim.answer_alone(row) for row in self.rewordings([texts])[0]]
        return self.mean(np.stack(answers).astype(np.float64)).astype(np.float32)

    def mean(self, answers: np.ndarray) -> np.ndarray:
        """The vote of log-probabilities, those of each pattern. (k, ..., classes) -> (..., classes)"""
        return np.asarray(np.logaddexp.reduce(answers, axis=0) - np.log(self.k))
