"""FSDP2: which parameters are sharded.

The transformer layers are sharded. Embeddings, pooler and head stay whole on every rank, because defences read and
perturb them outside of the model's forward pass, where sharded parameters cannot be used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from unshaken.connections.auto import plain_class
from unshaken.defences.shards import is_sharded
from unshaken.errors import UnshakenError


def shard_layers(plugin: Any, model: nn.Module) -> None:
    """Tell accelerate's plugin what to shard, or say why it cannot be done."""
    from accelerate.utils.versions import compare_versions
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    if compare_versions("accelerate", "<", "1.11.0"):
        raise UnshakenError("accelerate before 1.11 cannot leave parameters out of FSDP2: update it, or train with DDP")
    if plugin.fsdp_version != 2:
        raise UnshakenError("FSDP 1 flattens parameters, which defences need by name: set fsdp_version to 2")
    if plugin.cpu_ram_efficient_loading:
        raise UnshakenError(
            "cpu_ram_efficient_loading leaves all ranks but the first without the pretrained weights that defences "
            "copy: set fsdp_cpu_ram_efficient_loading to false"
        )
    layers = _layers(model)
    if not layers:
        raise UnshakenError(f"{type(model).__name__} does not name its layers for FSDP to shard: train with DDP")
    plugin.auto_wrap_policy = transformer_auto_wrap_policy
    plugin.transformer_cls_names_to_wrap = sorted({type(layer).__name__ for layer in layers})
    plugin.ignored_modules = list(_outside(model, {id(layer) for layer in layers}))


def _layers(model: nn.Module) -> list[nn.Module]:
    names = set(getattr(model, "_no_split_modules", None) or ())
    layers = [module for module in model.modules() if plain_class(type(module)).__name__ in names]
    return [module for module in layers if not any(isinstance(part, nn.Embedding) for part in module.modules())]


def _outside(module: nn.Module, layers: set[int]) -> Iterator[nn.Module]:
    """The largest modules that hold no layer."""
    for child in module.children():
        if id(child) in layers:
            continue
        if any(id(part) in layers for part in child.modules()):
            yield from _outside(child, layers)
        else:
            yield child


def replicated(model: nn.Module) -> Iterator[nn.Parameter]:
    """Parameters that every rank holds whole."""
    return (parameter for parameter in model.parameters() if not is_sharded(parameter))
