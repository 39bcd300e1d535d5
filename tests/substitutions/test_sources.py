"""Dictionaries, typos, word vectors and masked language models as substitution sets; and what they cover."""

import hashlib
import itertools
import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

from unshaken.embedded import minilm_path
from unshaken.errors import UnshakenError
from unshaken.examples import Example, Examples
from unshaken.names import from_spec
from unshaken.substitutions import (
    SUBSTITUTIONS,
    All,
    Dictionary,
    EmbeddingNeighbours,
    Homoglyphs,
    Invisible,
    Leet,
    MaskedLM,
    Spacing,
    TwoHops,
    Typos,
    Unmended,
    Unseen,
    WordNet,
    coverage,
    joined_substitutions,
    parse_substitutions,
    require_coverage,
    segment,
)
from unshaken.substitutions import masked_lm as masked_lm_module
from unshaken.substitutions.base import content_hash
from unshaken.substitutions.typos import NEIGHBOURS

SIGNS = "\u200b\u200c\u2060\u00ad"


def written(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(path)


# Dictionary


def test_a_dictionary_looks_up_as_written_then_in_lower_case(tmp_path):
    path = written(tmp_path / "d.json", {"film": ["movie", "Film", "picture", "movie"], "US": ["America"], "the": []})
    dictionary = Dictionary.load(path)
    assert dictionary.for_text(segment("The Film of the US, of us")) == [
        [],
        ["movie", "picture"],
        [],
        [],
        ["America"],
        [],
        [],
    ]
    assert Dictionary.load(path, lowercase=False).for_text(segment("The Film")) == [[], []]
    assert from_spec("substitutions", f"dictionary:path={path}", SUBSTITUTIONS) == dictionary


def test_a_dictionary_tells_its_file_and_the_words_that_have_replacements(tmp_path):
    path = written(tmp_path / "near.json", {"film": ["movie"], "the": [], "good": ["fine", "nice"]})
    dictionary = Dictionary.load(path)
    assert dictionary.provenance == "near.json: 2 words with replacements (lowercase=True)"
    assert dictionary.vocabulary() == ["film", "good"]
    assert parse_substitutions(f"dictionary:path={path},lowercase=false, typos") == (
        Dictionary.load(path, lowercase=False),
        Typos(),
    )
    assert parse_substitutions(f"two-hops: dictionary:{path}") == (TwoHops(dictionary),)
    same = Dictionary.load(path)
    assert {dictionary: 1}[same] == 1  # equal sets are one key


class AfterVery(Dictionary):
    """Replaces a word only behind "very": what it offers depends on the words around."""

    def candidates(self, words, position):
        return super().candidates(words, position) if position and words[position - 1] == "very" else []


class AfterVeryTypos(Typos):
    """The same of a set that says of itself that it goes by the word alone."""

    def candidates(self, words, position):
        return super().candidates(words, position) if position and words[position - 1] == "very" else []


class FirstOnly(Dictionary):
    def for_text(self, words):
        return [found if at == 0 else [] for at, found in enumerate(super().for_text(words))]


@pytest.mark.parametrize("kind", [Dictionary, AfterVery, FirstOnly])
def test_many_texts_have_the_candidates_of_each(kind):
    dictionary = kind(entries={"good": ["great", "fine"], "film": ["movie"]})
    texts = [segment("Good film, very good"), segment(""), segment("a very good FILM, very film")]
    together = dictionary.for_texts(texts)
    assert together == [dictionary.for_text(words) for words in texts]
    together[0][0].append("changed")  # the lists are the caller's own
    assert dictionary.for_texts(texts) == [dictionary.for_text(words) for words in texts]
    assert "changed" not in together[0][3]


def test_the_fingerprint_of_a_dictionary_is_its_content(tmp_path):
    one = Dictionary.load(written(tmp_path / "a.json", {"a": ["b"], "c": ["d", "e"]}))
    same = Dictionary.load(written(tmp_path / "b.json", {"c": ["d", "e"], "a": ["b"]}))
    assert one.fingerprint == same.fingerprint
    others = [{"a": ["b"], "c": ["e", "d"]}, {"a": ["b", "c"], "d": ["e"]}]
    assert len({one.fingerprint, *(Dictionary(entries=other).fingerprint for other in others)}) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ([["a", "b"]], "a list"),
        ({"a": "b"}, "the entry of 'a' is a text"),
        ({"fine": ["x"], "b": ["c", 3]}, "the entry of 'b' holds 3"),
        ({"b": [" "]}, "the entry of 'b'"),
        ({"a": []}, "no word has a replacement"),
        ({}, "no word has a replacement"),
    ],
)
def test_a_bad_dictionary_names_the_key(tmp_path, content, message):
    with pytest.raises(UnshakenError, match=message):
        Dictionary.load(written(tmp_path / "bad.json", content))


