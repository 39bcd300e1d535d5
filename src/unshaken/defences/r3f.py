"""R3F and R4F: predictions that do not move under small noise, and a head that cannot stretch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from unshaken.defences.adversary import publish_halves
from unshaken.defences.base import PLAIN, Defence, Passes
from unshaken.defences.divergences import log_probabilities, symmetric_kl
from unshaken.defences.perturbations import (
    SharedRandomness,
    check_takes_embeddings,
    one_of,
    positive,
    word_embeddings,
)
from unshaken.defences.step import Step
from unshaken.defences.weights import WeightSwap, output_layer_name


@dataclass(eq=False, kw_only=True)
class R3F(Defence):
    """Task loss plus the symmetric KL between the prediction and the prediction under random noise.

        L = CE(x) + weight * [KL(p || q) + KL(q || p)],     p = f(x),  q = f(x + noise)

    No gradient is stopped in the KL. Dropout is drawn anew for the noised pass, and the noise is tiny, so the term is
    in effect a dropout consistency loss as in R-Drop; `share_dropout` leaves the noise alone in it.

    Paper: Aghajanyan et al., Better Fine-Tuning by Reducing Representational Collapse, ICLR 2021.
    Relations: SMART without ascent; R4F adds a spectral norm on the head.
    Cost: two forward and two backward passes.

    Example:
        >>> trainer = RobustTrainer(model, arguments, defence=R3F(weight=0.7), train_dataset=data.train)
    """

    citation: ClassVar[tuple[str, ...]] = ("aghajanyan-etal-2021-better",)

    weight: float = 1.0  # official code; 0.7 in its RTE recipe
    eps: float = 1e-5  # official code
    noise: Literal["uniform", "normal"] = "uniform"  # official code
    share_dropout: bool = False  # official code
    detach_embeddings: bool = True  # official code: the noised pass sends no gradient to the embedding table

    publishes = ("clean", "adversarial")

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(weight=self.weight, eps=self.eps)
        one_of("noise", self.noise, ("uniform", "normal"))

    def setup(self, model: nn.Module, *, num_labels: int, tokenizer: Any = None) -> None:
        check_takes_embeddings(model, tokenizer)

    def loss(self, step: Step) -> dict[str, Tensor]:
        step.require_classes(type(self).__name__)
        embeddings = word_embeddings(step)
        noised = (embeddings.detach() if self.detach_embeddings else embeddings) + self._draw(embeddings)
        clean, moved = (
            self._share_masks(step, noised) if self.share_dropout else self._together(step, embeddings, noised)
        )
        p, q = log_probabilities(clean.logits), log_probabilities(moved.logits)
        consistency = symmetric_kl(p, q).mean()
        return {"task": step.task_loss(clean.logits), "consistency": self.weight * consistency}

    def _together(self, step: Step, embeddings: Tensor, noised: Tensor) -> tuple[Any, Any]:
        """One pass over both: dropout is independent between rows, and a GPU launches half as much."""
        others = {name: torch.cat([values, values]) for name, values in step.inputs.items() if name != "input_ids"}
        return publish_halves(step, step.forward(inputs_embeds=torch.cat([embeddings, noised]), **others))

    def _share_masks(self, step: Step, noised: Tensor) -> tuple[Any, Any]:
        dropout = SharedRandomness(noised.device)
        with dropout.replay():
            clean = step.publish("clean", step.forward())
        with dropout.replay():
            moved = step.publish("adversarial", step.forward(step.core, inputs_embeds=noised))
        return clean, moved

    def _draw(self, embeddings: Tensor) -> Tensor:
        noise = torch.empty_like(embeddings)
        return noise.uniform_(-self.eps, self.eps) if self.noise == "uniform" else noise.normal_(0, self.eps)

    def passes(self) -> Passes:
        return PLAIN * 2


@dataclass(eq=False, kw_only=True)
class R4F(R3F):
    """R3F with the spectral norm of the output layer held at 1.

    The gradient is that of W / ||W||_2, as with the official reparametrisation; the weight itself is brought back to
    norm 1 after each step, so that the saved model is plain and computes what was trained.

    Paper: Aghajanyan et al., Better Fine-Tuning by Reducing Representational Collapse, ICLR 2021.
    Relations: R3F and a Lipschitz bound on the head.
    Cost: as R3F; one singular value of a (classes, hidden) matrix more.

    Example:
        >>> trainer = RobustTrainer(model, arguments, defence=R4F(), train_dataset=data.train)
    """

    def setup(self, model: nn.Module, *, num_labels: int, tokenizer: Any = None) -> None:
        super().setup(model, num_labels=num_labels, tokenizer=tokenizer)
        self.head = output_layer_name(model, num_labels)
        WeightSwap(model.get_submodule(self.head), unit_spectral_norm)
        self.after_step(model)

    @torch.no_grad()
    def after_step(self, model: nn.Module) -> None:
        weight = model.get_parameter(f"{self.head}.weight")
        weight.copy_(unit_spectral_norm(weight))


def unit_spectral_norm(weight: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.matrix_norm(weight, ord=2)
    return weight / norm
