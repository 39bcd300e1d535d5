"""The HTML page: escaped, self-contained, and, in a real browser, filtered, searched and driven by keys."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_parts import NEW, made_evaluation, result, run, with_text

from unshaken.evaluation.comparison import by_method
from unshaken.pages import TOOL_PAGE, json_for_script
from unshaken.reports import Report
from unshaken.reports.browser import browser_data, edits
from unshaken.reports.html import _accuracy_table, _details, page

SCRIPT = (
    "good <script>window.hacked = 1</script></script><img src=x onerror='window.hacked = 2'>"
    ' & "quotes" \u2028 ${1} $$'
)


@pytest.fixture
def report() -> Report:
    plain = made_evaluation(run("xxxxxooo--"), run("xxooooxx--", "genetic"), model="plain", wrong=(8, 9))
    hard = made_evaluation(run("xooooooooo"), run("oooooooooo", "genetic"), model="hard")
    return Report(evaluations=(plain, hard))


@pytest.fixture
def hostile(report: Report) -> Report:
    """Hostile text in every place that data can reach."""
    first, second = (with_text(item, SCRIPT) for item in report.evaluations)
    model = replace(first.model, name=SCRIPT, connection={"layers": SCRIPT, "theta": 1})
    changed = [
        replace(item, data=replace(item.data, name=SCRIPT, label_names=(SCRIPT, "positive"), columns=(SCRIPT,)))
        for item in (replace(first, model=model), second)
    ]
    grouped = [
        replace(item, predictions=tuple(replace(row, group=SCRIPT) for row in item.predictions)) for item in changed
    ]
    return Report(evaluations=tuple(grouped))


def apply(text: str, changes: list[tuple[int, int, str]]) -> str:
    """What the page's script does, in UTF-16 units as a browser counts."""
    units = text.encode("utf-16-le")
    parts, end = [], 0
    for start, stop, added in changes:
        parts += [units[2 * end : 2 * start], added.encode("utf-16-le")]
        end = stop
    return b"".join([*parts, units[2 * end :]]).decode("utf-16-le")


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(texts, texts)
def test_edits_turn_any_text_into_any_other(before: str, after: str) -> None:
    assert apply(before, edits(before, after)) == after


def test_edits_are_whole_words_and_count_emoji_as_browsers_do() -> None:
    assert edits("a 🎬 good film", "a 🎬 fine film") == [(5, 9, "fine")]
    assert edits("same", "same") == []


@given(st.text())
def test_json_in_a_script_cannot_leave_it(text: str) -> None:
    written = json_for_script([text])
    assert not re.search(r"[<>&\u2028]", written)
    assert json.loads(written) == [text]


def test_the_page_loads_nothing_and_holds_no_hostile_markup(hostile: Report) -> None:
    text = page(hostile).replace(f'<a href="{TOOL_PAGE}">', "")  # the one link, which a reader may follow
    assert "<script>window.hacked" not in text
    assert "<img" not in text
    assert not re.search(r"""(src|href)\s*=\s*["'](?!#)""", text)
    assert not re.search(r"@import|url\(|https?://", text)
    assert text.count("<script") == 2  # the data and the one script the policy names


def test_the_policy_allows_exactly_the_script_of_the_page(report: Report) -> None:
    import base64
    import hashlib

    text = page(report)
    script = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text
    assert "default-src 'none'" in text


def test_a_run_of_errors_alone_has_a_page_that_says_so(report: Report) -> None:
    failed = made_evaluation(run("!!!!!!!!!!"), model="failed", wrong=(9,))
    clean = "Of 10 texts of made, failed-0 answers 90.0% rightly"
    told = clean + "; under {} nothing is known, as each text ended in an error."
    text = page(Report(evaluations=(failed,)))
    assert told.format("pwws") in text
    assert "against queries per example" not in text
    cells = re.findall(r'<td role="cell" data-label="(.*?)">(.*?)</td>', text)
    assert ("errors", "10") in cells
    assert ("pwws", '<span class="muted">–</span>') in cells
    both = replace(failed, attacks=(*failed.attacks, run("oooooooooo", "genetic")))
    assert told.format("the worst of 2 attacks") in page(Report(evaluations=(both,)))
    others = page(Report(evaluations=(*report.evaluations, failed)))  # beside models of which something is known
    assert "failed-0, pwws" not in others
    assert others.count("<polyline") == 4


