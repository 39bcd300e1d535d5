"""Which adversarial texts say the same as before: those are the ones to look at first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from unshaken.embedded import minilm_path
from unshaken.errors import UnshakenError

if TYPE_CHECKING:
    from unshaken.attacks.results import AttackResult

ENCODER = "MiniLM"  # the one that is at hand, in the demo extra's wheel


def by_faithfulness(rows: Iterable[AttackResult]) -> list[tuple[AttackResult, float | None]]:
    """Successful results with the cosine similarity of both texts, the closest in meaning first.

    An encoder sees topics better than opposites: a high number is no proof that the meaning is kept, a low one says
    that it is not. Without the encoder the order stays, and the similarity is None.
    """
    found = [row for row in rows if row.outcome == "success" and row.adversarial is not None]
    try:
        minilm_path()
    except UnshakenError:
        return [(row, None) for row in found]
    from unshaken.attacks.constraints.similarity import SentenceEncoder

    before = [" ".join(row.original) for row in found]
    after = [" ".join(row.adversarial or ()) for row in found]
    pairs = zip(found, SentenceEncoder.load().cosine(before, after), strict=True)
    return [(row, alike) for row, alike in sorted(pairs, key=lambda pair: -pair[1])]
