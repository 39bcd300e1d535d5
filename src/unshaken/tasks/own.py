"""A user's own data: columns and classes that are named or guessed, splits, and doubts about them."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from unshaken.errors import UnshakenError
from unshaken.examples import Examples
from unshaken.tasks.leakage import texts_of_both
from unshaken.tasks.readers import Record
from unshaken.tasks.row_sources import Source
from unshaken.tasks.rows import (
    FILL,
    NO_LABEL,
    NUMBER,
    WHOLE,
    build_examples,
    find_column,
    is_unlabelled,
    label_text,
    require_one_label,
)
from unshaken.tasks.task import SPLITS, Task, TaskData

TEXT_PAIRS = (
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "answer"),
    ("text1", "text2"),
    ("text_a", "text_b"),
)
TEXT_COLUMNS = ("text", "sentence", "review", "content", "comment", "tweet", "message", "document", "body", "headline")
LABEL_COLUMNS = ("label", "labels", "target", "class", "category", "sentiment", "gold_label", "is_duplicate", "y")
ID_COLUMNS = ("id", "idx", "index", "guid", "")  # no labels, whatever is missing; pandas writes one without a name
MANY = 50  # classes; with two rows or fewer of each there is nothing to learn


@dataclass(frozen=True, kw_only=True)
class ColumnNames:
    """Which columns to read; None is guessed from the names above."""

    texts: tuple[str, ...] | None = None  # one, or two for pairs
    label: str | None = None
    id: str | None = None  # row numbers if None
    label_names: tuple[str, ...] | None = None  # in label order; sorted from the training rows if None
    unlabelled: bool = False  # whether there may be no labels

    @classmethod
    def of(
        cls, texts: Sequence[str] | None, label: str | None, id: str | None, label_names: Sequence[str] | None
    ) -> ColumnNames:
        """Columns from what a caller may give: a lone name counts as one column, not as its letters."""
        return cls(texts=_names(texts), label=label, id=id, label_names=_names(label_names))


def _names(names: Sequence[str] | None) -> tuple[str, ...] | None:
    if names is None:
        return None
    return (names,) if isinstance(names, str) else tuple(names)


def load_sources(
    sources: Mapping[str, Source], columns: ColumnNames, *, name: str, count: int | None = None, seed: int = 0
) -> TaskData:
    """Read the splits, or `count` rows of each; the first of train, validation, test decides columns and labels."""
    splits = [split for split in SPLITS if split in sources]
    task = describe(sources[splits[0]], columns, name=name)
    data = TaskData(task=task)
    if columns.label is None and task.label_column.lower() not in LABEL_COLUMNS:
        data = data.with_note(f"the labels are column {task.label_column!r}, the one that is left (--label-column)")
    for split in splits:
        source = sources[split]
        rows = source.records_of(task)
        examples = build_examples(rows, task, split, source.name, strict=True, count=count, seed=seed)
        if task.is_regression or not is_unlabelled(examples, source.name):
            data = data.with_split(split, examples)
        elif split == "test":
            _no_other_case(next(source.records()).fields, task.label_column, source.name)
            data = data.with_split("unlabelled", examples).with_note(f"{source.name} has no labels")
        else:
            column = task.label_column
            raise UnshakenError(f"{source.name}: no labels in column {column!r}; the {split} split needs them")
    if data.train is not None:
        _need_two_classes(data.train, sources["train"].name)
    return _with_doubts(data)


def _no_other_case(fields: Iterable[str], column: str, source: str) -> None:
    """Refuse to call a file unlabelled whose column of labels is only written otherwise."""
    fields = list(fields)
    if column not in fields and column.casefold() in map(str.casefold, fields):
        find_column(fields, column, (), source)


def _with_doubts(data: TaskData) -> TaskData:
    """With a note of what is likely a mistake, and may be none. Test texts in train are `leakage`'s to tell."""
    names = {name: unicodedata.normalize("NFKC", name).casefold() for name in data.task.label_names}
    counts = Counter(names.values())
    if alike := [name for name, read in names.items() if counts[read] > 1]:
        data = data.with_note(f"{', '.join(map(repr, alike))} are classes of their own, though they read alike")
    for one, other in (("train", "validation"), ("validation", "test")):
        seen, asked = data.splits.get(one), data.splits.get(other)
        if seen is not None and asked is not None and (count := texts_of_both(seen, asked)):
            data = data.with_note(f"{count:,} of {len(asked):,} {other} texts also occur in {one}; leave them out")
    return data


def texts_alone(source: Source, columns: ColumnNames) -> Source:
    """A source without what might be taken for its labels."""
    first = next(source.records(), None)
    if first is None:
        return source  # which is told of whoever reads it
    given = columns.texts or _guess_texts(first.fields, source.name)
    kept = {find_column(first.fields, column, (), source.name) for column in (*given, *filter(None, [columns.id]))}

    def records() -> Iterator[Record]:
        for record in source.records():
            yield record._replace(fields={key: value for key, value in record.fields.items() if key in kept})

    return replace(source, records=records)


def check_rows(source: Source, columns: ColumnNames, *, count: int | None = None, seed: int = 0) -> None:
    """Refuse what `load_sources` would refuse whatever the classes are called: told before a model that names them."""
    task = describe(source, replace(columns, label_names=("any",)), name=source.name)
    found = dict.fromkeys(label_text(record.fields.get(task.label_column)) for record in source.records())
    names = source.class_names(task.label_column) or tuple(label for label in found if label not in NO_LABEL)
    names = names or ("any",)
    load_sources({"test": source}, replace(columns, label_names=names), name=source.name, count=count, seed=seed)


