"""`Vote`: a victim that answers with the mean over fixed rewordings of each text."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unshaken.errors import UnshakenError
from unshaken.substitutions import default_substitutions
from unshaken.substitutions.base import Substitutions
from unshaken.substitutions.words import match_case, segment
from unshaken.victims.base import Texts, Victim
from unshaken.victims.wrapper import Wrapper

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
        self.k = k
        self.rate = rate
        self.substitutions = substitutions or default_substitutions()
        self.seed = seed
        self.runs_beside_python = victim.runs_beside_python
        self.tokenizer = getattr(victim, "tokenizer", None)  # which words are visible, for reports
        self._patterns: dict[int, np.ndarray] = {}

    @property
    def network(self) -> ModelVictim | None:
        return self.victim.network

    @property
    def fingerprint(self) -> str:
        own = f"vote {self.k} {self.rate!r} {self.seed} {self.substitutions.fingerprint}"
        return hashlib.sha256(f"{own} {self.victim.fingerprint}".encode()).hexdigest()

    def settings(self) -> dict[str, Any]:
        """For reports: what is asked in place of the text."""
        own = {"k": self.k, "rate": self.rate, "seed": self.seed}
        return {**own, "substitutions": self.substitutions.described()}

    def rewordings(self, texts: Sequence[Texts]) -> list[list[Texts]]:
        """What each text is read as, one for each pattern."""
        words = [[segment(text) for text in row] for row in texts]
        flat = [column for row in words for column in row]
        choices = iter(self.substitutions.for_texts(flat))
        found = []
        for row in words:
            columns = [self._reworded(number, column, next(choices)) for number, column in enumerate(row)]
            found.append(list(zip(*columns, strict=True)))
        return found

    def _reworded(self, number: int, words: Any, choices: Sequence[Sequence[str]]) -> list[str]:
        """One column under each pattern."""
        pattern = self._pattern(number, len(words))
        places = [at for at, substitutes in enumerate(choices) if substitutes]
        texts = []
        for changed, chosen in pattern:
            swaps = {
                at: match_case(words[at], choices[at][int(chosen[at] * len(choices[at]))])
                for at in places
                if changed[at] < self.rate
            }
            texts.append(words.replace(swaps, carry_case=False))
        return texts

    def _pattern(self, column: int, length: int) -> np.ndarray:
        """Two numbers for each pattern and word of a column, the same ones however long the text. (k, 2, words)"""
        known = self._patterns.get(column)
        if known is None or known.shape[2] < length:
            size = 1 << max(6, length - 1).bit_length()
            streams = [np.random.default_rng([self.seed, column, j, part]) for j in range(self.k) for part in range(2)]
            known = np.stack([stream.random(size) for stream in streams]).reshape(self.k, 2, size)
            self._patterns[column] = known
        return known

    def _predict(self, texts: Sequence[Texts]) -> np.ndarray:
        rewordings = self.rewordings(texts)
        number: dict[Texts, int] = {}
        rows = np.array([[number.setdefault(row, len(number)) for row in own] for own in rewordings])  # (n, k)
        answers = self.victim.log_probabilities(list(number)).astype(np.float64)
        return self._mean(answers[rows], axis=1)

    def answer_alone(self, texts: Texts) -> np.ndarray:
        answers = [self.victim.answer_alone(row) for row in self.rewordings([texts])[0]]
        return self._mean(np.stack(answers).astype(np.float64), axis=0).astype(np.float32)

    def _mean(self, answers: np.ndarray, axis: int) -> np.ndarray:
        return np.asarray(np.logaddexp.reduce(answers, axis=axis) - np.log(self.k))