def test_a_dictionary_made_in_python_has_words_for_keys():
    with pytest.raises(UnshakenError, match="the key 3 is the int 3, not a word"):
        Dictionary(entries={"good": ["fine"], 3: ["three"]})


def test_a_missing_dictionary(tmp_path):
    with pytest.raises(UnshakenError, match="no such file"):
        Dictionary.load(tmp_path / "none.json")


# Typos


def test_each_kind_of_typo():
    assert Typos(kinds=("swap",)).candidates(["movie"], 0) == ["mvoie", "moive"]
    assert Typos(kinds="drop").candidates(["movie"], 0) == ["mvie", "moie", "move"]
    assert Typos(kinds="repeat").candidates(["movie"], 0) == ["moovie", "movvie", "moviie"]
    assert "mivie" in Typos(kinds="key").candidates(["movie"], 0)
    assert Typos(kinds="swap|drop").candidates(["Good"], 0) == ["God"]  # swapping equal letters is no typo


def test_typos_in_capitals_are_capitals_and_what_has_no_letters_only_has_none():
    assert Typos(kinds="key").candidates(["EQqE"], 0) == ["EWqE", "EAqE", "EQwE", "EQaE"]
    assert Typos(kinds="key|drop").candidates(["film"], 0)[-2:] == ["flm", "fim"]  # in the order that is asked for
    for word in ("film-like", "3dfilm", "don't", "fil"):
        assert Typos().candidates([word], 0) == []
    assert Typos(min_length=3).candidates(["fil"], 0)[0] == "fl"
    assert Typos(kinds="swap").candidates(["GOoD"], 0) == []  # in another case it is the word itself


def test_typos_of_other_settings_have_another_fingerprint():
    kinds = ("swap", "drop", "repeat", "key", "swap|drop", "drop|swap", "swap|drop|repeat|key")
    prints = {Typos(kinds=kind, min_length=length).fingerprint for kind in kinds for length in (3, 4)}
    assert len(prints) == 2 * len(kinds)
    assert Typos().fingerprint == Typos(kinds="swap|drop|repeat|key", min_length=4).fingerprint


def test_keyboard_neighbours_are_mutual():
    assert set(NEIGHBOURS["g"]) == set("fhtyvb")
    assert (set(NEIGHBOURS["q"]), set(NEIGHBOURS["l"]), set(NEIGHBOURS["m"])) == (set("wa"), set("kop"), set("njk"))
    assert all(letter in NEIGHBOURS[other] for letter, others in NEIGHBOURS.items() for other in others)


@given(st.text(max_size=10))
def test_typos_keep_the_ends_and_stay_near(word):
    found = Typos().candidates([word], 0)
    assert len(set(found)) == len(found)
    for typo in found:
        assert (typo[0], typo[-1]) == (word[0], word[-1])
        assert abs(len(typo) - len(word)) <= 1
        assert typo.lower() != word.lower()
    if len(word) < 4:
        assert found == []


@pytest.mark.parametrize("settings", [{"kinds": "swop"}, {"kinds": ()}, {"min_length": 1}])
def test_bad_typo_settings(settings):
    with pytest.raises(UnshakenError):
        Typos(**settings)


# Word vectors

VECTORS = {
    "good": (1.0, 0.1),
    "bad": (1.0, 0.12),
    "great": (1.0, 0.2),
    "Good": (1.0, 0.1),
    "fine": (1.0, 1.0),
    "film": (0.0, 1.0),
    "3d": (1.0, 0.1),
}


@pytest.fixture
def vector_file(tmp_path):
    return written(tmp_path / "v.txt", "".join(f"{word} {x} {y}\n" for word, (x, y) in VECTORS.items()))


