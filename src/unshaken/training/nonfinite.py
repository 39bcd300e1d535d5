"""Where numbers are lost: which layer's output, which weight's gradient, which layer's solve, and at which step."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from unshaken.connections import solve_records
from unshaken.defences.shards import local
from unshaken.defences.step import Step
from unshaken.errors import UnshakenError

logger = logging.getLogger(__name__)

PATIENCE = 50  # batches left out in a row before a training counts as lost


class FiniteGuard:
    """Stops a training whose numbers are lost, or lets it go on without the batch, as `on_nonfinite` says.

    Either way it says where: the step, the loss parts, the layer.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.last_lost, self.lost_in_a_row = 0, 0

    def lost_loss(self, parts: dict[str, Tensor], loss: Tensor, step: Step) -> Tensor:
        """What to train on in place of a loss that is not finite."""
        trainer = self.trainer
        where = ", ".join(f"{name} = {part.item()}" for name, part in parts.items())
        for layer, record in solve_records(trainer.model).items():
            if not math.isfinite(record.worst_residual):
                where += f"; the implicit solve of layer {layer} gave no finite residual"
                break
        if not trainer.is_fsdp_enabled:  # where all ranks would have to look
            where += f"; {first_nonfinite_module(step.core, step.inputs)}"
        self._stop_or_say(f"the loss is not finite ({where})")
        if trainer.is_fsdp_enabled:  # backward must pass through the shards: `check_gradients` leaves the step out
            return loss
        # Zero gradients rather than no backward, so that every rank of a distributed run takes the same steps.
        return torch.stack([weight.sum() for weight in trainer.model.parameters()]).sum().nan_to_num(0, 0, 0) * 0.0

    def check_gradients(self, named: Sequence[tuple[str, nn.Parameter]]) -> None:
        """A gradient can be lost where the loss is finite: then the optimizer gets none."""
        trainer = self.trainer
        flags = finite_gradients(parameter for _, parameter in named)
        if trainer.is_fsdp_enabled:
            flags = trainer.accelerator.reduce(flags.to(trainer.args.device), reduction="mean")
        if bool((flags == 1).all()):
            return
        lost = [name for (name, _), flag in zip(named, flags.tolist(), strict=True) if flag < 1]
        # Backward runs from the last layer to the first, and what is lost stays lost.
        where = f"the gradient is not finite, first at {lost[-1]} ({len(lost)} of {len(named)} weights)"
        scaler = getattr(trainer.accelerator, "scaler", None)
        if scaler is not None and scaler.get_scale() > 1:  # it looks for its scale, and leaves the step out by itself
            self.warn(f"{where}: float16 overflowed at loss scale {scaler.get_scale():g}, which is lowered")
            trainer.log({"overflowed": 1.0})
            return
        self._stop_or_say(where)
        if scaler is None:
            for _, parameter in named:
                parameter.grad = None  # the optimizer passes over it

    def _stop_or_say(self, where: str) -> None:
        step = self.trainer.state.global_step + 1
        self.lost_in_a_row = self.lost_in_a_row + 1 if step - self.last_lost <= 1 else 1
        self.last_lost = step
        if self.trainer.args.on_nonfinite == "stop":
            cure = "lower the learning rate, use bf16 instead of fp16, or leave such batches out: on_nonfinite='skip'"
            raise UnshakenError(f"step {step}: {where}; {cure}")
        if self.lost_in_a_row > PATIENCE:
            raise UnshakenError(f"step {step}: {where}; {PATIENCE} batches in a row were left out: training is lost")
        self.warn(f"{where}; the batch is left out")
        self.trainer.log({"skipped_nonfinite": 1.0})

    def warn(self, what: str, step: int | None = None) -> None:
        arguments = self.trainer.args
        rank = f"process {arguments.process_index}, " if arguments.world_size > 1 else ""
        logger.warning(f"{rank}step {self.trainer.state.global_step + 1 if step is None else step}: {what}")


def first_nonfinite_module(model: nn.Module, inputs: Mapping[str, Any]) -> str:
    """What is not finite in a pass on `inputs`: a weight, the output of a module, or neither. Costs one pass."""
    for name, weight in model.named_parameters():
        if not bool(torch.isfinite(weight).all()):
            return f"the weight {name} is not finite"
    lost: list[str] = []

    def look(name: str, output: Any) -> None:
        if not lost and isinstance(output, Tensor) and not bool(torch.isfinite(output).all()):
            lost.append(name)

    hooks = [
        module.register_forward_hook(lambda _module, _inputs, output, name=name: look(name, output))
        for name, module in model.named_modules()
        if name
    ]
    try:
        with torch.no_grad():
            model(**inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return f"numbers are lost in {lost[0]}" if lost else "a pass on the text as it is stays finite"


def finite_gradients(parameters: Iterable[nn.Parameter]) -> Tensor:
    """For each parameter whether its gradient is finite on this rank, without making the device wait."""
    gradients = [parameter.grad for parameter in parameters]
    shards = {
        index: shard
        for index, gradient in enumerate(gradients)
        if gradient is not None and (shard := local(gradient)).numel()
    }
    if not shards:
        return torch.ones(len(gradients))
    # The largest entry is NaN or infinite where one entry is; a sum of squares could overflow by itself.
    largest = torch._foreach_norm(list(shards.values()), ord=torch.inf)
    flags = torch.ones(len(gradients), device=largest[0].device)
    flags[list(shards)] = torch.stack([value.float() for value in largest]).isfinite().float()
    return flags


@dataclass
class SolveWatch:
    """In how many steps since the last log a layer's solve diverged, and when each layer's first did.

    Kept on the device until somebody asks, so that training does not wait.
    """

    _counts: dict[str, Tensor] = field(default_factory=dict)
    _first: dict[str, Tensor] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)

    def look(self, model: nn.Module, step: int) -> None:
        for layer, record in solve_records(model).items():
            diverged = record.diverged.any()
            first = self._first.get(layer, torch.zeros_like(diverged, dtype=torch.long))
            self._first[layer] = torch.where((first == 0) & diverged, step, first)
            self._counts[layer] = self._counts.get(layer, torch.zeros_like(first)) + diverged

    def counts(self) -> dict[str, int]:
        """Layer -> steps, if there are any; then counting starts anew."""
        steps = {layer: int(count) for layer, count in self._counts.items()}
        self._counts.clear()
        return {layer: count for layer, count in steps.items() if count}

    def news(self) -> dict[str, int]:
        """Layer -> first step, for layers not told of before."""
        news = {layer: int(step) for layer, step in self._first.items() if layer not in self._told}
        told = {layer: step for layer, step in news.items() if step}
        self._told |= told.keys()
        return told
