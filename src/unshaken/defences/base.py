"""What a defence is: a module that turns a batch into named losses, and the `Step` it sees.

A defence owns the objective and nothing else. The trainer owns accumulation, mixed precision, distribution and
logging, so a defence reads like the formula of its paper.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unshaken.errors import UnshakenError
from unshaken.examples import Example


@dataclass(kw_only=True)
class Step:
    """One micro-batch of training, as a defence sees it.

    Attributes:
        model: The classifier; wrapped by DDP or FSDP where the run is distributed.
        inputs: Model inputs without labels, on the model's device.
        labels: Class ids (batch,), or float targets for regression.
        examples: The examples behind the rows, where the data set kept its texts; None otherwise.
        tokenizer: The tokenizer behind `inputs`, where the trainer was given one.
        max_length: Truncation length in tokens.
        progress: Share of training done, 0 to 1, for schedules.
        backward: Runs backward for all but the last pass of a defence that needs several (FreeLB, InfoBERT): the
            trainer scales the loss and handles mixed precision. The last loss is returned from `Defence.loss` instead.
        local: Context for forward and backward of all but the last pass: distributed gradients stay on their rank and
            are exchanged once, with the last pass. `with step.local(): step.backward(loss_of(step.forward(...)))`
    """

    model: nn.Module
    inputs: dict[str, Tensor]
    labels: Tensor
    examples: Sequence[Example] | None = None
    tokenizer: Any = None
    max_length: int = 128
    progress: float = 0.0
    backward: Callable[[Tensor], None] = field(default=lambda loss: loss.backward())
    local: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext

    @property
    def is_regression(self) -> bool:
        return self.labels.is_floating_point()

    @property
    def core(self) -> nn.Module:
        """The model inside DDP's wrapper, for passes whose parameter gradients are not wanted."""
        wrappers = (nn.parallel.DistributedDataParallel, nn.DataParallel)
        return self.model.module if isinstance(self.model, wrappers) else self.model

    def forward(self, model: nn.Module | None = None, **overrides: Any) -> Any:
        """Run the model on this batch; `overrides` replace inputs, and `inputs_embeds` takes the place of the ids."""
        inputs = {**self.inputs, **overrides}
        if "inputs_embeds" in overrides:
            inputs.pop("input_ids", None)
        return (model or self.model)(**inputs)

    def task_loss(self, logits: Tensor, labels: Tensor | None = None, reduction: str = "mean") -> Tensor:
        """Cross-entropy, or squared error for regression, in float32."""
        labels = self.labels if labels is None else labels
        if labels.is_floating_point():
            return F.mse_loss(logits.float().squeeze(-1), labels.float(), reduction=reduction)
        return F.cross_entropy(logits.float(), labels, reduction=reduction)

    def encode(self, texts: Sequence[Sequence[str]]) -> dict[str, Tensor]:
        """Tokenise texts (or pairs) as the batch was, on the model's device."""
        if self.tokenizer is None:
            raise UnshakenError("this defence rewrites texts and needs the tokenizer: pass processing_class=tokenizer")
        columns = list(zip(*texts, strict=True))
        encoded = self.tokenizer(
            *(list(column) for column in columns),
            padding=True,
            truncation=True,
            max_length=self.max_length,
            return_tensors="pt",
        )
        return {key: encoded[key].to(self.labels.device) for key in self.inputs if key in encoded}

    def require_examples(self, who: str) -> Sequence[Example]:
        if self.examples is None:
            raise UnshakenError(
                f"{who} works on words and needs the texts of the batch: train on an unshaken.Examples split "
                "(load_task returns one) instead of a data set that is already tokenised"
            )
        return self.examples


class Defence(nn.Module):
    """Base of all defences. Subclasses implement `loss`; `setup` and `after_step` where they need them.

    Parameters a defence creates in `setup` are trained with the model's and saved in its checkpoints. Defences
    compose: `ASCC() + PTWD()`.
    """

    def setup(self, model: nn.Module, *, num_labels: int, tokenizer: Any = None) -> None:
        """Called once, before training, with the pretrained model (not yet wrapped)."""

    def loss(self, step: Step) -> dict[str, Tensor]:
        """Named loss parts, each a mean over the batch; the training loss is their sum."""
        raise NotImplementedError

    def after_step(self, model: nn.Module) -> None:
        """Called after each optimizer step (mean teachers, decoupled decay)."""


@contextlib.contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Dropout off inside, every module's own mode restored after, also when the block raises."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def input_embeddings(model: nn.Module) -> nn.Module:
    """The token embedding table, or an error that says why a perturbation of embeddings cannot work."""
    getter = getattr(model, "get_input_embeddings", None)
    try:
        table = getter() if getter is not None else None
    except (AttributeError, NotImplementedError):
        table = None
    if not isinstance(table, nn.Module):
        raise UnshakenError(
            f"{type(model).__name__} gives no access to its token embeddings; defences that perturb embeddings need "
            "get_input_embeddings() and a forward that takes inputs_embeds"
        )
    return table


def kl_divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p || q) per example from log-probabilities. (batch, classes) -> (batch,)"""
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def log_probabilities(logits: Tensor) -> Tensor:
    return torch.log_softmax(logits.float(), dim=-1)
