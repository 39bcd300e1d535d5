"""A scan of guards whose answers are known: what each family does to a text, what counts, and what machines read."""

from __future__ import annotations

import json
import re
import unicodedata
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unshaken import Examples, Victim
from unshaken.attacks import Greedy
from unshaken.errors import UnshakenError
from unshaken.reports import TrainingRecord
from unshaken.scanning import Detector, ScanResult, families, scan
from unshaken.scanning.formats import cells, page, sarif, shown
from unshaken.substitutions import Typos
from unshaken.victims.http import HttpVictim

BAD = ["free money now", "win free money today", "money for free", "free prizes and money"]
FINE = ["see you at lunch", "the meeting moved to noon", "thanks for the report"]
EXAMPLES = Examples.from_lists(BAD + FINE, ["spam"] * 4 + ["ham"] * 3, name="mails.csv")


def naive_guard(texts: list[str]) -> list[list[float]]:
    """Counts two words, as they are written; what it cannot read at all looks odd to it."""
    rows = []
    for text in texts:
        hits = sum(word in ("free", "money") for word in text.lower().split())
        odd = 0.55 if any(ord(letter) > 0xE0000 for letter in text) else 0.0
        spam = max(odd, min(0.95, 0.1 + 0.3 * hits))
        rows.append([1 - spam, spam])
    return rows


def careful_guard(texts: list[str]) -> list[list[float]]:
    """The same after everything that does not show is taken out and look-alikes are read as Latin letters."""
    from unshaken.scanning.families import LOOKALIKES

    back = {seen: latin for latin, seen in LOOKALIKES.items()}
    return naive_guard([without_unseen(text).translate(back) for text in texts])


def without_unseen(text: str) -> str:
    """Without what does not show: format characters and marks."""
    letters = unicodedata.normalize("NFD", text)
    return "".join(letter for letter in letters if unicodedata.category(letter) not in ("Cf", "Mn"))


def guard(function: Any) -> Victim:
    return Victim.from_callable(function, label_names=("ham", "spam"))


def by_name(result: ScanResult) -> dict[str, Any]:
    return {family.name: family for family in result.families}


# ------------------------------------------------------------------------------------------------- the edits

WORD = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", min_size=4, max_size=12)


@given(st.lists(WORD, min_size=1, max_size=6))
def test_what_people_see_stays(words: list[str]) -> None:
    text = " ".join(words)
    edited = {family.name: family.fixed(text) for family in families() if family.name != "synonyms"}
    assert without_unseen(edited["invisible"]) == without_unseen(edited["combining-marks"]) == text
    assert edited["spacing"].replace(" ", "") == text.replace(" ", "")
    assert "".join(chr(ord(c) - 0xE0000) if ord(c) >= 0xE0000 else c for c in edited["tag-characters"]) == text
    assert len(edited["homoglyphs"]) == len(edited["leetspeak"]) == len(edited["letter-swaps"]) == len(text)
    for before, after in zip(words, edited["letter-swaps"].split(), strict=True):
        assert sorted(before) == sorted(after)
        assert (before[0], before[-1]) == (after[0], after[-1])


def test_fixed_edits_are_the_ones_of_the_docs() -> None:
    found = {family.name: family.fixed("Free money!") for family in families()}
    assert found["leetspeak"] == "Fr33 m0n3y!"
    assert found["spacing"] == "F r e e m o n e y!"
    assert found["homoglyphs"] == "Frее mоnеу!"  # Cyrillic
    assert found["letter-swaps"] == "Fere moeny!"
    assert "masked-lm" not in found
    with pytest.raises(UnshakenError, match="did you mean 'leetspeak'"):
        families(["leetspek"])
    with pytest.raises(UnshakenError, match="--masked-lm"):
        families(["masked-lm"])


