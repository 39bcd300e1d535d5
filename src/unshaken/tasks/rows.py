"""From records to `Examples`: which column is which, what a label means, and errors that name the row."""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from functools import lru_cache
from itertools import islice
from typing import Any

from unshaken.errors import UnshakenError
from unshaken.examples import Example, Examples
from unshaken.names import nearest
from unshaken.tasks.readers import Record
from unshaken.tasks.sampling import rank
from unshaken.tasks.task import Task

UNLABELLED = -1
NO_LABEL = ("", "-", "-1")  # absent, SNLI's undecided pairs, the hub's hidden test labels
FILL = "fill it in, or remove the row"
WHOLE = r"[+-]?\d{1,300}"  # a longer row of digits is no number anybody counts with
NUMBER = r"[+-]?(\d{1,300}(\.\d*)?|\.\d+)([eE][+-]?\d+)?"


def build_examples(
    records: Iterable[Record],
    task: Task,
    split: str,
    source: str,
    *,
    strict: bool = False,
    count: int | None = None,
    seed: int = 0,
) -> Examples:
    """The examples of one split.

    Args:
        split: Gives the name and the ids: "train" -> "sst2/train" and "train/0", "train/1", ...
        source: The file or hub path, for error messages.
        strict: Refuse empty texts. A user's file is checked; published sets are taken as they are (QQP has one).
        count: Keep so many rows, drawn while reading: memory does not grow with the file. All if None.
        seed: Of the draw, which goes by ids alone.
    """
    every = _examples(records, task, split, source, strict=strict)
    rows = list(every) if count is None else _drawn(every, count, seed)
    if not rows:
        raise UnshakenError(f"{source}: the {split} split of {task.name!r} is empty")
    return _split_of(rows, task, split)


def build_blocks(records: Iterable[Record], task: Task, split: str, source: str, size: int) -> Iterator[Examples]:
    """The same examples, with the same ids, `size` at a time: of a file of any length one block is in memory."""
    every = _examples(records, task, split, source, strict=True)
    while rows := list(islice(every, size)):
        block = _split_of(rows, task, split)
        if not task.is_regression and is_unlabelled(block, source):
            raise UnshakenError(f"{source}: no labels in column {task.label_column!r}, from the id {rows[0].id!r} on")
        yield block


def _split_of(rows: Iterable[Example], task: Task, split: str) -> Examples:
    return Examples(
        rows=tuple(rows),
        name=f"{task.name}/{split}",
        columns=task.columns,
        label_names=task.label_names,
        metric=task.metric,
        order_guessed=task.order_guessed,
    )


def _examples(records: Iterable[Record], task: Task, split: str, source: str, *, strict: bool) -> Iterator[Example]:
    classes, number = _classes(task), 0
    originals = [f"original_{column}" for column in task.columns]
    for record in _belonging(records, task):
        label = _label(record, task, classes, source)
        if label == UNLABELLED and task.drop_unlabelled:
            continue
        texts = tuple(_text(record, column, task, source, strict=strict) for column in task.columns)
        key = number if task.id_column is None else record.fields.get(task.id_column, number)
        group = record.fields.get(task.group_column) if task.group_column else None
        yield Example(
            id=f"{split}/{key}",
            texts=texts,
            label=label,
            group=None if group is None else str(group),
            original=_original(record, originals, texts, task, source),
            copy_of=_copy_of(record, texts),
        )
        number += 1


def _drawn(rows: Iterable[Example], count: int, seed: int) -> list[Example]:
    """`count` rows in the order of the file; which ones, only ids and seed decide. Holds no more than these."""
    kept = heapq.nsmallest(count, enumerate(rows), key=lambda place: rank(place[1].id, seed))
    return [row for _, row in sorted(kept, key=lambda place: place[0])]


def is_unlabelled(examples: Examples, source: str) -> bool:
    """Whether all labels are hidden. Some hidden, some not, is a fault of the file."""
    hidden = [row for row in examples if row.label == UNLABELLED and not isinstance(row.label, float)]
    if hidden and len(hidden) < len(examples):
        count = f"{len(hidden)} of {len(examples)}"
        raise UnshakenError(f"{source}: {count} rows have no label; the first has the id {hidden[0].id!r}; {FILL}")
    return bool(hidden)


def _belonging(records: Iterable[Record], task: Task) -> Iterator[Record]:
    if not task.keep and not task.drop:
        yield from records
        return
    for record in records:
        kept = all(record.fields.get(key) == value for key, value in task.keep.items())
        dropped = any(record.fields.get(key) == value for key, value in task.drop.items())
        if kept and not dropped:
            yield record


def find_column(fields: Iterable[str], column: str, aliases: Sequence[str], source: str) -> str:
    """The name under which a file has `column`, or an error with the nearest match."""
    fields = list(fields)
    for candidate in (column, *aliases):
        if candidate in fields:
            return candidate
    raise UnshakenError(f"{source}: no column {column!r}; {nearest(column, fields)}")


