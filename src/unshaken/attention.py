"""Attention: which of torch's kernels are used where batches have many shapes, and masks that are made once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

ANY_SHAPE = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


@contextlib.contextmanager
def attention_for_any_shape(device: torch.device) -> Iterator[None]:
    """While open, a GPU uses no kernel of cuDNN, which spends 100 ms on a plan for each new shape of a batch."""
    with sdpa_kernel(ANY_SHAPE) if device.type == "cuda" else contextlib.nullcontext():
        yield


# Whose classifiers of transformers do nothing with a mask but hand it to their layers, which take one that is made.
TAKE_MADE_MASKS = ("albert", "bert", "camembert", "distilbert", "electra", "roberta", "xlm-roberta")


def with_mask_made_once(model: nn.Module, inputs: Mapping[str, Tensor]) -> dict[str, Tensor | None]:
    """The inputs of many passes over one batch, with what layers add to their scores in the place of its mask.

    Models make it from the mask in every pass, look whether it hides anything, which makes a GPU wait, and torch makes
    numbers of it in every layer. Where a model may do something else with its mask, the inputs are as they were.
    """
    mask = inputs.get("attention_mask")
    if mask is None or mask.dim() != 2 or not _takes_made_masks(model):
        return dict(inputs)
    real = mask.bool()
    if bool(real.all()):
        return {**inputs, "attention_mask": None}
    device = mask.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else next(model.parameters()).dtype
    return {**inputs, "attention_mask": added_to_scores(real, dtype)}


def added_to_scores(real: Tensor, dtype: torch.dtype) -> Tensor:
    """What hides padding in each row of a batch. (batch, seq) -> (batch, 1, seq, seq)"""
    hidden = torch.zeros(real.shape, dtype=dtype, device=real.device).masked_fill_(~real, -torch.inf)
    return hidden[:, None, None].expand(-1, 1, real.shape[1], -1).contiguous()


def _takes_made_masks(model: nn.Module) -> bool:
    config: Any = getattr(model, "config", None)
    return (
        getattr(config, "model_type", None) in TAKE_MADE_MASKS
        and getattr(config, "_attn_implementation", None) == "sdpa"
        and not getattr(config, "is_decoder", False)
        and type(model).__module__.startswith("transformers.models.")  # and no class that reads the mask itself
        and type(model).__name__.endswith("ForSequenceClassification")
        and not any(_is_watched(part) for part in (model, model.base_model))
        and "forward" not in vars(model.base_model)  # what stands in for it makes masks of its own
    )


def _is_watched(module: Any) -> bool:
    """Whether somebody's hook looks at what the module is given, who would find another mask."""
    return bool(module._forward_hooks or module._forward_pre_hooks)
