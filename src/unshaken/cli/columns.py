"""Which columns of a file a model was trained on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unshaken.victims.base import Victim


def trained_columns(victim: Victim, path: str) -> dict[str, Any]:
    """Which columns the model was trained on, as far as the file at `path` has them."""
    from unshaken.reports import TrainingRecord
    from unshaken.tasks.readers import read

    record = TrainingRecord.load(victim.folder)
    first = next(read(Path(path)), None)
    if record is None or first is None:
        return {}
    texts, label = (record.details.get(key) for key in ("text_columns", "label_column"))
    found: dict[str, Any] = {}
    if isinstance(texts, list) and texts and set(map(str, texts)) <= first.fields.keys():
        found["text_columns"] = texts
    if isinstance(label, str) and label in first.fields:
        found["label_column"] = label
    return found