def test_neighbours_by_cosine_without_antonyms(vector_file):
    assert EmbeddingNeighbours(vectors=vector_file).candidates(["GOOD"], 0) == ["great", "fine"]
    assert EmbeddingNeighbours(vectors=vector_file, drop_antonyms=False).candidates(["good"], 0) == [
        "bad",
        "great",
        "fine",
    ]
    assert EmbeddingNeighbours(vectors=vector_file, k=1).candidates(["good"], 0) == ["great"]
    assert EmbeddingNeighbours(vectors=vector_file, threshold=0.9).candidates(["good"], 0) == ["great"]
    assert EmbeddingNeighbours(vectors=vector_file).candidates(["unknown"], 0) == []


def test_a_text_is_looked_up_in_one_product(vector_file):
    words = segment("A good film, a great film")
    source = EmbeddingNeighbours(vectors=vector_file)
    one_by_one = EmbeddingNeighbours(vectors=vector_file, k=50)
    assert source.for_text(words) == [one_by_one.candidates(words, at) for at in range(len(words))]


def test_neighbours_agree_with_brute_force(tmp_path):
    rng = np.random.default_rng(0)
    names = [f"{a}{b}x" for a in "abcdefghijklmnopqrst" for b in "abcdefghijklmnopqrst"]
    vectors = rng.normal(size=(len(names), 8)).astype(np.float32)
    rows = "".join(f"{name} {' '.join(map(str, row))}\n" for name, row in zip(names, vectors.tolist(), strict=True))
    source = EmbeddingNeighbours(vectors=written(tmp_path / "w.txt", f"{len(names)} 8\n{rows}"), k=5, threshold=0.3)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = unit @ unit.T
    for row, name in enumerate(names):
        order = [other for other in np.argsort(-cosines[row]) if other != row and cosines[row, other] >= 0.3][:5]
        assert source.candidates([name], 0) == [names[other] for other in order]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a 1 2\nb 1\n", "line 2"),
        ("a 1 x\n", "line 1"),
        ("a 1 nan\n", "line 1"),
        ("", "fewer than two words"),
        ("a 0 0\nb 1 1\n", "fewer than two words"),
    ],
)
def test_a_bad_vector_file_names_the_line(tmp_path, content, message):
    with pytest.raises(UnshakenError, match=message):
        EmbeddingNeighbours(vectors=written(tmp_path / "v.txt", content)).candidates(["a"], 0)


def test_bad_neighbour_settings(vector_file):
    for settings in ({}, {"vectors": vector_file, "model": "x"}, {"vectors": vector_file, "k": 0}):
        with pytest.raises(UnshakenError):
            EmbeddingNeighbours(**settings)
    with pytest.raises(UnshakenError, match="no such file"):
        EmbeddingNeighbours(vectors="/nowhere.txt").candidates(["a"], 0)


def test_two_words_are_enough_and_bytes_that_are_no_text_stop_nothing(tmp_path):
    path = tmp_path / "two.txt"
    path.write_bytes(b"good 1 0\nfine 1 0.1\nb\xff\xfed 1 0.2\n")
    assert EmbeddingNeighbours(vectors=str(path)).candidates(["good"], 0) == ["fine"]
    opposite = written(tmp_path / "opposite.txt", "good 1 0\nfine -1 0\n")
    assert EmbeddingNeighbours(vectors=opposite, threshold=-1).candidates(["good"], 0) == ["fine"]
    assert EmbeddingNeighbours(vectors=opposite, threshold=1).candidates(["good"], 0) == []
    for threshold in (-1.1, 1.1):
        with pytest.raises(UnshakenError, match=r"in \[-1, 1\]"):
            EmbeddingNeighbours(vectors=opposite, threshold=threshold)


def test_the_fingerprint_of_vectors_is_their_content(tmp_path, vector_file):
    copy = written(tmp_path / "copy.txt", Path(vector_file).read_text(encoding="utf-8"))
    assert EmbeddingNeighbours(vectors=copy).fingerprint == EmbeddingNeighbours(vectors=vector_file).fingerprint
    changed = written(tmp_path / "changed.txt", Path(vector_file).read_text(encoding="utf-8").replace("0.2", "0.3"))
    assert EmbeddingNeighbours(vectors=changed).fingerprint != EmbeddingNeighbours(vectors=vector_file).fingerprint


def test_input_embeddings_of_a_real_model_give_whole_words():
    source = EmbeddingNeighbours(model=str(minilm_path()), k=8, threshold=0.4)
    found = source.candidates(["movie"], 0)
    assert "film" in found
    assert not any(word.startswith(("#", "[")) for word in found)


# Masked language models


