"""Tokens of rewordings put together from parts are the tokenizer's own, on real and on strange texts."""

from __future__ import annotations

import copy
import itertools
import tracemalloc
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from unshaken.embedded import minilm_path
from unshaken.substitutions import Dictionary, Substitutions, WordNet
from unshaken.substitutions.words import segment
from unshaken.tasks import load_task
from unshaken.wordings import PROBE, Recipe, TokenAssembler, Wordings, assembly
from unshaken.wordings.cuts import family_of

ENTRIES = {"good": ["great", "un-believably fine", "😀"], "film": ["movie", "motion picture"], "bad": ["Schöne", "好"]}
STRANGE = (
    "GOOD film😀, a bad film",
    "a\u200bgood film",
    "good\u0301 film; Bad-good 'film'",
    "[MASK] good film [SEP] bad",
    "",
    "好film好 good",
    "👍🏽good film👍🏽",
    "good  film\n\tbad ",
)
CORPUS = ["a good film, and a bad plot", "great movies (not good) are un-believably fine; film", "motion picture 'bad'"]


@cache
def reviews() -> list[str]:
    return [example.texts[0] for example in load_task("rotten-tomatoes").train[:48]]


@cache
def tokenizer(kind: str) -> Any:
    if kind == "bert":
        return AutoTokenizer.from_pretrained(str(minilm_path()))
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    if kind == "byte-level":
        backend = Tokenizer(models.BPE(unk_token="<unk>"))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer: Any = trainers.BpeTrainer(
            vocab_size=600, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
        )
    else:
        backend = Tokenizer(models.Unigram())
        backend.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("  ", " ")])
        backend.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=400, special_tokens=special, unk_token="<unk>")
    backend.train_from_iterator([*CORPUS, *reviews()], trainer)
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )


@cache
def with_added(kind: str) -> Any:
    """Tokens that the tokenizer finds in normalised text, across words: the default of `add_tokens`."""
    own = copy.deepcopy(tokenizer(kind))
    own.add_tokens(["new york", "new york city", "<Ad>", "covid"])
    return own


KINDS = ("bert", "byte-level", "sentence-piece")


def wordings_of(texts: tuple[str, ...], substitutions: Substitutions, probe: str | None = None) -> Wordings:
    made = Wordings.of(texts, [substitutions.for_text(segment(text)) for text in texts])
    return Wordings(texts=made.texts, places=made.places, forms=made.forms, probe=probe)


def merging(texts: tuple[str, ...], substitutions: Substitutions, probe: str | None = None) -> Wordings:
    """The same with every word that one blank parts from the next merged with it by turns."""
    places, forms, merged = [], [], []
    for column, text in enumerate(texts):
        words = segment(text)
        ends = [text[first[1] : second[0]] == " " for first, second in itertools.pairwise(words.spans)]
        for at, (found, before, after) in enumerate(
            zip(substitutions.for_text(words), [False, *ends], [*ends, False], strict=False)
        ):
            joint = ["movie", words[at], "un-made"] if after else []
            if found or joint or before:
                places.append((column, at))
                forms.append((words[at], *found, *joint, *([""] if before else [])))
                merged.append(len(joint))
    return Wordings(texts=texts, places=tuple(places), forms=tuple(forms), probe=probe, merged=tuple(merged))


