"""Parts of a training run by themselves: the best weights, the batch, what is finite, and what goes on as it was."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from test_trainer import tokenizer
from torch import nn

from unshaken import Example, RobustTrainingArguments, UnshakenError
from unshaken.defences import Defence, Standard
from unshaken.training import KeepBest, TextCollator
from unshaken.training.callbacks import DefenceCallback
from unshaken.training.checkpoints import (
    complaint,
    has_checkpoints,
    last_complete,
    replaced_folder,
    seal,
    sweep,
    whole_or_gone,
)
from unshaken.training.collator import check_kind, check_labels
from unshaken.training.defaults import schedule
from unshaken.training.nonfinite import finite_gradients
from unshaken.training.resuming import Clock, begin, chosen_before, step_of, whole_checkpoint
from unshaken.training.selection import accuracy

__all__ = ["tokenizer"]  # the fixture

VALUES = [3.0, 1.0, math.nan, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(("greater", "best"), [(False, 1), (True, 0)])
@pytest.mark.parametrize("wrapped", [False, True])
def test_training_ends_with_the_weights_of_the_first_of_the_best_evaluations(greater, best, wrapped):
    core = nn.Linear(1, 1)
    model = SimpleNamespace(module=core) if wrapped else core
    keep = KeepBest("eval_score", greater_is_better=greater)
    for number, value in enumerate(VALUES):
        nn.init.constant_(core.weight, number)
        keep.on_log(None, None, None, model=model, logs={"eval_score": value, "eval_loss": -number})
    keep.on_log(None, None, None, model=model, logs={"loss": -100.0})
    keep.on_log(None, None, None, model=model, logs=None)
    keep.on_train_end(None, None, None, model=model)
    assert core.weight.item() == best


def test_the_lowest_loss_is_best_if_nobody_says_otherwise_and_without_evaluations_the_last_weights_stay():
    model = nn.Linear(1, 1)
    keep = KeepBest()
    keep.on_train_end(None, None, None, model=model)
    for number, value in enumerate(VALUES):
        nn.init.constant_(model.weight, number)
        keep.on_log(None, None, None, model=model, logs={"eval_loss": value})
    keep.on_train_end(None, None, None, model=model)
    assert model.weight.item() == 1


def test_the_highest_accuracy_is_best_if_nobody_says_otherwise():
    model = nn.Linear(1, 1)
    keep = KeepBest("eval_accuracy")
    for number, value in enumerate(VALUES):
        nn.init.constant_(model.weight, number)
        keep.on_log(None, None, None, model=model, logs={"eval_accuracy": value})
    keep.on_train_end(None, None, None, model=model)
    assert model.weight.item() == 0


def test_a_metric_that_no_evaluation_gives_is_told(capsys):
    model = nn.Linear(1, 1)
    for metric, told in (("eval_acuracy", "did you mean 'eval_accuracy'?"), ("eval_loss", "")):
        keep = KeepBest(metric)
        keep.on_log(None, None, None, model=model, logs={"eval_accuracy": 0.5, "eval_loss": math.nan})
        keep.on_train_end(None, None, None, model=model)
        said = capsys.readouterr().err
        assert ("the last weights are kept" in said) == bool(told)
        assert told in said


@pytest.mark.parametrize(
    ("given", "loads"),
    [
        ({}, True),
        ({"save_strategy": "no"}, False),
        ({"eval_strategy": "no"}, False),
        ({"save_strategy": "no", "load_best_model_at_end": False}, False),
    ],
)
def test_the_best_checkpoint_is_asked_for_where_there_can_be_one(tmp_path, given, loads):
    """One setting that nobody made was refused with another one's name."""
    assert RobustTrainingArguments(str(tmp_path), use_cpu=True, **given).load_best_model_at_end is loads
    with pytest.raises(ValueError, match="load_best_model_at_end"):
        RobustTrainingArguments(str(tmp_path), use_cpu=True, save_strategy="no", load_best_model_at_end=True)


