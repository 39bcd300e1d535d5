"""Checkpoints: what is in them, what is refused, and what a full disk or a planted pickle can do."""

from __future__ import annotations

import os
import pickle
import random
import resource
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harness import limited_files
from test_trainer import network, tokenizer, train, weights
from transformers import TrainerCallback

from unshaken import UnshakenError
from unshaken.defences import InformativeTerm
from unshaken.training.checkpoints import complaint, last_complete, replaced_folder, rotate, seal
from unshaken.training.nested_state import load_state, save_state

__all__ = ["tokenizer"]  # the fixture

EVERY_STEP = {"save_strategy": "steps", "save_steps": 1, "save_total_limit": None}


def test_a_tree_comes_back_as_it_went(tmp_path: Path) -> None:
    tree = {
        "state": {0: {"step": torch.tensor(3.0), "average": torch.randn(2, 3)}, 1: {}},
        "groups": [{"params": [0, 1], "betas": (0.9, 0.999), "fused": None, "foreach": True}],
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "half": torch.ones(2, dtype=torch.bfloat16),
        "text": "{'tensor': '0'}",
    }
    save_state(tree, tmp_path / "tree.safetensors")
    found = load_state(tmp_path / "tree.safetensors")
    assert found["groups"] == tree["groups"]
    assert found["python"] == tree["python"]
    assert found["text"] == tree["text"]
    torch.testing.assert_close(found["state"], tree["state"], rtol=0, atol=0)
    assert found["half"].dtype == torch.bfloat16
    np.testing.assert_equal(found["numpy"], tree["numpy"])
    with pytest.raises(UnshakenError, match="cannot hold"):
        save_state({"a": tmp_path}, tmp_path / "no.safetensors")


@pytest.mark.parametrize("content", [b"", b"not safetensors", b"\x08\0\0\0\0\0\0\0{}      "])
def test_a_file_that_is_no_tree_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tree.safetensors").write_bytes(content)
    with pytest.raises(UnshakenError, match=r"tree\.safetensors: not a state file"):
        load_state(tmp_path / "tree.safetensors")


