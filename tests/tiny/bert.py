"""The BERT that tests build: two layers of sixteen numbers, in milliseconds."""

from __future__ import annotations

from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification

SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}


def random_bert(seed: int = 0, **options: Any) -> Any:
    """A classifier with random weights; options go into its configuration."""
    torch.manual_seed(seed)
    return BertForSequenceClassification(BertConfig(**{**SIZES, **options}))
