"""The encoder of a stock BERT-like model without what Python costs, and its last layer for the first token alone.

On a GPU the launches of a pass take longer than its work unless batches are large, and most of that time is spent
between the launches: transformers looks up settings and signatures in every layer. The classifier reads the first token
only, so the last layer's queries and feed-forward block of the others are never needed: about 13% of a model of six
layers. Used for answering queries only, never where something looks inside the model.

On a CPU arithmetic is all that counts, and two more products go: queries of one text share most of their tokens, which
are the same before the first layer, and one token that looks at all needs no keys and values of theirs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

# Layers that are built alike. Others may be, too, but some (BigBird) attend otherwise once texts are long.
LAYERS = ("BertLayer", "RobertaLayer", "XLMRobertaLayer", "CamembertLayer", "ElectraLayer")

# Without MKL (ARM: OpenBLAS) a product of so many tokens is faster if the weights are turned first.
TURNED_TOKENS = None if torch.backends.mkl.is_available() else 1_024  # type: ignore[no-untyped-call]

Projection = Callable[[Any, Tensor], Tensor]  # a linear map and tokens -> what it makes of them


class BareEncoder:
    """Replaces the forward of a model's encoder, which has layers and nothing beside them, while it is open.

    With `first_token` the last layer is read at the first token only.
    """

    def __init__(self, encoder: nn.Module, first_token: bool = True) -> None:
        self.encoder, self.first_token = encoder, first_token
        self.on_cpu = next(encoder.parameters()).device.type == "cpu"  # where looking at what there is costs nothing

    @classmethod
    def of(cls, model: Any, sample: dict[str, Tensor], first_token: bool = True) -> BareEncoder | None:
        """For stock layers, and only where it is seen to leave the answers to `sample` as they are."""
        answer = "logits" if first_token else "last_hidden_state"
        encoder = getattr(model.base_model, "encoder", None)
        if encoder is None or not _is_stock(encoder, model):
            return None
        bare = cls(encoder, first_token)
        with torch.no_grad():
            expected = model(**sample)[answer]
            try:
                with bare.open():
                    found = model(**sample)[answer]
            except (AttributeError, IndexError, RuntimeError, TypeError):
                return None
        return bare if same_answers(expected, found) else None

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        self.encoder.forward = self._forward
        try:
            yield
        finally:
            del self.encoder.forward  # the class's own forward is back in force

    def _forward(self, hidden: Tensor, attention_mask: Tensor | None = None, *_: Any, **__: Any) -> Any:
        mask = attention_mask
        if mask is not None and mask.dtype == torch.bool:  # attention would make numbers of it in every layer
            if self.on_cpu and bool(mask.all()):
                mask = None
            else:
                mask = torch.zeros_like(mask, dtype=hidden.dtype).masked_fill_(~mask, -torch.inf)
        layers: Any = self.encoder.layer
        for number, layer in enumerate(layers[:-1] if self.first_token else layers):
            project = _project_once(hidden) if self.on_cpu and number == 0 else _project
            hidden = _rest(layer, hidden, _attend(layer.attention.self, hidden, hidden, mask, project))
        if not self.first_token:
            return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden)
        mask = None if mask is None else mask[:, :, :1]  # (batch, 1, 1, seq)
        look = layers[-1].attention.self
        folds = self.on_cpu and _is_plain(look.key) and _is_plain(look.value)
        first = hidden[:, :1]
        first = _rest(layers[-1], first, (_attend_folded if folds else _attend)(look, first, hidden, mask))
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=first)  # (batch, 1, hidden)


def _is_plain(linear: Any) -> bool:
    """Its weights are all there is to it."""
    return type(linear) is nn.Linear and linear.bias is not None and not linear._forward_hooks


def _project(linear: Any, x: Tensor) -> Tensor:
    many = TURNED_TOKENS is not None and x.shape[:-1].numel() >= TURNED_TOKENS
    if many and x.device.type == "cpu" and _is_plain(linear):
        return torch.addmm(linear.bias, x.flatten(0, -2), linear.weight.t().contiguous()).view(*x.shape[:-1], -1)
    found: Tensor = linear(x)
    return found


def _project_once(hidden: Tensor) -> Projection:
    """Projects each distinct token of a batch once, for what comes from the embeddings. (batch, seq, hidden)"""
    tokens = hidden.flatten(0, 1)
    key = tokens[:, : 8 // tokens.element_size()].contiguous().view(torch.int64)[:, 0]  # the first numbers, as one
    keys, place = torch.unique(key, return_inverse=True)
    distinct = tokens[torch.empty_like(keys).scatter_(0, place, torch.arange(len(place), device=place.device))]
    if not torch.equal(distinct[place], tokens):  # others begin alike
        return _project
    return lambda linear, _: _project(linear, distinct)[place].view(*hidden.shape[:2], -1)


def _attend(
    attend: Any, queries: Tensor, hidden: Tensor, mask: Tensor | None, project: Projection = _project
) -> Tensor:
    """What some tokens see, which look at all. (batch, queries, hidden), (batch, seq, hidden)"""

    def heads(linear: Any, x: Tensor) -> Tensor:
        return project(linear, x).view(len(x), x.shape[1], attend.num_attention_heads, -1).transpose(1, 2)

    context = F.scaled_dot_product_attention(
        heads(attend.query, queries), heads(attend.key, hidden), heads(attend.value, hidden), attn_mask=mask
    )
    return context.transpose(1, 2).reshape(queries.shape)


def _attend_folded(attend: Any, first: Tensor, hidden: Tensor, mask: Tensor | None) -> Tensor:
    """The same for one token of each row. Its query times the weights of keys asks the tokens themselves, and what it
    sees of them times the weights of values is the context. A bias of keys adds the same to all scores."""
    keys, values = (
        linear.weight.view(attend.num_attention_heads, -1, hidden.shape[-1]) for linear in (attend.key, attend.value)
    )  # (heads, width, hidden)
    queries = attend.query(first).view(len(first), len(keys), -1).transpose(0, 1)  # (heads, batch, width)
    asked = torch.bmm(queries, keys).transpose(0, 1)[:, None]  # (batch, 1, heads, hidden)
    tokens = hidden[:, None]
    seen = F.scaled_dot_product_attention(asked, tokens, tokens, attn_mask=mask, scale=queries.shape[-1] ** -0.5)
    context = torch.bmm(seen[:, 0].transpose(0, 1), values.transpose(1, 2))  # (heads, batch, width)
    bias: Tensor = attend.value.bias
    return context.transpose(0, 1).reshape(first.shape) + bias


def _rest(layer: Any, queries: Tensor, context: Tensor) -> Tensor:
    """What a layer makes of tokens and of what they see. (batch, queries, hidden)"""
    output = layer.attention.output
    attended = output.LayerNorm(_project(output.dense, context) + queries)
    between = layer.intermediate.intermediate_act_fn(_project(layer.intermediate.dense, attended))
    found: Tensor = layer.output.LayerNorm(_project(layer.output.dense, between) + attended)
    return found


def same_answers(expected: Tensor, found: Tensor) -> bool:
    """Equal up to rounding."""
    tolerance = 1e-5 if expected.dtype in (torch.float32, torch.float64) else 5e-2
    return expected.shape == found.shape and torch.allclose(expected, found, rtol=tolerance, atol=tolerance)


def _is_stock(encoder: nn.Module, model: Any) -> bool:
    """Hooks or a swapped class mean that someone wants more of a layer than what comes out of the last."""
    layers = getattr(encoder, "layer", None)
    if not isinstance(layers, nn.ModuleList) or not len(layers):
        return False
    stock = all(
        type(layer).__name__ in LAYERS and type(layer).__module__.startswith("transformers.models.") for layer in layers
    )
    hooked = any(module._forward_hooks or module._forward_pre_hooks for module in encoder.modules())
    return stock and not hooked and model.config._attn_implementation in ("sdpa", "eager")
