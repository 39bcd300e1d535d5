"""BAE: words that a masked language model puts in, in the place of others or beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

from unshaken.attacks.constraints import Constraint, PartOfSpeech, SentenceSimilarity
from unshaken.attacks.textfooler import TextFooler, Variant
from unshaken.substitutions.base import Substitutions
from unshaken.substitutions.masked_lm import MaskedLM


@dataclass(frozen=True, kw_only=True)
class BAE(TextFooler):
    """Replace words, or insert new ones behind them, by what a masked language model expects there.

    Words are taken in the order of what the true label loses without them. Of the texts that fool the victim the one
    nearest in meaning is taken, or else the most harmful one.

    Paper: Garg and Ramakrishnan 2020, "BAE: BERT-based Adversarial Examples for Text Classification", Algorithm 1:
        BAE-R (`edits="replace"`), BAE-I (`"insert"`) and both at each word, BAE-R+I (`"replace|insert"`).
    Relations: The search of `TextFooler(variant="textattack")` with other substitutes, as BERT-Attack has it too. CLARE
        asks about all edits of all words before it makes any, and merges words as well.
    Cost: Words + allowed edits of each visited word; one pass of the language model a word and edit.

    Args:
        model: Hub name or folder of a masked language model.
        edits: What may be done at a word: "replace", "insert", or both, joined by "|".
        k: Most likely words that are tried for each edit.
        substitutions: Made of the three above where not given.

    Example:
        >>> BAE(edits="replace|insert")(victim, examples)
    """

    name: ClassVar[str] = "bae"
    citation: ClassVar[tuple[str, ...]] = ("garg-ramakrishnan-2020-bae",)

    model: str = "google-bert/bert-base-uncased"  # paper section 4
    edits: str | Sequence[str] = "replace"
    k: int = 50  # paper section 4
    substitutions: Substitutions = None  # type: ignore[assignment]  # filled in from the three above
    variant: Variant = "textattack"
    constraints: tuple[Constraint, ...] = cast("tuple[Constraint, ...]", None)

    def __post_init__(self) -> None:
        chosen = MaskedLM.unless_given(self.substitutions, model=self.model, k=self.k, edits=self.edits)
        object.__setattr__(self, "substitutions", chosen)
        super().__post_init__()

    def own_constraints(self) -> tuple[Constraint, ...]:
        near = SentenceSimilarity(metric="cosine", threshold=0.8, window=None, compared_with="original")  # section 4
        # Tags speak of a word in the place of another, not of one beside it (paper section 3).
        return (near,) if "insert" in self.edits else (PartOfSpeech(noun_verb=False), near)
