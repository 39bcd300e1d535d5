"""A detector is measured by ranks anyone can count, and attacked as one with its model."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from victims import TEXTS, WORD_LIST, bag_of_words, bag_victim, labelled, make_tokenizer, tiny_bert

from unshaken.attacks import PWWS, Exhaustive, Genetic, HotFlip, Unflagged, Victim
from unshaken.cli.detect import detection_table
from unshaken.console import Console
from unshaken.detection import Agreement, Detection, Guarded, auroc, detect, threshold_for
from unshaken.errors import UnshakenError
from unshaken.examples import Examples
from unshaken.proportion import Proportion
from unshaken.substitutions import Dictionary
from unshaken.victims import Vote


def agreement(victim: Victim | None = None, k: int = 6) -> Agreement:
    return Agreement(Vote(victim or bag_victim(), k, substitutions=WORD_LIST))


def test_suspicion_is_what_the_vote_denies_the_answer() -> None:
    detector = agreement()
    for text in TEXTS:
        answer = int(bag_victim().log_probabilities([(text,)])[0].argmax())
        voted = np.exp(detector.vote.log_probabilities([(text,)])[0, answer])
        assert detector.suspicion([(text,)])[0] == pytest.approx(1 - voted, abs=1e-6)


def test_auroc_counts_pairs() -> None:
    clean, attacked = np.array([0.1, 0.2, 0.4, 0.4]), np.array([0.3, 0.4, 0.9])
    pairs = [(a > c) + 0.5 * (a == c) for a in attacked for c in clean]
    assert auroc(clean, attacked) == pytest.approx(np.mean(pairs))


@pytest.mark.parametrize(("share", "flagged"), [(0.0, 0), (0.01, 1), (0.05, 5), (0.29, 29), (0.5, 50)])
def test_no_more_clean_texts_are_flagged_than_allowed(share: float, flagged: int) -> None:
    clean = np.random.default_rng(0).permutation(np.linspace(0, 1, 100))
    assert (clean > threshold_for(clean, share)).sum() == flagged
    tied = np.repeat(0.5, 100)
    assert (tied > threshold_for(tied, share)).sum() == 0


def test_flagged_is_the_answer_exactly_above_the_threshold() -> None:
    detector = agreement()
    rows = [(text,) for text in TEXTS]
    suspicion = detector.suspicion(rows)
    for threshold in (0.0, float(np.median(suspicion)), 1.0):
        found = Guarded(detector, threshold).log_probabilities(rows)
        np.testing.assert_allclose(np.exp(found).sum(-1), 1, rtol=1e-5)
        lead = found[:, 2] - found[:, :2].max(-1)  # it tells a search how far it is from passing
        np.testing.assert_allclose(lead, 20 * (suspicion - threshold), atol=1e-4)
        plain = bag_victim().log_probabilities(rows).argmax(-1)
        clear = np.abs(suspicion - threshold) > 1e-6  # a tie rounds either way
        np.testing.assert_array_equal(found.argmax(-1)[clear], np.where(suspicion > threshold, 2, plain)[clear])


def test_flagged_is_one_class_more_with_a_name_where_classes_have_names() -> None:
    guarded = Guarded(agreement(), 0.5)
    assert (guarded.num_labels, guarded.label_names) == (3, ())
    named = Victim.from_callable(bag_of_words, label_names=("bad", "good"))
    guarded = Guarded(agreement(named), 0.5)
    assert (guarded.num_labels, guarded.label_names) == (3, ("bad", "good", "flagged"))
    assert (named.num_labels, named.label_names) == (2, ("bad", "good"))
    for named.runs_beside_python in (True, False):
        assert Guarded(agreement(named), 0.5).runs_beside_python is named.runs_beside_python


def test_the_goal_wants_a_wrong_class_that_is_no_flag() -> None:
    answers = np.log([[0.5, 0.3, 0.2], [0.3, 0.5, 0.2], [0.2, 0.3, 0.5], [0.45, 0.1, 0.45]])
    assert Unflagged().reached(answers, 0).tolist() == [False, True, False, False]
    margins = Unflagged().values(answers, 0, "margin")
    np.testing.assert_allclose(margins, np.log([0.3 / 0.5, 0.5 / 0.3, 0.3 / 0.5, 0.1 / 0.45]))
    assert ((margins > 0) == Unflagged().reached(answers, 0)).all()
    chances = Unflagged().values(answers, 0, "probability")
    np.testing.assert_allclose(Unflagged().chance(chances, "probability"), [0.3, 0.5, 0.3, 0.1])
    np.testing.assert_allclose(
        Unflagged().chance(Unflagged().values(answers, 0, "log-probability"), "log-probability"), [0.3, 0.5, 0.3, 0.1]
    )


def test_a_joint_success_is_wrong_and_passes_and_no_search_beats_all_texts() -> None:
    detector = agreement()
    examples = labelled(bag_victim())
    threshold = threshold_for(detector.suspicion([row.texts for row in examples]), 0.2)
    guarded = Guarded(detector, threshold)
    best = Exhaustive(substitutions=WORD_LIST, goal=Unflagged())(guarded, examples)
    breakable = {row.example_id for row in best if row.outcome == "success"}
    assert breakable
    for attack in (PWWS, Genetic):
        found = attack(substitutions=WORD_LIST, goal=Unflagged())(guarded, examples)
        for row in (row for row in found if row.outcome == "success"):
            assert row.example_id in breakable
            assert bag_victim().log_probabilities([row.adversarial])[0].argmax() != row.label
            assert detector.suspicion([row.adversarial])[0] <= threshold + 1e-6


def test_what_is_measured_fits_together() -> None:
    detector, examples = agreement(), labelled(bag_victim())
    found = detect(detector, examples, Exhaustive(substitutions=WORD_LIST), false_alarms=0.25)
    assert found.clean == 1
    assert found.false_alarms <= 0.25
    assert found.auroc is not None
    assert 0 <= found.auroc <= 1
    assert found.fooled_unflagged <= found.fooled
    assert found.true_positives == pytest.approx(1 - found.fooled_unflagged / found.fooled)
    assert found.fooled_jointly >= found.fooled_unflagged  # who knows the detector may do what who does not does
    assert found.fooled_jointly <= found.fooled


def test_what_either_attack_gets_past_counts_once() -> None:
    """Right answers that are flagged to begin with are no start for the joint attack; the other one may free them."""
    detector, examples, attack = agreement(k=2), labelled(bag_victim()), PWWS(substitutions=WORD_LIST)
    found = detect(detector, examples, attack, false_alarms=0.2)
    alone = [row for row in attack(bag_victim(), examples) if row.adversarial is not None]
    passed = {row.example_id for row in alone if detector.suspicion([row.adversarial])[0] <= found.threshold}
    joint = replace(attack, goal=Unflagged())(Guarded(detector, found.threshold), examples)
    both = {row.example_id for row in joint if row.outcome == "success"}
    assert passed - both
    assert found.fooled_unflagged == len(passed) / len(examples)
    assert found.fooled_jointly == len(passed | both) / len(examples)


def test_numbers_are_counted_by_hand_at_a_threshold_from_other_texts() -> None:
    detector, attack = agreement(), PWWS(substitutions=WORD_LIST)
    first, *others = labelled(bag_victim())
    examples = [replace(first, label=1 - int(first.label)), *others]
    known = detector.suspicion([row.texts for row in others[:3]])
    found = detect(detector, examples, attack, calibration=others[:3], false_alarms=0.4)
    suspicion = detector.suspicion([row.texts for row in examples])
    fooling = [row.adversarial for row in attack(bag_victim(), examples) if row.outcome == "success"]
    attacked = detector.suspicion(fooling)
    assert found.threshold == sorted(known)[1]  # one of three may be above it
    assert found.clean == 1 - 1 / len(examples)
    assert found.auroc == pytest.approx(auroc(suspicion, attacked))
    assert found.auroc != 0.5
    assert found.false_alarms == np.mean(suspicion > found.threshold) != np.mean(known > found.threshold)
    assert found.true_positives == np.mean(attacked > found.threshold)
    assert found.fooled == len(fooling) / len(examples)


def test_a_text_at_the_threshold_passes() -> None:
    detector, attack, examples = agreement(), PWWS(substitutions=WORD_LIST), labelled(bag_victim())
    texts = [row.adversarial for row in attack(bag_victim(), examples) if row.adversarial is not None]
    fooling = sorted(texts, key=lambda text: detector.suspicion([text])[0])[len(texts) // 2]
    found = detect(detector, examples, attack, calibration=[replace(examples[0], texts=fooling)], false_alarms=0)
    attacked = detector.suspicion(texts)
    assert found.threshold in attacked
    assert found.true_positives == np.mean(attacked > found.threshold)
    assert found.fooled_unflagged == np.sum(attacked <= found.threshold) / len(examples)
    clean = detect(
        detector, examples, attack, calibration=examples[:1], false_alarms=0
    )  # a clean one at it passes, too
    assert clean.false_alarms == np.mean(detector.suspicion([row.texts for row in examples]) > clean.threshold)


def test_where_nothing_fools_the_model_there_is_nothing_to_tell_from_clean_texts() -> None:
    found = detect(agreement(), labelled(bag_victim()), PWWS(substitutions=Dictionary(entries={"plot": ["story"]})))
    assert (found.auroc, found.true_positives) == (None, None)
    assert (found.fooled, found.fooled_unflagged, found.fooled_jointly) == (0, 0, 0)


class Refusing:
    """A model that cannot be asked about the texts that a search makes of some examples."""

    def __init__(self, texts: list[str], refused: int) -> None:
        self.known, self.refused = set(texts), texts[:refused]

    def __call__(self, texts: list[str]) -> np.ndarray:
        for text in texts:
            if text not in self.known and any(text.split()[-1] == row.split()[-1] for row in self.refused):
                raise RuntimeError("413")
        right = np.array([0.5 + 0.3 * (("good" in text) - ("bad" in text)) for text in texts])
        return np.stack([1 - right, right], -1)


def test_what_could_not_be_attacked_is_in_no_share_and_told() -> None:
    """A model that refuses to answer is not fooled, but nor has it withstood anything."""
    texts = [f"a {word} film {number}" for number, word in enumerate(["good", "bad"] * 4)]
    examples = Examples.from_lists(texts, [1, 0] * 4)
    words = Dictionary(entries={"good": ["bad"], "bad": ["good"]})
    nothing = Dictionary(entries={"absent": ["missing"]})

    def found(refused: int) -> Detection:
        victim = Victim.from_callable(Refusing(texts, refused), name=f"refuses {refused}")
        return detect(Agreement(Vote(victim, k=2, substitutions=nothing)), examples, PWWS(substitutions=words))

    whole, part = found(0), found(3)
    assert (whole.fooled, whole.fooled_jointly, whole.errors, whole.errors_jointly) == (1, 1, 0, 0)
    assert (part.fooled, part.fooled_jointly, part.errors, part.errors_jointly) == (1, 1, 3, 3)
    assert part.clean == whole.clean == 1
    output = io.StringIO()
    Console(file=output, width=100).print(detection_table("films", 8, "pwws", part))
    told = " ".join(output.getvalue().split())
    assert f"examples fooled, no detector {Proportion(hits=5, total=5)}" in told
    assert "could not be attacked: the model alone, both 3, 3" in told
    with pytest.raises(UnshakenError, match=r"none of 8 examples could be attacked; the first: .*413"):
        found(8)


def test_classes_in_another_order_are_refused() -> None:
    texts, refusing = ["a good film", "a bad film"], Refusing([], 0)
    victim = Victim.from_callable(refusing, label_names=("negative", "positive"), name="films")
    other = Examples.from_lists(texts, ["positive", "negative"], label_names=("positive", "negative"))
    vote = Vote(victim, k=2, substitutions=Dictionary(entries={"absent": ["missing"]}))
    with pytest.raises(UnshakenError, match="films counts its classes as negative, positive"):
        detect(Agreement(vote), other, PWWS(substitutions=WORD_LIST))


def test_bars_are_shown_to_whoever_asks_for_them(capsys) -> None:
    settings = agreement(), labelled(bag_victim()), PWWS(substitutions=WORD_LIST)
    quiet = detect(*settings)
    assert capsys.readouterr().out == ""
    assert detect(*settings, progress=True) == quiet
    assert capsys.readouterr().out.count("pwws") == 2  # alone, and with the detector


def test_gradients_reach_through_the_guard(tmp_path) -> None:
    tokenizer = make_tokenizer(tmp_path)
    victim = Victim.from_model(tiny_bert(tokenizer), tokenizer)
    found = detect(agreement(victim), labelled(victim), HotFlip(substitutions=WORD_LIST), false_alarms=0.2)
    assert 0 <= found.fooled_jointly <= 1


def test_wrong_settings_are_refused() -> None:
    for threshold in (-0.5, 1.5):
        with pytest.raises(UnshakenError, match=f"threshold is {threshold}"):
            Guarded(agreement(), threshold)
    for share in (-0.5, 1.0):
        with pytest.raises(UnshakenError, match=f"false_alarms is {share}"):
            threshold_for(np.zeros(3), share)


def test_what_is_asked_again_is_flagged_as_it_was() -> None:
    guarded, rows = Guarded(agreement(), 0.3), [(text,) for text in TEXTS]
    first = guarded.log_probabilities(rows)
    assert {0, 1, 2} == set(first.argmax(-1))
    np.testing.assert_allclose(guarded.ask_again(rows, 1), first, atol=1e-5)
    np.testing.assert_allclose([guarded.answer_alone(row) for row in rows], first, atol=1e-5)


def test_the_command_line_detects(unshaken, refused, tiny, tmp_path, write_rows) -> None:
    rows = [(f"a {word} film {n}", label) for n in range(3) for word, label in (("good", "0"), ("bad", "1"))]
    data = write_rows(tmp_path / "reviews.csv", ("text", "label"), *rows)
    out = tmp_path / "detected"
    code, text, err = unshaken("detect", tiny, data, "--vote", 3, "--device", "cpu", "--out", out)
    assert code == 0, err
    assert "either attack" in text
    assert "1% of 6 clean texts is less than one" in err
    assert re.search(r"note: model and detector: pwws on 6 examples .* at most about [\d,]+ questions", err)
    found = json.loads(next(out.glob("*.detection.json")).read_text())
    assert found["vote"]["k"] == 3
    assert found["found"]["false_alarms"] <= 0.01
    assert "one search" in refused("detect", tiny, data, "--attack", "pwws,genetic")
    code, _, err = unshaken("detect", tiny, data, "--vote", 3, "--device", "cpu", "--out", out)
    assert (code, "exists, and would be lost" in err) == (2, True)


def test_the_command_line_takes_the_threshold_from_other_texts(unshaken, refused, tiny, tmp_path, write_rows) -> None:
    rows = [(f"a {word} film {n}", label) for n in range(3) for word, label in (("good", "0"), ("bad", "1"))]
    data = write_rows(tmp_path / "reviews.csv", ("text", "label"), *rows)
    others = [f"the {word} of a story" for word in ("end", "start", "point", "rest", "sound", "best")]
    path = write_rows(tmp_path / "others.csv", ("text",), *((text,) for text in others))
    common = ["detect", tiny, data, "--vote", 3, "--device", "cpu", "--false-alarms", 0.25]
    code, _, err = unshaken(*common, "--calibration", path, "--out", tmp_path / "out")
    assert code == 0, err
    assert "less than one" not in err  # a quarter of six
    found = json.loads(next((tmp_path / "out").glob("*.detection.json")).read_text())
    assert found["calibration"] == {"data": "others/test", "texts": 6}
    detector = Agreement(Vote(Victim.from_pretrained(tiny, device="cpu"), 3))
    suspicion = np.sort(detector.suspicion([(text,) for text in others]))
    assert found["found"]["threshold"] == pytest.approx(suspicion[-2], abs=1e-6)  # one above it, not two
    assert "did you mean" in refused(*common, "--calibration", tmp_path / "other.csv")
    assert "it is a file of texts" in refused(*common, "--calibration", "sst2")
    write_rows(tmp_path / "empty.csv", ("text",), ("good",), (" ",))
    assert "line 3 has an empty text" in refused(*common, "--calibration", tmp_path / "empty.csv")


def test_the_table_has_each_share_of_its_own_total_with_an_interval() -> None:
    shares = {"clean": 0.9, "false_alarms": 0.01, "threshold": 0.6, "auroc": 0.87654, "true_positives": 0.25}
    attacked = {"fooled": 0.4, "fooled_unflagged": 0.3, "fooled_jointly": 0.35}
    screen = io.StringIO()
    Console(file=screen, width=80).print(detection_table("made", 200, "pwws", Detection(**shares, **attacked)))
    shown = screen.getvalue()
    for what, hits, total in [("rightly", 180, 200), ("its texts flagged", 20, 80), ("either attack", 70, 200)]:
        (line,) = (line for line in shown.splitlines() if what in line)
        assert line.split(what)[1].strip() == str(Proportion(hits=hits, total=total))
    assert "87.7" in shown
