"""Standard fine-tuning: the task loss and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from unshaken.defences.base import PLAIN, Defence, Passes
from unshaken.defences.step import Step


@dataclass(eq=False, kw_only=True)
class Standard(Defence):
    """Plain fine-tuning, the baseline of every comparison.

    Cost: one forward and one backward pass.

    Example:
        >>> trainer = RobustTrainer(model, arguments, defence=Standard(), train_dataset=data.train)
    """

    publishes = ("clean",)

    def loss(self, step: Step) -> dict[str, Tensor]:
        output = step.publish("clean", step.forward())
        return {"task": step.task_loss(output.logits)}

    def passes(self) -> Passes:
        return PLAIN
