"""Texts that were trained on and are evaluated on."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from unshaken.errors import UnshakenError
from unshaken.examples import Examples
from unshaken.files import writing
from unshaken.readers import load as load_reader
from unshaken.tasks.sampling import text_key

TRAINED_ON_FILE = "unshaken_trained_on.safetensors"  # 8 bytes a text: too few to read it back, enough to know it again


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
    """Count evaluation texts that occur in train up to case, spacing and punctuation; warn if there are any.

    For a pair of texts both must occur together: a premise that comes back with a new hypothesis is no leak.
    """
    labels: dict[str, set[int | float]] = {}
    for row in train:
        labels.setdefault(text_key(row.texts), set()).add(row.label)
    leaked = [(row, labels[key]) for row in evaluation if (key := text_key(row.texts)) in labels]
    leak = Leakage(
        ids=tuple(row.id for row, _ in leaked),
        total=len(evaluation),
        contradicting=sum(row.label not in seen for row, seen in leaked),
    )
    if leak.count:
        what = f"{leak.count:,} of {leak.total:,} texts of {evaluation.name} occur in {train.name}"
        warnings.warn(f"{what}; leave them out of one or the other", LeakageWarning, stacklevel=2)
    return leak


def texts_of_both(one: Examples, other: Examples) -> int:
    """How many rows of `other` have a text of `one`, up to case, spacing and punctuation; warns of nothing."""
    known = {text_key(row.texts) for row in one}
    return sum(text_key(row.texts) in known for row in other)


def contradictions(examples: Examples) -> int:
    """Texts that stand in several rows with different labels."""
    if examples.is_regression:
        return 0
    labels: dict[str, set[int | float]] = {}
    for row in examples:
        labels.setdefault(text_key(row.texts), set()).add(row.label)
    return sum(len(own) > 1 for own in labels.values())


def save_trained_on(folder: Path | str, train: Examples, base: Path | str | None = None) -> Path:
    """Leave hashes of the training texts beside the weights, so that any later evaluation can tell what was seen.

    Args:
        base: The folder of the model that training began with, whose hashes are kept if it has any.
    """
    path = Path(folder) / TRAINED_ON_FILE
    earlier = None if base is None else _known(base)
    own = _hashes(train)
    with writing(path):
        path.write_bytes(save({"hashes": np.unique(own if earlier is None else np.concatenate([own, earlier]))}))
    return path


def trained_on(folder: Path | str, examples: Examples) -> int | None:
    """How many of the examples the model in `folder` was trained on; None if training left no hashes."""
    known = _known(folder)
    if known is None:
        return None
    reader = load_reader(folder)
    if reader is not None:  # which read the training texts before they were hashed
        examples = reader.examples(examples)
    return int(np.isin(_hashes(examples), known).sum())


def _known(folder: Path | str) -> np.ndarray | None:
    path = Path(folder) / TRAINED_ON_FILE
    if not path.is_file():
        return None
    try:
        return np.asarray(load_file(path)["hashes"])
    except (SafetensorError, KeyError) as error:
        raise UnshakenError(f"{path} is damaged ({error}); remove it, or train again") from error


def _hashes(examples: Examples) -> np.ndarray:
    keys = (text_key(row.texts).encode("utf-8", "surrogatepass") for row in examples)
    return np.frombuffer(b"".join(hashlib.sha256(key).digest()[:8] for key in keys), "<u8")
