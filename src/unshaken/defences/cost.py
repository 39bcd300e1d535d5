"""`training_cost`: a whole run, in runs of plain fine-tuning."""

from __future__ import annotations

from unshaken.defences.base import PLAIN, Defence
from unshaken.defences.teacher import PlainTeacher


def training_cost(defence: Defence) -> float:
    """Of a run, in plain trainings; a teacher is one more."""
    teachers = any(isinstance(part, PlainTeacher) for part in defence.modules())
    return float(defence.passes().cost + (PLAIN.cost if teachers else 0))
