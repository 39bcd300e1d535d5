"""Texts, names and labels from data are shown everywhere and obeyed nowhere: terminal, page, card, spreadsheet."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from report_parts import made_evaluation, result, run, save_model, tiny_model, with_text
from rich.console import Console as RichConsole
from safetensors.torch import load_file, save_file

from unshaken import Victim
from unshaken.attacks import AttackResults
from unshaken.cli import main
from unshaken.cli.attack import coloured_diff
from unshaken.console import Console
from unshaken.display import spreadsheet_cell, visible
from unshaken.reports import Report
from unshaken.reports.model_card import model_card
from unshaken.reports.views import csv_text, escape_latex, escape_markdown, latex, markdown

ESCAPES = "\x1b[2J\x1b]0;owned\x07\x9b31m\x08\x7f\r\x1b]8;;http://x\x1b\\link"  # clear, title, C1, link
BIDI = "\u202egnp.exe\u202c \u2066x\u2069 \u200f \u061c"
MARKUP = (
    "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>\"quoted\" 'single' </script> <!-- & "
    "[link](javascript:alert(1)) ![image](http://x/y.png) `code` | cell | **bold** # head"
)
TEX = r"\input{/etc/passwd} \write18{rm} $x$ % & # _ { } ~ ^ [1ex]"
HOSTILE = f"=cmd|'/c calc'!A1 {MARKUP} {TEX} {ESCAPES} {BIDI} \u2028 \u2029 \x00 [bold]rich[/] ${{1}}\n---\nkey: value"
ACTING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@pytest.fixture
def hostile() -> Report:
    """Hostile text in every place of a report that data can reach."""
    first = with_text(made_evaluation(run("xxo-", attack=HOSTILE), run("xoo-"), wrong=(3,), total=4), HOSTILE)
    record = replace(
        first.model.training,
        method=HOSTILE,
        base_model=HOSTILE,
        task=HOSTILE,
        details={"connection": {"form": HOSTILE}},
    )
    changed = replace(
        first,
        model=replace(first.model, name=HOSTILE, connection={"form": HOSTILE}, training=record),
        data=replace(first.data, name=HOSTILE, columns=(HOSTILE,), label_names=(HOSTILE, "positive")),
        predictions=tuple(replace(row, group=HOSTILE) for row in first.predictions),
        environment={HOSTILE: HOSTILE},
    )
    return Report(evaluations=(changed, replace(made_evaluation(run("xooo"), total=4), data=changed.data)))


# ----------------------------------------------------------------------------------------------------------- terminal


def printed(*values: Any, console: type[RichConsole] = Console) -> str:
    """What reaches a terminal with colours."""
    stream = io.StringIO()
    terminal = console(file=stream, force_terminal=True, width=100, color_system="truecolor")
    for value in values:
        terminal.print(value)
    return stream.getvalue()


def assert_only_colours(text: str) -> None:
    """Of all that acts, only rich's own colours and lines are left."""
    assert not ACTING.findall(re.sub(r"\x1b\[[0-9;]*m", "", text))


@given(st.text())
def test_visible_text_acts_on_nothing_and_loses_nothing(text: str) -> None:
    shown = visible(text)
    assert not ACTING.search(shown)
    assert visible(shown) == shown
    if not ACTING.search(text) and not re.search(r"[\ufeff\ud800-\udfff]", text):
        assert shown == text


