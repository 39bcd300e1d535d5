"""Callbacks for what a study of robust fine-tuning watches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback


class DistanceToPretrained(TrainerCallback):
    """Logs how far training has moved the encoder: ||w - w_0|| / ||w_0|| over its weights (RIFT, Figure 2).

    The start is where this callback first sees the model, so give it to the trainer of a pretrained model. It holds a
    copy of the encoder's weights.

    Example:
        >>> trainer = RobustTrainer(model, arguments, callbacks=[DistanceToPretrained()], ...)
        >>> [row["distance_to_pretrained"] for row in trainer.state.log_history if "distance_to_pretrained" in row]
    """

    def __init__(self) -> None:
        self.start: dict[str, Tensor] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if not self.start:
            self.start = {name: weight.detach().clone() for name, weight in _encoder_weights(model).items()}

    def on_log(
        self,
        args: Any,
        state: Any,
        control: Any,
        model: Any = None,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        if logs is None or "loss" not in logs:
            return
        weights = _encoder_weights(model)
        moved = torch.stack([(weights[name].detach() - start).norm() for name, start in self.start.items()]).norm()
        size = torch.stack([start.norm() for start in self.start.values()]).norm()
        distance = float(moved / size)
        logs["distance_to_pretrained"] = distance
        state.log_history[-1]["distance_to_pretrained"] = distance


def _encoder_weights(model: Any) -> dict[str, Tensor]:
    core = getattr(model, "module", model)  # inside DDP
    return dict(core.base_model.named_parameters())
