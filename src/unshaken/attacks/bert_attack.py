"""BERT-Attack: words that a masked language model makes of others in their context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

from unshaken.attacks.constraints import Constraint, MaxChanged, SentenceSimilarity, StopWords
from unshaken.attacks.textfooler import TextFooler, Variant
from unshaken.substitutions.base import Substitutions
from unshaken.substitutions.masked_lm import MaskedLM
from unshaken.victims.base import Victim


@dataclass(frozen=True, kw_only=True)
class BertAttack(TextFooler):
    """Replace words by what a masked language model makes of them where they stand, the most important ones first.

    The model reads the text as it is: what it expects in the place of a word then depends on the word, too. A word
    matters by what the true label loses where the unknown token stands for it.

    Paper: Li et al. 2020, "BERT-ATTACK: Adversarial Attack Against BERT Using BERT", Algorithm 1: 48 words for each, at
        most 40% of the words changed, no stop words, no antonyms.
    Relations: The search of `TextFooler(variant="textattack")`; BAE masks the word. The paper takes the first word that
        fools the victim, here the one nearest in meaning; words of several tokens are masked, where the paper combines
        sub-words and ranks them by perplexity.
    Cost: Words + allowed substitutes of each visited word; one pass of the language model a word.

    Args:
        model: Hub name or folder of a masked language model.
        k: Most likely words that are tried for each.
        substitutions: Made of the two above where not given.

    Example:
        >>> BertAttack(k=20)(victim, examples)
    """

    name: ClassVar[str] = "bert-attack"
    citation: ClassVar[tuple[str, ...]] = ("li-etal-2020-bert-attack",)

    model: str = "google-bert/bert-base-uncased"  # paper section 4.3
    k: int = 48  # paper section 4.3
    substitutions: Substitutions = None  # type: ignore[assignment]  # filled in from the two above
    variant: Variant = "textattack"
    constraints: tuple[Constraint, ...] = cast("tuple[Constraint, ...]", None)

    def __post_init__(self) -> None:
        chosen = MaskedLM.unless_given(self.substitutions, model=self.model, k=self.k, edits="reread")
        object.__setattr__(self, "substitutions", chosen)
        super().__post_init__()

    def own_constraints(self) -> tuple[Constraint, ...]:
        # The official code compares texts at 0.2, in its measure; 0.4 is the share of words in paper section 4.3.
        near = SentenceSimilarity(metric="cosine", threshold=0.2, window=None, compared_with="original")
        return (StopWords(), MaxChanged(share=0.4), near)

    def probe_form(self, victim: Victim) -> str:
        return victim.unknown  # the official code's "[UNK]", where the paper writes of a mask