# --------------------------------------------------------------------------------------------- in a browser


def wait_for(place: Any, text: str) -> None:
    from playwright.sync_api import expect

    expect(place).to_have_text(text)


def test_hostile_text_is_shown_and_not_run(opened: Any, hostile: Report) -> None:
    tab = opened(hostile)
    tab.wait_for_timeout(100)
    assert tab.evaluate("window.hacked") is None
    assert tab.evaluate("document.querySelectorAll('img').length") == 0
    shown = tab.locator("#list > li .text").first.inner_text()
    assert "<script>window.hacked = 1</script>" in shown
    assert "<script>" in tab.locator(".accuracy tbody th").first.inner_text()


def test_filters_search_and_counts(opened: Any, report: Report) -> None:
    tab = opened(report)
    status = tab.locator("#status")
    assert status.inner_text() == "1–10 of 10"  # 5 + 4 broken for plain, 1 for hard: successes are shown first
    tab.select_option("#outcome", "")
    assert status.inner_text() == "1–25 of 56"
    tab.select_option("#outcome", "failure")
    tab.select_option("#model", label="hard-0")
    assert status.inner_text() == "1–19 of 19"
    tab.select_option("#condition", label="pwws")
    assert status.inner_text() == "1–9 of 9"
    tab.select_option("#label", label="positive")
    assert status.inner_text() == "1–5 of 5"
    tab.fill("#search", "number 7")
    wait_for(status, "1–1 of 1")
    assert "id7" in tab.locator("#list > li").inner_text()
    assert tab.locator("#list mark").all_inner_texts() == ["number", "7"]
    tab.fill("#search", "no such words")
    wait_for(status, "No example matches; widen a filter.")
    assert tab.locator("#list > li").count() == 0


def test_changed_words_are_marked_and_copied(opened: Any, report: Report) -> None:
    tab = opened(report)
    first = tab.locator("#list > li").first
    assert first.locator("del").all_inner_texts() == ["good"]
    assert first.locator("ins").all_inner_texts() == ["fine"]
    tab.evaluate(
        "() => { window.copied = []; navigator.clipboard.writeText = async (text) => window.copied.push(text) }"
    )
    first.get_by_role("button", name="Copy adversarial").click()
    first.get_by_role("button", name="Copy original").click()
    wait_for(first.locator("button").nth(0), "Copied")
    wait_for(first.locator("button").nth(1), "Copied")
    assert tab.evaluate("window.copied") == ["a fine film number 0", "a good film number 0"]


def test_keys_move_between_examples_pages_and_the_search(opened: Any, report: Report) -> None:
    tab = opened(report)
    tab.select_option("#outcome", "")
    tab.locator("h1").click()
    focused = "[...document.getElementById('list').children].indexOf(document.activeElement)"
    tab.keyboard.press("j")
    tab.keyboard.press("j")
    assert tab.evaluate(focused) == 1
    tab.keyboard.press("k")
    assert tab.evaluate(focused) == 0
    tab.keyboard.press("n")
    assert tab.locator("#status").inner_text() == "26–50 of 56"
    tab.keyboard.press("p")
    assert tab.locator("#status").inner_text() == "1–25 of 56"
    tab.keyboard.press("/")
    assert tab.evaluate("document.activeElement.id") == "search"
    tab.keyboard.type("np")  # typing is typing, not paging
    assert tab.input_value("#search") == "np"


