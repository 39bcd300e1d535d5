"""`evaluate` on real victims and real attacks: its numbers, its probes, resuming, and what it refuses."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from report_parts import WORDS, examples, save_model, small_texts, tiny_model, tokenizer
from transformers import BertForSequenceClassification

from unshaken.attacks import (
    PWWS,
    AttackResults,
    Exhaustive,
    Genetic,
    Greedy,
    HardLabel,
    HullAttack,
    Random,
    SearchAttack,
    Transfer,
)
from unshaken.connections import Connection, connect
from unshaken.errors import UnshakenError
from unshaken.evaluation.probes import (
    HALF_ROUNDING,
    ROUNDING,
    probe,
    rechecks,
    truncated_swaps,
    variants,
    visible_words,
)
from unshaken.examples import Example, Examples
from unshaken.processes import Shard
from unshaken.readers import KnownWords
from unshaken.readers import parse as parse_reader
from unshaken.reports import Report, TrainingRecord, evaluate, merge
from unshaken.substitutions import Dictionary, Leet
from unshaken.victims import Reading
from unshaken.victims.base import Victim
from unshaken.victims.calibrated import at_temperature

SETS = Dictionary(entries={"good": ["fine", "great"], "bad": ["poor", "awful"], "film": ["movie"], "plot": ["film"]})
POSITIVE = {"good", "fine", "great"}


def keyword_victim(name: str = "keywords", blind_to: str = "") -> Victim:
    """Answers by counting good words; `blind_to` words count for nothing."""

    def probabilities(texts: list[str]) -> np.ndarray:
        counts = [
            sum((word in POSITIVE) - (word == "fine") * 2 * (word != blind_to) for word in text.split())
            for text in texts
        ]
        positive = 1 / (1 + np.exp(-np.array(counts, dtype=float) + 0.5))
        return np.stack([1 - positive, positive], axis=1)

    return Victim.from_callable(probabilities, 2, name=name)


def keyword_examples() -> Examples:
    return examples([1, 1, 0, 0, 1], ["a good film", "the great plot", "a bad film", "the plot", "a fine film"])


def model_examples(model: BertForSequenceClassification, count: int = 16) -> Examples:
    """Texts labelled with the model's own answers, so that it is right about each of them."""
    texts = small_texts(count)
    with torch.no_grad():
        answers = model(**tokenizer()(texts, padding=True, return_tensors="pt")).logits.argmax(-1)
    return examples(answers.tolist(), texts)


def test_numbers_are_those_of_the_victim_and_the_attack() -> None:
    victim, data = keyword_victim(), keyword_examples()
    report = evaluate(victim, data, [PWWS(substitutions=SETS)])
    (result,) = report.evaluations
    answers = victim.log_probabilities(data.texts).argmax(-1).tolist()
    assert [row.prediction for row in result.predictions] == answers
    direct = PWWS(substitutions=SETS)(victim, data)
    assert [item.outcome for item in result.attacks[0].results] == [item.outcome for item in direct]
    assert result.accuracy("pwws").value == direct.accuracy_under_attack
    assert result.clean.value == direct.clean_accuracy
    assert result.data.fingerprint == data.fingerprint
    assert result.attacks[0].settings["substitutions"]["fingerprint"] == SETS.fingerprint
    assert torch.__version__.startswith(result.environment["libraries"]["torch"].split("+")[0])


def test_no_part_of_an_evaluation_takes_longer_than_all_of_it(tmp_path: Path) -> None:
    begin = time.perf_counter()
    (found,) = evaluate(keyword_victim(), keyword_examples(), [PWWS(substitutions=SETS)], out=tmp_path).evaluations
    assert 0 < found.seconds + sum(run.seconds for run in found.attacks) <= time.perf_counter() - begin


def test_several_models_and_sets_stand_side_by_side() -> None:
    sets = {"first": keyword_examples(), "second": keyword_examples()[:4]}
    report = evaluate([keyword_victim("one"), keyword_victim("two", blind_to="fine")], sets, [PWWS(substitutions=SETS)])
    assert [(item.data.name, item.model.name) for item in report.evaluations] == [
        ("first", "one"),
        ("first", "two"),
        ("second", "one"),
        ("second", "two"),
    ]
    assert {(item.data, item.condition) for item in report.comparisons} == {
        (data, condition) for data in sets for condition in ("clean", "pwws")
    }


