"""A vote is a fixed function of each text: the mean over its rewordings, attacked as one victim by every attack."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from victims import TEXTS, WORD_LIST, bag_of_words, bag_victim, labelled, make_tokenizer, tiny_bert

from unshaken.attacks import ATTACKS, PWWS, Exhaustive, Genetic, HotFlip, HullAttack, Victim
from unshaken.errors import UnshakenError
from unshaken.evaluation import evaluate
from unshaken.substitutions import default_substitutions, segment
from unshaken.victims import Averaged, Vote
from unshaken.victims.calibrated import at_temperature


@pytest.fixture
def tiny_victim(tmp_path) -> Victim:
    tokenizer = make_tokenizer(tmp_path)
    return Victim.from_model(tiny_bert(tokenizer), tokenizer)


def vote(victim: Victim | None = None, **options: object) -> Vote:
    return Vote(victim or bag_victim(), **{"substitutions": WORD_LIST, **options})  # type: ignore[arg-type]


def test_the_answer_is_the_mean_probability_over_the_rewordings() -> None:
    voted = vote(k=5)
    for text in TEXTS:
        (rewordings,) = voted.rewordings([(text,)])
        assert len(rewordings) == 5
        by_hand = np.mean([bag_of_words([row[0]])[0] for row in rewordings], axis=0)
        np.testing.assert_allclose(np.exp(voted.log_probabilities([(text,)])[0]), by_hand, rtol=1e-5)
        np.testing.assert_allclose(np.exp(voted.answer_alone((text,))), by_hand, rtol=1e-5)


def test_rewordings_change_words_to_their_substitutes_alone_and_carry_the_case() -> None:
    text = "The FILM was slow, but the plot was Good!"
    (rewordings,) = vote(k=64, rate=1.0).rewordings([(text,)])
    words = [[found.surfaces[at] for found in (segment(row[0]) for row in rewordings)] for at in (1, 3, 8)]
    assert set(words[0]) == {"MOVIE", "PICTURE"}  # at rate 1 no word with substitutes stays
    assert set(words[1]) == {"dull", "lengthy"}
    assert set(words[2]) == {"Fine", "Great", "Nice"}
    assert all(row[0].startswith("The ") and row[0].endswith("!") for row in rewordings)


@pytest.mark.parametrize("rate", [0.2, 0.5, 0.8])
def test_the_share_of_changed_words_and_the_substitutes_are_as_said(rate: float) -> None:
    """Over 4,000 draws: the share within five standard deviations, and every substitute drawn equally often."""
    text = " ".join(["good"] * 40)
    (rewordings,) = vote(k=100, rate=rate).rewordings([(text,)])
    words = [word for row in rewordings for word in segment(row[0])]
    changed = [word for word in words if word != "good"]
    assert abs(len(changed) / 4000 - rate) < 5 * math.sqrt(rate * (1 - rate) / 4000)
    for substitute in ("fine", "great", "nice"):
        expected = len(changed) / 3
        assert abs(changed.count(substitute) - expected) < 5 * math.sqrt(expected)


@given(st.permutations(range(len(TEXTS))), st.integers(1, len(TEXTS)))
def test_an_answer_depends_on_its_text_alone(order: list[int], size: int) -> None:
    voted = vote(k=3)
    alone = np.stack([vote(k=3).log_probabilities([(text,)])[0] for text in TEXTS])
    rows = [(TEXTS[number],) for number in order]
    found = np.concatenate([voted.log_probabilities(rows[at : at + size]) for at in range(0, len(rows), size)])
    np.testing.assert_array_equal(found, alone[list(order)])


def test_a_longer_text_is_reworded_like_its_beginning() -> None:
    """Patterns belong to places: a sentence put behind a text changes nothing before it."""
    short, long = "a good film with a bad plot", " ".join(["a good film with a bad plot"] * 30)
    voted = vote(k=4)
    (before,), (after,) = voted.rewordings([(short,)]), voted.rewordings([(long,)])
    assert all(second[0].startswith(first[0]) for first, second in zip(before, after, strict=True))
    assert len(set(before)) > 1


def test_patterns_are_drawn_by_the_seed() -> None:
    rows = [(text,) for text in TEXTS]
    assert vote(seed=1).rewordings(rows) == vote(seed=1).rewordings(rows) != vote(seed=0).rewordings(rows)


def test_columns_of_a_pair_have_patterns_of_their_own() -> None:
    text = "a good film with a bad plot"
    (rewordings,) = vote(k=8).rewordings([(text, text)])
    assert any(first != second for first, second in rewordings)


def test_what_an_attack_finds_fools_the_vote_and_no_attack_beats_exhaustive_search() -> None:
    voted = vote(k=4)
    examples = labelled(voted)
    best = Exhaustive(substitutions=WORD_LIST)(voted, examples)
    broken = {row.example_id for row in best if row.outcome == "success"}
    assert 0 < len(broken) < len(examples)
    for attack in (PWWS, Genetic):
        found = attack(substitutions=WORD_LIST)(voted, examples)
        successes = [row for row in found if row.outcome == "success"]
        assert {row.example_id for row in successes} <= broken
        for row in successes:
            assert row.adversarial is not None
            assert voted.log_probabilities([row.adversarial])[0].argmax() != row.label


@pytest.mark.parametrize("attack", [HotFlip, HullAttack])
def test_white_box_attacks_see_the_model_and_ask_the_vote(tiny_victim: Victim, attack: type) -> None:
    voted = vote(tiny_victim, k=4)
    examples = labelled(voted)
    found = attack(substitutions=WORD_LIST)(voted, examples)
    for row in found:
        assert row.outcome in ("success", "failure")
        if row.outcome == "success":
            assert voted.answer_alone(row.adversarial).argmax() != row.label
    with pytest.raises(UnshakenError, match="needs a Hugging Face model"):
        attack(substitutions=WORD_LIST)(vote(), examples)


def test_every_attack_of_the_table_runs_through_a_vote(tiny_victim: Victim) -> None:
    examples = labelled(vote(tiny_victim, k=2), TEXTS[:3])
    needs_more = {
        "transfer",
        "bae",
        "bert-attack",
        "clare",
        "textfooler",
        "worst-case",
        "exhaustive",
    }  # other models, or other attacks
    for name, attack in ATTACKS.items():
        if name in needs_more or not isinstance(attack, type):
            continue
        results = attack()(vote(tiny_victim, k=2), examples)
        assert all(row.outcome in ("success", "failure") for row in results), name


def test_a_report_names_the_vote_and_finds_no_randomness(tiny_victim: Victim) -> None:
    report = evaluate(vote(tiny_victim, k=2), labelled(vote(tiny_victim, k=2)), [PWWS(substitutions=WORD_LIST)])
    (evaluation,) = report.evaluations
    assert evaluation.model.vote is not None
    assert evaluation.model.vote["substitutions"]["fingerprint"] == WORD_LIST.fingerprint
    verdicts = {check.flag: check.verdict for check in report.checks}
    assert (verdicts["randomness"], verdicts["batch-dependence"], verdicts["vote"]) == ("clear", "clear", "raised")


def test_a_report_names_the_vote_whatever_asks_it() -> None:
    asked = vote(k=2)
    for victim in (Averaged(asked, times=2), at_temperature(asked, 2.0), at_temperature(Averaged(asked, times=2), 2.0)):
        report = evaluate(victim, labelled(asked), [PWWS(substitutions=WORD_LIST)])
        assert report.evaluations[0].model.vote == asked.settings()
        assert "vote" in {check.flag for check in report.flags}
    assert evaluate(Averaged(bag_victim(), times=2), labelled(asked)).evaluations[0].model.vote is None


def test_what_does_not_say_which_words_it_reads_is_evaluated(tiny_victim: Victim) -> None:
    for victim in (Averaged(tiny_victim, times=2), at_temperature(vote(tiny_victim, k=2), 2.0)):
        report = evaluate(victim, labelled(tiny_victim), [PWWS(substitutions=WORD_LIST)])
        assert report.evaluations[0].attacks[0].truncated_swaps is None


def test_settings() -> None:
    prints = {vote(**own).fingerprint for own in ({}, {"k": 4}, {"rate": 0.4}, {"seed": 1})}
    assert len(prints | {bag_victim().fingerprint}) == 5
    assert vote(k=4).name == "bag (vote of 4)"
    assert vote(k=1, rate=1.0, seed=0).settings() == {
        **{"k": 1, "rate": 1.0, "seed": 0},
        "substitutions": WORD_LIST.described(),
    }
    assert Vote(bag_victim()).substitutions == default_substitutions()
    assert (Vote(bag_victim()).k, Vote(bag_victim()).patterns.rate, Vote(bag_victim()).patterns.seed) == (8, 0.5, 0)
    for wrong in ({"k": 0}, {"rate": 0.0}, {"rate": 1.5}, {"seed": -1}):
        with pytest.raises(UnshakenError, match="Vote needs"):
            vote(**wrong)


def test_a_vote_is_to_attacks_and_reports_what_its_victim_is(tiny_victim: Victim) -> None:
    for own in (True, False):
        tiny_victim.runs_beside_python = own
        assert vote(tiny_victim).runs_beside_python is own
    assert vote(tiny_victim).tokenizer is tiny_victim.tokenizer
    assert vote().tokenizer is None


def test_the_command_line_attacks_through_a_vote(unshaken, tiny, tmp_path, write_rows) -> None:
    rows = [(f"a {word} film {n}", label) for n in range(4) for word, label in (("good", "0"), ("bad", "1"))]
    data = write_rows(tmp_path / "reviews.csv", ("text", "label"), *rows)
    for command, options in (("attack", ["--attack", "pwws"]), ("evaluate", [])):
        out = tmp_path / command
        code, text, err = unshaken(
            command, tiny, data, *options, "--vote", 3, "--vote-rate", 0.4, "--device", "cpu", "--out", out
        )
        assert code == 0, err
        from unshaken.reports import Report

        found = Report.load(out).evaluations[0].model.vote
        assert (found["k"], found["rate"], found["substitutions"]["name"]) == (3, 0.4, "wordnet")
        assert "vote" in text
