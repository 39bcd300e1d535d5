"""`RobustTrainingArguments`: Hugging Face's, with the defaults of honest fine-tuning."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from transformers import TrainingArguments

from unshaken.errors import UnshakenError


@dataclass
class RobustTrainingArguments(TrainingArguments):
    """`TrainingArguments` that evaluate and save once per epoch and keep the checkpoint of lowest validation loss.

    Example:
        >>> RobustTrainingArguments("out", num_train_epochs=3, learning_rate=2e-5)
    """

    max_length: int = field(default=128, metadata={"help": "Truncation length in tokens."})  # IM-BERT's FLOPs table
    balance_classes: bool = field(
        default=False,
        metadata={"help": "Batches that hold every class in equal shares, as defences that compare a class get them."},
    )
    on_nonfinite: str = field(
        default="stop",
        metadata={
            "help": "What a loss or gradient that is NaN or infinite does: 'stop' with an error that says where, or "
            "'skip' the batch and go on."
        },
    )
    cuda_graphs: bool = field(
        default=False,
        metadata={
            "help": "Replay training steps as CUDA graphs, which takes the cost of launching kernels off connected "
            "models; what a graph cannot hold runs as always. Dropout is drawn in another order then."
        },
    )
    eval_strategy: str = field(default="epoch", metadata={"help": "When to evaluate: no, steps or epoch."})
    save_strategy: str = field(default="epoch", metadata={"help": "When to save: no, steps, epoch or best."})
    load_best_model_at_end: bool | None = field(
        default=None, metadata={"help": "End with the best checkpoint; if None, where there are evaluations and saves."}
    )
    metric_for_best_model: str | None = field(default="eval_loss", metadata={"help": "What 'best' means."})
    # None: larger is better unless the metric ends in "loss". False would keep the worst checkpoint by accuracy.
    greater_is_better: bool | None = field(default=None, metadata={"help": "Whether a larger metric is better."})
    save_total_limit: int | None = field(default=2, metadata={"help": "Checkpoints kept; the best one always is."})
    warmup_steps: float = field(default=0.1, metadata={"help": "Steps, or a share of all steps below 1."})

    def __post_init__(self) -> None:
        if self.on_nonfinite not in ("stop", "skip"):
            raise UnshakenError(f"on_nonfinite is {self.on_nonfinite!r}; it is 'stop' or 'skip'")
        if self.load_best_model_at_end is None:
            self.load_best_model_at_end = "no" not in (self.eval_strategy, self.save_strategy)
        super().__post_init__()
        if not torch.accelerator.is_available():  # nothing to pin for, and torch warns
            self.dataloader_pin_memory = False
