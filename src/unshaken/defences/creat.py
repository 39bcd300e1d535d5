"""CreAT: a perturbation that moves the sentence's representation as well as its loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unshaken.defences.base import PLAIN, Defence, Passes
from unshaken.defences.divergences import widened
from unshaken.defences.perturbations import (
    ascend,
    check_reaches_words,
    check_takes_embeddings,
    hidden_states,
    one_of,
    positive,
    word_embeddings,
)
from unshaken.defences.step import Step
from unshaken.word_gradients import word_gradients


@dataclass(eq=False, kw_only=True)
class CreAT(Defence):
    """Trains on the text and on a perturbation that climbs the loss and turns the first token's last state away.

        d = argmax_{||d|| <= max_norm} CE(x + d) - temperature * cos(h(x + d), h(x)),      L = [CE(x) + CE(x + d)] / 2

    h is the last layer's state of the first token; h(x) is held fixed.

    Paper: Wu et al., Toward Adversarial Training on Contextualized Language Representation, ICLR 2023.
    Relations: FreeLB's ascent with a second aim; only the last point is trained on, beside the clean text.
    Cost: 2 + ascents forward passes; the ascent forms no weight gradients.

    Args:
        ascents: Ascent steps; the official `adv_steps` counts the final pass too.
        adv_lr: Length of an ascent step, per example.
        max_norm: Radius of the ball, per example over all tokens.
        init_std: Standard deviation of the random start; the first projection brings it into the ball.
        temperature: Weight of the cosine.
        cosine_reduction: `sum` adds the cosines of a batch to its mean loss, so their weight grows with the batch;
            `mean` weighs them alike whatever the batch, as gradient accumulation needs.

    Example:
        >>> trainer = RobustTrainer(model, arguments, defence=CreAT(), train_dataset=data.train)
    """

    citation: ClassVar[tuple[str, ...]] = ("wu-etal-2023-toward",)

    ascents: int = 1  # official code: adv_steps 2
    adv_lr: float = 0.1  # official code
    max_norm: float = 0.1  # official code
    init_std: float = 1e-2  # official code
    temperature: float = 1.0  # official code
    cosine_reduction: Literal["sum", "mean"] = "sum"  # official code; paper: a sum per example, which is `mean`

    publishes = ("clean", "adversarial")

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(ascents=self.ascents, adv_lr=self.adv_lr, max_norm=self.max_norm)
        one_of("cosine_reduction", self.cosine_reduction, ("sum", "mean"))

    def setup(self, model: nn.Module, *, num_labels: int, tokenizer: Any = None) -> None:
        check_takes_embeddings(model, tokenizer)

    def loss(self, step: Step) -> dict[str, Tensor]:
        clean = step.publish("clean", step.forward(output_hidden_states=True))
        delta = self._turning_perturbation(step, first_token(clean).detach())
        moved = step.publish("adversarial", step.forward(step.core, inputs_embeds=word_embeddings(step) + delta))
        return {"task": step.task_loss(clean.logits) / 2, "adversarial": step.task_loss(moved.logits) / 2}

    def _turning_perturbation(self, step: Step, clean_state: Tensor) -> Tensor:
        embeddings = word_embeddings(step).detach()
        delta = torch.randn_like(embeddings) * self.init_std
        for _ in range(self.ascents):
            delta.requires_grad_()
            with word_gradients():
                output = step.forward(step.core, inputs_embeds=embeddings + delta, output_hidden_states=True)
            cosines = F.cosine_similarity(first_token(output), clean_state, dim=-1)  # (batch,)
            closeness = cosines.sum() if self.cosine_reduction == "sum" else cosines.mean()
            objective = step.task_loss(output.logits) - self.temperature * closeness
            (gradient,) = torch.autograd.grad(objective, delta)
            check_reaches_words(step, gradient)
            delta = ascend(delta, gradient, rate=self.adv_lr, max_norm=self.max_norm, norm="l2")
        return delta

    def passes(self) -> Passes:
        return PLAIN * 2 + Passes(forward=1, activations=1) * self.ascents


def first_token(output: Any) -> Tensor:
    """The last layer's state of the first token. (batch, hidden)"""
    return widened(hidden_states(output, "CreAT")[-1][:, 0])