def test_a_static_adversarial_set_is_answered_by_group_and_not_attacked() -> None:
    rows = [
        Example(id=f"{number}", texts=(text,), label=1, group=group, original=("a good film",))
        for number, (text, group) in enumerate(
            [("a fine film", "word"), ("a great film", "word"), ("good good", "human")]
        )
    ]
    report = evaluate(keyword_victim(), Examples(rows=tuple(rows), name="adv"), [PWWS(substitutions=SETS)])
    (result,) = report.evaluations
    assert result.attacks == ()
    assert {name: (share.hits, share.total) for name, share in result.groups.items()} == {
        "word": (1, 2),
        "human": (1, 1),
    }


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, attacks = (
        keyword_examples(),
        [PWWS(substitutions=SETS), Genetic(substitutions=SETS, population=4, generations=2)],
    )
    whole = evaluate(keyword_victim(), data, attacks, out=tmp_path / "whole")

    search, asked = SearchAttack.__call__, []

    def die_at_the_second(self: SearchAttack, *given: Any, **options: Any) -> AttackResults:
        asked.append(self.name)
        if asked == ["pwws", "genetic"]:
            raise KeyboardInterrupt
        return search(self, *given, **options)

    monkeypatch.setattr(SearchAttack, "__call__", die_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        evaluate(keyword_victim(), data, attacks, out=tmp_path / "cut")
    assert not (tmp_path / "cut" / "report.json").exists()
    resumed = evaluate(keyword_victim(), data, attacks, out=tmp_path / "cut", resume=True)
    assert asked == ["pwws", "genetic", "genetic"]  # what was finished is read back
    assert [row.prediction for row in resumed.evaluations[0].predictions] == [
        row.prediction for row in whole.evaluations[0].predictions
    ]
    for one, other in zip(resumed.evaluations[0].attacks, whole.evaluations[0].attacks, strict=True):
        assert one.settings == other.settings
        assert [replace(item, seconds=0) for item in one.results] == [
            replace(item, seconds=0) for item in other.results
        ]
    assert Report.load(tmp_path / "cut") == resumed


def test_rechecks_can_be_added_to_a_finished_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attacks = [PWWS(substitutions=SETS)]
    before = evaluate(keyword_victim(), keyword_examples(), attacks, out=tmp_path)
    search, written = SearchAttack.__call__, []

    def noted(self: SearchAttack, *given: Any, out: Path | None = None, **options: Any) -> AttackResults:
        written.append(out)
        return search(self, *given, out=out, **options)

    monkeypatch.setattr(SearchAttack, "__call__", noted)
    after = evaluate(keyword_victim(), keyword_examples(), attacks, out=tmp_path, resume=True, recheck=2)
    (run,) = after.evaluations[0].attacks
    assert replace(run, rechecks=()) == before.evaluations[0].attacks[0]
    assert {item.variant for item in run.rechecks} >= {"temperature 0.1", "temperature 10"}
    chosen = {row.id for row in keyword_examples().sample(2, 0)}  # both counts are of the same examples
    held = sum(row.outcome == "failure" for row in run.results if row.example_id in chosen)
    assert {(item.total, item.held) for item in run.rechecks} == {(2, held)}
    assert held < run.counts.held.hits
    assert written == [None] * len(run.rechecks)  # what is finished is not attacked again


def test_a_run_that_goes_on_rechecks_as_many_examples_as_are_asked_for(tmp_path: Path) -> None:
    attacks, data = [PWWS(substitutions=SETS)], keyword_examples()

    def totals(recheck: int, resume: bool = True) -> set[int]:
        how: dict[str, Any] = {"recheck": recheck, "resume": resume, "out": tmp_path}
        (found,) = evaluate(keyword_victim(), data, attacks, **how).evaluations
        return {item.total for item in found.attacks[0].rechecks}

    asked_for = [2, 4, 3, 0, 9]
    assert [totals(count, resume=bool(number)) for number, count in enumerate(asked_for)] == [{2}, {4}, {4}, {4}, {5}]
    (fresh,) = evaluate(keyword_victim(), data, attacks, recheck=9).evaluations
    assert Report.load(tmp_path).evaluations[0].attacks[0].rechecks == fresh.attacks[0].rechecks


def test_a_run_does_not_go_on_with_another_function_of_the_same_name(tmp_path: Path) -> None:
    """It had the answers of the first one for results of the second."""
    evaluate(keyword_victim(), keyword_examples(), out=tmp_path)
    with pytest.raises(UnshakenError, match=r"keywords answers 'id\d' otherwise than when the run began"):
        evaluate(
            keyword_victim(blind_to="fine"), keyword_examples(), [PWWS(substitutions=SETS)], out=tmp_path, resume=True
        )
    asked: list[str] = []
    kept = keyword_victim()
    counted = Victim.from_callable(
        lambda texts: asked.extend(texts) or np.exp(kept.log_probabilities([(text,) for text in texts])),
        2,
        name="keywords",
    )
    evaluate(counted, keyword_examples(), out=tmp_path, resume=True)
    assert len(asked) == 4


def test_a_finished_folder_is_not_overwritten(tmp_path: Path) -> None:
    evaluate(keyword_victim(), keyword_examples(), out=tmp_path)
    before = (tmp_path / "report.json").read_bytes()
    with pytest.raises(UnshakenError, match="exists; resume it"):
        evaluate(keyword_victim(), keyword_examples(), out=tmp_path)
    assert (tmp_path / "report.json").read_bytes() == before


def test_nothing_of_an_unfinished_run_is_overwritten(tmp_path: Path) -> None:
    attacks = [PWWS(substitutions=SETS), Greedy(substitutions=SETS)]
    evaluate(keyword_victim(), keyword_examples(), attacks, out=tmp_path)
    (tmp_path / "report.json").unlink()  # it is written last
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json*")}
    for some in (attacks[1:], [Random(substitutions=SETS)], []):  # begun before, not begun, none
        with pytest.raises(UnshakenError, match="exists; resume it"):
            evaluate(keyword_victim(), keyword_examples(), some, out=tmp_path)
        assert {path: path.read_bytes() for path in tmp_path.rglob("*.json*")} == before


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (Examples(rows=(), name="none"), "none is empty"),
        (examples([0, 2], ["a film", "b film"], label_names=()), "has the label 2, keywords has 2 classes only"),
        (Examples(rows=(Example(id="1", texts=("a",), label=0.5),), name="scores"), "targets instead of classes"),
        ({}, "no examples"),
    ],
)
def test_bad_input_is_refused(rows: Examples, message: str) -> None:
    with pytest.raises(UnshakenError, match=message):
        evaluate(keyword_victim(), rows)


