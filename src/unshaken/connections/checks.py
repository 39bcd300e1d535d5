"""What cannot work, said before it goes wrong: each problem with its reason and its cure."""

from __future__ import annotations

from typing import Any

from unshaken.connections.backbones import backbone_of, parse_layers, stacks_of
from unshaken.connections.connection import Connection
from unshaken.errors import IncompatibleModelError

Problem = tuple[str, str]  # reason, cure


def check(model: Any, connection: Connection) -> list[Problem]:
    """Why `connection` cannot be put on `model`, as (reason, cure) pairs; an empty list where it can.

    Example:
        >>> for reason, cure in check(model, Connection(layers="4-6")):
        ...     print(f"{reason}: {cure}")
    """
    try:
        backbone, stacks = backbone_of(model), stacks_of(model)
    except IncompatibleModelError as error:
        return error.problems
    chosen = parse_layers(connection.layers, {name: len(layers) for name, layers in stacks.items()})
    problems: list[Problem] = []
    if backbone.shared:
        ids = {id(stacks[stack][number - 1]) for stack, number in chosen}
        covered = sum(id(layer) in ids for layers in stacks.values() for layer in layers)
        if covered != len(chosen):
            problems.append(
                (
                    f"layers {connection.layers!r} share their weights with depths that were not chosen",
                    "connect all depths of the shared layer: layers='all'",
                )
            )
    attention = getattr(model.config, "_attn_implementation", None) or ""
    if connection.differentiates_twice and ("flash" in attention or "flex" in attention):
        problems.append(
            (
                f"{connection.gradient_mode.name} gradients need a second derivative, which {attention!r} has not",
                "load the model with attn_implementation='sdpa', or use gradient='detached'",
            )
        )
    for layers in stacks.values():
        function = getattr(layers[0], "_gradient_checkpointing_func", None)
        if getattr(function, "keywords", {}).get("use_reentrant", False):
            problems.append(
                (
                    "checkpointing with use_reentrant=True cannot differentiate inside a forward pass",
                    "model.gradient_checkpointing_enable({'use_reentrant': False})",
                )
            )
            break
    return problems
