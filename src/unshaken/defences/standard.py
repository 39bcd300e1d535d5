"""Standard fine-tuning: the task loss and nothing else."""

from __future__ import annotations

from torch import Tensor

from unshaken.defences.base import Defence, Step


class Standard(Defence):
    """Plain fine-tuning, the baseline of every comparison.

    Cost: one forward and one backward pass.

    Example:
        >>> trainer = RobustTrainer(model, arguments, defence=Standard(), train_dataset=data.train)
    """

    def loss(self, step: Step) -> dict[str, Tensor]:
        return {"task": step.task_loss(step.forward().logits)}
