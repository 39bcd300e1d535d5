"""Callbacks: what a defence does around a step, and what a study of robust fine-tuning watches."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainerCallback

from unshaken.defences.shards import whole
from unshaken.display import note
from unshaken.names import nearest
from unshaken.processes import Shard


class DefenceCallback(TrainerCallback):
    """The moments a defence has around the optimizer's step, and after the last one."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.begun = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.begun = state.global_step

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if args.max_grad_norm > 0:
            with contextlib.suppress(StopIteration):
                next(self.trainer.defence.parameters())
                nn.utils.clip_grad_norm_(self.trainer.defence.parameters(), args.max_grad_norm)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.trainer.defence.zero_grad()
        self.trainer.defence.after_step(self.trainer.model)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        whole = args.world_size == 1 and self.begun == 0 and (state.epoch or 0) >= 1
        if whole:  # a part of the texts may have none that matter
            self.trainer.defence.finish()


class DistanceToPretrained(TrainerCallback):
    """Logs how far training has moved the encoder: ||w - w_0|| / ||w_0|| over its weights (RIFT, Figure 2).

    The start is the model a trainer is made with, also where training then resumes from a checkpoint; so give it to the
    trainer of a pretrained model. It holds a copy of the encoder's weights.

    Example:
        >>> trainer = RobustTrainer(model, arguments, callbacks=[DistanceToPretrained()], ...)
        >>> [row["distance_to_pretrained"] for row in trainer.state.log_history if "distance_to_pretrained" in row]
    """

    def __init__(self) -> None:
        self.start: dict[str, Tensor] = {}

    def on_init_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self._remember(model)

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self._remember(model)  # where the callback was added to a trainer that was there already
        weights = _encoder_weights(model)
        self.start = {name: start.to(weights[name].device) for name, start in self.start.items()}

    def _remember(self, model: Any) -> None:
        if not self.start and model is not None:
            self.start = {name: weight.detach().clone() for name, weight in _encoder_weights(model).items()}

    @torch.no_grad()
    def on_log(self, args: Any, state: Any, control: Any, model: Any = None, logs: Any = None, **kwargs: Any) -> None:
        if logs is None or "loss" not in logs:
            return
        weights = _encoder_weights(model)
        moved = torch.stack([whole((weights[name] - start).norm()) for name, start in self.start.items()]).norm()
        size = torch.stack([whole(start.norm()) for start in self.start.values()]).norm()
        distance = float(moved / size)
        logs["distance_to_pretrained"] = distance
        state.log_history[-1]["distance_to_pretrained"] = distance


class KeepBest(TrainerCallback):
    """Ends training with the weights of the best evaluation, held in memory instead of in a checkpoint.

    For many short trainings, whose checkpoints would take longer than they do. It reads what is logged, so a metric
    that is added to an evaluation, such as `eval_accuracy_under_attack`, can select too. The first of equals is kept.

    Args:
        metric: Key of the log.
        greater_is_better: Whether a larger value is better; if None, unless the metric ends in "loss".

    Example:
        >>> trainer = RobustTrainer(model, arguments, callbacks=[KeepBest("eval_loss")], ...)
    """

    def __init__(self, metric: str = "eval_loss", *, greater_is_better: bool | None = None) -> None:
        if greater_is_better is None:  # as the stock Trainer takes it
            greater_is_better = not metric.endswith("loss")
        self.metric, self.sign = metric, 1.0 if greater_is_better else -1.0
        self.best = -math.inf
        self.weights: dict[str, Tensor] = {}
        self._logged: set[str] = set()

    def on_log(self, args: Any, state: Any, control: Any, model: Any = None, logs: Any = None, **kwargs: Any) -> None:
        self._logged |= {key for key in logs or () if key.startswith("eval_")}
        value = None if logs is None else logs.get(self.metric)
        if value is not None and self.sign * value > self.best:
            self.best = self.sign * value
            self.weights = {name: weight.detach().clone() for name, weight in _core(model).state_dict().items()}

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if self.weights:
            _core(model).load_state_dict(self.weights)
        elif self._logged and self.metric not in self._logged and Shard.from_environment().leads:
            note(f"the last weights are kept: no evaluation gave {self.metric!r}; {nearest(self.metric, self._logged)}")


def _core(model: Any) -> Any:
    return getattr(model, "module", model)  # inside DDP


def _encoder_weights(model: Any) -> dict[str, Tensor]:
    return dict(_core(model).base_model.named_parameters())
