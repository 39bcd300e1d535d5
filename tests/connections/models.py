"""Tiny random models of every backbone in the table."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import Tensor

_TINY = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 60}
_DECODER = {**_TINY, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}

SETTINGS: dict[str, dict[str, Any]] = {
    "albert": {**_TINY, "embedding_size": 8},
    "bart": {
        "vocab_size": 60, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 64,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2,
    },
    "bert": _TINY,
    "camembert": {**_TINY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
    "deberta-v2": {**_TINY, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8},
    "distilbert": {"vocab_size": 60, "dim": 16, "n_layers": 3, "n_heads": 2, "hidden_dim": 24},
    "electra": {**_TINY, "embedding_size": 16},
    "gpt2": {
        "vocab_size": 60, "n_embd": 16, "n_layer": 3, "n_head": 2, "pad_token_id": 0,
        "bos_token_id": 1, "eos_token_id": 2,
    },
    "llama": _DECODER,
    "mistral": {**_DECODER, "sliding_window": 4},
    "modernbert": {
        **_TINY, "global_attn_every_n_layers": 2, "local_attention": 4, "pad_token_id": 0, "bos_token_id": 1,
        "eos_token_id": 2, "cls_token_id": 3, "sep_token_id": 4,
    },
    "mpnet": _TINY,
    "qwen2": _DECODER,
    "roberta": {**_TINY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
    "t5": {
        "vocab_size": 60, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_decoder_layers": 2,
        "num_heads": 2, "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0,
    },
    "xlm-roberta": {**_TINY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
}  # fmt: skip


def tiny(
    kind: str, *, seed: int = 0, head: Any = transformers.AutoModelForSequenceClassification, **settings: Any
) -> Any:
    """A random classifier with weights large enough that layers do something."""
    torch.manual_seed(seed)
    attention = settings.pop("attn_implementation", None)
    config = transformers.AutoConfig.for_model(kind, **{**SETTINGS[kind], **settings})
    options = {} if attention is None else {"attn_implementation": attention}
    model = head.from_config(config, **options)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)
    return model.eval()


def tokens(
    kind: str = "bert", batch: int = 3, length: int = 9, padded: bool = True, seed: int = 0
) -> dict[str, Tensor]:
    """Random ids; every row ends in </s> (BART reads its sentence there), the second is shorter than the others."""
    ids = torch.randint(5, 60, (batch, length), generator=torch.Generator().manual_seed(seed))
    ids[:, -1] = 2
    mask = torch.ones_like(ids)
    if padded:
        ids[1, length - 4] = 2
        ids[1, length - 3 :] = 0
        mask[1, length - 3 :] = 0
    return {"input_ids": ids, "attention_mask": mask}
