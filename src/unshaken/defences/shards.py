"""Weights that FSDP2 spreads over processes: a weight's shard here, and what all shards are together."""

from __future__ import annotations

from typing import Any

import torch.distributed
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor


def is_sharded(tensor: Any) -> bool:
    return isinstance(tensor, DTensor)


def whole(tensor: Tensor) -> Tensor:
    """The tensor itself, or what its shards are together; then all processes must ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def local(tensor: Tensor) -> Tensor:
    """The tensor itself, or this process's shard of it, with its gradient."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def like(tensor: Tensor, reference: Any) -> Tensor:
    """A whole tensor, sharded as `reference` is. Every process has the whole one, so nothing is sent."""
    if not isinstance(reference, DTensor):
        return tensor
    shards: Tensor = distribute_tensor(
        tensor.to(reference.device), reference.device_mesh, reference.placements, src_data_rank=None
    )
    return shards


def summed_over_processes(part: Tensor) -> Tensor:
    """The sum in value; in gradient this process's own part, which is all that its shards need."""
    total = part.detach().clone()
    torch.distributed.all_reduce(total)
    return part + (total - part.detach())
