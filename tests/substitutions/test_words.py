"""Segmentation loses nothing, swaps touch nothing else, and visibility agrees with what a real tokenizer keeps."""

import random
from types import SimpleNamespace

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from unshaken.embedded import minilm_path
from unshaken.errors import UnshakenError
from unshaken.substitutions.words import Words, join, match_case, segment, visible_positions, visible_words

FRAGMENTS = [
    "don't", "is", "n't", "'s", " ", "  ", "\n", "\t", "<br />", "&amp;", "👩‍👩‍👧", "🇩🇪",
    "❤️", "中文", "café", "cafe\u0301", "हिन्दी", "\u200b", "\x00", "\x1b[0m", "well-made", "3.5", "1,000", "...",
    "O'Neil", "—", "GOOD", "İstanbul", "ﬁ", "\ufeff", "’", "'", "-", "<", ">", "_",
    "#tag", "\u202e",
]  # fmt: skip
ANY_TEXT = st.one_of(st.text(), st.lists(st.sampled_from(FRAGMENTS)).map("".join))


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(minilm_path())


@given(ANY_TEXT)
def test_any_text_round_trips(text):
    words = segment(text)
    assert words.text == text
    assert words.replace({}) == text
    assert words.replace(dict(enumerate(words)), carry_case=False) == text
    edges = [edge for span in words.spans for edge in span]
    assert edges == sorted(edges)
    assert all(word and not any(character.isspace() for character in word) for word in words)


@given(ANY_TEXT, st.data())
def test_a_swap_changes_nothing_else(text, data):
    words = segment(text)
    if not len(words):
        return
    position = data.draw(st.integers(0, len(words) - 1))
    start, end = words.spans[position]
    swapped = words.replace({position: "zebra"}, carry_case=False)
    assert swapped == text[:start] + "zebra" + text[end:]


@given(ANY_TEXT.filter(lambda text: not set("<>&") & set(text)), st.data())
def test_the_other_words_stay_words(text, data):
    words = segment(text)
    if not len(words):
        return
    position = data.draw(st.integers(0, len(words) - 1))
    if not regex.match(r"(?!\p{Han})[\p{L}\p{N}]", words[position]):
        return  # letters may touch a Han character or an emoji, and would run into the new word without it
    again = segment(words.replace({position: "zebra"}, carry_case=False))
    assert again.surfaces == (*words[:position], "zebra", *words[position + 1 :])


@given(ANY_TEXT, st.integers(0, 5), st.integers(0, 5))
def test_a_part_holds_its_words(text, start, length):
    words = segment(text)
    part = words.part(start, start + length)
    assert part.surfaces == words[start : start + length]
    assert part.text in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It's a GOOD film!", ["It's", "a", "GOOD", "film"]),
        ("it 's n't , is n't it ?", ["it", "'s", "n't", "is", "n't", "it"]),
        ("'quoted' and ‘so’", ["quoted", "and", "so"]),
        ("great<br /><br />film &amp; more", ["great", "film", "more"]),
        ("2 < 3 and 5 > 4", ["2", "3", "and", "5", "4"]),
        ("a well-made, 3.5-star film -- really", ["a", "well-made", "3.5-star", "film", "really"]),
        ("1,000 films.", ["1,000", "films"]),
        ("😀👍🏽 great🇩🇪", ["😀", "👍🏽", "great", "🇩🇪"]),
        ("日本語 cafe\u0301", ["日", "本", "語", "cafe\u0301"]),
        ("", []),
        ("?! ...", []),
    ],
)
def test_what_a_word_is(text, expected):
    assert list(segment(text)) == expected


@pytest.mark.parametrize(
    ("original", "replacement", "expected"),
    [
        ("GOOD", "great", "GREAT"),
        ("Good", "great", "Great"),
        ("good", "great", "great"),
        ("A", "one", "One"),
        ("iPhone", "phone", "phone"),
        ("good", "Paris", "Paris"),
        ("GOOD", "", ""),
        ("👍", "great", "great"),
    ],
)
def test_case_is_carried_over(original, replacement, expected):
    assert match_case(original, replacement) == expected


def test_special_tokens_keep_their_case():
    words = segment("GOOD film")
    assert words.replace({0: "<unk>"}, carry_case=False) == "<unk> film"
    assert words.replace({0: "<unk>"}) == "<UNK> film"


