"""Every number under its own name: no other model's, no other attack's, no method's that was asked otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from report_parts import made_evaluation, run

from unshaken.evaluation.comparison import by_method, mean_interval
from unshaken.evaluation.results import Evaluation, Recheck
from unshaken.reports import Report, merge
from unshaken.reports.headline import headline
from unshaken.reports.html import _accuracy_table
from unshaken.reports.model_card import model_card

VOTE = {"k": 8, "rate": 0.5, "seed": 0, "substitutions": {"name": "wordnet", "fingerprint": "v"}}


def asked(item: Evaluation, **changes: Any) -> Evaluation:
    """The same weights asked otherwise: another victim."""
    return replace(item, model=replace(item.model, fingerprint=f"{changes}".ljust(64, "0"), **changes))


def report_of(*evaluations: Evaluation) -> Report:
    return Report(evaluations=evaluations)


def test_a_card_has_no_numbers_of_other_models_or_of_other_ways_to_ask() -> None:
    own = made_evaluation(model="swap", wrong=(1,))
    record = own.model.training
    assert record is not None
    stranger = made_evaluation(model="public", wrong=(1, 2, 3))
    unknown = replace(stranger, model=replace(stranger.model, training=None))
    others = [unknown, *(asked(own, **one) for one in ({"vote": VOTE}, {"temperature": 2.0}, {"reader": "leet"}))]
    for other in others:
        changed = replace(other, predictions=stranger.predictions)
        card = model_card(record, report_of(own, changed))
        assert card.count("| made | clean |") == 1
        assert "90.0 \\[" in card
    assert "70.0 \\[" in model_card(record, report_of(unknown))  # which can be no other
    assert "Not evaluated yet" in model_card(record, report_of(others[1]))


def test_the_headline_compares_equal_attacks_alone() -> None:
    plain = made_evaluation(run("xxxxxooooo"), model="plain")
    weak = made_evaluation(run("oooooooooo", query_budget=2), model="hard")
    told = "Of 10 texts of made, plain-0 answers 100.0% rightly, and 50.0% under pwws."
    assert headline(report_of(plain, weak)) == told
    same = made_evaluation(run("oooooooxoo"), model="same")
    assert "same-0 answers 90.0% rightly under pwws and plain-0 50.0%" in headline(report_of(plain, weak, same))


def test_the_headline_tells_of_how_many_texts_a_share_is() -> None:
    few = made_evaluation(run("oooo!!!!!!"), model="few")
    start = "Of 10 texts of made, few-0 answers 100.0%"
    known = "(of the 4 that could be attacked)"
    assert headline(report_of(few)) == f"{start} rightly, and 100.0% {known} under pwws."
    plain = made_evaluation(run("oooooxxxxx"), model="plain")
    both = headline(report_of(plain, few))
    assert both == f"{start} {known} rightly under pwws and plain-0 50.0%: no difference on the 4 known of both."


def test_a_column_marks_what_was_attacked_otherwise() -> None:
    plain, same = (made_evaluation(run("xxxxxooooo"), model=model) for model in ("plain", "same"))
    weak = made_evaluation(run("oooooooooo", query_budget=2), model="hard")
    report = report_of(plain, same, weak)
    rows = _accuracy_table(report, by_method(report.evaluations)[0])["rows"]
    chips = [[(cell["chip"] or {}).get("text") for cell in row["cells"]] for row in rows]
    assert [chip[1] for chip in chips] == [None, "+0.0", "other settings"]
    assert chips[2][0] == "+0.0"  # clean answers are the same question to all


def test_another_reader_or_another_vote_is_another_method() -> None:
    plain = [made_evaluation(model="plain", seed=seed, wrong=(0, 1)) for seed in range(3)]
    reading = [asked(item, reader="leet", name=item.model.name + "r") for item in plain]
    found = report_of(*plain, *reading)
    assert [one.method for one in found.spreads] == ["plain", "plain + reader leet"]
    assert "(mean of 3 seeds)" in headline(report_of(*plain))
    read = replace(plain[0].model.training, details={"reader": "unicode + leet:doubt=20"})  # type: ignore[type-var]
    trained = replace(plain[0].model, training=read)
    methods = [replace(trained, reader=reader).method for reader in (None, "leet,unicode", "", "leet")]
    assert methods == ["plain", "plain", "plain without its reader", "plain + reader leet"]

    typos = {**VOTE, "rate": 0.1, "substitutions": {"name": "typos", "fingerprint": "t"}}
    votes = [VOTE, {**VOTE, "seed": 7}, typos]
    voted = [asked(item, vote=vote) for item, vote in zip(plain, votes, strict=True)]
    report = report_of(*voted)
    first, second = "plain + vote of 8 (rate 0.5, wordnet)", "plain + vote of 8 (rate 0.1, typos)"
    assert [item.model.method for item in report.evaluations] == [first, first, second]
    assert [len(one.accuracy.values) for one in report.spreads] == [2]
    assert Report.from_json(report.to_json()) == report
    assert report_of(*report.evaluations[:2]).evaluations[0].model.method == "plain + vote of 8"


def test_no_order_of_merged_runs_hides_what_one_of_them_found() -> None:
    own = made_evaluation(run("xxoooooooo"))
    (one,) = own.attacks
    worse = Recheck(variant="margin scoring", total=10, held=8, held_by_variant=1)
    bare, rechecked = replace(one, rechecks=()), replace(one, rechecks=(worse,))
    failed = replace(run("!!!!!!!!!!"), rechecks=())
    shaky = replace(own.probes, repeat_difference=0.5, trained_on=7)
    plain = report_of(replace(own, attacks=(bare,), probes=replace(own.probes, trained_on=None)))
    others = [report_of(replace(own, attacks=(rechecked,))), report_of(replace(own, attacks=(failed,), probes=shaky))]
    for reports in ([plain, *others], [*others, plain], [*reversed(others), plain]):
        merged = merge(reports)
        assert {flag.flag for flag in merged.flags} == {"miscalibration", "randomness", "trained-on", "few-seeds"}
        assert merged.evaluations[0].attacks == (rechecked,)
        assert merged.evaluations[0].probes == shaky


def test_seeds_are_no_further_examples_of_a_group() -> None:
    seeds = [made_evaluation(model="plain", seed=seed, wrong=(0, 1, 2)) for seed in range(3)]
    grouped = [
        replace(item, predictions=tuple(replace(row, group="all") for row in item.predictions)) for item in seeds
    ]
    report = report_of(*grouped)
    (row,) = _accuracy_table(report, by_method(report.evaluations)[0])["rows"]
    clean, group = row["cells"]
    assert [group[key] for key in ("value", "low", "high")] == [clean[key] for key in ("value", "low", "high")]
    wanted = mean_interval([[0.0] * 3 + [1.0] * 7] * 3)
    assert group["low"] == pytest.approx(100 * wanted.low)
