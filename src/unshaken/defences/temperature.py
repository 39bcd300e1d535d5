"""HighTemperature: train on softened logits."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from unshaken.defences.base import Regulariser
from unshaken.defences.perturbations import positive
from unshaken.defences.step import Step


@dataclass(eq=False, kw_only=True)
class HighTemperature(Regulariser):
    """Every pass of training has its logits divided by a temperature; at test time they are as they come.

        CE(softmax(z(x) / T), y)

    The trained logits are large, so probabilities saturate and searches that climb them are starved: judge such a model
    under margin scoring and the report's `miscalibration` check, never by probabilities alone.

    Paper: Raina et al. 2024, "Extreme Miscalibration and the Illusion of Adversarial Robustness", section 5 (T near
        200, arXiv 2402.17509).
    Relations: Beside an objective (`swap+temperature`) its passes are softened, too.
    Cost: none.

    Args:
        temperature: What logits are divided by.

    Example:
        >>> defence = SWAP() + HighTemperature(temperature=200)
    """

    temperature: float = 200.0  # paper, section 5

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(temperature=self.temperature)

    def prepare(self, step: Step) -> None:
        step.require_classes("HighTemperature")
        step.temperature = self.temperature

    def penalty(self, step: Step) -> dict[str, Tensor]:
        return {}