def test_swapped_class_names_are_refused() -> None:
    model = tiny_model(id2label={0: "positive", 1: "negative"}, label2id={"positive": 0, "negative": 1})
    with pytest.raises(UnshakenError, match="counts its classes as positive, negative"):
        evaluate(Victim.from_model(model, tokenizer(), name="swapped"), examples([0, 1, 0]))


def test_a_class_in_another_place_is_refused_and_names_that_say_nothing_are_told(capsys: Any) -> None:
    """Of three classes two are turned; of two with other names nobody knows."""

    def named(names: tuple[str, ...]) -> Victim:
        return Victim.from_callable(lambda texts: [[1 / len(names)] * len(names)] * len(texts), label_names=names)

    rows = examples([0, 1], ["a film", "b film"], label_names=("negative", "positive", "mixed"))
    with pytest.raises(UnshakenError, match="counts its classes as negative, neutral, positive"):
        evaluate(named(("negative", "neutral", "positive")), rows)
    evaluate(named(("Negative", "positive", "both")), rows)
    assert "call their classes otherwise" not in capsys.readouterr().err
    evaluate(named(("good", "bad", "either")), rows)
    assert "by their places negative for good, positive for bad, mixed for either is taken" in capsys.readouterr().err


def test_models_that_nothing_tells_apart_are_refused() -> None:
    """Both are called <lambda>, which is all that is known of a function: one would go by the results of the other."""
    one, other = (lambda texts, own=own: [own] * len(texts) for own in ([0.2, 0.8], [0.8, 0.2]))
    for models in ([one, other], {"plain": one, "hardened": other}, [keyword_victim(), keyword_victim()]):
        with pytest.raises(UnshakenError, match="one model, as far as can be told"):
            evaluate(models, keyword_examples())
    named = {key: Victim.from_callable(own, 2, name=key) for key, own in (("plain", one), ("hardened", other))}
    report = evaluate(named, keyword_examples())
    assert [(item.model.name, item.clean.hits) for item in report.evaluations] == [("plain", 3), ("hardened", 2)]


def test_several_processes_need_a_folder_to_meet_in() -> None:
    for rank in range(2):
        with pytest.raises(UnshakenError, match="2 processes meet in files"):
            evaluate(keyword_victim(), keyword_examples(), shard=Shard(rank=rank, count=2))


# ---------------------------------------------------------------------------------- flags from real victims


def raised(report: Report) -> set[str]:
    return {check.flag for check in report.flags}


def test_three_seeds_of_a_sound_model_raise_no_flag(tmp_path: Path) -> None:
    data = model_examples(tiny_model())
    assert 0 < sum(data.labels) < len(data)
    victims = [
        Victim.from_pretrained(
            save_model(
                tmp_path / str(seed),
                tiny_model(seed, noise=1e-4),
                TrainingRecord(method="tiny", seed=seed, base_model="none", task="made"),
            )
        )
        for seed in range(3)
    ]
    report = evaluate(victims, data, [PWWS(substitutions=SETS)], recheck=8)
    assert report.flags == ()
    verdicts = {check.flag: check.verdict for check in report.checks}
    assert verdicts["few-seeds"] == verdicts["randomness"] == verdicts["batch-dependence"] == "clear"
    assert verdicts["truncated-substitutions"] == verdicts["miscalibration"] == "clear"


def test_dropout_left_on_is_found() -> None:
    victim = Victim.from_model(tiny_model(hidden_dropout_prob=0.3), tokenizer(), name="noisy")
    victim.model.train()
    assert "randomness" in raised(evaluate(victim, examples([0, 1] * 6)))


class Unmasked(BertForSequenceClassification):
    """Reads its padding."""

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **rest: torch.Tensor) -> object:
        return super().forward(input_ids=input_ids, attention_mask=torch.ones_like(attention_mask), **rest)


def test_a_model_that_reads_padding_is_found() -> None:
    model = tiny_model()
    masked = Victim.from_model(model, tokenizer(), name="masked")
    assert "batch-dependence" not in raised(evaluate(masked, examples([0, 1] * 6)))
    model.__class__ = Unmasked
    unmasked = Victim.from_model(model, tokenizer(), name="unmasked")
    assert "batch-dependence" in raised(evaluate(unmasked, examples([0, 1] * 6)))


