"""The report as text: complete, and safe whatever the names hold."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace

import pytest
from report_parts import made_evaluation, run
from rich.console import Console

from unshaken.reports import Report
from unshaken.reports.views import COLUMNS, csv_text, escape_latex, escape_markdown, latex, markdown

NASTY = '=cmd|x & 100% $m_1$ {a} [b] *c* <script>alert("1")</script>\nnext #~^\\'


@pytest.fixture
def report() -> Report:
    plain = made_evaluation(run("xxxxxooo--"), run("xxooooxx--", "genetic"), model="plain", wrong=(8, 9))
    hard = made_evaluation(run("xooooooooo"), run("oooooooooo", "genetic"), model="hard")
    return Report(evaluations=(plain, hard))


@pytest.fixture
def nasty(report: Report) -> Report:
    first, second = report.evaluations
    return Report(evaluations=(replace(first, model=replace(first.model, name=NASTY)), second))


def test_terminal_shows_every_condition_within_80_columns(report: Report) -> None:
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(report)
    text = console.export_text()
    assert "80.0 [49.0, 94.3]" in text
    assert "worst case" in text
    assert "few-seeds" in text
    assert max(map(len, text.splitlines())) <= 80


def test_terminal_shows_markup_as_text(report: Report) -> None:
    first, second = report.evaluations
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(Report(evaluations=(replace(first, model=replace(first.model, name="[red]x[/red]")), second)))
    assert "[red]x[/red]" in console.export_text()


def test_markdown_tables_are_whole_lines(nasty: Report) -> None:
    text = markdown(nasty)
    table = [line for line in text.splitlines() if line.startswith("|")]
    bars = {len(re.findall(r"(?<!\\)\|", line)) for line in table[:10]}
    assert bars == {11}
    assert "<script>" not in text.replace("\\<script\\>", "")
    assert "80.0 \\[49.0, 94.3\\]" in text


def test_escape_markdown_round_trips_through_a_parser() -> None:
    markdown_it = pytest.importorskip("markdown_it")
    rendered = markdown_it.MarkdownIt().renderInline(escape_markdown(NASTY))
    assert "<script>" not in rendered
    assert "<em>" not in rendered
    assert "&lt;script&gt;" in rendered


def test_latex_escapes_every_special_character(nasty: Report) -> None:
    text = latex(nasty)
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert all(len(re.findall(r"(?<!\\)&", line)) == 9 for line in rows)
    assert not re.search(r"(?<!\\)[$#%]", "\n".join(rows))
    assert r"100\%" in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1


@pytest.mark.parametrize("character", list("&%$#_{}~^\\<>"))
def test_no_latex_special_survives_bare(character: str) -> None:
    assert escape_latex(f"a{character}b") not in (f"a{character}b", "")


def test_csv_reads_back_with_numbers(report: Report) -> None:
    lines = list(csv.DictReader(io.StringIO(csv_text(report))))
    assert list(lines[0]) == list(COLUMNS)
    pwws = next(line for line in lines if line["model"] == "plain-0" and line["condition"] == "pwws")
    assert float(pwws["accuracy"]) == 0.3
    assert float(pwws["success_rate"]) == 5 / 8
    assert pwws["queries_max"] == "10"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_csv_cells_are_no_formulas(report: Report, start: str) -> None:
    first, second = report.evaluations
    changed = Report(evaluations=(replace(first, model=replace(first.model, name=f"{start}SUM(A1)")), second))
    assert next(csv.DictReader(io.StringIO(csv_text(changed), newline="")))["model"] == f"'{start}SUM(A1)"