def test_what_libraries_log_and_warn_of_is_shown(tmp_path: Path) -> None:
    """In a process of its own, as a user's terminal gets it."""
    code = (
        "import logging, sys, warnings\n"
        "from unshaken.display import guard_terminal\n"
        "guard_terminal()\n"
        "logging.basicConfig()\n"
        "logging.getLogger('transformers').warning('name %s', sys.argv[1])\n"
        "warnings.warn(sys.argv[1])\n"
    )
    hostile = ESCAPES.replace("\r", "")
    done = subprocess.run([sys.executable, "-c", code, hostile], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr.count("\\x1b[2J") == 2
    assert not ACTING.search(done.stderr)


def test_a_model_file_says_nothing_on_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = Path(save_model(tmp_path / "model", tiny_model()))
    weights = load_file(folder / "model.safetensors")
    save_file({**weights, f"{ESCAPES}.weight": weights["classifier.bias"].clone()}, folder / "model.safetensors")
    capfd.readouterr()
    Victim.from_pretrained(folder, device="cpu")
    said = capfd.readouterr().err
    assert "weights of its file are not used, such as" in said
    assert not ACTING.search(re.sub(r"\rLoading weights:[^\r\n]*", "", said))


def test_a_damaged_file_is_named_and_not_obeyed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"run{ESCAPES.replace('/', '')}.jsonl"
    AttackResults(rows=(result(0, "success"),), attack="pwws").to_jsonl(path)
    with path.open("a") as stream:
        stream.write('{"torn')
    AttackResults.from_jsonl(path)
    said = capsys.readouterr().err
    assert "the last line is damaged" in said
    assert not ACTING.search(said)


def test_the_commands_terminal_obeys_no_text() -> None:
    assert_only_colours(printed(HOSTILE.replace("[", "("), f"[bold]{ESCAPES.replace('[', '(')}[/]"))
    assert "\x1b[1m" in printed("[bold]x[/]")  # rich's own colours are left
    with pytest.raises(AssertionError):
        assert_only_colours(printed(ESCAPES.replace("[", "("), console=RichConsole))  # as rich alone prints it


def test_what_attack_prints(hostile: Report) -> None:
    changed = result(0, "success", swapped=f"fine{ESCAPES}")
    row = replace(changed, example_id=HOSTILE, original=(f"{HOSTILE} a good film",), swaps=())
    shown = printed(hostile, coloured_diff(HOSTILE, row, (HOSTILE, HOSTILE)))
    assert_only_colours(shown)
    assert r"\x1b" in shown


@pytest.mark.parametrize("console", [Console, RichConsole])
def test_what_evaluate_and_report_print(hostile: Report, console: type[RichConsole]) -> None:
    """Also where a user prints a report on a console of their own."""
    assert_only_colours(printed(hostile, console=console))


def test_complaints_are_shown_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["unshaken", "report", f"{ESCAPES}{BIDI}.json"])
    with pytest.raises(SystemExit):
        main()
    shown = capsys.readouterr().err
    assert shown.startswith("error: no such file: ")
    assert_only_colours(shown)


# -------------------------------------------------------------------------------------------------------- spreadsheets

FORMULA = re.compile(r"[=+\-@\t\r\n＝＋－＠]")


@given(
    st.one_of(
        st.text(), st.builds(str.__add__, st.sampled_from("=+-@\t\r\n＝＋－＠"), st.text()), st.integers(), st.none()
    )
)
def test_no_cell_begins_like_a_formula(value: Any) -> None:
    cell = spreadsheet_cell(value)
    assert not (isinstance(cell, str) and FORMULA.match(cell))
    if isinstance(value, str):
        assert cell.removeprefix("'") == value.removeprefix("'") or cell == value
    elif value is not None:
        assert cell == value  # a negative number stays one


def test_csv_files_hold_no_formula(hostile: Report, tmp_path: Path) -> None:
    attacked = [result(n, "success", swapped=start + "SUM(A1)") for n, start in enumerate("=+-@\t\r\n")]
    rows = [
        replace(row, example_id=row.swaps[0][3], original=(row.swaps[0][3],), error=row.swaps[0][3]) for row in attacked
    ]
    path = AttackResults(rows=tuple(rows), attack="pwws").to_csv(tmp_path / "results.csv")
    for text in (csv_text(hostile), path.read_bytes().decode()):
        header, *lines = csv.reader(io.StringIO(text, newline=""))
        assert len(lines) >= 7
        assert all(len(line) == len(header) for line in lines)
        for name, cell in ((name, cell) for line in lines for name, cell in zip(header, line, strict=True)):
            assert not FORMULA.match(cell) or re.fullmatch(r"-?[\d.]+(e-?\d+)?", cell), name


