"""One look a forward pass at whether solves diverged: each look makes the host wait for a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from unshaken.connections.dropout import random_state, set_random_state
from unshaken.solvers.base import is_looking_later, looking_later


def look_once(model: nn.Module, forward: Callable[[], Any]) -> Any:
    """What `forward` returns, with one look at the flags of all its solves.

    Where a solve diverged, which is rare, the pass is run again with the same dropout, and every layer looks for itself
    and guards its own. Among several processes each layer always does: a sharded model cannot be run again by one.
    """
    is_shared = torch.distributed.is_available() and torch.distributed.is_initialized()
    if is_shared or is_looking_later() or torch.compiler.is_compiling():
        return forward()
    device = next(model.parameters()).device
    start = random_state(device) if model.training else None
    with looking_later() as flags:
        output = forward()
    if not is_any(flags):
        return output
    del output
    if start is not None:
        set_random_state(start, device)
    return forward()


def is_any(flags: list[Tensor]) -> bool:
    return bool(flags) and bool(torch.cat([flag.to(flags[0].device) for flag in flags]).any())
