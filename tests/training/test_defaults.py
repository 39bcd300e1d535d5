"""Rate and epochs from size and rows: enough steps for few rows, no more than that, and never against a user's word."""

from __future__ import annotations

import json

import pytest

from unshaken.training.defaults import EPOCHS, FEWEST_STEPS, schedule


@pytest.mark.parametrize("rows", [16, 100, 240, 1000, 4800, 70_000])
def test_enough_steps_and_no_more(rows):
    found = schedule(22_000_000, rows, 16)
    steps = -(-rows // 16)
    assert EPOCHS[0] <= found.epochs <= EPOCHS[1]
    assert found.epochs * steps >= FEWEST_STEPS or found.epochs == EPOCHS[1]
    assert (found.epochs - 1) * steps < FEWEST_STEPS or found.epochs == EPOCHS[0]
    assert f"{found.epochs * steps:,} steps" in found.epochs_reason


def test_larger_models_have_lower_rates():
    rates = [schedule(size, 1000, 16).learning_rate for size in (5e6, 22e6, 110e6, 340e6)]
    assert rates == sorted(rates, reverse=True)
    assert rates[1] == 1e-4


def test_the_command_says_what_it_chose_and_keeps_to_what_was_given(unshaken, tiny, tmp_path, write_rows):
    rows = [(f"{word} film number {n}", label) for n in range(12) for word, label in (("good", "pos"), ("bad", "neg"))]
    data = write_rows(tmp_path / "reviews.csv", ("text", "label"), *rows)
    common = ["train", "--task", data, "--model", tiny, "--cpu", "--batch-size", 4]
    code, text, err = unshaken(*common, "--out", tmp_path / "chosen", "--epochs", 1)
    assert code == 0, err
    assert "chosen: learning rate 0.0001" in text
    assert "epochs (" not in text  # nobody chose what was given
    record = json.loads((tmp_path / "chosen" / "model" / "unshaken_training.json").read_text())
    assert (record["details"]["arguments"]["learning_rate"], record["details"]["steps"]) == (1e-4, 5)
    code, text, err = unshaken(*common, "--out", tmp_path / "given", "--epochs", 1, "--learning-rate", 0.001)
    assert code == 0, err
    assert "chosen" not in text