# --------------------------------------------------------------------------------------------------- Markdown and LaTeX


def tokens(text: str) -> list[Any]:
    parsed = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    return [inner for token in parsed for inner in [token, *(token.children or ())]]


@given(st.text(st.sampled_from("<>[]()!*_`#|~\\&;ab \n-\"'"), max_size=30))
def test_markdown_shows_any_text_as_it_is(text: str) -> None:
    kinds = {token.type for token in tokens("x " + escape_markdown(text))}
    assert kinds <= {"paragraph_open", "inline", "text", "text_special", "paragraph_close"}


def test_markdown_of_hostile_reports(hostile: Report) -> None:
    """No markup but ours: no HTML, no image, no link but the card's own."""
    record = hostile.evaluations[0].model.training
    assert record is not None
    card = model_card(record, hostile)
    _, front, body = card.split("---\n", 2)
    metadata = yaml.safe_load(front)
    assert set(metadata) == {"library_name", "pipeline_tag", "tags", "model-index"}
    assert metadata["model-index"][0]["name"] == HOSTILE
    for text, links in ((body, ["https://pypi.org/project/unshaken/"]), (markdown(hostile), [])):
        found = tokens(text)
        assert not {"html_inline", "html_block", "image", "code_inline"} & {token.type for token in found}
        assert [token.attrs["href"] for token in found if token.type == "link_open"] == links
        assert not ACTING.search(text)


@given(st.text())
def test_latex_has_no_command_but_ours(text: str) -> None:
    commands = (
        r"\\textbackslash\{\}|\\textasciitilde\{\}|\\textasciicircum\{\}|\\textless\{\}|\\textgreater\{\}|\\[&%$#_{}]"
    )
    assert not re.search(r"[\\&%$#_{}~^<>\n]", re.sub(commands, "", escape_latex(text)))


def test_latex_of_hostile_reports(hostile: Report) -> None:
    written = latex(hostile)
    assert r"\input" not in written
    assert r"\write" not in written
    assert not ACTING.search(written)


# --------------------------------------------------------------------------------------------------------------- page


def test_a_page_of_hostile_names_labels_and_texts(opened: Any, hostile: Report) -> None:
    tab = opened(hostile)
    tab.wait_for_timeout(100)
    assert tab.evaluate("window.hacked") is None
    assert (
        tab.evaluate("document.querySelectorAll('img, iframe, object, embed, base, form, a[href^=javascript]').length")
        == 0
    )
    assert tab.evaluate("document.scripts.length") == 2
    # Names, labels and numbers stand outside the examples' texts; nothing there may turn the direction of writing.
    tab.evaluate("document.querySelectorAll('#list .text').forEach((node) => node.remove())")
    shown = tab.evaluate("document.body.textContent")
    assert r"\u202e" in shown
    for place in ("body", "head title"):
        text = tab.evaluate(f"document.querySelector({place!r}).textContent")
        data = tab.evaluate("document.getElementById('data').textContent")
        assert not re.search(r"[\u202a-\u202e\u2066-\u2069\x00]", text.replace(data, ""))


def test_a_text_is_shown_as_it_is(opened: Any, hostile: Report) -> None:
    """In the examples themselves every character counts, because the model read it."""
    tab = opened(hostile)
    shown = tab.locator("#list .text").first.evaluate("node => node.textContent")
    assert "\u202egnp.exe" in shown
    assert "<script>window.hacked = 1</script>" in shown


@pytest.mark.parametrize("text", ["see http://x.y/z", "HTTPS://X", "www.example.org", "WWW.x.org", "a@b.org"])
def test_bare_addresses_in_markdown_are_no_links(text: str) -> None:
    shown = MarkdownIt().render(escape_markdown(text))
    assert shown.strip() == f"<p>{text}</p>"
    assert not re.search(r"://|www\.|@", escape_markdown(text), flags=re.IGNORECASE)  # what GitHub would link
