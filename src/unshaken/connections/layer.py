"""The one forward: what a connected layer does in place of `layer(h)`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from inspect import signature
from typing import Any

import torch
from accelerate.utils import recursively_apply
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from unshaken.connections.capture import one_capture
from unshaken.connections.connection import Connection
from unshaken.connections.dropout import SharedDropout
from unshaken.connections.gradients import solve_for_words
from unshaken.connections.sublayers import SUBLAYERS, Parts
from unshaken.errors import IncompatibleModelError
from unshaken.recording import is_recorded
from unshaken.solvers import Solution
from unshaken.solvers.base import computed_in
from unshaken.word_gradients import are_wanted

WHOLE = ""  # the part of a layer that is all of it


@dataclass(frozen=True)
class SolveRecord:
    """How the last solve of a layer or sub-layer went."""

    residual: Tensor  # (batch,) of the best iterate that was evaluated, as in `Solution`
    diverged: Tensor  # (batch,)
    evaluations: int  # of the layer, all counted
    vjps: int

    @property
    def worst_residual(self) -> float:
        return float(self.residual.max())


@dataclass
class LayerEquation:
    """The equation of one layer on one batch (a `Problem` of the gradient modes)."""

    call: Callable[[Tensor], Any]  # the original layer on a hidden state: its whole output
    h: Tensor  # (batch, seq, hidden) float32 or float64
    dtype: torch.dtype  # what the layer takes
    precision: torch.dtype | None  # what autocast makes the layer compute in; None if it is off
    connection: Connection
    form: str  # "layer" or "increment"
    step: Tensor | float
    mask: Tensor | None  # (batch, seq)
    dropout: SharedDropout
    part: str = WHOLE
    extras: tuple[Any, ...] | None = None  # what the layer returned behind its hidden state; None: nothing
    evaluations: int = 0
    base: Tensor = field(init=False)  # what g adds to its share of layer(z), made once and with its gradient
    _layer_of_h: Tensor | None = None

    def __post_init__(self) -> None:
        theta, self.base = self.connection.theta, self.h
        if 0 < theta < 1:
            self.base = self.h + self.step * (1 - theta) * self.increment(self.h, self.layer_of_h())
        if theta > 0 and self.form == "increment":
            self.base = self.base / (1 + self.step * theta)

    def layer(self, x: Tensor, *, inner: bool = False) -> Tensor:
        with self.dropout.replayed(inner=inner), self._autocast():
            output = self.call(x.to(self.dtype))
        self.evaluations += 1
        if isinstance(output, tuple):
            if not inner or self.extras is None:  # those of a pass with gradients, where there is one
                self.extras = output[1:]
            output = output[0]
        result: Tensor = output.to(self.h.dtype)
        return result

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.precision is None:
            return contextlib.nullcontext()
        return torch.autocast(self.h.device.type, dtype=self.precision)

    def layer_of_h(self) -> Tensor:
        """layer(h), once: the explicit part of every form shares it."""
        if self._layer_of_h is None:
            self._layer_of_h = self.layer(self.h)
        return self._layer_of_h

    def increment(self, x: Tensor, layer_of_x: Tensor) -> Tensor:
        """f(x)."""
        return layer_of_x if self.form == "layer" else layer_of_x - x

    @contextlib.contextmanager
    def solving(self) -> Iterator[None]:
        cast = None if self.dtype == torch.float64 else self.precision  # autocast leaves float64 alone
        with self.dropout.solving(), computed_in(cast or self.dtype):
            yield

    def first_guess(self) -> Tensor:
        return self.h

    def explicit(self) -> Tensor:
        layer_of_h = self.layer_of_h()
        if self.form == "increment" and isinstance(self.step, float) and self.step == 1:
            return layer_of_h  # h + (layer(h) - h), without the rounding: the stock model bit for bit
        return self.h + self.step * self.increment(self.h, layer_of_h)

    def g(self, z: Tensor, *, inner: bool = False, base: Tensor | None = None) -> Tensor:
        """The right-hand side. The increment form is solved for the z it holds on both sides, which has the same
        solution and contracts where layer's own Jacobian is below (1 + step * theta) / (step * theta)."""
        share = self.step * self.connection.theta
        if self.form == "increment":
            share = share / (1 + share)
        base, layer_of_z = self.base if base is None else base, self.layer(z, inner=inner)
        if isinstance(share, float):
            return torch.add(base, layer_of_z, alpha=share)
        return base + share * layer_of_z

    def runge_kutta(self) -> Tensor:
        h, step = self.h, self.step

        def f(x: Tensor) -> Tensor:
            return self.increment(x, self.layer(x))

        k1 = self.increment(h, self.layer_of_h())
        if self.connection.order == 2:
            return h + step / 2 * (k1 + f(h + step * k1))
        k2 = f(h + step / 2 * k1)
        k3 = f(h + step / 2 * k2)
        k4 = f(h + step * k3)
        return h + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