@pytest.mark.parametrize(
    ("name", "word", "forms"),
    [
        ("leetspeak", "Movie", ["M0v13", "M0vie", "Mov1e", "Movi3"]),  # all letters, then one at a time
        ("spacing", "am", ["a m", "a-m", "a.m"]),
        ("spacing", "I", []),
        (
            "invisible",
            "fair",
            ["f\u200ba\u200bi\u200br", "f\u00ada\u00adi\u00adr", "f\u2060a\u2060i\u2060r", "fa\u200bir"],
        ),
        ("combining-marks", "am", ["a\u0307m\u0307", "a\u0336m\u0336"]),
        ("letter-swaps", "movie", ["moive", "mvoie"]),  # the middle first
    ],
)
def test_the_forms_that_a_search_tries_begin_with_the_fixed_edit(name: str, word: str, forms: list[str]) -> None:
    (family,) = families([name])
    assert family.substitutions.candidates([word], 0) == forms
    assert family.fixed(word) == (forms[0] if forms else word)


def test_a_search_tries_every_typing_error_once() -> None:
    (family,) = families(["typos"])
    for word in ("film", "movie", "lunches"):
        found = family.substitutions.candidates([word], 0)
        every = Typos(kinds=("key", "drop", "repeat")).candidates([word], 0)
        assert sorted(found) == sorted(every)
        assert found[0] == every[len(every) // 2]  # of its middle, where it is least seen


def test_synonyms_are_written_in_the_case_of_the_word_as_a_search_writes_them() -> None:
    """Else a model that minds the case fails by the case and not by the word."""
    (family,) = families(["synonyms"])
    good, film, bad = (family.substitutions.neighbours(word)[0] for word in ("good", "film", "bad"))
    assert family.fixed("Good FILM, bad?") == f"{good.capitalize()} {film.upper()}, {bad}?"


# --------------------------------------------------------------------------------------------- what is counted


def test_a_protected_class_counts_misses_and_false_alarms() -> None:
    result = scan(guard(naive_guard), EXAMPLES, protect="spam", search=0)
    assert (result.relevant, result.right, result.protect) == (4, 4, "spam")
    found = by_name(result)
    for name in ("leetspeak", "homoglyphs", "invisible", "combining-marks", "spacing", "letter-swaps"):
        assert found[name].kept_fixed == 0, name
        assert (found[name].alarms_before, found[name].alarms_after, found[name].harmless) == (0, 0, 3)
    # It is wary of tags: nothing is missed, and every harmless text is an alarm.
    assert (found["tag-characters"].kept_fixed, found["tag-characters"].alarms_after) == (4, 3)
    assert result.score == 0.0
    broken = found["leetspeak"].broken[0]
    assert (broken.before, broken.after, broken.answer) == (("free money now",), ("fr33 m0n3y n0w",), "not spam")
    assert not any(item.by_search for family in result.families for item in family.broken)
    assert {family.queries for family in result.families} == {4 + 3}  # a text each, as it is edited
    mended = by_name(scan(guard(careful_guard), EXAMPLES, protect="spam", search=0))
    for name in ("homoglyphs", "invisible", "combining-marks"):
        assert mended[name].kept_fixed == 4, name
    assert mended["leetspeak"].kept_fixed == 0


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.65])
@pytest.mark.parametrize("protect", [None, 1])
def test_a_broken_text_is_told_with_the_guards_own_probability(protect: int | None, threshold: float) -> None:
    limit = {} if protect is None else {"threshold": threshold}
    found = scan(guard(naive_guard), EXAMPLES, protect=protect, families=["leetspeak", "typos"], **limit)
    broken = [item for family in found.families for item in family.broken]
    assert broken
    for item in broken:
        ((ham, spam),) = naive_guard([item.after[0]])
        flips_to_ham = protect is not None or ham > spam
        assert item.confidence == pytest.approx(ham if flips_to_ham else spam, abs=1e-4)


