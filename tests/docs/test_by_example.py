"""The page that shows every public name in use runs, and shows every public name."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import unshaken

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "by-example.md"
PACKAGES = ["unshaken", *(f"unshaken.{name}" for name in (*unshaken._PACKAGES, "readers", "victims"))]
# Shown on pages of their own, which run or are tested elsewhere: searches and defences of one's own, several processes.
ELSEWHERE = {
    "unshaken.attacks.Ask": "how-to/write-your-own.md",
    "unshaken.attacks.Scores": "how-to/write-your-own.md",
    "unshaken.attacks.Search": "how-to/write-your-own.md",
    "unshaken.attacks.SearchAttack": "how-to/write-your-own.md",
    "unshaken.attacks.Space": "how-to/write-your-own.md",
    "unshaken.attacks.ray_attack": "how-to/scaling.md",
    "unshaken.attacks.gather": "how-to/scaling.md",
    "unshaken.attacks.Inspection": "attacks/hotflip.md",  # for white-box searches of one's own
    "unshaken.defences.PLAIN": "how-to/write-your-own.md",
}


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def imported(source: str) -> set[str]:
    """The names that code imports from unshaken, or takes from it by a dot, with their module."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("unshaken"):
            found |= {f"{node.module}.{name.name}" for name in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "unshaken":
            found.add(f"unshaken.{node.attr}")
    return found


def public(package: str) -> dict[str, Any]:
    module = importlib.import_module(package)
    return {f"{package}.{name}": getattr(module, name) for name in module.__all__}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_shown(package: str) -> None:
    shown = imported("\n".join(blocks(PAGE)))
    objects = [getattr(importlib.import_module(path.rpartition(".")[0]), path.rpartition(".")[2]) for path in shown]
    missing = [
        path
        for path, value in public(package).items()
        if path not in shown and path not in ELSEWHERE and not any(value is other for other in objects)
    ]
    assert missing == []


@pytest.mark.parametrize("path", ELSEWHERE)
def test_names_that_are_shown_elsewhere_are(path: str) -> None:
    assert path in public(path.rpartition(".")[0])
    if ELSEWHERE[path] == "how-to/write-your-own.md":
        assert path in imported("\n".join(blocks(DOCS / ELSEWHERE[path])))


@pytest.mark.full
def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    for number, block in enumerate(blocks(PAGE)):
        exec(compile(block, f"{PAGE.name}, block {number}", "exec"), names)
    assert (tmp_path / "report.html").is_file()
    assert names["found"].report.evaluations