class ConnectedLayer(nn.Module):
    """Mixed in front of a transformer layer's class by `connect`; `super().forward` is the layer's own."""

    connection: Connection
    connection_form: str
    connection_mask_is_binary: bool
    connection_step: nn.Parameter | None
    connection_kind: str  # model type of the backbone
    solve_records: dict[str, SolveRecord]  # of the last pass, by part
    solves_for_words: bool
    decoded_tokens: Tensor | None  # (batch, seq) real tokens of a decoder that is given no mask of them

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # a solve has data-dependent length, and aot_autograd rejects double backward
    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        _refuse_cache_and_reentrant(self, args, kwargs)
        _refuse_recording(self.connection)
        connection, device = self.connection, hidden_states.device.type
        original = super().forward
        needs_grad = connection.is_implicit and connection.solver.needs_vjp
        with contextlib.ExitStack() as stack:
            stack.enter_context(one_capture())
            if needs_grad and torch.is_inference_mode_enabled():
                # Tensors made in inference mode cannot enter a graph; copies made outside of it can.
                stack.enter_context(torch.inference_mode(False))
                stack.enter_context(torch.no_grad())
                hidden_states, args, kwargs = recursively_apply(_without_inference, (hidden_states, args, kwargs))
            if connection.differentiates_twice and torch.is_grad_enabled():
                stack.enter_context(sdpa_kernel(SDPBackend.MATH))  # the only kernel with a second derivative
            # Layers run in the caller's precision, the solver's sums and small systems in that of its iterates.
            precision = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
            if precision is not None:
                stack.enter_context(torch.autocast(device, enabled=False))
            mask = None
            if connection.mask_padding:
                attention_mask = _argument(class_of(self), "attention_mask", args, kwargs)
                mask = token_mask(attention_mask, self.connection_mask_is_binary)
                if self.decoded_tokens is not None and self.decoded_tokens.shape == hidden_states.shape[:2]:
                    mask = self.decoded_tokens if mask is None else mask & self.decoded_tokens
            parts: Parts = {WHOLE: lambda x: original(x, *args, **kwargs)}
            if connection.where == "sublayers":
                parts = SUBLAYERS[self.connection_kind](self, *args, **kwargs)
            state = hidden_states if hidden_states.dtype == torch.float64 else hidden_states.float()
            extras: tuple[Any, ...] | None = None
            records = {}
            for part, call in parts.items():
                equation = LayerEquation(
                    call=call,
                    h=state,
                    dtype=hidden_states.dtype,
                    precision=precision,
                    connection=connection,
                    form=self.connection_form,
                    step=connection.step if self.connection_step is None else self.connection_step,
                    mask=mask,
                    dropout=SharedDropout(self, connection.inner_dropout_mode, hidden_states.device),
                    part=part,
                )
                state, solution = self._connect(equation)
                extras = equation.extras if extras is None else extras
                if solution is not None:
                    records[part] = SolveRecord(
                        solution.residual.detach(), solution.diverged.detach(), equation.evaluations, solution.vjps
                    )
        self.solve_records = records
        output = state.to(hidden_states.dtype)
        return output if extras is None else (output, *extras)

    def _connect(self, equation: LayerEquation) -> tuple[Tensor, Solution | None]:
        if self.connection.order > 1:
            return equation.runge_kutta(), None
        if not self.connection.is_implicit:
            return equation.explicit(), None
        mode, solver = self.connection.gradient_mode, self.connection.solver
        if torch._C._current_graph_task_id() == -1:  # not where a checkpoint runs a pass again, in backward
            self.solves_for_words = are_wanted()
        if self.solves_for_words and torch.is_grad_enabled():
            return solve_for_words(mode, equation, solver)
        return mode.solve(equation, solver)


