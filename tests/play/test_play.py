"""The playground in a real browser, from typing to the flip, and who is let in."""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from victims import bag_victim

from unshaken.attacks import CLARE, Greedy, Victim
from unshaken.errors import UnshakenError
from unshaken.play import Playground, watch
from unshaken.play.watching import parts
from unshaken.readers import KnownWords, parse
from unshaken.substitutions import Dictionary
from unshaken.substitutions.words import segment
from unshaken.victims import Reading


def counts_good(texts: list[str]) -> list[list[float]]:
    """Positive as long as a word of praise that it knows is there."""
    known = [any(word in ("good", "fine") for word in text.lower().split()) for text in texts]
    return [[0.1, 0.9] if found else [0.8, 0.2] for found in known]


def naive() -> Victim:
    return Victim.from_callable(counts_good, label_names=("negative", "positive"), name="naive")


def stubborn() -> Victim:
    return Victim.from_callable(lambda texts: [[0.3, 0.7]] * len(texts), label_names=("negative", "positive"))


# --------------------------------------------------------------------------------------------------- the telling


def test_every_step_is_closer_and_the_end_is_the_attacks_own_result() -> None:
    told: list[dict[str, Any]] = []
    watch(naive(), "a good film <b>", "greedy", told.append)
    start, *steps, end = told
    assert (start["kind"], start["label"], start["labels"]) == ("start", 1, ["negative", "positive"])
    own = [step["probabilities"][1] for step in steps]
    assert own == sorted(own, reverse=True)
    assert end["kind"] == "end"
    assert end["flipped"]
    assert counts_good([end["text"]])[0][1] < 0.5
    assert [part["was"] for part in end["parts"] if "was" in part] == ["good"]
    watch(stubborn(), "a good film", Greedy(), told.append)
    assert told[-1]["flipped"] is False


def test_what_a_reader_makes_of_a_text_is_told() -> None:
    told: list[dict[str, Any]] = []
    reading = Reading(naive(), parse("unicode", KnownWords.of()))
    watch(reading, "a g\u043eod film", "greedy", told.append)
    assert (told[0]["read"], told[0]["label"]) == ("a good film", 1)
    watch(reading, "a good film", "greedy", told.append)
    assert told[-1]["read"] is None


words = st.lists(st.sampled_from(["a", "good", "bad", "film", ",", "!", "plot"]), max_size=8).map(" ".join)


@given(words, words)
def test_parts_are_the_new_text(before: str, after: str) -> None:
    found = parts(before, after)
    assert "".join(part["text"] for part in found) == after
    gone = Counter(segment(before).surfaces) - Counter(segment(after).surfaces)
    assert gone <= Counter(word for part in found for word in segment(part.get("was", "")).surfaces)


def test_neighbours_that_change_stand_each_beside_its_own() -> None:
    found = parts("a gentle , warm drama", "a mild , kind play")
    assert [(part.get("was"), part["text"]) for part in found if "was" in part] == [
        ("gentle", "mild"),
        ("warm", "kind"),
        ("drama", "play"),
    ]
    (merged,) = (part for part in parts("a very, very warm film", "a hot film") if "was" in part)
    assert merged == {"text": "hot", "was": "very, very warm"}


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("a very warm film", "a warm film", [("a ", None), ("", "very"), ("warm film", None)]),
        ("truly, a film", "a film", [("", "truly"), ("a film", None)]),
        ("a film (truly).", "a film.", [("a film", None), ("", "truly"), (".", None)]),
        ("a film", "", [("", "a film")]),
        ("a film", "a warm film", [("a ", None), ("warm", ""), (" film", None)]),
    ],
)
def test_words_that_are_gone_or_new_stand_where_they_stood(
    before: str, after: str, told: list[tuple[str, str | None]]
) -> None:
    assert [(part["text"], part.get("was")) for part in parts(before, after)] == told


# ---------------------------------------------------------------------------------------------------- who is let in


@pytest.fixture
def ground() -> Iterator[Playground]:
    with Playground({"naive": naive(), "bag": bag_victim()}) as found:
        thread = threading.Thread(target=found.serve, daemon=True)
        thread.start()
        yield found
        found.server.shutdown()
        thread.join()


