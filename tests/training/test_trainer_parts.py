"""The trainer in parts: what a step tells a defence, which rows it draws and evaluates, what goes into a checkpoint."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from test_trainer import arguments, network, reviews, tokenizer
from test_training_parts import Learned
from torch import nn
from torch.utils.data import SequentialSampler
from transformers import Trainer, TrainerCallback

from unshaken import RobustTrainer, RobustTrainingArguments
from unshaken.defences import InformativeTerm, Standard
from unshaken.training.nested_state import load_tensors
from unshaken.training.safe_trainer import SafeTrainer
from unshaken.training.sampler import ClassBalancedSampler
from unshaken.training.selection import accuracy_under_attack

__all__ = ["tokenizer"]  # the fixture


def trainer_of(folder: Path, tokenizer: Any, rows: Any = None, **given: Any) -> RobustTrainer:
    settings = {key: given.pop(key) for key in list(given) if hasattr(RobustTrainingArguments, key)}
    train = reviews(32) if rows is None else rows
    return RobustTrainer(
        network(), arguments(folder, **settings), processing_class=tokenizer, train_dataset=train, **given
    )


class Watched(Standard):
    """Keeps how far training has come in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.progress: list[float] = []

    def loss(self, step):
        self.progress.append(step.progress)
        return super().loss(step)


class Parts(TrainerCallback):
    """Keeps whether the losses that wait for the log hold on to their passes."""

    def __init__(self) -> None:
        self.held: list[bool] = []

    def on_step_end(self, args, state, control, **kwargs):
        self.held += [part.requires_grad for parts in self.trainer._parts.values() for part in parts]


def test_a_defence_knows_how_far_training_is_and_its_losses_let_their_passes_go(tmp_path, tokenizer):
    watch, defence = Parts(), Watched()
    watch.trainer = trainer = trainer_of(tmp_path, tokenizer, defence=defence, callbacks=[watch], logging_steps=100)
    trainer.train()
    assert defence.progress == [0.0, 0.25, 0.5, 0.75]
    assert watch.held == [False] * (1 + 2 + 3 + 4)


@pytest.mark.parametrize("processes", [1, 2])
def test_gradients_of_a_defence_are_averaged_over_processes(tmp_path, tokenizer, monkeypatch, processes):
    """Nobody else does that for what lies outside of the model; what has no gradient is left alone."""

    class Own(Learned):
        def __init__(self) -> None:
            super().__init__()
            self.unused = nn.Parameter(torch.zeros(1))

        def loss(self, step):
            return {"own": self.scale.sum() + step.forward().logits.sum() * 0}

    trainer = trainer_of(tmp_path, tokenizer, defence=Own())
    (inputs, *_), _ = trainer.get_batch_samples(iter(trainer.get_train_dataloader()), 1, trainer.args.device)
    trainer.current_gradient_accumulation_steps = 1
    monkeypatch.setattr(type(trainer.accelerator), "num_processes", processes)
    monkeypatch.setattr(trainer.accelerator, "reduce", lambda gradient, reduction: gradient / {"mean": 2}[reduction])
    trainer.training_step(trainer.model, inputs)
    assert trainer.defence.scale.grad.tolist() == [1 / processes] * 2
    assert trainer.defence.unused.grad is None


def test_several_gpus_of_a_process_get_copies_of_the_model_and_no_graphs(tmp_path, tokenizer):
    trainer = trainer_of(tmp_path, tokenizer)
    for graphs, gpus, captured in ((False, 1, False), (True, 2, False), (True, 1, True)):
        trainer.args.cuda_graphs, trainer.args._n_gpu = graphs, gpus
        with trainer._captured():
            assert (trainer._graphs is not None) == captured
    first = trainer._graphs
    with trainer._captured():
        assert trainer._graphs is first  # what was captured is replayed in the next step


@pytest.mark.parametrize(
    "settings", [{}, {"balance_classes": True}, {"train_sampling_strategy": "group_by_length"}], ids=str
)
def test_rows_are_drawn_from_the_set_that_is_asked_for(tmp_path, tokenizer, settings):
    trainer = trainer_of(tmp_path, tokenizer, **settings)
    assert sorted(trainer._get_train_sampler()) == list(range(32))
    assert sorted(trainer._get_train_sampler(reviews(10))) == list(range(10))


def test_tokens_are_drawn_from_the_set_that_is_asked_for(tmp_path, tokenizer):
    rows = [{**tokenizer("good film"), "labels": index % 2} for index in range(8)]
    trainer = trainer_of(tmp_path, tokenizer, rows=rows)
    assert sorted(trainer._get_train_sampler()) == list(range(8))
    assert sorted(trainer._get_train_sampler(rows[:4])) == list(range(4))


