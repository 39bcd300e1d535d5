"""Which adversarial texts say the same as before: to look at them first, or to allow no others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from unshaken.embedded import minilm_path
from unshaken.errors import UnshakenError

if TYPE_CHECKING:
    from unshaken.attacks.constraints.similarity import SentenceSimilarity
    from unshaken.attacks.results import AttackResult

ENCODER = "MiniLM"  # the one that is at hand, in the demo extra's wheel
# Cosine. "fries" for "kids" in a short sentence comes to 0.72, "bad" for "big" to 0.79, "movie" for "film" to 0.94.
LEAST = 0.8


def encoder_at_hand() -> bool:
    try:
        minilm_path()
    except UnshakenError:
        return False
    return True


def alike(least: float) -> SentenceSimilarity:
    """The constraint that whole texts stay this similar to what they were."""
    from unshaken.attacks.constraints.similarity import SentenceSimilarity

    return SentenceSimilarity(threshold=least, metric="cosine", window=None, compared_with="original")


def keeping_meaning(attack: Any, least: float) -> Any:
    """The attack with a filter by sentence similarity, where it swaps words by WordNet and has none.

    WordNet lists a word's other senses too, and takes "fries" for "kids". Typing errors and other sources stay as they
    are: an encoder is fooled by those itself.
    """
    from unshaken.attacks.base import SearchAttack
    from unshaken.attacks.constraints.similarity import SentenceSimilarity
    from unshaken.attacks.transfer import Transfer
    from unshaken.substitutions import WordNet

    if isinstance(attack, Transfer):
        return replace(attack, attack=keeping_meaning(attack.attack, least))
    if not isinstance(attack, SearchAttack) or not isinstance(attack.substitutions, WordNet) or least <= 0:
        return attack
    if any(isinstance(item, SentenceSimilarity) for item in attack.constraints):
        return attack
    return replace(attack, constraints=(*attack.constraints, alike(least)))


def by_faithfulness(rows: Iterable[AttackResult]) -> list[tuple[AttackResult, float | None]]:
    """Successful results with the cosine similarity of both texts, the closest in meaning first.

    An encoder sees topics better than opposites: a high number is no proof that the meaning is kept, a low one says
    that it is not. Without the encoder the order stays, and the similarity is None.
    """
    found = [row for row in rows if row.outcome == "success" and row.adversarial is not None]
    if not encoder_at_hand():
        return [(row, None) for row in found]
    from unshaken.attacks.constraints.encoder import SentenceEncoder

    before = [" ".join(row.original) for row in found]
    after = [" ".join(row.adversarial or ()) for row in found]
    pairs = zip(found, SentenceEncoder.load().cosine(before, after), strict=True)
    return [(row, alike) for row, alike in sorted(pairs, key=lambda pair: -pair[1])]
