"""Trainings that stand alone inside a launch of several processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

_LAUNCH = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Hide the launch from what runs inside, which then trains and attacks by itself, on this process's GPU."""
    hidden = {key: os.environ.pop(key) for key in _LAUNCH if key in os.environ}
    local = int(hidden.get("LOCAL_RANK", "0"))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if "LOCAL_RANK" in hidden:
        gpus = visible.split(",") if visible else []
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[local % len(gpus)] if gpus else str(local)
    try:
        yield
    finally:
        os.environ |= hidden
        if "LOCAL_RANK" in hidden and visible is None:
            os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        elif visible is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = visible
