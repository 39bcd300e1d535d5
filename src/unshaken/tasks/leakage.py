"""Texts that were trained on and are evaluated on."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from unshaken.examples import Examples
from unshaken.tasks.sampling import text_key


class LeakageWarning(UserWarning):
    """Training and evaluation texts overlap."""


@dataclass(frozen=True, kw_only=True)
class Leakage:
    """The evaluation examples whose text was trained on.

    Attributes:
        ids: Of these examples.
        total: Of all evaluation examples.
        contradicting: How many of them were trained on with another label.
    """

    ids: tuple[str, ...]
    total: int
    contradicting: int

    @property
    def count(self) -> int:
        return len(self.ids)

    @property
    def share(self) -> float:
        return self.count / self.total


def leakage(train: Examples, evaluation: Examples) -> Leakage:
    """Count evaluation texts that occur in train up to case, spacing and punctuation; warn where there are any.

    For a pair of texts both must occur together: a premise that comes back with a new hypothesis is no leak.
    """
    labels: dict[str, set[int | float]] = {}
    for row in train:
        labels.setdefault(text_key(row.texts), set()).add(row.label)
    leaked = [(row, labels[key]) for row in evaluation if (key := text_key(row.texts)) in labels]
    found = Leakage(
        ids=tuple(row.id for row, _ in leaked),
        total=len(evaluation),
        contradicting=sum(row.label not in seen for row, seen in leaked),
    )
    if found.count:
        what = f"{found.count:,} of {found.total:,} texts of {evaluation.name} occur in {train.name}"
        warnings.warn(f"{what}; leave them out of one or the other", LeakageWarning, stacklevel=2)
    return found