class Remembering(Victim):
    """Gives what it answered before where it is asked for that again; otherwise a text alone gets another answer."""

    name, num_labels, fingerprint = "remembering", 2, "remembering"

    def __init__(self, alone: float) -> None:
        self.alone, self.known = alone, dict[Any, float]()

    def _predict(self, texts: Any) -> np.ndarray:
        return self.ask_again(texts, 0)

    def ask_again(self, texts: Any, number: int) -> np.ndarray:
        positive = [self.known.setdefault((row, number), 0.6 if len(texts) > 1 else self.alone) for row in texts]
        return np.log([[1 - share, share] for share in positive])


def test_a_model_that_remembers_its_answers_is_asked_anew_about_each_text_alone() -> None:
    for alone in (0.6, 0.9):
        found = probe(Remembering(alone), keyword_examples(), 0)
        assert found.repeat_difference == pytest.approx(0, abs=1e-6)
        assert found.batch_difference == pytest.approx(alone - 0.6, abs=1e-6)


def disguised_examples() -> Examples:
    """Texts of unlike lengths whose words only a reader knows."""
    texts = [f"{text} {'truly ' * (number % 5)}g00d" for number, text in enumerate(small_texts(12))]
    return examples([0, 1] * 6, texts)


def reading_victim(model: BertForSequenceClassification) -> Victim:
    known = KnownWords.of(examples([0, 1], [" ".join(WORDS)] * 2))
    return Victim.from_model(model, tokenizer(), name="reading", reader=parse_reader("leet", known))


def test_a_reader_makes_no_answer_depend_on_its_batch() -> None:
    victim, data = reading_victim(tiny_model()), disguised_examples()
    unread = Victim.from_model(tiny_model(), tokenizer(), name="unread")
    assert (
        np.abs(np.exp(victim.log_probabilities(data.texts)) - np.exp(unread.log_probabilities(data.texts))).max()
        > (ROUNDING["float32"])
    )  # what the reader changes is more than the flag forgives
    assert "batch-dependence" not in raised(evaluate(victim, data))
    victim.model.__class__ = Unmasked
    assert "batch-dependence" in raised(evaluate(reading_victim(victim.model), data))


@pytest.mark.parametrize(
    ("texts", "max_length", "share"),
    [
        ([("good zzz film",)], 32, 1 / 3),
        ([("good zzz film",), ("qqq",)], 32, 2 / 4),
        ([("good film plot zzz qqq",)], 5, 0),  # three of its words are read, and two signs of the tokenizer
        ([("good film plot zzz qqq",)], 6, 1 / 4),
        ([("good film", "zzz plot")], 32, 1 / 4),
        ([("good film zzz", "the plot zzz")], 7, 0),  # two words of each, and three signs
        ([("",)], 32, None),
    ],
)
def test_unknown_words_are_counted_among_those_that_are_read(
    texts: list[tuple[str, ...]], max_length: int, share: float | None
) -> None:
    columns = ("first", "second")[: len(texts[0])]
    rows = tuple(Example(id=str(number), texts=row, label=0) for number, row in enumerate(texts))
    victim = Victim.from_model(tiny_model(), tokenizer(), max_length=max_length)
    found = probe(victim, Examples(rows=rows, columns=columns, name="made"), 0)
    assert found.unknown_words == (None if share is None else pytest.approx(share))


def test_words_that_a_reader_mends_are_not_unknown() -> None:
    data = disguised_examples()
    unread = Victim.from_model(tiny_model(), tokenizer(), name="unread")
    shares = [
        evaluate(victim, data).evaluations[0].probes.unknown_words for victim in (unread, reading_victim(tiny_model()))
    ]
    assert shares[0] > shares[1] == 0


def test_the_report_names_what_reads_for_a_model_whoever_put_it_there(tmp_path: Path) -> None:
    victim, data = reading_victim(tiny_model()), disguised_examples()
    assert victim.reader is not None
    wrapped = Reading(keyword_victim(), parse_reader("unicode,leet", victim.reader.known))
    models = [victim, wrapped, at_temperature(wrapped, 2.0), keyword_victim("bare")]
    report = evaluate(models, data, PWWS(substitutions=Leet()))
    report.save(tmp_path / "report.json")
    for found in (report, Report.load(tmp_path / "report.json")):
        assert [item.model.reader for item in found.evaluations] == ["leet", "unicode,leet", "unicode,leet", None]
        flagged = {check.subject.split(" on ")[0] for check in found.flags if check.flag == "knows-this-source"}
        assert len(flagged) == 3
        assert "bare" not in flagged


@pytest.mark.parametrize("temperature", [0.1, 10.0])
def test_a_temperature_makes_no_answer_depend_on_its_batch(temperature: float) -> None:
    model, data = tiny_model(), examples([0, 1] * 6)
    victim = at_temperature(Victim.from_model(model, tokenizer(), name="tempered"), temperature)
    assert "batch-dependence" not in raised(evaluate(victim, data))


def test_half_precision_of_queries_is_forgiven_as_that_of_weights() -> None:
    victim = Victim.from_model(tiny_model(), tokenizer(), name="half", scoring_dtype="bf16")
    (found,) = evaluate(victim, examples([0, 1] * 6)).evaluations
    assert found.probes.tolerance == HALF_ROUNDING


