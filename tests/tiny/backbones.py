"""One small classifier of each kind of encoder, with weights that make predictions differ."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

VOCABULARY = 40
PAD = 1  # MPNet takes 1 for padding whatever its configuration says
COMMON = {
    "vocab_size": VOCABULARY,
    "pad_token_id": PAD,
    "max_position_embeddings": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
DISTIL = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "vocab_size": VOCABULARY, "pad_token_id": PAD}
BACKBONES: dict[str, dict[str, Any]] = {
    "bert": COMMON,
    "roberta": COMMON,
    "xlm-roberta": COMMON,
    "camembert": COMMON,
    "electra": {**COMMON, "embedding_size": 8},
    "distilbert": DISTIL,
    "mpnet": COMMON,
    "albert": {**COMMON, "embedding_size": 8},
    "deberta-v2": {**COMMON, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 2},
}


def tiny_model(
    backbone: str = "bert", num_labels: int = 3, dropout: float = 0.1, dtype: torch.dtype = torch.float64
) -> Any:
    torch.manual_seed(0)
    config = AutoConfig.for_model(backbone, **BACKBONES[backbone], num_labels=num_labels)
    for name in vars(config):
        if "dropout" in name:
            setattr(config, name, dropout)
    model = AutoModelForSequenceClassification.from_config(config).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():  # initial weights are so small that predictions would hardly differ
            if parameter.ndim > 1:
                parameter.mul_(5)
    return model.train()
