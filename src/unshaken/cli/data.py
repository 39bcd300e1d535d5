"""The examples of a command: tasks and files by name, whole or block by block."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unshaken.cli import options
from unshaken.errors import UnshakenError

if TYPE_CHECKING:
    from unshaken.examples import Examples
    from unshaken.victims.base import Victim

SOON_READ = 2**26  # bytes: to read a larger file twice takes longer than the model


def load_sets(
    tasks: str,
    data: Path | None,
    victim: Victim,
    count: int | None,
    seed: int,
    *,
    text_columns: list[str] | None = None,
    label_column: str | None = None,
    unlabelled: bool = False,
    texts_only: bool = False,
) -> dict[str, Examples]:
    """What can be reported of each task; AdvGLUE is narrowed to the tasks named beside it.

    A file's classes are read by the names of `victim`; other victims may not have them.
    """
    from unshaken.tasks import TASKS, known_task, load_examples, load_task, task_names

    names = task_names(tasks)
    if not any(Path(name).is_file() for name in names):
        why = f"{tasks} has its own columns; leave it out"
        options.refuse(why, text_column=text_columns or None, label_column=label_column, no_labels=texts_only)
    tasks_of_ours = [task for name in names if not Path(name).is_file() and (task := known_task(name)) is not None]
    if all(task.package is not None for task in tasks_of_ours):
        options.refuse(f"{tasks} brings its own rows; leave it out", data=data)
    clean = {name for name in names if name in TASKS and TASKS[name].clean_task is None}
    sets: dict[str, Examples] = {}
    for name in names:
        is_named = name in (part.strip() for part in tasks.split(","))
        if not is_named and clean and name in TASKS and TASKS[name].clean_task not in {None, *clean}:
            continue
        if Path(name).is_file():
            columns = _columns(victim.folder, name, text_columns, label_column, texts_only)
            how: dict[str, Any] = {"label_names": victim.label_names or None, "unlabelled": unlabelled, **columns}
            rows = replace(load_examples(name, count=count, seed=seed, **how), order_guessed=True)
        else:
            task = known_task(name)
            takes_data = task is not None and task.package is None  # the others bring or name their own files
            rows = load_task(name, data=data if takes_data else None, seed=seed).require("test")
        if twin := next((known for known in sets if _file_stem(known) == _file_stem(rows.name)), None):
            raise UnshakenError(f"two of the sets in {tasks!r} are called {twin!r}; rename one of the files")
        sets[rows.name] = rows if count is None else rows.sample(count, seed)
    if not sets:
        raise UnshakenError(f"no task in {tasks!r}; name one, such as sst2, or a file")
    return sets


def _file_stem(name: str) -> str:
    """How the files of a set's results begin: what is the same here would be mixed up there."""
    return name.replace("/", "-").casefold()


def blocks_of(
    task: str,
    size: int,
    count: int | None,
    victim: Victim,
    *,
    data: Path | None = None,
    text_columns: list[str] | None = None,
    label_column: str | None = None,
) -> Iterable[Examples]:
    """The rows of one file, `size` at a time."""
    from unshaken.tasks import load_blocks

    if not Path(task).is_file():
        raise UnshakenError(f"--block reads one file from its first row to its last; {task!r} is none")
    options.refuse(f"{task} is a file; leave it out", data=data)
    if count is not None:
        raise UnshakenError("-n draws rows and --block takes all of them; leave one out")
    columns = _columns(victim.folder, task, text_columns, label_column)
    blocks = load_blocks(task, size, label_names=victim.label_names or None, **columns)
    return (replace(rows, order_guessed=True) for rows in blocks)


def require_rows(
    tasks: str,
    model: str | None,
    count: int | None,
    seed: int,
    *,
    text_columns: list[str] | None = None,
    label_column: str | None = None,
    unlabelled: bool = False,
    texts_only: bool = False,
) -> None:
    """Tell what is wrong with a file before torch is imported and the model loaded, which takes up to a minute.

    Without a model only what is wrong whatever the columns are: a victim of the user's own may know which they are.
    """
    from unshaken.pretrained import locate
    from unshaken.tasks import task_names
    from unshaken.tasks.load import check_examples

    folder = locate(model) if model is not None and Path(model).is_dir() else model
    for name in task_names(tasks):
        if not Path(name).is_file() or Path(name).stat().st_size > SOON_READ:
            continue
        if folder is None:
            _require_readable(Path(name), [*(text_columns or ()), *filter(None, [label_column])])
        else:
            columns = _columns(folder, name, text_columns, label_column, texts_only)
            check_examples(name, count=count, seed=seed, unlabelled=unlabelled, **columns)


def _require_readable(path: Path, columns: list[str]) -> None:
    from unshaken.tasks.readers import read
    from unshaken.tasks.rows import find_column

    records = read(path)
    first = next(records, None)
    if first is None:
        raise UnshakenError(f"{path} has no rows")
    for column in columns:
        find_column(first.fields, column, (), str(path))
    for _ in records:  # to the end, where bytes or quotes may be wrong
        pass


def _columns(
    folder: str, path: str, texts: list[str] | None, label: str | None, texts_only: bool = False
) -> dict[str, Any]:
    """How to read a file: columns not named are those the model was trained on, where the file has them, or guessed."""
    from unshaken.files import TRAINING_FILE, read_json
    from unshaken.tasks.readers import read

    own, first = Path(folder) / TRAINING_FILE, next(read(Path(path)), None)
    record = read_json(own) if own.is_file() else None  # as it is: `TrainingRecord` comes with torch
    details = record.get("details") if isinstance(record, dict) else None
    if isinstance(details, dict) and first is not None:
        trained, named = (details.get(key) for key in ("text_columns", "label_column"))
        if not texts and isinstance(trained, list) and trained and set(map(str, trained)) <= first.fields.keys():
            texts = trained
        if not label and isinstance(named, str) and named in first.fields:
            label = named
    if texts_only:
        return {"text_columns": texts or None, "texts_only": True}
    return {"text_columns": texts or None, "label_column": label or None}
