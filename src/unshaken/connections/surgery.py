"""`connect` and `disconnect`: swap the class of chosen layers, and of the model and its config with them.

Swapping classes keeps every state-dict key, every reference and every hook; a wrapping module would change them.
"""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from unshaken.connections.auto import attach, connected_class, connected_config_class, plain_class, register_models
from unshaken.connections.backbones import labelled_layers
from unshaken.connections.checks import check
from unshaken.connections.connection import Connection
from unshaken.connections.layer import ConnectedLayer, SolveRecord, class_of, part_label
from unshaken.errors import IncompatibleModelError, UnshakenError


def connect(model: Any, connection: Connection) -> Any:
    """Join layers of a Hugging Face model by `connection`, in place, and return the model.

    The weights stay what they are. The connection is written into the config, so `save_pretrained` keeps it and the
    Auto classes bring it back after `import unshaken`.

    Example:
        >>> model = unshaken.connect(model, Connection.im_bert(layers="4-6"))
    """
    if connection_of(model) is not None:
        raise UnshakenError(f"{type(model).__name__} is connected already: disconnect(model) first")
    problems = check(model, connection)
    if problems:
        raise IncompatibleModelError(type(model).__name__, problems)
    attach(model, connection)
    model.config.connection = connection.to_dict()
    model.config.__class__ = config_class = connected_config_class(class_of(model.config))
    register_models(config_class)
    _swap_model_class(model, connected_class(class_of(model)))
    return model


def disconnect(model: Any) -> Any:
    """Undo `connect`: the same model with its layers stacked as the architecture has them."""
    if connection_of(model) is None:
        raise UnshakenError(f"{type(model).__name__} is not connected")
    for layer in model.modules():
        if isinstance(layer, ConnectedLayer):
            del layer.connection, layer.connection_form, layer.connection_kind, layer.connection_mask_is_binary
            del layer.connection_step, layer.solve_records, layer.solves_for_words, layer.decoded_tokens
            layer.__class__ = plain_class(type(layer))
    for module in model.modules():
        hook = vars(module).pop("decoded_tokens_hook", None)
        if hook is not None:
            hook.remove()
        if vars(module).pop("cache_before_connection", False):
            module.config.use_cache = True
    del model.config.connection
    model.config.__class__ = plain_class(type(model.config))
    for module in model.modules():
        if plain_class(type(module)) is not type(module):
            _swap_model_class(module, plain_class(type(module)))
    return model


def _swap_model_class(model: Any, new: type) -> None:
    model.__class__ = new
    try:
        from transformers.utils.output_capturing import _CAN_RECORD_REGISTRY
    except ImportError:  # older releases record hidden states without a registry
        return
    # The registry is filled when a model is made; a class that came later must be entered by hand.
    _CAN_RECORD_REGISTRY[str(new)] = model._can_record_outputs


def connected_copy(model: nn.Module, connection: Connection | None) -> Any:
    """A copy in evaluation mode, joined by `connection` alone; a plain one for None."""
    probe: Any = copy.deepcopy(model).eval()
    if connection_of(probe) is not None:
        disconnect(probe)
    return probe if connection is None else connect(probe, connection)


def connection_of(model: Any) -> Connection | None:
    """The connection of a model, or None for a plain one."""
    saved = getattr(getattr(model, "config", None), "connection", None)
    return None if saved is None else Connection.from_dict(saved)


def solve_records(model: nn.Module) -> dict[str, SolveRecord]:
    """How each connected layer's last solve went: layer number -> record. Empty before the first forward pass.

    Where sub-layers are connected, they have a record each: "4 attention", "4 feed-forward".
    """
    records: dict[str, SolveRecord] = {}
    if connection_of(model) is None:
        return records
    for label, layer in labelled_layers(model).items():
        if isinstance(layer, ConnectedLayer):
            records |= {part_label(label, part): record for part, record in layer.solve_records.items()}
    return records
