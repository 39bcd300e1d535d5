"""Tiny texts with a tokenizer, for defences that read words."""

from __future__ import annotations

from functools import cache
from typing import Any

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import nn, tensor
from transformers import PreTrainedTokenizerFast

from unshaken.defences import Step
from unshaken.examples import Example

TEXTS = (
    "a good film",
    "a bad film with a good end",
    "a film",
    "good and bad",
    "the bad film",
    "the film was good",
)


@cache
def tokenizer() -> Any:
    """Whole words are tokens, framed as BERT frames them."""
    special = ["[UNK]", "[PAD]", "[CLS]", "[SEP]"]  # padding is 1, as in the tiny models
    words = ["a", "and", "awful", "bad", "end", "film", "fine", "good", "great", "movie", "poor", "the", "was", "with"]
    vocabulary = {word: number for number, word in enumerate([*special, *words])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(
        tokenizer_object=made, **names, model_input_names=["input_ids", "token_type_ids", "attention_mask"]
    )


def text_step(model: nn.Module, *, pairs: bool = False, **options: Any) -> Step:
    examples = [
        Example(id=str(number), texts=(text, "the " + text) if pairs else (text,), label=number % 3)
        for number, text in enumerate(TEXTS)
    ]
    columns = zip(*(example.texts for example in examples), strict=True)
    inputs = tokenizer()(*(list(column) for column in columns), padding=True, return_tensors="pt")
    labels = tensor([example.label for example in examples])
    texts = {"examples": examples, "tokenizer": tokenizer(), "max_length": 24}
    return Step(model=model, inputs=dict(inputs), labels=labels, **texts, **options)
