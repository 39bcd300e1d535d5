"""TextFooler, as the paper says, as its code does, and as TextAttack's recipe has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal, cast

import numpy as np
import torch
from torch import Tensor

from unshaken.attacks.base import SearchAttack
from unshaken.attacks.constraints import Constraint, PartOfSpeech, SentenceSimilarity, StopWords
from unshaken.attacks.constraints.many_texts import ManySimilarities
from unshaken.attacks.goals import Scoring
from unshaken.attacks.many.word_by_word import by_promise, probe_rows, swap_word_by_word
from unshaken.attacks.questions import Ask, Scores, Search, ask_probes
from unshaken.attacks.space import PROBE, Space, candidates_of
from unshaken.errors import UnshakenError
from unshaken.victims.base import Victim

if TYPE_CHECKING:
    from unshaken.attacks.many.cohort import Answers, Cohort

# Paper section 3 and the default of the official command line: 0.7. The authors' runs, and so the paper's numbers: 0.5
# (issue 12 of the official code). Texts under 15 words: 0.1 (official code).
AS_JIN = SentenceSimilarity(metric="jin2020", threshold=0.5, short_threshold=0.1)
Variant = Literal["paper", "code", "textattack"]
VARIANTS: dict[str, tuple[Constraint, ...]] = {
    "paper": (StopWords(), PartOfSpeech(noun_verb=False), AS_JIN),
    "code": (StopWords(), PartOfSpeech(noun_verb=True), AS_JIN),
    "textattack": (StopWords(), PartOfSpeech(noun_verb=True), SentenceSimilarity()),  # angular, 1 - 0.5/pi
}


class Derived(tuple[Constraint, ...]):
    """Constraints that an attack has made of its other settings, and makes anew if `replace` changes those."""

    by: type  # another kind of attack takes them as it takes any


@dataclass(frozen=True, kw_only=True)
class TextFooler(SearchAttack):
    """Swap words in the order of their importance; of the substitutes that keep the meaning take the most harmful one.

    Importance is what the true label loses when the word is gone, and what the new label gains where that alone changes
    the prediction. Where some substitutes fool the victim, the one most similar to the text is taken.

    Paper: Jin et al. 2020, "Is BERT Really Robust?", Algorithm 1.
    Relations: The variants differ in

        ===============  ==================  ==================  ==================
        .                paper               code                textattack
        ===============  ==================  ==================  ==================
        word is gone by  deletion            unknown word        deletion
        flip bonus       yes                 yes                 no
        a swap must      lower the current   lower the original  lower the current
        tags             equal               noun/verb alike     noun/verb alike
        similarity       1 - arccos >= 0.5   1 - arccos >= 0.5   1 - arccos/pi >= 0.84
        ... short texts  1 - arccos >= 0.1   1 - arccos >= 0.1   not checked
        ===============  ==================  ==================  ==================

        Similarity is measured by MiniLM where the authors had the Universal Sentence Encoder, and substitutes are those
        of `substitutions` where they had the 50 nearest counter-fitted vectors, so numbers are comparable only among
        runs of equal settings. Constraints come before queries in all variants; the official code masks afterwards.
    Cost: Attackable words + allowed substitutes of each visited word, plus one encoder pass for each substitute.

    Args:
        variant: Which of the three.
        constraints: Those of the variant where not given.

    Example:
        >>> TextFooler(variant="textattack")(victim, examples)
    """

    name: ClassVar[str] = "textfooler"
    citation: ClassVar[tuple[str, ...]] = ("jin-etal-2020-bert",)

    variant: Variant = "code"
    constraints: tuple[Constraint, ...] = cast("tuple[Constraint, ...]", None)  # filled in from the variant
    scoring: Scoring = "probability"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variant not in VARIANTS:
            raise UnshakenError(f"TextFooler variant is {self.variant!r}; it must be one of {', '.join(VARIANTS)}")
        if self.constraints is None or getattr(self.constraints, "by", None) is type(self):
            made = Derived(self.own_constraints())
            made.by = type(self)
            object.__setattr__(self, "constraints", made)

    def own_constraints(self) -> tuple[Constraint, ...]:
        """Those of the settings, where none are given."""
        return VARIANTS[self.variant]

    def probe_form(self, victim: Victim) -> str:
        return victim.unknown if self.variant == "code" else ""

    def search(self, space: Space, clean: Scores, rng: np.random.Generator) -> Search:
        gone = yield from ask_probes(space, space.clean, np.arange(len(space)))
        importance = self._importance(space, clean, gone)
        row, value = space.clean, clean.values[0]
        for position in np.argsort(-importance, kind="stable").tolist():
            rows = space.substitutes_at(row, position)
            scores = yield Ask(rows=rows, previous=row)
            if scores.success.any():
                return self._most_similar(space, rows, scores, row)
            best = scores.best()
            if scores.values[best] > (clean.values[0] if self.variant == "code" else value):
                row, value = rows[best], scores.values[best]
        return None

    def _importance(self, space: Space, clean: Scores, gone: Scores) -> np.ndarray:
        """Paper equation 2. (positions,)"""
        importance = gone.values - clean.values[0]
        if self.variant == "textattack":
            return np.asarray(importance)
        before, after = (np.exp(part.log_probabilities.astype(np.float64)) for part in (clean, gone))
        predicted = after.argmax(-1)
        bonus = after[np.arange(len(after)), predicted] - before[0, predicted]
        return np.asarray(importance + np.where(predicted != before.argmax(), bonus, 0.0))

    def _most_similar(self, space: Space, rows: np.ndarray, scores: Scores, previous: np.ndarray) -> np.ndarray:
        """Of the rows that fool the victim the one nearest in meaning, or, where no encoder says so, of best score."""
        if self._measure is None:
            return np.asarray(rows[scores.winner()])
        rows = rows[scores.success]
        candidates = [candidate for row in rows for candidate in candidates_of(space, row, previous, changed_only=True)]
        return np.asarray(rows[int(np.argmax(self._measure.scores(candidates)))])

    def search_many(self, cohort: Cohort, streams: Sequence[np.random.Generator]) -> Iterator[None]:
        active = cohort.active()
        if not len(active):
            return
        owner, place, probes = probe_rows(cohort, active, PROBE)
        gone = cohort.ask(owner, probes, probes=True)
        importance = gone.values - cohort.clean.values[owner]
        if self.variant != "textattack":
            before, after = (part.log_probabilities.double().exp() for part in (cohort.clean, gone))
            predicted = after.argmax(1)
            bonus = after.gather(1, predicted[:, None])[:, 0] - before[owner, predicted]
            importance = importance + bonus.where(predicted != before.argmax(1)[owner], 0.0)
        yield
        order = by_promise(cohort.per_place(owner, place, importance))
        prefer = partial(self._similarities, cohort) if self._measure else None
        yield from swap_word_by_word(cohort, order, beat_clean=self.variant == "code", prefer=prefer)

    @property
    def _measure(self) -> SentenceSimilarity | None:
        return next((found for found in self.constraints if isinstance(found, SentenceSimilarity)), None)

    def _similarities(self, cohort: Cohort, owner: Tensor, rows: Tensor, previous: Tensor, answers: Answers) -> Tensor:
        """How near in meaning the rows that fool the victim are; -inf for the others. (n,)"""
        assert self._measure is not None
        found = torch.full_like(answers.values, -torch.inf)
        fooling = (answers.success & cohort.alive[owner]).nonzero()[:, 0]
        if len(fooling):
            measured = ManySimilarities.of(self._measure, cohort)
            found[fooling] = measured.of_swaps(owner[fooling], rows[fooling], previous[fooling])
        return found
