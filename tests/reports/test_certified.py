"""Certificates inside an evaluation: their numbers in closed form, and views that keep them apart from attacks."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from unshaken.attacks import PWWS, Victim
from unshaken.certificates import ALL_WORDS, Certified, Deletion, RanMask, Safer
from unshaken.errors import UnshakenError
from unshaken.evaluation import Report, citations, evaluate
from unshaken.evaluation.report import merge
from unshaken.examples import Example, Examples
from unshaken.reports.certified import certified_rows
from unshaken.substitutions import Dictionary
from unshaken.victims.calibrated import at_temperature

SAMPLES, ALPHA = 200, 0.01
TEXTS = ("a good film", "a good plot in a film", "a slow film", "a good end of it all")
SETTINGS: dict[str, Any] = {"samples": SAMPLES, "guesses": 20, "alpha": ALPHA}


def rows() -> Examples:
    examples = [Example(id=str(number), texts=(text,), label=1) for number, text in enumerate(TEXTS)]
    return Examples(rows=tuple(examples), name="made", label_names=("negative", "positive"))


def always_positive() -> Victim:
    return Victim.from_callable(lambda texts: [[0.1, 0.9]] * len(texts), num_labels=2, name="always")


def finds_good() -> Victim:
    """Positive while the text has the word: over deletions at rate 1/2 that is a coin, and the majority abstains."""
    return Victim.from_callable(
        lambda texts: [[0.1, 0.9] if "good" in text else [0.9, 0.1] for text in texts], num_labels=2, name="finds"
    )


def only(report: Report) -> Certified:
    ((found,),) = (item.certificates for item in report.evaluations)
    return found


def test_a_model_that_never_changes_its_mind_is_certified_as_far_as_its_samples_go() -> None:
    """All of n samples bound the share by alpha^(1/n), so r deletions hold while alpha^(1/n) - 1 + rate^r > 1/2."""
    found = only(evaluate(always_positive(), rows(), certificates=Deletion(rate=0.9, **SETTINGS)))
    share = ALPHA ** (1 / SAMPLES)
    expected = math.floor(math.log(1.5 - share) / math.log(0.9))
    assert [row.share for row in found.rows] == pytest.approx([share] * len(TEXTS))
    assert {row.radius for row in found.rows} == {expected} == {6}
    assert found.accuracy(6) == 1
    assert found.accuracy(7) == 0
    assert found.abstained == 0
    assert 0 < found.asked <= len(TEXTS) * (SAMPLES + 20)
    assert found.seconds > 0


def test_a_coin_abstains_and_counts_as_wrong() -> None:
    found = only(evaluate(finds_good(), rows(), certificates="deletion:rate=0.5,samples=200,guesses=20,alpha=0.01"))
    has_word = ["good" in text for text in TEXTS]
    assert [row.prediction for row in found.rows] == [None if has else 0 for has in has_word]
    assert found.abstained == 0.75
    assert found.clean == 0  # the one that does not abstain has the wrong answer, whatever its radius
    assert found.rows[2].radius >= 0


def test_swaps_that_neighbourhoods_share_are_certified_without_end() -> None:
    words = Dictionary(entries={"good": ["fine"], "fine": ["good"]})
    found = only(evaluate(always_positive(), rows(), certificates=Safer(substitutions=words, **SETTINGS)))
    assert {row.radius for row in found.rows} == {ALL_WORDS}
    assert (found.proved().hits, found.proved().total) == (4, 4)
    assert found.asked == 3 * 2 + 1  # each text with both words, or alone: equal draws are asked once


def test_certificates_are_kept_resumed_merged_and_read_back(tmp_path: Path) -> None:
    asked = []

    def answer(texts: Any) -> list[list[float]]:
        asked.extend(texts)
        return [[0.1, 0.9]] * len(texts)

    victim = Victim.from_callable(answer, num_labels=2, name="always")
    proof = RanMask(keep=0.5, **SETTINGS)
    first = evaluate(victim, rows(), certificates=[proof], out=tmp_path / "out")
    assert Report.load(tmp_path / "out").evaluations == first.evaluations
    asked.clear()
    again = evaluate(victim, rows(), certificates=[proof, Deletion(**SETTINGS)], out=tmp_path / "out", resume=True)
    kept, new = again.evaluations[0].certificates
    assert kept == only(first)
    assert new.certificate == "deletion"
    assert not any("[UNK]" in text for text in asked)  # no masked text was asked about again
    plain = evaluate(victim, rows())
    both = merge([plain, first, again]).evaluations[0].certificates
    assert [item.certificate for item in both] == ["ranmask", "deletion"]


def test_a_certificate_names_its_paper() -> None:
    """`cite` said that nothing but this library's own methods was used."""
    proofs = [
        Safer(substitutions=Dictionary(entries={"good": ["fine"]}), samples=2, guesses=1),
        RanMask(samples=2, guesses=1),
    ]
    found = citations.of_evaluations(evaluate(always_positive(), rows(), certificates=proofs).evaluations)
    assert found == citations.bibtex(["ye-etal-2020-safer", "zeng-etal-2023-certified"])
    assert len(found) == 2


def test_a_file_from_before_certificates_is_read() -> None:
    value = json.loads(json.dumps(evaluate(always_positive(), rows()).to_json()))
    del value["evaluations"][0]["certificates"]
    assert Report.from_json(value).evaluations[0].certificates == ()