def get(url: str, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_without_the_token_or_from_another_site_nobody_gets_in(ground: Playground) -> None:
    base = f"http://127.0.0.1:{ground.port}"
    assert ground.server.server_address[0] == "127.0.0.1"
    assert get(ground.url)[0] == 200
    for path in ("/", "/?token=wrong", "/attack?model=naive&attack=greedy&text=good"):
        assert get(base + path)[0] == 403
    assert get(ground.url, Host="evil.example")[0] == 403  # a name that was made to point here
    assert get(ground.url.replace("/?", "/other?"))[0] == 404


def test_events_and_mistakes(ground: Playground) -> None:
    def events(query: str) -> list[dict[str, Any]]:
        _, body = get(ground.url.replace("/?", "/attack?") + query)
        return [json.loads(line.removeprefix("data: ")) for line in body.splitlines() if line]

    kinds = [event["kind"] for event in events("&model=naive&attack=greedy&text=a+good+film")]
    assert (kinds[0], kinds[-1]) == ("start", "end")
    (wrong,) = events("&model=naive&attack=greedi&text=a")
    assert "did you mean 'greedy'" in wrong["message"]
    (empty,) = events("&model=naive&attack=greedy&text=+")
    assert "1 to 2,000" in empty["message"]
    with pytest.raises(UnshakenError, match="no model"):
        Playground({})


def test_a_model_is_found_by_the_name_it_was_given() -> None:
    """Capitals and underscores are usual in folders."""
    with Playground({"out/My_model": naive(), "out/my-model": stubborn()}) as found:
        threading.Thread(target=found.serve, daemon=True).start()
        _, body = get(found.url.replace("/?", "/attack?") + "&model=out/My_model&attack=greedy&text=a+good+film")
        found.server.shutdown()
    first = json.loads(body.splitlines()[0].removeprefix("data: "))
    assert (first["kind"], first["probabilities"]) == ("start", [0.1, 0.9])


def test_two_panels_ask_one_model_one_after_the_other() -> None:
    """A model may change itself while it answers, as the encoder of a Hugging Face victim does."""
    inside, most = [0], [0]

    def judge(texts: list[str]) -> list[list[float]]:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.02)
        inside[0] -= 1
        return counts_good(texts)

    victim = Victim.from_callable(judge, label_names=("negative", "positive"))
    told: list[dict[str, Any]] = []
    texts = ("a good film", "a fine plot", "a good plot")
    threads = [threading.Thread(target=watch, args=(victim, text, "greedy", told.append)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(event["kind"] == "end" for event in told) == 3
    assert most[0] == 1


def test_a_model_that_fails_on_the_way_is_told_of() -> None:
    asked: list[str] = []

    def fails(texts: list[str]) -> list[list[float]]:
        asked.extend(texts)
        if len(asked) > 2:
            raise RuntimeError("the wire was cut")
        return [[0.1, 0.9]] * len(texts)

    victim = Victim.from_callable(fails, label_names=("negative", "positive"))
    with Playground({"fails": victim}) as found:
        threading.Thread(target=found.serve, daemon=True).start()
        _, body = get(found.url.replace("/?", "/attack?") + "&model=fails&attack=greedy&text=a+good+film")
        found.server.shutdown()
    last = json.loads(body.splitlines()[-2].removeprefix("data: "))
    assert last["kind"] == "error"
    assert "the wire was cut" in last["message"]


def test_a_text_without_synonyms_is_told_of_with_what_the_page_offers() -> None:
    with pytest.raises(UnshakenError, match="no other word for any of these; write more, or take another"):
        watch(naive(), "the", "pwws", lambda _: None)


# --------------------------------------------------------------------------------------------------- in a browser


FLIPPED = re.compile(r"Turned around: negative \(80%\), \d+ texts asked")


@pytest.mark.parametrize("width", [390, 1280])
def test_from_typing_to_the_flip(ground: Playground, browser: Any, width: int) -> None:
    from playwright.sync_api import expect

    page = browser.new_page(viewport={"width": width, "height": 800})
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(ground.url)
    panel = page.get_by_role("region", name="naive")
    for nothing_yet in ("input", "progress"):
        expect(panel.locator(nothing_yet)).to_be_hidden()
    label, field = (page.locator(one).bounding_box() for one in ("label[for=text]", "#text"))
    assert label["y"] + label["height"] + 4 <= field["y"]  # the ring of the focus does not run through the label
    page.locator("#text").fill("a good <img src=x onerror=alert(1)> film")
    page.locator("#attack").select_option("greedy")
    page.locator("#text").press("Control+Enter")  # no mouse is needed
    expect(panel.locator(".note")).to_have_text(FLIPPED, timeout=60_000)
    expect(panel.locator("del").first).to_have_text("good")
    expect(page.locator("#stop")).to_be_disabled()
    assert panel.locator("progress").evaluate("bar => bar.value") == 0.2
    expect(panel.get_by_text("sure the model is of its first answer, positive: 20%")).to_be_visible()
    expect(panel.locator(".step")).to_have_text(re.compile(r"Step (\d) of \1: "))
    panel.get_by_label("step").press("Home")  # back to the text as it was
    assert panel.locator("progress").evaluate("bar => bar.value") == 0.9
    expect(panel.get_by_text("first answer, positive: 90%")).to_be_visible()
    expect(panel.get_by_text("The sentence as typed")).to_be_visible()
    assert page.locator("img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert problems == []
    page.close()


class Merging(Dictionary):
    """Two words become the second of them, so that an attack deletes the first."""

    def for_pairs(self, pairs: Any) -> list[list[str]]:
        return [[words[at + 1]] for words, at in pairs]


# How far the colour of the first element stands out from what is behind it, as WCAG 2 counts.
CONTRAST = """(word) => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  const style = getComputedStyle(word), both = [light(style.color), light(style.backgroundColor)].sort((a, b) => b - a);
  return both[0] / both[1];
}"""  # noqa: E501


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_word_that_an_attack_deleted_is_struck_through(
    ground: Playground, browser: Any, monkeypatch: pytest.MonkeyPatch, width: int, scheme: str
) -> None:
    from playwright.sync_api import expect

    clare = CLARE(substitutions=Merging(entries={"film": ("movie",)}), constraints=())
    monkeypatch.setattr("unshaken.play.watching.find_attack", lambda _: clare)
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.goto(ground.url)
    page.locator("#text").fill("a good film")
    page.locator("#run").click()
    panel = page.get_by_role("region", name="naive")
    expect(panel.locator(".note")).to_have_text(FLIPPED, timeout=60_000)
    gone = panel.locator("del")
    expect(gone).to_be_visible()
    assert panel.locator(".said").inner_text() == "a good film"  # with blanks on both sides of what was deleted
    assert gone.evaluate("word => getComputedStyle(word).textDecorationLine") == "line-through"
    assert gone.evaluate(CONTRAST) >= 4.5
    assert "deleted: good" in panel.locator(".said").aria_snapshot()  # a line through a word is heard by nobody
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.close()


def slow() -> Victim:
    """A search of it lasts until somebody stops it."""

    def judge(texts: list[str]) -> list[list[float]]:
        time.sleep(1.0)  # a generation takes a minute, whatever else the machine does
        return [[0.3, 0.7]] * len(texts)

    return Victim.from_callable(judge, label_names=("negative", "positive"), batch_size=1)


def test_a_stopped_attack_and_a_server_that_is_gone_are_told_of(browser: Any) -> None:
    from playwright.sync_api import expect

    page = browser.new_page()
    with Playground({"slow": slow()}) as ground:
        threading.Thread(target=ground.serve, daemon=True).start()
        page.goto(ground.url)
        page.locator("#attack").select_option("genetic")
        page.locator("#run").click()
        note = page.get_by_role("region", name="slow").locator(".note")
        expect(note).to_contain_text("texts asked", timeout=30_000)
        expect(page.locator(".step").first).to_have_text("The sentence as typed")  # and not "before 0 steps"
        page.locator("#stop").click()
        expect(note).to_have_text(re.compile(r"Stopped\. positive \(70%\), \d+ texts asked"))
        expect(page.locator("#run")).to_be_enabled()
        ground.server.shutdown()
    page.locator("#run").click()
    expect(note).to_have_text("No answer: is unshaken play still running?")
    expect(page.locator("#run")).to_be_enabled()
    page.close()
