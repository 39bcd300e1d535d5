"""What passes a gate: no search that ended in an error, nothing by rounding, no labels in another order."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unshaken import Examples, Victim
from unshaken.cli.scan import scan as scan_command
from unshaken.errors import UnshakenError
from unshaken.scanning import Broken, FamilyResult, ScanResult, families, scan
from unshaken.scanning.formats import cells, junit, page, sarif

TEXTS = [f"free money {name}" for name in ("alpha", "beta", "gamma", "delta")]
EXAMPLES = Examples.from_lists([*TEXTS, "see you at noon"], [1] * 4 + [0], label_names=("ham", "spam"), name="mails")
(HOMOGLYPHS,) = families(["homoglyphs"])
READABLE = {*EXAMPLES.texts, *((HOMOGLYPHS.fixed(text),) for (text,) in EXAMPLES.texts)}


def refusing(refused: tuple[str, ...]) -> Victim:
    """Finds spam as it is and under the fixed edit, loses it under part of it, and refuses texts with these words."""

    def guard(texts: list[str]) -> list[list[float]]:
        if any((text,) not in READABLE and any(name in text for name in refused) for text in texts):
            raise RuntimeError("HTTP 413: <too> large")
        caught = [(text,) in READABLE and "see" not in text and "ѕее" not in text for text in texts]
        return [[0.01, 0.99] if one else [0.99, 0.01] for one in caught]

    return Victim.from_callable(guard, label_names=("ham", "spam"), name="refusing", batch_size=1)


def scanned(*refused: str) -> ScanResult:
    return scan(refusing(refused), EXAMPLES, protect="spam", families=["homoglyphs"])


def made(**changes: int) -> ScanResult:
    """A result of one family with these counts, no search if none is given."""
    counts = {"total": 100, "kept_fixed": 100, "searched": 0, "found": 0, "errors": 0, **changes}
    rest = {"harmless": 0, "alarms_before": 0, "alarms_after": 0, "queries": 1}
    family = FamilyResult(name="typos", title="t", people="p", seconds=0.0, broken=(), **counts, **rest)  # type: ignore[arg-type]
    right = counts["total"]
    return ScanResult(
        **{"victim": "v", "data": "d", "protect": None, "threshold": 0.5},  # type: ignore[arg-type]
        **{"examples": right, "relevant": right, "right": right},
        families=(family,),
    )


# ------------------------------------------------------------------------------------- searches that got no answer


def test_searches_without_an_answer_are_not_withstood() -> None:
    """Each search breaks its text where it is answered: an error says nothing of the others."""
    (known,) = scanned().families
    assert (known.kept_fixed, known.searched, known.found, known.errors, known.kept_share) == (4, 4, 4, 0, 0.0)
    result = scanned("alpha", "beta", "gamma")
    (part,) = result.families
    assert (part.kept_fixed, part.searched, part.found, part.errors, part.kept_share) == (4, 1, 1, 3, 0.0)
    assert part.error is not None
    assert "HTTP 413" in part.error
    assert "homoglyphs 3 of 4" in result.unanswered()
    assert scanned().unanswered() == ""
    assert result.sampling() == ""  # all four survivors were tried


def test_a_family_without_one_answer_passes_no_gate(tmp_path: Path) -> None:
    result = scanned("free", "frее", "money", "mоnеу")
    (family,) = result.families
    assert (family.kept_fixed, family.searched, family.errors, family.is_unknown) == (4, 0, 4, True)
    assert result.failures(1) == [family]
    assert result.score == 0.0
    assert "100%" not in result.sentence()
    assert "is not known" in result.sentence()
    assert "unknown" in repr(result)
    assert (cells(family)[1], cells(family)[3]) == ("-", "error")
    assert ScanResult.load(result.save(tmp_path / "scan.json")) == result
    shown = page(result)
    assert "homoglyphs 4 of 4" in shown
    assert "but no search got an answer" in shown
    assert "&lt;too&gt;" in shown
    assert "<too>" not in shown
    (rule,) = sarif(result, 80)["runs"][0]["tool"]["driver"]["rules"]
    assert (rule["properties"]["kept"], rule["properties"]["errors"]) == (None, 4)


def test_junit_calls_a_family_without_answers_an_error() -> None:
    result = scanned("free", "frее", "money", "mоnеу")
    suite = ElementTree.fromstring(junit(result, 80))
    assert (suite.get("failures"), suite.get("errors")) == ("0", "1")
    (error,) = suite.iter("error")
    assert error.get("message") == "4 of 4 searches ended in an error"
    assert "HTTP 413" in str(error.text)
    suite = ElementTree.fromstring(junit(made(kept_fixed=50, errors=20), 80))  # too few without any search
    assert (suite.get("failures"), suite.get("errors")) == ("1", "0")
    assert str(next(suite.iter("failure")).get("message")).startswith("50% of the right answers survive")
    suite = ElementTree.fromstring(junit(made(searched=15, errors=5), 80))
    assert (suite.get("failures"), suite.get("errors")) == ("0", "0")
    assert "5 of 20 searches ended in an error" in str(next(suite.iter("system-err")).text)


def test_known_families_are_told_beside_one_without_answers() -> None:
    both = made(kept_fixed=60)
    silent = replace(made(errors=3).families[0], name="spacing")
    result = replace(both, families=(*both.families, silent))
    assert "Under the worst edits that are known, typos (t), 60% of them still are." in result.sentence()
    assert result.failures(60) == [silent]


def test_a_scan_of_an_earlier_release_has_no_errors(tmp_path: Path) -> None:
    value = made(searched=20, found=5).to_json()
    assert value["schema_version"] == 1  # theirs
    del value["seed"], value["file"], value["families"][0]["errors"], value["families"][0]["error"]
    (tmp_path / "scan.json").write_text(json.dumps(value))
    found = ScanResult.load(tmp_path / "scan.json")
    assert (found.seed, found.file, found.families[0].errors, found.families[0].kept_share) == (None, None, 0, 0.75)


def test_the_command_fails_where_no_search_is_answered(tmp_path, monkeypatch, unshaken, write_rows) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "mails.csv", ("text", "label"), ("free money", "spam"), ("see you", "ham"))
    (tmp_path / "guard_behind_a_gateway.py").write_text(
        "def guard(texts):\n"
        "    if any(0 < sum(ord(c) > 127 for c in text) < 3 for text in texts):\n"
        "        raise RuntimeError('HTTP 413')\n"
        "    return [[0.1, 0.9] if text[0] == 'f' else [0.9, 0.1] for text in texts]\n"
    )
    words = ["scan", "--victim", "guard_behind_a_gateway:guard", "mails.csv", "--labels", "ham,spam"]
    words += ["--protect", "spam", "--family", "homoglyphs"]
    code, out, err = unshaken(*words, "--fail-under", 50)
    said = " ".join(out.split())
    assert code == 1, err
    assert "No search got an answer (--fail-under): homoglyphs." in said
    assert "homoglyphs 1 of 1. The first error:" in said
    assert "HTTP 413" in said
    assert "Below" not in said


@pytest.mark.parametrize(("alarms", "is_told"), [(0, False), (5, False), (6, True), (10, True)])
def test_what_a_guard_stops_besides_is_told_where_it_is_most_of_the_rest(alarms: int, is_told: bool) -> None:
    result = made()
    guarded = replace(result.families[0], harmless=10, alarms_before=alarms)
    told = replace(result, protect="spam", families=(guarded,)).sentence()
    assert (f"and so are {alarms} of 10 others" in told) == is_told


def test_a_sample_is_told_where_not_all_survivors_were_searched() -> None:
    assert made(kept_fixed=2, searched=1).sampling().startswith("Searches were tried on at most 1 ")
    assert made(kept_fixed=5, searched=2, errors=2).sampling().startswith("Searches were tried on at most 4 ")
    for counts in ({"kept_fixed": 1, "searched": 1}, {"kept_fixed": 5, "searched": 3, "errors": 2}, {"kept_fixed": 5}):
        assert made(**counts).sampling() == ""


# -------------------------------------------------------------------------------------------------------- rounding


@pytest.mark.parametrize("total", [50, 100, 200, 1000])
def test_what_reaches_the_limit_passes(total: int) -> None:
    """100 * (57 / 100) is 56.99999999999999 in floats, and so are others, with a search and without."""
    for kept in range(1, total + 1):
        limit = 100 * kept / total
        assert made(total=total, kept_fixed=kept).failures(limit) == [], (kept, total)
        assert len(made(total=total, kept_fixed=kept - 1).failures(limit)) == 1
    assert made(kept_fixed=57).failures(57) == []
    assert made(kept_fixed=57).score == 57
    assert made(kept_fixed=95, searched=20, found=8).failures(57) == []
    assert len(made(kept_fixed=57).failures(57.01)) == 1
    assert made(total=1000, kept_fixed=999).failures(99.9) == []


@pytest.mark.parametrize(
    ("kept", "total", "said"),
    [(299, 300, "99.7%"), (300, 300, "100%"), (1, 300, "0.3%"), (0, 300, "0%"), (2, 3, "67%")],
)
def test_only_all_is_called_100_percent_and_only_none_0(kept: int, total: int, said: str) -> None:
    result = made(total=total, kept_fixed=kept)
    assert f", {said} of them still are" in result.sentence()
    assert repr(result).endswith(f"keeps {said})")
    assert cells(result.families[0])[1] == said


@pytest.mark.parametrize(
    ("kept", "limit", "said"),
    [(796, 80, "79.6% of the right answers survive, 80% are"), (799, 79.95, "79.9% "), (500, 80, "50% ")],
)
def test_what_fails_is_told_as_less_than_what_is_asked_for(kept: int, limit: float, said: str) -> None:
    (failure,) = ElementTree.fromstring(junit(made(total=1000, kept_fixed=kept), limit)).iter("failure")
    assert str(failure.get("message")).startswith(said)


# ------------------------------------------------------------------------------------------------ files and labels


def test_sarif_names_the_file_as_it_was_given(tmp_path, monkeypatch, unshaken, write_rows) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my data").mkdir()
    for name in ("mails.csv", "more.csv"):
        write_rows(tmp_path / "my data" / name, ("text", "label"), ("free money", "spam"), ("see you", "ham"))
    write_rows(tmp_path / "plain.csv", ("text",), ("free money",), ("see you",))
    (tmp_path / "guard_of_files.py").write_text(
        "def guard(texts):\n    return [[0.1, 0.9] if 'free' in text else [0.9, 0.1] for text in texts]\n"
    )
    words = ["scan", "--victim", "guard_of_files:guard", "--labels", "ham,spam", "--family", "leetspeak"]

    def place(folder: str) -> Any:
        (run,) = json.loads((tmp_path / folder / "scan.sarif").read_text())["runs"]
        (uri,) = {item["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for item in run["results"]}
        return uri

    for data, out in (("my data/mails.csv,my data/more.csv", "two"), ("plain.csv", "one")):
        code, _, err = unshaken(*words, data, "--search", 0, "--out", out)
        assert code == 0, err
    assert place("one") == "plain.csv"
    assert (place("two/mails-test"), place("two/more-test")) == ("my%20data/mails.csv", "my%20data/more.csv")
    result = ScanResult.load(tmp_path / "one" / "scan.json")
    whole = replace(result, file=str(tmp_path / "plain.csv"))
    (found,) = sarif(whole, 0)["runs"][0]["results"]
    assert found["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == (tmp_path / "plain.csv").as_uri()


def test_machines_read_shares_in_percent_and_the_first_five_texts() -> None:
    family = replace(
        made(total=1000, kept_fixed=796).families[0],
        broken=tuple(
            Broken(id=str(n), before=(f"<{n}>",), after=("x",), answer="ham", confidence=0.9, by_search=False)
            for n in range(8)
        ),
    )
    result = replace(made(), families=(family,))
    (rule,) = sarif(result, 80)["runs"][0]["tool"]["driver"]["rules"]
    assert rule["properties"]["kept"] == 79.6
    (failure,) = ElementTree.fromstring(junit(result, 80)).iter("failure")
    assert str(failure.text).splitlines() == [line for n in range(5) for line in (f"<{n}>", "  -> x")]


def test_twenty_searches_of_two_hundred_questions_are_what_function_and_command_try() -> None:
    function, command = (signature(one).parameters for one in (scan, scan_command))
    defaults = {name: function[name].default for name in ("search", "query_budget", "similarity", "seed")}
    assert defaults == {"search": 20, "query_budget": 200, "similarity": 0.0, "seed": 0}
    assert (command["search"].default, command["seed"].default) == (20, 0)


def test_of_no_right_answer_nothing_survives() -> None:
    assert (made(total=0, kept_fixed=0).families[0].fixed_share, made(total=0, kept_fixed=0).score) == (0.0, 0.0)


@pytest.mark.parametrize("protect", [None, "spam"])
def test_labels_in_another_order_are_refused_before_anything_is_asked(protect: str | None) -> None:
    asked: list[str] = []

    def guard(texts: list[str]) -> np.ndarray:
        asked.extend(texts)
        return np.array([[0.1, 0.9]] * len(texts))

    victim = Victim.from_callable(guard, label_names=("ham", "spam"))
    turned = Examples.from_lists(["free money", "see you"], ["spam", "ham"], label_names=("spam", "ham"))
    more = Examples.from_lists(["free money", "see you"], [1, 2])
    for rows, message in ((turned, "counts its classes as ham, spam"), (more, "has the label 2")):
        with pytest.raises(UnshakenError, match=message):
            scan(victim, rows, protect=protect, families=["typos"])
    assert asked == []


def test_the_command_refuses_every_set_with_other_labels_before_it_scans_one(tmp_path, monkeypatch, refused) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "guard_of_other_classes.py").write_text(
        "def guard(texts):\n    raise AssertionError('it is not to be asked')\n"
    )
    rows = Examples.from_lists(["free", "see"], [0, 1], label_names=("ham", "spam"))
    turned = replace(rows, label_names=("spam", "ham"))
    monkeypatch.setattr("unshaken.cli.data.load_sets", lambda *_, **__: {"rows": rows, "turned": turned})
    words = ["scan", "--victim", "guard_of_other_classes:guard", "--labels", "ham,spam", "rotten-tomatoes"]
    assert "counts its classes as ham, spam" in refused(*words)
