"""Whose code a model runs: what changes the rows of its layers must know all that might look at them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from types import FunctionType, MethodType
from typing import Any

from torch import nn
from torch.nn.modules.module import _has_any_global_hook

PLACE_BY_PLACE = (
    *(nn.Linear, nn.Dropout, nn.LayerNorm, nn.Embedding, nn.Identity, nn.Sequential),
    *(nn.GELU, nn.Tanh, nn.ReLU, nn.SiLU, nn.Sigmoid),
)  # of torch


def parts_of(model: nn.Module) -> list[nn.Module]:
    """All modules but those of the embeddings, which may be anybody's: they see padded batches."""
    embeddings = getattr(model.base_model, "embeddings", None)
    found: list[nn.Module] = []
    todo: list[nn.Module | None] = [model]  # `modules()` takes three times as long, and this is asked in every step
    while todo:
        part = todo.pop()
        if part is not None and part is not embeddings:
            found.append(part)
            todo += part._modules.values()
    return found


def is_by_known_hands(model: nn.Module) -> bool:
    """Whether layers, head and hooks are none that might know rows, or read padding."""
    family = _author(_class(model)).__module__.rpartition(".")[0]  # "transformers.models.bert"
    if not family.startswith("transformers.models.") or _is_watched_by_all():
        return False
    parts = parts_of(model)
    return all(_is_known_kind(kind, family) and _is_untouched(kind) for kind in set(map(_class, parts))) and all(
        _is_ours(vars(part).get("forward"))
        and all(_is_ours(own) for own in vars(part).values() if isinstance(own, FunctionType | MethodType))
        and (part is model or all(_is_ours(hook) for hooks in _hooks(part) for hook in hooks.values()))
        for part in parts
    )


def _hooks(part: nn.Module) -> tuple[Any, Any, Any, Any]:
    return part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks


def intrusions(parts: Sequence[nn.Module]) -> int:
    """Grows where somebody looks into a part, or takes its place."""
    count = int(_is_watched_by_all())
    for part in parts:  # asked in every pass
        own = part.__dict__
        count += len(own["_forward_hooks"]) + len(own["_forward_pre_hooks"]) + ("forward" in own)
        count += len(own["_backward_hooks"]) + len(own["_backward_pre_hooks"])
    return count


def _is_watched_by_all() -> bool:
    """Whether there are hooks for all modules of the process."""
    return bool(_has_any_global_hook())  # type: ignore[no-untyped-call]


@cache
def _is_known_kind(kind: Any, family: str) -> bool:
    """Whether all that a class does is by known hands, and it looks at one place at a time, or belongs to the model."""
    if not all(_is_known(home.__module__) for home in _behind(kind)):
        return False
    author = _author(kind)
    if author is nn.Module:  # it has none of its own
        return kind in (nn.ModuleList, nn.ModuleDict)
    home: str = author.__module__
    return author in PLACE_BY_PLACE or home.startswith((family, "transformers.activations", "unshaken."))


def _is_untouched(kind: Any) -> bool:
    """Whether nobody wrote over a function of a class."""
    return all(_is_ours(own) for home in _behind(kind) for own in vars(home).values() if isinstance(own, FunctionType))


def _behind(kind: Any) -> Any:
    """A class and those that it is made of, up to that of all modules."""
    return kind.__mro__[: kind.__mro__.index(nn.Module)]


@cache
def _author(kind: Any) -> Any:
    """The class whose forward runs; FSDP and others make subclasses of their own."""
    return next(own for own in kind.__mro__ if "forward" in vars(own))


def _class(part: nn.Module) -> Any:
    return type(part)


def _is_ours(function: Any) -> bool:
    """Whether a function is by known hands, if it is one; what keeps none of its own is judged by its class."""
    function = getattr(function, "__func__", function)
    if isinstance(function, FunctionType):
        return _is_written_by_us(function)
    dressed = getattr(function, "__wrapped__", None)
    return function is None or (_is_known(type(function).__module__) and _is_ours(dressed))


@lru_cache(maxsize=4096)
def _is_written_by_us(function: FunctionType) -> bool:
    """And so must be what it is dressed around: torch and accelerate dress what anybody wrote."""
    return _is_known(str(function.__globals__.get("__name__"))) and _is_ours(getattr(function, "__wrapped__", None))


def _is_known(module: str) -> bool:
    return module.partition(".")[0] in ("torch", "transformers", "accelerate", "unshaken", "contextlib")
