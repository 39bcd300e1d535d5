"""What a run ran on: library versions and hardware, without anything that names a person or a machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from datetime import UTC, datetime
from typing import Any

LIBRARIES = ("unshaken", "torch", "transformers", "tokenizers", "numpy", "scipy", "scikit-learn", "nltk", "datasets")


def environment() -> dict[str, Any]:
    """Versions, processor and accelerator of this process, as written into every result."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "libraries": {name: found for name in LIBRARIES if (found := version(name)) is not None},
        "cpu_cores": os.cpu_count(),
        "accelerators": _accelerators(),
    }


def version(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _accelerators() -> list[str]:
    import torch

    if torch.cuda.is_available():
        return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return ["Apple GPU (MPS)"] if torch.backends.mps.is_available() else []
