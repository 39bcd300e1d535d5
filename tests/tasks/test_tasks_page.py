"""The page about tasks says what the table of tasks says."""

from __future__ import annotations

from pathlib import Path

import pytest

from unshaken.tasks import PROTOCOLS, TASKS
from unshaken.tasks.own import LABEL_COLUMNS, TEXT_COLUMNS
from unshaken.tasks.readers import FORMATS

PAGE = Path(__file__).parents[2] / "docs" / "tasks.md"


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_every_task_has_its_row(task):
    sizes = " / ".join(f"{rows:,}" for rows in task.sizes.values())
    labels = ", ".join(task.label_names)
    row = f"| `{task.name}` | {', '.join(task.columns)} | {labels} | {task.metric} | {sizes} |"
    assert row in PAGE.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", [*PROTOCOLS, *FORMATS, *TEXT_COLUMNS, *LABEL_COLUMNS])
def test_every_name_is_explained(name):
    assert f"`{name}`" in PAGE.read_text(encoding="utf-8")
