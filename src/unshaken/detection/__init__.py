"""Detection: texts on which a model and the vote over their rewordings disagree are flagged instead of answered.

A detector is worth what it keeps when the attacker knows it, so it is measured twice: on texts that fool the model
alone, and under an attack that must fool the model and pass the detector.
"""

from __future__ import annotations

from unshaken.detection.agreement import Agreement
from unshaken.detection.guarded import Guarded
from unshaken.detection.measure import Detection, auroc, detect, threshold_for

__all__ = ["Agreement", "Detection", "Guarded", "auroc", "detect", "threshold_for"]