class WithLayer(Standard):
    """Has a part that is no defence and knows nothing of batches."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)


def test_a_layer_of_a_defence_asks_for_no_order_of_rows(tmp_path, tokenizer):
    plain = trainer_of(tmp_path, tokenizer, defence=WithLayer())
    assert not isinstance(plain._get_train_sampler(), ClassBalancedSampler)
    grouped = trainer_of(tmp_path, tokenizer, defence=WithLayer(), train_sampling_strategy="group_by_length")
    assert grouped._get_train_sampler().order is None
    balanced = trainer_of(tmp_path, tokenizer, defence=InformativeTerm(on="clean"))
    assert isinstance(balanced._get_train_sampler(), ClassBalancedSampler)


@pytest.mark.parametrize(("processes", "whole"), [(1, True), (2, False)])
def test_one_process_evaluates_all_rows_in_their_order_and_several_share_them(
    tmp_path, tokenizer, monkeypatch, processes, whole
):
    trainer = trainer_of(tmp_path, tokenizer)
    monkeypatch.setattr(RobustTrainingArguments, "world_size", processes)
    sampler = trainer._get_eval_sampler(reviews(6))
    assert isinstance(sampler, SequentialSampler) == whole  # the stock Trainer deals out what has no sampler
    assert list(sampler if whole else range(6)) == list(range(6))


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("processes", [1, 3])
def test_processes_share_the_texts_that_select_unless_all_must_pass_together(
    tmp_path, tokenizer, monkeypatch, processes, sharded
):
    attacked: list[str] = []

    def attack(victim: Any, chosen: Any) -> Any:
        attacked.extend(row.id for row in chosen)
        return SimpleNamespace(tally=lambda outcome: {"failure": len(chosen) - 1}[outcome], answered=len(chosen))

    rows = reviews(24, offset=100)
    trainer = trainer_of(tmp_path, tokenizer, eval_dataset=rows, selection_examples=12)
    counts: list[list[float]] = []
    monkeypatch.setattr(RobustTrainingArguments, "world_size", processes)
    monkeypatch.setattr(trainer, "is_fsdp_enabled", sharded)
    monkeypatch.setattr(
        trainer.accelerator,
        "reduce",
        lambda found, reduction: counts.append(found.tolist()) or {"sum": found}[reduction],
    )
    found = []
    for rank in range(processes):
        monkeypatch.setattr(RobustTrainingArguments, "process_index", rank)
        found.append(accuracy_under_attack(trainer, attack))
    chosen = [row.id for row in rows.sample(12, seed=trainer.args.seed)]
    assert sorted(attacked) == sorted(chosen * (processes if sharded else 1))
    assert found == [withstood / answered for withstood, answered in counts]
    assert all(answered == 12 for _, answered in counts) == (sharded or processes == 1)
    nothing = SimpleNamespace(tally=lambda outcome: 0, answered=0)
    assert math.isnan(accuracy_under_attack(trainer, lambda victim, chosen: nothing))


@pytest.fixture
def begun(tmp_path, tokenizer):
    """A trainer after a step, with an optimizer that has a state."""
    trainer = trainer_of(tmp_path / "run", tokenizer, max_steps=1)
    trainer.train()
    return trainer


def test_a_process_that_writes_no_weights_makes_the_folder_for_its_own_file(begun, monkeypatch, tmp_path):
    """It may come there first."""
    begun.args.output_dir = str(tmp_path / "not" / "there")
    monkeypatch.setattr(Trainer, "_save_checkpoint", lambda self, model, trial: None)
    monkeypatch.setattr(RobustTrainingArguments, "should_save", False)
    begun._save_checkpoint(begun.model, None)
    assert [path.name for path in Path(begun.args.output_dir).rglob("*.*")] == ["process-0.safetensors"]


@pytest.mark.parametrize("alone", [False, True])
def test_weights_are_saved_alone_where_that_is_asked_for(tmp_path, tokenizer, alone):
    trainer = trainer_of(
        tmp_path, tokenizer, max_steps=3, save_strategy="steps", save_steps=1, save_only_model=alone, save_total_limit=2
    )
    trainer.train()
    assert (trainer.args.save_only_model, trainer.args.save_total_limit) == (alone, 2)
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-2", "checkpoint-3"}
    names = {path.name for path in (tmp_path / "checkpoint-3").iterdir()}
    assert {"model.safetensors", "seal.json"} <= names
    assert not names & {"training_args.bin", "optimizer.pt", "scheduler.pt"}
    assert ({"optimizer.safetensors", "process-0.safetensors"} <= names) == (not alone)


def test_shards_are_saved_whole_and_anything_else_as_the_stock_trainer_does(begun, monkeypatch, tmp_path):
    stock: list[Any] = []
    monkeypatch.setattr(Trainer, "save_model", lambda self, *given: stock.append(given))
    SafeTrainer.save_model(begun, "folder")
    assert stock == [("folder", False)]  # not from within the Trainer: what is pushed is pushed
    monkeypatch.setattr(begun, "is_fsdp_enabled", True)
    SafeTrainer.save_model(begun, str(tmp_path / "whole"))
    assert len(stock) == 1
    kept = load_tensors(tmp_path / "whole" / "model.safetensors")
    assert all(torch.equal(kept[name], weight) for name, weight in begun.model.named_parameters())


@pytest.mark.parametrize("kind", ["cpu", "meta"])
def test_a_process_goes_on_with_the_random_numbers_of_its_device(monkeypatch, kind):
    given: list[Any] = []
    device = SimpleNamespace(set_rng_state=given.append, get_rng_state=lambda: "drawn so far")
    monkeypatch.setattr(torch, "get_device_module", lambda which: device)
    process = SimpleNamespace(
        args=SimpleNamespace(device=torch.device(kind)), _tr_loss=torch.ones(()), _total_loss_scalar=2.0,
        _globalstep_last_logged=3,
    )  # fmt: skip
    state = SafeTrainer.process_state(process)
    first = torch.rand(2)
    assert state["device"] == (None if kind == "cpu" else "drawn so far")
    process._total_loss_scalar, process._globalstep_last_logged = 0.0, 0
    SafeTrainer.restore_process_state(process, state)
    assert torch.equal(torch.rand(2), first)
    assert given == ([] if kind == "cpu" else ["drawn so far"])
    assert (process._total_loss_scalar, process._globalstep_last_logged, process._tr_loss.device.type) == (2.0, 3, kind)
    SafeTrainer.restore_process_state(process, {**state, "device": None})  # of a run on a CPU
    assert len(given) == (kind != "cpu")


def test_weights_that_a_checkpoint_lacks_are_told_and_the_others_loaded(begun, tmp_path, monkeypatch):
    told: list[Any] = []
    monkeypatch.setattr(begun, "_issue_warnings_after_load", told.append)
    begun.save_model(str(tmp_path / "kept"))
    path = tmp_path / "kept" / "model.safetensors"
    kept = load_tensors(path)
    del kept["classifier.bias"]
    save_file(kept, path)
    for weight in begun.model.parameters():
        nn.init.zeros_(weight)
    begun._load_from_checkpoint(str(tmp_path / "kept"))
    assert torch.equal(begun.model.classifier.weight, kept["classifier.weight"])
    assert not begun.model.classifier.bias.any()
    assert [found.missing_keys for found in told] == [["classifier.bias"]]


def test_an_optimizer_goes_on_with_its_averages_and_the_loss_scale(begun, tmp_path, monkeypatch):
    begun.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    begun.accelerator.scaler.scale(torch.ones(()))  # it makes its scale when it is first used
    begun.save_run_state(tmp_path)
    averages = [state["exp_avg"].clone() for state in begun.optimizer.state.values()]
    for state in begun.optimizer.state.values():
        state["exp_avg"].zero_()
    begun.accelerator.scaler.update(8.0)
    shapes: list[bool] = []
    monkeypatch.setattr(
        "unshaken.training.safe_trainer.like",
        lambda value, weight: shapes.append(value.shape == weight.shape) or value,
    )
    begun._load_optimizer_and_scheduler(str(tmp_path))
    assert begun.accelerator.scaler.get_scale() == 4.0
    assert all(map(torch.equal, averages, [state["exp_avg"] for state in begun.optimizer.state.values()]))
    assert shapes == [True] * 2 * len(averages)  # both averages are cut as their weight is; the count of steps is not
    begun.accelerator.scaler = None
    begun._load_optimizer_and_scheduler(str(tmp_path))  # on a machine that needs none
    begun.save_run_state(tmp_path)
    begun.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    begun._load_optimizer_and_scheduler(str(tmp_path))  # of one that had none
    assert begun.accelerator.scaler.get_scale() == 2.0


def test_the_best_checkpoint_is_looked_for_where_the_run_lies_now(tmp_path, tokenizer):
    settings = {
        "save_strategy": "steps", "save_steps": 1, "eval_strategy": "steps", "eval_steps": 1, "max_steps": 2,
        "load_best_model_at_end": True, "save_total_limit": None, "eval_dataset": reviews(8, offset=100),
    }  # fmt: skip
    trainer_of(tmp_path / "there", tokenizer, **settings).train()
    (tmp_path / "there").rename(tmp_path / "here")
    again = trainer_of(tmp_path / "here", tokenizer, **{**settings, "max_steps": 3, "learning_rate": 0.0})
    again.train(resume_from_checkpoint=True)
    assert again.state.best_model_checkpoint.startswith(str(tmp_path / "here" / "checkpoint-"))
