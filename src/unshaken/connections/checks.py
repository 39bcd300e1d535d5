"""What cannot work, said before it goes wrong: each problem with its reason and its cure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from unshaken.connections.backbones import backbone_of, parse_layers, plain_model_type, stacks_of
from unshaken.connections.connection import Connection
from unshaken.connections.sublayers import SUBLAYERS
from unshaken.errors import IncompatibleModelError
from unshaken.solvers import FixedPoint

Problem = tuple[str, str]  # reason, cure


def check(model: Any, connection: Connection) -> list[Problem]:
    """Why `connection` cannot be put on `model`, as (reason, cure) pairs; an empty list if it can.

    Example:
        >>> for reason, cure in check(model, Connection(layers="4-6")):
        ...     print(f"{reason}: {cure}")
    """
    try:
        return list(_problems(model, connection))
    except IncompatibleModelError as error:
        return error.problems


def _problems(model: Any, connection: Connection) -> Iterator[Problem]:
    backbone, stacks = backbone_of(model), stacks_of(model)
    chosen = parse_layers(connection.layers, {name: len(layers) for name, layers in stacks.items()})
    if backbone.shared:
        ids = {id(stacks[stack][number - 1]) for stack, number in chosen}
        covered = sum(id(layer) in ids for layers in stacks.values() for layer in layers)
        if covered != len(chosen):
            reason = f"layers {connection.layers!r} share their weights with depths that were not chosen"
            yield reason, "connect all depths of the shared layer: layers='all'"
    if backbone.pre_norm and connection.form == "auto" and connection.theta == 0 and connection.order == 1:
        reason = "its layers end in a residual sum: they are explicit Euler steps already, and nothing would change"
        yield reason, "connect them implicitly, or pass form='layer' to add the input once more"
    if connection.where == "sublayers" and not can_be_separated(model):
        cure = f"use where='layers', or an encoder of one of the kinds {', '.join(sorted(SUBLAYERS))}"
        yield "its attention and feed-forward sub-layers cannot be connected apart", cure
    if leaks_later_tokens(model, connection, {stack for stack, _ in chosen}):
        seen = "so a language model would see the tokens it is to predict"
        cure = "use solver=FixedPoint(), which takes tokens one by one, or an explicit connection (theta=0)"
        yield f"{connection.solver.name} weighs all tokens of a text together, {seen}", cure
    attention = getattr(model.config, "_attn_implementation", None) or ""
    if connection.differentiates_twice and ("flash" in attention or "flex" in attention):
        reason = f"{connection.gradient_mode.name} gradients need a second derivative, which {attention!r} has not"
        yield reason, "load the model with attn_implementation='sdpa', or use gradient='detached'"
    functions = [getattr(layers[0], "_gradient_checkpointing_func", None) for layers in stacks.values()]
    if any(getattr(function, "keywords", {}).get("use_reentrant", False) for function in functions):
        reason = "checkpointing with use_reentrant=True cannot differentiate inside a forward pass"
        yield reason, "model.gradient_checkpointing_enable({'use_reentrant': False})"


def can_be_separated(model: Any) -> bool:
    """Whether a layer is attention and feed-forward and nothing else: no decoder, which may look at an encoder."""
    return plain_model_type(model.config) in SUBLAYERS and not getattr(model.config, "is_decoder", False)


def leaks_later_tokens(model: Any, connection: Connection, stacks: set[str]) -> bool:
    """Whether a model that predicts the next token is to be solved by weights that later tokens have a say in."""
    from transformers.models.auto import modeling_auto

    heads = set(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values())
    heads |= set(modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES.values())
    is_causal = "decoder" in stacks or getattr(model.config, "is_decoder", False)
    solves_apart = not connection.is_implicit or isinstance(connection.solver, FixedPoint)
    return type(model).__name__ in heads and is_causal and not solves_apart
