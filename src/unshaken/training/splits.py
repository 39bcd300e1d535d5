"""What a trainer is given to train and select on: read, and refused where it cannot work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unshaken.errors import UnshakenError
from unshaken.examples import Examples
from unshaken.readers import Readers
from unshaken.tasks import table_examples
from unshaken.training.collator import check_labels
from unshaken.victims.hugging_face import label_names


def read_splits(train: Any, evaluation: Any, config: Any, tokenizer: Any, reader: Readers | None) -> tuple[Any, Any]:
    """Raw texts as `Examples` that the reader has read; what is tokenised already is the stock Trainer's to read."""
    train = _as_examples(train, label_names(config))
    known = train.label_names if isinstance(train, Examples) else ()
    evaluation = _as_examples(evaluation, known or label_names(config))
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
            _require_order(split, known, "the training rows")
            _require_order(split, label_names(config), "the model")
    if isinstance(train, Examples) and num_labels > 1 and len(set(train.labels)) < 2:
        only = train.labels[0] if len(train) else None
        raise UnshakenError(
            f"{train.name} holds one class only ({only!r}): a classifier needs at least two to train on"
        )
    return train, evaluation


def _require_order(split: Examples, known: Sequence[str], whose: str) -> None:
    """Refuse a class that has another number elsewhere; classes of other names may mean the same."""
    places = {name.casefold(): place for place, name in enumerate(known)}
    for place, name in enumerate(split.label_names):
        if places.get(name.casefold(), place) != place:
            raise UnshakenError(
                f"{split.name} has its classes in the order {', '.join(split.label_names)}, and {whose} in the order "
                f"{', '.join(known)}; give both one order (label_names)"
            )


def _as_examples(data: Any, names: Sequence[str]) -> Any:
    columns = list(getattr(data, "column_names", getattr(data, "columns", ())))
    if isinstance(data, Examples) or not columns or "input_ids" in columns:
        return data
    return table_examples(data, label_names=names or None)