@pytest.fixture(scope="module")
def masked_lm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlm")
    tokenizer = AutoTokenizer.from_pretrained(minilm_path())
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        initializer_range=1.0,
    )  # fmt: skip
    BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


TEXTS = [segment("A good film about the sea"), segment("we watched it"), segment("A longer text, with a bad ending!")]


def test_masked_lm_candidates_are_its_most_likely_words(masked_lm):
    model = BertForMaskedLM.from_pretrained(masked_lm).eval()
    tokenizer = AutoTokenizer.from_pretrained(masked_lm)
    inputs = tokenizer("A [MASK] film about the sea", return_tensors="pt")
    with torch.no_grad():
        logits = model(**inputs).logits[0, inputs["input_ids"][0].tolist().index(tokenizer.mask_token_id)]
    ranked = tokenizer.convert_ids_to_tokens(logits.argsort(descending=True).tolist())
    expected = [token for token in ranked if token.isalpha() and token != "good"][:10]
    assert MaskedLM(model=masked_lm, k=10, drop_antonyms=False).candidates(TEXTS[0], 1) == expected


def test_masked_lm_inserts_behind_a_word(masked_lm):
    model = BertForMaskedLM.from_pretrained(masked_lm).eval()
    tokenizer = AutoTokenizer.from_pretrained(masked_lm)
    inputs = tokenizer("A good [MASK] film about the sea", return_tensors="pt")
    with torch.no_grad():
        logits = model(**inputs).logits[0, inputs["input_ids"][0].tolist().index(tokenizer.mask_token_id)]
    ranked = tokenizer.convert_ids_to_tokens(logits.argsort(descending=True).tolist())
    inserted = [f"good {token}" for token in ranked if token.isalpha() and token != "good"][:5]
    options = {"model": masked_lm, "k": 5, "drop_antonyms": False}
    assert MaskedLM(**options, edits="insert").candidates(TEXTS[0], 1) == inserted
    replaced = MaskedLM(**options).candidates(TEXTS[0], 1)
    both = MaskedLM(**options, edits="replace|insert")
    assert both.for_texts(TEXTS)[0][1] == [*replaced, *inserted]
    assert both.fingerprint != MaskedLM(**options).fingerprint
    assert TEXTS[0].replace({1: inserted[0]}).startswith(f"A {inserted[0]} film")
    with pytest.raises(UnshakenError, match="edit"):
        MaskedLM(model=masked_lm, edits="merge")


def test_masked_lm_merges_two_words_and_leaves_out_the_unlikely(masked_lm):
    model = BertForMaskedLM.from_pretrained(masked_lm).eval()
    tokenizer = AutoTokenizer.from_pretrained(masked_lm)

    def ranked(text):
        """Whole words and their probabilities, most likely first."""
        inputs = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            logits = model(**inputs).logits[0, inputs["input_ids"][0].tolist().index(tokenizer.mask_token_id)]
        found = zip(tokenizer.convert_ids_to_tokens(range(len(logits))), logits.softmax(0).tolist(), strict=True)
        return sorted(((p, token) for token, p in found if token.isalpha() and token != "good"), reverse=True)

    def between(found, at):
        return (found[at - 1][0] + found[at][0]) / 2

    replaced, inserted = ranked("A [MASK] film about the sea"), ranked("A good [MASK] film about the sea")
    merged, last = ranked("A [MASK] about the sea"), ranked("A longer text, with a [MASK]")
    source = MaskedLM(
        model=masked_lm, k=9, drop_antonyms=False, edits="replace|insert",
        least=between(replaced, 4), least_merged=between(merged, 7),
    )  # fmt: skip
    expected = [token for _, token in replaced[:4]] + [f"good {token}" for _, token in inserted[:9]]
    assert source.candidates(TEXTS[0], 1) == expected
    likely = [[token for p, token in found if p >= source.least_merged][:9] for found in (merged, last)]
    assert len(likely[0]) == 7
    assert source.for_pairs([(TEXTS[0], 1), (TEXTS[2], 5)]) == likely
    assert source.fingerprint != replace(source, least=0.0).fingerprint != replace(source, least_merged=0.0).fingerprint
    with pytest.raises(UnshakenError, match="least"):
        replace(source, least=1.0)


