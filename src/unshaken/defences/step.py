"""`Step`: what a defence sees of a batch, and what it may do with it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unshaken.defences.divergences import widened
from unshaken.errors import UnshakenError
from unshaken.examples import Example
from unshaken.truncation import tokenised

if TYPE_CHECKING:
    from unshaken.readers import Readers


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
        reader: What reads texts before the tokenizer, where the model has a reader.
        temperature: What the logits of this step's passes are divided by; `HighTemperature` sets it.
        progress: Share of training done, 0 to 1, for schedules.
        backward: Runs backward for all but the last pass of a defence that needs several (FreeLB, InfoBERT): the
            trainer scales the loss and handles mixed precision. The last loss is returned from `Defence.loss` instead.
        local: Context for forward and backward of all but the last pass: distributed gradients stay on their rank and
            are exchanged once, with the last pass. `with step.local(): step.backward(loss_of(step.forward(...)))`
        keep_hidden_states: Whether passes return their hidden states; `Compose` sets it for parts that read a pass.
        published: Outputs of passes that the objective shares with the parts beside it, by name.
        masks: The attention masks of those passes; that of `inputs` where a pass has none of its own.
    """

    model: nn.Module
    inputs: dict[str, Tensor]
    labels: Tensor
    examples: Sequence[Example] | None = None
    tokenizer: Any = None
    max_length: int = 128
    reader: Readers | None = None
    temperature: float = 1.0
    progress: float = 0.0
    backward: Callable[[Tensor], None] = field(default=lambda loss: loss.backward())
    local: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    keep_hidden_states: bool = False
    published: dict[str, Any] = field(default_factory=dict)
    masks: dict[str, Tensor] = field(default_factory=dict)

    @property
    def is_regression(self) -> bool:
        return self.labels.is_floating_point()

    @property
    def core(self) -> nn.Module:
        """The model inside DDP's wrapper, for passes whose parameter gradients are not wanted."""
        wrappers = (nn.parallel.DistributedDataParallel, nn.DataParallel)
        return self.model.module if isinstance(self.model, wrappers) else self.model

    def forward(self, model: nn.Module | None = None, /, **overrides: Any) -> Any:
        """Run the model on this batch; `overrides` replace inputs, and `inputs_embeds` takes the place of the ids."""
        inputs = {**self.inputs, **overrides}
        if "inputs_embeds" in overrides:
            inputs.pop("input_ids", None)
        if self.keep_hidden_states:
            inputs.setdefault("output_hidden_states", True)
        output = (self.model if model is None else model)(**inputs)
        if self.temperature != 1:
            output["logits"] = output.logits / self.temperature
        return output

    def publish(self, name: str, output: Any, mask: Tensor | None = None) -> Any:
        """Share a pass, `"clean"` or `"adversarial"`, with the parts beside this defence, and hand it on.

        A pass over other texts than `inputs` brings its attention mask.
        """
        self.published[name] = output
        if mask is not None:
            self.masks[name] = mask
        return output

    def mask_of(self, name: str) -> Tensor | None:
        """The attention mask of a published pass. (batch, seq)"""
        return self.masks.get(name, self.inputs.get("attention_mask"))

    def read(self, name: str, who: str) -> Any:
        """The output of a pass that the objective published."""
        if name not in self.published:
            made = ", ".join(self.published) or "none"
            raise UnshakenError(f"{who} reads the {name} pass of the defence beside it, which published: {made}")
        return self.published[name]

    def task_loss(self, logits: Tensor, labels: Tensor | None = None, reduction: str = "mean") -> Tensor:
        """Cross-entropy, or squared error for regression, in float32 or wider."""
        labels = self.labels if labels is None else labels
        logits = widened(logits)
        if labels.is_floating_point():
            predictions = logits.squeeze(-1)  # labels may be a column: broadcast, each would be compared with all
            return F.mse_loss(predictions, labels.to(logits.dtype).view_as(predictions), reduction=reduction)
        return F.cross_entropy(logits, labels, reduction=reduction)

    def encode(self, texts: Sequence[Sequence[str]]) -> dict[str, Tensor]:
        """Tokenise texts (or pairs) as the batch was, on the model's device."""
        if self.tokenizer is None:
            raise UnshakenError("this defence rewrites texts and needs the tokenizer: pass processing_class=tokenizer")
        encoded = tokenised(self.tokenizer, texts, self.max_length, self.reader, padding=True)
        return {key: torch.tensor(encoded[key], device=self.labels.device) for key in self.inputs if key in encoded}

    def require_examples(self, who: str) -> Sequence[Example]:
        if self.examples is None:
            raise UnshakenError(
                f"{who} works on words and needs the texts of the batch: train on an unshaken.Examples split "
                "(load_task returns one) instead of a data set that is already tokenised"
            )
        return self.examples

    def require_classes(self, who: str) -> None:
        if self.is_regression:
            raise UnshakenError(
                f"{who} compares class distributions and its paper gives no form for regression; for float labels use "
                "standard, freelb, smart, creat, infobert, ptwd or mixout"
            )
