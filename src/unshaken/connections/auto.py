"""Classes for connected models: `unshaken-bert` and the others, made on demand and importable by name.

A saved connected model has a model type of its own, so the Auto classes load it after `import unshaken` and refuse
it without; as a plain `bert` with one more attribute it would load as a plain BERT, silently. The classes are
attributes of this module (`ConnectedBertLayer`, ...), which is what pickle needs to find them again.
"""

from __future__ import annotations

import sys
from functools import cache, wraps
from typing import Any

import torch
from torch import nn

from unshaken.connections.backbones import (
    BACKBONES,
    backbone_of,
    decoder_of,
    parse_layers,
    plain_model_type,
    stacks_of,
)
from unshaken.connections.connection import Connection
from unshaken.connections.layer import ConnectedLayer, class_of, see_decoded_tokens
from unshaken.connections.looking import look_once

_PREFIX = "Connected"


def plain_class(kind: type) -> type:
    """The class a connected one was made from; any other class is its own."""
    plain: type = vars(kind).get("unshaken_plain_class", kind)
    return plain


def _publish(name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
    made = type(name, bases, {"__module__": __name__, "__qualname__": name, **body})
    setattr(sys.modules[__name__], name, made)
    return made


@cache
def connected_config_class(plain: Any) -> type:
    plain = plain_class(plain)

    def from_dict(cls: type, *args: Any, **kwargs: Any) -> Any:
        register_models(cls)
        return plain.from_dict.__func__(cls, *args, **kwargs)

    body = {
        "model_type": f"unshaken-{plain.model_type}",
        "unshaken_plain_class": plain,
        "from_dict": classmethod(from_dict),
    }
    return _publish(_PREFIX + plain.__name__, (plain,), body)


@cache
def connected_class(plain: Any) -> type:
    """The connected class of a layer or of a model."""
    from transformers import PreTrainedModel

    plain = plain_class(plain)
    if not issubclass(plain, PreTrainedModel):
        return _publish(_PREFIX + plain.__name__, (ConnectedLayer, plain), {"unshaken_plain_class": plain})
    config_class = connected_config_class(plain.config_class)

    def __init__(self: nn.Module, config: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        plain.__init__(self, config, *args, **kwargs)
        if getattr(config, "connection", None) is not None:
            attach(self, Connection.from_dict(config.connection))

    @wraps(plain.forward)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return look_once(self, lambda: plain.forward(self, *args, **kwargs))

    body = {"config_class": config_class, "unshaken_plain_class": plain, "__init__": __init__, "forward": forward}
    return _publish(_PREFIX + plain.__name__, (plain,), {**body, "__annotations__": {"config": config_class}})


def attach(model: nn.Module, connection: Connection) -> None:
    """Turn the chosen layers into connected ones. Layers that are connected already stay as they are."""
    backbone, stacks = backbone_of(model), stacks_of(model)
    form = connection.form
    if form == "auto":
        form = "increment" if backbone.pre_norm else "layer"
    for stack, number in parse_layers(connection.layers, {name: len(layers) for name, layers in stacks.items()}):
        layer: Any = stacks[stack][number - 1]
        if isinstance(layer, ConnectedLayer):
            continue
        layer.connection, layer.connection_form = connection, form
        layer.connection_mask_is_binary = backbone.binary_mask
        layer.connection_kind = plain_model_type(model.config)
        layer.connection_step = None
        if connection.learn_step:
            reference = next(layer.parameters())
            layer.connection_step = nn.Parameter(torch.full((), connection.step, device=reference.device))
        layer.solve_records, layer.solves_for_words, layer.decoded_tokens = {}, False, None
        layer.__class__ = connected_class(class_of(layer))
    if len(stacks) > 1:
        decoder = decoder_of(model)
        decoder.decoded_tokens_hook = decoder.register_forward_pre_hook(see_decoded_tokens, with_kwargs=True)
    for module in model.modules():  # a cache would hold keys of first guesses
        config = getattr(module, "config", None)
        if getattr(config, "use_cache", False):
            module.cache_before_connection = True  # type: ignore[assignment]
            config.use_cache = False  # type: ignore[union-attr]


def __getattr__(name: str) -> Any:
    """Find a connected class by name in a process that has not made it yet (pickle, a fresh interpreter)."""
    if not name.startswith(_PREFIX):
        raise AttributeError(name)
    import importlib

    import transformers

    plain_name = name.removeprefix(_PREFIX)
    if hasattr(transformers, plain_name):
        plain = getattr(transformers, plain_name)
        return connected_config_class(plain) if plain_name.endswith("Config") else connected_class(plain)
    for kind in BACKBONES:
        package = kind.replace("-", "_")
        module = importlib.import_module(f"transformers.models.{package}.modeling_{package}")
        if hasattr(module, plain_name):
            return connected_class(getattr(module, plain_name))
    raise AttributeError(name)


def register() -> None:
    """Enter the connected model types into `AutoConfig`. Called when `unshaken` is imported.

    The model classes follow when a config of their kind is read, so that no modelling code is imported in vain.
    """
    from transformers import AutoConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    for kind in BACKBONES:
        config_class = connected_config_class(CONFIG_MAPPING[kind])
        AutoConfig.register(config_class.model_type, config_class, exist_ok=True)  # type: ignore[attr-defined]


@cache
def register_models(config_class: type) -> None:
    """Enter the models of one connected config class into the Auto classes."""
    from transformers.models.auto import modeling_auto

    for auto in vars(modeling_auto).values():
        mapping = getattr(auto, "_model_mapping", None) if isinstance(auto, type) else None
        plain = None if mapping is None else mapping.get(plain_class(config_class), None)
        if isinstance(plain, type):
            auto.register(config_class, connected_class(plain), exist_ok=True)