def test_masked_lm_gives_neither_the_word_itself_nor_an_opposite_of_either_word_of_two(masked_lm):
    every = MaskedLM(model=masked_lm, k=10**5, drop_antonyms=False)
    found = every.candidates(segment("A Good film"), 1)
    assert {"bad", "film", "great"} <= set(found)
    assert "good" not in found
    assert every.candidates(segment("a well-made film"), 1)  # a word as well as any other
    opposite = MaskedLM(model=masked_lm, k=10**5, least_merged=0.0)
    merged = opposite.for_pairs(
        [(segment("bad films"), 0), (segment("truly bad"), 0), (segment("bad but truly fine"), 2)]
    )
    assert ["good" in words for words in merged] == [False, False, True]
    assert all("film" in words for words in merged)


def test_a_mask_in_small_letters_stands_for_words_in_capitals():
    """As RoBERTa's does."""
    source = MaskedLM(model="roberta")
    source.__dict__["_loaded"] = (None, SimpleNamespace(mask_token="<mask>"))
    gaps = [source._masked(segment("A GOOD Film"), 1, edit).text for edit in ("replace", "insert", "merge")]
    assert gaps == ["A <mask> Film", "A GOOD <mask> Film", "A <mask>"]


def test_masked_lm_rereads_a_word_that_it_sees(masked_lm):
    model = BertForMaskedLM.from_pretrained(masked_lm).eval()
    tokenizer = AutoTokenizer.from_pretrained(masked_lm)
    inputs = tokenizer(TEXTS[0].text, return_tensors="pt")
    word = TEXTS[0][1]
    place = inputs["input_ids"][0].tolist().index(tokenizer.convert_tokens_to_ids(word))
    with torch.no_grad():
        ranked = model(**inputs).logits[0, place].argsort(descending=True).tolist()
    found = MaskedLM(model=masked_lm, k=5, drop_antonyms=False, edits="reread")
    words = [found._vocabulary[token] for token in ranked if token in found._vocabulary]
    assert found.candidates(TEXTS[0], 1) == [other for other in words if other != word][:5]
    replaced = MaskedLM(model=masked_lm, k=5, drop_antonyms=False)
    assert found.candidates(TEXTS[0], 1) != replaced.candidates(TEXTS[0], 1)  # what it sees counts
    unknown = segment("a unheardofword film")  # several tokens, or none of its own: masked
    assert found.candidates(unknown, 1) == replaced.candidates(unknown, 1)


def test_masked_lm_in_batches_equals_one_at_a_time(masked_lm):
    batched = MaskedLM(model=masked_lm, k=8, batch_size=4).for_texts(TEXTS)
    single = [
        [MaskedLM(model=masked_lm, k=8, batch_size=1).candidates(words, at) for at in range(len(words))]
        for words in TEXTS
    ]
    assert batched == single
    assert batched[0][0] == batched[0][3] == []  # function words are left alone
    assert all(len(found) == 8 for found in (batched[0][1], batched[2][5]))


def test_masked_lm_keeps_what_is_asked_where_it_forgets(masked_lm, monkeypatch):
    """A text that is known already is asked about together with so many new ones that what is known is forgotten."""
    expected = MaskedLM(model=masked_lm, k=8).for_texts(TEXTS)
    forgetful = MaskedLM(model=masked_lm, k=8)
    forgetful.for_text(TEXTS[0])
    monkeypatch.setattr(masked_lm_module, "CACHED", len(forgetful._known))
    assert forgetful.for_texts(TEXTS) == expected
    known = dict(forgetful._known)
    assert forgetful.for_texts(TEXTS[:2]) == expected[:2]
    assert forgetful._known == known  # nothing is new, so nothing is forgotten


def test_masked_lm_answers_two_threads(masked_lm, monkeypatch):
    expected = MaskedLM(model=masked_lm, k=8).for_texts(TEXTS)
    monkeypatch.setattr(masked_lm_module, "CACHED", 1)  # each call forgets
    shared = MaskedLM(model=masked_lm, k=8, batch_size=1)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(shared.for_text, TEXTS * 8))
    assert found == expected * 8


def test_masked_lm_takes_plain_word_lists(masked_lm):
    source = MaskedLM(model=masked_lm, k=8)
    assert source.candidates(["we", "watched", "it"], 1) == source.for_text(TEXTS[1])[1]


def test_masked_lm_fingerprint_is_of_the_weights(masked_lm, tmp_path):
    model = BertForMaskedLM.from_pretrained(masked_lm)
    with torch.no_grad():
        model.get_input_embeddings().weight[0, 0] += 1
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(masked_lm).save_pretrained(tmp_path)
    assert MaskedLM(model=masked_lm).fingerprint == MaskedLM(model=masked_lm).fingerprint
    assert MaskedLM(model=masked_lm).fingerprint != MaskedLM(model=str(tmp_path)).fingerprint