def _refuse_cache_and_reentrant(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if _argument(class_of(layer), "past_key_values", args, kwargs) is not None:
        reason, cure = (
            "the cache holds keys of a first guess, not of the solution",
            "call the model with use_cache=False",
        )
        raise IncompatibleModelError("a connected layer cannot use a key-value cache", [(reason, cure)])
    options = getattr(getattr(layer, "_gradient_checkpointing_func", None), "keywords", {})
    if layer.training and getattr(layer, "gradient_checkpointing", False) and options.get("use_reentrant", False):
        reason = "reentrant checkpoints cannot differentiate inside a forward pass"
        cure = "gradient_checkpointing_kwargs={'use_reentrant': False}"
        raise IncompatibleModelError(
            "a connected layer cannot be checkpointed with use_reentrant=True", [(reason, cure)]
        )


def _refuse_recording(connection: Connection) -> None:
    if connection.is_implicit and is_recorded():
        reason = "how a solve goes depends on the texts, and a recorded program knows the course of one batch"
        cure = "run the model itself, or train it with an explicit connection (theta=0)"
        raise IncompatibleModelError("a layer that is connected implicitly cannot be exported", [(reason, cure)])


def part_label(layer: str, part: str) -> str:
    return f"{layer} {part}".rstrip()


def class_of(value: Any) -> Any:
    """type(value), for functions that keep what they made of a class (mypy does not see that classes are hashable)."""
    return type(value)


@cache
def _position(layer_class: Any, name: str) -> int | None:
    """Where the layer's own forward takes `name` among its positional arguments, behind the hidden state."""
    for base in layer_class.__mro__:
        if "forward" in vars(base) and base is not ConnectedLayer:
            names = list(signature(base.forward).parameters)[2:]
            return names.index(name) if name in names else None
    return None


def _argument(layer_class: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if name in kwargs:
        return kwargs[name]
    position = _position(layer_class, name)
    return args[position] if position is not None and position < len(args) else None


def token_mask(attention_mask: Any, binary: bool = False) -> Tensor | None:
    """(batch, seq) mask of real tokens from whatever mask a layer is given; None if every token is real."""
    if not isinstance(attention_mask, Tensor):
        return None
    mask: Tensor = attention_mask
    if mask.dim() == 4:  # (batch or 1, heads or 1, queries or 1, keys)
        mask = mask[:, 0]
        # A token is real where it may look at itself: right for causal and for windowed masks too.
        mask = mask[:, 0] if mask.shape[1] == 1 else mask.diagonal(dim1=1, dim2=2)
    if mask.is_floating_point() and not binary:
        mask = mask > torch.finfo(mask.dtype).min / 2
    return mask.bool()


def see_decoded_tokens(decoder: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Before a decoder runs: tell its connected layers which of its tokens are real.

    A classifier on an encoder-decoder shifts its input one place to the right and gives the decoder no mask. The start
    token is real whatever its id; padding is not, nor is the end token, which only stands there if padding follows.
    """
    ids, mask = kwargs.get("input_ids", args[0] if args else None), None
    if isinstance(ids, Tensor) and kwargs.get("attention_mask") is None:
        mask = ids != decoder.config.pad_token_id
        if decoder.config.eos_token_id is not None:
            mask &= ids != decoder.config.eos_token_id
        mask[:, 0] = True
    for layer in decoder.modules():
        if isinstance(layer, ConnectedLayer):
            layer.decoded_tokens = mask


def _without_inference(tensor: Tensor) -> Tensor:
    return tensor.clone() if tensor.is_inference() else tensor
