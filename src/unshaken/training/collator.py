"""From examples to a batch: tokenise, pad to the longest row, keep the examples beside the tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from unshaken.errors import UnshakenError
from unshaken.examples import Example
from unshaken.matching import check_tokens
from unshaken.truncation import tokenised


@dataclass(frozen=True)
class TextCollator:
    """Makes model inputs from `Example`s. The examples travel with the batch, because defences read words."""

    tokenizer: Any
    max_length: int = 128
    table_rows: int | None = None  # of the model's embeddings; None if that is not known

    def __call__(self, rows: Sequence[Example]) -> dict[str, Any]:
        encoded = tokenised(self.tokenizer, [row.texts for row in rows], self.max_length, padding=True)
        batch: dict[str, Any] = {key: torch.tensor(value) for key, value in encoded.items()}
        check_tokens(int(batch["input_ids"].max()), self.table_rows, self.tokenizer)
        is_regression = isinstance(rows[0].label, float)
        batch["labels"] = torch.tensor([row.label for row in rows], dtype=torch.float if is_regression else torch.long)
        batch["examples"] = list(rows)
        return batch

    def ask_as_training_does(self) -> None:
        """A tokenizer is saved with what it was asked for last; in a run that had ended, nothing of training was."""
        tokenised(self.tokenizer, [("a",)], self.max_length, padding=True)


def check_labels(labels: Sequence[int | float], num_labels: int, name: str) -> None:
    """Refuse labels the model has no output for, before a CUDA assert does."""
    if num_labels == 1:
        return
    for label in set(labels):
        if isinstance(label, float) or not 0 <= label < num_labels:
            raise UnshakenError(
                f"{name} has the label {label!r}, but the model has {num_labels} labels (0 to {num_labels - 1}): "
                "load the model with num_labels set to the number of classes"
            )


def check_kind(labels: torch.Tensor, config: Any) -> None:
    """Refuse labels that the model's own loss would take for something else than classes or targets."""
    if labels.is_floating_point() and config.num_labels > 1 and config.problem_type != "regression":
        raise UnshakenError(
            f"the labels are numbers with fractions and the model has {config.num_labels} classes: several labels at "
            "once cannot be trained here; give each row one class as a whole number, or set "
            "config.problem_type='regression' if they are targets"
        )
    if not labels.is_floating_point() and config.num_labels == 1:
        raise UnshakenError(
            "the model has one output and the labels are whole numbers: one class teaches nothing; load it with "
            "num_labels set to the number of classes, or make the labels floats if they are targets"
        )