def test_a_model_that_is_not_there(tmp_path):
    with pytest.raises(UnshakenError, match="cannot load"):
        MaskedLM(model=str(tmp_path)).for_text(TEXTS[0])


# Choices


KINDS_OF_SETS = (
    *("dictionary", "context", "reworded", "vectors", "wordnet", "joined"),
    *("typos", "leet", "hops", "unseen", "unmended"),
)


@pytest.mark.parametrize(
    "choices",
    [
        [("we", "Saw"), ("GOOD", "assumed", "film"), ("it",)],
        [("we", "had"), ("good", "assumed"), ("it",)],
        [("we",), ("had",), ("very", "the"), ("assumed", "Good"), ("by",)],
        [("isn’t",), ("not", "a"), ("assumed",)],
        [("assumed",), ("it", "by")],
    ],
)
@pytest.mark.parametrize(
    "kind",
    [
        "dictionary",
        "context",
        "reworded",
        "vectors",
        "wordnet",
        "joined",
        "typos",
        "leet",
        "hops",
        "unseen",
        "unmended",
    ],
)
def test_candidates_of_choices_are_those_of_every_text_that_they_make(kind, choices, vector_file):
    entries = {"good": ["great", "fine"], "film": ["movie"], "assumed": ["took"]}
    source = {
        "dictionary": Dictionary(entries=entries),
        "context": AfterVery(entries=entries),
        "reworded": AfterVeryTypos(),
        "vectors": EmbeddingNeighbours(vectors=vector_file),
        "wordnet": WordNet(),
        "joined": All((WordNet(), Dictionary(entries=entries))),
        "typos": Typos(),
        "leet": Leet(),
        "hops": TwoHops(Dictionary(entries={**entries, "great": ["large"], "took": ["had"]})),
        "unseen": Unseen(Typos(kinds=("swap", "drop")), (Dictionary(entries=entries), Typos(kinds=("drop",)))),
        "unmended": Unmended(Typos(), lambda text: re.sub(r"(.)\1", r"\1", text.lower())),
    }[kind]
    for position, forms in enumerate(choices):
        texts = itertools.product(*choices[:position], [None], *choices[position + 1 :])
        expected = [
            [source.candidates([*text[:position], form, *text[position + 1 :]], position) for form in forms]
            for text in texts
        ]
        found = source.for_choices(choices, position)
        if kind in ("context", "reworded"):
            assert found is None
        else:
            assert found == (expected[0] if all(one == expected[0] for one in expected) else None)


# Disguises


@pytest.mark.parametrize(
    ("source", "word", "forms"),
    [
        (Homoglyphs(), "Free", ["Fr\u0435e", "Fr\u04bde", "Fre\u0435", "Fre\u04bd"]),
        (Homoglyphs(limit=2), "Free", ["Fr\u0435e", "Fre\u0435"]),  # spread over its letters
        (Homoglyphs(), "fl", []),
        (Invisible(), "wet", [f"w{sign}et" for sign in SIGNS] + [f"we{sign}t" for sign in SIGNS]),
        (Invisible(limit=3), "wet", ["w\u200bet", "w\u00adet", "we\u2060t"]),
        (Invisible(), "café", []),
        (Leet(), "Set", ["537", "5et", "$et", "S3t", "Se7", "Se+"]),
        (Leet(), "FIT", ["f17", "F1T", "F!T", "FI7", "FI+"]),
        (Leet(), "FRY", []),
        (Leet(min_length=2), "do", ["d0"]),  # whole and by letter the same
        (Leet(limit=9), "test", ["7357", "7est", "+est", "t3st", "te5t", "te$t", "tes7", "tes+"]),
        (Leet(), "toast", ["70457", "+oast", "to4st", "toa5t", "toas7"]),
        (Leet(limit=1), "toast", ["70457"]),
        (Leet(), "5et", []),
        (Spacing(), "Movie", ["M o v i e", "M.o.v.i.e", "M-o-v-i-e", "Mo vie", "Mov ie"]),
        (Spacing(), "wet", ["w e t", "w.e.t", "w-e-t"]),
        (Spacing(), "we", []),
    ],
)
def test_each_disguise_is_written_out(source, word, forms):
    assert source.candidates(["a", word], 1) == forms


