"""FreeLB: adversarial training whose every ascent step also trains the weights."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from unshaken.defences.base import PLAIN, Defence, Passes
from unshaken.defences.perturbations import (
    Norm,
    SharedRandomness,
    ascend,
    attention_mask,
    check_reaches_words,
    check_takes_embeddings,
    one_of,
    positive,
    random_start,
    word_embeddings,
)
from unshaken.defences.step import Step
from unshaken.word_gradients import word_gradients


@dataclass(eq=False, kw_only=True)
class FreeLB(Defence):
    """Climbs the loss in word-embedding space and averages the weight gradients of all points on the way.

        L = 1/K sum_k CE(x + d_k),      d_{k+1} = project(d_k + rate * g / ||g||),   one optimizer step for all K

    Paper: Zhu et al., FreeLB: Enhanced Adversarial Training for Natural Language Understanding, ICLR 2020.
    Relations: InfoBERT adds two information terms to the same path; SMART and CreAT climb first and train after.
    Cost: K forward and K backward passes, one activation graph at a time.

    Args:
        steps: K, the number of forward-backward passes. The two official versions count differently: the one for
            Hugging Face runs `adv_steps` passes, the one for fairseq `adv_steps + 1`.
        adv_lr: Length of an ascent step.
        init_magnitude: Size of the random start; 0 starts at the clean text.
        max_norm: Radius of the ball around the text; none leaves the path free.
        norm: Norm of gradients, start and ball, over all tokens of an example.
        share_dropout: One dropout mask for all K passes, so that the path climbs one function.

    Example:
        >>> trainer = RobustTrainer(model, arguments, defence=FreeLB(steps=3), train_dataset=data.train)
    """

    citation: ClassVar[tuple[str, ...]] = ("zhu-etal-2020-freelb",)

    # official code, fairseq, RoBERTa-large on SST-2; for ALBERT-xxlarge on SST-2: 2 passes, 0.1, 0.6, none
    steps: int = 3
    adv_lr: float = 0.1
    init_magnitude: float = 1.0
    max_norm: float | None = 0.6
    norm: Norm = "l2"
    share_dropout: bool = True  # official code; fairseq's no-sync-dp turns it off

    publishes = ("adversarial",)  # the last point of the path

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(steps=self.steps, adv_lr=self.adv_lr)
        one_of("norm", self.norm, ("l2", "linf"))

    @classmethod
    def plus_plus(cls, steps: int = 5, adv_lr: float = 0.03) -> FreeLB:
        """FreeLB++: a longer path that no ball holds back, for word substitutions, which are large moves.

        Paper: Li et al., Searching for an Effective Defender: Benchmarking Defense against Adversarial Word
            Substitution, EMNLP 2021.
        """
        # official code: 5 passes, 0.03, 0.05, no ball, dropout drawn anew in every pass
        return cls(steps=steps, adv_lr=adv_lr, init_magnitude=0.05, max_norm=None, share_dropout=False)

    def setup(self, model: nn.Module, *, num_labels: int, tokenizer: Any = None) -> None:
        check_takes_embeddings(model, tokenizer)

    def loss(self, step: Step) -> dict[str, Tensor]:
        with torch.no_grad():
            delta = random_start(word_embeddings(step), attention_mask(step), self.init_magnitude, self.norm)
        dropout = SharedRandomness(delta.device)
        finished = torch.zeros((), device=delta.device)
        for k in range(1, self.steps + 1):
            is_last = k == self.steps
            delta.requires_grad_(not is_last)
            with contextlib.nullcontext() if is_last else step.local():
                climbs = contextlib.nullcontext() if is_last else word_gradients()
                with climbs, dropout.replay() if self.share_dropout else contextlib.nullcontext():
                    output = step.forward(inputs_embeds=word_embeddings(step) + delta)
                loss = step.task_loss(output.logits) / self.steps
                if is_last:
                    step.publish("adversarial", output)
                    break
                step.backward(loss)
            finished = finished + loss.detach()
            # A trainer that skips losses that are not finite ran no backward; the sum returned below still says so.
            gradient = torch.zeros_like(delta) if delta.grad is None else delta.grad
            check_reaches_words(step, gradient)
            delta = ascend(delta, gradient, rate=self.adv_lr, max_norm=self.max_norm, norm=self.norm)
        # The value is the mean over the path; the gradient still to come is the last point's.
        return {"adversarial": loss + finished}

    def passes(self) -> Passes:
        return PLAIN * self.steps
