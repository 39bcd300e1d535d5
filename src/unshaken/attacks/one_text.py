"""`attack`: one sentence, for a notebook."""

from __future__ import annotations

from typing import Any

from unshaken.attacks.results import AttackResult
from unshaken.errors import UnshakenError
from unshaken.examples import Examples
from unshaken.victims.base import Victim
from unshaken.victims.classes import class_number


def attack(
    victim: Any, text: str | tuple[str, str], attack: Any = "pwws", *, label: int | str | None = None
) -> AttackResult:
    """Attack one text, or pair of texts. In a notebook the result shows what was changed.

    Args:
        victim: Anything that `Victim.of` takes: a folder, a pipeline, an .onnx file, an address, a function.
        text: The text.
        attack: An attack, or its name with options ("genetic:population=20").
        label: The right answer, by name or number; the victim's own if None.

    Example:
        >>> unshaken.attack("out/final", "a warm and funny film").adversarial
    """
    from unshaken.attacks import find_attack

    model = Victim.of(victim)
    texts = (text,) if isinstance(text, str) else tuple(text)
    if not any(part.strip() for part in texts):
        raise UnshakenError("the text is empty; there is nothing to attack")
    if isinstance(label, str):
        label = class_number(model, label)
    if label is None:
        label = int(model.log_probabilities([texts])[0].argmax())
    (result,) = find_attack(attack)(model, Examples.from_lists([texts], [label]))
    if result.outcome == "error":
        raise UnshakenError(f"{model.name} could not answer: {result.error}")
    return result
