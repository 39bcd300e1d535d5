"""The pages about attacks name every attack and setting, and the how-to's examples run."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from unshaken.attacks import ATTACKS, SearchAttack

DOCS = Path(__file__).parents[2] / "docs"
INDEX = (DOCS / "attacks" / "index.md").read_text(encoding="utf-8")
HOW_TO = (DOCS / "how-to" / "attack-your-classifier.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_has_a_row_and_a_page(name: str) -> None:
    page = re.search(rf"\[`{name}`\]\((\S+)\)", INDEX)
    assert page is not None
    text = (DOCS / "attacks" / page[1]).read_text(encoding="utf-8")
    assert ATTACKS[name].__name__ in text
    assert "**Cost**" in text


@pytest.mark.parametrize("setting", [f.name for f in dataclasses.fields(SearchAttack)])
def test_every_setting_is_explained(setting: str) -> None:
    assert f"| `{setting}` |" in INDEX


@pytest.mark.parametrize("code", re.findall(r"<!-- runs in the tests -->\n```python\n(.*?)```", HOW_TO, re.DOTALL))
def test_the_how_to_runs(code: str) -> None:
    names: dict[str, Any] = {}
    exec(compile(code, "how-to", "exec"), names)
    assert names["results"].accuracy_under_attack < 1


def test_the_page_on_greedy_attacks_shows_one_that_is_led_astray() -> None:
    """Its own last line asserts it."""
    page = (DOCS / "what-robust-means.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"<!-- runs in the tests -->\n```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "what-robust-means", "exec"), names)
    assert names["climbed"].outcome == "failure"


def test_links_lead_somewhere() -> None:
    for page in [*(DOCS / "attacks").glob("*.md"), DOCS / "how-to" / "attack-your-classifier.md"]:
        for target in re.findall(r"\]\(([^)#:]+\.md)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} -> {target}"
