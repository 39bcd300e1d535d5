"""What classifiers answer, in the shapes that are about, as probabilities in the order of the classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unshaken.errors import UnshakenError
from unshaken.names import nearest


def as_probabilities(answers: Any, label_names: Sequence[str], num_labels: int, name: str) -> np.ndarray:
    """Answers to n texts as (n, classes).

    An answer is a row of probabilities, {"spam": 0.9, "ham": 0.1}, [{"label": "spam", "score": 0.9}, ...] as a
    `transformers.pipeline` gives it, or with two classes the probability of the last one alone.
    """
    if isinstance(answers, np.ndarray):
        return _two_columns(answers.astype(np.float64), num_labels)
    rows: list[Any] = []
    try:
        rows += [_row(answer, label_names, num_labels, name) for answer in answers]
        return _two_columns(np.asarray(rows, np.float64), num_labels)
    except UnshakenError:
        raise
    except (TypeError, ValueError) as error:  # names without scores, or rows of several lengths
        odd = next((row for row in rows if np.shape(row) not in ((), (num_labels,)) or isinstance(row, str)), answers)
        raise UnshakenError(
            f"{name} answered {str(odd)[:200]!r}; it must give {num_labels} probabilities for every text, or each "
            "class with its score"
        ) from error


def _two_columns(values: np.ndarray, num_labels: int) -> np.ndarray:
    """One probability a text is that of the last of two classes."""
    if num_labels == 2 and (values.ndim == 1 or values.shape[-1] == 1):
        last = values.reshape(-1)
        return np.stack([1 - last, last], axis=-1)
    return values


def _row(answer: Any, label_names: Sequence[str], num_labels: int, name: str) -> Any:
    if isinstance(answer, Mapping) and "label" in answer and "score" in answer:
        answer = [answer]
    if isinstance(answer, Sequence) and answer and all(isinstance(item, Mapping) for item in answer):
        answer = {str(item.get("label")): item.get("score") for item in answer}
    return _in_order(answer, label_names, num_labels, name) if isinstance(answer, Mapping) else answer


def _in_order(scores: Mapping[str, Any], label_names: Sequence[str], num_labels: int, name: str) -> list[float]:
    if not label_names:
        raise UnshakenError(
            f"{name} answers with names ({', '.join(map(str, scores))}); give label_names (--labels) in their order"
        )
    for label in scores:
        if label not in label_names:
            raise UnshakenError(f"{name} answers with the class {label!r}; {nearest(str(label), label_names)}")
    missing = [label for label in label_names if label not in scores]
    found = {label: float(score) for label, score in scores.items()}
    if len(missing) == 1 and num_labels == 2:
        found[missing[0]] = 1 - sum(found.values())
    elif missing:
        raise UnshakenError(
            f"{name} gives no score for {missing[0]!r} ({len(missing)} classes missing); ask for all classes "
            "(top_k=None in transformers.pipeline)"
        )
    return [found[label] for label in label_names]


def probe_classes(answers: Any, name: str) -> tuple[int, tuple[str, ...]]:
    """How many classes a victim has, and their names where it says them, from its answer to one text."""
    first = answers[0] if len(answers) else None
    if isinstance(first, Mapping):
        if "label" in first and "score" in first:
            raise UnshakenError(f"{name} answers with one class ({first['label']!r}); give label_names (--labels), all")
        return len(first), tuple(map(str, first))
    if isinstance(first, Sequence) and first and all(isinstance(item, Mapping) for item in first):
        names = sorted(str(item.get("label")) for item in first)  # the order of an answer is that of its scores
        return len(names), tuple(names)
    if isinstance(first, Sequence | np.ndarray) and not isinstance(first, str) and len(first) > 1:
        return len(first), ()
    raise UnshakenError(
        f"{name} answered {first!r}; it does not say how many classes there are: give num_labels, or their names "
        "(--labels)"
    )