def test_joined_words_are_where_they_say():
    words = join(["do", "n't", "go"])
    assert words == Words("do n't go", ((0, 2), (3, 6), (7, 9)))


PLAIN = "the film was good and we like it so much that they made a new one about war and love in the city"
COMMON = segment(PLAIN).surfaces


def _pair(seed):
    chance = random.Random(seed)
    return tuple(" ".join(chance.choices(COMMON, k=chance.randint(1, 30))) for _ in range(2))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("columns", [1, 2])
def test_visible_words_are_those_the_model_sees(tokenizer, seed, columns):
    """The definition itself: a word is visible if and only if another word in its place changes the input ids."""
    texts = _pair(seed)[:columns]
    max_length = 24

    def ids(of):
        return tokenizer(*of, truncation=True, max_length=max_length)["input_ids"]

    visible = visible_positions(tokenizer, [texts], max_length)[0]
    for column, text in enumerate(texts):
        words = segment(text)
        for position in range(len(words)):
            changed = list(texts)
            changed[column] = words.replace({position: "king"})
            assert (ids(changed) != ids(texts)) == (position in visible[column])


def test_a_word_cut_by_truncation_is_still_visible(tokenizer):
    text = "a counterrevolutionaries film"
    pieces = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert len(pieces) > 4
    assert visible_positions(tokenizer, [(text,)], max_length=5) == [((0, 1),)]


def test_control_characters_that_the_tokenizer_drops_do_not_shift_words(tokenizer):
    text = "a\x00 \x1b good\u200b film"
    assert visible_positions(tokenizer, [(text,)], max_length=128) == [((0, 1, 2),)]


@pytest.mark.parametrize("kind", ["sentence-piece", "byte-level"])
def test_a_word_whose_blank_alone_is_seen_is_visible(kind):
    """Before a word of unknown letters the blank is a token; that of a known word is part of it."""
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    if kind == "byte-level":
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
        trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>"])
    backend.train_from_iterator([PLAIN] * 4, trainer)
    bpe = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    text, other = "the film ж was good", "the film was was good"

    def ids(of, length):
        return bpe(of, truncation=True, max_length=length)["input_ids"]

    length = next(count for count in range(2, 9) if bpe.convert_ids_to_tokens(ids(text, count))[-1] in ("▁", "Ġ"))
    assert ids(text, length) != ids(other, length)
    assert visible_positions(bpe, [(text,)], length) == [((0, 1, 2),)]
    assert visible_positions(bpe, [(text,)], length - 1) == [((0, 1),)]


def test_visible_words_under_byte_level_bpe_and_left_truncation():
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator([PLAIN], trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet))
    bpe = PreTrainedTokenizerFast(tokenizer_object=backend, truncation_side="left")
    text = "the film 👍🏽 was good and we like it"
    encoding = bpe(text, truncation=True, max_length=4).encodings[0]
    seen = visible_words(segment(text), 0, encoding)
    assert seen[-1] == len(segment(text)) - 1
    assert 0 < len(seen) <= 4
    everything = bpe(text).encodings[0]
    assert visible_words(segment(text), 0, everything) == tuple(range(len(segment(text))))


def test_a_token_may_hold_two_words_and_end_where_the_next_begins():
    """As tokens of Chinese texts do."""

    def seen(text, *offsets):
        encoding = SimpleNamespace(offsets=offsets, sequence_ids=[0] * len(offsets))
        return visible_words(segment(text), 0, encoding)

    assert segment("电影好").surfaces == ("电", "影", "好")
    assert seen("电影好", (0, 2)) == (0, 1)
    assert seen("电影好", (0, 1)) == (0,)
    assert seen("电影好", (1, 3)) == (1, 2)
    assert seen("a good film!!", (0, 1), (2, 4), (4, 6), (7, 11), (11, 12), (12, 13)) == (0, 1, 2)
    assert seen("a b c d", (6, 7)) == (3,)


def test_a_slow_tokenizer_is_refused():
    with pytest.raises(UnshakenError, match="slow tokenizer"):
        visible_positions(object(), [("a text",)], 8)
    assert visible_positions(object(), [], 8) == []
