"""A text that is cut before it is tokenised gives the tokens of the whole one, for every tokenizer that is cut for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from unshaken import truncation
from unshaken.embedded import minilm_path
from unshaken.truncation import can_cut, cut_columns

CORPUS = ["a good film , not a bad one", "the plot is slow and the end is poor", "naïve café 12 films don't end"] * 4
LENGTH = 8


def wrapped(core: Tokenizer) -> PreTrainedTokenizerFast:
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=LENGTH, **names)


def trained(model, trainer_class, normalizer, splitter) -> PreTrainedTokenizerFast:
    core = Tokenizer(model)
    core.normalizer, core.pre_tokenizer, core.decoder = normalizer, splitter, decoders.ByteLevel()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    options = {"unk_token": "[UNK]"} if trainer_class is trainers.UnigramTrainer else {}
    core.train_from_iterator(
        CORPUS, trainer_class(vocab_size=120, special_tokens=special, show_progress=False, **options)
    )
    return wrapped(core)


TOKENIZERS = {
    "MiniLM": AutoTokenizer.from_pretrained(minilm_path()),
    "byte-level BPE": trained(
        models.BPE(), trainers.BpeTrainer, None, pre_tokenizers.ByteLevel(add_prefix_space=False)
    ),
    "SentencePiece": trained(
        models.Unigram(), trainers.UnigramTrainer, normalizers.NFKC(), pre_tokenizers.Metaspace(prepend_scheme="always")
    ),
    "WordPiece": trained(
        models.WordPiece(unk_token="[UNK]"),
        trainers.WordPieceTrainer,
        normalizers.BertNormalizer(),
        pre_tokenizers.BertPreTokenizer(),
    ),
}
every_tokenizer = pytest.mark.parametrize("name", TOKENIZERS)
PIECES = st.sampled_from(
    ["good", " ", "  ", "a", "ﬁlm", "e\u0301", "é", "\u0301", "日本", "\n", "\u200d", "😀", "[SEP]", "x1 ", "-", "\x00"]
)
TEXTS = st.lists(PIECES | st.text(max_size=4), max_size=60).map("".join) | st.just("good film " * 40)


@pytest.fixture(autouse=True)
def early(monkeypatch):
    """Short texts are cut too, so that most of what hypothesis tries is."""
    monkeypatch.setattr(truncation, "FIRST", 1)
    monkeypatch.setattr(truncation, "PART", 12)


def ids(tokenizer, columns, length=LENGTH) -> list[list[int]]:
    batch = tokenizer(*columns, truncation=True, max_length=length)
    return [
        encoding.ids + encoding.type_ids + [n for pair in encoding.offsets for n in pair]
        for encoding in batch.encodings
    ]


@every_tokenizer
def test_long_texts_are_cut(name) -> None:
    """So that the others test something."""
    (column,) = cut_columns(TOKENIZERS[name], [("good film " * 1000,), ("a film",)], LENGTH)
    assert len(column[0]) < 300
    assert column[1] == "a film"


@every_tokenizer
@settings(max_examples=150)
@given(texts=st.lists(TEXTS, min_size=1, max_size=3))
def test_a_cut_changes_no_token(name, texts) -> None:
    tokenizer = TOKENIZERS[name]
    assert ids(tokenizer, cut_columns(tokenizer, [(text,) for text in texts], LENGTH)) == ids(tokenizer, [texts])


@every_tokenizer
@settings(max_examples=150)
@given(first=TEXTS, second=TEXTS)
def test_a_cut_changes_no_token_of_a_pair(name, first, second) -> None:
    tokenizer = TOKENIZERS[name]
    assert ids(tokenizer, cut_columns(tokenizer, [(first, second)], LENGTH)) == ids(tokenizer, [[first], [second]])


PAIRS = st.tuples(st.integers(0, 60), st.integers(0, 60), TEXTS, TEXTS)


@pytest.mark.full
@every_tokenizer
@pytest.mark.parametrize("length", [LENGTH, LENGTH + 1])  # leaves an odd number of tokens, and an even one
@settings(max_examples=30)
@given(pair=PAIRS)
def test_two_long_texts_are_cut_and_the_longer_one_keeps_the_odd_token(name, length, pair) -> None:
    tokenizer = TOKENIZERS[name]
    first, second = "good film " * pair[0] + pair[2], "a film " * pair[1] + pair[3]
    columns = cut_columns(tokenizer, [(first, second)], length)
    assert ids(tokenizer, columns, length) == ids(tokenizer, [[first], [second]], length)


@every_tokenizer
@pytest.mark.parametrize("more", [0, 1])
def test_both_long_texts_of_a_pair_are_cut(name, more, monkeypatch) -> None:
    monkeypatch.setattr(truncation, "PART", 50)
    # Not longer: of the whole texts, for comparison, the library keeps every pair of overflowing parts in memory.
    texts = ("good film " * (100 + more), "good film " * (101 - more))
    columns = cut_columns(TOKENIZERS[name], [texts], LENGTH)
    assert all(len(column[0]) < 750 for column in columns)
    assert ids(TOKENIZERS[name], columns) == ids(TOKENIZERS[name], [[text] for text in texts])


@every_tokenizer
@settings(max_examples=40)
@given(first=TEXTS, second=TEXTS)
def test_which_text_has_more_tokens_is_known_by_parts(name, first, second) -> None:
    tokenizer = TOKENIZERS[name]
    counts = [len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in (first, second)]
    assert truncation._has_more_tokens(tokenizer, first, second) == (counts[0] > counts[1])


def test_a_tokenizer_is_looked_at_once_until_it_has_new_tokens(monkeypatch) -> None:
    tokenizer, looked = AutoTokenizer.from_pretrained(minilm_path()), []
    look = truncation._parts_can_cut
    monkeypatch.setattr(truncation, "_parts_can_cut", lambda own: looked.append(own) or look(own))
    assert [can_cut(tokenizer), can_cut(tokenizer), len(looked)] == [True, True, 1]
    tokenizer.truncation_side = "left"
    assert not can_cut(tokenizer)
    tokenizer.truncation_side = "right"
    assert can_cut(tokenizer)
    tokenizer.add_tokens(["good film"])
    assert [can_cut(tokenizer), can_cut(tokenizer), len(looked)] == [False, False, 2]


def test_others_are_left_whole() -> None:
    text = "good film " * 1000
    left = AutoTokenizer.from_pretrained(minilm_path(), truncation_side="left")
    reaching = AutoTokenizer.from_pretrained(minilm_path())
    reaching.add_tokens(["good film"])
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    for tokenizer in (left, reaching, PreTrainedTokenizerFast(tokenizer_object=core)):
        assert not can_cut(tokenizer)
        assert cut_columns(tokenizer, [(text,)], LENGTH) == [[text]]