def _text(record: Record, column: str, task: Task, source: str, *, strict: bool) -> str:
    name = column
    if column not in record.fields:
        name = find_column(record.fields, column, task.aliases.get(column, ()), f"{source}, {record.where}")
    text = record.fields[name]
    if text is None or text != text:  # as tables write what is missing
        raise UnshakenError(f"{source}: {record.where} has no text in column {name!r}; remove or fill the row")
    if not isinstance(text, str):
        raise UnshakenError(f"{source}: {record.where} has {type(text).__name__} in text column {name!r}, not text")
    if strict and not text.strip():
        raise UnshakenError(f"{source}: {record.where} has an empty text in column {name!r}; remove or fill the row")
    return text


def _label(record: Record, task: Task, classes: Mapping[str, int], source: str) -> int | float:
    names = (task.label_column, *task.aliases.get(task.label_column, ()))
    value = next((record.fields[name] for name in names if name in record.fields), None)
    require_one_label(value, record, source)
    if task.is_regression:
        return _target(value, record, source)
    return _class(value, task, classes, source, record)


def require_one_label(value: Any, record: Record, source: str) -> None:
    """Refuse lists and objects, whose spelling would be taken for the name of a class."""
    if isinstance(value, Sized) and not isinstance(value, str):
        kind = type(value).__name__
        raise UnshakenError(f"{source}: {record.where} has the label {value!r}, a {kind}; give one label a row")


def _target(value: Any, record: Record, source: str) -> float:
    try:
        is_number = re.fullmatch(NUMBER, value.strip()) if isinstance(value, str) else not isinstance(value, bool)
        target = float(value) if is_number else math.nan  # float reads "1_0" as ten
    except (TypeError, ValueError, OverflowError):
        target = math.nan
    if not math.isfinite(target):
        raise UnshakenError(f"{source}: {record.where} has the target {value!r}, not a number; {FILL}")
    return target


def label_text(value: Any) -> str:
    """A label as text: 1, 1.0, "1" and " 1 " are one label, a missing one is empty."""
    return "" if value is None or value != value else _normal(str(value))  # a missing number is NaN in Parquet


@lru_cache(maxsize=4096)
def _normal(label: str) -> str:
    text = label.strip()
    if re.fullmatch(WHOLE, text):
        return str(int(text))  # not by float, which would make one label of two long ids
    if re.fullmatch(NUMBER, text) and float(text).is_integer():
        return str(int(float(text)))
    return text


def _classes(task: Task) -> dict[str, int]:
    """Every name of a class -> its number, and in lower case where that is no other's; the first of two counts.

    Its number is a name as well, unless classes are called by numbers: of "1" and "2", 1 is the first and 0 is none;
    of "1 star" and "2 stars" nobody knows which one 1 is.
    """
    classes: dict[str, int] = {}
    spelt = [(known, i) for i, name in enumerate(task.label_names) for known in (name, *task.aliases.get(name, ()))]
    named = [(label_text(known), index) for known, index in spelt]
    for known, index in [*named, *((known.casefold(), index) for known, index in named)]:
        classes.setdefault(known, index)
    if not any(re.fullmatch(WHOLE, known) for known in classes):
        names = enumerate(task.label_names)
        elsewhere = {number for place, name in names for number in re.findall(r"\d+", name) if number != str(place)}
        places = enumerate(map(str, range(len(task.label_names))))
        classes.update((number, place) for place, number in places if number not in elsewhere)
    return classes


def _class(value: Any, task: Task, classes: Mapping[str, int], source: str, record: Record) -> int:
    """The class of a label given by name, by other name or by number, as `_classes` knows them; -1 if it is hidden."""
    text = label_text(value)
    for spelling in (text, text.casefold()):
        if spelling in classes:
            return classes[spelling]
    if text in NO_LABEL:
        return UNLABELLED
    hint = nearest(text, task.label_names)
    place = int(text) if re.fullmatch(WHOLE, text) else -1
    if 0 <= place < len(task.label_names) and not any(re.fullmatch(WHOLE, name) for name in task.label_names):
        hint = f"its place is that of {task.label_names[place]!r}, and another is called so; write the names of classes"
    raise UnshakenError(f"{source}: {record.where} has the unknown label {value!r}; {hint}")


def _copy_of(record: Record, texts: tuple[str, ...]) -> tuple[str, ...] | None:
    """What `unshaken augment` says of a copy: the texts it was made from, as a list."""
    told = record.fields.get("original")
    if not isinstance(told, list) or len(told) != len(texts) or not all(isinstance(text, str) for text in told):
        return None
    return tuple(told)


def _original(
    record: Record, names: Sequence[str], texts: tuple[str, ...], task: Task, source: str
) -> tuple[str, ...] | None:
    """The unperturbed texts: AdvGLUE gives `original_<column>` for the one text that an attack changed."""
    if not any(name in record.fields for name in names):
        return None
    return tuple(
        _text(record, name, task, source, strict=False) if name in record.fields else text
        for name, text in zip(names, texts, strict=True)
    )