def test_a_certificate_of_other_examples_is_refused() -> None:
    report = evaluate(always_positive(), rows(), certificates=Deletion(**SETTINGS))
    value = json.loads(json.dumps(report.to_json()))
    value["evaluations"][0]["certificates"][0]["rows"].pop()
    with pytest.raises(UnshakenError, match="deletion is a certificate of other examples"):
        Report.from_json(value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda item: item["rows"][0].update(label=0), "deletion has other labels"),
        (lambda item: item.update(fingerprint="0" * 64), "deletion is a certificate of another model"),
        (lambda item: item["settings"].pop("samples"), "deletion does not tell its samples"),
        (lambda item: item["settings"].update(alpha="small"), "deletion does not tell its samples"),
    ],
)
def test_a_certificate_that_was_changed_is_refused(change: Any, said: str) -> None:
    report = evaluate(always_positive(), rows(), certificates=Deletion(**SETTINGS))
    value = json.loads(json.dumps(report.to_json()))
    assert Report.from_json(value).evaluations == report.evaluations
    change(value["evaluations"][0]["certificates"][0])
    with pytest.raises(UnshakenError, match=said):
        Report.from_json(value)


def test_views_show_it_in_a_table_of_its_own(tmp_path: Path) -> None:
    words = Dictionary(entries={"good": ["fine"], "fine": ["good"]})
    report = evaluate(
        finds_good(), rows(), PWWS(substitutions=words), certificates=Deletion(rate=0.5, **SETTINGS), seed=0
    )
    evaluation = report.evaluations[0]
    assert evaluation.conditions == ("clean", "pwws")  # certified is no condition: no worst case, chart or test has it
    stream = io.StringIO()
    Console(file=stream, width=80).print(report)
    terminal = stream.getvalue()
    before, _, after = terminal.partition("Certified (%)")
    assert "pwws" in before
    assert "deletion" not in before
    assert max(map(len, after.splitlines())) <= 80
    assert "…" not in after  # rich cuts what has no room: numbers, before
    (line,) = (line.split() for line in after.splitlines() if "49.0]" in line)
    assert line[-7:] == ["0.0", "0.0", "0.0", "0.0", "0.0", "[0.0,", "49.0]"]
    asked = f"{evaluation.certificates[0].asked / 4:.0f}"
    cost = "4 texts, abstains from 75.0%, 200 samples, alpha 0.01, " + asked + " asked per text"
    assert f"deletion:guesses=20,rate=0.5, finds on made: {cost}" in " ".join(after.split())

    markdown = report.save(tmp_path / "report.md").read_text()
    assert "## Certified" in markdown
    main, _, _ = markdown.partition("## Certified")
    assert "deletion" not in main
    page = report.save(tmp_path / "report.html").read_text()
    (table,) = re.findall(r'aria-label="Certified".*?</table>', page, re.DOTALL)
    assert re.findall(r"<td[^>]*>([^<]*)</td>", table)[:5] == [
        "made",
        "finds",
        "deletion:guesses=20,rate=0.5",
        "4",
        "75.0",
    ]
    lines = csv.DictReader(io.StringIO(report.save(tmp_path / "report.csv").read_text()))
    assert [line["condition"] for line in lines] == ["clean", "pwws"]
    plain = evaluate(finds_good(), rows()).save(tmp_path / "plain.html").read_text()
    assert "Certified" not in plain


def test_certificates_of_one_kind_are_told_apart() -> None:
    sets = [Dictionary(entries={"good": [word]}) for word in ("fine", "nice")]
    usual: dict[str, Any] = {"samples": 10, "alpha": 0.1}  # which have columns
    proofs = [*(RanMask(keep=keep, **usual) for keep in (0.1, 0.5)), RanMask(seed=3, mask="X", **usual)]
    report = evaluate(
        always_positive(), rows(), certificates=[*proofs, *(Safer(substitutions=own, **usual) for own in sets)]
    )
    assert [line[2] for line in certified_rows(Report.from_json(json.loads(json.dumps(report.to_json()))))] == [
        "ranmask",
        "ranmask:keep=0.5",
        "ranmask:seed=3,mask=X",
        *(f"safer:substitutions=dictionary [{own.fingerprint[:6]}]" for own in sets),
    ]


def test_a_static_set_is_certified_as_any_other() -> None:
    data = rows().with_rows([Example(id="0", texts=("a fine film",), label=1, original=("a good film",))])
    assert data.is_static
    assert only(evaluate(always_positive(), data, certificates=Deletion(**SETTINGS))).clean == 1


def test_a_victim_at_a_temperature_of_ones_own_is_certified() -> None:
    found = only(evaluate(at_temperature(always_positive(), 2), rows(), certificates=Deletion(**SETTINGS)))
    assert found.clean == 1


def test_a_dry_run_measures_no_certificate_and_says_so(refused: Any, tiny: str) -> None:
    line = refused("evaluate", tiny, "sst2", "--dry-run", "--certify", "safer")
    assert "leave out --certify" in line


def test_a_calibrated_twin_is_not_certified_twice() -> None:
    report = evaluate(finds_good(), rows(), certificates=Deletion(**SETTINGS), calibrate=True)
    assert [len(item.certificates) for item in report.evaluations] == [1, 0]
