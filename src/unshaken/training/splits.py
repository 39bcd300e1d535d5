"""What a trainer is given to train and select on: read, and refused where it cannot work."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Any

from unshaken.display import counted
from unshaken.errors import UnshakenError
from unshaken.examples import Examples
from unshaken.readers import Readers
from unshaken.tasks import table_examples
from unshaken.training.arguments import RobustTrainingArguments
from unshaken.training.collator import check_labels
from unshaken.victims.classes import require_one_order
from unshaken.victims.hugging_face import label_names


def read_splits(train: Any, evaluation: Any, config: Any, tokenizer: Any, reader: Readers | None) -> tuple[Any, Any]:
    """Raw texts as `Examples` that the reader has read; what is tokenised already is the stock Trainer's to read."""
    train = _read(train, (), config, tokenizer, reader)
    if isinstance(train, Examples) and int(config.num_labels) > 1 and len(set(train.labels)) < 2:
        only = train.labels[0] if len(train) else None
        raise UnshakenError(
            f"{train.name} holds one class only ({only!r}): a classifier needs at least two to train on"
        )
    return train, read_evaluation(evaluation, train, config, tokenizer, reader)


def check_arguments(args: Any, train: Any, evaluation: Any, objective: Any = None) -> None:
    """What the stock Trainer would say of settings that its caller never made, or say after an epoch."""
    if not isinstance(args, RobustTrainingArguments):
        raise UnshakenError(
            f"args is a {type(args).__name__}; RobustTrainer takes RobustTrainingArguments, which has the same fields"
        )
    if args.label_smoothing_factor or objective is not None:
        raise UnshakenError(
            "label_smoothing_factor and compute_loss_func are the stock Trainer's objectives; here the defence is the "
            "objective: write one (docs/defences/index.md shows label smoothing)"
        )
    if evaluation is None and args.eval_strategy != "no":
        raise UnshakenError(
            "there are no rows to evaluate on: pass an eval_dataset, or RobustTrainingArguments(eval_strategy='no')"
        )
    metric = args.metric_for_best_model
    if isinstance(evaluation, dict) and args.load_best_model_at_end and metric is not None:
        metric = metric.removeprefix("eval_")
        if not any(metric.startswith(f"{name}_") for name in evaluation):
            one = f"eval_{next(iter(evaluation))}_{metric}"
            raise UnshakenError(
                f"metric_for_best_model is {args.metric_for_best_model!r}, and eval_dataset has sets by name; name the "
                f"one that selects, as in {one!r}"
            )
    sets = list(evaluation.values()) if isinstance(evaluation, dict) else [evaluation]
    for split in sets if isinstance(train, Examples) else ():
        if isinstance(split, Examples) and len(split.columns) != len(train.columns):
            raise UnshakenError(
                f"{split.name} has {counted(len(split.columns), 'text')} a row ({', '.join(split.columns)}), and "
                f"{train.name} {counted(len(train.columns), 'text')} ({', '.join(train.columns)})"
            )


def name_classes(config: Any, train: Any) -> None:
    """Give the classes of the training rows to a model that names none, or a file would number them by itself later."""
    names = train.label_names if isinstance(train, Examples) else ()
    if names and len(names) == int(config.num_labels) and not label_names(config):
        config.id2label = dict(enumerate(names))
        config.label2id = {name: number for number, name in enumerate(names)}


def read_evaluation(evaluation: Any, train: Any, config: Any, tokenizer: Any, reader: Readers | None) -> Any:
    """The same of rows to evaluate on, beside those of training; of several sets by name, each."""
    known = train.label_names if isinstance(train, Examples) else ()
    if isinstance(evaluation, dict):
        sets = evaluation.items()
        read: Any = {name: read_evaluation(split, train, config, tokenizer, reader) for name, split in sets}
    else:
        read = _read(evaluation, known, config, tokenizer, reader)
    if isinstance(read, Sized) and not len(read):
        raise UnshakenError("there are no rows to evaluate on: without any there is neither a loss nor an accuracy")
    return read


def _read(split: Any, known: Sequence[str], config: Any, tokenizer: Any, reader: Readers | None) -> Any:
    split = _as_examples(split, known or label_names(config))
    if not isinstance(split, Examples):
        if reader is not None and split is not None:
            raise UnshakenError("a reader reads texts: give Examples or a table of texts, not tokens")
        return split
    if tokenizer is None:
        raise UnshakenError("training on Examples needs a tokenizer: pass processing_class=tokenizer")
    check_labels(split.labels, int(config.num_labels), split.name)
    require_one_order(split.label_names, split.name, known, "the training rows")
    require_one_order(split.label_names, split.name, label_names(config), "the model")
    return split if reader is None else reader.examples(split)


def _as_examples(data: Any, names: Sequence[str]) -> Any:
    columns = list(getattr(data, "column_names", getattr(data, "columns", ())))
    if isinstance(data, list) and data and all(isinstance(row, dict) for row in data):
        columns = list(data[0])
    if isinstance(data, Examples) or not columns or "input_ids" in columns:
        return data
    return table_examples(data, label_names=names or None)