def test_a_batch_is_padded_to_its_longest_row_and_cut_at_the_limit(tokenizer):
    rows = [Example(id=str(i), texts=("good " * count,), label=i) for i, count in enumerate((2, 40, 200))]
    batch = TextCollator(tokenizer)(rows)
    assert batch["attention_mask"].sum(-1).tolist() == [2, 40, 128]
    assert TextCollator(tokenizer, 32)(rows[:2])["attention_mask"].shape == (2, 32)
    assert (batch["labels"].tolist(), batch["labels"].dtype, batch["examples"]) == ([0, 1, 2], torch.long, rows)
    targets = TextCollator(tokenizer)([Example(id="0", texts=("good",), label=0.5)])["labels"]
    assert (targets.tolist(), targets.dtype) == ([0.5], torch.float)


@pytest.mark.parametrize("label", [-1, 3, 0.5])
def test_a_label_without_an_output_is_refused_by_name(label):
    with pytest.raises(UnshakenError, match=rf"rows has the label {label!r}, but the model has 3 labels \(0 to 2\)"):
        check_labels([0, 1, 2, label], 3, "rows")
    check_labels([0, 2, 1], 3, "rows")
    check_labels([0.5, label], 1, "rows")


@pytest.mark.parametrize(
    ("labels", "outputs", "kind", "message"),
    [
        ([1, 0], 2, None, None),
        ([0.5, 1.0], 1, None, None),
        ([[0.5, 1.0]], 2, "regression", None),
        ([[0.0, 1.0]], 2, None, "the model has 2 classes: several labels at once"),
        ([[0.0, 1.0]], 2, "multi_label_classification", "several labels at once"),
        ([0, 0], 1, None, "one class teaches nothing"),
    ],
)
def test_labels_are_classes_or_targets_as_the_model_takes_them(labels, outputs, kind, message):
    config = SimpleNamespace(num_labels=outputs, problem_type=kind)
    with contextlib.nullcontext() if message is None else pytest.raises(UnshakenError, match=message):
        check_kind(torch.tensor(labels), config)


def test_a_gradient_is_finite_where_each_of_its_entries_is():
    gradients = [[1.0, -2.0], [1.0, math.nan], None, [math.inf, 0.0], [-math.inf, 0.0], [1e38, -1e38], [0.0, 0.0]]
    parameters = [nn.Parameter(torch.zeros(2)) for _ in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = None if gradient is None else torch.tensor(gradient)
    assert finite_gradients(parameters).tolist() == [1, 0, 1, 0, 0, 1, 1]  # squares of 1e38 are infinite
    assert finite_gradients(parameters[2:3]).tolist() == [1]


def test_accuracy_is_the_share_of_rows_whose_largest_logit_is_their_label():
    logits, labels = (
        np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0], [3.0, 1.0, 0.0], [0.0, 1.0, 0.5]]),
        np.array([0, 1, 0, 1]),
    )
    hidden = np.zeros((4, 3))
    for predictions in (logits, (logits, hidden)):
        assert accuracy(SimpleNamespace(predictions=predictions, label_ids=labels)) == {"accuracy": 0.75}


def test_training_keeps_the_checkpoint_of_lowest_loss_if_nobody_says_otherwise(tmp_path):
    found = RobustTrainingArguments(str(tmp_path), use_cpu=True)
    assert (found.eval_strategy, found.save_strategy, found.load_best_model_at_end) == ("epoch", "epoch", True)
    assert (found.metric_for_best_model, found.greater_is_better, found.save_total_limit) == ("eval_loss", False, 2)
    assert (found.max_length, found.warmup_steps, found.balance_classes, found.cuda_graphs) == (128, 0.1, False, False)
    assert found.dataloader_pin_memory is torch.accelerator.is_available()  # without one there is nothing to pin for


@pytest.mark.parametrize(
    ("metric", "greater"), [("accuracy", True), ("eval_accuracy_under_attack", True), ("eval_loss", False)]
)
def test_the_best_checkpoint_is_the_best_one_by_whatever_metric(tmp_path, metric, greater):
    found = RobustTrainingArguments(str(tmp_path), use_cpu=True, metric_for_best_model=metric)
    assert found.greater_is_better is greater
    given = RobustTrainingArguments(
        str(tmp_path), use_cpu=True, metric_for_best_model=metric, greater_is_better=not greater
    )
    assert given.greater_is_better is not greater


