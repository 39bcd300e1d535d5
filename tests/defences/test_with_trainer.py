"""Defences in the real trainer: accumulation, resuming, several processes, logs and losses that are not finite."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny import tiny_model
from torch import Tensor
from training_runs import (
    CASES,
    NOISELESS,
    SHORT,
    Case,
    accuracy_under_attack,
    trainer_for,
    weights_after,
    weights_without_noise,
)

from table import DefenceRow, defences
from unshaken.connections import Connection
from unshaken.defences import PTWD, FreeLB, Regulariser, Step
from unshaken.errors import UnshakenError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")


def assert_same_training(
    one: dict[str, Tensor], other: dict[str, Tensor], tolerance: float = 1e-3, start: dict[str, Tensor] | None = None
) -> None:
    """Equal to a small share of the way from the start."""
    start = dict(tiny_model(dropout=0.0).state_dict()) if start is None else start
    assert largest_difference(one, other) < tolerance * largest_difference(one, start)


def largest_difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    assert one.keys() == other.keys()
    return max((one[name] - other[name]).abs().max().item() for name in one)


@pytest.mark.full
@pytest.mark.parametrize("row", NOISELESS, ids=lambda row: row.name)
def test_gradient_accumulation_changes_nothing(row: DefenceRow, tmp_path: Path) -> None:
    whole = weights_without_noise(row, tmp_path)
    pieces = weights_without_noise(row, tmp_path, per_device_train_batch_size=1, gradient_accumulation_steps=8)
    assert_same_training(whole, pieces)


@pytest.mark.full
@pytest.mark.parametrize(
    "row", [row for row in NOISELESS if row.name in ("freelb", "ascc", "swap")], ids=lambda row: row.name
)
def test_gradient_accumulation_changes_nothing_in_a_connected_model(row: DefenceRow, tmp_path: Path) -> None:
    """With backward passes in the middle of a step, gradients at the words, and passes over other texts."""
    runs = [
        weights_without_noise(
            row,
            tmp_path,
            connection=Connection(),
            per_device_train_batch_size=size,
            gradient_accumulation_steps=8 // size,
        )
        for size in (8, 1)
    ]
    assert_same_training(*runs, tolerance=1e-8)


@pytest.mark.full
@pytest.mark.parametrize("row", defences(), ids=lambda row: row.name)
def test_a_resumed_run_ends_where_an_unbroken_one_does(row: DefenceRow, tmp_path: Path) -> None:
    settings = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4, "optim": "adamw_torch", "dropout": 0.1}
    unbroken = weights_after(row.make(), tmp_path, **settings)
    # A fresh model and a fresh defence: what the run needs must be in the checkpoint.
    trainer = trainer_for(row.make(), tmp_path, **settings)
    with contextlib.redirect_stdout(io.StringIO()):
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    torch.testing.assert_close(dict(trainer.model.state_dict()), unbroken, rtol=0, atol=0)


def two_processes(folder: Path, *words: str) -> None:
    script = Path(__file__).with_name("training_runs.py")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    paths = os.pathsep.join(sys.path)  # what the tests import from, table.py and the tiny models among it
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run([*launch, str(folder), *words], env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]


def assert_as_one_process(folder: Path, cases: list[Case]) -> None:
    for case in cases:
        # What two processes do at once, one does one after the other.
        pieces = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
        if case.name == "accumulated":
            pieces = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}
        expected = case.weights(folder, **pieces)
        start = case.weights(folder, learning_rate=0.0) if case.smoothing else None
        for mode in ("ddp", "fsdp2"):
            found = load_file(folder / f"{mode}-{case.name}.safetensors")
            assert_same_training(found, expected, case.tolerance, start)
            if case.smoothing:  # Theta is outside the table, and must have moved alike in both processes
                (name,) = (name for name in found if name.endswith(".theta"))
                moved = (found[name] - start[name]).abs().max()
                assert (found[name] - expected[name]).abs().max() < case.tolerance * moved


@pytest.mark.dist
def test_two_processes_train_as_one_does(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    two_processes(tmp_path)
    assert_as_one_process(tmp_path, [case for case in CASES if case.name in SHORT])
    alone = accuracy_under_attack(tmp_path)
    assert 0 < alone < 1
    assert json.loads((tmp_path / "answers.json").read_text()) == [pytest.approx(alone)] * 2
    # Shards are saved whole, so one process can go on where two ended.
    (row,) = (row for row in defences() if row.name == "swap-informative")
    checkpoint = str(tmp_path / "fsdp2" / "checkpoint-4")
    weights_after(row.make(), tmp_path / "one", resume=checkpoint, max_steps=6, optim="adamw_torch")
    assert "checkpoint-4 was written by another number of processes" in caplog.text


@pytest.mark.dist
@pytest.mark.slow
def test_two_processes_train_every_defence_as_one_does(tmp_path: Path) -> None:
    two_processes(tmp_path, "everything")
    assert_as_one_process(tmp_path, CASES)


@pytest.mark.full
@pytest.mark.parametrize(
    "row",
    [
        row
        for row in defences()
        if row.name in ("freelb", "smart-bregman", "infobert", "rift", "swap-informative", "mixout")
    ],
    ids=lambda row: row.name,
)
def test_bf16_in_the_trainer(row: DefenceRow, tmp_path: Path) -> None:
    before = dict(tiny_model(dtype=torch.float32).state_dict())
    after = weights_after(row.make(), tmp_path, bf16=True)
    assert all(value.isfinite().all() for value in after.values())
    assert largest_difference(after, before) > 0


def test_each_part_is_logged_under_its_name(tmp_path: Path) -> None:
    trainer = trainer_for(FreeLB() + PTWD(weight=0.5), tmp_path, logging_steps=1)
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(logged) == 3
    for entry in logged:
        assert entry["loss"] == pytest.approx(entry["loss_adversarial"] + entry["loss_ptwd"], rel=1e-3)
    assert logged[-1]["loss_ptwd"] > 0


class Broken(Regulariser):
    def penalty(self, step: Step) -> dict[str, Tensor]:
        return {"mine": step.read("clean", "Broken").logits.sum() * float("nan")}


def test_a_loss_that_is_not_finite_is_named(tmp_path: Path) -> None:
    trainer = trainer_for(Broken(), tmp_path)
    with pytest.raises(UnshakenError, match=r"step 1: the loss is not finite \(task = .*, mine = nan"):
        trainer.train()


def test_weights_a_model_ends_with_are_those_it_was_trained_with(tmp_path: Path) -> None:
    """Mixout and R4F swap weights while training; what is saved computes what the trained model computes."""
    for row in defences():
        if row.name in ("mixout", "r4f"):
            trainer = trainer_for(row.make(), tmp_path)
            trainer.train()
            trainer.save_model(str(tmp_path / row.name))
            loaded: Any = type(trainer.model).from_pretrained(tmp_path / row.name, dtype=torch.float32).eval()
            batch = {"input_ids": torch.arange(2, 12).view(2, 5)}
            torch.testing.assert_close(loaded(**batch).logits, trainer.model.eval()(**batch).logits)
