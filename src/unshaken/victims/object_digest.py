"""What an object holds, as bytes to tell it from another: a fingerprint of models that are no neural networks."""

from __future__ import annotations

import hashlib
from types import CodeType, ModuleType
from typing import Any

import numpy as np

ADDRESSES = {"_stop_words_id"}  # scikit-learn keeps places in memory there, which say nothing
LIBRARIES = {"copyreg", "numpy", "scipy", "sklearn"}  # whose functions are known by their names


def object_digest(value: Any) -> bytes:
    """SHA-256 over everything an object holds, by the protocol that copies objects. Nothing can be made from it.

    A function is its code with its constants, defaults and what it encloses; what its global names stand for is not
    looked up.
    """
    digest = hashlib.sha256()
    seen: dict[int, int] = {}
    kept: list[Any] = []  # so that no id is used twice

    def add(*parts: object) -> None:
        for part in parts:
            encoded = repr(part).encode("utf-8", "surrogatepass")
            digest.update(len(encoded).to_bytes(8, "big") + encoded)

    def walk(item: Any) -> None:
        if item is None or isinstance(item, bool | int | float | complex | str | bytes | np.generic):
            add(type(item).__name__, item)
            return
        if id(item) in seen:
            add("again", seen[id(item)])
            return
        seen[id(item)] = len(seen)
        kept.append(item)
        if isinstance(item, np.ndarray) and not item.dtype.hasobject:
            add(item.dtype.str, item.shape, hashlib.sha256(np.ascontiguousarray(item).tobytes()).digest())
        elif isinstance(item, type) or (callable(item) and hasattr(item, "__qualname__")):
            module, code = getattr(item, "__module__", None), getattr(item, "__code__", None)
            add(module, item.__qualname__, getattr(code, "co_code", None))
            if not isinstance(item, type) and str(module).partition(".")[0] not in LIBRARIES:
                walk(_held_by(item))
        elif isinstance(item, CodeType):
            add("code", item.co_code, item.co_names)
            walk(item.co_consts)
        elif isinstance(item, dict):
            add("dict", len(item))
            for pair in item.items():
                if pair[0] not in ADDRESSES:
                    walk(list(pair))
        elif isinstance(item, list | tuple):
            add(type(item).__name__, len(item))
            for part in item:
                walk(part)
        elif isinstance(item, set | frozenset):
            walk(sorted(item, key=repr))
        else:
            try:
                made = item.__reduce_ex__(4)
            except TypeError:  # a lock, a generator: nothing says what is in it
                made = type(item).__qualname__
            walk(
                made if isinstance(made, str) else [list(part) if hasattr(part, "__next__") else part for part in made]
            )

    walk(value)
    return digest.digest()


def _held_by(function: Any) -> list[Any]:
    """What a function or a method decides by, beside its name."""
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or () if _is_filled(cell)]
    names = ("__code__", "__defaults__", "__kwdefaults__", "__func__", "__self__")
    held = [getattr(function, name, None) for name in names]
    return [*(None if isinstance(one, ModuleType) else one for one in held), cells]


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
