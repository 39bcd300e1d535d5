"""CLARE against Algorithm 1 of its paper, written down one query at a time; and what it may merge."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from victims import WORD_LIST, labelled, make_tokenizer, tiny_bert

from unshaken.attacks import ATTACKS, CLARE, Victim
from unshaken.attacks.constraints import Candidate, Constraint, MaxChanged, SentenceSimilarity, StopWords
from unshaken.attacks.spaces import Spaces
from unshaken.examples import Example
from unshaken.names import from_spec
from unshaken.readers import Readers, Synonyms
from unshaken.substitutions import All, Dictionary, MaskedLM, Unmended, Unseen
from unshaken.substitutions.words import match_case, segment

PAIRS = {
    ("good", "film"): ["movie", "good", "picture"],
    ("bad", "plot"): ["story", "plot"],
    ("a", "bad"): ["awful"],
    ("the", "film"): ["nice", "film"],
    ("the", "plot"): ["end"],
    ("good", "end"): ["nice"],
}


class Merging(Dictionary):
    """A set that knows what stands for two words."""

    def for_pairs(self, pairs: Any) -> list[list[str]]:
        return [PAIRS.get(tuple(word.lower() for word in words[at : at + 2]), []) for words, at in pairs]


WORDS = Merging(entries=dict(WORD_LIST.entries))


@pytest.fixture(scope="module", params=(2, 4, 9))
def victim(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    tokenizer = make_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    return Victim.from_model(tiny_bert(tokenizer, seed=request.param), tokenizer)


def written(text: str, edits: Any) -> str:
    """A text with word number `at` replaced, and the next one with it where it is merged."""
    words = segment(text)
    parts, end = [], 0
    for at, form, both in sorted(edits):
        parts += [text[end : words.spans[at][0]], form]
        end = words.spans[at + both][1]
    return "".join([*parts, text[end:]])


def literal(victim: Any, example: Any) -> tuple[str | None, int]:
    """Algorithm 1; texts that it asks about twice are one query, as the strongest edit alone is known."""
    text, label, asked = example.texts[0], int(example.label), 1
    words = segment(text)

    def answer(edits: Any) -> tuple[float, bool]:
        scores = victim.log_probabilities([(written(text, edits),)])[0]
        return float(np.exp(np.float64(scores[label]))), bool(scores.argmax() != label)

    edits: list[tuple[int, str, bool]] = []
    for at, word in enumerate(words):
        edits += [(at, match_case(word, form), False) for form in WORDS.candidates(words.surfaces, at)]
    for at, (one, two) in enumerate(pairwise(words)):
        is_apart = text[words.spans[at][1] : words.spans[at + 1][0]] != " "
        merged = [] if is_apart else PAIRS.get((one.lower(), two.lower()), [])
        edits += [(at, match_case(one, form), True) for form in merged]
    clean = answer([])[0]
    found = [(answer([edit]), number) for number, edit in enumerate(edits)]
    asked += len(edits)
    fooling = [(chance, number) for (chance, fools), number in found if fools]
    if fooling:
        return written(text, [edits[min(fooling)[1]]]), asked
    best: dict[int, tuple[float, int]] = {}  # at each word
    for (chance, _), number in found:
        if chance < clean:
            best[edits[number][0]] = min(best.get(edits[number][0], (chance, number)), (chance, number))
    order = [edits[number] for _, number in sorted(best.values())]
    taken, value = order[:1], sorted(best.values())[0][0] if best else clean
    for at, form, both in order[1:]:
        touched = {word for one, _, merged in taken for word in range(one, one + 1 + merged)}
        if touched & set(range(at, at + 1 + both)):
            continue
        asked += 1
        chance, fools = answer([*taken, (at, form, both)])
        if fools:
            return written(text, [*taken, (at, form, both)]), asked
        if chance < value:
            taken, value = [*taken, (at, form, both)], chance
    return None, asked


def test_clare_is_its_definition(victim: Any) -> None:
    examples = labelled(victim)
    results = CLARE(substitutions=WORDS, constraints=())(victim, examples)
    assert any(not after for row in results for *_, after in row.swaps)  # some are merged
    for example, row in zip(examples, results, strict=True):
        expected, queries = literal(victim, example)
        assert (row.adversarial[0] if row.adversarial else None) == expected
        assert row.queries == queries


def test_one_word_fewer_fools_a_victim_that_counts_words() -> None:
    """Nothing but a merge can fool it; the text around it stays, and what is confirmed is the text as it is written."""
    asked: list[str] = []

    def counts(texts: list[str]) -> list[list[float]]:
        asked.extend(texts)
        return [[0.9, 0.1] if len(text.split()) < 5 else [0.2, 0.8] for text in texts]

    example = Example(id="e", texts=("A good film, so slow",), label=1)
    (row,) = CLARE(substitutions=WORDS, constraints=())(Victim.from_callable(counts, 2), [example])
    assert (row.outcome, row.adversarial) == ("success", ("A movie, so slow",))
    assert row.swaps == ((0, 1, "good", "movie"), (0, 2, "film", ""))
    assert len(row.adversarial[0].split()) == len(row.original[0].split()) - 1
    assert asked.count("A movie, so slow") >= 1
    singles = sum(len(WORDS.candidates(segment(row.original[0]).surfaces, at)) for at in range(5))
    assert row.queries == 1 + singles + len(PAIRS["good", "film"])


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("a good film", [0, 1]),  # an adjective and a noun, and a determiner before it
        ("a good, film", [0]),  # a sign between them
        ("not good", []),
        ("no film", []),  # what denies is never taken in
        ("it is good", []),
        ("my old film", [0, 1]),
        ("good\nfilm", []),
        ("", []),
    ],
)
def test_what_may_be_merged(text: str, first: list[int]) -> None:
    class Everything(Dictionary):
        def for_pairs(self, pairs: Any) -> list[list[str]]:
            return [["x"] for _ in pairs]

    (found,) = CLARE(substitutions=Everything(entries={"a": ["b"]})).merged([segment(text)])
    assert list(found) == first


def test_sets_made_of_others_merge_what_those_merge() -> None:
    words = segment("a good film")
    joined = All((Dictionary(entries={"film": ["plot"]}), WORDS), limit=1)
    assert joined.merges
    assert CLARE(substitutions=joined).merged([words]) == [{0: [], 1: PAIRS["good", "film"][:1]}]
    reader = Readers((Synonyms(codes={PAIRS["good", "film"][0]: "good film"}),))
    left = Unmended(WORDS, reader)  # the first is read as what it stands for
    assert CLARE(substitutions=left).merged([words]) == [{0: [], 1: PAIRS["good", "film"][1:]}]
    assert Unmended(WORDS).against(None).for_pairs([(words, 1)]) == [PAIRS["good", "film"]]
    known = Merging(entries={"good": ["fine"]})
    assert Unseen(WORDS, (WORD_LIST,)).for_pairs([(words, 1)]) == [PAIRS["good", "film"]]
    assert Unseen(WORDS, (WORD_LIST,), limit=1).for_pairs([(words, 1)]) == [PAIRS["good", "film"][:1]]
    assert Unseen(WORDS, (known,)).for_pairs([(words, 1)]) == [[]]  # which has met them all
    assert Unseen(WORDS, (known,)).merges
    assert not Unseen(WORD_LIST, (WORDS,)).merges
    for silent in (WORD_LIST, All((WORD_LIST,)), Unmended(WORD_LIST, reader)):
        assert not silent.merges
        assert CLARE(substitutions=silent).merged([words]) == [{}]


def test_both_words_must_be_free(victim: Any) -> None:
    """A stop word, a word behind the truncation and a frozen column are never merged away."""
    texts = ["the film was good", "a bad plot", "good film"]
    examples = labelled(victim, texts)
    attack = CLARE(substitutions=WORDS, constraints=(StopWords(),))
    assert all(before.lower() not in ("the", "a") for row in attack(victim, examples) for *_, before, _ in row.swaps)
    short = Victim.from_model(victim.model, victim.tokenizer, max_length=3)  # the first word alone
    (row,) = replace(attack, constraints=())(short, labelled(short, ["good film"]))
    assert all(position == 0 for _, position, _, _ in row.swaps)
    assert row.queries <= 1 + len(WORD_LIST.candidates(["good"], 0))


def test_constraints_on_words_judge_merges_too(victim: Any) -> None:
    class NoMovies(Constraint):
        name = "no movies"

        def allowed_choices(self, texts: Any, choices: Any) -> Any:
            return [[[form for form in own if form != "movie"] for own in of_text] for of_text in choices]

    spaces = Spaces(CLARE(substitutions=WORDS, constraints=(NoMovies(),)), victim, (), None)
    (space,) = spaces.of([Example(id="1", texts=("a good film",), label=0)])
    rows, _ = space.merges()
    assert [space.write(row)[0] for row in rows] == ["a good", "a picture"]


def test_a_set_that_merges_nothing_needs_no_tagger(victim: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any) -> Any:
        raise AssertionError("a tagger was asked for")

    monkeypatch.setattr("unshaken.attacks.clare.coarse_tags", missing)
    assert CLARE(substitutions=WORD_LIST).merged([segment("a good film")]) == [{}]


def test_a_merge_changes_two_words(victim: Any) -> None:
    examples = labelled(victim, ["bad plot and good film"])
    one = CLARE(substitutions=WORDS, constraints=(MaxChanged(share=0.2),))(victim, examples)
    assert all(len(row.swaps) <= 1 for row in one)


def test_similarity_reads_what_is_written() -> None:
    """The merged text, without the blank of the word that is gone, decides what may be asked about."""
    text = "A good film, so slow"
    assert Candidate(original=segment(text), swaps={1: "movie", 2: ""}).text == "A movie, so slow"
    victim = Victim.from_callable(lambda texts: [[0.9, 0.1] if len(t.split()) < 5 else [0.2, 0.8] for t in texts], 2)
    found = {}
    for least in (0.0, 0.99):
        near = SentenceSimilarity(metric="jin2020", threshold=least, short_threshold=least)
        attack = CLARE(substitutions=WORDS, constraints=(near,))
        (found[least],) = attack(victim, [Example(id="e", texts=(text,), label=1)])
    assert [row.outcome for row in found.values()] == ["success", "failure"]
    assert found[0.0].queries > found[0.99].queries == 1  # what is refused is never asked about


def test_clare_settings() -> None:
    plain = CLARE()
    assert plain.substitutions == MaskedLM(
        model="distilbert/distilroberta-base", k=50, edits="replace|insert", least=5e-4, least_merged=5e-3
    )
    assert plain.constraints == (SentenceSimilarity(metric="jin2020", threshold=0.7, short_threshold=0.7),)
    assert from_spec("attack", "clare:k=7,model=mine", ATTACKS).substitutions == replace(
        plain.substitutions, k=7, model="mine"
    )
    assert replace(plain, k=10).substitutions == CLARE(k=10).substitutions
    assert replace(plain, seed=1).substitutions is plain.substitutions
