"""Texts side by side: the layers of an encoder get a batch in fewer rows, and compute next to no padding.

A random batch of short texts is as wide as its longest: of the places in 64 rows of SST-2 seven in ten are padding.
Between its embeddings and its head an encoder whose layers know no positions may be given the tokens in any rows, if
each attends to those of its own text alone. Predictions and gradients are those of the padded batch to rounding.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions as BaseModelOutput

from unshaken.attention import TAKE_MADE_MASKS, added_to_scores
from unshaken.known_hands import intrusions, is_by_known_hands, parts_of
from unshaken.replays import Replays
from unshaken.standing_in import standing_in

WORTH = 0.85  # of the places, or more: moving tokens would cost what it saves
ALIGNED = 8  # GPUs add a mask as it is where its rows have a multiple of this many places
FEW_SHAPES = 4  # rows on a GPU come in multiples of this many, so that few graphs serve an inner search
REMEMBERED = 4  # batches whose arrangement is kept: a step asks for the clean texts, and for others, many times


def packed(model: Any) -> contextlib.AbstractContextManager[Packed]:
    """While open, the encoder of a classifier computes padded batches side by side; other models run as they always do.

    A mask that was met before is not looked at again, unless it was written to in a way that torch counts (not through
    `.data` or numpy). Attention adds 0 times what the other texts of a row are, so that a NaN in one reaches them.
    Hidden states are zeros at padding, where the model's own are something that nobody should read. For one thread.
    Whoever opens it anew for each step keeps one `Packed` and its graphs: `Packed(model).standing_in()`.

    Example:
        >>> with packed(model):
        ...     loss = model(**batch).loss
    """
    return Packed(model).standing_in()


def can_pack(model: Any) -> bool:
    """Whether layers know nothing of a token but what embeddings and mask say, and the head reads none of padding."""
    config, base = getattr(model, "config", None), getattr(model, "base_model", None)
    if not isinstance(model, nn.Module) or not isinstance(base, nn.Module):
        return False
    return (
        getattr(config, "model_type", None) in TAKE_MADE_MASKS
        and getattr(config, "_attn_implementation", None) in ("sdpa", "eager")
        and getattr(config, "position_embedding_type", "absolute") == "absolute"
        and not getattr(config, "is_decoder", False)
        and not getattr(config, "chunk_size_feed_forward", 0)  # a width may be no multiple of it
        and isinstance(_stack(base), nn.Module)
        and type(model).__name__.endswith("ForSequenceClassification")
        and is_by_known_hands(model)
    )


def _stack(base: nn.Module) -> Any:
    """What runs the layers, one after the other."""
    encoder = getattr(base, "encoder", None)
    return getattr(base, "transformer", None) if encoder is None else encoder


class Packed:
    """Stands in for two functions: the base model's, which sees the mask, and its layers', which get fewer rows."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.now: _Known | None = None  # of the pass that runs
        self.base: Any = None
        self.layers: Any = None
        self.replays: Replays | None = None
        self._known: list[_Known] = []
        self._intrusions: tuple[int, list[int]] = (0, [])

    @contextlib.contextmanager
    def standing_in(self) -> Iterator[Packed]:
        """Open for a while, and again later: graphs of an inner search are kept."""
        is_open = self.base is not None  # around a pass of an evaluation within a step, say
        if is_open or not can_pack(self.model):
            yield self
            return
        base, stack = self.model.base_model, _stack(self.model.base_model)
        if self.replays is None or self.replays.stack is not stack:
            self.replays = Replays(stack)
        self.base, self.layers = base.forward, stack.forward
        try:
            with standing_in(base, self.encode), standing_in(stack, self.compute):
                parts = parts_of(self.model)
                self._intrusions = intrusions(parts), list(map(id, parts))
                yield self
        finally:
            self.base = self.layers = None

    def encode(self, *args: Any, **kwargs: Any) -> Any:
        mask, config = kwargs.get("attention_mask"), self.model.config
        asks_attention = kwargs.get("output_attentions", getattr(config, "output_attentions", False))
        if not isinstance(mask, Tensor) or mask.dim() != 2 or asks_attention or torch.compiler.is_compiling():
            return self.base(*args, **kwargs)
        if self._texts(args, kwargs) != mask.shape or not self._is_undisturbed():
            return self.base(*args, **kwargs)
        known = self._look_up(mask)
        kwargs["attention_mask"] = known.made(self._dtype(mask), mask)
        before, self.now = self.now, known
        try:
            output = self.base(*args, **{**kwargs, "return_dict": True})
        finally:
            self.now = before
        if known.arrangement is not None and output.get("hidden_states") is not None:
            output["hidden_states"] = tuple(map(known.arrangement.padded, output["hidden_states"]))
        return output if kwargs.get("return_dict", getattr(config, "return_dict", True)) else output.to_tuple()

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        """The layers, on packed states if that is worth it."""
        if self.now is None or self.replays is None:
            return self.layers(*args, **kwargs)
        states, *others = args or (kwargs.pop("hidden_states"),)
        arrangement = self.now.arrangement
        if arrangement is not None:
            states = arrangement.packed(states)
        mask = kwargs.get("attention_mask", others[0] if others else None)
        known = None if mask is None else self.replays(self.layers, states, mask)
        output = self.layers(states, *others, **kwargs) if known is None else BaseModelOutput(last_hidden_state=known)
        if arrangement is not None:
            output["last_hidden_state"] = arrangement.padded(output["last_hidden_state"])
        return output

    @staticmethod
    def _texts(args: Any, kwargs: Any) -> torch.Size | None:
        """Rows and width of what the base model is given; None where it is nothing known."""
        given = (*args[:1], kwargs.get("input_ids"), kwargs.get("inputs_embeds"))
        return next((found.shape[:2] for found in given if isinstance(found, Tensor)), None)

    def _is_undisturbed(self) -> bool:
        """Whether nobody looks into the model who did not when this was opened, or he may."""
        parts = parts_of(self.model)
        found = intrusions(parts), list(map(id, parts))
        if found != self._intrusions and is_by_known_hands(self.model):
            self._intrusions = found
        return found == self._intrusions

    def _dtype(self, mask: Tensor) -> torch.dtype:
        """What the layers' scores are in."""
        kind = mask.device.type
        dtype: torch.dtype = next(_stack(self.model.base_model).parameters()).dtype
        is_cast = torch.is_autocast_enabled(kind) and dtype != torch.float64  # which autocast leaves alone
        return torch.get_autocast_dtype(kind) if is_cast else dtype

    def _look_up(self, mask: Tensor) -> _Known:
        version = None if mask.is_inference() or torch.is_inference_mode_enabled() else mask._version
        for known in self._known:
            if known.source() is mask and known.version == version:
                return known
        real = (mask.detach() != 0).cpu().numpy()  # the one wait of a batch for its GPU
        found = _Known(
            source=weakref.ref(mask),
            version=version,
            arrangement=Arrangement.of(real, mask.device),
            is_whole=bool(real.all()),
            has_empty=not real.any(1).all(),
        )
        if version is not None:  # else nobody could tell that it was written to, or train by what was made of it
            self._known = [found, *self._known[: REMEMBERED - 1]]
        return found


