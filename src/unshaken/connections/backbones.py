"""Where each kind of model keeps its layers. A new backbone is one row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

from unshaken.errors import IncompatibleModelError, UnshakenError
from unshaken.names import nearest


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """One row of the table."""

    stacks: dict[str, str]  # name of each layer stack, the main one first -> path of its layers below the base model
    pre_norm: bool = False  # a layer ends in a residual sum (it already carries the identity) instead of a LayerNorm
    binary_mask: bool = False  # layers get a mask of zeros and ones instead of an additive one
    shared: bool = False  # one module serves several depths


_BERT = Backbone(stacks={"encoder": "encoder.layer"})
_LLAMA = Backbone(stacks={"decoder": "layers"}, pre_norm=True)

BACKBONES: dict[str, Backbone] = {
    "albert": Backbone(stacks={"encoder": "encoder.albert_layer_groups.*.albert_layers"}, shared=True),
    "bart": Backbone(stacks={"encoder": "encoder.layers", "decoder": "decoder.layers"}),
    "bert": _BERT,
    "camembert": _BERT,
    "deberta-v2": Backbone(stacks={"encoder": "encoder.layer"}, binary_mask=True),
    "distilbert": Backbone(stacks={"encoder": "transformer.layer"}),
    "electra": _BERT,
    "gpt2": Backbone(stacks={"decoder": "h"}, pre_norm=True),
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "modernbert": Backbone(stacks={"encoder": "layers"}, pre_norm=True),
    "mpnet": _BERT,
    "qwen2": _LLAMA,
    "roberta": _BERT,
    "t5": Backbone(stacks={"encoder": "encoder.block", "decoder": "decoder.block"}, pre_norm=True),
    "xlm-roberta": _BERT,
}


def plain_model_type(config: Any) -> str:
    """The backbone's model type, also of a model that is already connected."""
    return str(config.model_type).removeprefix("unshaken-")


def backbone_of(model: nn.Module) -> Backbone:
    config = getattr(model, "config", None)
    if config is None or not hasattr(config, "model_type"):
        raise IncompatibleModelError(
            type(model).__name__, [("it is not a Hugging Face model", "load it with an AutoModel class")]
        )
    kind = plain_model_type(config)
    if kind not in BACKBONES:
        known = ", ".join(sorted(BACKBONES))
        reason = f"its model type {kind!r} is not in the table of backbones ({nearest(kind, BACKBONES)})"
        cure = f"use one of {known}, or add a row to unshaken.connections.backbones.BACKBONES"
        raise IncompatibleModelError(type(model).__name__, [(reason, cure)])
    return BACKBONES[kind]


def stacks_of(model: nn.Module) -> dict[str, list[nn.Module]]:
    """Stack name -> the layer that serves each depth, in order; a shared layer appears once for each of its depths."""
    backbone, base = backbone_of(model), getattr(model, "base_model", model)
    stacks = {}
    for name, path in backbone.stacks.items():
        try:
            layers = list(_walk(base, path.split(".")))
        except AttributeError:
            if name == next(iter(backbone.stacks)):
                cure = "pass a model with an encoder stack"
                reason = f"it has no {path!r}"
                raise IncompatibleModelError(type(model).__name__, [(reason, cure)]) from None
            continue  # an encoder-only variant of an encoder-decoder model
        stacks[name] = _repeat(layers, model.config) if backbone.shared else layers
    return stacks


def decoder_of(model: nn.Module) -> Any:
    """The decoder of an encoder-decoder."""
    return getattr(model, "base_model", model).decoder


def embeddings_of(model: Any) -> nn.Module:
    """What embeds the tokens of the main stack; in bart and t5 the encoder has its own."""
    encoder = getattr(getattr(model, "base_model", model), "encoder", None)
    owner: Any = encoder if hasattr(encoder, "get_input_embeddings") else model
    embeddings: nn.Module = owner.get_input_embeddings()
    return embeddings


def _walk(module: nn.Module, path: list[str]) -> Iterator[nn.Module]:
    if not path:
        yield from module.children()
    elif path[0] == "*":
        for child in module.children():
            yield from _walk(child, path[1:])
    else:
        yield from _walk(getattr(module, path[0]), path[1:])


def _repeat(layers: list[nn.Module], config: Any) -> list[nn.Module]:
    """ALBERT: each group of `inner_group_num` layers runs num_hidden_layers / num_hidden_groups times."""
    inner = config.inner_group_num
    groups = [layers[start : start + inner] for start in range(0, len(layers), inner)]
    count = config.num_hidden_layers
    return [layer for depth in range(count) for layer in groups[int(depth / (count / config.num_hidden_groups))]]


def labelled_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Every depth's layer by its label: "4" in the main stack, "decoder:4" in another."""
    stacks = stacks_of(model)
    main = next(iter(stacks))
    return {
        str(number) if stack == main else f"{stack}:{number}": layer
        for stack, layers in stacks.items()
        for number, layer in enumerate(layers, start=1)
    }


def parse_layers(spec: str | int | list[int] | tuple[int, ...], sizes: dict[str, int]) -> list[tuple[str, int]]:
    """Read a layer specification into (stack, number) pairs, 1-based and inclusive.

    "all", "4-6", "1,3,5", [1, 3, 5]; numbers count in the main stack, another one is named: "encoder:1-2,decoder:all".
    """
    main = next(iter(sizes))
    if isinstance(spec, int):
        spec = [spec]
    if isinstance(spec, list | tuple):
        spec = ",".join(str(number) for number in spec)
    text = str(spec).replace(" ", "").lower()
    if not text:
        raise UnshakenError("layers names no layer: use 'all', '4-6', '1,3,5' or a list of numbers")
    if text == "all":
        return [(stack, number) for stack, size in sizes.items() for number in range(1, size + 1)]
    chosen: list[tuple[str, int]] = []
    stack = main
    for item in text.split(","):
        if ":" in item:
            stack, item = item.split(":", 1)
            if stack not in sizes:
                raise UnshakenError(f"layers {spec!r}: no stack {stack!r}; {nearest(stack, sizes)}")
        for number in _numbers(item, sizes[stack], spec):
            if (stack, number) in chosen:
                raise UnshakenError(f"layers {spec!r}: layer {number} is named twice")
            chosen.append((stack, number))
    return chosen


DIGITS = 6  # no model has a million layers, and Python refuses numbers of thousands of digits


def _numbers(item: str, size: int, spec: Any) -> list[int]:
    if item == "all":
        return list(range(1, size + 1))
    first, dash, last = item.partition("-")
    is_number = first.isdecimal() and (last.isdecimal() or not dash)
    if not is_number or max(len(first), len(last)) > DIGITS:
        raise UnshakenError(
            f"layers {spec!r}: {item!r} is not a number or a range; use 'all', '4-6', '1,3,5' or a list"
        )
    low, high = int(first), int(last) if dash else int(first)
    if low > high:
        raise UnshakenError(f"layers {spec!r}: the range {item!r} runs backwards; write {high}-{low}")
    if low < 1 or high > size:
        raise UnshakenError(f"layers {spec!r}: layer {low if low < 1 else high} does not exist; layers are 1 to {size}")
    return list(range(low, high + 1))
