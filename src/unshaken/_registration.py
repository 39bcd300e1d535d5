"""Registers connected model types with transformers as soon as both libraries are imported, in either order.

`import unshaken` must bring saved models back through the Auto classes, and `unshaken --help` must answer at once.
Importing the Auto classes takes seconds, so registration waits until somebody else imports them.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, cast

_CONFIGS = "transformers.models.auto.configuration_auto"
_MODELS = "transformers.models.auto.modeling_auto"


def register_when_transformers_is_imported() -> None:
    if _MODELS in sys.modules or _CONFIGS in sys.modules:
        _register()
    elif not any(isinstance(finder, _AutoFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AutoFinder())


def _register() -> None:
    from unshaken.connections.auto import register

    register()


class _AutoFinder:  # no subclass of importlib.abc's, whose import costs as much as all the rest here
    """Finds the Auto classes' modules the usual way and runs `_register` once one is loaded."""

    def __init__(self) -> None:
        self.looking = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in (_CONFIGS, _MODELS) or self.looking:
            return None
        self.looking = True  # the search below asks this finder again
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.looking = False
        if spec is not None and spec.loader is not None:
            spec.loader = cast("Any", _RegisteringLoader(spec.loader))
        return spec


class _RegisteringLoader:
    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self.loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        # The models' module imports the configs' first; half-way through, neither can be used. It comes here itself.
        if module.__name__ == _MODELS or _MODELS not in sys.modules:
            _register()
