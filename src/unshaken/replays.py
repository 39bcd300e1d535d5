"""The same pass many times, as a CUDA graph: an inner search asks an encoder ten times per step for nothing but
gradients at the words.

Its kernels are so small that launching them takes several times as long as running them. Only passes that ask for no
weight's gradient and draw no dropout are held, one graph for each shape.
"""

from __future__ import annotations

import logging
import warnings
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from unshaken.word_gradients import are_all_wanted

LIMIT = 64  # graphs
OFTEN = 30  # passes of a shape before it is captured, which takes as long as some twenty of them
_log = logging.getLogger(__name__)


class Replays:
    """Runs layers on packed states, (rows, width, hidden) -> (rows, width, hidden), by graphs where it can.

    `replays` counts what was done by graphs.
    """

    def __init__(self, stack: nn.Module) -> None:
        self.stack = stack
        self.replays = 0
        self._seen: Counter[Any] = Counter()
        self._graphs: dict[Any, Any] = {}  # None: not to be captured
        self._pool: Any = None
        self._where: int | None = None
        self._waits: Callable[[], Any] = lambda: None  # the last pass, until its gradient was asked for

    def __call__(self, layers: Callable[..., Any], states: Tensor, mask: Tensor) -> Tensor | None:
        """What the layers make of the states; None where they have to be run."""
        if not self._can_hold(states):
            return None
        dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
        self._forget_if_moved()
        key = (states.shape, states.dtype, mask.dtype, dtype)
        self._seen[key] += 1
        if self._seen[key] < OFTEN or self._waits() is not None:
            return None
        if key not in self._graphs:
            self._graphs[key] = self._captured(layers, states, mask, dtype) if len(self._graphs) < LIMIT else None
        graph = self._graphs[key]
        if graph is None:
            return None
        found: Tensor = graph(states, mask)
        node = found.grad_fn
        assert node is not None
        # All graphs share their memory, so that one pass must be over before the next one begins.
        self._waits = weakref.ref(node)
        node.register_hook(self._is_over)
        self.replays += 1
        return found

    def _is_over(self, *_: Any) -> None:
        self._waits = lambda: None

    def _forget_if_moved(self) -> None:
        """Graphs read weights where they lay when they were captured; what is trained stays there."""
        where = hash(tuple(own.data_ptr() for own in (*self.stack.parameters(), *self.stack.buffers())))
        if where != self._where:
            self._where = where
            self._graphs.clear()
            self._seen.clear()
            self._pool = None  # torch takes no pool again whose graphs are all gone

    def _can_hold(self, states: Tensor) -> bool:
        """Whether a pass is one of an inner search, on one GPU."""
        is_shared = torch.distributed.is_available() and torch.distributed.is_initialized()
        searches = torch.is_grad_enabled() and states.requires_grad and not self.stack.training
        return self._is_on_gpu(states) and searches and not are_all_wanted() and not is_shared

    @staticmethod
    def _is_on_gpu(states: Tensor) -> bool:
        return states.is_cuda

    def _captured(
        self, layers: Callable[..., Any], states: Tensor, mask: Tensor, dtype: torch.dtype | None
    ) -> Callable[..., Tensor] | None:
        def run(states: Tensor, mask: Tensor) -> Tensor:
            # A graph must not read a cast of a weight that was made outside of it, nor leave one of its own to others.
            torch.clear_autocast_cache()
            with torch.autocast("cuda", dtype=dtype, enabled=dtype is not None):
                output: Tensor = layers(states, attention_mask=mask).last_hidden_state
            torch.clear_autocast_cache()
            return output

        samples = (states.detach().clone().requires_grad_(), mask.clone())
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        try:
            # Backward runs outside of autocast, which the pass enters itself.
            with warnings.catch_warnings(), torch.autocast("cuda", enabled=False):
                # torch's own warm-up runs on another stream, and says so
                warnings.filterwarnings("ignore", message="The AccumulateGrad node's stream")
                made: Any = torch.cuda.make_graphed_callables(run, samples, pool=self._pool)
        except Exception as error:  # what cannot be captured can still be run
            _log.warning("no CUDA graph for the inner search, which runs as always: %s", error)
            return None
        held: Callable[..., Tensor] = made
        return held
