"""An attack on a vote, and on a detector, through tables: the same texts, answers and results as through strings."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example as such_as
from hypothesis import given
from hypothesis import strategies as st
from victims import TEXTS, WORD_LIST, labelled, make_tokenizer, tiny_bert

from unshaken.attacks import PWWS, Beam, Genetic, Greedy, Unflagged, Victim
from unshaken.detection import Agreement, Guarded
from unshaken.substitutions import All, Dictionary, Homoglyphs, Typos, WordNet, segment
from unshaken.victims import Vote
from unshaken.wordings import PROBE, Wordings

PAIRS = [("a good film .", "the plot was SLOW, slow"), ("Bad film", "it is a good, good film")]


@pytest.fixture
def model(tmp_path: Any) -> Any:
    tokenizer = make_tokenizer(tmp_path)
    return Victim.from_model(tiny_bert(tokenizer), tokenizer)


def wordings(*texts: str, words: Any = WORD_LIST, probe: str | None = "[UNK]") -> Wordings:
    candidates = [words.for_text(segment(text)) for text in texts]
    made = Wordings.of(texts, candidates)
    return Wordings(texts=made.texts, places=made.places, forms=made.forms, probe=probe)


def vote(victim: Any, **options: Any) -> Vote:
    return Vote(victim, **{"k": 4, "substitutions": WORD_LIST, **options})


class Whole(Vote):
    """Asked about strings alone."""

    def tables(self, columns: int) -> None:
        return None


@given(st.data())
def test_choices_under_a_pattern_write_what_it_makes_of_the_text(data: Any) -> None:
    texts = data.draw(st.sampled_from([*((text,) for text in TEXTS), *PAIRS]))
    voted = Vote(labelless(), k=5, rate=data.draw(st.sampled_from([0.3, 1.0])), substitutions=WORD_LIST)
    example = wordings(*texts)
    row = [data.draw(st.sampled_from([PROBE, *range(size)])) for size in example.sizes]
    made = voted.patterns.reworded(example)
    assert made is not None
    assert [one.write(row) for one in made] == voted.rewordings([example.write(row)])[0]


ODD = [
    "good",
    "Film",
    "slow",
    "39",
    "é",
    "s",
    "<",
    "</",
    "<good",
    "<a ",
    ">",
    " >",
    "&",
    "&#",
    ";",
    "'",
    "-",
    " ",
    ". ",
]
ODD_WORDS = Dictionary(
    entries={
        **{"good": ["fine", "well-made", "g"], "film": ["movie", "éclair"], "slow": ["cause", "s"]},
        **{"39": ["forty"], "é": ["bad"], "s": ["good"], "forty": ["39"], "fine": ["39", "<b", ">", "nice one"]},
    }
)


@given(
    st.lists(st.sampled_from(ODD) | st.integers(190, 200).map(lambda size: f" {'y' * size} "), max_size=12),
    st.sampled_from([WORD_LIST, ODD_WORDS]),
    st.data(),
)
@such_as(["<a good ", "y" * 195, "> good film"], WORD_LIST, None)  # too long for markup, until "g" stands for "good"
@such_as(["a <good film"], WORD_LIST, None)
def test_whatever_stands_beside_words_tables_write_what_strings_do(parts: list[str], words: Any, data: Any) -> None:
    voted, example = Vote(labelless(), k=3, substitutions=words), wordings("".join(parts), words=ODD_WORDS)
    made = voted.patterns.reworded(example)
    choices = [[PROBE, *range(size)] for size in example.sizes]
    every = itertools.islice(itertools.product(*choices), 200)
    rows = every if data is None else [[data.draw(st.sampled_from(own)) for own in choices] for _ in range(3)]
    for row in rows if made is not None else ():
        assert [one.write(row) for one in made] == voted.rewordings([example.write(row)])[0]


def test_an_open_bracket_that_nothing_closes_leaves_the_table_as_it_is() -> None:
    voted = Vote(labelless(), k=3, substitutions=WORD_LIST)
    for text, settled in (("a <good film", True), ("<3 a good film <br>", True), ("<3 a good film >", False)):
        assert (voted.patterns.reworded(wordings(text)) is not None) is settled


def test_a_word_that_would_take_an_apostrophe_along_stands_alone_where_there_is_none() -> None:
    voted, example = Vote(labelless(), k=3, substitutions=ALL), wordings("was this it ?", words=Typos())
    assert "tis" in example.forms[0]
    made = voted.patterns.reworded(example)
    assert made is not None
    for choice in range(example.sizes[0]):
        assert [one.write([choice]) for one in made] == voted.rewordings([example.write([choice])])[0]


def labelless() -> Victim:
    return Victim.from_callable(lambda texts: np.full((len(texts), 2), 0.5), 2)


def test_the_tokens_of_a_reworded_table_are_those_of_the_reworded_texts(model: Any) -> None:
    voted, examples = vote(model), [wordings(text) for text in TEXTS]
    made = voted.tables(1)
    assert made is not None
    table = made.table(made.recipes(examples))
    for number, example in enumerate(examples):
        rows = np.zeros((1, table.places), np.int16)
        rows[0, : len(example)] = np.arange(1, len(example) + 1) % example.sizes
        for pattern, (text,) in enumerate(voted.rewordings([example.write(rows[0, : len(example)])])[0]):
            row = np.array([pattern * len(examples) + number])
            assert table.table.rows(row, rows).ids.tolist() == model.tokenizer(text)["input_ids"]


ALL = All((WORD_LIST, Typos()))


@pytest.mark.parametrize(
    "attack",
    [
        PWWS(substitutions=WORD_LIST),
        Greedy(substitutions=WORD_LIST),
        Beam(substitutions=WORD_LIST),
        Genetic(substitutions=WORD_LIST, population=5, generations=3),
    ],
    ids=lambda attack: attack.name,
)
@pytest.mark.parametrize("texts", [TEXTS, PAIRS], ids=["texts", "pairs"])
@pytest.mark.parametrize(
    "words", [WORD_LIST, ALL, All((ALL, Homoglyphs(min_length=4)))], ids=["words", "typos", "look-alikes"]
)
def test_an_attack_on_a_vote_finds_the_same_through_tables(
    model: Any, attack: Any, texts: Any, words: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, attack = Whole(model, 4, substitutions=words), replace(attack, substitutions=words)
    examples = labelled(whole, texts)
    expected = attack(whole, examples)
    monkeypatch.setattr(Vote, "_predict", None)  # so what is found is found by tables
    same(attack(vote(model, substitutions=words), examples), expected)


def test_an_attack_on_a_detector_finds_the_same_through_tables(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    examples, outcomes = labelled(model), []
    attack = Genetic(substitutions=WORD_LIST, population=5, generations=3, goal=Unflagged())
    whole, through_tables = Agreement(Whole(model, 4, substitutions=WORD_LIST)), Agreement(vote(model))
    for threshold in (0.4, 0.5, 0.6):
        expected = attack(Guarded(whole, threshold), examples)
        with monkeypatch.context() as patch:
            patch.setattr(Guarded, "_predict", None)  # so what is found is found by tables
            same(attack(Guarded(through_tables, threshold), examples), expected)
        outcomes += [row.outcome for row in expected]
    assert set(outcomes) == {"success", "failure", "skipped"}


def same(found: Any, expected: Any) -> None:
    for one, other in zip(map(asdict, found), map(asdict, expected), strict=True):
        for key in ("score_before", "score_after"):
            assert one.pop(key) == pytest.approx(other.pop(key), abs=1e-6)
        for key in ("seconds", "rows"):  # texts with equal tokens are asked once, which strings do not show
            del one[key], other[key]
        assert one == other


class Contextual(Dictionary):
    """Reads the words around."""

    def candidates(self, words: Sequence[str], position: int) -> list[str]:
        return super().candidates(words, position) if "film" in words else []


@pytest.mark.parametrize(
    ("text", "entries", "settled"),
    [
        ("we liked it", {"liked": ["saw", "assumed"]}, True),
        ("we had liked it", {"liked": ["saw", "assumed"]}, True),
        ("it was liked by us", {"was": ["saw"], "liked": ["saw", "assumed"]}, True),  # "by" stays and is enough
        ("we had liked it", {"had": ["saw", "got"], "liked": ["saw", "assumed"]}, False),
        ("we really assumed it", {"we": ["saw", "had"]}, False),  # of a word that no choice changes
        ("we assumed it", {"it": ["saw", "by"]}, False),
        ("we assumed it", {"we": ["saw", "the"]}, False),
        ("we assumed it", {"it": ["saw", "the"]}, True),
    ],
)
@pytest.mark.parametrize("voted", [WordNet(), All((WordNet(), WORD_LIST), limit=None)], ids=["alone", "joined"])
def test_substitutes_are_those_among_the_words_that_were_chosen(
    text: str, entries: Any, settled: bool, voted: Any
) -> None:
    """WordNet has "took" for "assumed" and "taken" for "had assumed"."""
    found = [voted.candidates(words.split(), 1) for words in ("we assumed", "had assumed")]
    assert found[0] != found[1]
    votes = Vote(labelless(), k=8, rate=1.0, substitutions=voted)
    example = wordings(text, words=Dictionary(entries=entries))
    made = votes.patterns.reworded(example)
    assert (made is not None) is settled
    for row in itertools.product(*([PROBE, *range(size)] for size in example.sizes)):
        if made is not None:
            assert [one.write(row) for one in made] == votes.rewordings([example.write(row)])[0]


@pytest.mark.parametrize(
    ("text", "attacked", "voted", "probe"),
    [
        ("a good film", WORD_LIST, Contextual(entries=WORD_LIST.entries), "[UNK]"),
        ("a good film", WORD_LIST, WORD_LIST, "<unk>"),  # read as markup: the words behind it move up
        ("a good film", WORD_LIST, WORD_LIST, ""),
        ("a good film", WORD_LIST, Dictionary(entries={"unk": ["good"]}), "[UNK]"),
        ("a good film", Dictionary(entries={"good": ["well made"]}), WORD_LIST, None),
        ("a good.5 film", Dictionary(entries={"good": ["g00d", "go0"]}), WORD_LIST, None),  # "go0.5" is one word
        ("a good film", WORD_LIST, Dictionary(entries={"a": ["one more"]}), None),
        (
            "&marvellous; film",
            Dictionary(entries={"film": ["movie"]}),
            Dictionary(entries={"marvellous": ["good"]}),
            None,
        ),
        ("a 好movie", Dictionary(entries={"好": ["good"]}), WORD_LIST, None),  # "goodmovie" is one word
        ("a 好-movie", Dictionary(entries={"好": ["佳", "good"]}), WORD_LIST, None),
        ("a movie-好", Dictionary(entries={"好": ["佳", "good"]}), WORD_LIST, None),
        ("a 好-movie", Dictionary(entries={"movie": ["film", "佳"]}), WORD_LIST, None),
        ("all 'this", Typos(), WORD_LIST, None),  # "'tis" is one word, and "tis" another
        ("the 'reason", Dictionary(entries={"reason": ["ground", "cause"]}), WORD_LIST, None),  # "'cause" is one word
        (
            "a &marvellous; film",
            Dictionary(entries={"marvellous": ["wonderful", "good"]}),
            WORD_LIST,
            None,
        ),  # an entity
    ],
)
def test_what_moves_other_words_is_left_to_strings(text: str, attacked: Any, voted: Any, probe: str | None) -> None:
    plain = Vote(labelless(), k=3, rate=1.0, substitutions=WORD_LIST)
    assert plain.patterns.reworded(wordings("a good film")) is not None
    example = wordings(text, words=attacked, probe=probe)
    assert len(example) > 0
    assert Vote(labelless(), k=3, rate=1.0, substitutions=voted).patterns.reworded(example) is None


def test_rows_are_one_and_the_same_only_if_every_rewording_is(model: Any) -> None:
    """Two words unknown to the tokenizer are one token; the vote knows substitutes of one of them."""
    words = Dictionary(entries={"good": ["xylo", "yarn"], "xylo": ["film"]})
    for voted, equal in ((vote(model, rate=1.0), True), (vote(model, rate=1.0, substitutions=words), False)):
        made = voted.tables(1)
        assert made is not None
        table = made.table(made.recipes([wordings("a good film", words=words)]))

        keys = table.keys(torch.tensor([0, 0]), torch.tensor([[1], [2]], dtype=torch.int16))
        assert (keys[0] == keys[1]).item() is equal


def test_many_rows_are_answered_part_by_part_alike(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    voted, examples = vote(model), [wordings(text) for text in TEXTS[:3]]
    made = voted.tables(1)
    assert made is not None
    table = made.table(made.recipes(examples))
    owner = torch.tensor([0, 0, 1, 1, 2])
    choices = torch.ones(5, table.places, dtype=torch.int16)
    choices[::2] = 0
    expected = table.keys(owner, choices).tolist(), table.answers(model, owner, choices)
    monkeypatch.setattr("unshaken.victims.reworded.CELLS", 2 * 4 * table.places)  # two rows under four patterns
    assert [len(block) for block, _ in table._blocks(owner, choices)] == [2, 2, 1]
    assert table.keys(owner, choices).tolist() == expected[0]
    np.testing.assert_allclose(table.answers(model, owner, choices), expected[1], atol=1e-12)
    nothing = owner[:0], choices[:0]
    assert table.keys(*nothing).shape == (0,)
    assert table.answers(model, *nothing).shape == (4, 0, 2)
