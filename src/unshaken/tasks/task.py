"""`Task`: what is known about a data set before it is read. `TaskData`: its splits once they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from unshaken.errors import UnshakenError
from unshaken.examples import Examples

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, kw_only=True)
class Hub:
    """Where a task lives on the Hugging Face hub."""

    path: str
    config: str | None = None
    splits: Mapping[str, str]  # ours -> theirs


@dataclass(frozen=True, kw_only=True)
class Task:
    """One data set as a row of data: columns, labels, splits, metric, version.

    Attributes:
        name: The name on the command line.
        title: What a table prints.
        columns: The text columns, one or two.
        label_names: Class names in label order; empty for regression.
        metric: Key of `unshaken.tasks.METRICS`; the headline number.
        version: Raised when rows, ids or labels of the task would change.
        label_column: The column that holds the label.
        aliases: Other names that files use for a column.
        id_column: A column of stable ids; row numbers if there is none.
        group_column: A column to report by, such as AdvGLUE's attack level.
        folders: Where the files may be below `data`, in order.
        files: Per split, the file names in official or common layouts, in order.
        json_key: The entry of a JSON file that holds several tasks.
        keep: Only rows with these values belong to the task.
        drop: Rows with one of these values do not.
        sizes: Official row counts, against which a subset is named as one.
        hub: Where the hub keeps it.
        package: An installed package whose folder holds the files, so that nothing is downloaded.
        hidden_test: The official test labels are not published, so the development set is what can be reported.
        drop_unlabelled: Rows without a gold label are left out (SNLI).
        test_share: Data that come in one piece: this share of them is the test set, the same for every seed.
        clean_task: For an adversarial set, the task its models are trained on.
        order_guessed: The classes are in the order in which they sort, or a file declares them: a model may count
            otherwise.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    label_names: tuple[str, ...]
    metric: str = "accuracy"
    version: int = 1
    label_column: str = "label"
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    id_column: str | None = None
    group_column: str | None = None
    folders: tuple[str, ...] = (".",)
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    json_key: str | None = None
    keep: Mapping[str, str] = field(default_factory=dict)
    drop: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    hub: Hub | None = None
    package: str | None = None
    hidden_test: bool = False
    drop_unlabelled: bool = False
    test_share: float = 0.0
    clean_task: str | None = None
    order_guessed: bool = False

    @property
    def is_regression(self) -> bool:
        return not self.label_names


@dataclass(frozen=True, kw_only=True, repr=False)
class TaskData:
    """The splits of a task; None if a split does not exist.

    Attributes:
        unlabelled: Texts whose labels are hidden (GLUE's test sets), each with label -1. Never evaluated.
        notes: What a reader of a result must know: subsets, held-out splits, missing attack levels.
    """

    task: Task
    train: Examples | None = None
    validation: Examples | None = None
    test: Examples | None = None
    unlabelled: Examples | None = None
    protocol: str = "official"
    seed: int = 0
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        splits = ", ".join(f"{name} {len(rows):,}" for name, rows in self.splits.items()) or "no labelled split"
        classes = ", ".join(self.task.label_names) or "targets"
        return f"TaskData({self.task.name!r}: {splits}; {classes})"

    @property
    def splits(self) -> dict[str, Examples]:
        """The labelled splits that exist."""
        return {name: split for name in SPLITS if (split := getattr(self, name)) is not None}

    def require(self, split: str) -> Examples:
        """A split that must be there, or an error that says which ones are."""
        if split in self.splits:
            return self.splits[split]
        present = ", ".join(self.splits) or "none"
        raise UnshakenError(f"task {self.task.name!r} has no {split} split here; present: {present}")

    def with_split(self, split: str, examples: Examples) -> TaskData:
        changes: dict[str, Any] = {split: examples}
        return replace(self, **changes)

    def with_note(self, note: str) -> TaskData:
        return replace(self, notes=(*self.notes, note))
