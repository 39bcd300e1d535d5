"""What a trainer leaves beside the weights it saves: how the model came about, and which texts it has seen."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from unshaken.connections import connection_of
from unshaken.evaluation.training_record import TrainingRecord
from unshaken.examples import Examples
from unshaken.tasks import save_trained_on


def leave_record(trainer: Any, folder: Path | str) -> None:
    """Write the record of a `RobustTrainer`, and hashes of its training texts, into a model's folder."""
    record_of(trainer).save(folder)
    if isinstance(trainer.train_dataset, Examples):
        save_trained_on(folder, trainer.train_dataset)


def record_of(trainer: Any) -> TrainingRecord:
    """How a `RobustTrainer` has trained so far."""
    data, connection = trainer.train_dataset, connection_of(trainer.model)
    parts = describe(trainer.defence)
    method = " + ".join(part["name"].lower() for part in parts)
    known = {}
    if isinstance(data, Examples):
        known = {
            "training_examples": len(data),
            "training_data": data.fingerprint,
            "text_columns": list(data.columns),
            "label_column": "label",
        }
    chosen = ("num_train_epochs", "learning_rate", "per_device_train_batch_size", "gradient_accumulation_steps")
    return TrainingRecord(
        method=method if connection is None else f"{method} + connection {connection.layers}",
        seed=int(trainer.args.seed),
        base_model=Path(str(getattr(trainer.model.config, "_name_or_path", "") or "unknown")).name,
        task=data.name if isinstance(data, Examples) else "unknown",
        substitutions=substitutions_of(trainer.defence),
        details={
            "connection": None if connection is None else connection.to_dict(),
            "defence": parts,
            **known,
            "steps": trainer.state.global_step,
            "arguments": {key: getattr(trainer.args, key) for key in (*chosen, "max_length")},
        },
    )


def describe(defence: Any) -> list[dict[str, Any]]:
    """A defence as plain values: each part with its options."""
    parts = getattr(defence, "parts", [defence])
    described = []
    for part in parts:
        options: dict[str, Any] = {}
        for item in fields(part) if is_dataclass(part) else ():
            value = getattr(part, item.name, None)
            options[item.name] = (
                value if isinstance(value, bool | int | float | str | None) else str(getattr(value, "name", value))
            )
        described.append({"name": type(part).__name__, **options})
    return described


def substitutions_of(defence: Any) -> tuple[dict[str, str], ...]:
    """Name and fingerprint of every substitution set that a defence trains with."""
    found = []
    for part in getattr(defence, "parts", [defence]):
        used = getattr(part, "substitutions", None)
        if used is not None:
            found.append({"name": used.name, "fingerprint": used.fingerprint})
    return tuple(found)
