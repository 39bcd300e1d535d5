"""What a trainer leaves beside the weights it saves: how the model came about, and which texts it has seen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from unshaken.attacks import Attack
from unshaken.connections import connection_of
from unshaken.connections.backbones import backbone_of, stacks_of
from unshaken.connections.cost import connection_cost
from unshaken.defences import Defence, Standard, training_cost
from unshaken.evaluation.training_record import SELECTED_BY, TrainingRecord
from unshaken.examples import Examples
from unshaken.readers import Readers
from unshaken.smoothing import Smoothing, smoothing_of
from unshaken.substitutions import Substitutions
from unshaken.substitutions.base import sources_of
from unshaken.tasks import save_trained_on


def leave_record(trainer: Any, folder: Path | str) -> None:
    """Write the record of a `RobustTrainer`, and hashes of its training texts, into a model's folder."""
    record_of(trainer).save(folder)
    if isinstance(trainer.train_dataset, Examples):
        save_trained_on(folder, trainer.train_dataset, getattr(trainer.model.config, "_name_or_path", None) or None)


def record_of(trainer: Any) -> TrainingRecord:
    """How a `RobustTrainer` has trained so far."""
    data, connection = trainer.train_dataset, connection_of(trainer.model)
    smoothing, reader = smoothing_of(trainer.model), trainer.reader
    parts = describe(trainer.defence)
    method = " + ".join(part["name"].lower() for part in parts)
    read_by = reader_names(reader)
    changes = (
        None if connection is None else f"connection {connection.layers}",
        None if smoothing is None else f"smoothed {smoothing['hops']}",
        None if read_by is None else f"reader {read_by}",
    )
    chosen = ("num_train_epochs", "learning_rate", "per_device_train_batch_size", "gradient_accumulation_steps")
    return TrainingRecord(
        method=" + ".join([method, *filter(None, changes)]),  # or another model would pass for a seed of this one
        seed=int(trainer.args.seed),
        base_model=Path(str(getattr(trainer.model.config, "_name_or_path", "") or "unknown")).name,
        task=data.name if isinstance(data, Examples) else "unknown",
        substitutions=once(
            [
                *described_sets(known_sets(trainer.defence)),
                *_smoothed_over(smoothing),
                *(dict(one) for one in (() if reader is None else reader.sets)),
                *earlier_sets(str(getattr(trainer.model.config, "_name_or_path", "") or ""), trainer.model),
            ]
        ),
        details={
            "connection": None if connection is None else connection.to_dict(),
            **({} if smoothing is None else {"smoothing": smoothing}),
            **({} if read_by is None else {"reader": read_by}),
            "defence": parts,
            **describe_cost(trainer.defence, trainer.model),
            **describe_selection(trainer.selection_attack),
            **(describe_data(data, "label") if isinstance(data, Examples) else {}),
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


def describe_cost(defence: Defence | None, model: Any) -> dict[str, float]:
    """Training passes relative to plain fine-tuning; nothing where a defence of one's own does not count its passes."""
    try:
        passes = training_cost(defence or Standard())
    except NotImplementedError:
        return {}
    connection = connection_of(model)
    if connection is not None:
        sizes = {name: len(layers) for name, layers in stacks_of(model).items()}
        passes *= connection_cost(connection, sizes, pre_norm=backbone_of(model).pre_norm)[0]
    return {"passes": round(passes, 2)}


def describe_selection(attack: Attack | None) -> dict[str, Any]:
    """The attack that chooses the checkpoint, and what it swaps; nothing where the loss chooses."""
    if attack is None:
        return {}
    return {SELECTED_BY: {"attack": attack.settings(), "substitutions": list(described_sets(known_sets(attack)))}}


def describe_data(train: Examples, label_column: str) -> dict[str, Any]:
    """What is kept of the training rows: enough to know them again and to read a file like theirs."""
    return {
        "training_examples": len(train),
        "training_data": train.fingerprint,
        "text_columns": list(train.columns),
        "label_column": label_column,
    }


def known_sets(defence: Any, smoothing: Smoothing | None = None) -> list[Substitutions]:
    """The substitution sets that training knows: of the defence, their sources, and of the smoothed vocabulary."""
    used = [getattr(part, "substitutions", None) for part in getattr(defence, "parts", [defence])]
    used += [] if smoothing is None else smoothing.sets
    sets = [one for one in used if one is not None and not isinstance(one, str)]
    return [*sets, *(source for one in sets for source in sources_of(one))]


def described_sets(sets: Iterable[Substitutions]) -> tuple[dict[str, str], ...]:
    """Name and fingerprint of each, once."""
    return once({"name": one.name, "fingerprint": one.fingerprint} for one in sets)


def _smoothed_over(smoothing: dict[str, Any] | None) -> list[dict[str, str]]:
    """The sets of a smoothed vocabulary, as its model tells them, and those that they join."""
    sets = [] if smoothing is None else smoothing["substitutions"]
    behind = [source for one in sets for source in one.get("sources", ())]
    return [{key: one[key] for key in ("name", "fingerprint")} for one in (*sets, *behind)]


def earlier_sets(name: str, model: Any) -> list[dict[str, str]]:
    """What a model knew before it was trained on: the sets of its record, and of its vocabulary."""
    record = TrainingRecord.load(name) if name else None  # a model made in memory has no name
    used = [] if record is None else record.used
    told = [{key: str(one.get(key)) for key in ("name", "fingerprint")} for one in used]
    return [*told, *_smoothed_over(smoothing_of(model))]


def reader_names(reader: Readers | None) -> str | None:
    return None if reader is None else reader.names


def once(sets: Iterable[dict[str, str]]) -> tuple[dict[str, str], ...]:
    """Each set once."""
    return tuple({one["fingerprint"]: one for one in sets}.values())