def test_the_first_screen_says_it_in_a_sentence_and_a_table(opened: Any, report: Report) -> None:
    tab = opened(report)
    said = tab.locator(".lead").inner_text().replace("\xa0", " ")
    assert said.startswith(
        "Of 10 texts of made, hard-0 answers 90.0% rightly under the worst of 2 attacks and plain-0 10.0%: 80.0 points "
        "more, which is more than chance (p = "
    )
    assert tab.locator(".accuracy").bounding_box()["y"] < 400
    assert "order of how much they matter" in tab.locator("thead abbr", has_text="pwws").get_attribute("title")
    assert tab.title() == "plain-0, hard-0 on made · robustness report"
    assert tab.locator("footer a").get_attribute("href") == TOOL_PAGE


def test_a_page_names_every_class_that_any_model_gives_and_how_it_was_asked() -> None:
    """A class that the first model never gives was a number in the list of examples."""
    named = [
        replace(made, data=replace(made.data, label_names=("negative", "positive", "neither")))
        for made in (made_evaluation(model="plain"), made_evaluation(model="other"))
    ]
    third = tuple(replace(row, prediction=2) for row in named[1].predictions)
    asked = {"k": 4, "rate": 0.25, "seed": 0, "substitutions": NEW}
    model = replace(named[1].model, vote=asked, temperature=2.5, reader="unicode")
    found = Report(evaluations=(named[0], replace(named[1], predictions=third, model=model)))
    assert browser_data(found)["sets"][0]["labels"] == {"0": "negative", "1": "positive", "2": "neither"}
    told = _details(found, found.evaluations[1])["facts"]
    assert "rate 0.25" in told["vote"]
    assert (told["temperature"], told["reader"]) == ("2.5", "unicode")
    assert not {"vote", "temperature", "reader"} & set(_details(found, found.evaluations[0])["facts"])


def test_a_chip_says_what_it_is_a_difference_to_where_that_is_not_the_first_row() -> None:
    """Of one seed against a mean: 70 beside 45 is 30 points more than the first seed, and 25 more than the row."""
    seeds = [made_evaluation(run(word), model="plain", seed=n) for n, word in enumerate(("xxxxxxoooo", "xxxxxooooo"))]
    single = made_evaluation(run("xxxooooooo"), model="other")
    found = Report(evaluations=(*seeds, single))
    table = _accuracy_table(found, by_method(found.evaluations)[0])
    assert [row["cells"][1]["value"] for row in table["rows"]] == pytest.approx([45, 70])
    assert table["rows"][1]["cells"][1]["chip"]["text"] == "+30.0 to plain-0"
    plain = Report(evaluations=(seeds[0], single))
    table = _accuracy_table(plain, by_method(plain.evaluations)[0])
    assert table["rows"][1]["cells"][1]["chip"]["text"] == "+30.0"


def test_settings_are_words(report: Report) -> None:
    solver = {"name": "anderson", "steps": 3, "damping": None}
    connected = [
        replace(item, model=replace(item.model, connection={"layers": [4, 5], "theta": 1.0, "solver": solver}))
        for item in report.evaluations
    ]
    text = page(Report(evaluations=tuple(connected)))
    assert "layers 4, 5; theta 1; solver anderson (steps 3)" in text
    assert "{&#39;" not in text
    assert "&#34;:" not in text


BROKEN = """[...document.querySelectorAll("th, td, summary, figcaption, .legend span, .line > span, dt")].filter(
  (item) =>
  [...item.childNodes].some((node) => node.nodeType === 3 && [...node.data.matchAll(/[A-Za-z]+/g)].some((word) => {
    const range = document.createRange();
    range.setStart(node, word.index); range.setEnd(node, word.index + word[0].length);
    return new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size > 1;
  }))).map((item) => item.textContent)"""


