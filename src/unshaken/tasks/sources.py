"""The splits of a built-in task, from its official files or from the hub."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unshaken.errors import UnshakenError
from unshaken.examples import Examples
from unshaken.names import optional
from unshaken.pretrained import asked_once
from unshaken.tasks.readers import FORMATS, Record, numbered, read, read_class_folders, read_json, read_plain_tsv
from unshaken.tasks.rows import build_examples, is_unlabelled
from unshaken.tasks.task import SPLITS, Task, TaskData


def from_files(task: Task, data: Path) -> TaskData:
    """Read the splits that `data` holds, in any layout the task knows."""
    files = find_files(task, data)
    loaded = TaskData(task=task)
    for split, path in files.items():
        examples = build_examples(_records(task, path), task, split, str(path))
        loaded = _with_split(loaded, split, examples, path.name)
    if not loaded.splits:
        raise UnshakenError(f"{data} holds only unlabelled rows of task {task.name!r}; add its train or dev file")
    return loaded


def find_files(task: Task, data: Path) -> dict[str, Path]:
    """The files of the first known folder below `data` that holds a split of the task."""
    if not data.is_dir():
        raise UnshakenError(f"no such folder: {data}")
    for folder in (data / name for name in task.folders):
        files = {split: path for split in SPLITS if (path := _first(folder, task.files.get(split, ()))) is not None}
        if files:
            return files
    examples = ", ".join(f"{task.folders[0]}/{names[0]}" for names in task.files.values())
    raise UnshakenError(f"{data} holds no files of task {task.name!r}; looked for {examples} and the like")


def _first(folder: Path, names: tuple[str, ...]) -> Path | None:
    # A name without ending is a folder of class folders; "test" must not match a stray folder without classes.
    for path in (folder / name for name in names):
        if path.is_file() or (path.suffix not in FORMATS and any(path.glob("*/*.txt"))):
            return path
    return None


def _records(task: Task, path: Path) -> Iterator[Record]:
    if path.is_dir():
        return read_class_folders(path)
    if task.json_key is not None:
        return read_json(path, task.json_key)
    return read_plain_tsv(path) if path.suffix == ".tsv" else read(path)


def _with_split(data: TaskData, split: str, examples: Examples, origin: str) -> TaskData:
    """Add a split, and note where it is not what the name promises."""
    task = data.task
    if is_unlabelled(examples, origin):
        return data.with_split("unlabelled", examples)
    if task.group_column and all(row.group is None for row in examples):
        data = data.with_note(f"{origin} has no attack levels; dev_ann.json has")
    official = task.sizes.get(split)
    if official is not None and len(examples) != official:
        data = data.with_note(f"{split} is a subset: {len(examples):,} of {official:,} rows ({origin})")
    return data.with_split(split, examples)


def from_package(task: Task) -> TaskData:
    """Read the files inside an installed package, without importing it."""
    assert task.package is not None
    spec = importlib.util.find_spec(task.package)
    if spec is None or spec.origin is None:
        wheel = task.package.replace("_", "-")
        cure = f"pip install {wheel} (it is in unshaken[demo]), or pass data=DIR with {task.files['train'][0]}"
        raise UnshakenError(f"task {task.name!r} reads its rows from the package {wheel!r}, which is absent; {cure}")
    return from_files(task, Path(spec.origin).parent)


def from_hub(task: Task) -> TaskData:
    """Read the splits from the Hugging Face hub, or from its local cache."""
    assert task.hub is not None
    loaded = TaskData(task=task)
    for split, theirs in task.hub.splits.items():
        rows = load_from_hub(task.hub.path, task.hub.config, theirs)
        examples = build_examples(numbered(rows), task, split, task.hub.path)
        loaded = _with_split(loaded, split, examples, task.hub.path)
    return loaded


def load_from_hub(path: str, config: str | None = None, split: str | None = None) -> Any:
    files = "pass data=DIR (--data DIR) with the files"
    cure = f"pip install datasets, or {files}"
    datasets = optional("datasets", f"{path!r} is on the hub and the package 'datasets' is not installed; {cure}")
    try:
        with asked_once(datasets):
            return datasets.load_dataset(path, config, split=split)
    except Exception as error:  # the hub, its cache and the network each raise their own kinds
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UnshakenError(f"cannot load {path!r} from the hub ({reason}); go online once, or {files}") from error
