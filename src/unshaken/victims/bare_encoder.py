"""The encoder of a stock BERT-like model without what Python costs, and its last layer for the first token alone.

On a GPU the launches of a pass take longer than its work unless batches are large, and most of that time is spent
between the launches: transformers looks up settings and signatures in every layer. The classifier reads the first token
only, so the last layer's queries and feed-forward block of the others are never needed: about 13% of a model of six
layers. Used for answering queries only, never where something looks inside the model.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

# Layers that are built alike. Others may be, too, but some (BigBird) attend otherwise once texts are long.
LAYERS = ("BertLayer", "RobertaLayer", "XLMRobertaLayer", "CamembertLayer", "ElectraLayer")


class BareEncoder:
    """Replaces the forward of a model's encoder, which has layers and nothing beside them, while it is open.

    With `first_token` the last layer is read at the first token only.
    """

    def __init__(self, encoder: nn.Module, first_token: bool = True) -> None:
        self.encoder, self.first_token = encoder, first_token

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
            mask = torch.zeros_like(mask, dtype=hidden.dtype).masked_fill_(~mask, -torch.inf)
        layers: Any = self.encoder.layer
        for layer in layers[:-1] if self.first_token else layers:
            hidden = _layer(layer, hidden, hidden, mask)
        if not self.first_token:
            return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden)
        mask = None if mask is None else mask[:, :, :1]  # (batch, 1, 1, seq)
        first = _layer(layers[-1], hidden[:, :1], hidden, mask)  # (batch, 1, hidden)
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=first)


def _layer(layer: Any, queries: Tensor, hidden: Tensor, mask: Tensor | None) -> Tensor:
    """What a layer makes of some tokens, which look at all. (batch, queries, hidden), (batch, seq, hidden)"""
    attend = layer.attention.self

    def heads(x: Tensor) -> Tensor:
        return x.view(len(x), x.shape[1], attend.num_attention_heads, -1).transpose(1, 2)

    context = F.scaled_dot_product_attention(
        heads(attend.query(queries)), heads(attend.key(hidden)), heads(attend.value(hidden)), attn_mask=mask
    )
    output = layer.attention.output
    attended = output.LayerNorm(output.dense(context.transpose(1, 2).reshape(queries.shape)) + queries)
    between = layer.intermediate.intermediate_act_fn(layer.intermediate.dense(attended))
    found: Tensor = layer.output.LayerNorm(layer.output.dense(between) + attended)
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
