"""Mixout: dropout whose dropped weights return to their pretrained values instead of zero."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unshaken.defences.base import Regulariser
from unshaken.defences.perturbations import one_of
from unshaken.defences.step import Step
from unshaken.defences.weights import WeightSwap, encoder
from unshaken.errors import UnshakenError


@dataclass(eq=False, kw_only=True)
class Mixout(Regulariser):
    """In each training pass, sets a random share of the encoder's Linear weights back to their pretrained values.

        W_mix = U + M * (W - U) / (1 - p),      M ~ Bernoulli(1 - p),  U pretrained;   E[W_mix] = W;   W in evaluation

    Stands alone or beside any objective. The gradient is exact; the official code's lacks the factor 1 / (1 - p). The
    head has no pretrained weights and is left alone, and so is the model's own dropout. Biases are not mixed.

    Paper: Lee, Cho, Kang, Mixout: Effective Regularization to Finetune Large-scale Pretrained Language Models, ICLR
        2020.
    Relations: `ASCC() + Mixout()` is Adv-Mixout, which in RIFT's released code has no effect. PTWD pulls to
        the same place by a penalty.
    Cost: no pass; a mask for each weight and a copy of it.

    Args:
        p: Probability that a weight returns to its pretrained value.
        granularity: `neuron` draws one mask over a layer's inputs, as dropout does; `element` one for each weight.

    Example:
        >>> trainer = RobustTrainer(model, arguments, defence=Mixout(p=0.7), train_dataset=data.train)
    """

    citation: ClassVar[tuple[str, ...]] = ("lee-etal-2020-mixout",)

    p: float = 0.6  # RIFT paper; Lee et al.: 0.7 to 0.9
    granularity: Literal["neuron", "element"] = "neuron"  # official code

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.p < 1:
            raise UnshakenError(f"p is {self.p}; Mixout needs a probability from 0 to below 1")
        one_of("granularity", self.granularity, ("neuron", "element"))

    def setup(self, model: nn.Module, *, num_labels: int, tokenizer: Any = None) -> None:
        layers = {name: layer for name, layer in encoder(model).named_modules() if isinstance(layer, nn.Linear)}
        if not layers:
            raise UnshakenError(f"{type(model).__name__} has no Linear layer in its encoder for Mixout to mix")
        for name, layer in layers.items():
            key = name.replace(".", "-")  # buffers may not have dots in their names
            self.register_buffer(key, layer.weight.detach().clone())
            WeightSwap(layer, partial(self._mixed, key))

    def _mixed(self, key: str, weight: Tensor) -> Tensor:
        pretrained = self.get_buffer(key)
        moved = weight - pretrained  # (out, in)
        if self.granularity == "element":
            return pretrained + F.dropout(moved, self.p)
        return pretrained + moved * F.dropout(torch.ones_like(moved[0]), self.p)

    def penalty(self, step: Step) -> dict[str, Tensor]:
        return {}  # it acts in the layers
