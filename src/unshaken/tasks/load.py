"""`load_task`: a name, a file, a folder or a hub data set in; labelled splits out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unshaken.errors import UnshakenError
from unshaken.examples import Examples
from unshaken.files import atomic_writer
from unshaken.names import from_spec, installed, lookup, nearest
from unshaken.tasks import own, row_sources, sources, tables
from unshaken.tasks.readers import FORMATS
from unshaken.tasks.rows import build_blocks
from unshaken.tasks.sampling import PROTOCOLS, Protocol
from unshaken.tasks.specs import TASK_GROUPS, TASKS
from unshaken.tasks.task import Task, TaskData

PathLike = str | Path


def load_task(
    name_or_path: PathLike | Any,
    *,
    data: PathLike | None = None,
    protocol: str | Protocol = "standard",
    seed: int = 0,
    validation: PathLike | None = None,
    test: PathLike | None = None,
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
    id_column: str | None = None,
    label_names: Sequence[str] | None = None,
) -> TaskData:
    """Load a task by name, or a user's own data by path.

    Args:
        name_or_path: A key of `TASKS`; a CSV, TSV, JSONL, JSON or Parquet file; a folder with such files or written by
            `save_to_disk`; `owner/name[:configuration]` on the hub; or a table in memory, of pandas or `datasets`.
        data: The folder with a built-in task's files; the hub if None.
        protocol: How splits are made, a name of `PROTOCOLS` with options (`low-resource:size=1000`) or an object.
        seed: Of everything the protocol draws.
        validation: A second file of one's own; held out of train if None.
        test: A third.
        text_columns: Of one's own data; guessed if None.
        label_column: The same.
        id_column: The same; row numbers if None.
        label_names: Class names in label order; sorted if None.

    Example:
        >>> load_task("rotten-tomatoes").test[0].label  # doctest: +SKIP
        1
        >>> load_task("reviews.csv", label_column="stars", protocol="low-resource:size=200")  # doctest: +SKIP
    """
    columns = own.ColumnNames.of(text_columns, label_column, id_column, label_names)
    chosen: Protocol = from_spec("protocol", protocol, PROTOCOLS) if isinstance(protocol, str) else protocol
    is_path = isinstance(name_or_path, PathLike)
    if task := known_task(name_or_path) if is_path else None:
        if columns != own.ColumnNames() or validation is not None or test is not None:
            raise UnshakenError(f"{task.name!r} is a built-in task with its own files and columns; only data applies")
        loaded = _built_in(task, None if data is None else Path(data))
    else:
        if is_path and data is not None:
            raise UnshakenError(
                f"data is for built-in tasks; {name_or_path!s} is none of them; {nearest(str(name_or_path), TASKS)}"
            )
        splits = _own_sources(name_or_path) if is_path else tables.table_sources(name_or_path)
        more = {"validation": validation, "test": test}
        splits |= {split: row_sources.file_source(Path(path)) for split, path in more.items() if path is not None}
        loaded = own.load_sources(splits, columns, name=_stem(name_or_path) if is_path else "table")
        if is_path and Path(name_or_path).is_dir():
            loaded = row_sources.with_unnamed(loaded, Path(name_or_path))
    return chosen.apply(loaded, seed=seed, folder=None if data is None else Path(data))


def load_examples(
    path: PathLike,
    *,
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
    id_column: str | None = None,
    label_names: Sequence[str] | None = None,
    count: int | None = None,
    seed: int = 0,
    unlabelled: bool = False,
    texts_only: bool = False,
) -> Examples:
    """One file as it is, to evaluate on: nothing is split off, and one class alone is allowed.

    Pass the model's class names as `label_names`, so that labels mean what the model means by them.

    Args:
        count: Draw so many rows while reading, by their ids and `seed`, with memory for these rows alone. The file may
            have any number of rows (a JSON array is read whole all the same).
        unlabelled: Take a file without labels, too; every label is -1 then.
        texts_only: Take any file for one without labels, whatever other columns it has.

    Example:
        >>> load_examples("ten-million-rows.csv", count=1000, label_names=("negative", "positive"))  # doctest: +SKIP
    """
    if count is not None and count < 1:
        raise UnshakenError(f"count is {count}; draw at least 1 row, or all with None")
    columns = own.ColumnNames.of(text_columns, label_column, id_column, label_names)
    source = row_sources.file_source(Path(path))
    if texts_only:
        source = own.texts_alone(source, columns)
    unlabelled = unlabelled or texts_only
    columns = replace(columns, unlabelled=unlabelled)
    loaded = own.load_sources({"test": source}, columns, name=_stem(path), count=count, seed=seed)
    return loaded.unlabelled if unlabelled and loaded.unlabelled is not None else loaded.require("test")


def check_examples(
    path: PathLike,
    *,
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
    count: int | None = None,
    seed: int = 0,
    unlabelled: bool = False,
    texts_only: bool = False,
) -> None:
    """Tell what is wrong with a file that `load_examples` is to read, while the names of the classes are not known."""
    columns = own.ColumnNames.of(text_columns, label_column, None, None)
    source = row_sources.file_source(Path(path))
    if texts_only:
        source = own.texts_alone(source, columns)
    own.check_rows(source, replace(columns, unlabelled=unlabelled or texts_only), count=count, seed=seed)


def load_blocks(
    path: PathLike,
    size: int,
    *,
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
    id_column: str | None = None,
    label_names: Sequence[str] | None = None,
) -> Iterator[Examples]:
    """The examples of `load_examples`, `size` at a time, with memory for one block alone.

    Example:
        >>> for block in load_blocks("ten-million-rows.csv", 20_000):  # doctest: +SKIP
        ...     print(len(block))
    """
    if size < 1:
        raise UnshakenError(f"a block has {size} rows; it must have at least 1")
    columns = own.ColumnNames.of(text_columns, label_column, id_column, label_names)
    source = row_sources.file_source(Path(path))
    task = own.describe(source, columns, name=_stem(path))
    return build_blocks(source.records_of(task), task, "test", source.name, size)


HELD_OUT_FILE = "held-out.jsonl"  # beside a model: the rows that training did not see, where no test file was given


def save_examples(path: PathLike, examples: Examples, *, label_column: str = "label") -> Path:
    """Write examples as JSON lines, which `load_examples` and every command read."""
    with atomic_writer(path) as stream:
        for row in examples:
            fields: dict[str, Any] = dict(zip(examples.columns, row.texts, strict=True))
            fields[label_column] = examples.written_label(row)
            if row.copy_of is not None:  # or a split would part it from what it was made of
                fields.setdefault("original", list(row.copy_of))
            for column, text in zip(examples.columns, row.original or (), strict=row.original is not None):
                fields.setdefault(f"original_{column}", text)
            stream.write(json.dumps(fields, ensure_ascii=False) + "\n")
    return Path(path)


def task_names(names: str) -> list[str]:
    """The tasks behind `sst2,advglue`: groups are spelt out, paths are left alone.

    Example:
        >>> task_names("sst2,rte")
        ['sst2', 'rte']
    """
    spelt_out: list[str] = []
    for name in filter(None, (part.strip() for part in names.split(","))):
        if _is_own(name):
            spelt_out.append(name)
        elif _key(name) in TASK_GROUPS:
            spelt_out.extend(TASK_GROUPS[_key(name)])
        else:
            spelt_out.append(lookup("task", name, TASKS).name)
    return list(dict.fromkeys(spelt_out))


def known_task(name: PathLike) -> Task | None:
    """A task of ours, or of an installed package; None for what must be a path."""
    key = _key(name)
    return lookup("task", key, TASKS) if key in TASKS or key in installed("task") else None


def split_seed(name_or_path: PathLike | Any, seed: int) -> int:
    """By which seed to hold rows out, for the training run of a seed: a user's own data are split once for all seeds.

    Else no rows would be new to the models of all seeds, and each would be measured on others.
    """
    is_ours = isinstance(name_or_path, PathLike) and known_task(name_or_path) is not None
    return seed if is_ours else 0


def _key(name: PathLike) -> str:
    return str(name).strip().lower().replace("_", "-")


def _stem(path: PathLike) -> str:
    return Path(path).stem if _exists(path) else str(path)


def _exists(path: PathLike) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # a name that no file system takes
        return False


def _is_own(name: str) -> bool:
    return known_task(name) is None and (_exists(name) or "/" in name or Path(name).suffix.lower() in FORMATS)


def _built_in(task: Task, data: Path | None) -> TaskData:
    if data is not None:
        return sources.from_files(task, data)
    return sources.from_package(task) if task.package else sources.from_hub(task)


def _own_sources(name: PathLike) -> dict[str, row_sources.Source]:
    path = Path(name)
    if path.is_dir():
        return row_sources.folder_sources(path)
    if path.is_file() or path.suffix.lower() in FORMATS:
        return {"train": row_sources.file_source(path)}
    if str(name).count("/") != 1:
        raise UnshakenError(f"unknown task {name!s}, and no such file; {nearest(str(name), TASKS)}")
    try:
        return row_sources.hub_sources(str(name))
    except UnshakenError as error:
        raise UnshakenError(f"no such file or folder: {name}; {error}") from error
