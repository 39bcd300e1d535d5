"""How well a detector tells attacked texts from clean ones, and what is left when the attacker knows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from unshaken.attacks.base import SearchAttack
from unshaken.attacks.goals import Unflagged
from unshaken.attacks.results import AttackResults
from unshaken.detection.agreement import Agreement
from unshaken.detection.guarded import Guarded
from unshaken.errors import UnshakenError
from unshaken.examples import Example
from unshaken.names import optional
from unshaken.victims.classes import require_same_classes


@dataclass(frozen=True, kw_only=True)
class Detection:
    """A detector, measured.

    Attributes:
        clean: Share of right answers to clean texts, flagged or not.
        auroc: Chance that a text which fools the model is more suspicious than a clean one; None if none fools it.
        true_positives: Share of the texts that fool the model and are flagged; None if none fools it.
        false_alarms: Share of the examples, as they are, that are flagged; at most what was asked for, unless other
            texts gave the threshold.
        threshold: Suspicion above which a text is flagged.
        fooled: Share of the examples that could be attacked whose right answer the attack changed, as if there were no
            detector.
        fooled_unflagged: Those of them that the detector lets pass.
        fooled_jointly: Those that either attack gets past model and detector, flipped and not flagged: the one on the
            model alone, or the one that knows the detector. This is the number.
        errors: Examples that the attack on the model alone could not be carried out on; they are in no share of it.
        errors_jointly: The same of the attack on both, where the other one got nothing past either.
    """

    clean: float
    auroc: float | None
    true_positives: float | None
    false_alarms: float
    threshold: float
    fooled: float
    fooled_unflagged: float
    fooled_jointly: float
    errors: int = 0
    errors_jointly: int = 0


def auroc(clean: np.ndarray, attacked: np.ndarray) -> float:
    """Chance that an attacked text is more suspicious than a clean one; ties count half. (n,), (m,)"""
    metrics = optional("sklearn.metrics", "measuring a detector needs scikit-learn: pip install 'unshaken[report]'")
    truth = np.repeat([0, 1], [len(clean), len(attacked)])
    return float(metrics.roc_auc_score(truth, np.concatenate([clean, attacked])))


def threshold_for(clean: np.ndarray, false_alarms: float) -> float:
    """The lowest suspicion above which at most this share of the clean texts lies."""
    if not 0 <= false_alarms < 1:
        raise UnshakenError(f"false_alarms is {false_alarms}; a share of the clean texts, 0 or more and below 1")
    allowed = int(np.floor(false_alarms * len(clean) + 1e-9))  # 0.29 of 100 are 29
    return float(np.sort(clean)[len(clean) - 1 - allowed])


def detect(
    detector: Agreement,
    examples: Sequence[Example],
    attack: SearchAttack,
    *,
    calibration: Sequence[Example] | None = None,
    false_alarms: float = 0.01,
    progress: bool = False,
) -> Detection:
    """Attack the model alone and see who is flagged, then attack model and detector together.

    Args:
        detector: With its model.
        examples: What to attack.
        attack: A search; for the joint attack its goal becomes `Unflagged`.
        calibration: Clean texts from which the threshold is taken, better other ones; the examples if None.
        false_alarms: Share of the clean texts of the calibration that may be flagged.
        progress: Show progress bars.

    Example:
        >>> detect(Agreement(Vote(victim, k=16)), data.test, PWWS()).fooled_jointly
    """
    require_same_classes(detector.victim, examples)
    known = detector.suspicion([row.texts for row in (examples if calibration is None else calibration)])
    answers, suspicion = detector.answers_and_suspicion([row.texts for row in examples])
    found = attack(detector.victim, examples, progress=progress)
    errors = _errors(found)
    broken = {row.example_id: row.adversarial for row in found if row.adversarial is not None}
    fooling = list(broken.values())
    attacked = detector.suspicion(fooling) if fooling else np.empty(0)
    threshold = threshold_for(known, false_alarms)
    joint = replace(attack, goal=Unflagged())(Guarded(detector, threshold), examples, progress=progress)
    _errors(joint)  # which refuses where there is nothing else
    # A search that knows more may find less, and does not try right answers that are flagged to begin with.
    passed = {name for name, suspicious in zip(broken, attacked > threshold, strict=True) if not suspicious}
    passed |= {row.example_id for row in joint if row.outcome == "success"}
    errors_jointly = sum(row.outcome == "error" and row.example_id not in passed for row in joint)
    labels = np.array([int(row.label) for row in examples])
    return Detection(
        clean=float((answers.argmax(-1) == labels).mean()),
        auroc=auroc(suspicion, attacked) if fooling else None,
        true_positives=float((attacked > threshold).mean()) if fooling else None,
        false_alarms=float((suspicion > threshold).mean()),
        threshold=threshold,
        fooled=len(fooling) / (len(examples) - errors),
        fooled_unflagged=float((attacked <= threshold).sum()) / (len(examples) - errors),
        fooled_jointly=len(passed) / (len(examples) - errors_jointly),
        errors=errors,
        errors_jointly=errors_jointly,
    )


def _errors(found: AttackResults) -> int:
    """Examples that could not be attacked: that nothing fooled them is no merit of the model."""
    failed = [row for row in found if row.outcome == "error"]
    if len(failed) == len(found):
        raise UnshakenError(f"none of {len(found)} examples could be attacked; the first: {failed[0].error}")
    return len(failed)