def test_answers_of_one_batch_are_in_the_order_of_the_texts() -> None:
    victim, data = Victim.from_model(tiny_model(), tokenizer(), batch_tokens=1), disguised_examples()
    alone = np.concatenate([victim.log_probabilities([row]) for row in data.texts])
    assert np.abs(victim.answers_together(data.texts) - alone).max() < 1e-5
    assert np.abs(alone - alone[::-1]).max() > 1e-3  # another order would show


def test_a_transfer_that_beats_the_direct_attack_is_found() -> None:
    """The direct search is starved by constant scores; what it missed, the other model's texts find."""

    def cliff(texts: list[str]) -> np.ndarray:
        wrong = np.array([0.9 if text.split().count("great") == 2 else 0.1 for text in texts])
        right = np.array(["good" in text or "great" in text or "fine" in text for text in texts])
        positive = np.where(right, 1 - wrong, wrong)
        return np.stack([1 - positive, positive], axis=1)

    def slope(texts: list[str]) -> np.ndarray:
        positive = np.array([0.9 - 0.25 * text.split().count("great") for text in texts])
        positive = np.where(["bad" in text for text in texts], 0.1, positive)
        return np.stack([1 - positive, positive], axis=1)

    data = examples([1, 1, 1, 0, 0], ["good good film", "good a good", "the good good", "bad a", "bad the"])
    direct = PWWS(substitutions=SETS)
    transfer = Transfer(source=Victim.from_callable(slope, 2, name="slope"), attack=direct)
    report = evaluate(Victim.from_callable(cliff, 2, name="cliff"), data, [direct, transfer])
    assert "transfer-beats-direct" in raised(report)
    assert report.evaluations[0].accuracy("transfer").hits < report.evaluations[0].accuracy("pwws").hits


def test_the_white_box_attack_settles_the_loop() -> None:
    model = connect(tiny_model(), Connection(layers="2")).eval()
    victim = Victim.from_model(model, tokenizer(), name="connected")
    report = evaluate(victim, model_examples(tiny_model(), 4), [HullAttack(substitutions=SETS, steps=2)])
    assert "inference-loop" not in raised(report)


def test_a_connected_model_is_found() -> None:
    model = connect(tiny_model(), Connection(layers="2"))
    report = evaluate(Victim.from_model(model.eval(), tokenizer(), name="connected"), examples([0, 1] * 6))
    check = next(item for item in report.flags if item.flag == "inference-loop")
    assert "layers" in check.evidence
    assert report.evaluations[0].model.connection is not None


def test_saturated_scores_are_found_by_a_recheck() -> None:
    """Probabilities of exactly 1 give every candidate the same score, so the search takes the first and fails."""

    def probabilities(texts: list[str]) -> np.ndarray:
        words = [text.split() for text in texts]
        lead = np.array([100.0 - 30 * row.count("great") if len(row) > 1 else -5.0 for row in words])
        return np.stack([1 / (1 + np.exp(lead)), 1 / (1 + np.exp(-lead))], axis=1)

    victim = Victim.from_callable(probabilities, 2, name="sharp")
    texts = [f"good good good good {word}" for word in WORDS[9:14]] + [*WORDS[9:14]]
    data = examples([1] * 5 + [0] * 5, texts)
    blind = PWWS(substitutions=SETS, scoring="probability")
    report = evaluate(victim, data, [blind], recheck=10)
    assert "miscalibration" in raised(report)
    held = {item.variant: (item.held, item.held_by_variant) for item in report.evaluations[0].attacks[0].rechecks}
    assert held["margin scoring"] == held["temperature 10"] == (10, 5)
    assert "miscalibration" not in raised(evaluate(victim, data, [replace(blind, scoring="margin")], recheck=10))


def test_a_recheck_counts_what_holds_under_other_scores() -> None:
    """Of a model whose scores move evenly, every scoring breaks the same; what it gets wrong holds under none."""
    data = keyword_examples()
    for scoring, variants_asked in (("margin", 2), ("probability", 3)):
        attack = PWWS(substitutions=SETS, scoring=scoring)
        (found,) = evaluate(keyword_victim(), data, [attack], recheck=len(data)).evaluations
        held = sum(row.outcome == "failure" for row in found.attacks[0].results)
        assert 0 < held != len(data) - held
        assert [(item.total, item.held, item.held_by_variant) for item in found.attacks[0].rechecks] == [
            (len(data), held, held)
        ] * variants_asked
        assert variants(attack) == variants_asked
    (found,) = evaluate(keyword_victim(), data, [HardLabel(substitutions=SETS)], recheck=len(data)).evaluations
    assert found.attacks[0].rechecks == ()  # decisions have no scores
    assert variants(HardLabel(substitutions=SETS)) == 0