@pytest.mark.parametrize("width", [390, 1280])
def test_no_word_is_broken_and_every_table_fits(opened: Any, report: Report, width: int) -> None:
    tab = opened(report, width=width)
    tab.evaluate("document.querySelectorAll('details').forEach((item) => { item.open = true; })")
    assert tab.evaluate(BROKEN) == []
    too_wide = (
        "[...document.querySelectorAll('.scroll, .legend')].filter((item) => item.scrollWidth > item.clientWidth)"
    )
    assert tab.evaluate(f"{too_wide}.length") == 0


def test_meaning_is_rated_counted_and_exported(opened: Any, report: Report) -> None:
    tab = opened(report)
    assert tab.locator("#ratings").is_hidden()
    tab.click("#rate")
    first = tab.locator("#list > li").first
    assert "now:" not in first.inner_text()  # the answer would tell what to say
    first.get_by_role("button", name="Meaning kept").click()
    tab.locator("#list > li").nth(1).focus()
    tab.keyboard.press("2")
    tab.keyboard.press("j")
    tab.keyboard.press("1")
    tab.keyboard.press("0")  # taken back
    assert tab.locator("#tally").inner_text() == (
        "pwws on plain-0: 1 valid of 2 rated (5 broken) · genetic on plain-0: 0 valid of 0 rated (4 broken) · "
        "pwws on hard-0: 0 valid of 0 rated (1 broken)"
    )
    with tab.expect_download() as caught:
        tab.click("#export-json")
    rows = json.loads(Path(caught.value.path()).read_text())
    assert [row["meaning"] for row in rows] == ["kept", "changed", *[""] * 8]
    assert rows[0] | {"meaning": ""} == {
        "model": "plain-0", "data": "made", "attack": "pwws", "id": "id0", "label": "negative", "answer": "positive",
        "meaning": "", "text": "a fine film number 0",
    }  # fmt: skip
    with tab.expect_download() as caught:
        tab.click("#export-csv")
    with Path(caught.value.path()).open(newline="") as stream:
        assert list(csv.DictReader(stream)) == rows
    tab.reload()
    tab.click("#rate")
    assert tab.locator("#tally").inner_text().startswith("pwws on plain-0: 1 valid of 2 rated")


@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_fits_its_screen_and_follows_the_colour_scheme(opened: Any, report: Report, width: int) -> None:
    backgrounds = set()
    for scheme in ("light", "dark"):
        tab = opened(report, width=width, scheme=scheme)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        backgrounds.add(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(backgrounds) == 2
    tab.click("#theme")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") in backgrounds
    assert tab.evaluate("document.documentElement.dataset.theme") == "light"


def test_every_control_has_a_name_and_every_table_a_region(opened: Any, report: Report) -> None:
    tab = opened(report)
    unnamed = tab.evaluate(
        "[...document.querySelectorAll('input, select, button')].filter((item) => !item.labels?.length && "
        "!item.textContent.trim() && !item.ariaLabel).length"
    )
    assert unnamed == 0
    assert tab.evaluate("[...document.querySelectorAll('table')].every((item) => item.closest('[aria-label]'))")


def test_ten_thousand_examples_are_paged(opened: Any) -> None:
    attacked = replace(run("x"), results=tuple(result(number, "success") for number in range(10_000)))
    tab = opened(Report(evaluations=(made_evaluation(attacked, total=10_000),)))
    assert tab.locator("#list > li").count() == 25
    assert tab.locator("#status").inner_text() == "1–25 of 10,000"
    tab.fill("#search", "number 9999")
    wait_for(tab.locator("#status"), "1–1 of 1")
    assert tab.evaluate("document.querySelectorAll('*').length") < 2_000


def test_the_page_reads_without_scripts(browser: Any, report: Report, tmp_path: Path) -> None:
    path = report.save(tmp_path / "report.html")
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(path.as_uri())
    assert "80.0" in tab.locator("#summary").inner_text()
    assert "Few seeds" in tab.locator("#flags").inner_text()
    assert "needs scripts" in tab.locator("noscript").inner_text()
    context.close()
