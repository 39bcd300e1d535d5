"""Which process of how many this is, as `torchrun` and `accelerate launch` say it in the environment.

Examples are dealt out by a hash of their ids, and processes meet in files alone: no process group is needed, so one
that dies takes nobody with it, and what it had finished is found by whoever runs next.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass

from unshaken.errors import UnshakenError


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One of `count` shares of the examples. An id is in the same share on every machine and in any order.

    Example:
        >>> PWWS()(victim, examples, out="run.jsonl", shard=Shard(rank=3, count=8))
    """

    rank: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.count:
            raise UnshakenError(f"rank {self.rank} of {self.count} processes; ranks go from 0 to {self.count - 1}")

    @classmethod
    def from_environment(cls) -> Shard:
        """The share of this process: RANK of WORLD_SIZE, or all of it where no launcher has set them."""
        return cls(rank=_number("RANK", 0), count=_number("WORLD_SIZE", 1))

    @property
    def is_whole(self) -> bool:
        return self.count == 1

    @property
    def leads(self) -> bool:
        """Whether this process merges, prints and reports."""
        return self.rank == 0

    def owns(self, example_id: str) -> bool:
        return self.number(example_id, self.count) == self.rank

    @staticmethod
    def number(example_id: str, count: int) -> int:
        """Which of `count` shares an id is in."""
        digest = hashlib.sha256(example_id.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[8:16], "big") % count


WHOLE = Shard()  # one process has all the examples


def lost_process(error: RuntimeError) -> bool:
    """Whether an error means that another process of a process group has ended: torch has no type for it in gloo."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        return False
    said = str(error).lower()
    signs = ("connection closed", "connection reset", "connection refused", "broken pipe", "remote process exited")
    return isinstance(error, dist.DistError) or any(sign in said for sign in signs)


def was_restarted() -> bool:
    """Whether the launcher has started its processes anew after one of them failed."""
    return _number("TORCHELASTIC_RESTART_COUNT", 0) > 0


def own_device(wanted: str | None = None) -> str:
    """The device of this process: `wanted`, and of several GPUs the one of its rank where that does not say which."""
    import torch

    if wanted is not None:
        _check_device(wanted)
    if wanted not in (None, "cuda"):
        return str(wanted)
    if not torch.cuda.is_available():
        return "cpu"
    if "LOCAL_RANK" not in os.environ:
        return "cuda"
    return f"cuda:{_number('LOCAL_RANK', 0) % torch.cuda.device_count()}"


def _check_device(name: str) -> None:
    import torch

    try:
        device = torch.device(name)
    except RuntimeError:
        hint = "did you mean 'cuda'?" if name.lower().startswith("gpu") else "cpu, cuda, cuda:1 and mps are known"
        raise UnshakenError(f"unknown device {name!r}; {hint}") from None
    if device.type == "cuda" and (device.index or 0) >= (found := torch.cuda.device_count()):
        has = f"{found} GPU{'s' if found > 1 else ''}" if found else "no GPU"
        raise UnshakenError(f"device {name!r}: torch sees {has} here; leave it out, or give cpu")


def _number(key: str, default: int) -> int:
    text = os.environ.get(key, str(default))
    if not text.isdecimal():
        raise UnshakenError(f"the environment has {key}={text!r}; it must be a whole number")
    return int(text)
