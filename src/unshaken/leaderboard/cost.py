"""`cost_of`: what a method's training costs, from the record that training left."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

from unshaken.defences import DEFENCES, Compose, Defence, Standard, training_cost
from unshaken.errors import UnshakenError
from unshaken.evaluation.training_record import TrainingRecord

_CLASSES: dict[str, Any] = {kind.__name__: kind for kind in DEFENCES.values() if isinstance(kind, type)}


def cost_of(record: TrainingRecord) -> float | None:
    """Training passes relative to plain fine-tuning; None if the record does not say."""
    told = record.details.get("passes")
    if isinstance(told, int | float) and not isinstance(told, bool) and 0 < told < math.inf:
        return float(told)
    if record.details.get("connection") is not None:
        return None  # it has a share in the cost, and the number of layers is not on record
    try:  # records of earlier versions have the defence with its options, which settle it
        parts = record.details["defence"]
        return training_cost(Standard() if parts is None else Compose(*map(_again, parts)))
    except (LookupError, TypeError, ValueError, AttributeError, UnshakenError):  # a stranger's file may hold anything
        return None


def _again(described: dict[str, Any]) -> Defence:
    """A part of a defence by its name and options, without what it was trained with."""
    kind = _CLASSES[described["name"]]
    plain = {item.name for item in fields(kind)} - {"substitutions", "model"}
    part: Defence = kind(**{key: value for key, value in described.items() if key in plain})
    return part
