"""Where the rows of a user's own data come from: one file, several, a folder of files, or a data set of the hub."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from numbers import Integral
from pathlib import Path
from typing import Any

from unshaken.errors import UnshakenError
from unshaken.tasks.readers import FORMATS, Record, class_labels, numbered, read
from unshaken.tasks.rows import UNLABELLED, label_text
from unshaken.tasks.sources import load_from_hub
from unshaken.tasks.task import Task, TaskData

SAVE_TO_DISK_NOTES = ("state.json", "dataset_info.json", "dataset_dict.json")
SPLIT_NAMES = {"train": ("train",), "validation": ("validation", "valid", "val", "dev"), "test": ("test",)}


@dataclass(frozen=True, kw_only=True)
class Source:
    """Rows that can be read more than once: first their labels, then their texts. So memory holds no row twice."""

    name: str
    records: Callable[[], Iterator[Record]]
    class_names: Callable[[str], tuple[str, ...]]  # column -> names that the file itself declares
    has_numbers: bool = True  # whether a whole number is the place of its class among the declared names

    def records_of(self, task: Task) -> Iterator[Record]:
        """The records. A number that stands for a declared name becomes it where the task knows any of the names.

        Else the order in which a file declares its classes would pass for the order of the task.
        """
        column = task.label_column
        declared = self.class_names(column) if self.has_numbers else ()
        known = {label_text(name).casefold() for name in task.label_names}
        if known.isdisjoint(label_text(name).casefold() for name in declared):
            return self.records()
        return (
            record._replace(fields={**record.fields, column: _declared(record.fields.get(column), declared)})
            for record in self.records()
        )


def _declared(value: Any, names: Sequence[str]) -> Any:
    """The name of a class that is given by its place; none for -1, which stands for a hidden label."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        return value
    place = int(value)
    if place == UNLABELLED:
        return None
    return names[place] if 0 <= place < len(names) else value


def file_source(*paths: Path) -> Source:
    """One file, or the shards of one split."""
    for path in paths:
        read(path)  # refuses a missing file or an unknown ending now, with the others not yet read
    return Source(
        name=str(paths[0]),
        records=lambda: chain.from_iterable(map(read, paths)),
        class_names=partial(class_labels, paths[0]),
    )


def folder_sources(folder: Path) -> dict[str, Source]:
    """The splits in a folder: `train.csv`, `data/train-00000-of-00002.parquet`, or what `save_to_disk` wrote."""
    shards = _by_split(folder)
    shards.pop(None, None)
    if not shards:
        endings = ", ".join(FORMATS)
        raise UnshakenError(f"{folder} holds no data; name its files train, validation and test, ending in {endings}")
    for paths in shards.values():
        known: dict[Path, Path] = {}
        for path in paths:
            twin = known.setdefault(path.with_suffix(""), path)
            if twin != path:  # the same rows, most likely, which would count twice
                names = f"{twin.relative_to(folder)} and {path.relative_to(folder)}"
                raise UnshakenError(f"{folder} holds {names}, one file in two formats; remove one of them")
    return {str(split): file_source(*paths) for split, paths in shards.items()}


def with_unnamed(data: TaskData, folder: Path) -> TaskData:
    """With a note of the files in a folder that look like data and are read as no split: `testing.csv`, perhaps."""
    if paths := _by_split(folder).get(None):
        names = ", ".join(str(path.relative_to(folder)) for path in paths[:3]) + (", ..." if len(paths) > 3 else "")
        data = data.with_note(f"not read, for their names are no train, validation or test: {names}")
    return data


def _by_split(folder: Path) -> dict[str | None, list[Path]]:
    shards: dict[str | None, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in FORMATS and path.name not in SAVE_TO_DISK_NOTES:
            inside = path.relative_to(folder)
            split = _named_split(inside.stem) or _named_split(inside.parent.name)
            if split is None and path.suffix == ".arrow":
                split = "train"  # one `Dataset`, without splits
            shards.setdefault(split, []).append(path)
    return shards


def _named_split(name: str) -> str | None:
    first = re.split(r"[-_.]", name.lower())[0]
    return next((split for split, names in SPLIT_NAMES.items() if first in names), None)


def hub_sources(path: str) -> dict[str, Source]:
    """The splits of `owner/name` or `owner/name:configuration` on the hub."""
    name, _, config = path.partition(":")
    loaded = load_from_hub(name, config or None)
    sources = {split: hub_source(path, loaded[theirs]) for split, theirs in known_splits(loaded).items()}
    if not sources:
        raise UnshakenError(f"{path!r} has no train, validation or test split; it has {', '.join(loaded)}")
    return sources


def known_splits(published: Container[str]) -> dict[str, str]:
    """Our name of each split that is there -> the name it has there."""
    there = {split: [name for name in names if name in published] for split, names in SPLIT_NAMES.items()}
    return {split: names[0] for split, names in there.items() if names}


def hub_source(name: str, rows: Any) -> Source:
    def class_names(column: str) -> tuple[str, ...]:
        return tuple(getattr(rows.features.get(column), "names", ()))

    return Source(name=name, records=lambda: numbered(rows), class_names=class_names)