@dataclass
class _Known:
    """What was made of a mask: asked again, it costs nothing, and above all no wait for the GPU."""

    source: Callable[[], Tensor | None]
    version: int | None
    arrangement: Arrangement | None
    is_whole: bool
    has_empty: bool  # a text without a token, which transformers' own masks let attend to something
    masks: dict[torch.dtype, Tensor] = field(default_factory=dict)

    def made(self, dtype: torch.dtype, mask: Tensor) -> Tensor | None:
        """What the base model gets in the mask's place."""
        if self.arrangement is None and (self.is_whole or self.has_empty):
            return None if self.is_whole else mask
        if dtype not in self.masks:
            arrangement = self.arrangement
            self.masks[dtype] = added_to_scores(mask.bool(), dtype) if arrangement is None else arrangement.mask(dtype)
        return self.masks[dtype]


@dataclass(frozen=True)
class Arrangement:
    """Where the tokens of a padded batch stand in fewer rows.

    Attributes:
        batch: Rows and width of the padded batch.
        rows: Rows and width of the packed one.
        tokens: Places of the tokens in the padded batch, counted through. (tokens,)
        places: Their places in the packed one. (tokens,)
        owners: Which text stands at a place, 0 where none does. (rows, width)
    """

    batch: tuple[int, int]
    rows: tuple[int, int]
    tokens: Tensor
    places: Tensor
    owners: Tensor

    @classmethod
    def of(cls, real: Any, device: torch.device) -> Arrangement | None:
        """Of which places (batch, seq) hold tokens; None where texts fill their rows, or a head would read padding."""
        if not real.size or not real[:, 0].all():  # padded on the left, where heads read the first place
            return None
        lengths = real.sum(1)
        width = -(-int(lengths.max(initial=1)) // ALIGNED) * ALIGNED
        row, first, count = fitted(lengths, width)
        count = -(-count // FEW_SHAPES) * FEW_SHAPES if device.type == "cuda" else count
        if count * width > WORTH * real.size:
            return None
        texts, columns = np.nonzero(real)
        places = row[texts] * width + first[texts] + (np.cumsum(real, axis=1) - 1)[texts, columns]
        owners = np.zeros(count * width, np.int64)
        owners[places] = texts + 1
        tokens = texts * real.shape[1] + columns
        told = torch.from_numpy(np.concatenate([tokens, places, owners])).to(device)  # one transfer
        moved, stay, own = torch.split(told, [len(tokens), len(places), len(owners)])
        return cls(
            batch=(real.shape[0], real.shape[1]),
            rows=(count, width),
            tokens=moved,
            places=stay,
            owners=own.view(count, width),
        )

    def mask(self, dtype: torch.dtype) -> Tensor:
        """What is added to scores: nothing within a text, minus infinity across. (rows, 1, width, width)"""
        apart = self.owners[:, None, :, None] != self.owners[:, None, None, :]
        return torch.zeros(apart.shape, dtype=dtype, device=apart.device).masked_fill_(apart, -torch.inf)

    def packed(self, states: Tensor) -> Tensor:
        """(batch, seq, hidden) -> (rows, width, hidden)"""
        return _moved(states, self.tokens, self.places, self.rows)

    def padded(self, states: Tensor | None) -> Tensor | None:
        """(rows, width, hidden) -> (batch, seq, hidden), zeros at padding; the encoder's output is padded already."""
        if states is None or states.shape[:2] == self.batch:
            return states
        return _moved(states, self.places, self.tokens, self.batch)


def _moved(states: Tensor, start: Tensor, end: Tensor, shape: tuple[int, int]) -> Tensor:
    flat = states.flatten(0, 1)
    moved = flat.new_zeros(shape[0] * shape[1], flat.shape[1]).index_copy(0, end, flat.index_select(0, start))
    return moved.view(*shape, flat.shape[1])


def fitted(lengths: Any, width: int) -> tuple[Any, Any, int]:
    """The row of each text, where it begins there, and how many rows there are: the longest first, each into the row
    that it fills best."""
    row, first = np.zeros(len(lengths), np.int64), np.zeros(len(lengths), np.int64)
    rooms: list[list[int]] = [[] for _ in range(width + 1)]  # rows by the places that are left in them
    count = 0
    for text in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[text])
        left = next((left for left in range(length, width + 1) if rooms[left]), width)
        if not rooms[left]:
            rooms[width].append(count)
            count += 1
        row[text], first[text] = rooms[left].pop(), width - left
        rooms[left - length].append(int(row[text]))
    return row, first, count
