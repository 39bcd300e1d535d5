"""InfoBERT: FreeLB with two information terms, one to forget noise, one to keep what robust words say."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unshaken.defences.base import Defence, Passes
from unshaken.defences.divergences import widened
from unshaken.defences.perturbations import (
    SharedRandomness,
    ascend,
    attention_mask,
    check_reaches_words,
    check_takes_embeddings,
    hidden_states,
    positive,
    random_start,
    word_embeddings,
)
from unshaken.defences.step import Step
from unshaken.errors import UnshakenError
from unshaken.word_gradients import word_gradients


class PairCritic(nn.Module):
    """Scores how well a word's embedding and a sentence belong together: softplus(MLP([local, whole]))."""

    def __init__(self, width: int, hidden: int = 300) -> None:  # official code
        super().__init__()
        self.local = nn.Linear(width, hidden)
        self.whole = nn.Linear(width, hidden, bias=False)
        self.score = nn.Linear(hidden, 1)

    def forward(self, local: Tensor, whole: Tensor) -> Tensor:
        """All pairs. (..., n, width) twice -> (..., n sentences, n words)"""
        # The first layer is linear, so a pair's value is a sum: no tensor of n * n concatenated pairs is made.
        hidden = self.whole(whole).unsqueeze(-2) + self.local(local).unsqueeze(-3)
        return F.softplus(widened(self.score(hidden.relu()).squeeze(-1)))


