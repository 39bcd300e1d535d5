"""`SafeTrainer`: the stock Trainer with checkpoints that are whole and hold no pickle."""

from __future__ import annotations

import logging
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import recursively_apply
from torch import nn
from transformers import Trainer

from unshaken.defences.shards import like, whole
from unshaken.errors import UnshakenError
from unshaken.training import checkpoints
from unshaken.training.nested_state import load_state, load_tensors, save_state

logger = logging.getLogger(__name__)

WEIGHTS = "model.safetensors"
OPTIMIZER = "optimizer.safetensors"  # with the schedule and the loss scale


class SafeTrainer(Trainer):
    """`transformers.Trainer` whose checkpoints hold tensors and JSON only, and are used only where they are whole.

    All that a run needs to go on as if nothing had happened is inside: weights, optimizer, schedule, loss scale, and
    for each process its random generators and the losses not yet logged. Sharded tensors are saved whole, so that a run
    may go on with another number of processes.

    The stock Trainer writes the weights and its own JSON, and the rest is written here: under FSDP it would write files
    that torch unpickles, and none for parameters outside the model, which defences have.
    """

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """Train; `resume_from_checkpoint` is a checkpoint, or True for the last one that is whole."""
        if resume_from_checkpoint is True:
            last = checkpoints.last_complete(self.args.output_dir)
            for note in last.notes:
                logger.warning(note)
            if last.folder is None:
                raise UnshakenError(f"{self.args.output_dir} holds no checkpoint that can be used")
            resume_from_checkpoint = str(last.folder)
        elif resume_from_checkpoint:
            reason = checkpoints.complaint(resume_from_checkpoint)
            if reason is not None:
                raise UnshakenError(f"{resume_from_checkpoint} cannot be used: {reason}")
        if self.args.should_save:
            checkpoints.sweep(self.args.output_dir)
        return super().train(resume_from_checkpoint, *args, **kwargs)

    # ------------------------------------------------------------------------------------------------------- saving

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        folder = Path(self._get_output_dir(trial)) / f"checkpoint-{self.state.global_step}"
        if self.args.should_save:
            shutil.rmtree(folder, ignore_errors=True)  # what a killed run left of it
        self.accelerator.wait_for_everyone()
        limit, weights_alone = self.args.save_total_limit, self.args.save_only_model
        advice = "earlier checkpoints are whole: make room and continue with --resume"
        with checkpoints.whole_or_gone(folder, folder, advice):
            self.args.save_total_limit = None  # no older checkpoint goes before this one is whole
            self.args.save_only_model = True  # the rest is not the stock Trainer's to write
            try:
                super()._save_checkpoint(model, trial)
            finally:
                self.args.save_total_limit, self.args.save_only_model = limit, weights_alone
            if not weights_alone:
                folder.mkdir(parents=True, exist_ok=True)  # another process may not have made it yet
                self.save_run_state(folder)
            self.accelerator.wait_for_everyone()  # every process writes a file of its own
            if self.args.should_save:
                checkpoints.seal(folder)
        if self.args.should_save:
            checkpoints.rotate(folder.parent, limit, self.state.best_model_checkpoint)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        if not self.is_fsdp_enabled:
            super().save_model(output_dir, _internal_call)
            return
        state = {name: whole(value).cpu() for name, value in self.model.state_dict().items()}
        if self.args.should_save:
            self._save(output_dir, state_dict=state)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        super()._save(output_dir, state_dict)
        # A pickle that nothing reads.
        (Path(output_dir or self.args.output_dir) / "training_args.bin").unlink(missing_ok=True)

    def save_run_state(self, folder: Path) -> None:
        """What a checkpoint holds beside weights: the optimizer's state, once, and each process's own."""
        scaler = getattr(self.accelerator, "scaler", None)
        state = {
            "optimizer": recursively_apply(whole, self.optimizer.state_dict()),
            "scheduler": self.lr_scheduler.state_dict(),
            "scaler": None if scaler is None else scaler.state_dict(),
        }
        if self.args.should_save:
            save_state(state, folder / OPTIMIZER)
        save_state(self.process_state(), self._process_file(folder))

    def process_state(self) -> dict[str, Any]:
        """What each process has of its own."""
        device = self.args.device
        return {
            "python": random.getstate(),
            "numpy": np.random.get_state(),
            "cpu": torch.get_rng_state(),
            "device": None if device.type == "cpu" else torch.get_device_module(device).get_rng_state(),
            "log": (self._tr_loss, self._total_loss_scalar, self._globalstep_last_logged),
        }

    def restore_process_state(self, state: dict[str, Any]) -> None:
        device = self.args.device
        random.setstate(state["python"])
        np.random.set_state(state["numpy"])
        torch.set_rng_state(state["cpu"])
        if device.type != "cpu" and state["device"] is not None:
            torch.get_device_module(device).set_rng_state(state["device"])
        loss, self._total_loss_scalar, self._globalstep_last_logged = state["log"]
        self._tr_loss = loss.to(device)

    def _process_file(self, folder: Path | str) -> Path:
        return Path(folder) / f"process-{self.args.process_index}.safetensors"

    # ------------------------------------------------------------------------------------------------------ loading

    def _init_training_state(self, *args: Any, **kwargs: Any) -> Any:
        started = super()._init_training_state(*args, **kwargs)
        best = Path(self.args.output_dir) / f"checkpoint-{self.state.best_global_step}"
        if best.is_dir():  # the state has the path of the run that wrote it, and folders are moved
            self.state.best_model_checkpoint = str(best)
        return started

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        path = Path(resume_from_checkpoint) / WEIGHTS
        if not path.is_file():  # adapters
            super()._load_from_checkpoint(resume_from_checkpoint, model)
            return
        model = self.model if model is None else model
        own = model.state_dict()
        loaded = {name: like(value, own.get(name)) for name, value in load_tensors(path).items()}
        self._issue_warnings_after_load(model.load_state_dict(loaded, strict=False))

    def _load_best_model(self) -> None:
        if self.is_fsdp_enabled:
            self._load_from_checkpoint(self.state.best_model_checkpoint)
        else:
            super()._load_best_model()

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        state = load_state(Path(checkpoint) / OPTIMIZER)
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        for number, slots in state["optimizer"]["state"].items():
            for name, value in slots.items():
                if isinstance(value, torch.Tensor) and value.shape == parameters[number].shape:
                    slots[name] = like(value, parameters[number])
        self.optimizer.load_state_dict(state["optimizer"])
        self.lr_scheduler.load_state_dict(state["scheduler"])
        scaler = getattr(self.accelerator, "scaler", None)
        if scaler is not None and state["scaler"] is not None:
            scaler.load_state_dict(state["scaler"])

    def _load_scaler(self, checkpoint: str | None) -> None:
        """Loaded with the optimizer; a file of the stock Trainer's name is not opened."""

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        path = self._process_file(checkpoint)
        if path.is_file() and self._same_number_of_processes(checkpoint):
            self.restore_process_state(load_state(path))
        elif self.is_world_process_zero():
            logger.warning(
                f"{checkpoint} was written by another number of processes: batches are cut anew and random numbers "
                "start anew, so the run will not end exactly as it would have"
            )

    def _same_number_of_processes(self, checkpoint: str) -> bool:
        return len(list(Path(checkpoint).glob("process-*.safetensors"))) == int(self.args.world_size)