def test_a_recheck_leaves_out_what_ended_in_an_error() -> None:
    """A service that fails for a while seemed to be broken by other scores."""
    data, attack, failing = keyword_examples(), PWWS(substitutions=SETS), False

    def probabilities(texts: list[str]) -> np.ndarray:
        if failing and any("the plot" in text for text in texts):
            raise ValueError("busy")
        return np.exp(keyword_victim().log_probabilities([(text,) for text in texts]))

    victim = Victim.from_callable(probabilities, 2, name="busy")
    before = attack(victim, data)
    held = {row.example_id for row in before if row.outcome == "failure"}
    stood = next(row.id for row in data if row.texts == ("the plot",))
    assert stood in held
    failing = True
    for item in rechecks(attack, victim, data, before, len(data), 0):
        assert (item.total, item.held, item.held_by_variant) == (len(data), len(held) - 1, len(held) - 1)


def test_swaps_behind_the_truncation_are_counted() -> None:
    victim = Victim.from_model(tiny_model(), tokenizer(), name="short", max_length=8)
    data = examples([0], ["the film was very truly a good plot the film was very good"])
    result = PWWS(substitutions=SETS)(victim, data)[0]
    seen = visible_words(victim, data)
    planted = [replace(result, swaps=((0, 1, "film", "movie"), (0, 6, "good", "fine"), (0, 12, "good", "great")))]
    assert truncated_swaps(planted, data, seen) == (2, 3)
    report = evaluate(victim, data)
    assert report.evaluations[0].predictions[0].truncated is True


# ------------------------------------------------------------------------------------------------- what is left


def test_texts_longer_than_the_model_reads_are_truncated_however_long_the_tokenizer_takes_them() -> None:
    model, own = tiny_model(), tokenizer()
    data = examples([0, 1], ["a good film", "a good film the plot"])
    for longest in (5, 6, 512):  # of the tokenizer; two tokens of three or five words are its signs
        own.model_max_length = longest
        victim = Victim.from_model(model, own, name="short", max_length=5)
        assert [row.truncated for row in evaluate(victim, data).evaluations[0].predictions] == [False, True]


def weak_and_strong() -> tuple[Victim, Examples, list[SearchAttack]]:
    """A search that stops after its first questions, and attacks that find what it leaves."""
    model = tiny_model()
    victim, data = Victim.from_model(model, tokenizer()), model_examples(model)
    weak = PWWS(substitutions=SETS, query_budget=6)
    return victim, data, [weak, Genetic(substitutions=SETS), Exhaustive(substitutions=SETS)]


def test_an_attack_that_is_asked_for_twice_is_the_one_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    victim, data, (weak, *_) = weak_and_strong()
    ran: list[PWWS] = []
    run = PWWS.__call__

    def remembered(attack: PWWS, *given: Any, **how: Any) -> AttackResults:
        ran.append(attack)
        return run(attack, *given, **how)

    monkeypatch.setattr(PWWS, "__call__", remembered)
    (found,) = evaluate(victim, data, weak, then=[replace(weak)]).evaluations
    assert [attack is weak for attack in ran] == [True]
    assert found.attack_names == ("pwws",)
    assert len(found.attacks[0].results) == len(data)


def test_attacks_on_what_is_left_find_what_they_find_on_all(tmp_path: Path) -> None:
    victim, data, (weak, *strong) = weak_and_strong()
    (whole,) = evaluate(victim, data, [weak, *strong]).evaluations
    (part,) = evaluate(victim, data, weak, then=strong, out=tmp_path).evaluations
    assert part.held("worst case") == whole.held("worst case")
    standing = {row.id for row in part.predictions if row.correct}
    for run, other in zip(part.attacks, whole.attacks, strict=True):
        outcomes = {result.example_id: result.outcome for result in other.results}
        assert {result.example_id: result.outcome for result in run.results}.items() <= outcomes.items()
        if run.left:
            assert {result.example_id for result in run.results} == standing
        standing -= {result.example_id for result in run.results if result.outcome == "success"}
    first, second, third = (len(run.results) for run in part.attacks)
    assert first > second > third > 0  # the case is a real one: each attack breaks some
    assert part.attack_names == ("pwws", "then genetic", "then exhaustive")
    for number, name in enumerate(part.attack_names):  # what all attacks so far leave of all examples
        assert part.held(name) == replace(whole, attacks=whole.attacks[: number + 1]).held("worst case")
    assert [run.left for run in part.attacks] == [False, True, True]
    assert Report.load(tmp_path).evaluations == (part,)


def test_a_run_on_what_is_left_goes_on_and_is_no_run_on_all(tmp_path: Path) -> None:
    victim, data, (weak, genetic, exhaustive) = weak_and_strong()
    (before,) = evaluate(victim, data, weak, then=[genetic], out=tmp_path).evaluations
    (after,) = evaluate(victim, data, weak, then=[genetic, exhaustive], out=tmp_path, resume=True).evaluations
    assert after.attacks[:2] == before.attacks
    (whole,) = evaluate(victim, data, [weak, genetic], out=tmp_path, resume=True).evaluations
    assert [len(run.results) for run in whole.attacks] == [len(data)] * 2
    assert not any(run.left for run in whole.attacks)


def test_a_run_on_what_is_left_is_tried_on_more_if_others_leave_it_more(tmp_path: Path) -> None:
    victim, data, (weak, genetic, exhaustive) = weak_and_strong()
    (before,) = evaluate(victim, data, genetic, then=[exhaustive], out=tmp_path).evaluations
    (after,) = evaluate(victim, data, weak, then=[exhaustive], out=tmp_path, resume=True).evaluations
    assert len(after.attacks[1].results) > len(before.attacks[1].results)
    (fresh,) = evaluate(victim, data, weak, then=[exhaustive]).evaluations
    assert after.held("worst case") == fresh.held("worst case")


