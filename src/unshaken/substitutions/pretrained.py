"""Pretrained models that judge or propose words: loading them, and running many texts in full batches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from unshaken.matching import check_vocabulary
from unshaken.pretrained import load
from unshaken.truncation import tokenised

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_UNSEEN = re.compile("[\U000f0000-\U000ffffd]")  # private letters, with which a smoothed vocabulary marks its words
LONGEST = 512  # tokens; some tokenizers state no limit at all


@lru_cache(maxsize=4)
def load_pretrained(kind: str, name: str) -> tuple[Any, Any]:
    """(model, tokenizer) of a hub name or a folder, in evaluation mode, on the GPU where there is one.

    `kind` is the name of a transformers auto class, such as "AutoModelForCausalLM".
    """
    tokenizer, model = load("AutoTokenizer", name), load(kind, name)
    check_vocabulary(tokenizer, model, name)
    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval(), tokenizer


def longest_input(tokenizer: Any) -> int:
    return int(min(tokenizer.model_max_length, LONGEST))


def token_rows(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    found = tokenised(tokenizer, [(text,) for text in texts], longest_input(tokenizer), return_attention_mask=False)
    return list(found["input_ids"])


def batches(
    model: Any, tokenizer: Any, texts: Sequence[str], size: int
) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
    """Tokenised batches of texts of like length, each with the rows of `texts` it holds, on the model's device."""
    if not texts:
        return
    encoded = token_rows(tokenizer, texts)
    order = sorted(range(len(texts)), key=lambda row: len(encoded[row]))
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        ids = torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(encoded[row]) for row in rows], batch_first=True, padding_value=pad
        )
        lengths = torch.tensor([len(encoded[row]) for row in rows])
        mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
        yield rows, {"input_ids": ids.to(model.device), "attention_mask": mask.to(model.device)}


def whole_words(tokenizer: Any) -> Iterator[tuple[str, int]]:
    """(word, id) of the vocabulary entries that begin a word, in the order of their ids."""
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    special = set(tokenizer.all_special_tokens)
    # Byte-level BPE and SentencePiece mark the start of a word, WordPiece marks the rest of it.
    markers = tuple(mark for mark in ("Ġ", "▁") if sum(token.startswith(mark) for token, _ in vocabulary) > 1)
    for token, row in vocabulary:
        if token in special or token.startswith("##") or (markers and not token.startswith(markers)):
            continue
        word = token[1:] if markers else token
        if _WORD.fullmatch(word):
            yield word, row


def words_as_read(tokenizer: Any) -> Iterator[tuple[str, int]]:
    """(word, id) of the words that a tokenizer reads in one piece.

    The words of a smoothed vocabulary have added tokens, beside which the entry of the same word is read no more.
    """
    added = [_UNSEEN.sub("", token) for token in tokenizer.get_added_vocab() if _UNSEEN.search(token)]
    smoothed = {word.lower() for word in added if _WORD.fullmatch(word)}  # case variants share a vector
    if not smoothed:
        yield from whole_words(tokenizer)
        return
    words = [word for word, _ in whole_words(tokenizer) if word.lower() not in smoothed] + sorted(smoothed)
    beside = len(tokenizer("a", add_special_tokens=False)["input_ids"])
    read = tokenizer([f"a {word}" for word in words], add_special_tokens=False)["input_ids"]
    yield from ((word, ids[-1]) for word, ids in zip(words, read, strict=True) if len(ids) == beside + 1)
