"""The shipped WordNet table: its content, its inflection and what it gives for real words."""

import gzip
import hashlib
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unshaken.errors import UnshakenError
from unshaken.names import from_spec
from unshaken.substitutions import SUBSTITUTIONS, WordNet, default_substitutions, segment
from unshaken.substitutions.function_words import is_function_word
from unshaken.substitutions.inflection import possible_lemmas, regular
from unshaken.substitutions.wordnet import table

DATA = resources.files("unshaken.substitutions").joinpath("data")
# What scripts/build_wordnet.py printed for Debian's wordnet-base 1:3.0-37.
CONTENT = "3e0ecbe972faf30e79fa82d65f4d142a934f528893a45b3fccf68f67a9b9ae8f"


def candidates(text, word, **settings):
    words = segment(text)
    return WordNet(**settings).candidates(words, words.index(word))


def test_the_table_is_the_one_that_was_built():
    packed = DATA.joinpath("wordnet.txt.gz").read_bytes()
    assert hashlib.sha256(gzip.decompress(packed)).hexdigest() == CONTENT == table().content
    assert len(packed) < 3_000_000
    assert "Princeton University" in DATA.joinpath("WORDNET-LICENSE.txt").read_text()


@pytest.mark.parametrize(
    ("text", "word", "expected"),
    [
        ("the movies", "movies", {"films", "pictures", "flicks"}),
        ("a film's end", "film's", {"movie's", "picture's"}),
        ("he purchased it", "purchased", {"bought"}),
        ("the smallest one", "smallest", {"littlest"}),
        ("a bigger one", "bigger", {"larger"}),
        ("the children", "children", {"kids", "youngsters"}),
        ("she was beginning it", "beginning", {"starting", "commencing"}),
        ("they began it", "began", {"started", "commenced"}),
        ("it quickly ended", "quickly", {"rapidly", "promptly"}),
        ("a GREAT film", "GREAT", {"outstanding"}),
        ("he selected it", "selected", {"chose"}),
        ("he has selected it", "selected", {"chosen"}),
        ("he hasn't selected it", "selected", {"chosen"}),
        ("he has often selected it", "selected", {"chosen"}),
        ("he has seen and selected it", "selected", {"chose"}),
        ("the selected one", "selected", {"chosen"}),
        ("written and selected by him", "selected", {"chosen"}),
    ],
)
def test_synonyms_take_the_form_of_the_word(text, word, expected):
    assert expected <= set(candidates(text, word))


@pytest.mark.parametrize(
    ("word", "kept", "left_out"),
    [("person", "individual", "someone"), ("become", "turn", "get"), ("take", "acquire", "need")],
)
def test_function_words_are_no_synonyms(word, kept, left_out):
    found = WordNet().candidates([word], 0)
    assert kept in found
    assert left_out not in found
    assert not any(map(is_function_word, found))


@pytest.mark.parametrize("word", ["the", "in", "is", "not", "n't", "don’t", "I", "42", "👍", "Paris", "xyzzy"])
def test_function_words_names_and_unknown_words_have_no_synonyms(word):
    assert WordNet().candidates([word], 0) == []


def test_candidates_are_lower_case_single_words_and_never_the_word():
    for lemma, _ in list(table().entries)[::97]:
        found = WordNet(rare=0).candidates([lemma.title()], 0)
        assert lemma not in found
        assert all(word == word.lower() and " " not in word and "_" not in word for word in found)
        assert len(set(found)) == len(found)


def test_rare_senses_and_the_limit():
    everything = candidates("the film", "film", rare=0)
    usual = candidates("the film", "film", rare=0.5)
    assert set(usual) < set(everything)
    assert candidates("the film", "film", limit=2) == candidates("the film", "film")[:2]
    assert everything[0] == "movie"  # WordNet's first sense comes first


@pytest.mark.parametrize(
    ("one", "other"),
    [("good", "bad"), ("Loves", "hates"), ("best", "worst"), ("awful", "superb"), ("increase", "decreased")],
)
def test_antonyms_both_ways_and_inflected(one, other):
    assert table().are_antonyms(one, other)
    assert table().are_antonyms(other, one)


def test_synonyms_are_no_antonyms():
    assert not table().are_antonyms("films", "movies")


def test_settings_are_part_of_the_fingerprint():
    assert WordNet().fingerprint == WordNet().fingerprint != WordNet(limit=3).fingerprint
    assert default_substitutions() == WordNet()


@pytest.mark.parametrize("settings", [{"rare": 2}, {"rare": -0.1}, {"limit": 0}])
def test_bad_settings(settings):
    with pytest.raises(UnshakenError, match=next(iter(settings))):
        WordNet(**settings)


def test_by_name():
    assert from_spec("substitutions", "wordnet:limit=3", SUBSTITUTIONS) == WordNet(limit=3)
    with pytest.raises(UnshakenError, match="did you mean 'wordnet'"):
        from_spec("substitutions", "word-net", SUBSTITUTIONS)


@pytest.mark.parametrize(
    ("lemma", "part", "form", "expected"),
    [
        ("story", "n", "plural", "stories"), ("boy", "n", "plural", "boys"), ("box", "n", "plural", "boxes"),
        ("woman", "n", "plural", "women"), ("human", "n", "plural", "humans"), ("news", "n", "plural", "news"),
        ("happiness", "n", "plural", None), ("illness", "n", "plural", "illnesses"),
        ("go", "v", "third", "goes"), ("try", "v", "past", "tried"), ("like", "v", "gerund", "liking"),
        ("see", "v", "gerund", "seeing"), ("die", "v", "gerund", "dying"), ("agree", "v", "past", "agreed"),
        ("big", "a", "comparative", "bigger"), ("nice", "a", "superlative", "nicest"),
        ("happy", "a", "comparative", "happier"), ("beautiful", "a", "comparative", None),
    ],
)  # fmt: skip
def test_rules(lemma, part, form, expected):
    assert regular(lemma, part, form) == expected
    if expected is not None:
        assert (lemma, form) in possible_lemmas(expected, part)


@pytest.mark.parametrize(
    ("lemma", "form", "expected"),
    [
        ("take", "past", "took"), ("take", "participle", "taken"), ("begin", "past", "began"),
        ("begin", "participle", "begun"), ("show", "past", "showed"), ("show", "participle", "shown"),
        ("cut", "past", "cut"), ("cut", "gerund", "cutting"), ("beat", "past", "beat"),
        ("beat", "participle", "beaten"), ("run", "past", "ran"), ("run", "participle", "run"),
        ("win", "past", "won"), ("plan", "past", "planned"), ("work", "past", "worked"),
        ("swell", "past", "swelled"),
    ],
)  # fmt: skip
def test_irregular_verbs(lemma, form, expected):
    assert table().inflect(lemma, "v", form) == expected


@given(st.text(max_size=12))
def test_any_string_is_a_word_without_error(word):
    assert word.lower() not in WordNet().candidates([word], 0)
