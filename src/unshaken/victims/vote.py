"""`Vote`: a victim that answers with the mean over fixed rewordings of each text."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from unshaken.errors import UnshakenError
from unshaken.substitutions import default_substitutions
from unshaken.substitutions.base import Substitutions
from unshaken.substitutions.words import match_case, segment
from unshaken.victims.base import Texts, Victim
from unshaken.victims.reworded import RewordedAssembler, RewordedTable
from unshaken.victims.wrapper import Wrapper
from unshaken.wordings import TokenAssembler, Wordings

if TYPE_CHECKING:
    from unshaken.victims.hugging_face import ModelVictim

JOINTS = tuple("'’-‐‑")  # what joins two words to one


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

    def reworded(self, wordings: Wordings) -> list[Wordings] | None:
        """The wordings under each pattern, with the same choices; None where that cannot be said place by place.

        So it is where substitutes depend on what other places choose, and where a choice may not be read as one word in
        its place: all words behind it would meet other numbers of the pattern.
        """
        blotted = () if wordings.probe is None else segment(wordings.probe).surfaces
        if wordings.probe is not None and len(blotted) != 1:
            return None
        choices: list[list[tuple[str, ...]]] = [[(word,) for word in words] for words in wordings.words]
        for (column, place), forms in zip(wordings.places, wordings.forms, strict=True):
            words = wordings.words[column]
            if not _stands_apart(words.text, *words.spans[place]) or not all(map(_is_one_word, forms[1:])):
                return None
            choices[column][place] = (*forms, *blotted)
        known = [[self.substitutions.for_choices(own, at) for at in range(len(own))] for own in choices]
        if any(found is None for own in known for found in own):
            return None
        by_place = []  # the forms under each pattern
        for (column, place), forms in zip(wordings.places, wordings.forms, strict=True):
            substitutes = known[column][place] or []
            if any(substitutes[len(forms) :]):
                return None  # a blotted word would be reworded
            pattern = self._pattern(column, place + 1)[:, :, place].tolist()
            own = list(zip(forms, substitutes, strict=False))
            by_place.append([tuple(self._form(*each, *numbers) for each in own) for numbers in pattern])
        made = [
            Wordings(texts=texts, places=wordings.places, forms=tuple(forms), probe=wordings.probe)
            for texts, *forms in zip(self.rewordings([wordings.texts])[0], *by_place, strict=True)
        ]
        # Substitutes of the vote may be several words, or none, or grow together with what stands beside them.
        if any(list(map(len, one.words)) != list(map(len, choices)) for one in made):
            return None
        changed = np.ones(len(wordings), np.int16)
        same = [one.write(changed) for one in made] == self.rewordings([wordings.write(changed)])[0]
        return made if same else None

    def _form(self, form: str, substitutes: Sequence[str], changed: float, chosen: float) -> str:
        """One word where a pattern has these numbers."""
        if not substitutes or changed >= self.rate:
            return form
        return match_case(form, substitutes[int(chosen * len(substitutes))])

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
        return self.mean(answers[rows.T])

    def tables(self, columns: int) -> RewordedAssembler | None:
        inner = self.victim.tables(columns)
        return RewordedAssembler(inner, self.reworded) if isinstance(inner, TokenAssembler) else None

    def predict_table(self, table: RewordedTable, owner: Tensor, choices: Tensor) -> Tensor:
        return torch.from_numpy(self.mean(table.answers(self.victim, owner, choices))).float().to(table.device)

    def answer_alone(self, texts: Texts) -> np.ndarray:
        answers = [self.victim.answer_alone(row) for row in self.rewordings([texts])[0]]
        return self.mean(np.stack(answers).astype(np.float64)).astype(np.float32)

    def mean(self, answers: np.ndarray) -> np.ndarray:
        """The vote of log-probabilities, those of each pattern. (k, ..., classes) -> (..., classes)"""
        return np.asarray(np.logaddexp.reduce(answers, axis=0) - np.log(self.k))


def _stands_apart(text: str, start: int, end: int) -> bool:
    """Whether another word may stand there and none grows together with what is beside it, nor becomes markup."""
    before, after = text[max(0, start - 1) : start], text[end : end + 1]
    if _grows(before) or _grows(after) or text[:start].endswith(("<", "</", "&")):
        return False
    return _joins(text[start:end]) or not (before in JOINTS or after in JOINTS)


def _is_one_word(form: str) -> bool:
    """Whether it is read as one word between any signs: one that ends in a digit may go on behind a point."""
    apart = segment(f"'{form}'").spans == ((1, 1 + len(form)),)  # "'cause" is a word with its sign
    return apart and form[:1].isalpha() and form[-1:].isalpha() and _joins(form)


def _grows(sign: str) -> bool:
    """Whether it becomes part of a word beside it: a letter, a digit or a mark."""
    return unicodedata.category(sign)[0] in "LNM" if sign else False


def _joins(word: str) -> bool:
    """Whether hyphens join it with others; so it is already where they could, unlike Chinese characters and emoji."""
    return len(segment(f"a-{word}-a")) == 1
