"""Which of torch's attention kernels are used where batches have many shapes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

ANY_SHAPE = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


@contextlib.contextmanager
def attention_for_any_shape(device: torch.device) -> Iterator[None]:
    """While open, a GPU uses no kernel of cuDNN, which spends 100 ms on a plan for each new shape of a batch."""
    with sdpa_kernel(ANY_SHAPE) if device.type == "cuda" else contextlib.nullcontext():
        yield