def drawn(example: Wordings, rng: np.random.Generator, lowest: int = 0) -> np.ndarray:
    """A row with any choices at all places, some of them merged with the next."""
    row = rng.integers(lowest, example.sizes)
    merges, first = example.merges()
    free = np.ones(len(example), bool)
    for merge in rng.permutation(len(merges))[: len(merges) // 4]:
        pair = slice(first[merge], first[merge] + 2)
        if free[pair].all():
            row[pair], free[pair] = merges[merge][pair], False
    return row


def assert_exact(examples: list[Wordings], max_length: int, kind: str = "bert", own: Any = None) -> list[Recipe | None]:
    """Both ways to token rows, ragged and padded, against the tokenizer on whole texts."""
    own = own or tokenizer(kind)
    assembler = TokenAssembler(own, len(examples[0].texts), max_length)
    recipes = assembler.recipes(examples)
    rng = np.random.default_rng(0)
    choices = np.stack([np.concatenate([drawn(example, rng) for example in examples]) for _ in range(4)])
    ends = np.cumsum([len(example) for example in examples])[:-1]
    texts = [example.write(row) for all in choices for example, row in zip(examples, np.split(all, ends), strict=True)]
    columns = [list(column) for column in zip(*texts, strict=True)]
    whole = own(*columns, padding=True, truncation=True, max_length=max_length, return_tensors="pt")
    built = assembler.inputs(examples, recipes, choices)
    for name in whole:
        assert torch.equal(built[name], whole[name]), name

    known = [(example, recipe) for example, recipe in zip(examples, recipes, strict=True) if recipe is not None]
    if known:
        table = assembler.table([recipe for _, recipe in known])
        owner = np.repeat(np.arange(len(known)), 3)
        rows = np.zeros((len(owner), table.places), np.int16)
        for number, of in enumerate(owner):
            example = known[of][0]
            lowest = 0 if example.probe is None else PROBE
            rows[number, : len(example)] = drawn(example, rng, lowest)
        texts = [known[of][0].write(row[: len(known[of][0])]) for of, row in zip(owner, rows, strict=True)]
        expected = own(*[list(column) for column in zip(*texts, strict=True)], truncation=True, max_length=max_length)
        ragged = table.rows(owner, rows)
        assert ragged.lengths.tolist() == [len(ids) for ids in expected["input_ids"]]
        assert ragged.ids.tolist() == [token for ids in expected["input_ids"] for token in ids]
        if "token_type_ids" in expected:
            assert ragged.types.tolist() == [kind for kinds in expected["token_type_ids"] for kind in kinds]
    return recipes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("max_length", [13, 64])
@pytest.mark.parametrize("pair", [False, True])
def test_real_reviews(pair: bool, max_length: int, kind: str) -> None:
    texts, words = reviews(), WordNet()
    rows = [(text, other) for text, other in zip(texts, texts[1:] + texts[:1], strict=True)]
    probe = tokenizer(kind).unk_token
    recipes = assert_exact([wordings_of(row if pair else row[:1], words, probe) for row in rows], max_length, kind)
    put_together = sum(recipe is not None for recipe in recipes)
    assert put_together > 0.7 * len(recipes)  # otherwise nothing was tested


@pytest.mark.parametrize("kind", KINDS)
def test_deleted_words(kind: str) -> None:
    recipes = assert_exact([wordings_of((text,), WordNet(), "") for text in reviews()], 64, kind)
    assert sum(recipe is not None for recipe in recipes) > 0.3 * len(recipes)


@pytest.mark.parametrize("kind", KINDS)
def test_strange_texts_in_one_batch_with_plain_ones(kind: str) -> None:
    words = Dictionary(entries=ENTRIES)
    examples = [wordings_of((text,), words) for text in (*STRANGE, "a good film", "nothing here")]
    known = [recipe is not None for recipe in assert_exact(examples, 16, kind)]
    assert known[-2:] == [True, True]
    if kind == "bert":
        assert not known[STRANGE.index("[MASK] good film [SEP] bad")]
    assert_exact([wordings_of((text, "a bad film"), words) for text in STRANGE], 10, kind)


BRACKETS = {"good": ["MASK", "fine"], "film": ["movie", "motion picture"], "it": ["this", "[SEP"], "bad": ["CLS] dire"]}


@pytest.mark.parametrize(
    ("text", "is_cut"),
    [
        ("[film] makers of [film] (2002) [and more", True),  # a bracket in prose is no special token
        ("a film [ of 1999 ] and [film's] end", True),
        ("a [good] film", False),  # [MASK]
        ("a [ good film", True),  # the blank stays between them
        ("[bad film", False),  # [CLS]
        ("good as it is", False),  # what comes after [SEP could end it
        ("a film [UNK] film", False),
        ("a film [unk] film", True),
    ],
)
def test_only_what_may_become_a_special_token_is_tokenised_whole(text: str, is_cut: bool) -> None:
    words = Dictionary(entries=BRACKETS)
    for probe in (None, "[UNK]"):
        (recipe,) = assert_exact([wordings_of((text,), words, probe)], 24)
        assert (recipe is not None) == is_cut


ADDED = {"big": ["new"], "old": ["Ñew", "fine"], "good": ["new york", "nice"], "it": ["<ad", "this"], "flu": ["covid"]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("text", "is_cut"),
    [
        ("a big york street", False),  # new york
        ("an old york street", None),  # where accents are taken off
        ("a good city", False),  # new york city
        ("see it > here", False),
        ("a New good street", False),
        ("the flu was here", None),
        ("a nice film with a plot", True),  # nothing that begins one
    ],
)
def test_added_tokens_that_are_found_in_normalised_text(text: str, is_cut: bool | None, kind: str) -> None:
    own = with_added(kind)
    for probe in (None, "", "<Ad>"):
        example = wordings_of((text,), Dictionary(entries=ADDED | {"film": ["movie"]}), probe)
        (recipe,) = assert_exact([example], 24, kind, own)
        assert is_cut is None or (recipe is not None) == is_cut


def test_a_deleted_word_takes_its_blank_along_and_may_close_a_special_token() -> None:
    example = wordings_of(("a [ filmSEP] b",), Dictionary(entries={"filmsep": ["x"]}), "")
    assert example.write([PROBE]) == ("a [] b",)
    (recipe,) = assert_exact([example], 24)
    assert recipe is None  # one that closes too early is not told apart


@pytest.mark.parametrize(
    ("text", "probe", "is_cut"),
    [
        ("a film\x85 and more", "[UNK]", True),  # BERT's normaliser drops the sign
        ("a plot\x97good, and more", "", True),
        ("the \x84good one, a wasn\u00b4film, and 好bad好", "[UNK]", True),
        ("a good\x97plot", None, True),
        ("a good\x97plot", "", False),  # without the word and its blank, "a" and "plot" would be one word
        ("a good\x97film", "[UNK]", False),  # the tokens of each word depend on the other
        ("a ne\x85x york", None, False),  # an added token, once the word is "w"
        ("a ne\x85film york", None, True),
    ],
)
def test_what_clings_to_one_word_goes_with_it(text: str, probe: str | None, is_cut: bool) -> None:
    """Long texts often hold one such sign, and would be tokenised whole for every wording."""
    example = wordings_of((text,), Dictionary(entries=ENTRIES | {"x": ["w"]}), probe)
    (recipe,) = assert_exact([example], 24, own=with_added("bert"))
    assert (recipe is not None) == is_cut


PARTS = st.one_of(
    st.sampled_from(["good", "Film", "BAD", " ", " ", ", ", "-", "😀", "\u0301", "\u200b", "好", "[SEP]", "n't", "\n"]),
    st.sampled_from(
        [" good", " film", " bad", "<s>", "'s", ".", "  ", "[", "]", "<", "[it]", "SEP]", "\x85", "\u00b4"]
    ),
    st.text(max_size=4),
)


@settings(max_examples=120, deadline=None)
@given(
    texts=st.lists(st.lists(PARTS, max_size=12).map("".join), min_size=1, max_size=4),
    pair=st.booleans(),
    kind=st.sampled_from(KINDS),
    max_length=st.integers(7, 24),
    probe=st.sampled_from([None, "", "unknown"]),
    make=st.sampled_from([wordings_of, merging]),
)
def test_any_text(texts: list[str], pair: bool, kind: str, max_length: int, probe: str | None, make: Any) -> None:
    words = Dictionary(entries=ENTRIES | {"it": ["MASK", "this"]})
    rows = [(text, "a good plot, bad") if pair else (text,) for text in texts]
    assert_exact([make(row, words, probe) for row in rows], max_length, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_merged_words(kind: str) -> None:
    recipes = assert_exact([merging((text,), WordNet()) for text in reviews()], 64, kind)
    assert sum(recipe is not None for recipe in recipes) > 0.3 * len(recipes)


def test_a_merge_writes_one_word_for_two() -> None:
    example = merging(("A good film, so bad",), Dictionary(entries=ENTRIES), "")
    rows, first = example.merges()
    assert [example.write(row)[0] for row in rows[first == 1]] == [
        "A movie, so bad",
        "A good, so bad",
        "A un-made, so bad",
    ]
    assert [example.swaps(row) for row in rows[first == 1]][:2] == [
        ((0, 1, "good", "movie"), (0, 2, "film", "")),
        ((0, 2, "film", ""),),
    ]
    assert sorted(set(first.tolist())) == [0, 1, 3]  # a comma parts "film" and "so"
    alone, _ = example.single_swaps(example.clean)  # no word goes, and none stands for two, by itself
    assert {form for row in alone for *_, form in example.swaps(row)} == {
        form for own in ENTRIES.values() for form in own
    }
    assert wordings_of(("a good film",), Dictionary(entries=ENTRIES)).merges()[0].shape == (0, 2)


def test_equal_tokens_are_one_choice() -> None:
    words = Dictionary(entries={"good": ["great", "\u2603\u2603\u2603", "\u2602\u2602\u2602", "GREAT"]})
    example = wordings_of(("a good film",), words, "[UNK]")
    (recipe,) = TokenAssembler(tokenizer("bert"), 1, 16).recipes([example])
    assert recipe is not None
    # great and GREAT are one to an uncased tokenizer, and both runs of signs are unknown, as the probe is
    assert recipe.canonical(np.array([[0], [1], [2], [3], [4], [PROBE]])).ravel().tolist() == [0, 1, 2, 2, 1, 2]


def test_what_is_kept_of_texts_that_passed_is_small() -> None:
    """It is kept for a whole run, so memory is not that of one block before it is full."""
    pool = TokenAssembler(tokenizer("bert"), 1, 32)._pool
    tracemalloc.start()
    try:
        for first in range(0, assembly.REMEMBERED, 4096):
            pool.learn((f" {number}" for number in range(first, first + 4096)), ())
        assert len(pool.on(torch.device("cpu"))[0]) > assembly.REMEMBERED
        assert tracemalloc.get_traced_memory()[0] < 64e6
    finally:
        tracemalloc.stop()


def test_groups_of_known_strings_are_not_kept_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Substitutes that depend on the text around them make new groups of the same words."""
    monkeypatch.setattr(assembly, "REMEMBERED", 50)
    assembler, pools = TokenAssembler(tokenizer("bert"), 1, 32), set()
    for forms in itertools.islice(itertools.permutations("abcdef", 4), 200):
        (recipe,) = assembler.recipes([Wordings(texts=(forms[0],), places=((0, 0),), forms=(forms,))])
        assert recipe is not None
        pools.add(recipe.pool)
    assert len(pools) >= 4


def test_recipes_of_two_pools_make_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who keep recipes may ask about old and new ones at once."""
    assembler, examples, recipes = TokenAssembler(tokenizer("bert"), 1, 32), [], []
    monkeypatch.setattr(assembly, "REMEMBERED", 4)
    for text in ("a good film", "a bad film of good times", "so bad that it is good"):
        examples.append(wordings_of((text,), Dictionary(entries=ENTRIES)))
        recipes += assembler.recipes(examples[-1:])
    assert len({id(recipe.pool) for recipe in recipes if recipe is not None}) == 3
    choices = np.ones((1, sum(map(len, examples))), np.int64)
    texts = [example.write(np.ones(len(example), np.int64))[0] for example in examples]
    whole = tokenizer("bert")(texts, padding=True, return_tensors="pt")
    assert torch.equal(assembler.inputs(examples, recipes, choices)["input_ids"], whole["input_ids"])


def test_which_tokenizers_are_cut() -> None:
    assert [family_of(tokenizer(kind)) for kind in KINDS] == ["separators", "blanks", "blanks"]
    left = AutoTokenizer.from_pretrained(str(minilm_path()), truncation_side="left")
    assert family_of(left) is None
    backend = Tokenizer(models.WordLevel({"good": 0, "<unk>": 1}, unk_token="<unk>"))
    assert family_of(PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")) is None