def test_the_threshold_decides_what_is_found() -> None:
    """0.1, 0.4 and 0.7 for no, one and two words: at 0.3 one word is enough, at 0.65 two are needed."""
    one_word = Examples.from_lists(["free lunch", "no lunch"], ["spam", "ham"], name="lunch")
    for threshold, caught in ((0.3, 1), (0.39999, 1), (0.41, 0), (0.65, 0)):
        assert scan(guard(naive_guard), one_word, protect=1, threshold=threshold, search=0).right == caught
    exact = Detector(guard(lambda texts: [[0.7, 0.3]] * len(texts)), 1, 0.3)
    assert exact.log_probabilities([("any",)]).argmax() == 1  # at the threshold, the guard acts
    with pytest.raises(UnshakenError, match="belongs to one class"):
        scan(guard(naive_guard), EXAMPLES, threshold=0.3)
    with pytest.raises(UnshakenError, match="did you mean 'spam'"):
        scan(guard(naive_guard), EXAMPLES, protect="span")
    with pytest.raises(UnshakenError, match="no text of the protected class"):
        scan(guard(naive_guard), EXAMPLES[4:], protect="spam")


@pytest.mark.parametrize(("probability", "threshold"), [(0.4, 0.3), (0.3, 0.3), (0.2, 0.3), (0.9, 0.95), (0.5, 0.5)])
def test_a_detector_shifts_the_odds_and_its_answers_are_probabilities(probability: float, threshold: float) -> None:
    """Caught to missed is p (1 - t) to (1 - p) t, so the class is ahead exactly from its threshold on."""
    detector = Detector(guard(lambda texts: [[1 - probability, probability]] * len(texts)), 1, threshold)
    (answer,) = np.exp(detector.log_probabilities([("any",)]))
    caught, missed = probability * (1 - threshold), (1 - probability) * threshold
    assert answer == pytest.approx([missed / (caught + missed), caught / (caught + missed)], rel=1e-5)
    assert answer.argmax() == int(probability >= threshold)
    assert detector.unshifted(np.log(answer)) == pytest.approx([1 - probability, probability], rel=1e-5)


@pytest.mark.parametrize("threshold", [0.0, 1.0, 1.5])
def test_a_threshold_is_a_probability(threshold: float) -> None:
    with pytest.raises(UnshakenError, match="a probability between 0 and 1"):
        scan(guard(naive_guard), EXAMPLES, protect="spam", threshold=threshold)


def test_any_class_may_be_protected_by_its_number() -> None:
    first = scan(guard(naive_guard), EXAMPLES, protect=0, families=["leetspeak"], search=0)
    assert (first.protect, first.relevant, first.right) == ("ham", 3, 3)
    assert (first.families[0].kept_fixed, first.families[0].alarms_before, first.families[0].alarms_after) == (3, 0, 4)
    for number in (-1, 2):
        with pytest.raises(UnshakenError, match=f"protect is class {number}; .* has classes 0 to 1"):
            scan(guard(naive_guard), EXAMPLES, protect=number)
    with pytest.raises(UnshakenError, match="by its number, 0 to 1"):
        scan(Victim.from_callable(naive_guard), EXAMPLES.rows, protect="spam")


@pytest.mark.parametrize(
    ("names", "protect", "number"),
    [
        (("safe", "prompt_injection"), "prompt_injection", 1),
        (("LABEL_0", "LABEL_1"), "label_1", 1),
        (("Severe-Toxic", "fine"), " severe-toxic ", 0),
        (("us", "US"), "us", 0),
        (("us", "US"), "US", 1),
    ],
)
def test_a_class_is_protected_by_its_name_as_it_is_written(names: tuple[str, str], protect: str, number: int) -> None:
    victim = Victim.from_callable(naive_guard, label_names=names)
    found = scan(victim, BAD + FINE, protect=protect, families=["leetspeak"], search=0)
    assert (found.protect, found.right) == (names[number], (3, 4)[number])


def test_where_all_texts_are_of_the_protected_class_there_are_no_alarms() -> None:
    result = scan(guard(naive_guard), EXAMPLES[:4], protect="spam", families=["leetspeak"], search=0)
    (family,) = result.families
    assert (family.harmless, family.alarms_before, family.alarms_after) == (0, 0, 0)
    assert "others" not in result.sentence()


def test_a_guard_that_catches_nothing_keeps_nothing() -> None:
    """0 of 0 is no 100%: such a guard must not pass `--fail-under`."""
    blind = guard(lambda texts: [[0.9, 0.1]] * len(texts))
    result = scan(blind, EXAMPLES, protect="spam", families=["typos", "spacing"])
    assert "0 of 4 spam texts are caught" in result.sentence()
    assert "100%" not in result.sentence()
    assert [family.name for family in result.failures(1)] == ["typos", "spacing"]
    assert {row[1] for row in map(cells, result.families)} == {"-"}
    assert ">100%" not in page(result)