class Learned(Defence):
    """Has a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(2))


@pytest.mark.parametrize(
    ("limit", "left"), [(1.0, [0.6, 0.8]), (0.5, [0.3, 0.4]), (10.0, [3.0, 4.0]), (0.0, [3.0, 4.0])]
)
def test_the_gradient_of_a_defence_is_clipped_as_that_of_the_model_is(limit, left):
    defence = Learned()
    defence.scale.grad = torch.tensor([3.0, 4.0])
    for each in (defence, Standard()):  # which has none
        around = DefenceCallback(SimpleNamespace(defence=each, model=None))
        around.on_pre_optimizer_step(SimpleNamespace(max_grad_norm=limit), None, None)
    torch.testing.assert_close(defence.scale.grad, torch.tensor(left))


@pytest.mark.parametrize(
    ("parameters", "millions", "rate"),
    [
        (1_500_000, "2", "0.0001"),
        (39_999_999, "40", "0.0001"),
        (40_000_000, "40", "3e-05"),
        (199_999_999, "200", "3e-05"),
        (200_000_000, "200", "1e-05"),
        (10**9, "1000", "1e-05"),
    ],
)
def test_the_rate_goes_by_the_size_of_the_model(parameters, millions, rate):
    found = schedule(parameters, 1000, 16)
    assert found.learning_rate == float(rate)
    assert found.rate_reason == f"learning rate {rate} for {millions} million parameters (--learning-rate)"


@pytest.mark.parametrize(
    ("rows", "epochs", "steps"),
    [
        (16, 20, "20"),
        (240, 20, "300"),
        (256, 19, "304"),
        (257, 18, "306"),
        (1584, 4, "396"),
        (1600, 3, "300"),
        (10**6, 3, "187,500"),
    ],
)
def test_epochs_are_as_few_as_give_three_hundred_steps_from_three_to_twenty(rows, epochs, steps):
    found = schedule(22_000_000, rows, 16)
    assert found.epochs == epochs
    assert found.epochs_reason == f"{epochs} epochs ({steps} steps) for {rows:,} rows (--epochs)"


IDENTITY = {"seed": 0, "task": "reviews", "base_weights": "abc", "defence": [{"name": "SWAP", "k": 3}]}
ARGUMENTS = {"learning_rate": 1e-4, "num_train_epochs": 3, "use_cpu": True, "save_steps": 5, "fsdp": Path("a")}


def checkpoint(folder: Path, step: int, **state: Any) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "trainer_state.json").write_text(json.dumps({"global_step": step, **state}), encoding="utf-8")
    seal(path)
    return path


def test_a_run_goes_on_as_what_it_was(tmp_path):
    begin(tmp_path, IDENTITY, ARGUMENTS)
    assert chosen_before(tmp_path) == {}  # nothing was trained with them yet
    found, notes = whole_checkpoint(tmp_path, IDENTITY, ARGUMENTS)
    assert (found, len(notes)) == (None, 1)
    assert "holds no checkpoint that can be used; training starts from the beginning" in notes[0]
    last = [checkpoint(tmp_path, step) for step in (2, 10, 9)][1]
    assert chosen_before(tmp_path) == {"learning_rate": 1e-4, "num_train_epochs": 3, "fsdp": "a"}
    elsewhere = {**ARGUMENTS, "use_cpu": False, "save_steps": 7}  # decides nothing about what is learned
    assert whole_checkpoint(tmp_path, IDENTITY, elsewhere) == (last, [])
    assert (step_of(None), step_of(last)) == (0, 10)
    assert chosen_before(tmp_path / "none") == {}


@pytest.mark.parametrize(
    ("identity", "arguments", "message"),
    [
        ({"seed": 1}, {}, "its seed is 0, now 1"),
        ({"base_weights": "abd"}, {}, "its base weights is 'abc', now 'abd'"),
        ({"defence": [{"name": "SWAP", "k": 4}]}, {}, "its defence was another one"),
        ({"reader": "all"}, {}, "its reader is None, now 'all'"),
        ({}, {"learning_rate": 2e-4}, r"its learning rate is 0\.0001, now 0\.0002"),
        ({}, {"max_length": 64}, "its max length is None, now 64"),
    ],
)
def test_another_run_does_not_go_on_in_its_folder(tmp_path, identity, arguments, message):
    begin(tmp_path, IDENTITY, ARGUMENTS)
    checkpoint(tmp_path, 2)
    with pytest.raises(UnshakenError, match=f"holds another run: {message}; resume it as it was started"):
        whole_checkpoint(tmp_path, {**IDENTITY, **identity}, {**ARGUMENTS, **arguments})


def test_a_setting_that_is_left_out_is_another_one_and_a_lost_plan_is_said(tmp_path):
    begin(tmp_path, IDENTITY, ARGUMENTS)
    fewer = {key: value for key, value in ARGUMENTS.items() if key != "num_train_epochs"}
    with pytest.raises(UnshakenError, match="its num train epochs is 3, now None"):
        whole_checkpoint(tmp_path, IDENTITY, fewer)
    (tmp_path / "plan.json").unlink()
    with pytest.raises(UnshakenError, match=r"plan\.json is gone: what its checkpoints were trained from is not known"):
        whole_checkpoint(tmp_path, IDENTITY, ARGUMENTS)


def test_the_time_before_a_kill_counts(tmp_path, monkeypatch):
    now = iter([100.0, 107.0, 109.0, 50.0, 53.0])
    monkeypatch.setattr("unshaken.training.resuming.time.perf_counter", lambda: next(now))
    clock = Clock(None)
    assert clock.seconds == 7.0
    kept = checkpoint(tmp_path, 4, stateful_callbacks={"Clock": clock.state()})
    assert Clock(kept).seconds == 9.0 + 3.0
    monkeypatch.undo()
    assert 0 <= Clock(checkpoint(tmp_path, 5)).seconds < 9


def test_the_last_checkpoint_is_the_one_of_most_steps_that_is_as_it_was_sealed(tmp_path):
    for step in (1, 2, 10, 9):
        checkpoint(tmp_path, step)
    (tmp_path / "checkpoint-11.old").mkdir()
    (tmp_path / "checkpoint-12").write_text("no folder")
    assert last_complete(tmp_path).folder == tmp_path / "checkpoint-10"
    (tmp_path / "checkpoint-10" / "trainer_state.json").write_text('{"global_step": 11}')  # of the same size
    (tmp_path / "checkpoint-9" / "seal.json").unlink()
    (tmp_path / "checkpoint-2" / "seal.json").write_text("[]")
    assert complaint(tmp_path / "checkpoint-2") == "seal.json is damaged"
    found = last_complete(tmp_path)
    assert found.folder == tmp_path / "checkpoint-1"
    assert found.notes == (
        "checkpoint-10 is left out: trainer_state.json has changed since it was written",
        "checkpoint-9 is left out: its writing was cut off",
        "checkpoint-2 is left out: seal.json is damaged",
    )


def test_what_was_never_made_is_no_second_error(tmp_path):
    where, name = tmp_path / "none", Path("the model")
    said = "cannot write the model: no room; make room there"
    with pytest.raises(UnshakenError, match=said), whole_or_gone(where, name):
        raise OSError("no room")
    with pytest.raises(ValueError, match="no room"), whole_or_gone(where, name):
        raise ValueError("no room")
    with replaced_folder(tmp_path / "new" / "folder" / "model") as filling:
        (filling / "weights").write_text("first")
    assert (tmp_path / "new" / "folder" / "model" / "weights").read_text() == "first"
    (tmp_path / ".checkpoint-3.old").write_text("a file that cannot be a checkpoint")
    sweep(tmp_path)


def test_a_folder_has_checkpoints_where_one_is_named_like_them(tmp_path):
    assert not has_checkpoints(tmp_path / "none")
    assert not has_checkpoints(tmp_path)
    (tmp_path / "checkpoint-x").mkdir()
    assert not has_checkpoints(tmp_path)
    checkpoint(tmp_path, 3)
    assert has_checkpoints(tmp_path)