def test_what_is_left_is_rechecked_on_what_is_left() -> None:
    victim, data, (weak, genetic, _) = weak_and_strong()
    (found,) = evaluate(victim, data, weak, then=[genetic], recheck=len(data)).evaluations
    assert {check.total for check in found.attacks[0].rechecks} == {len(data)}
    assert {check.total for check in found.attacks[1].rechecks} == {len(found.attacks[1].results)}


def test_nothing_is_asked_where_nothing_is_left() -> None:
    victim, data, (_, _, exhaustive) = weak_and_strong()
    (only_broken,) = evaluate(victim, data, exhaustive).evaluations
    broken = [result.example_id for result in only_broken.attacks[0].results if result.outcome == "success"]
    (found,) = evaluate(victim, data.with_ids(broken), exhaustive, then=[Genetic(substitutions=SETS)]).evaluations
    assert found.attacks[1].results == ()
    assert found.accuracy("worst case").hits == 0


def test_two_models_are_compared_by_what_all_attacks_so_far_leave(tmp_path: Path) -> None:
    victim, data, (weak, *strong) = weak_and_strong()
    other = Victim.from_model(tiny_model(seed=1, noise=0.3), tokenizer())
    report = evaluate({"one": victim, "other": other}, data, weak, then=strong)
    one, second = report.evaluations
    compared = {item.condition: item.difference for item in report.comparisons}
    assert [*compared] == ["clean", "pwws", "then genetic", "then exhaustive", "worst case"]
    for name, difference in compared.items():
        assert difference == pytest.approx(second.accuracy(name).value - one.accuracy(name).value)
        assert one.accuracy(name).total == len(data)
    for name in ("page.html", "page.md", "page.csv", "page.tex"):
        assert "then genetic" in report.save(tmp_path / name).read_text()
    assert "then genetic" in repr(report) + report._repr_html_()
    assert [*report.to_pandas().condition][:3] == ["clean", "pwws", "then genetic"]


def test_one_model_on_all_and_one_on_what_is_left_stand_in_one_page(tmp_path: Path) -> None:
    victim, data, (weak, genetic, _) = weak_and_strong()
    other = Victim.from_model(tiny_model(seed=1, noise=0.3), tokenizer(), name="other")
    report = merge([evaluate(victim, data, [weak, genetic]), evaluate(other, data, weak, then=[genetic])])
    page = report.save(tmp_path / "page.html").read_text()
    assert "then genetic" in page
    # Alone and after another attack are not the same; the worst of both is.
    assert [item.condition for item in report.comparisons] == ["clean", "pwws", "worst case"]
    assert report.save(tmp_path / "page.md").read_text().count("then genetic") >= 1


def test_a_text_without_words_to_change_is_left_standing(tmp_path: Path) -> None:
    data = examples([1, 0], ["a good film", "the the the"])
    pwws, genetic = PWWS(substitutions=SETS), Genetic(substitutions=SETS)
    (found,) = evaluate(keyword_victim(), data, pwws, then=[genetic], recheck=2).evaluations
    (whole,) = evaluate(keyword_victim(), data, [pwws, genetic]).evaluations
    assert found.held("worst case") == whole.held("worst case")
    assert [result.outcome for result in found.attacks[1].results] == ["failure"]
    with pytest.raises(UnshakenError, match="change no word of this text"):
        evaluate(keyword_victim(), data.with_ids([data[1].id]), pwws)


def test_flags_compare_what_both_attacks_were_tried_on() -> None:
    victim, data, (_, _, exhaustive) = weak_and_strong()
    small, large = PWWS(substitutions=SETS, query_budget=8), PWWS(substitutions=SETS, query_budget=1000)
    for how in ({"attacks": [small, large]}, {"attacks": small, "then": [large]}):
        assert "more-budget-helps" in raised(evaluate(victim, data, **how))
    # A search by other scores on what the first could not break is no repetition of it.
    probability, margin = (PWWS(substitutions=SETS, scoring=scoring) for scoring in ("probability", "margin"))
    report = evaluate(victim, data, probability, then=[margin])
    checks = [check for check in report.checks if check.flag == "miscalibration"]
    assert {check.verdict for check in checks} == {"unknown"}
    (transfer,) = [
        check
        for check in evaluate(victim, data, Transfer(source=victim), then=[exhaustive]).checks
        if check.flag == "transfer-beats-direct"
    ]
    assert transfer.verdict == "unknown"


def test_a_run_on_what_is_left_is_cut_if_others_leave_it_less(tmp_path: Path) -> None:
    victim, data, (weak, genetic, exhaustive) = weak_and_strong()
    evaluate(victim, data, weak, then=[exhaustive], out=tmp_path)
    (after,) = evaluate(victim, data, [weak, genetic], then=[exhaustive], out=tmp_path, resume=True).evaluations
    (fresh,) = evaluate(victim, data, [weak, genetic], then=[exhaustive]).evaluations
    assert [row.example_id for row in after.attacks[2].results] == [row.example_id for row in fresh.attacks[2].results]
    assert after.attacks[2].truncated_swaps == fresh.attacks[2].truncated_swaps