def test_a_guard_that_stops_everything_is_told_beside_what_it_keeps() -> None:
    result = scan(guard(lambda texts: [[0.1, 0.9]] * len(texts)), EXAMPLES, protect="spam", families=["typos"])
    assert (
        f"4 of 4 spam texts are caught as they are, and so are {len(FINE)} of {len(FINE)} others." in result.sentence()
    )
    assert "others" not in scan(guard(naive_guard), EXAMPLES, protect="spam", families=["typos"]).sentence()


def test_without_a_protected_class_every_right_answer_counts() -> None:
    result = scan(guard(naive_guard), EXAMPLES, search=0, families=["leetspeak", "tag-characters"])
    found = by_name(result)
    assert (found["leetspeak"].total, found["leetspeak"].kept_fixed, found["leetspeak"].harmless) == (7, 3, 0)
    assert found["tag-characters"].kept_fixed == 4
    own = scan(guard(naive_guard), BAD + FINE, families=["leetspeak"], search=0)  # no labels: its own answers
    assert own.families[0].kept_fixed == 3
    assert "7 of 7 answers count as right by the victim's own answers" in own.sentence()


@pytest.mark.parametrize(("threshold", "caught"), [(0.3, 5), (0.5, 4), (0.8, 0)])
def test_own_answers_are_those_at_the_threshold(threshold: float, caught: int) -> None:
    """0.4 for one word and 0.7 for two: the likeliest class would make two words spam, and missed, at 0.8."""
    texts = [*BAD, "free lunch", *FINE]
    options: dict[str, Any] = {"protect": "spam", "threshold": threshold, "families": ["leetspeak"], "search": 0}
    if not caught:
        with pytest.raises(UnshakenError, match="no text of the protected class"):
            scan(guard(naive_guard), texts, **options)
        return
    result = scan(guard(naive_guard), texts, **options)
    assert (result.right, result.relevant, result.examples) == (caught, caught, 8)
    assert f"{caught} of 8 texts are spam by the victim's own answers" in result.sentence()
    assert result.families[0].alarms_before == 0


def test_a_search_breaks_what_a_fixed_edit_does_not() -> None:
    """A guard that falls for one form only, and not for the first."""

    def reads_all_but_strokes(texts: list[str]) -> list[list[float]]:
        return [[1.0, 0.0] if "\u0336" in text else [0.05, 0.95] for text in texts]

    result = scan(guard(reads_all_but_strokes), EXAMPLES[:4], protect="spam", families=["combining-marks"], search=3)
    (family,) = result.families
    assert (family.kept_fixed, family.searched, family.found) == (4, 3, 3)
    assert family.kept_share == 0.0
    searched = Greedy(substitutions=families(["combining-marks"])[0].substitutions, query_budget=200)
    rows = EXAMPLES[:4].sample(3)
    asked = searched(Detector(guard(reads_all_but_strokes), 1), rows.with_rows(replace(row, label=1) for row in rows))
    assert family.queries == 4 + sum(row.queries for row in asked)
    assert all(item.by_search and "\u0336" in item.after[0] for item in family.broken)
    for item in family.broken:  # each text that is shown does what it says
        assert reads_all_but_strokes([item.after[0]])[0][1] < 0.5


def test_a_search_keeps_texts_alike_in_the_families_that_may_change_the_meaning() -> None:
    def titles(similarity: float) -> dict[str, str]:
        names = ["synonyms", "leetspeak"]
        found = scan(guard(naive_guard), EXAMPLES, families=names, search=0, similarity=similarity).families
        return {family.name: family.title for family in found}

    plain = {family.name: family.title for family in families(["synonyms", "leetspeak"])}
    assert titles(0.0) == plain
    assert titles(0.5) == {**plain, "synonyms": f"{plain['synonyms']}; a search keeps texts 50% alike"}


