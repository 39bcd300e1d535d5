"""A planted flag of every kind is found, and a clean run raises none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from report_parts import TRAINED_ON, made_evaluation, run

from unshaken.evaluation.check import Check
from unshaken.evaluation.results import AttackRun, Evaluation, Recheck
from unshaken.proportion import Proportion
from unshaken.reports import FLAGS, Report, merge
from unshaken.substitutions import All, Dictionary, Homoglyphs, Substitutions, Typos, Unmended, WordNet


def clean() -> Evaluation:
    """An implicit model, attacked directly, by transfer and through its solver, with new substitutions."""
    evaluation = made_evaluation(run("xxxxxooooo"), run("xxxoooooooo"[:10], "transfer"), run("xxxxoooooo", "hull"))
    return replace(evaluation, model=replace(evaluation.model, connection={"layers": "1-2", "theta": 1.0}))


def three_seeds(evaluation: Evaluation) -> list[Evaluation]:
    return [
        replace(
            evaluation,
            model=replace(
                evaluation.model,
                fingerprint=f"{seed}" * 64,
                training=replace(evaluation.model.training, seed=seed),
            ),
        )
        for seed in range(3)
    ]


def change_first_run(evaluation: Evaluation, **changes: object) -> Evaluation:
    return replace(evaluation, attacks=(replace(evaluation.attacks[0], **changes), *evaluation.attacks[1:]))


def no_white_box(evaluation: Evaluation) -> Evaluation:
    return replace(evaluation, attacks=evaluation.attacks[:2])


def strong_transfer(evaluation: Evaluation) -> Evaluation:
    return replace(evaluation, attacks=(evaluation.attacks[0], run("xxxxxxoooo", "transfer"), evaluation.attacks[2]))


def stopped_early(evaluation: Evaluation) -> Evaluation:
    """Two successes in the last quarter of the budget, and survivors who used all of it."""
    results = tuple(
        replace(item, queries=100 if item.outcome == "failure" else 95 if index < 2 else 10)
        for index, item in enumerate(evaluation.attacks[0].results)
    )
    settings = {**evaluation.attacks[0].settings, "query_budget": 100}
    return change_first_run(evaluation, results=results, settings=settings)


def larger_search(evaluation: Evaluation) -> Evaluation:
    small, large = run("xooooooooo", "genetic", population=10), run("xxxxxooooo", "genetic", population=60)
    return replace(evaluation, attacks=(*evaluation.attacks, small, large))


def constant(evaluation: Evaluation) -> Evaluation:
    """Answers 0 to everything: as good as the most frequent label."""
    predictions = tuple(replace(row, prediction=0) for row in evaluation.predictions)
    return replace(evaluation, predictions=predictions, attacks=())


def flat_scores(evaluation: Evaluation) -> Evaluation:
    return change_first_run(
        evaluation, rechecks=(Recheck(variant="margin scoring", total=10, held=5, held_by_variant=1),)
    )


def margin_breaks_more(evaluation: Evaluation) -> Evaluation:
    twin = run("xxxxxxxxxo", scoring="margin")
    weak = change_first_run(evaluation, settings={**evaluation.attacks[0].settings, "scoring": "probability"})
    return replace(weak, attacks=(*weak.attacks, twin))


def seen_substitutions(evaluation: Evaluation) -> Evaluation:
    runs = tuple(replace(item, settings={**item.settings, "substitutions": TRAINED_ON}) for item in evaluation.attacks)
    return replace(evaluation, attacks=runs)


def part_of_a_source(evaluation: Evaluation) -> Evaluation:
    """Training knew eight substitutes a word of WordNet, and the attacks all of them."""
    training = replace(evaluation.model.training, substitutions=({"name": "wordnet", "fingerprint": "eight"},))
    whole = {"name": "wordnet", "fingerprint": "all"}
    runs = tuple(replace(item, settings={**item.settings, "substitutions": whole}) for item in evaluation.attacks)
    return replace(evaluation, model=replace(evaluation.model, training=training), attacks=runs)


def read_back(evaluation: Evaluation, trained: str | None = "unicode,spelling", asked: str | None = None) -> Evaluation:
    training = evaluation.model.training
    assert training is not None
    reading = replace(training, details={**training.details, "reader": trained})
    joined = {"name": "all", "provenance": "wordnet: WordNet 3.0 and typos: typing errors", "fingerprint": "0"}
    changed = replace(evaluation, model=replace(evaluation.model, training=reading, reader=asked))
    return change_first_run(changed, settings={**evaluation.attacks[0].settings, "substitutions": joined})


def read_back_with_settings(evaluation: Evaluation) -> Evaluation:
    return read_back(evaluation, "unicode + spelling:doubt=20,min_length=4")


def read_back_untrained(evaluation: Evaluation) -> Evaluation:
    """A reader that was put before a model whose training knew of none."""
    return read_back(evaluation, None, "spelling")


def narrow_hull(evaluation: Evaluation) -> Evaluation:
    facts = {"hull_coverage": {"words": 0.894, "substitutes": 0.75, "texts": 0.007}}
    record = replace(evaluation.model.training, details={"facts": facts})
    return replace(evaluation, model=replace(evaluation.model, training=record))


def unconfirmed(evaluation: Evaluation) -> Evaluation:
    *others, last = evaluation.attacks[0].results
    assert last.outcome == "failure"
    return change_first_run(evaluation, results=(*others, replace(last, error="not confirmed: alone it is right")))


def voting(evaluation: Evaluation) -> Evaluation:
    vote = {"k": 8, "rate": 0.5, "seed": 0, "substitutions": {"name": "wordnet", "fingerprint": "v"}}
    return replace(evaluation, model=replace(evaluation.model, vote=vote))


PLANTED = [
    ("vote", voting),
    ("hull-coverage", narrow_hull),
    ("inference-loop", no_white_box),
    ("randomness", lambda item: replace(item, probes=replace(item.probes, repeat_difference=0.1))),
    ("batch-dependence", lambda item: replace(item, probes=replace(item.probes, batch_difference=0.05))),
    ("transfer-beats-direct", strong_transfer),
    ("more-budget-helps", stopped_early),
    ("more-budget-helps", larger_search),
    ("trained-on", lambda it: replace(it, probes=replace(it.probes, trained_on=2))),
    ("unknown-words", lambda it: replace(it, probes=replace(it.probes, unknown_words=0.9))),
    ("below-majority", constant),
    ("miscalibration", flat_scores),
    ("miscalibration", margin_breaks_more),
    ("same-substitutions", seen_substitutions),
    ("same-substitutions", part_of_a_source),
    ("knows-this-source", read_back),
    ("knows-this-source", read_back_with_settings),
    ("knows-this-source", read_back_untrained),
    ("unconfirmed", unconfirmed),
    ("truncated-substitutions", lambda item: change_first_run(item, truncated_swaps=(2, 5))),
]


def test_a_clean_run_raises_none_and_checks_everything() -> None:
    report = Report(evaluations=tuple(three_seeds(clean())))
    assert report.flags == ()
    assert {check.flag for check in report.checks} == set(FLAGS)
    assert {check.verdict for check in report.checks} == {"clear"}


@pytest.mark.parametrize(("flag", "plant"), PLANTED, ids=[f"{flag}-{plant.__name__}" for flag, plant in PLANTED])
def test_a_planted_flag_is_found_with_evidence_and_cure(flag: str, plant: object) -> None:
    report = Report(evaluations=tuple(three_seeds(plant(clean()))))  # type: ignore[operator]
    raised = {check.flag for check in report.flags}
    # Without its attacks a connected model also lacks the one through its solver.
    assert raised == ({flag, "inference-loop"} if plant is constant else {flag})
    for check in report.flags:
        assert check.evidence
        assert check.settle
        assert check.subject


WORDNET, TYPOS = WordNet(limit=8), Typos()
OWN = Dictionary(entries={"good": ["fine"]}, source="salt and pepper.json")


@pytest.mark.parametrize(
    ("sources", "reader", "is_known"),
    [
        ((WORDNET, TYPOS), "all", True),  # as `harden` trains and attacks
        ((WordNet(), TYPOS), "unicode,spelling", True),
        ((WORDNET, TYPOS), "spelling:doubt=20", True),
        ((WORDNET, TYPOS), "unicode", False),
        ((WORDNET, TYPOS), None, False),
        ((WORDNET, TYPOS, Dictionary(entries={"film": ["movie"]})), "all", False),
        ((Dictionary(entries={"film": ["movie"]}), WORDNET), "all", False),
        ((OWN, TYPOS), "all", True),
        ((OWN, All((TYPOS, WORDNET))), "all", True),
        ((OWN, TYPOS), "unicode", False),
        ((OWN, Unmended(TYPOS)), "all", False),  # nobody has seen what the reader leaves
        ((TYPOS, Homoglyphs()), "all", False),  # which another flag tells: training used neither
    ],
)
def test_a_joined_set_is_known_where_training_and_the_reader_know_all_of_it(
    sources: tuple[Substitutions, ...], reader: str | None, is_known: bool
) -> None:
    item = clean()
    described = tuple({"name": one.name, "fingerprint": one.fingerprint} for one in (WORDNET, OWN))
    training = replace(item.model.training, substitutions=described, details={"reader": reader})
    runs = tuple(
        replace(one, settings={**one.settings, "substitutions": All(sources).described()}) for one in item.attacks
    )
    item = replace(item, model=replace(item.model, training=training), attacks=runs)
    flags = {check.flag: check for check in Report(evaluations=tuple(three_seeds(item))).flags}
    assert ("same-substitutions" in flags) == is_known
    if is_known:
        assert "beside what the reader maps back (typos)" in flags["same-substitutions"].evidence


@pytest.mark.parametrize("source", [Unmended(OWN), All((OWN, Unmended(WORDNET)))])
def test_what_a_reader_leaves_of_a_set_is_known_to_whoever_knows_the_set(source: Substitutions) -> None:
    item = clean()
    for known, flags in (((WORDNET, OWN), {"same-substitutions"}), ((WORDNET,), set())):
        training = replace(item.model.training, substitutions=tuple(one.described() for one in known))
        runs = tuple(
            replace(one, settings={**one.settings, "substitutions": source.described()}) for one in item.attacks
        )
        changed = replace(item, model=replace(item.model, training=training), attacks=runs)
        assert {check.flag for check in Report(evaluations=tuple(three_seeds(changed))).flags} == flags


def test_names_of_files_are_not_taken_for_the_sets_that_a_joined_one_joins() -> None:
    misleading = Dictionary(entries={"film": ["movie"]}, source="x and typos: y.json")
    item = clean()
    training = replace(item.model.training, details={"reader": "all"})
    item = replace(item, model=replace(item.model, training=training))
    for sources, flags in (((WORDNET, misleading), set()), ((WORDNET, misleading, TYPOS), {"knows-this-source"})):
        settings = {**item.attacks[0].settings, "substitutions": All(sources).described()}
        changed = change_first_run(item, settings=settings)
        assert {check.flag for check in Report(evaluations=tuple(three_seeds(changed))).flags} == flags


def test_a_vote_is_clear_where_a_wide_search_went_through_it_and_knows_its_own_set() -> None:
    item = voting(clean())
    wide = replace(item, attacks=(*item.attacks, run("xxxxxxxxxo", attack="genetic", population=60)))
    verdicts = {check.flag: check for check in Report(evaluations=tuple(three_seeds(wide))).checks}
    assert verdicts["vote"].verdict == "clear"
    assert "genetic" in verdicts["vote"].evidence
    runs = tuple(
        replace(one, settings={**one.settings, "substitutions": {"name": "wordnet", "fingerprint": "v"}})
        for one in item.attacks
    )
    known = Report(evaluations=tuple(three_seeds(replace(item, attacks=runs))))
    assert {check.flag for check in known.flags} == {"vote", "same-substitutions"}
    told = {check.evidence for check in known.flags if check.flag == "same-substitutions"}
    assert told == {"every attack used a set that the vote used (v)"}


def test_a_voted_model_is_a_method_of_its_own_and_survives_a_file() -> None:
    item = voting(clean())
    assert item.model.method == f"{clean().model.method} + vote of 8"
    report = Report(evaluations=(item,))
    assert Report.from_json(report.to_json()).evaluations == report.evaluations
    earlier = report.to_json()
    del earlier["evaluations"][0]["model"]["vote"]
    assert Report.from_json(earlier).evaluations[0].model.vote is None


def test_fewer_than_three_seeds_is_a_flag() -> None:
    two = Report(evaluations=tuple(three_seeds(clean())[:2]))
    assert [check.flag for check in two.flags] == ["few-seeds"]
    assert "2 training seeds" in two.flags[0].evidence


def test_a_whole_hull_is_clear_and_a_damaged_record_has_none() -> None:
    for facts, told in (
        ({"hull_coverage": {"words": 1.0, "substitutes": 0.999, "texts": 0.99}}, "99.9% of substitutes"),
        ({"hull_coverage": {"words": "x"}}, "no hull"),
        ([1], "no hull"),
    ):
        item = narrow_hull(clean())
        record = replace(item.model.training, details={"facts": facts})
        checks = Report(evaluations=(replace(item, model=replace(item.model, training=record)),)).checks
        (check,) = (check for check in checks if check.flag == "hull-coverage")
        assert check.verdict == "clear"
        assert told in check.evidence


def test_every_flag_is_planted_somewhere() -> None:
    assert {flag for flag, _ in PLANTED} | {"few-seeds"} == set(FLAGS)


def test_missing_evidence_is_unknown_not_clear() -> None:
    bare = made_evaluation(replace(run("xxxoooo---"), rechecks=(), truncated_swaps=None), wrong=(7, 8, 9))
    bare = replace(bare, model=replace(bare.model, training=None))
    bare = replace(bare, probes=replace(bare.probes, trained_on=None))
    unknown = {check.flag for check in Report(evaluations=(bare,)).checks if check.verdict == "unknown"}
    missing = {"transfer-beats-direct", "miscalibration", "same-substitutions", "truncated-substitutions", "trained-on"}
    assert unknown == missing


def test_a_saturated_search_is_clear_and_a_single_search_size_unknown() -> None:
    same = [run("xxxooooooo", "genetic", population=size) for size in (10, 60)]
    checks = {
        check.subject: check
        for check in Report(evaluations=(made_evaluation(*same),)).checks
        if check.flag == "more-budget-helps"
    }
    assert checks["model-0 on made, genetic (population=60)"].verdict == "clear"
    assert checks["model-0 on made, genetic (population=10)"].verdict == "unknown"


def test_an_explicit_connection_has_no_loop() -> None:
    evaluation = no_white_box(clean())
    evaluation = replace(evaluation, model=replace(evaluation.model, connection={"layers": "all", "theta": 0}))
    assert "inference-loop" not in {check.flag for check in Report(evaluations=(evaluation,)).flags}


def test_a_transfer_that_breaks_as_many_as_the_direct_attack_does_not_beat_it() -> None:
    for transfer, verdict in (("ooxxxooooo", "clear"), ("ooxxxxoooo", "raised")):
        checks = Report(evaluations=(made_evaluation(run("xxxooooooo"), run(transfer, "transfer")),)).checks
        assert [check.verdict for check in checks if check.flag == "transfer-beats-direct"] == [verdict]


def transfer_check(*runs: AttackRun) -> Check:
    report = Report(evaluations=(made_evaluation(*runs),))
    (found,) = (check for check in report.checks if check.flag == "transfer-beats-direct")
    return found


@pytest.mark.parametrize(
    ("direct", "transfer", "verdict", "leaves"),
    [
        # The source of the transfer got four wrong. Of the other six it broke one, and the direct attack none.
        ("xxxxoooooo", "!!!!xooooo", "raised", (83.3, 100.0)),
        # Seven stand the direct attack and five the transfer, which tried fewer: of these it broke one, as the other.
        ("xoooxxoooo", "!!!!xooooo", "clear", (83.3, 66.7)),
        # Exhaustive search passed over five: five stand it, and eight the transfer. Of those that both tried it broke
        # two, and exhaustive search none.
        ("ooooo!!!!!", "xxoooooooo", "raised", (60.0, 100.0)),
    ],
)
def test_a_transfer_is_compared_on_what_both_attacks_were_tried_on(
    direct: str, transfer: str, verdict: str, leaves: tuple[float, float]
) -> None:
    name = "exhaustive" if "!" in direct else "pwws"
    found = transfer_check(run(direct, name), run(transfer, "transfer"))
    assert found.verdict == verdict
    assert found.evidence.startswith(f"accuracy {leaves[0]} ")
    assert f", {leaves[1]} " in found.evidence


def test_the_best_transfer_is_compared_with_the_best_direct_attack() -> None:
    weak, strong = run("xooooooooo"), run("xxxxoooooo", "genetic")
    for transfers, verdict in ((("xxoooooooo", "xxxooooooo"), "clear"), (("xxxxxooooo", "xxoooooooo"), "raised")):
        runs = [run(outcomes, "transfer", seed=number) for number, outcomes in enumerate(transfers)]
        assert transfer_check(weak, strong, *runs).verdict == verdict
        assert transfer_check(*reversed(runs), strong, weak).verdict == verdict


def test_a_transfer_with_nothing_to_compare_is_unknown() -> None:
    assert transfer_check(run("xxxxxooooo"), run("!!!!!!!!!!", "transfer")).verdict == "unknown"


def test_a_transfer_on_what_is_left_does_not_hide_one_that_beat_the_direct_attack() -> None:
    left = replace(run("oooo", "transfer", seed=1), left=True)
    left = replace(left, results=run("xxxxxxoooo").results[6:])
    for broke, verdict in (("xxxxxxoooo", "raised"), ("xxoooooooo", "clear")):
        assert transfer_check(run("xxxooooooo"), run(broke, "transfer"), left).verdict == verdict


def test_one_example_that_direct_attacks_had_left_is_enough() -> None:
    left = replace(run("x", "transfer"), left=True, results=run("xxxxxxxoox").results[7:])
    found = transfer_check(run("xxxxxxxooo"), left)
    assert (found.verdict, found.evidence[:29]) == ("raised", "transfers broke 1 of 3 exampl")


def test_a_transfer_before_any_direct_attack_was_tried_on_nothing_that_one_had_left() -> None:
    first = replace(run("xxoooooooo", "transfer"), left=True)
    then = replace(run("oooooooo"), left=True, results=run("xxoooooooo").results[2:])
    assert transfer_check(first, then).verdict == "unknown"
    third = replace(run("o", "transfer", seed=1), left=True, results=run("xxoooooooo").results[2:])
    assert transfer_check(first, then, third).verdict == "clear"


@pytest.mark.parametrize(
    ("budget", "asked", "verdict", "half", "full"),
    [
        (90, (40, 10), "clear", 80.0, 80.0),  # broken after so many questions; all others ended at the budget
        (90, (46, 10), "raised", 90.0, 80.0),
        (90, (45, 10), "clear", 80.0, 80.0),
        (90, (90, 10), "raised", 90.0, 80.0),
        (1, (), "clear", 100.0, 100.0),
    ],
)
def test_the_second_half_of_a_budget_is_what_counts(
    budget: int, asked: tuple[int, ...], verdict: str, half: float, full: float
) -> None:
    stopped = run("x" * len(asked) + "o" * (10 - len(asked)), query_budget=budget)
    spent = (*asked, *[budget] * (10 - len(asked)))
    results = tuple(replace(row, queries=own) for row, own in zip(stopped.results, spent, strict=True))
    report = Report(evaluations=(made_evaluation(replace(stopped, results=results)),))
    (found,) = (check for check in report.checks if check.flag == "more-budget-helps")
    assert (found.verdict, found.evidence) == (
        verdict,
        f"{10 - len(asked)} examples ended at the budget of {budget} queries; "
        f"accuracy {half} at half the budget, {full} at all of it",
    )


@pytest.mark.parametrize(
    ("ended", "broken", "verdict"), [(2.0, 1.1, "raised"), (2.0, 1.0, "clear"), (1.9, 1.1, "clear")]
)
def test_seconds_that_run_out_are_a_budget_as_well(ended: float, broken: float, verdict: str) -> None:
    made = run("xooo", time_budget=2)
    rows = [replace(row, seconds=broken if row.outcome == "success" else ended) for row in made.results]
    checks = Report(evaluations=(made_evaluation(replace(made, results=tuple(rows)), total=4),)).checks
    (found,) = (check for check in checks if check.flag == "more-budget-helps")
    told = f"3 examples ended at the budget of 2 seconds; {int(broken > 1)} were broken in its second half"
    assert (found.verdict, found.evidence) == (verdict, told if ended == 2 else "every search ran to its end")


def test_the_largest_search_is_compared_with_the_next() -> None:
    outcomes = {10: "xooooooooo", 20: "xxxxxooooo", 40: "xxxxxooooo"}
    for sizes in ((10, 20, 40), (40, 20, 10)):
        runs = [run(outcomes[size], "genetic", population=size) for size in sizes]
        checks = Report(evaluations=(made_evaluation(*runs),)).checks
        found = {check.subject: check for check in checks if check.flag == "more-budget-helps"}
        largest = found["model-0 on made, genetic (population=40)"]
        assert (largest.verdict, largest.evidence[:20]) == ("clear", "5 examples broken, 5")
        assert "raised" not in {check.verdict for check in found.values()}


@pytest.mark.parametrize(
    ("total", "more", "verdict"), [(10, 1, "clear"), (10, 2, "raised"), (200, 3, "clear"), (200, 4, "raised")]
)
def test_two_examples_more_and_a_fiftieth_of_them_are_no_accident_of_ties(total: int, more: int, verdict: str) -> None:
    again = Recheck(variant="temperature 10", total=total, held=8, held_by_variant=8 - more)
    evaluation = change_first_run(clean(), rechecks=(again,))
    verdicts = [check.verdict for check in Report(evaluations=(evaluation,)).checks if check.flag == "miscalibration"]
    assert verdict in verdicts
    assert ("raised" in verdicts) == (verdict == "raised")


def test_examples_that_one_attack_could_not_be_tried_on_are_compared_with_none_of_the_other() -> None:
    """By the examples that one ended in an error on, other scores seemed to break more and a larger search no more."""

    def verdict(flag: str, *runs: AttackRun) -> tuple[str, str]:
        checks = [item for item in Report(evaluations=(made_evaluation(*runs),)).checks if item.flag == flag]
        return checks[0].verdict, checks[0].evidence

    margin, probability = run("xx!!!ooooo", scoring="margin"), run("xxxxxooooo", scoring="probability")
    for runs in ((probability, margin), (margin, probability)):
        told = verdict("miscalibration", *runs)[1].partition(";")[0]  # a recheck follows
        assert told == "5 of 10 hold, 5 under temperature 10"
        assert verdict("miscalibration", *(replace(item, rechecks=()) for item in runs)) == (
            "clear",
            f"5 of 7 hold, 5 under pwws (scoring={runs[1].settings['scoring']})",
        )
    small, large = run("xxxooooooo", "genetic", population=4), run("!!!xoooooo", "genetic", population=8)
    assert verdict("more-budget-helps", small, large) == (
        "raised",
        "1 examples broken, 0 by the same attack with less budget",
    )


def test_shares_are_told_in_per_cent() -> None:
    evaluation = replace(clean(), probes=replace(clean().probes, unknown_words=0.375))
    told = {check.flag: check.evidence for check in Report(evaluations=(evaluation,)).checks}
    assert told["unknown-words"] == "37.5% of the tokens are unknown"
    alike = replace(
        evaluation, predictions=tuple(replace(row, label=0, prediction=0) for row in evaluation.predictions)
    )
    flags = {check.flag for check in Report(evaluations=(replace(alike, attacks=()),)).flags}
    assert "below-majority" not in flags  # right about all: nobody does better
    assert told["below-majority"] == "accuracy 100.0 [72.2, 100.0] against 50.0 for the most frequent label"


def test_a_set_that_training_used_is_told_by_the_start_of_its_fingerprint() -> None:
    checks = Report(evaluations=(seen_substitutions(clean()),)).checks
    (same,) = (check for check in checks if check.flag == "same-substitutions")
    assert same.evidence == "every attack used a set that training used (aaaaaaaa)"


def test_one_swap_behind_the_truncation_and_one_unconfirmed_text_are_enough() -> None:
    made = run("xxoooooooo")
    doubted = replace(made.results[4], error="not confirmed")
    made = replace(made, truncated_swaps=(1, 2), results=(*made.results[:4], doubted, *made.results[5:]))
    found = {check.flag: check for check in Report(evaluations=(made_evaluation(made),)).flags}
    assert found["truncated-substitutions"].evidence == "1 of 2 swaps lie behind the truncation"
    assert found["unconfirmed"].evidence == "1 of 3 successes of the search were not confirmed"


def test_no_order_of_merging_hides_what_one_of_two_runs_of_an_attack_saw() -> None:
    def with_doubt(word: str, behind: int, doubtful: int | None = None) -> Evaluation:
        made = run(word)
        rows = [replace(row, error="not so") if n == doubtful else row for n, row in enumerate(made.results)]
        return made_evaluation(replace(made, results=tuple(rows), truncated_swaps=(behind, 9)))

    sound = with_doubt("xxxxoooooo", 0)
    for other, held in (
        (with_doubt("xxxxoooooo", 2, 7), 6),
        (with_doubt("xxxxxooooo", 2, 7), 5),  # broke more
        (with_doubt("xx!!!!oooo", 2, 7), 6),  # has errors
    ):
        for order in ((sound, other), (other, sound)):
            report = merge([Report(evaluations=(one,)) for one in order])
            assert {"unconfirmed", "truncated-substitutions"} <= {check.flag for check in report.flags}
            assert report.evaluations[0].accuracy("pwws") == Proportion(hits=held, total=10)
