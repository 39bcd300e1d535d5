"""Tokenizers of every family, trained on a few sentences, with models of their size."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from unshaken import Smoothing, smooth
from unshaken.substitutions import Dictionary

SENTENCES = [
    "a good film with a slow plot", "the goodness of great movies", "it is a bad , well-made picture !",
    "Fine acting, and an awful story.", "lengthy nights (dull) are nice", "gooder badness filmic plotted café",
]  # fmt: skip
ENTRIES = {
    "good": ["fine", "great", "nice"],
    "bad": ["poor", "awful"],
    "film": ["movie", "picture"],
    "slow": ["dull", "lengthy"],
    "fine": ["nice"],
    "café": ["bistro"],
}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
FAMILIES = ("wordpiece-uncased", "wordpiece-cased", "byte-bpe", "unigram", "unigram-split")


def make_tokenizer(family: str) -> Any:
    if family.startswith("wordpiece"):
        backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        backend.normalizer = normalizers.BertNormalizer(lowercase=family == "wordpiece-uncased")
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer: Any = trainers.WordPieceTrainer(vocab_size=170, special_tokens=SPECIAL, show_progress=False)
    elif family == "byte-bpe":
        backend = Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=340, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
        )
    else:
        backend = Tokenizer(models.Unigram())
        backend.normalizer = normalizers.Sequence([normalizers.NFKC()])
        split = [pre_tokenizers.WhitespaceSplit()] if family == "unigram-split" else []
        meta = pre_tokenizers.Metaspace(prepend_scheme="always")
        backend.pre_tokenizer = pre_tokenizers.Sequence([*split, meta]) if split else meta
        trainer = trainers.UnigramTrainer(vocab_size=80, special_tokens=SPECIAL, unk_token="[UNK]", show_progress=False)
    backend.train_from_iterator(SENTENCES * 4, trainer)
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        model_max_length=64, model_input_names=names,
    )  # fmt: skip


def make_model(size: int, dtype: torch.dtype = torch.float64) -> Any:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=size, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=64, num_labels=2,
    )  # fmt: skip
    model = BertForSequenceClassification(config).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(5)
    return model.eval()


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def families() -> dict[str, Any]:
    return {family: make_tokenizer(family) for family in FAMILIES}


@pytest.fixture
def tokenizer(family: str) -> Any:
    return make_tokenizer(family)


@pytest.fixture
def bert() -> tuple[Any, Any]:
    """An uncased BERT and its tokenizer, in double precision."""
    tokenizer = make_tokenizer("wordpiece-uncased")
    return make_model(len(tokenizer)), tokenizer


@pytest.fixture
def words() -> Dictionary:
    return Dictionary(entries=ENTRIES)


@pytest.fixture
def make_smoothed(words: Dictionary) -> Any:
    """Smooths a new model over a tokenizer, in single precision."""

    def make(tokenizer: Any) -> tuple[Any, Any]:
        return smooth(make_model(len(tokenizer), torch.float32), tokenizer, Smoothing(substitutions=words, hops=2))

    return make


@pytest.fixture
def smoothed_bert(bert: tuple[Any, Any], words: Dictionary) -> tuple[Any, Any]:
    return smooth(*bert, Smoothing(substitutions=words))