def test_survivors_without_a_word_to_change_hold() -> None:
    """Typing errors are made in words of some letters, and a search that may change nothing breaks nothing."""
    texts = Examples.from_lists(["is it", "free money"], [0, 1], label_names=("ham", "spam"))
    (family,) = scan(guard(naive_guard), texts, families=["typos"], search=2).families
    assert (family.total, family.kept_fixed, family.searched, family.found) == (2, 1, 1, 0)


def test_survivors_are_searched_in_any_order_of_the_file() -> None:
    """The first survivors of a file sorted by label are of one label, here the one that a search breaks."""

    def loses_spam(texts: list[str]) -> list[list[float]]:
        spam = [text.startswith("b") and "\u0336" not in text for text in texts]
        return [[1.0 - found, float(found)] for found in spam]

    texts = [f"buy number {n}" for n in range(40)] + [f"see you at {n}" for n in range(40)]
    rows = Examples.from_lists(texts, ["spam"] * 40 + ["ham"] * 40, name="sorted.csv")
    found = [
        scan(guard(loses_spam), order, families=["combining-marks"], search=20, seed=3)
        for order in (rows, rows.with_rows(reversed(rows.rows)))
    ]
    (family,), (turned,) = (result.families for result in found)
    drawn = [row.id for row in rows.sample(20, 3) if row.label == 1]  # all 80 survive the fixed edit
    assert (family.kept_fixed, family.searched, family.found) == (80, 20, len(drawn))
    assert {item.id for item in family.broken} == {item.id for item in turned.broken} == set(drawn)
    assert 0 < len(drawn) < 20
    said = "Searches were tried on at most 20 survivors of each family, drawn at random (seed 3)."
    assert found[0].sampling() == said
    assert said in page(found[0])


# ------------------------------------------------------------------------------------------------ what machines read


def test_what_is_kept_is_the_share_of_the_fixed_edit_times_that_of_the_search(result: ScanResult) -> None:
    family = replace(result.families[0], total=8, kept_fixed=4, searched=2, found=1)
    assert (family.fixed_share, family.kept_share, family.lost) == (0.5, 0.25, 5)
    assert replace(family, searched=0, found=0).kept_share == 0.5


@pytest.fixture(scope="module")
def result() -> ScanResult:
    return scan(guard(naive_guard), EXAMPLES, protect="spam", search=2)


def test_json_reads_back(result: ScanResult, tmp_path: Path) -> None:
    assert ScanResult.load(result.save(tmp_path / "scan.json")) == result
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(UnshakenError, match="schema version"):
        ScanResult.load(tmp_path / "other.json")
    with pytest.raises(UnshakenError, match="known"):
        result.save(tmp_path / "scan.pdf")


def test_junit(result: ScanResult, tmp_path: Path) -> None:
    suite = ElementTree.parse(result.save(tmp_path / "junit.xml", fail_under=80)).getroot()
    cases = {case.get("name"): case for case in suite}
    assert set(cases) == {family.name for family in result.families}
    failing = {name for name, case in cases.items() if case.find("failure") is not None}
    assert failing == {family.name for family in result.families if family.kept_share < 0.8}
    assert int(suite.get("failures", "")) == len(failing) > 0
    assert "0% of the right answers survive, 80% are asked for" in str(cases["leetspeak"].find("failure").attrib)


