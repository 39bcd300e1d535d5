"""One dropout mask for all evaluations of a solve, and the random stream it is drawn from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from unshaken.errors import UnshakenError

_CUDA = "cuda"


class SharedDropout:
    """Gives every evaluation of one solve the same dropout mask, so that g is one function and has a fixed point."""

    def __init__(self, layer: nn.Module, mode: str, device: torch.device) -> None:
        self.layer, self.mode, self.device = layer, mode, device
        self.is_drawn = False
        self.start: Tensor | None = None  # of the random stream, where the mask was drawn

    @contextlib.contextmanager
    def solving(self) -> Iterator[None]:
        """Open around a solver's evaluations, once for all of them: where dropout is off inside, it is off here."""
        if not self.layer.training or self.mode != "off":
            yield
            return
        modules = [module for module in self.layer.modules() if module.training]
        try:
            for module in modules:
                module.training = False
            yield
        finally:
            for module in modules:
                module.training = True

    @contextlib.contextmanager
    def replayed(self, *, inner: bool) -> Iterator[None]:
        if not self.layer.training or self.mode == "resample" or (self.mode == "off" and inner):
            yield
        elif not self.is_drawn:
            self.is_drawn = True
            if not _is_being_captured(self.device):  # a graph's stream of random numbers has no state to keep
                self.start = random_state(self.device)
            yield
        elif self.start is None:
            raise UnshakenError(
                "a CUDA graph cannot draw one dropout mask twice: use inner_dropout='off' or 'resample'"
            )
        else:
            now = random_state(self.device)
            set_random_state(self.start, self.device)
            try:
                yield
            finally:
                set_random_state(
                    now, self.device
                )  # also in backward, where a recomputation must not disturb the stream


def _is_being_captured(device: torch.device) -> bool:
    return device.type == _CUDA and torch.cuda.is_current_stream_capturing()


def random_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == _CUDA else torch.get_rng_state()


def set_random_state(state: Tensor, device: torch.device) -> None:
    if device.type == _CUDA:
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
