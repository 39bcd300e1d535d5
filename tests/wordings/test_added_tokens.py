"""Added tokens that look at what stands beside them, and normalizers that take blanks away: each wording, exactly."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from unshaken.wordings import PROBE, TokenAssembler, Wordings

WORDS = ["a", "good", "film", "and", "the", "bad", "plot", "covid", "great", "movie"]


def bert() -> Any:
    vocabulary = {word: number for number, word in enumerate(["[UNK]", "[PAD]", "‿", "_", *WORDS])}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return wrapped(backend)


def byte_level(normalizer: Any = None) -> Any:
    backend = Tokenizer(models.BPE(unk_token="[UNK]"))
    backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return trained(backend, trainers.BpeTrainer(special_tokens=["[UNK]", "[PAD]"], initial_alphabet=alphabet))


def sentence_piece(*steps: Any) -> Any:
    backend = Tokenizer(models.BPE(unk_token="[UNK]"))
    backend.normalizer = normalizers.Sequence(list(steps)) if steps else None
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    return trained(backend, trainers.BpeTrainer(special_tokens=["[UNK]", "[PAD]"]))


def trained(backend: Any, trainer: Any) -> Any:
    backend.train_from_iterator([" ".join(WORDS)] * 3, trainer)
    return wrapped(backend)


def wrapped(backend: Any) -> Any:
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", pad_token="[PAD]")


def assert_exact(tokenizer: Any, text: str, forms: dict[str, list[str]], probe: str | None = None) -> bool:
    """Every wording as the tokenizer reads it. Returns whether they are put together from parts."""
    found = Wordings.of(
        (text,), [[forms.get(word, []) for word in Wordings(texts=(text,), places=(), forms=()).words[0]]]
    )
    example = Wordings(texts=(text,), places=found.places, forms=found.forms, probe=probe)
    assert len(example)
    assembler = TokenAssembler(tokenizer, 1, 64)
    (recipe,) = assembler.recipes([example])
    if recipe is None:
        return False
    lowest = 0 if probe is None else PROBE
    rows = np.array(list(itertools.product(*(range(lowest, len(own)) for own in example.forms))), np.int64)
    made = assembler.table([recipe]).rows(np.zeros(len(rows), np.int64), rows)
    expected = tokenizer([example.write(row)[0] for row in rows])["input_ids"]
    assert [part.tolist() for part in np.split(made.ids, np.cumsum(made.lengths)[:-1])] == expected
    return True


@pytest.mark.parametrize("sign", ["_", "‿", "\uff3f", "\u2054"])
def test_a_whole_word_does_not_end_at_a_sign_that_is_part_of_words(sign: str) -> None:
    tokenizer = bert()
    tokenizer.add_tokens([AddedToken("great", single_word=True, normalized=True)])
    assert not assert_exact(tokenizer, f"a good{sign} film", {"good": ["bad", "great"]})
    assert assert_exact(tokenizer, f"a good film {sign} film", {"good": ["bad", "great"]})


@pytest.mark.parametrize("make", [byte_level, sentence_piece])
@pytest.mark.parametrize("normalized", [True, False])
def test_a_token_may_take_the_blank_behind_it(make: Any, normalized: bool) -> None:
    tokenizer = make()
    tokenizer.add_tokens([AddedToken("great", single_word=True, rstrip=True, normalized=normalized)])
    assert not assert_exact(tokenizer, "a good film and the plot", {"good": ["bad", "great"]})
    assert assert_exact(tokenizer, "a good film and the plot", {"good": ["bad", "movie"]})


def test_a_reader_may_write_a_token_that_takes_the_blank_behind_it() -> None:
    from unshaken.readers import KnownWords, parse

    tokenizer = sentence_piece()
    tokenizer.add_tokens([AddedToken("great", single_word=True, rstrip=True)])
    reader = parse("leet", KnownWords.of(WORDS))
    example = Wordings.of(("a good film",), [[[], ["bad", "gr3at"], []]])
    assert TokenAssembler(tokenizer, 1, 64, reader).recipes([example]) == [None]


def test_a_normalizer_that_strips_leaves_the_blank_before_a_token_in_a_text_and_not_in_a_part() -> None:
    tokenizer = byte_level(normalizers.Strip())
    tokenizer.add_tokens([AddedToken("great", single_word=True, normalized=True)])
    assert not assert_exact(tokenizer, "a good film", {"good": ["bad", "great"]})
    assert assert_exact(tokenizer, "a good film", {"good": ["bad", "movie"]}, "[UNK]")  # found before normalizing


@pytest.mark.parametrize("probe", [None, ""])
def test_the_space_before_a_deleted_word_may_become_one_with_the_blank_behind_it(probe: str | None) -> None:
    tokenizer = sentence_piece(normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " "))
    example = {"good": ["bad", ""]} if probe is None else {"good": ["bad"]}
    assert not assert_exact(tokenizer, "a film\u3000good plot", example, probe)
    assert assert_exact(tokenizer, "a film good plot", example, probe)
