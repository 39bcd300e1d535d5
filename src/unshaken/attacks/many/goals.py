"""Goals on tensors, with a label for each row: the same numbers as `unshaken.attacks.goals` gives one example."""

from __future__ import annotations

import torch
from torch import Tensor

from unshaken.attacks.goals import Goal, Scoring, Targeted, Unflagged, Untargeted


class TensorGoal:
    """A goal with its scoring.

    Args:
        goal: `Untargeted`, `Targeted` or `Unflagged`; `supports` says whether there are tensors for it.
        scoring: What values are made of.
    """

    def __init__(self, goal: Goal, scoring: Scoring) -> None:
        assert self.supports(goal)
        self.target = goal.label if isinstance(goal, Targeted) else None
        self.margin = goal.margin if isinstance(goal, Untargeted) else 0.0
        self.past_a_flag = isinstance(goal, Unflagged)
        self.scoring = scoring

    @staticmethod
    def supports(goal: Goal) -> bool:
        return type(goal) in (Untargeted, Targeted, Unflagged)  # a subclass may mean something else

    def applies(self, labels: Tensor) -> Tensor:
        return torch.ones_like(labels, dtype=torch.bool) if self.target is None else labels != self.target

    def reached(self, log_probabilities: Tensor, labels: Tensor) -> Tensor:
        """(n, classes), (n,) -> (n,) booleans"""
        predicted = log_probabilities.argmax(-1)
        if self.target is not None:
            return predicted == self.target
        if self.past_a_flag:
            return (predicted != labels) & (predicted != log_probabilities.shape[1] - 1)
        return (predicted != labels) & (_lead(log_probabilities, labels) >= self.margin)

    def values(self, log_probabilities: Tensor, labels: Tensor) -> Tensor:
        """(n, classes), (n,) -> (n,) float64 scores"""
        if self.past_a_flag:
            return self._past_a_flag(log_probabilities.double(), labels)
        towards = labels if self.target is None else torch.full_like(labels, self.target)
        sign = -1 if self.target is None else 1
        if self.scoring == "margin":
            return -sign * _lead(log_probabilities, towards)
        own = log_probabilities.gather(1, towards[:, None])[:, 0].double()
        return sign * (own if self.scoring == "log-probability" else own.exp())

    def _past_a_flag(self, log_probabilities: Tensor, labels: Tensor) -> Tensor:
        held = torch.stack([labels, torch.full_like(labels, log_probabilities.shape[1] - 1)], 1)
        wrong = log_probabilities.scatter(1, held, -torch.inf)
        if self.scoring == "margin":
            return wrong.amax(1) - log_probabilities.gather(1, held).amax(1)
        reached = wrong.logsumexp(1)
        return reached if self.scoring == "log-probability" else reached.exp()

    def chance(self, values: Tensor) -> Tensor:
        """Scores as shares of one, for searches that draw in proportion to them."""
        if self.scoring == "margin":
            return 0.5 * (1 + torch.tanh(0.5 * values))
        if self.target is not None or self.past_a_flag:
            return (values if self.scoring == "probability" else values.exp()).clamp_min(0)
        return (1 + values if self.scoring == "probability" else -torch.expm1(-values)).clamp_min(0)


def _lead(log_probabilities: Tensor, labels: Tensor) -> Tensor:
    """How far the best other class is ahead of `labels`. (n, classes), (n,) -> (n,)"""
    own = log_probabilities.gather(1, labels[:, None])
    others = log_probabilities.scatter(1, labels[:, None], -torch.inf).amax(1)
    return others.double() - own[:, 0].double()
