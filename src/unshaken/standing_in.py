"""A function in the place of a module's own forward, for a while."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

from torch import nn


@contextlib.contextmanager
def standing_in(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """While open, calls of the module run `forward`; its hooks run as always."""
    own = vars(module).get("forward")  # of a module that was changed, as mixed precision does
    module.forward = _StandIn(module, forward)
    try:
        yield
    finally:
        del module.forward
        if own is not None:
            module.forward = own


class _StandIn:
    """A forward that a copy of its module, made meanwhile, does not keep."""

    def __init__(self, module: nn.Module, forward: Callable[..., Any]) -> None:
        functools.update_wrapper(self, forward)
        self.module, self.forward = module, forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        copied = memo[id(self.module)]
        return MethodType(type(copied).forward, copied)
