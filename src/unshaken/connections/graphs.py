"""A model's passes as CUDA graphs: a solve is many small kernels, and launching them takes longer than running them.

A graph is kept for each shape of the inputs, one for inference and one for training. Whatever a graph cannot hold runs
as it always did: the CPU, hooks, gradients at the inputs, several processes, a solve that diverges.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from unshaken.connections.layer import ConnectedLayer, SolveRecord
from unshaken.solvers.base import looking_later
from unshaken.standing_in import standing_in
from unshaken.word_gradients import are_wanted

_log = logging.getLogger(__name__)
_CUDA = "cuda"
_BY_TOKEN = ("input_ids", "attention_mask", "token_type_ids")
Inputs = dict[str, Tensor]


@contextlib.contextmanager
def captured(model: Any, *, limit: int = 32, bucket: int = 16) -> Iterator[Captured]:
    """While open, `model(...)` replays CUDA graphs where it can: plain and connected models alike.

    A shape of inputs is captured when it comes the second time. Weights may be trained but not replaced meanwhile.

    Args:
        model: Any Hugging Face model on a GPU; on a CPU nothing changes.
        limit: Graphs at most; further shapes run eagerly.
        bucket: Texts are padded to a multiple of this many tokens, so that few shapes serve all.

    Example:
        >>> with captured(model):
        ...     logits = model(**batch).logits
    """
    with Captured(model, limit=limit, bucket=bucket).standing_in() as runner:
        yield runner


class Captured:
    """Stands in for a model's forward. `replays` and `eager` count what was done."""

    def __init__(self, model: Any, *, limit: int = 32, bucket: int = 16) -> None:
        self.model, self.limit, self.bucket = model, limit, bucket
        self.forward: Callable[..., Any] = model.forward
        self.replays = self.eager = 0
        self._graphs: dict[Any, _Inference | _Training | None] = {}  # None: seen once, or not to be captured
        self._refused: set[Any] = set()
        self._pools: dict[bool, Any] = {}  # whether it trains -> the memory that all graphs of the kind share
        self._awaited = Awaited(model)

    @contextlib.contextmanager
    def standing_in(self) -> Iterator[Captured]:
        """Open for a while, and again later: the graphs are kept."""
        self.forward = self.model.forward
        functools.update_wrapper(self, self.forward)
        with standing_in(self.model, self):
            yield self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not args and self.can_capture(kwargs):
            inputs = self._padded({name: value for name, value in kwargs.items() if value is not None})
            graph = self._graph(inputs)
            output = None if graph is None else graph(inputs)
            if output is not None:
                self.replays += 1
                return output
        self.eager += 1
        return self.forward(*args, **kwargs)

    def can_capture(self, kwargs: dict[str, Any]) -> bool:
        """Whether a pass is all tensors on one GPU, and nothing looks into it."""
        tensors = [value for value in kwargs.values() if value is not None]
        on_gpu = all(isinstance(value, Tensor) and value.is_cuda and not value.requires_grad for value in tensors)
        return bool(tensors) and on_gpu and can_be_held(self.model)

    def _padded(self, inputs: Inputs) -> Inputs:
        """The inputs with their texts padded to a full bucket, which changes no prediction."""
        ids, mask = inputs.get("input_ids"), inputs.get("attention_mask")
        if ids is None or mask is None or ids.dim() != 2 or mask.shape != ids.shape:
            return inputs
        length = -(-ids.shape[1] // self.bucket) * self.bucket
        missing = min(length, getattr(self.model.config, "max_position_embeddings", length)) - ids.shape[1]
        if missing <= 0 or any(inputs[name].shape != ids.shape for name in _BY_TOKEN if name in inputs):
            return inputs
        fill = {"input_ids": self.model.config.pad_token_id or 0}
        return {
            name: nn.functional.pad(value, (0, missing), value=fill.get(name, 0)) if name in _BY_TOKEN else value
            for name, value in inputs.items()
        }

    def _graph(self, inputs: Inputs) -> _Inference | _Training | None:
        trains = torch.is_grad_enabled()
        shapes = tuple((name, value.shape, value.dtype) for name, value in inputs.items())
        weights = tuple((weight.data_ptr(), weight.requires_grad) for weight in self.model.parameters())
        precision = (autocast_dtype(_CUDA), torch.backends.cuda.matmul.fp32_precision)
        key = (shapes, trains, self.model.training, are_wanted(), precision, hash(weights))
        if key not in self._graphs:  # the first time it runs eagerly: odd last batches are not worth a graph
            self._graphs[key] = None
        elif self._graphs[key] is None and key not in self._refused:
            made, handled = sum(graph is not None for graph in self._graphs.values()), sys.exception()
            try:
                self._graphs[key] = self._new_graph(inputs, trains) if made < self.limit else None
            except Exception as error:  # what cannot be captured can still be run
                _log.warning("no CUDA graph for this pass, which runs eagerly: %s", first_cause(error, handled))
            if self._graphs[key] is None:
                self._refused.add(key)
        return self._graphs[key]

    def _new_graph(self, inputs: Inputs, trains: bool) -> _Inference | _Training:
        made = Pass(self.model, self.forward, tuple(inputs), autocast_dtype(_CUDA))
        if trains not in self._pools:
            self._pools[trains] = torch.cuda.graph_pool_handle()
        # One graph of a kind runs at a time, so they share their memory: inference copies what it returns, and training
        # waits for the backward pass of whichever came last.
        if trains:
            return _Training(made, inputs, self._pools[trains], self._awaited)
        return _Inference(made, inputs, self._pools[trains])


def first_cause(error: BaseException, handled: BaseException | None = None) -> BaseException:
    """What began it: the end of a capture that broke complains as well, and of nothing but that it broke.

    What was `handled` already, before the capture, has nothing to do with it.
    """
    while error.__context__ is not None and error.__context__ is not handled:
        error = error.__context__
    return error


def can_be_held(model: nn.Module) -> bool:
    """Whether a graph could hold a pass of this model now."""
    is_shared = torch.distributed.is_available() and torch.distributed.is_initialized()
    return not is_shared and not any(_is_watched(module) for module in model.modules())


def autocast_dtype(device: str) -> torch.dtype | None:
    """What autocast makes of float32 now; None if it is off."""
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


def _is_watched(module: nn.Module) -> bool:
    """Whether hooks want to see or change what passes through: a graph would not call them."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)


@contextlib.contextmanager
def _casts_of_its_own() -> Iterator[None]:
    """Whoever enters autocast inside finds no cast of a weight that was made outside, and leaves none."""
    torch.clear_autocast_cache()
    try:
        yield
    finally:
        torch.clear_autocast_cache()


class Pass(nn.Module):
    """One pass as a function of tensors, autocast to `dtype` included: (inputs) -> (whether a solve diverged, outputs).

    Autocast keeps casts of weights until it is left. A graph must not read one that was made before it, which is memory
    that is free by the next replay and holds the weights of before, nor leave one of its own to others.
    """

    def __init__(
        self, model: nn.Module, forward: Callable[..., Any], names: tuple[str, ...], dtype: torch.dtype | None
    ) -> None:
        super().__init__()
        self.model, self.run, self.names, self.dtype = model, forward, names, dtype
        self.training = model.training
        self.kind: type[Any] = dict
        self.outputs: tuple[str, ...] = ()
        self.records: list[tuple[ConnectedLayer, dict[str, SolveRecord]]] = []

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        device = tensors[0].device.type
        precision = torch.autocast(device, dtype=self.dtype, enabled=self.dtype is not None)
        with _casts_of_its_own(), looking_later() as flags, precision:
            output = self.run(**dict(zip(self.names, tensors, strict=True)))
        layers = [layer for layer in self.model.modules() if isinstance(layer, ConnectedLayer)]
        self.records = [(layer, layer.solve_records) for layer in layers]
        self.kind, self.outputs = type(output), tuple(output.keys())
        diverged = torch.cat(flags).any() if flags else tensors[0].new_zeros((), dtype=torch.bool)
        return diverged, *output.values()

    def packed(self, tensors: tuple[Tensor, ...]) -> Any:
        for layer, records in self.records:  # their tensors are the graph's, which a replay has written anew
            layer.solve_records = records
        return self.kind(**dict(zip(self.outputs, tensors, strict=True)))


class _Inference:
    """A forward pass without gradients as one graph."""

    def __init__(self, made: Pass, inputs: Inputs, pool: Any) -> None:
        self.made = made
        self.inputs = tuple(value.clone() for value in inputs.values())
        with torch.inference_mode(False), torch.no_grad():
            self._capture(pool)

    def _capture(self, pool: Any) -> None:
        current = torch.cuda.current_stream()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(current)
        with torch.cuda.stream(side):  # what is made on first use must not be made inside a graph
            for _ in range(2):
                self.made(*self.inputs)
        current.wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            self.results = self.made(*self.inputs)

    def __call__(self, inputs: Inputs) -> Any:
        with torch.inference_mode(False), torch.no_grad():
            for kept, given in zip(self.inputs, inputs.values(), strict=True):
                kept.copy_(given)
            self.graph.replay()
            outputs = tuple(output.clone() for output in self.results[1:])
        return None if bool(self.results[0]) else self.made.packed(outputs)


class _Training:
    """A forward pass and its backward pass as two graphs, joined by autograd."""

    def __init__(self, made: Pass, inputs: Inputs, pool: Any, awaited: Awaited) -> None:
        self.made, self.awaited = made, awaited
        trained = {name: weight for name, weight in made.named_parameters() if weight.requires_grad}
        self.weights = tuple(trained.values())

        def run(*tensors: Tensor) -> tuple[Tensor, ...]:
            weights = dict(zip(trained, tensors[len(inputs) :], strict=True))
            outputs: tuple[Tensor, ...] = torch.func.functional_call(made, weights, tensors[: len(inputs)])
            return outputs

        # The graph is made with leaves of its own in the weights' memory. Whoever still holds an earlier pass, such as
        # a loop that has not yet overwritten its `outputs`, holds leaves that belong to the stream of that pass, and a
        # capture may not touch another stream.
        leaves = tuple(weight.detach().requires_grad_() for weight in self.weights)
        samples = (*(value.clone() for value in inputs.values()), *leaves)
        # Backward runs outside of autocast, as it does in a training loop; the pass itself enters it.
        with warnings.catch_warnings(), torch.autocast(_CUDA, enabled=False):
            # torch's own warm-up runs on another stream, and says so
            warnings.filterwarnings("ignore", message="The AccumulateGrad node's stream")
            self.run: Any = torch.cuda.make_graphed_callables(run, samples, allow_unused_input=True, pool=pool)

    def __call__(self, inputs: Inputs) -> Any:
        if self.awaited:
            return None  # a pass still waits for its backward pass, which needs the memory that graphs share
        diverged, *outputs = self.run(*inputs.values(), *self.weights)
        if bool(diverged):
            return None
        self.awaited.watch(next(output.grad_fn for output in outputs if output.grad_fn is not None))
        return self.made.packed(tuple(outputs))


class Awaited:
    """Whether a pass still waits for its backward pass; true from `watch` until that has run, or never can.

    A graph's gradients lie in memory that its next replay writes to, and autograd hands them out as they are. Whoever
    still holds them in `.grad` then, to add to them, gets a copy first.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.node: Callable[[], Any] = lambda: None
        self.is_due = False
        self.owned: set[int] = set()

    def __bool__(self) -> bool:
        return self.is_due and self.node() is not None

    def watch(self, node: Any) -> None:
        self.node, self.is_due = weakref.ref(node), True
        node.register_prehook(self._begins)
        node.register_hook(self._ends)

    def _begins(self, _: Any) -> None:
        for weight in self.model.parameters():
            if weight.grad is not None and weight.grad.data_ptr() in self.owned:
                weight.grad = weight.grad.clone()

    def _ends(self, gradients: tuple[Tensor | None, ...], _: Any) -> None:
        self.is_due = False
        self.owned |= {gradient.data_ptr() for gradient in gradients if gradient is not None}