DISGUISES = (Homoglyphs, Invisible, Leet, Spacing)


@pytest.mark.parametrize("kind", DISGUISES)
def test_disguises_have_limits_and_fingerprints(kind, monkeypatch):
    long = ["transcontinental"]
    assert len(kind().candidates(long, 0)) <= 8 < len(kind(limit=100).candidates(long, 0))
    others = [kind(min_length=2), kind(limit=9), *(other() for other in DISGUISES if other != kind)]
    assert kind().fingerprint not in {other.fingerprint for other in others}
    for settings in ({"min_length": 1}, {"limit": 0}):
        with pytest.raises(UnshakenError, match="min_length is at least 2 and limit at least 1"):
            kind(**settings)
    before = kind().fingerprint
    for table in ("LOOKALIKES", "LEET"):
        monkeypatch.setattr(f"unshaken.substitutions.disguises.{table}", {"b": "8"})
    for signs in ("INVISIBLE", "GAPS"):
        monkeypatch.setattr(f"unshaken.substitutions.disguises.{signs}", "*")
    assert kind().fingerprint != before  # of what it writes, and not of its settings alone


# Several


def test_one_name_is_one_set_and_several_are_joined():
    assert joined_substitutions("typos:kinds=swap") == Typos(kinds="swap")
    assert joined_substitutions("typos:kinds=swap, Leet") == All((Typos(kinds="swap"), Leet()))


def test_each_source_gives_its_first_and_a_repeat_counts_for_the_first():
    one = Dictionary(entries={"good": ["fine", "nice", "great"], "film": ["movie"]})
    two = Dictionary(entries={"good": ["nice", "kind", "mild"], "bad": ["poor"], "film": []})
    joined, words = All((one, two), limit=2), segment("Good bad film")
    assert joined.by_source(words) == [[["fine", "nice"], ["kind"]], [[], ["poor"]], [["movie"], []]]
    assert joined.for_text(words) == [["fine", "nice", "kind"], ["poor"], ["movie"]]
    assert joined.vocabulary() == ["good", "film", "bad"]
    assert All((one, Typos())).vocabulary() is None
    assert All((one, two), limit=1).neighbours("good") == ["fine", "nice"]
    with pytest.raises(UnshakenError, match="All\\(limit=0\\): at least 1"):
        All((one,), limit=0)


def test_sets_may_be_joined_from_a_list_and_not_from_nothing():
    sources = [Typos(), Leet()]
    assert All(sources) == All(tuple(sources)) == All(one for one in sources)
    assert len({All(sources), All(tuple(sources)), Unseen(Typos(), [Leet()]), Unseen(Typos(), (Leet(),))}) == 2
    with pytest.raises(UnshakenError, match="none is given"):
        All(())
    assert TwoHops(Dictionary(entries={"a": ["b"], "b": ["c", "d"]}), limit=1).candidates(["a"], 0) == ["c"]
    for limit in (0, -1):
        with pytest.raises(UnshakenError, match=f"limit={limit}"):
            Unseen(Typos(), (Leet(),), limit)


def test_eight_of_each_source_unless_told_otherwise():
    """Jia et al. 2019: the 8 nearest."""
    many = Dictionary(entries={"good": list("abcdefghij"), "a": list("klmnopqrst")})
    for source in (All((many,)), TwoHops(many), Unseen(many, (Leet(),))):
        assert len(source.candidates(["good"], 0)) == 8
        assert len(replace(source, limit=9).candidates(["good"], 0)) == 9


def test_joined_sets_tell_what_they_join():
    joined = All((Typos(), Leet()), limit=3)
    assert joined.provenance == f"typos: {Typos().provenance} and leet: {Leet().provenance} (at most 3 of each)"
    assert All((Leet(),), limit=None).provenance == f"leet: {Leet().provenance}"
    sources = [{"name": one.name, "fingerprint": one.fingerprint} for one in joined.sources]
    own = {"name": "all", "provenance": joined.provenance, "fingerprint": joined.fingerprint}
    assert joined.described() == {**own, "sources": sources}
    prints = {
        *(All(sets, limit).fingerprint for sets in ((Typos(), Leet()), (Leet(), Typos())) for limit in (3, None)),
        *(TwoHops(s, n, d).fingerprint for s in (Typos(), Leet()) for n in (3, None) for d in (False, True)),
        *(Unseen(s, (Invisible(),), n).fingerprint for s in (Typos(), Leet()) for n in (3, None)),
    }
    assert len(prints) == 4 + 8 + 4