class Payload:
    """A pickle that writes a file when it is read."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return Path.write_text, (self.target, "it ran")


def test_checkpoints_hold_no_pickle_and_read_none(tmp_path: Path, tokenizer: Any) -> None:
    whole = train(
        tmp_path / "run", tokenizer, model=network(dropout=0.1), defence=InformativeTerm(on="clean"), **EVERY_STEP
    )
    whole.save_model(str(tmp_path / "final"))
    for path in [*(tmp_path / "run").rglob("*"), *(tmp_path / "final").iterdir()]:
        assert path.is_dir() or path.suffix in (".json", ".safetensors"), path
    checkpoint, target = tmp_path / "run" / "checkpoint-2", tmp_path / "target"
    for name in (
        "optimizer.pt",
        "scheduler.pt",
        "rng_state.pth",
        "training_args.bin",
        "pytorch_model.bin",
        "scaler.pt",
    ):
        (checkpoint / name).write_bytes(pickle.dumps(Payload(target)))
    seal(checkpoint)
    resumed = train(
        tmp_path / "again", tokenizer, model=network(dropout=0.1), defence=InformativeTerm(on="clean"),
        resume=str(checkpoint), **EVERY_STEP,
    )  # fmt: skip
    assert not target.exists()
    for name, weight in weights(whole).items():
        assert torch.equal(weights(resumed)[name], weight), name
    for name in ("model.safetensors", "optimizer.safetensors", "process-0.safetensors", "defence.safetensors"):
        kept = (checkpoint / name).read_bytes()
        (checkpoint / name).write_bytes(pickle.dumps(Payload(target)))
        seal(checkpoint)
        with pytest.raises(UnshakenError, match=f"{name}: not a state file"):
            train(
                tmp_path / "bad", tokenizer, model=network(), defence=InformativeTerm(on="clean"),
                resume=str(checkpoint), **EVERY_STEP,
            )  # fmt: skip
        (checkpoint / name).write_bytes(kept)
    assert not target.exists()


def test_a_checkpoint_that_is_not_whole_is_refused_and_the_last_whole_one_taken(tmp_path, tokenizer, caplog):
    whole = train(tmp_path, tokenizer, **EVERY_STEP)
    last = tmp_path / "checkpoint-4"
    (last / "trainer_state.json").unlink()
    with pytest.raises(UnshakenError, match=r"checkpoint-4 cannot be used: trainer_state\.json is missing"):
        train(tmp_path, tokenizer, resume=str(last), **EVERY_STEP)
    resumed = train(tmp_path, tokenizer, resume=True, **EVERY_STEP)
    assert "checkpoint-4 is left out: trainer_state.json is missing" in caplog.text
    assert complaint(last) is None
    for name, weight in weights(whole).items():
        assert torch.equal(weights(resumed)[name], weight), name
    with pytest.raises(UnshakenError, match="holds no checkpoint that can be used"):
        train(tmp_path / "empty", tokenizer, resume=True, **EVERY_STEP)


def test_a_checkpoint_whose_best_is_gone_is_left_out(tmp_path, tokenizer):
    settings = {"eval_strategy": "steps", "eval_steps": 1, "load_best_model_at_end": True, **EVERY_STEP}
    train(tmp_path, tokenizer, learning_rate=1.0, **settings)  # the first is the best
    (tmp_path / "checkpoint-1" / "model.safetensors").write_bytes(b"")
    found = last_complete(tmp_path)
    assert found.folder is None
    assert found.notes[0].startswith("checkpoint-4 is left out: the best checkpoint it refers to, checkpoint-1")


class FullDisk(TrainerCallback):
    """From the third step on, files cannot grow beyond a few bytes, as on a disk that is full."""

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 2:
            limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit))


def test_a_full_disk_costs_one_checkpoint_and_says_so(tmp_path, tokenizer):
    from test_trainer import RobustTrainer, arguments, reviews

    whole = train(tmp_path / "whole", tokenizer, **EVERY_STEP)
    trainer = RobustTrainer(
        network(), arguments(tmp_path / "full", **EVERY_STEP), processing_class=tokenizer, train_dataset=reviews(32),
        callbacks=[FullDisk()],
    )  # fmt: skip
    with (
        limited_files(resource.RLIM_INFINITY),
        pytest.raises(UnshakenError, match=r"cannot write .*checkpoint-3: .*too large"),
    ):
        trainer.train()
    assert not (tmp_path / "full" / "checkpoint-3").exists()
    assert last_complete(tmp_path / "full").folder == tmp_path / "full" / "checkpoint-2"
    resumed = train(tmp_path / "full", tokenizer, resume=True, **EVERY_STEP)
    for name, weight in weights(whole).items():
        assert torch.equal(weights(resumed)[name], weight), name


def whole_checkpoint(folder: Path, step: int) -> None:
    path = folder / f"checkpoint-{step}"
    path.mkdir()
    for name in ("config.json", "model.safetensors", "trainer_state.json"):
        (path / name).write_text("{}")
    seal(path)
    os.utime(path, (step * 100, step * 100))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_what_a_kill_leaves_of_an_old_checkpoint_costs_no_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (12, 24, 36):
        whole_checkpoint(tmp_path, step)
    removed = shutil.rmtree

    def killed(path: Path, **_: Any) -> None:
        (path / "seal.json").unlink()
        raise SystemExit

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(SystemExit):
        rotate(tmp_path, 2, None)
    monkeypatch.setattr(shutil, "rmtree", removed)
    assert {name for name in names(tmp_path) if name.startswith("checkpoint")} == {"checkpoint-24", "checkpoint-36"}
    whole_checkpoint(tmp_path, 48)
    rotate(tmp_path, 2, None)
    assert names(tmp_path) == {"checkpoint-36", "checkpoint-48"}
    assert complaint(tmp_path / "checkpoint-36") is None


@pytest.mark.parametrize(
    ("limit", "best", "left"),
    [
        (None, None, {12, 24, 36, 48}),
        (0, None, {12, 24, 36, 48}),
        (1, None, {48}),
        (1, 12, {12, 48}),  # the last to go on from, the best to end with
        (2, 12, {12, 48}),
        (3, 12, {12, 36, 48}),
        (2, 48, {36, 48}),
        (9, 12, {12, 24, 36, 48}),
    ],
)
def test_the_oldest_checkpoints_go_but_not_the_last_nor_the_best(
    tmp_path: Path, limit: int | None, best: int | None, left: set[int]
) -> None:
    for step in (12, 24, 36, 48):
        whole_checkpoint(tmp_path, step)
    rotate(tmp_path, limit, None if best is None else str(tmp_path / f"checkpoint-{best}"))
    assert names(tmp_path) == {f"checkpoint-{step}" for step in left}


def test_the_last_checkpoint_is_the_one_written_last(tmp_path: Path) -> None:
    """A run that went on from an earlier one, as the later was damaged, would lose what it writes."""
    for step in (12, 24, 36):
        whole_checkpoint(tmp_path, step)
    os.utime(tmp_path / "checkpoint-24", (10_000, 10_000))
    rotate(tmp_path, 1, None)
    assert names(tmp_path) == {"checkpoint-24"}


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "model"
    with replaced_folder(path) as filling:
        (filling / "weights").write_text("first")
        assert not path.exists()
    with pytest.raises(UnshakenError, match=r"cannot write .*model: .*No such file"), replaced_folder(path) as filling:
        (filling / "none" / "weights").write_text("half")
    assert (path / "weights").read_text() == "first"
    (tmp_path / ".model.part").mkdir()  # of a killed run
    with replaced_folder(path) as filling:
        (filling / "weights").write_text("second")
    assert (path / "weights").read_text() == "second"
    assert [item.name for item in tmp_path.iterdir()] == ["model"]
