"""One vector per text: which feature of an encoder was trained to stand for the whole text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

Feature = Literal["pooled", "cls", "mean"]
# Encoders that were trained with mean pooling, by how their names begin, for copies without the files that say so.
MEAN_POOLED = ("gte-", "e5-", "multilingual-e5-", "all-minilm-", "all-mpnet-", "all-distilroberta-", "paraphrase-")


def feature_of(encoder: Any, hidden: Tensor, mask: Tensor | None, feature: Feature) -> Tensor:
    """(batch, seq, hidden) -> (batch, hidden)"""
    if feature == "cls":
        return hidden[:, 0]
    if feature == "mean":
        if mask is None:
            return hidden.mean(1)
        share = mask.to(hidden.dtype)[..., None]
        return (hidden * share).sum(1) / share.sum(1)
    if isinstance(encoder.pooler, nn.Linear):  # ALBERT keeps dense and activation apart
        pooled: Tensor = encoder.pooler_activation(encoder.pooler(hidden[:, 0]))
    else:
        pooled = encoder.pooler(hidden)
    return pooled


def choose_feature(encoder: nn.Module) -> tuple[Feature, str]:
    """The feature that pre-training shaped, and why: a layer that no file held has nothing to teach.

    The mean of the tokens where the encoder was trained with mean pooling, even if an old pooler lies in its file; else
    the pooler where its weights were in the file; else the first token.
    """
    name = str(getattr(encoder.config, "_name_or_path", ""))
    if _says_mean(name):
        return "mean", "the checkpoint's sentence-transformers files say mean pooling"
    if Path(name).name.lower().startswith(MEAN_POOLED):
        return "mean", f"{Path(name).name} was trained with mean pooling"
    if getattr(encoder, "pooler", None) is None:
        return "cls", "the encoder has no pooler"
    if pooler_is_new(encoder):
        return "cls", "the pooler's weights were not in the checkpoint"
    return "pooled", "the pooler's weights were in the checkpoint"


def pooler_is_new(encoder: nn.Module) -> bool:
    """Whether the pooler was initialised here: transformers marks the weights that came from a file."""
    pooler = encoder.pooler
    assert isinstance(pooler, nn.Module)
    return not all(getattr(weight, "_is_hf_initialized", False) for weight in pooler.parameters())


def _says_mean(name: str) -> bool:
    from transformers.utils import cached_file

    if not name:
        return False
    found = cached_file(
        name,
        "1_Pooling/config.json",
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    try:
        pooling = json.loads(Path(found).read_text("utf-8")) if found else {}
    except (OSError, ValueError):  # a damaged note about the encoder, not the encoder
        return False
    if not isinstance(pooling, dict):
        return False
    return bool(pooling.get("pooling_mode_mean_tokens")) or pooling.get("pooling_mode") == "mean"