def test_sarif(result: ScanResult, tmp_path: Path) -> None:
    log = json.loads(result.save(tmp_path / "scan.sarif", fail_under=80).read_text())
    (run,) = log["runs"]
    rules = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert log["version"] == "2.1.0"
    assert {item["ruleId"] for item in run["results"]} <= rules
    assert len(run["results"]) == sum(len(family.broken) for family in result.families)
    for item in run["results"]:
        assert item["level"] == "error"
        assert item["message"]["text"]
        assert item["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "mails.csv"


def test_without_a_limit_sarif_has_warnings_alone(result: ScanResult, tmp_path: Path) -> None:
    assert result.score == 0  # even of a family that keeps nothing
    (run,) = json.loads(result.save(tmp_path / "scan.sarif").read_text())["runs"]
    assert {item["level"] for item in run["results"]} == {"warning"}


def test_a_long_text_is_cut_where_it_is_shown_and_only_then_ends_in_dots() -> None:
    assert shown("x" * 400) == "x" * 400
    assert shown("x" * 401) == "x" * 400 + " ..."


def test_sarif_tells_of_broken_texts_that_are_not_listed() -> None:
    rows = Examples.from_lists(
        [f"free money {number}" for number in range(25)], ["spam"] * 25, label_names=("ham", "spam")
    )
    (run,) = sarif(scan(guard(naive_guard), rows, families=["leetspeak", "tag-characters"], search=0), 0)["runs"]
    broken = {rule["id"]: rule["properties"]["broken"] for rule in run["tool"]["driver"]["rules"]}
    assert broken == {"leetspeak": 25, "tag-characters": 0}
    assert len(run["results"]) == 20
    ((note,),) = [own["toolExecutionNotifications"] for own in run["invocations"]]
    assert note["message"]["text"] == "leetspeak: 20 of 25 broken texts are listed"
    assert (note["level"], note["associatedRule"]) == ("note", {"id": "leetspeak"})
    (run,) = sarif(scan(guard(naive_guard), rows[:20], families=["leetspeak"], search=0), 0)["runs"]
    assert run["invocations"] == [{"executionSuccessful": True, "toolExecutionNotifications": []}]


def test_the_page_shows_what_cannot_be_seen_and_obeys_nothing(tmp_path: Path) -> None:
    rows = Examples.from_lists(["<script>alert(1)</script> free money"], ["spam"], label_names=["ham", "spam"])
    page = scan(guard(naive_guard), rows, protect="spam", search=0).save(tmp_path / "scan.html").read_text()
    assert "<script>" not in page
    assert r"f\u200br\u200be\u200be" in page
    assert "http:" not in page
    assert "https:" not in page.replace("https://pypi.org/project/unshaken/", "")  # nothing is loaded from elsewhere


# ------------------------------------------------------------------------------------------------------ the command


def test_the_command_on_a_scikit_learn_pipeline(tmp_path, monkeypatch, unshaken, write_rows) -> None:
    """`--victim module:name` from the folder of the call; the exit code is what a build waits for."""
    monkeypatch.chdir(tmp_path)
    rows = [(row.texts[0], EXAMPLES.label_names[int(row.label)]) for row in EXAMPLES]
    write_rows(tmp_path / "mails.csv", ("text", "label"), *rows)
    (tmp_path / "my_guard_for_scan.py").write_text(
        "from sklearn.feature_extraction.text import CountVectorizer\n"
        "from sklearn.linear_model import LogisticRegression\n"
        "from sklearn.pipeline import make_pipeline\n"
        f"texts, labels = {BAD + FINE!r}, {['spam'] * 4 + ['ham'] * 3!r}\n"
        "model = make_pipeline(CountVectorizer(), LogisticRegression(C=100)).fit(texts, labels)\n"
    )
    common = ["scan", "--victim", "my_guard_for_scan:model", "mails.csv", "--protect", "spam", "--search", 2]
    code, out, err = unshaken(*common, "--out", "first", "--fail-under", 80)
    assert code == 1, err
    assert "leetspeak" in out
    written = {path.name for path in (tmp_path / "first").iterdir()}
    assert written == {"scan.json", "scan.html", "junit.xml", "scan.sarif"}
    result = ScanResult.load(tmp_path / "first" / "scan.json")
    assert (result.victim, result.right, result.protect) == ("my_guard_for_scan:model", 4, "spam")
    assert by_name(result)["homoglyphs"].kept_fixed < 4
    code, _, err = unshaken(*common, "--out", "second", "--family", "tag-characters")  # no limit: no failure
    assert code == 0, err
    code, _, err = unshaken(*common, "--labels", "ham,spam")
    assert code == 2
    assert "names its classes itself" in err


def test_a_file_is_scanned_in_the_columns_of_training_and_with_classes_of_mixed_kinds(
    tmp_path, monkeypatch, unshaken, make_tiny, write_rows
) -> None:
    """Both are known by the model alone: the check of the file before it is loaded lets them pass."""
    monkeypatch.chdir(tmp_path)
    model = make_tiny(id2label={0: "1", 1: "other"}, label2id={"1": 0, "other": 1})
    record = TrainingRecord(
        method="plain", seed=0, base_model="tiny", task="mine", details={"text_columns": ["a"], "label_column": "c"}
    )
    record.save(model)
    rows = [("a good film", "b", "1", "d"), ("a bad film", "b", "other", "d"), ("an odd film", "b", "1", "d")]
    write_rows(tmp_path / "mails.csv", ("a", "b", "c", "d"), *rows)
    code, _, err = unshaken("scan", model, "mails.csv", "--family", "leetspeak", "--search", 0, "--out", "found")
    assert code == 0, err
    assert ScanResult.load(tmp_path / "found" / "scan.json").examples == 3


@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        (("text",), [(text,) for text in BAD + FINE]),
        (("prompt",), [(text,) for text in BAD + FINE]),
        (("id", "text"), list(enumerate(BAD + FINE))),
        (("text", "label"), [(text, -1) for text in BAD + FINE]),
    ],
)
def test_the_command_scans_a_file_without_labels_as_python_does_its_texts(
    tmp_path, monkeypatch, unshaken, write_rows, columns, rows
) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "mails.csv", columns, *rows)
    (tmp_path / "my_function_for_scan.py").write_text(
        "def guard(texts):\n    return [[0.1, 0.9] if 'free' in text else [0.8, 0.2] for text in texts]\n"
    )
    common = ["scan", "--victim", "my_function_for_scan:guard", "mails.csv", "--labels", "ham,spam"]
    code, out, err = unshaken(*common, "--protect", "spam", "--family", "leetspeak", "--search", 0, "--out", "found")
    assert code == 0, err
    found = ScanResult.load(tmp_path / "found" / "scan.json")
    caught = sum("free" in text for text in BAD + FINE)
    assert (found.examples, found.relevant, found.right) == (len(BAD + FINE), caught, caught)
    assert "by the victim's own answers, as there are no labels" in " ".join(out.split())


