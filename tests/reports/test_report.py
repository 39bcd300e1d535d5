"""Results <-> JSON, errors with their path, merging, and nothing overwritten half-way."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_parts import NEW, made_evaluation, run
from rich.console import Console

from unshaken.errors import UnshakenError
from unshaken.evaluation.comparison import by_method
from unshaken.evaluation.results import Evaluation
from unshaken.evaluation.statistics import holm, over_seeds_and_examples, wilson
from unshaken.proportion import Proportion
from unshaken.reports import SCHEMA_VERSION, Report, charts, merge
from unshaken.reports.headline import headline
from unshaken.reports.html import _accuracy_table, page
from unshaken.reports.model_card import model_card
from unshaken.reports.views import baselines, markdown, rows, terminal


@pytest.fixture
def report() -> Report:
    first = made_evaluation(run("xxxxxooo--"), run("xxooooxx--", "genetic", population=4), model="plain", wrong=(8, 9))
    second = made_evaluation(run("xooooooo!-"), run("oooooooo!-", "genetic", population=4), model="hard", wrong=(9,))
    return Report(evaluations=(first, second))


def test_json_round_trip_keeps_every_fact(report: Report, tmp_path: Path) -> None:
    path = report.save(tmp_path / "report.json")
    loaded = Report.load(path)
    assert loaded == report
    assert loaded.comparisons == report.comparisons
    assert loaded.checks == report.checks
    assert Report.load(tmp_path) == report  # a folder stands for its report.json


def test_the_file_says_what_a_reviewer_asks_for(report: Report, tmp_path: Path) -> None:
    value = json.loads(report.save(tmp_path / "report.json").read_text())
    assert value["schema_version"] == SCHEMA_VERSION
    evaluation = value["evaluations"][0]
    assert evaluation["model"]["fingerprint"]
    assert evaluation["data"]["fingerprint"]
    assert evaluation["predictions"][0]["id"] == "id0"
    assert evaluation["attacks"][0]["settings"]["substitutions"]["fingerprint"]
    assert evaluation["environment"]["libraries"]
    assert value["derived"]["comparisons"][0]["p_value"] is not None
    assert {check["flag"] for check in value["derived"]["checks"]} >= {"few-seeds"}


def test_accuracies_count_what_they_say(report: Report) -> None:
    first, second = report.evaluations
    assert (first.accuracy("clean").hits, first.accuracy("clean").total) == (8, 10)
    assert first.accuracy("pwws").hits == 3
    assert first.accuracy("worst case").hits == 1  # id5 alone stands both
    # The attack on id8 ended in an error: it proves nothing and is left out.
    assert (second.accuracy("pwws").hits, second.accuracy("pwws").total) == (7, 9)
    assert (second.accuracy("worst case").hits, second.accuracy("worst case").total) == (7, 9)


def test_comparisons_are_paired_on_shared_examples(report: Report) -> None:
    found = {item.condition: item for item in report.comparisons}
    pwws = found["pwws"]
    assert pwws.total == 9
    assert (pwws.only_reference, pwws.only_model) == (0, 4)
    assert pwws.difference == pytest.approx(4 / 9)
    # Four of four differing examples: exact p is 2 * 0.5**4, mid-p half of it.
    assert pwws.p_value == pytest.approx(0.5**4)
    assert pwws.p_adjusted >= pwws.p_value


def test_every_model_is_compared_and_corrected_for_how_many_there_are() -> None:
    marks = {"plain": "x" * 10, "hard": "o" * 8 + "x" * 2, "harder": "o" * 6 + "x" * 4, "hardest": "o" * 10}
    found = Report(evaluations=tuple(made_evaluation(run(held), model=name) for name, held in marks.items()))
    attacked = [item for item in found.comparisons if item.condition == "pwws"]
    assert [(item.reference, item.model) for item in attacked] == [("plain-0", f"{name}-0") for name in list(marks)[1:]]
    # McNemar's mid-p where one side alone is right k times: half of the chance of k heads in k throws, times two.
    assert [item.p_value for item in attacked] == pytest.approx([0.5**8, 0.5**6, 0.5**10])
    p_values = {str(number): item.p_value for number, item in enumerate(found.comparisons)}
    assert [item.p_adjusted for item in found.comparisons] == pytest.approx(list(holm(p_values).values()))
    least, tests = min(p_values.values()), len(p_values)
    assert min(item.p_adjusted for item in found.comparisons) == pytest.approx(tests * least)


def test_attacks_with_other_settings_are_not_compared(report: Report) -> None:
    first, second = report.evaluations
    other = replace(second.attacks[0], settings={**second.attacks[0].settings, "query_budget": 5})
    changed = Report(evaluations=(first, replace(second, attacks=(other, second.attacks[1]))))
    assert {item.condition for item in changed.comparisons} == {"clean", "genetic"}


def corrupt(value: dict, path: list, new: object) -> dict:
    value = copy.deepcopy(value)
    place = value
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = new
    return value


@pytest.mark.parametrize(
    ("path", "new", "message"),
    [
        (["schema_version"], 99, "schema version 99, this release reads 1"),
        (["evaluations"], {}, "'evaluations' is missing or not a list"),
        (
            ["evaluations", 0, "predictions", 3, "label"],
            "x",
            r"evaluations\[0\].predictions\[3\].label: expected a whole",
        ),
        (["evaluations", 0, "predictions", 3, "label"], True, r"predictions\[3\].label: expected a whole number"),
        (["evaluations", 0, "model", "fingerprnt"], "x", "unknown key 'fingerprnt'; did you mean 'fingerprint'"),
        (["evaluations", 0, "model"], {"name": "x"}, "the key 'fingerprint' is missing"),
        (["evaluations", 0, "attacks", 0, "results", 0, "example_id"], "ghost", "no prediction has the id 'ghost'"),
        (["evaluations", 0, "attacks", 0, "results", 0, "outcome"], "maybe", "'maybe' is none of 'skipped'"),
        (["evaluations", 0, "attacks", 0, "results", 0], 3, r"attacks\[0\].results\[0\]: expected an object, got 3"),
        (["evaluations", 0, "attacks"], 3, "attacks: expected a list, got 3"),
        (["evaluations", 0], [], r"evaluations\[0\]: expected an object"),
    ],
)
def test_a_bad_file_is_refused_with_its_key(
    report: Report, path: list, new: object, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "report.json"
    file.write_text(json.dumps(corrupt(report.to_json(), path, new)))
    with pytest.raises(UnshakenError, match=message):
        Report.load(file)


def test_an_attack_without_a_result_of_an_example_is_refused(report: Report) -> None:
    """It counted as held: without its broken texts any model stood everything."""
    value = report.to_json()
    attack = value["evaluations"][0]["attacks"][0]
    attack["results"] = [row for row in attack["results"] if row["outcome"] != "success"]
    with pytest.raises(UnshakenError, match=r"evaluations\[0\]: pwws was not tried on all examples"):
        Report.from_json(value)


@pytest.mark.parametrize("content", ["[]", "{}", "{", '"x"'])
def test_what_is_no_report_is_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(content)
    with pytest.raises(UnshakenError, match=str(file)):
        Report.load(file)


def test_an_unknown_suffix_is_refused(report: Report, tmp_path: Path) -> None:
    with pytest.raises(UnshakenError, match=r"known: \.json, \.md, \.tex, \.csv, \.html"):
        report.save(tmp_path / "report.docx")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(report: Report, tmp_path: Path) -> None:
    path = report.save(tmp_path / "report.json")
    before = path.read_bytes()
    broken = replace(report.evaluations[0], seconds=float("nan"))  # JSON has no NaN
    with pytest.raises(ValueError, match="JSON"):
        Report(evaluations=(broken,)).save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.json"]


def test_merge_joins_attacks_of_one_model_and_keeps_others_apart(report: Report) -> None:
    first, second = report.evaluations
    alone = [replace(first, attacks=(item,)) for item in first.attacks]
    merged = merge([Report(evaluations=(item,)) for item in (*alone, first, second)])
    assert merged == report


def test_data_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """Two files called held-out.jsonl stood in one table, under the majority baseline of one of them."""
    one, other = made_evaluation(model="a", data="held-out"), made_evaluation(model="b", data="other", total=9)
    other = replace(other, data=replace(other.data, name="held-out"))
    merged = merge([Report(evaluations=(one,)), Report(evaluations=(other,))])
    shares = {"held-out [held-o]": one.majority_baseline, "held-out [other0]": other.majority_baseline}
    assert baselines(merged) == shares
    assert one.majority_baseline != other.majority_baseline
    assert [row.data for row in rows(merged)] == list(shares)
    assert Report.load(merged.save(tmp_path / "report.json")) == merged
    assert baselines(merge([merged, Report(evaluations=(one,))])) == shares
    assert baselines(Report(evaluations=(one,))) == {"held-out": one.majority_baseline}


def test_the_terminal_shows_what_methods_of_several_seeds_differ_by() -> None:
    plain = [made_evaluation(run("xxxxxxxxoo"), model="plain", seed=seed) for seed in range(2)]
    swap = [made_evaluation(run("xooooooooo"), model="swap", seed=seed) for seed in range(2)]
    console = Console(width=120, record=True)
    console.print(terminal(Report(evaluations=(*plain, *swap))))
    lines = console.export_text().splitlines()
    (place,) = [number for number, line in enumerate(lines) if "swap, 2 seeds" in line]
    under_attack = next(line for line in lines[place:] if line.strip().startswith("pwws"))
    assert "90.0 [" in under_attack
    assert "+70.0" in under_attack


def test_the_sentence_about_one_method_is_about_all_its_seeds() -> None:
    seeds = (made_evaluation(run("xxxxxxxxoo"), seed=0), made_evaluation(run("xxxxoooooo"), seed=1, wrong=()))
    told = headline(Report(evaluations=seeds))
    assert told == "Of 10 texts of made, model answers 100.0% rightly, and 40.0% under pwws (mean of 2 seeds)."
    assert "model-0 answers 100.0% rightly, and 20.0% under pwws." in headline(Report(evaluations=seeds[:1]))


def test_merge_refuses_contradicting_answers(report: Report) -> None:
    first = report.evaluations[0]
    other = replace(first, predictions=(replace(first.predictions[0], prediction=1), *first.predictions[1:]))
    with pytest.raises(UnshakenError, match="disagree on 1 of 10 clean answers"):
        merge([Report(evaluations=(first,)), Report(evaluations=(other,))])


def test_merging_nothing_is_an_error() -> None:
    with pytest.raises(UnshakenError, match="nothing to report"):
        merge([])


def test_models_that_share_a_name_are_told_apart(report: Report) -> None:
    first, second = report.evaluations
    twin = replace(second, model=replace(second.model, name=first.model.name))
    assert list(Report(evaluations=(first, twin)).model_names.values()) == ["plain-0 [plain-]", "plain-0 [hard-0]"]


def test_seeds_of_one_method_are_summarised() -> None:
    seeds = [made_evaluation(run("xxxxx-----"), seed=seed, wrong=tuple(range(5, 5 + seed))) for seed in range(3)]
    spread = {item.condition: item.accuracy for item in Report(evaluations=tuple(seeds)).spreads}["clean"]
    assert spread.values == (1.0, 0.9, 0.8)
    assert spread.mean == pytest.approx(0.9)
    assert spread.std == pytest.approx(0.1)


def seeds_of(model: str, outcomes: list[str], **options: Any) -> list[Evaluation]:
    return [made_evaluation(run(word), model=model, seed=seed, **options) for seed, word in enumerate(outcomes)]


def test_methods_with_several_seeds_are_compared_over_seeds_and_examples() -> None:
    plain = ["xxxxxooooo", "xxxxooooox", "xxxxxxoooo"]
    hard = ["xooooooooo", "ooxooooooo", "oooooooxoo"]
    found = Report(evaluations=(*seeds_of("plain", plain), *seeds_of("hard", hard)))
    assert [(item.model, item.reference, item.condition, item.seeds) for item in found.comparisons] == [
        ("hard", "plain", "clean", 3),
        ("hard", "plain", "pwws", 3),
    ]
    change = [[(b == "o") - (a == "o") for a, b in zip(*pair, strict=True)] for pair in zip(plain, hard, strict=True)]
    wanted = over_seeds_and_examples([change])
    pwws = found.comparisons[1]
    assert (pwws.difference, *pwws.interval, pwws.p_value) == pytest.approx(
        (wanted.estimate, wanted.low, wanted.high, wanted.p_value)
    )
    assert "Methods over seeds and examples" in markdown(found)
    assert "over 3 seeds" in headline(found)
    assert Report.from_json(json.loads(json.dumps(found.to_json()))).comparisons == found.comparisons


def test_seeds_are_paired_by_their_number_in_whatever_order_they_come() -> None:
    """Seeds far apart, and methods that differ by the same two examples at each: crosswise, the spread hides it."""
    plain, hard = ["xxxooooooo", "xxxxxxoooo", "xxxxxxxxxo"], ["xooooooooo", "xooxxxoooo", "xooxxxxxxo"]
    wanted = over_seeds_and_examples([[[0, 1, 1, *[0] * 7]] * 3])
    for order in (1, -1):
        found = Report(evaluations=(*seeds_of("plain", plain), *seeds_of("hard", hard)[::order])).comparisons[1]
        assert (found.difference, *found.interval) == pytest.approx((wanted.estimate, wanted.low, wanted.high))


def test_methods_are_compared_where_both_are_known() -> None:
    """One example is known of no seed, one of one alone; nothing is known of a seed of the reference.

    Of two models of one seed the first counts.
    """
    plain = seeds_of("plain", ["xo!oo", "xxo!o", "!!!!!"], total=5)
    again = made_evaluation(run("ooooo"), model="plain", seed=0, total=5)
    hard = seeds_of("hard", ["oxo!o", "ooxoo", "ooooo"], total=5)
    found = Report(evaluations=(*plain, again, *hard)).comparisons[1]
    assert (found.seeds, found.total, found.only_reference, found.only_model) == (2, 4, 2, 3)
    assert found.difference == pytest.approx((0 / 3 + 1 / 4) / 2)


def test_models_are_compared_example_by_example_where_both_are_known() -> None:
    plain = made_evaluation(run("!xooox"), model="plain", total=6)
    hard = made_evaluation(run("oo!oxx"), model="hard", total=6)
    found = Report(evaluations=(plain, hard)).comparisons[1]
    assert (found.total, found.only_reference, found.only_model, found.difference) == (4, 1, 1, 0)


def test_merge_keeps_runs_of_one_attack_with_other_settings(report: Report) -> None:
    first = report.evaluations[0]
    attack = first.attacks[0]
    other = replace(attack, settings={**attack.settings, "seed": 99})
    joined = merge([Report(evaluations=(replace(first, attacks=runs),)) for runs in ((attack,), (other,), (attack,))])
    assert joined.evaluations[0].attacks == (attack, other)


def test_an_attack_that_failed_to_run_hides_no_break_and_leaves_its_examples_standing() -> None:
    found = made_evaluation(run("x!o!-", "pwws"), run("!xo!-", "genetic"), wrong=(4,), total=5)
    assert found.held("pwws") == {"id0": False, "id2": True, "id4": False}
    assert found.held("worst case") == {"id0": False, "id1": False, "id2": True, "id4": False}
    assert found.standing == ["id2", "id3"]


@pytest.mark.parametrize("attack", ["exhaustive", "transfer"])
def test_what_an_attack_passes_over_is_known_by_the_others(attack: str) -> None:
    """A search that finds half of the texts too large, or a source that gets them wrong, moves no share but its own."""
    pwws, passing = run("xxxxoooooo"), run("!o!o!!!oox", attack)
    found = made_evaluation(pwws, passing)
    assert found.accuracy("worst case") == Proportion(hits=5, total=10)  # it broke one more, and hid none
    assert found.accuracy(attack) == Proportion(hits=4, total=5)
    assert made_evaluation(passing, passing).accuracy("worst case") == Proportion(hits=4, total=5)
    then = made_evaluation(pwws, replace(passing, left=True, results=passing.results[4:]))
    assert then.accuracy(f"then {attack}") == then.accuracy("worst case") == Proportion(hits=5, total=10)


def test_seeds_that_differ_are_compared_one_by_one() -> None:
    plain, hard = made_evaluation(run("xxxxo"), model="plain", total=5), seeds_of("hard", ["ooooo", "xoooo"], total=5)
    found = Report(evaluations=(plain, *hard)).comparisons
    assert [(item.model, item.seeds) for item in found] == [("hard-0", 1)] * 2 + [("hard-1", 1)] * 2


def test_seeds_of_one_method_alone_are_compared_with_the_first() -> None:
    found = Report(evaluations=tuple(seeds_of("plain", ["xxxxo", "oxxxo", "ooxxo"], total=5))).comparisons
    assert [(item.reference, item.model) for item in found if item.condition == "pwws"] == [
        ("plain-0", "plain-1"),
        ("plain-0", "plain-2"),
    ]


def test_two_examples_that_both_answered_are_enough_to_compare_and_one_is_not() -> None:
    for words, total in ((("oo!!", "xo!o"), 2), (("o!!!", "xo!o"), None), (("ooo!", "xooo"), 3)):
        models = [made_evaluation(run(word), model=name, total=4) for word, name in zip(words, "ab", strict=True)]
        assert {item.condition: item.total for item in Report(evaluations=tuple(models)).comparisons}.get(
            "pwws"
        ) == total
        seeds = [item for word, name in zip(words, "ab", strict=True) for item in seeds_of(name, [word] * 2, total=4)]
        assert {item.condition: item.total for item in Report(evaluations=tuple(seeds)).comparisons}.get(
            "pwws"
        ) == total


def changed_run(evaluation: Evaluation, **settings: Any) -> Evaluation:
    (only,) = evaluation.attacks
    return replace(evaluation, attacks=(replace(only, settings={**only.settings, **settings}),))


def test_seeds_are_compared_under_equal_attacks_alone() -> None:
    """Each pair of seeds met one attack, but not the same one: no mean of two budgets is an accuracy under either."""
    plain, hard = seeds_of("plain", ["xxxxo", "oxxxo"], total=5), seeds_of("hard", ["xooxo", "ooxoo"], total=5)
    for larger in (0, 1):
        both = [
            [changed_run(item, query_budget=1000) if item.model.training.seed == larger else item for item in method]
            for method in (plain, hard)
        ]
        found = Report(evaluations=(*both[0], *both[1]))
        assert {item.condition for item in found.comparisons} == {"clean"}
        assert {item.condition for item in found.spreads} == {"clean"}


def test_a_first_seed_that_no_other_method_has_still_says_what_is_compared() -> None:
    plain = seeds_of("plain", ["xxxxo", "oxxxo", "oxxox"], total=5)
    hard = seeds_of("hard", ["ooooo", "xooxo", "ooxoo"], total=5)[1:]
    for first, conditions in ((plain[0], {"clean", "pwws"}), (changed_run(plain[0], query_budget=9), {"clean"})):
        found = Report(evaluations=(first, *plain[1:], *hard)).comparisons
        assert {item.condition for item in found} == conditions
        assert {item.seeds for item in found} == {2}
    more = [replace(item, attacks=(*item.attacks, run("xxxxx", "genetic"))) for item in (*plain[1:], *hard)]
    found = Report(evaluations=(plain[0], *more)).comparisons
    assert {item.condition for item in found} == {"clean", "pwws"}


def test_an_attack_that_only_one_seed_met_is_not_compared() -> None:
    plain, hard = seeds_of("plain", ["xxxxo", "oxxxo"], total=5), seeds_of("hard", ["xooxo", "ooxoo"], total=5)
    for number in range(4):
        runs = [*plain, *hard]
        runs[number] = replace(runs[number], attacks=(*runs[number].attacks, run("xxxxx", "genetic")))
        assert {item.condition for item in Report(evaluations=tuple(runs)).comparisons} == {"clean", "pwws"}


def test_a_seed_of_which_one_example_is_known_counts_and_one_without_any_does_not() -> None:
    found = Report(evaluations=tuple(seeds_of("plain", ["o!!!!", "x!!!!", "!!!!!"], total=5))).spreads
    assert {item.condition: item.accuracy.values for item in found}["pwws"] == (1.0, 0.0)


def test_models_without_a_record_are_no_seeds_of_each_other_whatever_they_are_called() -> None:
    def bare(name: str, number: int) -> Evaluation:
        made = made_evaluation(run("xxxooooooo"), seed=number)
        return replace(made, model=replace(made.model, name=name, fingerprint=str(number) * 64, training=None))

    alike = Report(evaluations=tuple(bare("model", number) for number in range(3)))
    assert alike.spreads == ()
    found = [(item.subject, item.verdict, item.evidence) for item in alike.checks if item.flag == "few-seeds"]
    assert found == [(f"model [{str(number) * 6}] on made", "raised", "1 training seed") for number in range(3)]
    # nor of a method that has the name of one
    of_method = Report(evaluations=(*seeds_of("plain", ["xxxxxooooo"] * 2), bare("plain", 5)))
    assert [len(item.accuracy.values) for item in of_method.spreads] == [2, 2]
    assert headline(of_method).startswith("Of 10 texts of made, plain [555555] answers 70.0% rightly under pwws and ")
    assert [row["name"] for row in _accuracy_table(of_method, by_method(of_method.evaluations)[0])["rows"]] == [
        "plain",
        "plain [555555]",
    ]


def test_an_attack_on_one_seed_is_shown_and_is_one_seed() -> None:
    clean = [made_evaluation(model="plain", seed=seed) for seed in (1, 2)]
    attacked = made_evaluation(run("xxxxxooooo"), model="plain")
    one = Report(evaluations=(attacked, *clean))
    rows = _accuracy_table(one, by_method(one.evaluations)[0])["rows"]
    assert [[cell and cell["value"] for cell in row["cells"]] for row in rows] == [[100, 50], [100, None], [100, None]]
    (check,) = (item for item in one.checks if item.flag == "few-seeds")
    assert (check.verdict, check.evidence) == ("raised", "3 training seeds, 1 of them under attack")
    two = Report(evaluations=(attacked, made_evaluation(run("xxxoooooox"), model="plain", seed=1), clean[1]))
    (row,) = _accuracy_table(two, by_method(two.evaluations)[0])["rows"]
    assert row["note"] == "mean of 2 to 3 seeds"


def test_a_mean_that_never_varies_still_has_an_interval() -> None:
    found = Report(evaluations=tuple(seeds_of("plain", ["oooooooooo"] * 3))).spreads
    assert (found[1].interval.low, found[1].interval.high) == pytest.approx((0.7225, 1.0), abs=1e-4)


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize("total", [4, 40])
def test_a_difference_that_never_varies_still_has_an_interval_and_a_p_value_of_so_many_examples(
    seeds: int, total: int
) -> None:
    """Of two seeds on four examples nothing varied, so that p was 0 and neither interval had a width."""
    plain, same = (
        seeds_of("plain", ["x" * total] * seeds, total=total),
        seeds_of("a", ["x" * total] * seeds, total=total),
    )
    held = seeds_of("b", ["o" * total] * seeds, total=total)
    found = Report(evaluations=(*plain, *same, *held)).comparisons
    none, all_ = (item for item in found if item.condition == "pwws")
    lost = 1.959964**2 / (total + 1.959964**2)  # Wilson's upper end of none
    assert (none.difference, *none.interval, none.p_value) == pytest.approx((0, -lost, lost, 1), abs=1e-5)
    assert (all_.difference, *all_.interval, all_.p_value) == pytest.approx((1, 1 - 2 * lost, 1, 0.5**total), abs=1e-5)


def test_a_report_is_told_in_a_line_and_in_a_table() -> None:
    made = [made_evaluation(run("xxoooooooo"), seed=seed, wrong=(9,) * (seed == 0)) for seed in range(6)]
    for count, told in ((6, "; and 2 more; "), (5, "; and 1 more; "), (4, "clean 100.0%, pwws 80.0%; 0 flags)")):
        shown = repr(Report(evaluations=tuple(made[:count])))
        assert shown.startswith("Report(model-0 on made: clean 90.0%, pwws 70.0%; model-1 on made: clean 100.0%, ")
        assert ("model-3" in shown, "model-4" in shown) == (True, False)
        assert told in shown
        assert ("more" in shown) == (count > 4)
    table = Report(evaluations=tuple(made[:1])).to_pandas()
    wanted = wilson(7, 10)
    row = table[table["condition"] == "pwws"].iloc[0]
    assert [row[key] for key in ("accuracy", "low", "high", "n")] == [0.7, wanted.low, wanted.high, 10]


def test_the_answers_to_a_static_adversarial_set_are_not_called_clean() -> None:
    plain = made_evaluation(run("xxoooooooo"))
    static = replace(plain, predictions=tuple(replace(row, original=row.texts) for row in plain.predictions))
    assert [plain.title(name) for name in ("clean", "pwws", "worst case")] == ["clean", "pwws", "worst case"]
    assert [static.title(name) for name in ("clean", "pwws")] == ["all levels", "pwws"]
    seeds = [
        replace(made_evaluation(model=model, seed=seed), predictions=static.predictions)
        for model in "ab"
        for seed in range(2)
    ]
    found = Report(evaluations=tuple(seeds))
    assert found.to_pandas()["condition"].tolist() == ["all levels"] * 4
    console = Console(width=120, record=True)
    console.print(terminal(found))
    shown = [repr(found), markdown(found), found._repr_html_(), page(found).partition('id="charts"')[0]]
    shown += [console.export_text(), model_card(seeds[0].model.training, found)]
    for text in shown:
        assert "all levels" in text
        assert not re.search(r"\bclean\b", re.sub("clean answers|checks clear", "", text))


def test_a_recipe_is_the_same_in_whatever_order_its_settings_are_written() -> None:
    record = made_evaluation().model.training
    defence = {"name": "swap", "rate": 0.5, "substitutions": {"name": "wordnet", "fingerprint": "a"}}
    one, other, another = (
        replace(record, details={"defence": settings}).recipe
        for settings in (defence, dict(reversed(defence.items())), {**defence, "rate": 0.4})
    )
    assert one == other != another


def test_a_recipe_has_rows_and_batches_and_seeds_may_differ_by_a_few_rows() -> None:
    record = made_evaluation().model.training

    def recipe(rows: int | None, **details: Any) -> str:
        arguments = {key: details.pop(key) for key in list(details) if "batch" in key or "accumulation" in key}
        own = {} if rows is None else {"training_examples": rows}
        return replace(record, details={"arguments": arguments, **own, **details}).recipe

    plain = recipe(53_879)
    assert plain == recipe(53_881) == recipe(53_879, per_device_train_batch_size=8)
    assert plain == recipe(53_879, per_device_train_batch_size=4, gradient_accumulation_steps=2)
    others = [
        recipe(5_387),
        recipe(53_879, per_device_train_batch_size=64),
        recipe(53_879, gradient_accumulation_steps=2),
    ]
    others += [recipe(53_879, frozen_layers=4), recipe(53_879, word_level=True), recipe(None)]
    assert len({plain, *others}) == 7
    assert recipe("many") == recipe(None)  # a stranger's file may hold anything


def test_one_attack_with_other_settings_stands_under_a_name_of_its_own() -> None:
    """Side by side under one name the numbers would be compared, and it is two attacks that differ."""
    runs = [run("xoooo"), run("xxooo"), run("xxxoo", query_budget=9)]
    made = [made_evaluation(one, model=f"m{number}", total=5) for number, one in enumerate(runs)]
    report = Report(evaluations=tuple(made))
    (group,) = charts.by_data(report)
    shown = {name: list(of) for name, of in charts.shares(report, group).items()}
    assert shown == {
        "clean": ["m0-0", "m1-0", "m2-0"], "pwws": ["m0-0", "m1-0"], "pwws, other settings": ["m2-0"]
    }  # fmt: skip
    names = ["pwws", "pwws", "pwws, other settings"]
    assert [one.attack for one in charts.curves(report, group)] == names
    assert [one.condition for one in charts.tradeoff(report, group)] == names
    assert [row.condition for row in rows(report) if row.condition != "clean"] == names
    other = Report(
        evaluations=tuple(replace(item, data=replace(item.data, fingerprint=str(at))) for at, item in enumerate(made))
    )
    assert {row.condition for row in rows(other)} == {"clean", "pwws"}  # nothing stands beside it
    silent = made_evaluation(run("!!!!!", query_budget=3), model="m3", total=5)  # of it nothing is known
    assert "pwws" in charts.shares(Report(evaluations=(silent, *made)), [silent, *made])
    assert [one.attack for one in charts.curves(report, [silent, *made])] == names


def test_runs_that_nothing_tells_apart_are_numbered() -> None:
    same, other = run("xo"), run("xo", "genetic")
    assert made_evaluation(same, other, same, same).attack_names == ("pwws #1", "genetic", "pwws #2", "pwws #3")
    assert made_evaluation(same, other).attack_names == ("pwws", "genetic")


def test_a_label_without_a_name_is_its_number() -> None:
    data = made_evaluation().data
    assert [data.label_name(label) for label in (None, -1, 0, 1, 2)] == ["none", "-1", "negative", "positive", "2"]


def test_models_are_renamed_by_fingerprint(report: Report) -> None:
    first = report.evaluations[0].model.fingerprint
    found = report.renamed({first: "mine"})
    assert list(found.model_names.values()) == ["mine", *list(report.model_names.values())[1:]]


def test_headlines_of_one_model_and_of_clean_answers() -> None:
    alone = headline(Report(evaluations=(made_evaluation(run("xxoo-"), total=5, wrong=(4,)),)))
    assert alone == "Of 5 texts of made, model-0 answers 80.0% rightly, and 40.0% under pwws."
    clean = headline(Report(evaluations=(made_evaluation(wrong=(1, 2)),)))
    assert clean == (
        "Of 10 texts of made, model-0 answers 80.0% rightly; always giving the most frequent label does 50.0%."
    )
    same = headline(Report(evaluations=(made_evaluation(), made_evaluation(model="other", wrong=(1,)))))
    assert same.startswith(
        "Of 10 texts of made, other-0 answers 90.0% rightly and model-0 100.0%: -10.0 points, which c"
    )
    alike = headline(Report(evaluations=(made_evaluation(wrong=(2,)), made_evaluation(model="other", wrong=(1,)))))
    assert "answers 90.0% rightly and model-0 90.0%: no difference" in alike


def test_the_headline_is_about_what_was_attacked() -> None:
    """As `harden` reports: first clean answers on all rows, then attacks on some."""
    clean, attacked = made_evaluation(total=9, data="held out"), made_evaluation(run("xxoo-"), total=5, wrong=(4,))
    assert headline(Report(evaluations=(clean, attacked))).startswith("Of 5 texts of made, model-0 answers 80.0%")


def test_only_trainings_of_one_kind_under_equal_attacks_are_seeds_of_a_method() -> None:
    """A mean over anything else looks like one and is none."""
    zero, one = (made_evaluation(run("xxxxxxxxxo"), model="swap", seed=seed) for seed in (0, 1))
    assert [item.accuracy.values for item in merge([Report(evaluations=(zero, one))]).spreads] == [(1, 1), (0.1, 0.1)]
    weaker = replace(one, attacks=(run("oooooooooo", query_budget=3),))
    assert [item.condition for item in Report(evaluations=(zero, weaker)).spreads] == ["clean"]
    again = replace(zero, model=replace(zero.model, name="again", fingerprint="f" * 64))
    assert Report(evaluations=(zero, again)).spreads == ()  # one seed
    assert [item.accuracy.values for item in Report(evaluations=(zero, again, one)).spreads] == [(1, 1), (0.1, 0.1)]

    def trained(**changes: Any) -> Evaluation:
        assert one.model.training is not None
        return replace(one, model=replace(one.model, training=replace(one.model.training, **changes)))

    for other in (
        trained(base_model="roberta-large"),
        trained(task="imdb"),
        trained(substitutions=(NEW,)),
        *(trained(details={key: {"an": "option"}}) for key in ("connection", "smoothing", "reader", "defence")),
        trained(details={"arguments": {"learning_rate": 1e-3}}),
    ):
        report = Report(evaluations=(zero, other))
        assert report.spreads == ()
        methods = [item.model.method for item in report.evaluations]
        assert len(set(methods)) == 2
        assert all(re.fullmatch(r"swap \[[0-9a-f]{6}\]", name) for name in methods)
        assert [check.evidence for check in report.checks if check.flag == "few-seeds"] == ["1 training seed"] * 2
        kept = Report.from_json(report.to_json())
        assert kept.evaluations == report.evaluations
        (own,) = Report(evaluations=kept.evaluations[:1]).evaluations  # alone it has its name back
        assert own.model.method == "swap"
    same = trained(details={"defence": [{"seed": 5}], "seconds": 3.0, "training_data": "x", "smoothing": {"words": 7}})
    first = replace(zero, model=replace(zero.model, training=replace(same.model.training, seed=0)))  # type: ignore[arg-type]
    details = {"defence": [{"seed": 1}], "seconds": 4.0, "training_data": "y", "smoothing": {"words": 8}}
    assert len(Report(evaluations=(first, trained(details=details))).spreads) == 2
