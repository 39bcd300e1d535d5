"""PTWD: weight decay towards the pretrained weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from unshaken.defences.base import Regulariser, frozen_copy
from unshaken.defences.perturbations import one_of, positive
from unshaken.defences.shards import is_sharded, like, local, summed_over_processes
from unshaken.defences.step import Step
from unshaken.defences.weights import encoder
from unshaken.errors import UnshakenError


@dataclass(eq=False, kw_only=True)
class PTWD(Regulariser):
    """Penalises the encoder's distance from where pre-training left it. Stands alone or beside any objective.

        l2:          weight * sqrt(1e-10 + ||w - w_pre||^2)          over all weights together; pull of constant size
        l2_squared:  weight / 2 * ||w - w_pre||^2                    pull grows with the distance

    Paper: Lee, Cho, Kang, Mixout: Effective Regularization to Finetune Large-scale Pretrained Language Models, ICLR
        2020 (squared); Dong et al., How Should Pre-Trained Language Models Be Fine-Tuned Towards Adversarial
        Robustness?, NeurIPS 2021 (unsquared, Adv-PTWD).
    Relations: `ASCC() + PTWD()` is Adv-PTWD. Mixout pulls to the same place by chance instead of by a penalty.
    Cost: no pass; one subtraction and norm over the weights, and a copy of them.

    Args:
        weight: Weight of the penalty; with `decoupled`, the share of the distance taken back at each step.
        form: See above.
        scope: All of the encoder's weights, or its matrices only.
        decoupled: Move the weights after the optimizer's step instead of adding to the loss, so that Adam does not
            rescale the pull. Only for `l2_squared`.

    Example:
        >>> trainer = RobustTrainer(model, arguments, defence=ASCC() + PTWD(), train_dataset=data.train)
    """

    citation: ClassVar[tuple[str, ...]] = ("lee-etal-2020-mixout", "dong-etal-2021-how")

    weight: float = 0.01  # RIFT paper, IMDB; 0.005 on SNLI
    form: Literal["l2", "l2_squared"] = "l2"  # RIFT paper and official code; Lee et al.: squared
    scope: Literal["all_encoder", "no_bias_layernorm"] = "all_encoder"  # official code
    decoupled: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(weight=self.weight)
        one_of("form", self.form, ("l2", "l2_squared"))
        one_of("scope", self.scope, ("all_encoder", "no_bias_layernorm"))
        if self.decoupled and (self.form != "l2_squared" or self.weight > 1):
            raise UnshakenError("PTWD(decoupled=true) needs form=l2_squared and a weight of at most 1")

    def setup(self, model: nn.Module, *, num_labels: int, tokenizer: Any = None) -> None:
        self.pretrained = frozen_copy(encoder(model))
        self._origins: list[Tensor] | None = None

    def _pairs(self, model: nn.Module) -> list[tuple[Tensor, Tensor]]:
        """Weights and this process's part of where they came from."""
        weights = list(encoder(model).parameters())
        if self._origins is None:
            origins = self.pretrained.parameters()
            self._origins = [local(like(origin, weight)) for weight, origin in zip(weights, origins, strict=True)]
        return [
            (weight, origin)
            for weight, origin in zip(weights, self._origins, strict=True)
            if weight.requires_grad and (self.scope == "all_encoder" or weight.ndim > 1)
        ]

    def penalty(self, step: Step) -> dict[str, Tensor]:
        if self.decoupled:
            return {}
        pairs = self._pairs(step.core)
        squared = _squared_distance([pair for pair in pairs if not is_sharded(pair[0])])
        if shards := [(local(weight), origin) for weight, origin in pairs if is_sharded(weight)]:
            squared = squared + summed_over_processes(_squared_distance(shards))
        if self.form == "l2":
            return {"ptwd": self.weight * (1e-10 + squared).sqrt()}  # official code
        return {"ptwd": self.weight / 2 * squared}

    @torch.no_grad()
    def after_step(self, model: nn.Module) -> None:
        if self.decoupled:
            pairs = self._pairs(model)
            torch._foreach_lerp_([local(weight) for weight, _ in pairs], [origin for _, origin in pairs], self.weight)


def _squared_distance(pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
    distance: Tensor = SquaredDistance.apply([origin for _, origin in pairs], *(weight for weight, _ in pairs))  # type: ignore[no-untyped-call]
    return distance


class SquaredDistance(torch.autograd.Function):
    """||w - o||^2 over many tensors. The backward forms the differences anew: kept, they would be a second model.

    Fused kernels take all tensors at once, where a loop would launch hundreds of small ones.
    """

    @staticmethod
    def forward(context: Any, origins: list[Tensor], *weights: Tensor) -> Tensor:
        context.origins = origins
        context.save_for_backward(*weights)
        lengths = torch._foreach_norm(torch._foreach_sub(weights, origins))
        return torch.stack(list(lengths)).square().sum()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        differences = torch._foreach_sub(context.saved_tensors, context.origins)
        torch._foreach_mul_(differences, 2 * gradient)
        return (None, *differences)
