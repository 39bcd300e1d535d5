"""Equal bytes from equal runs."""

from __future__ import annotations

import os


def make_deterministic() -> None:
    """Let this process compute the same bytes every time: call it first, before a GPU is used.

    What stays outside: another machine, another version of torch or of a driver, another number of threads or of
    processes, or another batch size add in another order, and round differently. An operation without a deterministic
    form raises an error that names it.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS starts
    import torch

    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    # Uninitialised memory is filled otherwise, in case somebody reads it: it costs time, and nobody does.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
