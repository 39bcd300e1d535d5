"""CLARE: words replaced, inserted and merged by a masked language model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unshaken.attacks.base import SearchAttack
from unshaken.attacks.constraints import Constraint, SentenceSimilarity
from unshaken.attacks.constraints.on_words import coarse_tags
from unshaken.attacks.goals import Scoring
from unshaken.attacks.questions import BLOCK_CELLS, Ask, Scores, Search, join_scores
from unshaken.attacks.space import Space
from unshaken.substitutions.base import Substitutions
from unshaken.substitutions.function_words import is_function_word
from unshaken.substitutions.masked_lm import MaskedLM
from unshaken.substitutions.words import Words

# The tag of a word, and those of words that may be merged into it (official code, in its tagger's names): nouns,
# adjectives, adverbs and verbs, determiners, possessives and numbers.
MERGED = {
    "n": {"n"},
    "a": {"n", "a", "r", "CD"},
    "r": {"a", "v"},
    "v": {"n", "a", "r", "v"},
    "DT": {"n", "a"},
    "PRP$": {"n", "a"},
    "CD": {"n", "CD"},
}


@dataclass(frozen=True, kw_only=True)
class CLARE(SearchAttack):
    """Replace words, insert new ones behind them and merge neighbours into one, as a masked language model fills gaps.

    Every edit is asked about on the text as it is. At each word the one that lowers the true label most is kept; these
    are applied one after another, the strongest first, where they touch no word that was edited and still lower it.

    Paper: Li et al. 2021, "Contextualized Perturbation for Textual Adversarial Attack", Algorithm 1. Thresholds are
        those of the official code: probabilities of 0.0005 for a word in the place of another and 0.005 for one in the
        place of two, similarity 1 - arccos >= 0.7 on 15 words (0.6 on some of its data), 50 words for each gap.
    Relations: The official code fills the gaps anew in the running text, here they are filled once, as in Algorithm 1.
        It also inserts behind function words, here only behind words that may be replaced. MiniLM measures similarity
        where the authors had the Universal Sentence Encoder, TextBlob tags where they had NLTK. `Greedy` with the same
        substitutions asks about every edit again after each, as TextAttack's recipe does, and merges nothing.
    Cost: Edits of all words + edited words; one pass of the language model a word and edit.

    Args:
        model: Hub name or folder of a masked language model.
        k: Most likely words that are tried for each gap.
        substitutions: Made of the two above where not given. What it merges words into is its `for_pairs`.

    Example:
        >>> CLARE(k=20)(victim, examples)
    """

    name: ClassVar[str] = "clare"
    citation: ClassVar[tuple[str, ...]] = ("li-etal-2021-contextualized",)

    model: str = "distilbert/distilroberta-base"  # paper section 3.1
    k: int = 50  # official code
    substitutions: Substitutions = None  # type: ignore[assignment]  # filled in from the two above
    constraints: tuple[Constraint, ...] = (SentenceSimilarity(metric="jin2020", threshold=0.7, short_threshold=0.7),)
    scoring: Scoring = "probability"

    def __post_init__(self) -> None:
        settings = {"edits": "replace|insert", "least": 5e-4, "least_merged": 5e-3}  # official code
        chosen = MaskedLM.unless_given(self.substitutions, model=self.model, k=self.k, **settings)
        object.__setattr__(self, "substitutions", chosen)
        super().__post_init__()

    def merged(self, texts: Sequence[Words]) -> list[dict[int, list[str]]]:
        if not self.substitutions.merges:  # and needs no tagger
            return super().merged(texts)
        pairs = [[(words, at) for at in _mergeable(words)] for words in texts]
        found = iter(self.substitutions.for_pairs([pair for own in pairs for pair in own]))
        return [{at: next(found) for _, at in own} for own in pairs]

    def search(self, space: Space, clean: Scores, rng: np.random.Generator) -> Search:
        (alone, words), (merges, first) = space.single_swaps(space.clean), space.merges()
        edits, places = np.concatenate([alone, merges]), np.concatenate([words, first])
        step = max(1, BLOCK_CELLS // len(space))
        parts = []
        for start in range(0, len(edits), step):
            parts.append((yield Ask(rows=edits[start : start + step])))
        scores = join_scores(parts)
        winner = scores.winner()
        if winner is not None:
            return np.asarray(edits[winner])
        row, value, visited = space.clean, clean.values[0], set()
        for edit in np.argsort(-scores.values, kind="stable").tolist():
            if scores.values[edit] <= clean.values[0]:
                break
            if places[edit] in visited:
                continue
            visited.add(places[edit])
            if not row.any():  # the strongest, whose answer is known
                row, value = edits[edit], scores.values[edit]
            elif not np.logical_and(row, edits[edit]).any():
                changed = row + edits[edit]
                answer = yield Ask(rows=changed[None], previous=row)
                if answer.success[0]:
                    return np.asarray(changed)
                if answer.values[0] > value:
                    row, value = changed, answer.values[0]
        return None


def _mergeable(words: Words) -> Iterator[int]:
    """The words that may be merged with the next one, from which one blank parts them."""
    tags = coarse_tags(words.surfaces) if words else ()
    for at in range(len(words) - 1):
        first, second = words[at : at + 2]
        if is_function_word(second) or tags[at + 1] not in MERGED.get(tags[at], ()):
            continue
        if is_function_word(first) and (tags[at] not in ("DT", "PRP$") or first.lower() == "no"):
            continue  # "not good" means something else than what one word makes of it
        if words.text[words.spans[at][1] : words.spans[at + 1][0]] == " ":
            yield at
