"""Predictions to numbers. scikit-learn and scipy count; here is only which numbers a task reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from unshaken.errors import UnshakenError
from unshaken.names import nearest, optional

Values = Sequence[int | float] | np.ndarray[Any, Any]
Numbers = dict[str, float]


def _sklearn_metrics() -> Any:
    return optional("sklearn.metrics", "this metric needs scikit-learn: pip install 'unshaken[report]'")


def _accuracy(labels: Values, predictions: Values) -> Numbers:
    return {"accuracy": float(np.mean(np.asarray(labels) == np.asarray(predictions)))}  # needs no extra


def _accuracy_and_f1(labels: Values, predictions: Values) -> Numbers:
    """GLUE's QQP: accuracy, F1 of the class `duplicate`, and their mean."""
    numbers = _accuracy(labels, predictions)
    numbers["f1"] = float(_sklearn_metrics().f1_score(labels, predictions, pos_label=1, zero_division=0.0))
    return {**numbers, "accuracy_and_f1": (numbers["accuracy"] + numbers["f1"]) / 2}


def _macro_f1(labels: Values, predictions: Values) -> Numbers:
    value = _sklearn_metrics().f1_score(labels, predictions, average="macro", zero_division=0.0)
    return {**_accuracy(labels, predictions), "macro_f1": float(value)}


def _matthews(labels: Values, predictions: Values) -> Numbers:
    value = _sklearn_metrics().matthews_corrcoef(labels, predictions)
    return {**_accuracy(labels, predictions), "matthews": float(value)}


def _pearson(labels: Values, predictions: Values) -> Numbers:
    """Regression: correlation and mean squared error. A constant prediction has no correlation; it counts as 0."""
    target, guess = np.asarray(labels, dtype=float), np.asarray(predictions, dtype=float)
    constant = np.ptp(target) == 0 or np.ptp(guess) == 0
    correlation = 0.0 if constant else float(np.corrcoef(target, guess)[0, 1])
    return {"pearson": correlation, "mean_squared_error": float(np.mean((target - guess) ** 2))}


METRICS: dict[str, Callable[[Values, Values], Numbers]] = {
    "accuracy": _accuracy,
    "accuracy_and_f1": _accuracy_and_f1,
    "macro_f1": _macro_f1,
    "matthews": _matthews,
    "pearson": _pearson,
}


def score(metric: str, labels: Values, predictions: Values) -> Numbers:
    """The numbers of `metric`; the headline number has the metric's own name.

    Example:
        >>> score("accuracy", [0, 1, 1, 0], [0, 1, 0, 0])
        {'accuracy': 0.75}
    """
    if metric not in METRICS:
        raise UnshakenError(f"unknown metric {metric!r}; {nearest(metric, METRICS)}")
    if len(labels) != len(predictions):
        raise UnshakenError(f"{len(labels)} labels and {len(predictions)} predictions; there must be one each")
    if not len(labels):
        raise UnshakenError("no predictions to score")
    return METRICS[metric](labels, predictions)


def advglue_score(scores: Mapping[str, Mapping[str, float]]) -> Numbers:
    """AdvGLUE's own score, and the average that IM-BERT prints instead.

    Official: the mean of five tasks, where QQP counts the mean of accuracy and F1 and MNLI the mean of matched and
    mismatched.  # official code, evaluate.py
    IM-BERT's "Avg." is the mean accuracy of the six sets.  # paper table 1

    Args:
        scores: `advglue-<task>` or `<task>` -> what `score` gave for it, for all six sets.
    """
    by_task = {name.removeprefix("advglue-"): numbers for name, numbers in scores.items()}
    needed = ("sst2", "qqp", "qnli", "mnli", "mnli-mm", "rte")
    if missing := [name for name in needed if name not in by_task]:
        raise UnshakenError(f"AdvGLUE's score needs all six sets; missing: {', '.join(missing)}")
    accuracy = {name: by_task[name]["accuracy"] for name in needed}
    mnli = (accuracy["mnli"] + accuracy["mnli-mm"]) / 2
    official = [accuracy["sst2"], by_task["qqp"]["accuracy_and_f1"], mnli, accuracy["qnli"], accuracy["rte"]]
    return {"advglue": float(np.mean(official)), "mean_accuracy_of_six": float(np.mean(list(accuracy.values())))}