def test_what_is_unseen_is_compared_in_lower_case_and_lists_the_words_of_its_source():
    source, known = (
        Dictionary(entries={"good": ["fine", "Nice", "kind"]}),
        Dictionary(entries={"good": ["FINE", "nice"]}),
    )
    assert Unseen(source, (known,)).candidates(["good"], 0) == ["kind"]
    assert Unseen(source, (known,)).vocabulary() == ["good"]
    assert Unseen(Typos(), (known,)).vocabulary() is None


class AsWritten:
    """A reader that mends nothing, but for what is told."""

    fingerprint = "as written"

    def __init__(self, **mended):
        self.mended = mended

    def __call__(self, text):
        return self.mended.get(text, text)


def test_what_no_reader_mends_is_all_of_a_source_however_it_is_asked(masked_lm):
    """A text with its signs, many texts in one batch, a word in any context."""
    expected = MaskedLM(model=masked_lm, k=4, drop_antonyms=False)
    left = Unmended(expected).against(None)
    assert left.for_texts(TEXTS) == expected.for_texts(TEXTS)
    assert [left.for_text(words) for words in TEXTS] == expected.for_texts(TEXTS)
    selected = Unmended(WordNet()).against(None)
    assert selected.neighbours("selected") == ["chose", "took", "chosen", "taken"]
    assert selected.candidates(["selected"], 0) == ["chose", "took"]


def test_what_a_reader_mends_is_left_out_however_it_is_asked():
    source = FirstOnly(entries={"good": ["fine", "goood", "nice", "kind"], "film": ["movie"]})
    words, reader = segment("Good film"), AsWritten(goood="GOOD")
    assert Unmended(source, reader).for_text(words) == [["fine", "nice", "kind"], []]
    assert Unmended(source, reader, limit=2).for_texts([words, words]) == [[["fine", "nice"], []]] * 2
    assert Unmended(source, reader).neighbours("good") == ["fine", "nice", "kind"]
    twice = Unmended(Unmended(source)).against(reader)
    assert twice.for_text(words) == [["fine", "nice", "kind"], []]


def test_a_hash_of_texts_knows_their_borders_and_takes_any_text():
    assert len({content_hash(parts) for parts in (["ab", "c"], ["a", "bc"], ["abc"], ["abc", ""], ["\ud800"])}) == 5
    # Results of earlier versions hold it: each text behind its length in eight bytes.
    assert content_hash(["é"]) == hashlib.sha256(b"\0\0\0\0\0\0\0\2\xc3\xa9").hexdigest()


# Coverage


def examples(*texts):
    return Examples(rows=tuple(Example(id=str(n), texts=text, label=0) for n, text in enumerate(texts)), name="mine")


def test_coverage_counts():
    dictionary = Dictionary(entries={"good": ["great", "fine"], "film": ["movie"]})
    found = coverage(dictionary, examples(("a good film",), ("nothing here at all",)))
    assert (found.words, found.positions, found.choices) == (3.5, 1.0, 2.5)
    assert found.log10_space == pytest.approx(np.log10(6) / 2)
    assert (found.share_of_words, found.share_of_examples) == (2 / 7, 0.5)


def test_coverage_of_nothing():
    found = coverage(Dictionary(entries={"good": ["great"]}), examples(("?!",)))
    assert (found.words, found.positions, found.choices, found.log10_space) == (0, 0, 1, 0)
    assert (found.share_of_words, found.share_of_examples) == (0, 0)


def test_frozen_columns_do_not_count():
    pairs = examples(("a good film", "a film"))
    dictionary = Dictionary(entries={"good": ["great"]})
    assert coverage(dictionary, pairs).positions == 1
    assert coverage(dictionary, pairs, frozen_columns=(0,)).positions == 0
    with pytest.raises(UnshakenError, match="none of the words of mine"):
        require_coverage(dictionary, pairs, frozen_columns=(0,))


def test_a_set_that_reaches_nothing_is_an_error():
    data = examples(("a good film",))
    with pytest.raises(UnshakenError, match="none of the words of mine"):
        require_coverage(Dictionary(entries={"gut": ["toll"]}), data)
    assert require_coverage(WordNet(), data).positions == 2
    with pytest.raises(UnshakenError, match="no example"):
        coverage(WordNet(), examples())