def _need_two_classes(train: Examples, source: str) -> None:
    classes = len(train.label_names)
    if classes > MANY and classes > len(train) / 2:
        raise UnshakenError(
            f"{source}: {classes:,} classes in {len(train):,} rows, so most have one example; name the column that "
            "holds the class (--label-column), or leave out classes with too few rows"
        )
    if not train.is_regression and len(set(train.labels)) < 2:
        only = train.label_names[int(train.labels[0])]
        raise UnshakenError(f"{source}: every row has the label {only!r}; training needs two classes or more")


def describe(source: Source, columns: ColumnNames, *, name: str) -> Task:
    """The task that a file stands for: its columns, and its labels in order."""
    first = next(source.records(), None)
    if first is None:
        raise UnshakenError(f"{source.name} has no rows")
    texts = columns.texts or _guess_texts(first.fields, source.name)
    if not 1 <= len(texts) <= 2:
        raise UnshakenError(f"{source.name}: {len(texts)} text columns given; allowed: one, or two for pairs")
    texts = tuple(find_column(first.fields, column, (), source.name) for column in texts)
    label = _label_column(first.fields, columns, texts, source.name)
    if twice := [name for number, name in enumerate((*texts, label)) if name in texts[:number]]:
        raise UnshakenError(
            f"{source.name}: column {twice[0]!r} is named twice; each text and the label need their own"
        )
    if columns.id is not None:
        find_column(first.fields, columns.id, (), source.name)
    label_names = columns.label_names
    if label_names is None and label not in first.fields:
        label_names = ("unknown",)
    if label_names is None:
        label_names = source.class_names(label) or _label_names(source, label)
    return Task(
        name=name,
        title=name,
        columns=texts,
        label_names=label_names,
        metric="accuracy" if label_names else "pearson",
        label_column=label,
        id_column=columns.id,
        order_guessed=columns.label_names is None,
    )


LONGEST_HEADING = 4  # words


def _guess_texts(fields: Iterable[str], source: str) -> tuple[str, ...]:
    lowered = {name.lower(): name for name in fields}
    for names in (*TEXT_PAIRS, *((name,) for name in TEXT_COLUMNS)):
        if all(name in lowered for name in names):
            return tuple(lowered[name] for name in names)
    others = [name for key, name in lowered.items() if key not in LABEL_COLUMNS]
    if len(lowered) <= 2 and len(others) == 1:  # what else there is, is the label
        return (others[0],)
    present = ", ".join(map(repr, lowered.values()))
    is_row = any(len(name.split()) > LONGEST_HEADING for name in lowered)
    advice = "the first line looks like a row and has to name the columns, such as text,label"
    if not is_row:
        advice = "name it with --text-column, in Python with text_columns"
    raise UnshakenError(f"{source}: cannot tell which column is the text; columns: {present}; {advice}")


def _label_column(fields: Iterable[str], columns: ColumnNames, texts: tuple[str, ...], source: str) -> str:
    if columns.label is not None:
        return find_column(fields, columns.label, (), source)
    lowered = {name.lower(): name for name in fields}
    for name in LABEL_COLUMNS:
        if name in lowered and lowered[name] not in texts:
            return lowered[name]
    others = [name for key, name in lowered.items() if name not in texts and key not in ID_COLUMNS]
    if len(others) == 1:  # the rest are texts
        return others[0]
    present = ", ".join(map(repr, lowered.values()))
    if not others:
        if columns.unlabelled:
            return next(name for name in LABEL_COLUMNS if name not in lowered)  # which is not there
        raise UnshakenError(f"{source}: no column has the labels; columns: {present}; add one called 'label'")
    raise UnshakenError(
        f"{source}: cannot tell which column is the label; columns: {present}; name it with --label-column, in Python "
        "with label_column"
    )


def _label_names(source: Source, column: str) -> tuple[str, ...]:
    """Class names in sorted order, numbers by value; none if the labels are real numbers (regression)."""
    seen: set[str] = set()
    kinds: dict[str, str] = {}  # "text", "whole" or "real" -> where one first stood
    for record in source.records():
        value = record.fields.get(column)
        require_one_label(value, record, source.name)
        text = label_text(value)
        if not text or text.casefold() in ("nan", "null"):  # as tables write what is missing
            raise UnshakenError(f"{source.name}: {record.where} has no label in column {column!r}; {FILL}")
        if text in seen:
            continue
        kind = _kind(text)
        if kind != "real":  # targets of a regression are no classes, and there may be one per row
            seen.add(text)
        kinds.setdefault(kind, f"{record.where} has {value!r}")
        if "text" in kinds and len(kinds) > 1:
            mixed = ", ".join(kinds.values())
            raise UnshakenError(f"{source.name}: labels of mixed types ({mixed}); use one type, or give label_names")
    if "real" in kinds:
        return ()
    return tuple(sorted(seen, key=int if "whole" in kinds else str))


def _kind(text: str) -> str:
    if re.fullmatch(WHOLE, text):
        return "whole"
    return "real" if re.fullmatch(NUMBER, text) else "text"