def test_mistakes_in_the_command(refused, tmp_path, monkeypatch, write_rows) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "mails.csv", ("text", "label"), ("free", "spam"))
    assert "unshaken scan MODEL DATA" in refused("scan", "mails.csv")
    assert "did you mean mails.csv" in refused("scan", "model", "mail.csv")
    assert "cannot import 'nowhere'" in refused("scan", "--victim", "nowhere:guard", "mails.csv")
    assert "package.module:name" in refused("scan", "--victim", "guard", "mails.csv")


def test_what_only_a_folder_can_be_loaded_with(refused, tmp_path, monkeypatch, write_rows) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "mails.csv", ("text", "label"), ("free", "spam"))
    (tmp_path / "guard.onnx").touch()
    for target in (["guard.onnx"], ["http://127.0.0.1:9/spam"], ["--victim", "my_guard:model"]):
        line = refused("scan", *target, "mails.csv", "--dtype", "bfloat16")
        assert f"--dtype is for a folder or hub name, and does nothing to {' '.join(target)}; leave it out" in line
    assert not (tmp_path / "out").exists()
    for target in ("guard.onnx", "http://127.0.0.1:9/spam"):
        line = refused("play", target, "--device", "cpu", "--dtype", "bfloat16", "--no-browser")
        assert f"--device, --dtype is for a folder or hub name, and does nothing to {target}" in line


def test_what_is_loaded_otherwise_is_for_scan_and_play(refused, tmp_path, monkeypatch, write_rows) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "mails.csv", ("text", "label"), ("free", "spam"))
    (tmp_path / "guard.onnx").touch()
    for command in ("attack", "evaluate", "certify", "detect"):
        for target in ("guard.onnx", "http://127.0.0.1:9/spam"):
            line = refused(command, target, "mails.csv")
            assert f"{target} is no folder and no hub name; `unshaken scan` and `unshaken play` take it" in line


