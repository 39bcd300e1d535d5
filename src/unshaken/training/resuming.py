"""Going on with a run that was killed: with the run that it was, and with the time that it has taken."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from unshaken.errors import UnshakenError
from unshaken.files import read_json, write_json
from unshaken.training.checkpoints import STATE, has_checkpoints, last_complete

PLAN_FILE = "plan.json"
ARGUMENTS = "arguments"
# What decides where and how a run is carried out, and nothing about what is learned.
FREE = {
    *("disable_tqdm", "report_to", "logging_steps", "use_cpu", "save_strategy", "save_steps", "save_total_limit"),
    *("dataloader_num_workers", "dataloader_pin_memory", "per_device_eval_batch_size", "on_nonfinite", "cuda_graphs"),
}


class Clock(TrainerCallback, ExportableState):
    """Seconds of training, those before a kill included: checkpoints hold them."""

    def __init__(self, checkpoint: Path | None) -> None:
        states = {} if checkpoint is None else read_json(checkpoint / STATE).get("stateful_callbacks", {})
        self._before = float(states.get(type(self).__name__, {}).get("attributes", {}).get("seconds", 0.0))
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        return self._before + time.perf_counter() - self._start

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"seconds": self.seconds}}


def chosen_before(folder: Path) -> dict[str, Any]:
    """The training arguments of the run that a folder of checkpoints holds; none if there is none."""
    path = folder / PLAN_FILE
    kept = read_json(path).get(ARGUMENTS) if path.is_file() and has_checkpoints(folder) else None
    return dict(kept) if isinstance(kept, dict) else {}


def begin(folder: Path, identity: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Write down which run a folder of checkpoints is of."""
    write_json(folder / PLAN_FILE, {**identity, ARGUMENTS: _deciding(arguments)})


def whole_checkpoint(
    folder: Path, identity: Mapping[str, Any], arguments: Mapping[str, Any]
) -> tuple[Path | None, list[str]]:
    """The checkpoint to go on from and what to say about it; an error where the folder is of another run."""
    path = folder / PLAN_FILE
    if not path.is_file():
        raise UnshakenError(f"{path} is gone: what its checkpoints were trained from is not known; name another --out")
    was, now = read_json(path), json.loads(json.dumps(dict(identity)))
    for key, value in now.items():
        _require_same(folder, key, was.get(key), value)
    given, kept = _deciding(arguments), was.get(ARGUMENTS)
    if isinstance(kept, dict):
        for key in sorted(kept.keys() | given.keys()):
            _require_same(folder, key, kept.get(key), given.get(key))
    last = last_complete(folder)
    notes = list(last.notes)
    if last.folder is None:
        notes.append(f"{folder} holds no checkpoint that can be used; training starts from the beginning")
    return last.folder, notes


def step_of(checkpoint: Path | None) -> int:
    return 0 if checkpoint is None else int(read_json(checkpoint / STATE)["global_step"])


def _deciding(arguments: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(dict(arguments), default=str))
    return {key: value for key, value in found.items() if key not in FREE}


def _require_same(folder: Path, key: str, was: Any, now: Any) -> None:
    if was != now:
        short = all(isinstance(value, str | int | float | None) for value in (was, now))
        how = f"is {was!r}, now {now!r}" if short else "was another one"
        raise UnshakenError(
            f"{folder} holds another run: its {key.replace('_', ' ')} {how}; "
            "resume it as it was started, or name another --out"
        )
