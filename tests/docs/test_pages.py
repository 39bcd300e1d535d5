"""Docs that hold: tables are what the kept results say, links lead somewhere, the README's Python is Python."""

from __future__ import annotations

import ast
import importlib
import json
import re
import shlex
import subprocess
import sys

import pytest
import typer
from markdown_it import MarkdownIt
from shell_lines import PAGES, ROOT, shell_lines

from unshaken.cli import app


@pytest.mark.full
def test_tables_are_those_of_the_results():
    command = [sys.executable, str(ROOT / "experiments" / "fill_tables.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("word", "status"), [("--help", 0), ("--chek", 2)])
def test_tables_are_not_filled_by_a_question_or_a_slip(monkeypatch, word, status):
    monkeypatch.syspath_prepend(ROOT / "experiments")
    fill_tables = importlib.import_module("fill_tables")
    monkeypatch.setattr(fill_tables, "filled", lambda _: pytest.fail("a page was filled"))
    monkeypatch.setattr(sys, "argv", ["fill_tables.py", word])
    with pytest.raises(SystemExit) as ended:
        fill_tables.main()
    assert ended.value.code == status


def test_costs_of_a_gpu_say_their_precision_and_show_minutes(monkeypatch, tmp_path):
    """A million sentences may take minutes on many cards, which 0.0 hours would not tell."""
    monkeypatch.syspath_prepend(ROOT / "experiments")
    attack_costs = importlib.import_module("attack_costs")
    (tmp_path / "benchmarks" / "gpu").mkdir(parents=True)
    fit = {"seconds_per_example": 2e-3, "seconds_per_query": 5e-6, "seconds_per_token": 2.5e-7}
    row = {"length": 20, "candidates": 8, "queries": 1101, "examples_per_second": 1250.0, "texts": 1_000_000}
    row |= {"devices": 64, "largest_share": 15_865}
    record = {
        "about": {"device": "a card", "bf16": True},
        "fit": {**fit, "median_error": 0.06, "largest_error": 0.26},
        "estimates": [{**row, "name": "short", "hours": 0.0035256}, {**row, "name": "long", "hours": 123.45}],
    }
    (tmp_path / "benchmarks" / "gpu" / "attack_cost.json").write_text(json.dumps(record), encoding="utf-8")
    monkeypatch.setattr(attack_costs, "HERE", tmp_path)
    assert attack_costs.fits()[2] == [["a card, bf16", "2,000.00", "5.00", "0.25", "6%", "26%"]]
    cells = ["20", "8", "1,101", "1250.00", "1,000,000", "64", "15,865"]
    assert attack_costs.estimates("gpu")[2] == [["short", *cells, "0.0035"], ["long", *cells, "123.5"]]


def test_every_command_has_a_row_in_which_command():
    rows = re.findall(r"^\|.*\|(.*)\|$", (ROOT / "docs" / "which-command.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = set(re.findall(r"`unshaken ([a-z]+)", "\n".join(rows)))
    assert named == set(typer.main.get_command(app).commands)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_reader_sees_what_the_page_means(page):
    """As GitHub and the site render it: a bar ends a cell wherever it stands, in a comment too."""
    text = page.read_text(encoding="utf-8")
    shown = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    assert not re.search(r"&lt;!--|--&gt;", re.sub(r"<code.*?</code>", "", shown, flags=re.DOTALL))
    assert text.count("<details") == text.count('<details markdown="1">')  # else the site shows the source
    for table in re.findall(
        r"(?:^\|.*\n)+", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE
    ):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1, table


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_in_pages_is_python(page):
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL):
        if ">>>" not in block:
            ast.parse(block)


def test_the_names_the_readme_imports_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for module, names in re.findall(r"^from (unshaken[\w.]*) import (.+)$", text, flags=re.MULTILINE):
        for name in names.split(","):
            assert hasattr(importlib.import_module(module), name.strip()), (module, name)


def test_pages_list_all_that_a_recipe_and_a_package_may_name():
    from dataclasses import fields
    from typing import get_args

    from unshaken.names import GROUPS
    from unshaken_experiments.runs import Measure, Settings, What

    pages = {name: (ROOT / "docs/how-to" / name).read_text() for name in ("reproduce.md", "write-your-own.md")}
    settings, measures = re.search(
        r"^Settings: (.*?)\. A measure is (.*?)\.", pages["reproduce.md"], re.M | re.S
    ).groups()
    assert re.findall(r"`(.*?)`", settings) == [item.name for item in fields(Settings)]
    known = {*get_args(What), *(item.name for item in fields(Measure))} - {"accuracy", "what"}
    assert set(re.findall(r"`(.*?)`", measures)) == known
    (groups,) = re.findall(r"^Groups: (.*?)\. ", pages["write-your-own.md"], re.MULTILINE)
    assert set(re.findall(r"`(.*?)`", groups)) == set(GROUPS.values())


COMMANDS = [(page.relative_to(ROOT), line) for page in PAGES for line in shell_lines(page)]


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=[f"{page}: {line}" for page, line in COMMANDS])
def test_every_command_of_the_docs_is_one(page, line):
    """Every word is parsed as the command line parses it: a switch that is gone, or a bad value, fails here."""
    import typer

    from unshaken.cli import app

    name, *words = shlex.split(line)
    group = typer.main.get_command(app)
    if name.startswith("-"):
        assert name in ("--help", "--version", "-h")
        return
    parent = group.make_context("unshaken", [name], resilient_parsing=True)
    command = group.get_command(parent, name)
    assert command is not None, name
    while words and hasattr(command, "get_command"):
        parent = command.make_context(name, [words[0]], parent=parent, resilient_parsing=True)
        name, *words = words
        command = command.get_command(parent, name)
        assert command is not None, name
    try:
        command.make_context(name, words, parent=parent)
    except typer.BadParameter as error:
        if "does not exist" not in str(error):  # the files of an example are nobody's
            raise


def test_there_are_commands_to_check():
    assert len(COMMANDS) > 20
