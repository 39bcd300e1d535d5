"""Which weights of a model are pretrained, and layers that train with a function of their weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from torch import Tensor, nn

from unshaken.errors import UnshakenError


class WeightSwap:
    """Lets a layer compute with `transform(weight)` in training mode; in evaluation mode it is the plain layer.

    The swap lasts for the layer's forward only and hides the parameter rather than replacing it. State-dict keys,
    optimizers and DDP therefore see the plain weight, autocast casts the swapped one, and a forward repeated by
    gradient checkpointing is swapped again.
    """

    def __init__(self, layer: nn.Module, transform: Callable[[Tensor], Tensor]) -> None:
        if any(swap_of(hook) for hook in layer._forward_pre_hooks.values()):
            raise UnshakenError(
                "a defence of an earlier run still swaps this model's weights: load the model again, or call "
                "unshaken.defences.release(model)"
            )
        self.transform = transform
        self.handles = [
            layer.register_forward_pre_hook(self._enter),
            layer.register_forward_hook(self._leave, always_call=True),
        ]

    def _enter(self, layer: nn.Module, inputs: Any) -> None:
        if layer.training:
            layer.__dict__["weight"] = self.transform(cast("Tensor", layer.weight))

    def _leave(self, layer: nn.Module, inputs: Any, output: Any) -> None:
        layer.__dict__.pop("weight", None)

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()

    def __deepcopy__(self, memo: dict[int, Any]) -> WeightSwap:
        return self  # a teacher copied from the model keeps no second copy of what `transform` holds


def swap_of(hook: Any) -> WeightSwap | None:
    owner = getattr(hook, "__self__", None)
    return owner if isinstance(owner, WeightSwap) else None


def release(model: nn.Module) -> None:
    """Take off what defences of earlier runs hung on the model, so that it trains as a plain one again."""
    for module in model.modules():
        for hook in list(module._forward_pre_hooks.values()):
            if (swap := swap_of(hook)) is not None:
                swap.remove()


def encoder(model: nn.Module) -> nn.Module:
    """The pretrained part of a classifier: all but its head."""
    base = getattr(model, "base_model", None)
    if not isinstance(base, nn.Module) or base is model:
        raise UnshakenError(
            f"{type(model).__name__} does not say which of its weights are pretrained; ptwd and mixout need a Hugging "
            "Face classifier, whose base_model is its encoder"
        )
    return base


def output_layer_name(model: nn.Module, num_labels: int) -> str:
    """The last Linear outside the encoder: the layer that makes the logits."""
    inside = set(encoder(model).modules())
    heads = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module not in inside and module.out_features == num_labels
    ]
    if not heads:
        raise UnshakenError(
            f"{type(model).__name__} has no Linear layer with {num_labels} outputs outside its encoder, which r4f "
            "normalises; use r3f"
        )
    return str(heads[-1])