def test_a_service_is_asked_as_it_is_now(tmp_path, monkeypatch, unshaken, write_rows) -> None:
    """A second scan of the folder takes nothing from the first, since the service may be another by then."""
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "mails.csv", ("text", "label"), ("free money", "spam"), ("see you", "ham"))
    scores: dict[str, float] = {}

    def send(self: HttpVictim, body: bytes) -> Any:
        wanted = [scores.get(text.split()[0], 0.1) for text in json.loads(body)["inputs"]]
        return [[1 - one, one] for one in wanted]

    monkeypatch.setattr(HttpVictim, "_send", send)
    words = ["scan", "http://127.0.0.1:9/spam", "mails.csv", "--labels", "ham,spam", "--family", "leetspeak"]
    for score, said in ((0.9, "2 of 2 texts"), (0.2, "1 of 2 texts")):
        scores["free"] = score
        code, out, err = unshaken(*words, "--search", 0, "--out", "found")
        assert code == 0, err
        assert said in " ".join(out.split())
        assert "when asked again" not in err
        assert not (tmp_path / "found" / "answers.jsonl").exists()
    swapped = [*words[:4], "spam,ham", *words[5:]]
    scores["free"] = 0.9
    assert "Are the victim's classes named in their order?" in " ".join(unshaken(*swapped)[1].split())


def test_a_victim_that_answers_at_random_is_told(tmp_path, monkeypatch, unshaken, write_rows) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "mails.csv", ("text", "label"), ("free money", "spam"), ("see you", "ham"))
    (tmp_path / "guard_at_random.py").write_text(
        "import random\ndef guard(texts):\n    return [[1 - p, p] for p in (random.random() for _ in texts)]\n"
    )
    words = ["scan", "--victim", "guard_at_random:guard", "mails.csv", "--labels", "ham,spam", "--family", "leetspeak"]
    _, _, err = unshaken(*words, "--search", 0)
    assert "of 2 texts otherwise when asked again" in err


def test_a_victim_that_is_a_path(tmp_path, monkeypatch, unshaken, tiny, write_rows) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "mails.csv", ("text", "label"), ("a good film", 1), ("a bad film", 0))
    (tmp_path / "my_path_for_scan.py").write_text(f"PATH = {str(tiny)!r}\n")
    common = ["scan", "--victim", "my_path_for_scan:PATH", "mails.csv", "--family", "leetspeak", "--search", 0]
    code, _, err = unshaken(*common, "--out", "found")
    assert code == 0, err
    assert ScanResult.load(tmp_path / "found" / "scan.json").victim == str(tiny)
    code, _, err = unshaken(*common, "--labels", "bad,good,fair")
    assert code == 2
    assert "--labels has 3 names" in err


def test_the_page_of_the_docs(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "docs" / "how-to" / "scan-a-guard.md").read_text(encoding="utf-8")
    for family in families():
        assert f"| `{family.name}` |" in text
    (code,) = re.findall(r"<!-- runs in the tests -->\n```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "scan-a-guard.md", "exec"), names)
    assert "2 of 4 texts are spam by the victim's own answers" in names["result"].sentence()
    assert (tmp_path / "scan.html").is_file()


def test_other_columns_are_no_labels_where_there_are_none(tmp_path, monkeypatch, unshaken, refused, write_rows) -> None:
    """The only other column is taken for the labels, unless one says that there are none."""
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "mails.csv", ("text", "day"), ("free money", "Monday"), ("see you", "Friday"))
    (tmp_path / "guard_without_labels.py").write_text(
        "def guard(texts):\n    return [[0.1, 0.9] if 'free' in text else [0.9, 0.1] for text in texts]\n"
    )
    words = ["scan", "--victim", "guard_without_labels:guard", "--labels", "ham,spam", "--family", "typos"]
    assert "unknown label 'Monday'" in refused(*words, "mails.csv")
    assert "leave one out" in refused(*words, "mails.csv", "--no-labels", "--label-column", "day")
    assert "--no-labels would do nothing" in refused(*words, "rotten-tomatoes", "--no-labels")
    code, out, err = unshaken(*words, "mails.csv", "--no-labels")
    assert code == 0, err
    assert "2 of 2 answers count as right by the victim's own answers" in " ".join(out.split())
