"""`check_break`: a third party's text that fools an entry, checked by one forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unshaken.errors import UnshakenError
from unshaken.examples import Example
from unshaken.leaderboard.entry import Entry
from unshaken.names import nearest
from unshaken.substitutions import Substitutions, match_case, segment
from unshaken.victims.base import Victim


@dataclass(frozen=True, kw_only=True)
class Break:
    """A text that the suite had not found."""

    model: str  # fingerprint
    example: str  # id
    texts: tuple[str, ...]
    prediction: int
    label: int


def check_break(
    entry: Entry, victim: Victim, example: Example, texts: Sequence[str], substitutions: Substitutions
) -> Break:
    """The break, if it is one: the model is the entry's, the text stays within the threat, and the answer flips.

    Raises:
        UnshakenError: Says what does not hold.
    """
    texts = tuple(texts)
    if victim.fingerprint not in {model.fingerprint for model in entry.models}:
        known = ", ".join(model.weights for model in entry.models)
        raise UnshakenError(f"{victim.name} is not a model of {entry.name}; its models are those of {known}")
    entry.require_substitutions(substitutions)
    if example.id not in entry.ids:
        raise UnshakenError(
            f"{entry.name} was not scored on the example {example.id!r}; {nearest(example.id, entry.ids)}"
        )
    if len(texts) != len(example.texts):
        raise UnshakenError(f"{len(texts)} texts; the example {example.id!r} has {len(example.texts)}")
    for original, changed in zip(example.texts, texts, strict=True):
        _require_wording(original, changed, substitutions.against(victim.reader))  # as the suite wrote it
    before, after = victim.log_probabilities([example.texts, texts]).argmax(axis=1).tolist()
    if before != example.label:
        raise UnshakenError(f"the model is wrong about {example.id!r} without any change; that counts already")
    if after == example.label:
        raise UnshakenError("the model still gives the right answer; nothing is broken")
    return Break(model=victim.fingerprint, example=example.id, texts=texts, prediction=after, label=int(example.label))


def _require_wording(original: str, changed: str, substitutions: Substitutions) -> None:
    """Refuse a text that swaps anything but words of the set in their places."""
    words = segment(original)
    reached, end = {0}, 0  # places in `changed` up to which it can be read so
    for span, surface, candidates in zip(words.spans, words.surfaces, substitutions.for_text(words), strict=True):
        gap = original[end : span[0]]
        starts = {place + len(gap) for place in reached if changed.startswith(gap, place)}
        forms = [surface, *(match_case(surface, candidate) for candidate in candidates)]
        reached = {place + len(form) for place in starts for form in forms if changed.startswith(form, place)}
        if not reached:
            raise UnshakenError(f"{changed!r} changes more than words that {substitutions.name} offers, at {surface!r}")
        end = span[1]
    if not any(changed[place:] == original[end:] for place in reached):
        raise UnshakenError(f"{changed!r} changes what follows the last word")
