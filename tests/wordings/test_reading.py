"""Rows put together from parts that were read one by one are those of the whole text read and then tokenised."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer
from victims import labelled, make_tokenizer, tiny_bert

from unshaken import Victim
from unshaken.attacks import PWWS, Genetic, Greedy
from unshaken.embedded import minilm_path
from unshaken.readers import KnownWords, Readers, Spelling, Synonyms, parse
from unshaken.readers.spelling import edits
from unshaken.substitutions import SUBSTITUTIONS, All, Dictionary, Substitutions, Typos, WordNet
from unshaken.substitutions.words import segment
from unshaken.tasks import load_task
from unshaken.victims import Reading
from unshaken.wordings import PROBE, Recipe, TokenAssembler, Wordings

WORDS = Dictionary(
    entries={
        "good": ["fine", "g0od", "goo d", "wonde", "f.i.n.e", "goоd", "АВС"],
        "film": ["movie", "rful", "f i l m", "fi lm", "fil\u200bm", "ﬁlm", "a"],
        "bad": ["b4d", "aw", "р", "'s", "<b", "ful", "ﾞx"],
    }
)
SOURCES: dict[str, Substitutions] = {
    "strange words": WORDS,
    "synonyms and typos": All((WordNet(limit=4), Typos()), limit=4),
    "disguises": All(tuple(SUBSTITUTIONS[name]() for name in ("homoglyphs", "invisible", "leet")), limit=3),
    "gaps": SUBSTITUTIONS["spacing"](),
}


@cache
def reviews() -> list[str]:
    return [row.texts[0] for row in load_task("rotten-tomatoes").train[:40]]


@cache
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(str(minilm_path()))


@cache
def reader(spec: str = "all") -> Readers:
    return parse(spec, KnownWords.of([*reviews(), "a good movie film bad awful good fine"]))


def wordings_of(texts: tuple[str, ...], words: Substitutions, probe: str | None = "[UNK]") -> Wordings:
    return replace(Wordings.of(texts, [words.for_text(segment(text)) for text in texts]), probe=probe)


def assert_exact(examples: list[Wordings], read: Readers, max_length: int = 48) -> list[Recipe | None]:
    """Some wordings of each example, by parts and whole."""
    assembler = TokenAssembler(tokenizer(), len(examples[0].texts), max_length, read)
    recipes = assembler.recipes(examples)
    rng = np.random.default_rng(0)
    for wordings, recipe in zip(examples, recipes, strict=True):
        if recipe is None:
            continue
        lowest = np.full(len(wordings), 0 if wordings.probe is None else PROBE)
        # Every second row changes all it can, so that neighbours are changed together.
        rows = rng.integers(lowest, wordings.sizes, size=(24, len(wordings)))
        rows[::2] = rng.integers(np.minimum(1, wordings.sizes - 1), wordings.sizes, size=rows[::2].shape)
        texts = [read.texts(wordings.write(row)) for row in rows]
        expected = tokenizer()(*map(list, zip(*texts, strict=True)), truncation=True, max_length=max_length)
        found = assembler.table([recipe]).rows(np.zeros(len(rows), np.int64), rows.astype(np.int16))
        assert found.ids.tolist() == [token for ids in expected["input_ids"] for token in ids]
        assert found.lengths.tolist() == [len(ids) for ids in expected["input_ids"]]
    return recipes


@pytest.mark.parametrize(
    ("source", "share"), [("strange words", 0), ("synonyms and typos", 0.85), ("disguises", 0.85), ("gaps", 0)]
)
@pytest.mark.parametrize("pair", [False, True])
def test_real_reviews(source: str, share: float, pair: bool) -> None:
    rows = [(text, other) if pair else (text,) for text, other in zip(reviews(), reviews()[1:], strict=False)]
    recipes = assert_exact([wordings_of(row, SOURCES[source]) for row in rows], reader())
    assert sum(recipe is not None for recipe in recipes) >= share * len(recipes)


PARTS = st.one_of(
    st.sampled_from(
        [" good", " film", " bad", "good", "film", " a", " I", " wonde", " rful", " aw", "ful", " x", " ", "-"]
    ),
    st.sampled_from(
        ["'s", " 's", ".", ", ", "!", " 4", "_", " <b", ">", "\n", "\u0301", "\u200b", " Бо", "р", " ﬁ", "ﾞ"]
    ),
    st.text(max_size=3),
)


@settings(max_examples=150, deadline=None)
@given(
    text=st.lists(PARTS, max_size=14).map("".join),
    other=st.lists(PARTS, max_size=6).map("".join),
    spec=st.sampled_from(["all", "unicode", "leet", "spacing", "spelling", "spelling,spacing"]),
    source=st.sampled_from(["strange words", "gaps"]),
    probe=st.sampled_from([None, "", "[UNK]"]),
)
@example(text="a wonde film bad", other="", spec="spacing", source="strange words", probe=None)  # wonde + rful
@example(text="I good film a", other="", spec="spacing", source="gaps", probe=None)
@example(text="Бо Бо good bad", other="", spec="unicode", source="strange words", probe=None)
def test_any_text(text: str, other: str, spec: str, source: str, probe: str | None) -> None:
    words = SOURCES[source]
    assert_exact([wordings_of((text,), words, probe), wordings_of((other,), words, probe)], reader(spec), 20)


def test_what_might_meet_stays_whole() -> None:
    def stays_whole(text: str, entries: dict[str, list[str]], spec: str = "all") -> bool:
        example = wordings_of((text,), Dictionary(entries=entries))
        return assert_exact([example], reader(spec)) == [None]

    assert stays_whole("a bad plot", {"bad": ["wonde"], "plot": ["rful"]})  # read as wonderful
    assert not stays_whole("a bad plot", {"bad": ["wonde"], "plot": ["story"]})
    assert stays_whole("I saw a plot", {"plot": ["b c d"]}, "spacing")  # "a b c d" is one stretch of letters
    assert not stays_whole("I saw the plot", {"plot": ["b c d"]}, "spacing")
    assert stays_whole("Борис plot", {"plot": ["В", "story"]}, "unicode")  # mostly Latin with one form only
    assert not stays_whole("my plot thickens", {"plot": ["В", "story"]}, "unicode")


def test_a_reader_that_does_not_say_that_words_are_its_own_reads_whole_texts() -> None:
    class Upside(Spelling):
        word_local = False

    read = Readers((Upside(known=reader().known),))
    assert assert_exact([wordings_of((text,), WORDS) for text in ("a good film",)], read) == [None]
    codes = Readers((Synonyms(codes={"good": "bad", "fine": "bad"}),))
    assert assert_exact([wordings_of((text,), WORDS) for text in ("a good plot",)], codes) != [None]
    assert assert_exact([wordings_of((text,), WORDS) for text in ("a <b good >",)], codes) == [None]


@pytest.mark.parametrize("attack", [Genetic(population=6, generations=4), PWWS(), Greedy()], ids=lambda one: one.name)
def test_attacks_find_the_same_by_parts_and_by_whole_texts(attack: Any, tmp_path: Path) -> None:
    own = make_tokenizer(tmp_path)
    model = tiny_bert(own)
    fast = Victim.from_model(model, own, reader=reader())
    slow = Reading(Victim.from_model(model, own), reader())  # strings, read and tokenised whole
    attack = replace(attack, substitutions=All((WORDS, Typos()), limit=8))
    rows = labelled(fast)
    found, expected = attack(fast, rows), attack(slow, rows)
    assert {row.outcome for row in found} == {"success", "failure"}
    kept = ("outcome", "adversarial", "queries")
    assert [[getattr(row, name) for name in kept] for row in found] == [
        [getattr(row, name) for name in kept] for row in expected
    ]


@settings(max_examples=60, deadline=None)
@given(st.text("abcdeilmnorstu", min_size=3, max_size=8))
def test_looking_at_few_places_misses_no_word(word: str) -> None:
    known = reader().known
    assert known is not None
    places = range(max(len(word) - known.longest_ending(word) - 2, 0), known.longest_beginning(word) + 1)
    near = known.words.intersection(edits(word, known.letters))
    assert near == known.words.intersection(edits(word, known.letters, places))
    assert all(known.is_beginning(word[:at]) for word in near for at in range(len(word)))
    assert all(known.is_ending(word[at:]) for word in near for at in range(1, len(word)))
