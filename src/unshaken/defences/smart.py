"""SMART: predictions that stay put in a ball around the text, and steps that stay near the model's own average."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unshaken.defences.base import PLAIN, Defence, Passes, frozen_copy, input_embeddings
from unshaken.defences.divergences import kl_divergence, log_probabilities, symmetric_kl, widened
from unshaken.defences.perturbations import (
    check_reaches_words,
    check_takes_embeddings,
    embedding_output,
    one_of,
    positive,
    shifted,
    word_embeddings,
)
from unshaken.defences.shards import whole
from unshaken.defences.step import Step
from unshaken.word_gradients import word_gradients


@dataclass(eq=False, kw_only=True)
class SMART(Defence):
    """Task loss, smoothness under the worst small perturbation, and a proximal term against a mean teacher.

        L = CE(x) + weight * max_{||d|| <= eps} l(f(x + d), f(x)) + bregman_weight * l(f(x), f_mean(x))
        mean weights <- momentum * mean weights + (1 - momentum) * weights,      after each optimizer step

    l is the symmetric KL for classes and the squared error for regression. In the smoothness term each side's target is
    detached, so that gradients reach both predictions once. # official code

    Paper: Jiang et al., SMART: Robust and Efficient Fine-Tuning for Pre-trained Natural Language Models through
        Principled Regularized Optimization, ACL 2020.
    Relations: R3F is SMART without ascent. The released code has no proximal term; it perturbs the output of the
        embedding block, as here, and then feeds it in as word embeddings, which adds positions twice, as not here.
    Cost: 2 + steps forward passes, the ascent without weight gradients; one more forward for the proximal term.

    Args:
        weight: Weight of the smoothness term.
        steps: Ascent steps.
        step_size: Length of an ascent step along the raw gradient of the summed divergence.
        noise: Standard deviation of the random start.
        projection: `official_unit_linf` divides each token's perturbation by its largest element, so that it has size 1
            whatever `eps`; `ball` clips it to `eps`, as the paper writes.
        eps: Radius of the ball.
        space: What is perturbed: the "embedding_output" (official code), whose LayerNorm makes it about as large as
            the noise of `official_unit_linf`, or "word_embeddings", which are ten times smaller (CreAT's port).
        bregman_weight: Weight of the proximal term; 0 leaves it and its teacher out.

    Example:
        >>> trainer = RobustTrainer(model, arguments, defence=SMART.paper(), train_dataset=data.train)
    """

    citation: ClassVar[tuple[str, ...]] = ("jiang-etal-2020-smart",)

    weight: float = 1.0  # official code; paper: 1, 3 or 5
    steps: int = 1
    step_size: float = 1e-5  # official command line; its class and the paper: 1e-3
    noise: float = 1e-5  # official code and paper
    projection: Literal["official_unit_linf", "ball"] = "official_unit_linf"
    eps: float = 1e-5  # paper
    bregman_weight: float = 0.0  # official code; paper: 1
    space: Literal["embedding_output", "word_embeddings"] = "embedding_output"

    publishes = ("clean", "adversarial")

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(weight=self.weight, steps=self.steps, step_size=self.step_size, noise=self.noise, eps=self.eps)
        one_of("projection", self.projection, ("official_unit_linf", "ball"))
        one_of("space", self.space, ("embedding_output", "word_embeddings"))
        self.momentum = 0.99

    @classmethod
    def paper(cls, weight: float = 1.0) -> SMART:
        """The objective of the paper, with its ball and its proximal term."""
        return cls(weight=weight, step_size=1e-3, projection="ball", bregman_weight=1.0)

    def setup(self, model: nn.Module, *, num_labels: int, tokenizer: Any = None) -> None:
        if self.space == "word_embeddings":
            check_takes_embeddings(model, tokenizer)
        else:
            embedding_output(model)  # says now, not in the first step, what the model lacks
        if self.bregman_weight:
            self.teacher = frozen_copy(model)

    def loss(self, step: Step) -> dict[str, Tensor]:
        clean = step.publish("clean", step.forward())
        delta = self._worst_perturbation(step, clean.logits.detach())
        moved = step.publish("adversarial", self._forward(step, delta))
        smoothness = divergence(moved.logits, clean.logits, step.is_regression)
        parts = {"task": step.task_loss(clean.logits), "smoothness": self.weight * smoothness}
        if self.bregman_weight:
            self.momentum = 0.99 if step.progress < 0.1 else 0.999  # paper
            with torch.no_grad():
                mean = step.forward(self.teacher.eval())
            proximal = divergence(clean.logits, mean.logits, step.is_regression, fixed_targets=False)
            parts["bregman"] = self.bregman_weight * proximal
        return parts

    def _worst_perturbation(self, step: Step, clean_logits: Tensor) -> Tensor:
        delta = self._random_start(step)
        for _ in range(self.steps):
            delta.requires_grad_()
            with word_gradients():
                logits = self._forward(step, delta).logits
            if step.is_regression:
                objective = F.mse_loss(widened(logits), widened(clean_logits), reduction="sum")
            else:
                objective = stable_divergence(logits, clean_logits)
            (gradient,) = torch.autograd.grad(objective, delta)
            check_reaches_words(step, gradient)
            gradient = torch.nan_to_num(gradient, nan=0.0, posinf=0.0, neginf=0.0)
            delta = self._project(delta.detach() + self.step_size * gradient)
        return delta

    def _random_start(self, step: Step) -> Tensor:
        on_words = self.space == "word_embeddings"
        place: Any = input_embeddings(step.core) if on_words else embedding_output(step.core).LayerNorm
        weight: Tensor = place.weight
        shape = (*step.inputs["input_ids"].shape, weight.shape[-1])
        return torch.randn(shape, dtype=weight.dtype, device=weight.device) * self.noise

    def _forward(self, step: Step, delta: Tensor) -> Any:
        if self.space == "word_embeddings":
            return step.forward(step.core, inputs_embeds=word_embeddings(step) + delta)
        with shifted(embedding_output(step.core), delta):
            return step.forward(step.core)

    def _project(self, delta: Tensor) -> Tensor:
        if self.projection == "ball":
            return delta.clamp(-self.eps, self.eps)
        return delta / (delta.abs().amax(-1, keepdim=True) + 1e-6)  # official code

    @torch.no_grad()
    def after_step(self, model: nn.Module) -> None:
        if self.bregman_weight:
            for mean, weight in zip(self.teacher.parameters(), model.parameters(), strict=True):
                mean.lerp_(whole(weight), 1 - self.momentum)

    def passes(self) -> Passes:
        ascent = Passes(forward=1, activations=1) * self.steps
        return PLAIN * 2 + ascent + Passes(forward=int(self.bregman_weight > 0))


def divergence(logits: Tensor, other: Tensor, is_regression: bool, fixed_targets: bool = True) -> Tensor:
    """The symmetric distance of two predictions, mean over the batch; each KL may hold its target fixed."""
    if is_regression:
        return F.mse_loss(widened(logits), widened(other))
    p, q = log_probabilities(logits), log_probabilities(other)
    if fixed_targets:
        return (kl_divergence(q.detach(), p) + kl_divergence(p.detach(), q)).mean()
    return symmetric_kl(p, q).mean()


def stable_divergence(logits: Tensor, target: Tensor, eps: float = 1e-6) -> Tensor:
    """What the ascent climbs: sum of 2 p (o(p) - o(q)), o the log-odds, held fixed.  # official code"""
    p, q = log_probabilities(logits).exp(), log_probabilities(target).exp()
    log_odds_p, log_odds_q = (-(1 / (r.detach() + eps) - 1 + eps).log() for r in (p, q))
    return (2 * p * (log_odds_p - log_odds_q)).sum()
