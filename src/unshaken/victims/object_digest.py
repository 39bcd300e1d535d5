"""What an object holds, as bytes to tell it from another: a fingerprint of models that are no neural networks."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

ADDRESSES = {"_stop_words_id"}  # scikit-learn keeps places in memory there, which say nothing


def object_digest(value: Any) -> bytes:
    """SHA-256 over everything an object holds, by the protocol that copies objects. Nothing can be made from it."""
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
            add(item.__module__, item.__qualname__, getattr(getattr(item, "__code__", None), "co_code", None))
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
            made = item.__reduce_ex__(4)
            walk(
                made if isinstance(made, str) else [list(part) if hasattr(part, "__next__") else part for part in made]
            )

    walk(value)
    return digest.digest()
