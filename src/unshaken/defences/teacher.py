"""PlainTeacher: stay near what a finished classifier answers to the clean text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from unshaken.defences.base import Passes, Regulariser
from unshaken.defences.divergences import kl_divergence, log_probabilities
from unshaken.defences.perturbations import positive
from unshaken.defences.step import Step
from unshaken.errors import UnshakenError
from unshaken.victims import Victim
from unshaken.victims.classes import require_one_order
from unshaken.victims.hugging_face import label_names


@dataclass(eq=False, kw_only=True)
class PlainTeacher(Regulariser):
    """Agreement on the clean text with a classifier that is trained already, and stays as it is.

        weight * KL(p(x) || q(x)),     p = the teacher, q = the model in training

    Robust training gives up clean accuracy; a plainly fine-tuned teacher holds on to it. It is a whole model with its
    own tokenizer and reader, so that a model with a smoothed vocabulary or another backbone can have it, too.

    Paper: Hinton et al. 2015, "Distilling the Knowledge in a Neural Network", arXiv 1503.02531, at temperature 1. As an
        anchor of robust training: ours.
    Relations: InformativeTerm keeps what the pretrained encoder knew, this what plain fine-tuning learnt. SMART's
        proximal term anchors to a mean of the model's own weights.
    Cost: 1 forward pass of the teacher, and its training, once.

    Args:
        model: The teacher: a victim, or the folder or hub name of a classifier with the same labels.
        weight: Weight of the term.

    Example:
        >>> defence = SWAP() + PlainTeacher(model="runs/plain/model")
    """

    model: Victim | str | None = None
    weight: float = 1.0

    reads = ("clean",)

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(weight=self.weight)
        self.victim: Victim | None = None

    def setup(self, model: nn.Module, *, num_labels: int, tokenizer: Any = None) -> None:
        if self.model is None:
            raise UnshakenError("PlainTeacher has no model; name a classifier: --defence swap+teacher:model=FOLDER")
        if isinstance(self.model, Victim):
            self.victim = self.model
        else:
            self.victim = Victim.from_pretrained(self.model, device=str(next(model.parameters()).device))
        self._check_labels(model, num_labels)

    def penalty(self, step: Step) -> dict[str, Tensor]:
        step.require_classes("PlainTeacher")
        if self.victim is None:
            raise UnshakenError("PlainTeacher has no teacher: call setup(model, num_labels=...) before training")
        examples = step.require_examples("PlainTeacher")
        # In full precision, however the model is trained: the teacher is the classifier that its folder holds.
        with torch.autocast(step.labels.device.type, enabled=False):
            answers = self.victim.log_probabilities([example.texts for example in examples])
        taught = torch.from_numpy(answers).to(step.labels.device)  # (batch, classes)
        clean = step.read("clean", "PlainTeacher").logits
        return {"teacher": self.weight * kl_divergence(taught, log_probabilities(clean)).mean()}

    def extra_passes(self) -> Passes:
        return Passes(forward=1)

    def facts(self) -> dict[str, Any]:
        return {} if self.victim is None else {"teacher": self.victim.fingerprint}

    def check_labels(self, names: Sequence[str]) -> None:
        """A model without class names is taught by the rows' own: there they tell the order."""
        assert self.victim is not None
        require_one_order(self.victim.label_names, f"the teacher {self.victim.name}", names, "the training rows")

    def _check_labels(self, model: Any, num_labels: int) -> None:
        """Another order of the same labels would teach the opposite, and nothing else would tell."""
        assert self.victim is not None
        if self.victim.num_labels != num_labels:
            raise UnshakenError(
                f"the teacher {self.victim.name} has {self.victim.num_labels} classes and the model {num_labels}; "
                "they must be trained for the same labels"
            )
        names = label_names(model.config)
        if names and self.victim.label_names and names != self.victim.label_names:
            raise UnshakenError(
                f"the teacher {self.victim.name} has the labels {', '.join(self.victim.label_names)}, the model "
                f"{', '.join(names)}; they must be the same in the same order"
            )
