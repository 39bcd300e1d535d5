"""The model card: metadata the hub reads, numbers with intervals, limits and citation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from report_parts import made_evaluation, run

from unshaken.errors import UnshakenError
from unshaken.reports import Report, TrainingRecord
from unshaken.reports.model_card import model_card, save_model_card

RECORD = TrainingRecord(
    method="RIFT + IM-BERT 4-6",
    seed=7,
    base_model="google-bert/bert-base-uncased",
    task="sst2",
    substitutions=({"name": "wordnet", "fingerprint": "b" * 64},),
    details={"connection": {"layers": "4-6"}, "defence": {"name": "rift", "alpha": 0.1}},
)


def report() -> Report:
    evaluation = made_evaluation(run("xxxooooo--"), model="RIFT + IM-BERT 4-6", seed=7, wrong=(8, 9))
    return Report(evaluations=(replace(evaluation, model=replace(evaluation.model, training=RECORD)),))


def test_the_hub_reads_the_numbers(tmp_path: Path) -> None:
    path = save_model_card(tmp_path, RECORD, report())
    card = ModelCard.load(path)
    values = {item.metric_name: item.metric_value for item in card.data.eval_results}
    assert values == {"accuracy": 0.8, "accuracy (pwws)": 0.5}
    assert card.data.base_model == "google-bert/bert-base-uncased"
    assert card.data.pipeline_tag == "text-classification"


def test_the_reader_finds_intervals_limits_flags_and_citation() -> None:
    text = model_card(RECORD, report())
    assert "50.0 \\[23.7, 76.3\\]" in text
    assert "upper bound" in text
    assert "few-seeds" in text
    assert "@inproceedings{kim-etal-2024-im" in text
    assert "@inproceedings{dong-etal-2021-how" in text
    assert "import unshaken" in text


def test_a_plain_model_needs_no_unshaken_and_a_local_base_no_metadata() -> None:
    plain = replace(RECORD, method="plain fine-tuning", details={}, base_model="/models/my bert", substitutions=())
    text = model_card(plain)
    assert "import unshaken" not in text
    assert "@inproceedings" not in text
    assert "base_model" not in text.split("---")[1]
    assert "Not evaluated yet" in text


def test_a_model_with_a_reader_is_used_with_it() -> None:
    text = model_card(replace(RECORD, details={"reader": "unicode,spelling:doubt=20"}))
    assert 'Victim.from_pretrained("path/or/name/of/this/model")' in text
    assert "from transformers import pipeline" not in text


def test_another_models_numbers_are_left_out() -> None:
    other = replace(
        report().evaluations[0], model=replace(report().evaluations[0].model, training=replace(RECORD, seed=8))
    )
    assert "Not evaluated yet" in model_card(RECORD, Report(evaluations=(other,)))


def test_a_model_is_known_beside_another_of_its_methods_name() -> None:
    (own,) = report().evaluations
    larger = replace(own.model, fingerprint="f" * 64, training=replace(RECORD, base_model="larger"))
    both = Report(evaluations=(own, replace(own, model=larger)))
    assert both.evaluations[0].model.training != RECORD  # the report tells the two apart
    card = model_card(RECORD, both)
    assert "Not evaluated yet" not in card
    assert "larger" not in card


def test_the_training_record_round_trips_and_is_checked(tmp_path: Path) -> None:
    path = RECORD.save(tmp_path)
    assert TrainingRecord.load(tmp_path) == RECORD
    assert TrainingRecord.load(tmp_path / "elsewhere") is None
    path.write_text(path.read_text().replace('"seed": 7', '"seed": "seven"'))
    with pytest.raises(UnshakenError, match=r"seed: expected a whole number, got 'seven'"):
        TrainingRecord.load(tmp_path)


def test_a_card_has_no_number_of_which_nothing_is_known() -> None:
    """A file with NaN in its metadata is refused by readers that take JSON's numbers alone."""
    made = report().evaluations[0]
    failed = replace(made, attacks=(run("!!!!!!!!!!"),))
    card = ModelCard(model_card(RECORD, Report(evaluations=(failed,))))
    assert {item.metric_name: item.metric_value for item in card.data.eval_results} == {"accuracy": 0.8}
