"""Nested state (an optimizer's, a generator's) as one safetensors file: nothing in it can run when it is read.

Tensors are stored as tensors; what holds them together is JSON in the file's header.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from unshaken.errors import UnshakenError

_KEY = "tree"  # one entry only: safetensors writes several in no fixed order


def save_state(tree: Any, path: Path | str) -> None:
    """Write nested dicts, lists and tuples of tensors, arrays and plain values."""
    tensors: dict[str, Tensor] = {}
    skeleton = _take_apart(tree, tensors)
    save_file(tensors, str(path), metadata={_KEY: json.dumps(skeleton)})


def load_state(path: Path | str) -> Any:
    """Read what `save_state` wrote; tensors are on the CPU."""
    with _named(path), safe_open(str(path), framework="pt") as file:
        skeleton = json.loads((file.metadata() or {})[_KEY])
        return _put_together(skeleton, file.get_tensor)


def load_tensors(path: Path | str) -> dict[str, Tensor]:
    """Read a plain safetensors file, such as a model's; tensors are on the CPU."""
    with _named(path):
        tensors: dict[str, Tensor] = load_file(str(path))
        return tensors


@contextlib.contextmanager
def _named(path: Path | str) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise UnshakenError(f"{path}: not a state file ({error})") from error


def _take_apart(tree: Any, tensors: dict[str, Tensor]) -> Any:
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    if isinstance(tree, Tensor | np.ndarray):
        name = str(len(tensors))
        tensor = tree.detach() if isinstance(tree, Tensor) else torch.from_numpy(np.array(tree))
        tensors[name] = tensor.contiguous()
        return {"tensor" if isinstance(tree, Tensor) else "array": name}
    if isinstance(tree, dict):
        # JSON knows text keys only, and optimizers number their parameters.
        return {"dict": [[_take_apart(key, tensors), _take_apart(value, tensors)] for key, value in tree.items()]}
    if isinstance(tree, list | tuple):
        items = [_take_apart(item, tensors) for item in tree]
        return items if isinstance(tree, list) else {"tuple": items}
    raise UnshakenError(f"a checkpoint holds tensors and plain values, and cannot hold {type(tree).__name__}")


def _put_together(skeleton: Any, tensor: Callable[[str], Tensor]) -> Any:
    if isinstance(skeleton, list):
        return [_put_together(item, tensor) for item in skeleton]
    if not isinstance(skeleton, dict):
        return skeleton
    ((kind, content),) = skeleton.items()
    if kind == "tensor":
        return tensor(content)
    if kind == "array":
        return tensor(content).numpy()
    if kind == "tuple":
        return tuple(_put_together(item, tensor) for item in content)
    return {_put_together(key, tensor): _put_together(value, tensor) for key, value in content}