@dataclass(eq=False, kw_only=True)
class InfoBERT(Defence):
    """FreeLB's path with an information bottleneck on the input and anchored features on the way.

        L = 1/K sum_k [ CE(x + d_k) + beta * upper(e_k) - alpha * lower(anchors_k; h_k) ]

    upper: half the mean squared distance of the batch's embedding outputs e to a shuffled copy of them. lower: InfoNCE,
    by a learned critic, between embedding outputs of anchor tokens and the last state h of their sentence's first
    token. Anchors are the tokens whose loss gradient is neither small (uninformative) nor largest (easily attacked).

    Paper: Wang et al., InfoBERT: Improving Robustness of Language Models from an Information Theoretic Perspective,
        ICLR 2021.
    Relations: FreeLB with beta = alpha = 0.
    Cost: K forward passes and 2 K backward passes, of which K form weight gradients: choosing anchors takes the
        gradient at the embeddings alone. The official code runs both backward passes in full.

    Args:
        steps: K, the number of passes that train.
        adv_lr: Length of an ascent step.
        init_magnitude: Size of the random start; 0 starts at the clean text.
        max_norm: Radius of the ball around the text; none leaves the path free.
        beta: Weight of the upper bound.
        alpha: Weight of the lower bound.
        anchors_from: Share of an example's tokens, by gradient, below which tokens say too little.
        anchors_to: Share from which on they are too easily attacked.

    Example:
        >>> trainer = RobustTrainer(model, arguments, defence=InfoBERT(), train_dataset=data.train)
    """

    citation: ClassVar[tuple[str, ...]] = ("wang-etal-2021-infobert",)

    # official code, ANLI
    steps: int = 3
    adv_lr: float = 4e-2
    init_magnitude: float = 8e-2
    max_norm: float | None = None
    beta: float = 5e-3
    alpha: float = 5e-3
    anchors_from: float = 0.5
    anchors_to: float = 0.9

    publishes = ("adversarial",)  # the last point of the path
    compares_rows = True  # negatives of both bounds are the other tokens of the batch

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(steps=self.steps, adv_lr=self.adv_lr, beta=self.beta, alpha=self.alpha)
        if not 0 <= self.anchors_from < self.anchors_to <= 1:
            raise UnshakenError(
                f"anchors_from is {self.anchors_from} and anchors_to {self.anchors_to}; they are shares of the tokens, "
                "the first below the second"
            )

    def setup(self, model: nn.Module, *, num_labels: int, tokenizer: Any = None) -> None:
        check_takes_embeddings(model, tokenizer)
        example = next(model.parameters())
        self.critic = PairCritic(model.config.hidden_size).to(example.device, example.dtype)  # type: ignore[union-attr, arg-type]

    def loss(self, step: Step) -> dict[str, Tensor]:
        mask = attention_mask(step)
        with torch.no_grad():
            delta = random_start(word_embeddings(step), mask, self.init_magnitude, "l2")
        dropout = SharedRandomness(delta.device)
        finished: dict[str, Tensor] = {}
        for k in range(1, self.steps + 1):
            is_last = k == self.steps
            delta.requires_grad_()
            with contextlib.nullcontext() if is_last else step.local():
                with word_gradients(), dropout.replay():
                    output = step.forward(inputs_embeds=word_embeddings(step) + delta, output_hidden_states=True)
                states = hidden_states(output, "InfoBERT")
                parts = {
                    "adversarial": step.task_loss(output.logits) / self.steps,
                    "upper_bound": self.beta / self.steps * spread(widened(states[0])[mask.bool()]),
                }
                (gradient,) = torch.autograd.grad(list(parts.values()), delta, retain_graph=True)
                check_reaches_words(step, gradient)
                anchors = self._anchors(gradient, mask)
                lower = self._lower_bound(states[0], states[-1][:, 0], anchors, chunk=len(mask))
                parts["lower_bound"] = -self.alpha / self.steps * lower
                if is_last:
                    step.publish("adversarial", output)
                    break
                step.backward(torch.stack(list(parts.values())).sum())
            finished = {name: finished.get(name, 0) + part.detach() for name, part in parts.items()}
            delta = ascend(delta, gradient, rate=self.adv_lr, max_norm=self.max_norm, norm="l2")
        # Values are means over the path; the gradient still to come is the last point's.
        return {name: part + finished.get(name, 0) for name, part in parts.items()}

    def _anchors(self, gradient: Tensor, mask: Tensor) -> Tensor:
        """Tokens whose gradient's rank lies in the middle band of their example. (batch, seq) of bool"""
        sizes = torch.linalg.vector_norm(gradient, dim=-1).masked_fill(mask == 0, math.inf)
        ranks = sizes.argsort(dim=1).argsort(dim=1)  # padding ranks last
        lengths = mask.sum(dim=1, keepdim=True).double()
        low, high = (lengths * self.anchors_from).ceil(), (lengths * self.anchors_to).ceil()
        return torch.logical_and(ranks >= low, ranks < high)

    def _lower_bound(self, embedded: Tensor, sentences: Tensor, anchors: Tensor, chunk: int) -> Tensor:
        """InfoNCE in chunks of shuffled (anchor word, sentence) pairs, mean over chunks."""
        rows, columns = anchors.nonzero(as_tuple=True)
        order = torch.randperm(len(rows), device=rows.device)
        local, whole = embedded[rows, columns][order], sentences[rows][order]  # (pairs, hidden)
        full = len(order) // chunk * chunk
        bounds = []
        if full:
            shape = (-1, chunk, local.size(-1))
            bounds.append(self._info_nce(local[:full].view(shape), whole[:full].view(shape)))
        if full < len(order):
            bounds.append(self._info_nce(local[full:].unsqueeze(0), whole[full:].unsqueeze(0)))
        # Texts too short for an anchor leave the critic without pairs.
        return torch.cat(bounds).mean() if bounds else embedded.sum() * 0

    def _info_nce(self, local: Tensor, whole: Tensor) -> Tensor:
        """(chunks, n, hidden) twice -> (chunks,)"""
        scores: Tensor = self.critic(local, whole)  # (chunks, n sentences, n words)
        positives = scores.diagonal(dim1=-2, dim2=-1).mean(-1)
        return positives - (scores.logsumexp(dim=-1).mean(-1) - math.log(scores.size(-1)))

    def passes(self) -> Passes:
        return Passes(forward=1, activations=2, weights=1) * self.steps


def spread(embedded: Tensor) -> Tensor:
    """Half the mean squared distance of tokens to tokens drawn at random from the batch. (tokens, hidden) -> ()"""
    drawn = torch.randint(len(embedded), (len(embedded),), device=embedded.device)
    return (embedded - embedded[drawn]).square().sum(-1).mean() / 2
