"""Tokens of rewordings put together from parts are the tokenizer's own, on real and on strange texts."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from unshaken.embedded import minilm_path
from unshaken.substitutions import Dictionary, Substitutions, WordNet
from unshaken.substitutions.pieces import WordingEncoder, Wordings
from unshaken.substitutions.words import segment
from unshaken.tasks import load_task

ENTRIES = {"good": ["great", "un-believably fine", "😀"], "film": ["movie", "motion picture"], "bad": ["Schöne", "好"]}
STRANGE = (
    "GOOD film😀, a bad film",
    "a\u200bgood film",
    "good\u0301 film; Bad-good 'film'",
    "[MASK] good film [SEP] bad",
    "",
    "好film好 good",
    "👍🏽good film👍🏽",
)


@cache
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(str(minilm_path()))


def wordings_of(texts: tuple[str, ...], substitutions: Substitutions) -> Wordings:
    return Wordings.of(texts, [substitutions.for_text(segment(text)) for text in texts])


def assert_exact(examples: list[Wordings], max_length: int, encoder: WordingEncoder | None = None) -> WordingEncoder:
    encoder = encoder or WordingEncoder(tokenizer(), len(examples[0].texts))
    sizes = np.concatenate([example.sizes for example in examples])
    choices = np.random.default_rng(0).integers(0, sizes, size=(4, len(sizes)))
    built = encoder.rows(examples, choices, max_length)
    ends = np.cumsum([len(example.places) for example in examples])[:-1]
    texts = [
        example.write(own.tolist())
        for row in choices
        for example, own in zip(examples, np.split(row, ends), strict=True)
    ]
    columns = [list(column) for column in zip(*texts, strict=True)]
    whole = tokenizer()(*columns, padding=True, truncation=True, max_length=max_length, return_tensors="np")
    for name in ("input_ids", "token_type_ids", "attention_mask"):
        np.testing.assert_array_equal(built[name], whole[name])
    return encoder


@pytest.mark.parametrize("max_length", [12, 64])
@pytest.mark.parametrize("pair", [False, True])
def test_real_reviews(pair: bool, max_length: int) -> None:
    texts = [example.texts[0] for example in load_task("rotten-tomatoes").train[:96]]
    words = WordNet()
    rows = [(text, other) for text, other in zip(texts, texts[1:] + texts[:1], strict=True)]
    examples = [wordings_of(row if pair else row[:1], words) for row in rows]
    encoder = assert_exact(examples, max_length)
    put_together = sum(encoder._recipes[example.texts] is not None for example in examples)
    assert put_together > 0.8 * len(examples)  # otherwise nothing was tested
    assert_exact(examples[40:10:-1], max_length, encoder)  # other batches of what is known


def test_strange_texts_in_one_batch_with_plain_ones() -> None:
    words = Dictionary(entries=ENTRIES)
    examples = [wordings_of((text,), words) for text in (*STRANGE, "a good film", "nothing here")]
    encoder = assert_exact(examples, 16)
    known = [encoder._recipes[example.texts] is not None for example in examples]
    assert known[-2:] == [True, True]
    assert not known[STRANGE.index("[MASK] good film [SEP] bad")]
    assert_exact([wordings_of((text, "a bad film"), words) for text in STRANGE], 10)


PARTS = st.one_of(
    st.sampled_from(["good", "Film", "BAD", " ", " ", ", ", "-", "😀", "\u0301", "\u200b", "好", "[SEP]", "n't", "\n"]),
    st.text(max_size=4),
)


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(st.lists(PARTS, max_size=12).map("".join), min_size=1, max_size=4), pair=st.booleans())
def test_any_text(texts: list[str], pair: bool) -> None:
    words = Dictionary(entries=ENTRIES)
    assert_exact([wordings_of((text, "a good plot") if pair else (text,), words) for text in texts], 14)


def test_many_lists_in_a_growing_pool() -> None:
    encoder = WordingEncoder(tokenizer(), 1)
    lists = [list(range(number % 7)) for number in range(3000)]
    numbers = np.array([encoder._pool.add(tokens) for tokens in lists])
    assert encoder._pool.join(numbers).tolist() == [token for tokens in lists for token in tokens]


def test_left_padding_is_the_tokenizers_business() -> None:
    left = AutoTokenizer.from_pretrained(str(minilm_path()), padding_side="left")
    assert not WordingEncoder(left, 1).usable
