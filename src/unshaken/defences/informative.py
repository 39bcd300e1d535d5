"""The informative term: keep the mutual information between what the model knows and what the pretrained one knew."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unshaken.defences.base import Passes, Regulariser, frozen_copy
from unshaken.defences.divergences import widened
from unshaken.defences.features import Feature, choose_feature, feature_of, pooler_is_new
from unshaken.defences.step import Step
from unshaken.errors import UnshakenError

logger = logging.getLogger(__name__)


@dataclass(eq=False, kw_only=True)
class InformativeTerm(Regulariser):
    """InfoNCE between the features of the trained encoder and of its frozen pretrained copy.

    With s_i the trained encoder's feature of example i and t_j the pretrained one's of the clean text j, in one class:

        - mean over i of log( exp f(s_i, t_i) / sum over j of exp f(s_i, t_j) ),     f = cos(g1(s), g2(t)) / temperature

    averaged over the classes that have at least two examples in the batch. It maximises a bound on I(S; T | Y). The
    projections g1 and g2 are trained with the model, a pair a class.

    Paper: Dong et al., How Should Pre-Trained Language Models Be Fine-Tuned Towards Adversarial Robustness?,
        NeurIPS 2021, Eq. 10.
    Relations: beside ASCC it is RIFT; beside SWAP it works on real adversarial texts; alone, with on="clean", it is the
        paper's informative fine-tuning.
    Cost: 1 forward pass of the teacher; the adversarial pass is the objective's own (the official code runs a second).

    Args:
        alpha: Weight of the term.
        conditional: I(S; T | Y), or I(S; T) over the whole batch with one pair of projections.
        direction: "paper" compares each s with all t, "code" each t with all s, "symmetric" is the mean of both.
        on: Whose features are s: the "adversarial" pass or the "clean" one.
        feature: "mean" of the tokens, "cls" (first token, last layer) or "pooled"; "auto" takes what pre-training
            shaped, see `unshaken.defences.features`.
        temperature: Of the cosine.

    Example:
        >>> defence = SWAP() + InformativeTerm(alpha=0.1)
    """

    citation: ClassVar[tuple[str, ...]] = ("dong-etal-2021-how",)

    alpha: float = 0.1  # paper: 0.1 IMDB, 0.7 SNLI
    conditional: bool = True
    direction: Literal["paper", "code", "symmetric"] = "paper"  # paper Eq. 10; the official code has the other
    on: Literal["adversarial", "clean"] = "adversarial"
    feature: Feature | Literal["auto"] = "auto"  # official code: pooled, of BERT as it was pretrained
    temperature: float = 0.2  # paper

    compares_rows = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, allowed in (
            ("direction", ("paper", "code", "symmetric")),
            ("on", ("adversarial", "clean")),
            ("feature", ("auto", *get_args(Feature))),
        ):
            if getattr(self, name) not in allowed:
                raise UnshakenError(f"{name} is {getattr(self, name)!r}; it is one of {', '.join(allowed)}")
        self.reads = (self.on,)
        self.balanced_batches = self.conditional  # a class with one example has nothing to be compared with
        self.teacher: nn.Module | None = None
        self.chosen: Feature = "cls"

    def setup(self, model: nn.Module, *, num_labels: int, tokenizer: Any = None) -> None:
        encoder = getattr(model, "base_model", None)
        if not isinstance(encoder, nn.Module):
            raise UnshakenError(
                f"InformativeTerm copies the pretrained encoder, but {type(model).__name__} has no base_model; use a "
                "Hugging Face classifier"
            )
        if self.feature == "pooled" and getattr(encoder, "pooler", None) is None:
            raise UnshakenError(f"{type(encoder).__name__} has no pooler; use feature='mean' or 'cls'")
        self.chosen = self._choose(encoder)
        self.teacher = frozen_copy(encoder)
        width = int(encoder.config.hidden_size)  # type: ignore[union-attr,arg-type]
        pairs = num_labels if self.conditional else 1
        self.student_projections = nn.ModuleList(_projection(width) for _ in range(pairs))
        self.teacher_projections = nn.ModuleList(_projection(width) for _ in range(pairs))

    def train(self, mode: bool = True) -> InformativeTerm:
        super().train(mode)
        if self.teacher is not None:
            self.teacher.eval()
        return self

    def penalty(self, step: Step) -> dict[str, Tensor]:
        if self.teacher is None:
            raise UnshakenError("InformativeTerm has no teacher: call setup(model, num_labels=...) before training")
        if self.conditional and step.is_regression:
            raise UnshakenError("I(S; T | Y) needs classes, and the labels are floats; use conditional=False")
        hidden = step.read(self.on, "InformativeTerm").hidden_states[-1]
        student = feature_of(step.core.base_model, hidden, step.mask_of(self.on), self.chosen)
        with torch.no_grad():
            hidden = self.teacher(**step.inputs).last_hidden_state
            teacher = feature_of(self.teacher, hidden, step.inputs.get("attention_mask"), self.chosen)
        return {"informative": self.alpha * self.loss_of(widened(student), widened(teacher), step.labels)}

    def loss_of(self, student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
        """The term from features (batch, hidden). Masks instead of groups: nothing waits for the device."""
        total, classes = student.new_zeros(()), student.new_zeros(())
        itself = torch.eye(len(labels), dtype=torch.bool, device=student.device)
        pairs = zip(self.student_projections, self.teacher_projections, strict=True)
        for label, (project_student, project_teacher) in enumerate(pairs):
            member = labels == label if self.conditional else torch.ones_like(labels, dtype=torch.bool)
            s, t = F.normalize(project_student(student), dim=-1), F.normalize(project_teacher(teacher), dim=-1)
            scores = widened(s @ t.T) / self.temperature  # (batch student, batch teacher)
            # A row outside the class is compared with itself alone, which costs exactly 0.
            scores = scores.masked_fill(~(member[:, None] & member[None, :] | itself), -torch.inf)
            nce = -torch.stack([scores.log_softmax(axis).diagonal() for axis in self._axes]).mean(0)  # (batch,)
            counts = (member.sum() >= 2).to(scores.dtype)
            total = total + counts * nce.sum() / member.sum().clamp_min(1)
            classes = classes + counts
        return total / classes.clamp_min(1)

    @property
    def _axes(self) -> tuple[int, ...]:
        return {"paper": (1,), "code": (0,), "symmetric": (0, 1)}[self.direction]

    def extra_passes(self) -> Passes:
        return Passes(forward=1)

    def facts(self) -> dict[str, Any]:
        return {} if self.teacher is None else {"informative_feature": self.chosen}

    def _choose(self, encoder: nn.Module) -> Feature:
        if self.feature == "auto":
            chosen, why = choose_feature(encoder)
            logger.info("InformativeTerm compares the feature %r: %s", chosen, why)
            return chosen
        from_file = any(getattr(weight, "_is_hf_initialized", False) for weight in encoder.parameters())
        if self.feature == "pooled" and from_file and pooler_is_new(encoder):
            warnings.warn(
                "the pooler's weights were not in the checkpoint, so feature='pooled' keeps what a random layer says; "
                "use feature='auto' or 'mean'",
                stacklevel=2,
            )
        return self.feature


def _projection(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 512), nn.ReLU(), nn.Linear(512, 256))  # official code
