"""Points of the hull inside a model, and the search for the worst of them.

A forward hook puts mixtures of candidate embeddings in the place of the model's own. It needs no copy of any model's
code, keeps positions, token types and padding as the model makes them, and works inside DDP's forward.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor, nn

from unshaken.errors import UnshakenError
from unshaken.standing_in import standing_in
from unshaken.substitutions.hull import SLOTS, Hull
from unshaken.word_gradients import refuse_blind_words, word_gradients

MixingSpace = Literal["embedding_output", "word"]


@dataclass
class Fixed:
    """What all passes of one search have in common: nothing changes there but the mixing weights."""

    text: Tensor | None = None  # what the text's own tokens are embedded as (batch, seq, hidden)
    candidates: Tensor | None = None  # (tokens, slots, hidden)


class HullMixer:
    """Feeds a model mixtures of candidate embeddings at the tokens of a hull.

    Args:
        model: Any Hugging Face encoder or classifier (not wrapped by DDP).
        space: "embedding_output" mixes what leaves the embedding block, each candidate embedded at its own position,
            after LayerNorm (official code of ASCC on BERT and of RIFT). "word" mixes word vectors before positions
            and LayerNorm (TextDefender's port).

    Example:
        >>> mixer = HullMixer(model)
        >>> with mixer.at(hull, hull.weights(logits)):
        ...     output = model(**inputs)
    """

    def __init__(self, model: nn.Module, space: MixingSpace = "embedding_output") -> None:
        if space not in ("embedding_output", "word"):
            raise UnshakenError(f"hull space {space!r}; it is 'embedding_output' or 'word'")
        self.table = _token_table(model)
        self.block = embedding_block(model, self.table) if space == "embedding_output" else None
        self._positions: Tensor | None = None

    @contextlib.contextmanager
    def at(self, hull: Hull, weights: Tensor, *, first_row: int = 0, fixed: Fixed | None = None) -> Iterator[None]:
        """While open, every forward sees the mixtures with these weights (words, slots).

        Args:
            weights: Mixing weights; gradients flow through them.
            first_row: Where the hull's rows begin in a batch that holds other rows before them.
            fixed: Where embeddings are kept, without gradient, from the first forward for the next ones. Where it is
                None they are computed with gradient each time, with a dropout mask a slot.
        """
        place = self.table if self.block is None else self.block

        def replace(module: nn.Module, args: Any, kwargs: Any, output: Tensor) -> Tensor:
            rows = hull.rows + first_row if first_row else hull.rows
            if fixed is None:
                candidates = self._embed(hull, rows, args, kwargs)
            else:
                if fixed.candidates is None:
                    with torch.no_grad():
                        fixed.candidates = _as_multiplied(self._embed(hull, rows, args, kwargs))
                candidates, output = fixed.candidates, output.detach()
                # Dropout draws it anew each time, and another's hook, which has run by now, would run on it again.
                fixed.text = None if module.training or len(module._forward_hooks) > 1 else output
            mixed = torch.bmm(hull.at_tokens(weights).to(candidates.dtype)[:, None], candidates).squeeze(1)
            return output.index_put((rows, hull.columns), mixed.to(output.dtype))

        with contextlib.ExitStack() as hooks:
            if fixed is not None and fixed.text is not None:
                hooks.enter_context(standing_in(place, lambda *_, text=fixed.text, **__: text))
            positions = getattr(self.block, "position_embeddings", None)
            if isinstance(positions, nn.Module):
                hooks.callback(positions.register_forward_pre_hook(self._see_positions).remove)
            hooks.callback(place.register_forward_hook(replace, with_kwargs=True).remove)
            yield

    def _see_positions(self, module: nn.Module, args: tuple[Tensor, ...]) -> None:
        self._positions = args[0]

    def _embed(self, hull: Hull, rows: Tensor, args: Any, kwargs: Any) -> Tensor:
        """Embeddings of all candidates at their tokens' places. (tokens, slots, hidden)"""
        # `.forward` and not a call, because the hook that asks is a hook of this very module.
        if self.block is None:
            return hull.vectors(self.table)
        slots = hull.candidates.shape[1]

        def spread(values: Tensor | None) -> Tensor | None:
            """What stands at each token, once a candidate. (batch or 1, seq) -> (1, tokens * slots)"""
            if values is None:
                return None
            return values[rows if len(values) > 1 else 0, hull.columns].repeat_interleave(slots)[None]

        names = _arguments(self.block)
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        places: dict[str, Tensor | None] = {"position_ids": spread(self._positions)}
        if "token_type_ids" in names:
            places["token_type_ids"] = spread(given.get("token_type_ids"))
        vectors = hull.vectors(self.table).flatten(0, 1)[None]
        embedded: Tensor = self.block.forward(input_ids=None, inputs_embeds=vectors, **places)
        return embedded.view(len(rows), slots, embedded.shape[-1])


@dataclass(frozen=True, kw_only=True)
class HullSearch:
    """Gradient ascent over mixing weights: the inner maximisation of ASCC and RIFT, and of their attack.

    Paper: Dong et al., Towards Robustness Against Natural Language Word Substitutions, ICLR 2021.

    Attributes:
        steps: Inner steps.
        learning_rate: Of the inner optimiser; the official 1 is for BERT, 10 for word-vector models.
        weight_decay: Coupled L2 on the mixing logits.
        sparsity: Weight of the entropy that is minimised, so that mixtures end near real words.
        entropy: "sum" over words and divided by 300 * 128 (RIFT's code), or "mean" over batch and sequence (ASCC's).
        init: "uniform" starts near the hull's centre (official), "clean" near the text itself.
        optimiser: "adam" (official), or "sign" for steps of equal size without state.
        space: Where embeddings are mixed, see `HullMixer`.

    Cost: `steps` forward passes and as many backward passes through activations only.
    """

    steps: int = 10  # official code
    learning_rate: float = 1.0  # official code, BERT
    weight_decay: float = 2e-5  # official code
    sparsity: float = 15.0  # official code; ASCC paper: 10
    entropy: Literal["sum", "mean"] = "sum"
    init: Literal["uniform", "clean"] = "uniform"
    optimiser: Literal["adam", "sign"] = "adam"
    space: MixingSpace = "embedding_output"

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise UnshakenError(f"the hull search has {self.steps} steps; it needs at least 1")
        for name, allowed in (
            ("entropy", ("sum", "mean")),
            ("init", ("uniform", "clean")),
            ("optimiser", ("adam", "sign")),
            ("space", ("embedding_output", "word")),
        ):
            if getattr(self, name) not in allowed:
                raise UnshakenError(f"{name} is {getattr(self, name)!r}; it is {' or '.join(map(repr, allowed))}")

    def first_guess(self, hull: Hull, max_length: int, salt: object) -> Tensor:
        """Mixing logits to start from. (words, slots)"""
        # official code: Kaiming-normal on (batch, max_length, 10, 1), whose fan-in is max_length * 10
        logits = hull.noise(salt) * math.sqrt(2 / (max_length * SLOTS))
        if self.init == "clean":
            logits[:, 0] += 3.0  # ours: about two thirds of the weight on the word itself where all slots are in use
        return logits

    def __call__(
        self,
        model: nn.Module,
        hull: Hull,
        start: Tensor,
        logits: Callable[[], Tensor],
        gain: Callable[[Tensor], Tensor],
        area: int,
        looks: bool = True,
    ) -> Tensor:
        """Climb from `start` and return the mixing logits found (words, slots).

        Args:
            model: The model whose embeddings are replaced; its mode (dropout) is the caller's choice.
            logits: Runs the model on the batch the hull was made for.
            gain: What to maximise, per example: (batch, classes) -> (batch,). It is summed, so that examples do not
                share their budget.
            area: Batch size times sequence length, for the "mean" entropy.
            looks: Refuse a gradient that does not reach the words, in the first step; a look makes a GPU wait.
        """
        point = start.detach().clone().requires_grad_()
        if len(hull) == 0:
            return point.detach()
        optimiser: torch.optim.Optimizer
        if self.optimiser == "adam":
            optimiser = torch.optim.Adam(
                [point],
                lr=self.learning_rate,
                weight_decay=self.weight_decay,
                fused=True,  # one kernel instead of ten a step
            )
        else:
            optimiser = torch.optim.SGD([point], lr=self.learning_rate, weight_decay=self.weight_decay)
        scale = self.sparsity / (300 * 128 if self.entropy == "sum" else area)  # official code: 300 * 128, hard-coded
        mixer = HullMixer(model, self.space)
        fixed = Fixed()
        for number in range(self.steps):
            looks_now = looks and number == 0
            with torch.enable_grad():
                weights = hull.weights(point)
                mixed = weights.view_as(weights)
                with mixer.at(hull, mixed, fixed=fixed), word_gradients(alone=True):
                    found = logits()
                gains = gain(found)
                gradient, *at_words_and_logits = torch.autograd.grad(
                    (gains, weights),  # what is descended is the entropy minus the gains
                    (point, mixed, found) if looks_now else (point,),  # the weights of the model get none
                    (torch.full_like(gains, -1.0), scale * entropy_slope(weights.detach())),
                )
            if looks_now:
                refuse_blind_words(*at_words_and_logits)
            point.grad = gradient if self.optimiser == "adam" else gradient.sign()
            optimiser.step()
        return point.detach()


def entropy_slope(weights: Tensor) -> Tensor:
    """The gradient of the summed entropy of mixing weights, but for a constant, which a softmax does not see."""
    return -weights.clamp_min(torch.finfo(weights.dtype).tiny).log()  # finite in unused slots


def _as_multiplied(values: Tensor) -> Tensor:
    """In the precision in which autocast multiplies: it would cast what is kept anew in every step."""
    device = values.device.type
    return values.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else values


def _arguments(module: nn.Module) -> tuple[str, ...]:
    """The names of what a module's forward takes, in order."""
    own = vars(module).get("forward")  # of a module that was changed
    return tuple(inspect.signature(own).parameters) if own else _arguments_of(type(module).forward)


@lru_cache(maxsize=64)  # a training step asks four times
def _arguments_of(forward: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(forward).parameters)[1:]


def _token_table(model: nn.Module) -> nn.Module:
    try:
        table = model.get_input_embeddings()  # type: ignore[operator]
    except (AttributeError, TypeError, NotImplementedError):
        table = None
    if not isinstance(table, nn.Module):
        raise UnshakenError(
            f"{type(model).__name__} gives no access to its token embeddings; the hull needs get_input_embeddings(), "
            "as every Hugging Face encoder has it"
        )
    return table


def embedding_block(model: nn.Module, table: nn.Module, instead: str = "word") -> nn.Module:
    """The module that adds positions to the token embeddings and normalises them."""
    for module in model.modules():
        if any(child is table for child in module.children()):
            has_norm = isinstance(getattr(module, "LayerNorm", None), nn.Module)
            if has_norm and {"input_ids", "position_ids"} <= set(_arguments(module)):
                return module
    raise UnshakenError(
        f"{type(model).__name__} has no embedding block of its own (token table, positions, LayerNorm), which "
        f"space='embedding_output' needs; use space={instead!r}"
    )
