"""The site is built strictly where its extra is installed: a link or a name that leads nowhere stops it."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import unshaken

ROOT = Path(__file__).parents[2]
PAGES = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))


def test_every_page_is_in_the_menu_once():
    named = re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted(named) == PAGES


def test_every_public_name_is_in_the_reference():
    told = re.findall(r"^::: ([\w.]+)$", (ROOT / "docs" / "reference.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert {path.rsplit(".", 1)[1] for path in told} >= set(unshaken.__all__) - {"__version__"}
    for path in told:
        module, name = path.rsplit(".", 1)
        assert getattr(importlib.import_module(module), name).__doc__, path


@pytest.mark.parametrize("page", PAGES)
def test_no_link_of_a_page_leaves_the_site(page):
    """Quick, unlike the build, which stops at one: files outside docs/ are named and not linked."""
    folder = (ROOT / "docs" / page).parent
    linked = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", (ROOT / "docs" / page).read_text(encoding="utf-8"))
    outside = [link for link in linked if (ROOT / "docs") not in (folder / link).resolve().parents]
    assert outside == []


@pytest.mark.full
def test_the_site_builds_strictly(tmp_path):
    for package in ("material", "mkdocstrings_handlers"):
        if importlib.util.find_spec(package) is None:
            pytest.skip("the extra docs is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "reference.html").read_text(encoding="utf-8")
    assert 'id="unshaken.training.hardening.harden"' in page
    for name in ("results.html", "what-we-found.html"):  # what is folded is Markdown, too
        folded = re.findall(r"<details.*?</details>", (tmp_path / name).read_text(encoding="utf-8"), re.DOTALL)
        assert folded
        assert not re.search(r"\| ---|\*\*\w|\]\(", re.sub(r"<code.*?</code>", "", "".join(folded), flags=re.DOTALL))
