"""What a trainer is given to train and select on: read, and refused where it cannot work."""

from __future__ import annotations

from typing import Any

from unshaken.errors import UnshakenError
from unshaken.examples import Examples
from unshaken.readers import Readers
from unshaken.tasks import table_examples
from unshaken.training.collator import check_labels
from unshaken.victims.hugging_face import label_names


def read_splits(train: Any, evaluation: Any, config: Any, tokenizer: Any, reader: Readers | None) -> tuple[Any, Any]:
    """Raw texts as `Examples` that the reader has read; what is tokenised already is the stock Trainer's to read."""
    train, evaluation = _as_examples(train, config), _as_examples(evaluation, config)
    if reader is not None:
        if not isinstance(train, Examples):
            raise UnshakenError("a reader reads texts: train on an Examples split, not on tokens")
        train = reader.examples(train)
        evaluation = reader.examples(evaluation) if isinstance(evaluation, Examples) else evaluation
    num_labels = int(config.num_labels)
    for split in (train, evaluation):
        if isinstance(split, Examples):
            if tokenizer is None:
                raise UnshakenError("training on Examples needs a tokenizer: pass processing_class=tokenizer")
            check_labels(split.labels, num_labels, split.name)
    if isinstance(train, Examples) and num_labels > 1 and len(set(train.labels)) < 2:
        only = train.labels[0] if len(train) else None
        raise UnshakenError(
            f"{train.name} holds one class only ({only!r}): a classifier needs at least two to train on"
        )
    return train, evaluation


def _as_examples(data: Any, config: Any) -> Any:
    columns = list(getattr(data, "column_names", getattr(data, "columns", ())))
    if isinstance(data, Examples) or not columns or "input_ids" in columns:
        return data
    return table_examples(data, label_names=label_names(config) or None)
