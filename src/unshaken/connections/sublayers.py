"""A layer as its two sub-layers, attention and feed-forward, each with the residual sum and LayerNorm it has in the
stock model: one behind the other they are the layer, bit for bit.

Section 3.4 of IM-BERT weighs a connection around each of them and takes whole layers; `Connection(where="sublayers")`
is what it declined. A new backbone is one function here; its arguments are those of the stock layer's forward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

Parts = dict[str, Callable[[Tensor], Any]]  # name of a sub-layer -> the sub-layer on a hidden state
ATTENTION, FEED_FORWARD = "attention", "feed-forward"


def _bert(
    layer: Any,
    attention_mask: Tensor | None = None,
    encoder_hidden_states: None = None,
    encoder_attention_mask: None = None,
    past_key_values: None = None,
    **kwargs: Any,
) -> Parts:
    return {
        ATTENTION: lambda x: layer.attention(x, attention_mask, **kwargs)[0],
        FEED_FORWARD: layer.feed_forward_chunk,
    }


def _albert(layer: Any, attention_mask: Tensor | None = None, **kwargs: Any) -> Parts:
    return {
        ATTENTION: lambda x: layer.attention(x, attention_mask, **kwargs)[0],
        FEED_FORWARD: lambda x: layer.full_layer_layer_norm(layer.ff_chunk(x) + x),
    }


def _distilbert(layer: Any, attention_mask: Tensor | None = None, **kwargs: Any) -> Parts:
    def attend(x: Tensor) -> Any:
        return layer.sa_layer_norm(layer.attention(x, attention_mask=attention_mask, **kwargs)[0] + x)

    return {ATTENTION: attend, FEED_FORWARD: lambda x: layer.output_layer_norm(layer.ffn(x) + x)}


def _with_map(layer: Any, *args: Any, **kwargs: Any) -> Parts:
    """DeBERTa and MPNet: the layer returns its attention map too."""
    return {
        ATTENTION: lambda x: layer.attention(x, *args, **kwargs),
        FEED_FORWARD: lambda x: layer.output(layer.intermediate(x), x),
    }


def _modernbert(
    layer: Any, attention_mask: Tensor | None = None, position_embeddings: Any = None, **kwargs: Any
) -> Parts:
    given = {"attention_mask": attention_mask, "position_embeddings": position_embeddings, **kwargs}
    return {
        ATTENTION: lambda x: x + layer.attn(layer.attn_norm(x), **given)[0],
        FEED_FORWARD: lambda x: x + layer.mlp(layer.mlp_norm(x)),
    }


SUBLAYERS: dict[str, Callable[..., Parts]] = {
    "albert": _albert,
    "bert": _bert,
    "camembert": _bert,
    "deberta-v2": _with_map,
    "distilbert": _distilbert,
    "electra": _bert,
    "modernbert": _modernbert,
    "mpnet": _with_map,
    "roberta": _bert,
    "xlm-roberta": _bert,
}
