"""`TrainingRecord`: what training leaves beside the weights, so that a later evaluation knows how they came about."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from unshaken.files import TRAINING_FILE, read_json, write_json
from unshaken.schema import decode, encode

SELECTED_BY = "selected_by"  # among the details: the attack that chose the checkpoint, and its sets
CHANGES = ("connection", "smoothing", "reader", "defence", "frozen_layers", "word_level")  # to plain fine-tuning
BATCH = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}  # and their defaults
OF_ONE_RUN = {"seed", "model", "words", "first"}  # of defences and smoothing: what differs between seeds of one method
# What has one source under its name, of which settings only take more or less.
ONE_SOURCE = {"wordnet", "typos", "homoglyphs", "invisible", "leet", "spacing"}


@dataclass(frozen=True, kw_only=True)
class TrainingRecord:
    """How a model was trained.

    Attributes:
        method: Everything but the seed, for example "RIFT + IM-BERT 4-6": models of one method are seeds of each other.
        seed: The training seed.
        base_model: What was fine-tuned.
        task: What it was trained on.
        substitutions: Name and fingerprint of every substitution set that the model was trained on or reads by.
        details: Defence, connection, hyperparameters and cost, as plain JSON.
    """

    method: str
    seed: int
    base_model: str
    task: str
    substitutions: tuple[dict[str, str], ...] = ()
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def used(self) -> list[dict[str, Any]]:
        """Every substitution set that training used, in its loss or in the choice of its checkpoint."""
        chosen = self.details.get(SELECTED_BY)  # a stranger's file may hold anything here
        named = chosen.get("substitutions") if isinstance(chosen, dict) else None
        sets = [*self.substitutions, *(named if isinstance(named, list) else ())]
        return [one for one in sets if isinstance(one, dict)]

    @property
    def fingerprints(self) -> set[str]:
        return {str(one.get("fingerprint")) for one in self.used}

    @property
    def recipe(self) -> str:
        """A digest of all that seeds of one method share, whatever the method is called."""
        arguments = self.details.get("arguments")
        arguments = arguments if isinstance(arguments, dict) else {}
        rows = self.details.get("training_examples")
        batch = [arguments.get(key) or default for key, default in BATCH.items()]
        shared = {
            "method": (self.base_model, self.task, sorted(self.fingerprints)),
            "changes": [self.details.get(key) for key in CHANGES],
            "arguments": [
                arguments.get(key) for key in ("learning_rate", "num_train_epochs", "max_steps", "max_length")
            ],
            # To two digits: the splits of other seeds may leave out a few copies more.
            "rows": f"{rows:.1e}" if isinstance(rows, int) else None,
            "batch": math.prod(batch) if all(isinstance(size, int) for size in batch) else None,
        }
        return hashlib.sha256(json.dumps(_without(shared), sort_keys=True, default=str).encode()).hexdigest()

    @property
    def as_trained(self) -> TrainingRecord:
        """The same under the name that training gave, without what a report may add to tell methods apart."""
        return replace(self, method=self.method.removesuffix(f" [{self.recipe[:6]}]"))

    def has_seen(self, name: str, fingerprint: str) -> bool:
        """Whether training used this set, or more or less of its one source."""
        names = {str(one.get("name")) for one in self.used} & ONE_SOURCE
        return fingerprint in self.fingerprints or name in names

    def save(self, folder: Path | str) -> Path:
        """Write the record into a model's folder."""
        return write_json(Path(folder) / TRAINING_FILE, encode(self))

    @classmethod
    def load(cls, folder: Path | str) -> TrainingRecord | None:
        """The record of a model's folder; None if training left none."""
        path = Path(folder) / TRAINING_FILE
        return decode(cls, read_json(path), str(path)) if path.is_file() else None


def _without(value: Any) -> Any:
    """The same without what is one run's own, at any depth."""
    if isinstance(value, dict):
        return {key: _without(one) for key, one in value.items() if key not in OF_ONE_RUN}
    return [_without(one) for one in value] if isinstance(value, list | tuple) else value