def test_several_processes_do_what_was_done_of_what_is_left_only(tmp_path: Path) -> None:
    victim, data, (weak, genetic, _) = weak_and_strong()
    evaluate(victim, data, weak, then=[genetic], out=tmp_path)
    for rank in (1, 0):  # the first gathers, and comes last here
        report = evaluate(victim, data, [weak, genetic], out=tmp_path, resume=True, shard=Shard(rank=rank, count=2))
    assert report is not None
    assert report.evaluations[0].held("genetic") == evaluate(victim, data, genetic).evaluations[0].held("genetic")


def test_merging_takes_the_run_on_all_examples(tmp_path: Path) -> None:
    victim, data, (weak, genetic, _) = weak_and_strong()
    left, whole = evaluate(victim, data, weak, then=[genetic]), evaluate(victim, data, [weak, genetic])
    for parts in ([left, whole], [whole, left]):
        (found,) = merge(parts).evaluations
        assert [(run.left, len(run.results)) for run in found.attacks] == [(False, len(data))] * 2
    other = evaluate(victim, data, PWWS(substitutions=SETS, query_budget=9), then=[genetic])
    joint = merge([left, other])
    assert Report.load(joint.save(tmp_path / "joint.json")).evaluations == joint.evaluations


def test_runs_of_one_attack_that_broke_other_examples_are_not_joined() -> None:
    victim, data, (weak, genetic, _) = weak_and_strong()
    first, second = evaluate(victim, data, weak), evaluate(victim, data, weak, then=[genetic])
    (one,) = first.evaluations
    *_, broken = (result for result in one.attacks[0].results if result.outcome == "success")
    stood = next(result for result in one.attacks[0].results if result.outcome == "failure")
    held = replace(broken, outcome="failure", adversarial=None, swaps=(), similarity=None, adversarial_prediction=None)
    results = tuple(held if result is broken else result for result in one.attacks[0].results)
    weaker, other = (
        Report(evaluations=(replace(one, attacks=(replace(one.attacks[0], results=rows),)),))
        for rows in (
            results,
            tuple(replace(broken, example_id=row.example_id) if row is stood else row for row in results),
        )
    )
    for parts in ([weaker, second], [second, weaker]):  # the one that broke more counts
        assert merge(parts).evaluations[0].held("worst case") == second.evaluations[0].held("worst case")
    assert merge([first, second]).evaluations[0].held("worst case") == second.evaluations[0].held("worst case")
    with pytest.raises(UnshakenError, match="cannot be one result: genetic was not tried on all that was left"):
        merge([other, second])


def test_a_run_that_stops_among_attacks_on_what_is_left_goes_on(tmp_path: Path, monkeypatch: Any) -> None:
    victim, data, (weak, genetic, exhaustive) = weak_and_strong()
    evaluate(victim, data, exhaustive, then=[genetic], out=tmp_path)

    def stop(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Genetic, "__call__", stop)
        with pytest.raises(KeyboardInterrupt):
            evaluate(victim, data, weak, then=[genetic], out=tmp_path, resume=True)
    (after,) = evaluate(victim, data, weak, then=[genetic], out=tmp_path, resume=True).evaluations
    (fresh,) = evaluate(victim, data, weak, then=[genetic]).evaluations
    assert after.held("then genetic") == fresh.held("then genetic")


def test_a_run_that_was_not_tried_on_all_that_was_left_is_refused(tmp_path: Path) -> None:
    victim, data, (weak, genetic, _) = weak_and_strong()
    value = evaluate(victim, data, weak, then=[genetic]).to_json()
    value["evaluations"][0]["attacks"][1]["results"].pop()
    with pytest.raises(UnshakenError, match="genetic was not tried on all that was left"):
        Report.from_json(value)


def test_one_set_under_two_names_keeps_both() -> None:
    victim, data, _ = weak_and_strong()
    report = evaluate(victim, {"dev": data, "test": data})
    assert [item.data.name for item in report.evaluations] == ["dev", "test"]


def test_a_report_of_an_earlier_release_has_no_attack_on_what_is_left(tmp_path: Path) -> None:
    victim, data, (weak, *_) = weak_and_strong()
    report = evaluate(victim, data, weak)
    value = report.to_json()
    del value["evaluations"][0]["attacks"][0]["left"]
    assert Report.from_json(value) == report


def test_transfers_on_what_is_left_are_flagged_if_they_find_what_direct_attacks_did_not() -> None:
    victim, data, (weak, genetic, exhaustive) = weak_and_strong()
    transfer = Transfer(source=victim, attack=genetic)
    for direct, verdict in ((weak, "raised"), (exhaustive, "clear")):
        report = evaluate(victim, data, direct, then=[transfer])
        (check,) = (item for item in report.checks if item.flag == "transfer-beats-direct")
        assert check.verdict == verdict
        assert "examples that direct attacks had left standing" in check.evidence
