"""unshaken: fine-tune text classifiers that hold better under attack, and measure how much.

The public names, loaded when they are first used so that importing the package is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from unshaken._registration import register_when_transformers_is_imported

if TYPE_CHECKING:
    from unshaken.attacks.one_text import attack
    from unshaken.connections import Connection, check, connect, connection_of, disconnect
    from unshaken.errors import IncompatibleModelError, UnshakenError
    from unshaken.evaluation import Report
    from unshaken.evaluation.evaluate import evaluate
    from unshaken.examples import Example, Examples
    from unshaken.scanning import scan
    from unshaken.smoothing import Smoothing, smooth, unsmooth
    from unshaken.tasks import load_task
    from unshaken.training import RobustTrainer, RobustTrainingArguments
    from unshaken.training.hardening import harden
    from unshaken.victims import Victim

__version__ = "0.1.0"

_HOMES = {
    "Connection": "unshaken.connections",
    "Example": "unshaken.examples",
    "Examples": "unshaken.examples",
    "IncompatibleModelError": "unshaken.errors",
    "Report": "unshaken.evaluation",
    "RobustTrainer": "unshaken.training",
    "RobustTrainingArguments": "unshaken.training",
    "Smoothing": "unshaken.smoothing",
    "UnshakenError": "unshaken.errors",
    "Victim": "unshaken.victims",
    "attack": "unshaken.attacks.one_text",
    "check": "unshaken.connections",
    "connect": "unshaken.connections",
    "connection_of": "unshaken.connections",
    "disconnect": "unshaken.connections",
    "evaluate": "unshaken.evaluation",
    "harden": "unshaken.training.hardening",
    "load_task": "unshaken.tasks",
    "scan": "unshaken.scanning",
    "smooth": "unshaken.smoothing",
    "unsmooth": "unshaken.smoothing",
}

__all__ = [
    "Connection",
    "Example",
    "Examples",
    "IncompatibleModelError",
    "Report",
    "RobustTrainer",
    "RobustTrainingArguments",
    "Smoothing",
    "UnshakenError",
    "Victim",
    "__version__",
    "attack",
    "check",
    "connect",
    "connection_of",
    "disconnect",
    "evaluate",
    "harden",
    "load_task",
    "scan",
    "smooth",
    "unsmooth",
]


_PACKAGES = (
    "attacks",
    "certificates",
    "connections",
    "defences",
    "detection",
    "evaluation",
    "reports",
    "scanning",
    "smoothing",
    "solvers",
    "substitutions",
    "tasks",
    "training",
)


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"unshaken.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'unshaken' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


register_when_transformers_is_imported()
