"""What a run ran on: library versions and hardware, without anything that names a person or a machine."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from unshaken.names import version

LIBRARIES = ("unshaken", "torch", "transformers", "tokenizers", "numpy", "scipy", "scikit-learn", "nltk", "datasets")


def environment() -> dict[str, Any]:
    """Versions, processor and accelerator of this process, as written into every result."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "libraries": {name: installed for name in LIBRARIES if (installed := version(name)) is not None},
        "cpu_cores": os.cpu_count(),
        "accelerators": _accelerators(),
        "code": code(Path(__file__).parents[1]),
    }


@cache
def code(package: Path) -> dict[str, str]:
    """Which unshaken gave a result: version, a digest of its source files, and the commit if it can be told.

    The commit comes from the variable UNSHAKEN_COMMIT, for copies without their history, or from the checkout that the
    package lies in, if nothing of the source was changed since.
    """
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    own = sys.modules[__name__.partition(".")[0]]  # imported by its name, it would stand above every layer
    told = {"version": str(own.__dict__["__version__"]), "digest": digest.hexdigest()[:16]}
    commit = os.environ.get("UNSHAKEN_COMMIT") or _commit(package)
    return told | ({"commit": commit} if commit else {})


def _commit(package: Path) -> str | None:
    """Of a checkout whose source is as committed; None for an installed package."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(package), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        inside = git("ls-files", "--error-unmatch", "__init__.py") and not git("status", "--porcelain", "--", ".")
        return git("rev-parse", "HEAD")[:12] if inside else None
    except (OSError, subprocess.SubprocessError):
        return None


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _accelerators() -> list[str]:
    import torch

    if torch.cuda.is_available():
        return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return ["Apple GPU (MPS)"] if torch.backends.mps.is_available() else []
