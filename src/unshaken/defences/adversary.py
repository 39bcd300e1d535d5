"""What defences against word substitution share: a substitution set, and one pass over clean and adversarial rows."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers.modeling_outputs import SequenceClassifierOutput

from unshaken.defences.divergences import kl_divergence, log_probabilities
from unshaken.defences.step import Step
from unshaken.substitutions import Substitutions, default_substitutions, joined_substitutions


def resolve(substitutions: Substitutions | str | None) -> Substitutions:
    """A substitution set from what a user gave: itself, its specification, or nothing."""
    if substitutions is None:
        return default_substitutions()
    if isinstance(substitutions, str):
        return joined_substitutions(substitutions)
    return substitutions


def publish_halves(step: Step, output: Any, mask: Tensor | None = None) -> tuple[Any, Any]:
    """Split a pass over clean and then adversarial rows, and share both halves, with their attention masks if new.

    One pass over both halves the launches on a GPU, and is one wrapped forward for DDP.
    """
    rows = len(step.labels)
    halves = []
    for name, part in (("clean", slice(0, rows)), ("adversarial", slice(rows, None))):
        hidden = None if output.hidden_states is None else tuple(state[part] for state in output.hidden_states)
        half = SequenceClassifierOutput(logits=output.logits[part], hidden_states=hidden)
        halves.append(step.publish(name, half, None if mask is None else mask[part]))
    return halves[0], halves[1]


def agreement(clean: Any, adversarial: Any) -> Tensor:
    """Mean KL(clean || adversarial); gradients flow through both sides."""
    return kl_divergence(log_probabilities(clean.logits), log_probabilities(adversarial.logits)).mean()
