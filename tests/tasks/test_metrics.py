from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sklearn_metrics

from unshaken.errors import UnshakenError
from unshaken.tasks import METRICS, TASK_GROUPS, advglue_score, score

LABELS = [0, 1, 1, 0, 1, 1, 1]  # classes that differ in number and in F1
PREDICTIONS = [0, 1, 0, 0, 1, 0, 1]


def test_accuracy_and_f1_of_qqp():
    found = score("accuracy_and_f1", LABELS, PREDICTIONS)
    assert found["accuracy"] == pytest.approx(5 / 7)
    assert found["f1"] == pytest.approx(2 * 3 / (2 * 3 + 2))  # 3 true positives, 2 false negatives
    assert found["accuracy_and_f1"] == pytest.approx((found["accuracy"] + found["f1"]) / 2)


def test_a_class_that_neither_labels_nor_predictions_have_scores_nothing():
    assert score("accuracy_and_f1", [0, 0], [0, 0]) == {"accuracy": 1.0, "f1": 0.0, "accuracy_and_f1": 0.5}


def test_the_rest_is_scikit_learns_and_scipys():
    assert score("matthews", LABELS, PREDICTIONS)["matthews"] == sklearn_metrics.matthews_corrcoef(LABELS, PREDICTIONS)
    macro = sklearn_metrics.f1_score(LABELS, PREDICTIONS, average="macro")
    assert score("macro_f1", LABELS, PREDICTIONS)["macro_f1"] == macro
    target, guess = [0.1, 0.5, 0.9, 0.2], [0.2, 0.4, 0.7, 0.3]
    found = score("pearson", target, guess)
    assert found["pearson"] == pytest.approx(stats.pearsonr(target, guess).statistic)
    assert found["mean_squared_error"] == pytest.approx(sklearn_metrics.mean_squared_error(target, guess))


@pytest.mark.parametrize("metric", METRICS)
def test_the_headline_has_the_metrics_name_and_constant_predictions_are_scored(metric):
    perfect = score(metric, np.array(LABELS), np.array(LABELS))
    assert perfect[metric] == pytest.approx(1.0)
    constant = score(metric, LABELS, [0] * 7)
    assert constant[metric] < perfect[metric]


def test_accuracy_needs_no_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert score("accuracy", LABELS, PREDICTIONS) == {"accuracy": pytest.approx(5 / 7)}
    with pytest.raises(UnshakenError, match=r"unshaken\[report\]"):
        score("matthews", LABELS, PREDICTIONS)


def test_bad_calls():
    with pytest.raises(UnshakenError, match="unknown metric 'acuracy'; did you mean 'accuracy'"):
        score("acuracy", [1], [1])
    with pytest.raises(UnshakenError, match="2 labels and 1 predictions"):
        score("accuracy", [1, 0], [1])
    with pytest.raises(UnshakenError, match="no predictions"):
        score("accuracy", [], [])


@pytest.mark.parametrize(
    ("columns", "average"),
    [  # IM-BERT, table 1, development set: the printed columns and the printed average
        ((31.1, 47.4, 36.5, 33.1, 27.8, 34.6), 35.1),
        ((33.8, 42.3, 40.5, 36.3, 33.3, 28.4), 35.8),
        ((39.2, 48.8, 41.2, 38.1, 35.2, 44.4), 41.2),
    ],
)
def test_advglue_score_and_the_papers_average(columns, average):
    names = ("sst2", "qqp", "qnli", "mnli", "mnli-mm", "rte")
    scores = {f"advglue-{name}": {"accuracy": value} for name, value in zip(names, columns, strict=True)}
    scores["advglue-qqp"]["accuracy_and_f1"] = 40.0
    found = advglue_score(scores)
    assert found["mean_accuracy_of_six"] == pytest.approx(average, abs=0.051)
    sst2, _, qnli, mnli, mismatched, rte = columns
    assert found["advglue"] == pytest.approx((sst2 + 40.0 + (mnli + mismatched) / 2 + qnli + rte) / 5)
    assert set(scores) == set(TASK_GROUPS["advglue"])
    del scores["advglue-rte"]
    with pytest.raises(UnshakenError, match="missing: rte"):
        advglue_score(scores)
