"""HardLabel, DeepWordBug, Alzantot and BAE against their definitions, written down one query at a time."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from victims import WORD_LIST, bag_of_words, bag_victim, labelled, make_tokenizer, tiny_bert

from unshaken.attacks import ATTACKS, BAE, Alzantot, BertAttack, DeepWordBug, HardLabel, Random, TextFooler, Victim
from unshaken.attacks.alzantot import draw_open
from unshaken.attacks.constraints import MaxChanged
from unshaken.errors import UnshakenError
from unshaken.examples import Example
from unshaken.names import from_spec
from unshaken.substitutions import Dictionary, MaskedLM
from unshaken.substitutions.typos import Typos
from unshaken.substitutions.words import match_case, segment


@pytest.fixture(scope="module", params=(2, 4))
def victim(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    tokenizer = make_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    return Victim.from_model(tiny_bert(tokenizer, seed=request.param), tokenizer)


class OneByOne:
    """A text as a list of choices, and a victim that is asked about one of them at a time."""

    def __init__(self, victim: Any, example: Any) -> None:
        self.victim, self.label = victim, int(example.label)
        self.words = segment(example.texts[0])
        self.places = [i for i in range(len(self.words)) if WORD_LIST.candidates(self.words.surfaces, i)]
        self.forms = [
            [self.words[i], *(match_case(self.words[i], w) for w in WORD_LIST.candidates(self.words.surfaces, i))]
            for i in self.places
        ]
        self.queries = 1  # the clean text

    def text(self, row: Any) -> str:
        swaps = {i: self.forms[n][row[n]] for n, i in enumerate(self.places) if row[n]}
        return self.words.replace(swaps, carry_case=False)

    def fools(self, row: Any) -> bool:
        self.queries += 1
        return int(self.victim.log_probabilities([(self.text(row),)])[0].argmax()) != self.label


def literal_hard_label(attack: HardLabel, victim: Any, example: Any) -> tuple[str | None, int]:
    asked = OneByOne(victim, example)
    rng = attack.random_stream(example)
    sizes = [len(forms) for forms in asked.forms]
    if not sizes:
        return None, 1
    row: list[int] | None = None
    drawn = 0
    while row is None and drawn < attack.samples:
        block = rng.integers(sizes, size=(min(16, attack.samples - drawn), len(sizes)), dtype=np.int16).tolist()
        drawn += len(block)
        row = next((found for found in block if asked.fools(found)), None)
    if row is None:
        return None, asked.queries
    for place in sorted((n for n in range(len(row)) if row[n]), key=lambda n: -row[n]):
        if asked.fools(without := [*row[:place], 0, *row[place + 1 :]]):
            row = without
    for place in [n for n in range(len(row)) if row[n]]:
        for nearer in range(1, row[place]):
            if asked.fools(changed := [*row[:place], nearer, *row[place + 1 :]]):
                row = changed
                break
    return asked.text(row), asked.queries


def test_hard_label_is_its_definition(victim: Any) -> None:
    attack, examples = HardLabel(substitutions=WORD_LIST, samples=40), labelled(victim)
    results = attack(victim, examples)
    assert {row.outcome for row in results} == {"success", "failure"}
    for example, row in zip(examples, results, strict=True):
        expected, queries = literal_hard_label(attack, victim, example)
        assert (row.adversarial[0] if row.adversarial else None) == expected
        assert row.queries == queries


def test_hard_label_reads_decisions_alone(victim: Any) -> None:
    """The same attack where the victim gives labels only, and where its scores lie."""
    attack, examples = HardLabel(substitutions=WORD_LIST, samples=40), labelled(victim)

    def labels(texts: list[str]) -> np.ndarray:
        return victim.log_probabilities([(text,) for text in texts]).argmax(-1)

    def lies(texts: list[str]) -> np.ndarray:
        confidence = np.array([0.51 + 0.48 * (hash(text) % 97) / 97 for text in texts])
        found = labels(texts)
        return np.where(np.eye(2, dtype=bool)[found], confidence[:, None], 1 - confidence[:, None])

    expected = [(row.adversarial, row.queries) for row in attack(victim, examples)]
    for other in (Victim.from_labels(labels, 2), Victim.from_callable(lies, 2)):
        assert [(row.adversarial, row.queries) for row in attack(other, examples)] == expected


def test_hard_label_changes_fewer_words_than_random(victim: Any) -> None:
    examples = labelled(victim)
    hard, random = (kind(substitutions=WORD_LIST, samples=100)(victim, examples) for kind in (HardLabel, Random))
    assert hard.words_changed < random.words_changed


def test_hard_label_keeps_what_it_found_where_the_budget_ends(victim: Any) -> None:
    examples = labelled(victim)
    free = HardLabel(substitutions=WORD_LIST, samples=40)
    for budget in (3, 6, 12, 20):
        spent = replace(free, query_budget=budget)(victim, examples)
        assert max(row.queries for row in spent) <= budget
        for row, whole in zip(spent, free(victim, examples), strict=True):
            assert row.outcome == "failure" or whole.outcome == "success"
            if whole.outcome == "success" and whole.queries <= budget:
                assert row.adversarial == whole.adversarial
            elif row.outcome == "success":  # found in time, and taken back as far as the budget went
                assert len(row.swaps) >= len(whole.swaps)


def test_labels_out_of_range_are_refused() -> None:
    for answer in ([7], [0, 1], [0.5], ["x"]):
        with pytest.raises(UnshakenError, match="a label for each, 0 to 1"):
            Victim.from_labels(lambda texts, answer=answer: answer, 2).log_probabilities([("a",)])


@pytest.mark.parametrize("kind", [int, bool, float, np.int8, np.bool_])
@pytest.mark.parametrize("texts", [["bad"], ["bad", "bad film"], ["good", "bad"], ["bad", "good", "bad", "bad"]])
def test_labels_of_any_kind_of_number_are_the_same_answers(kind: Any, texts: list[str]) -> None:
    victim = Victim.from_labels(lambda rows: [kind("bad" in row) for row in rows], 2)
    found = victim.log_probabilities([(text,) for text in texts])
    np.testing.assert_array_equal(found.argmax(1), [int("bad" in text) for text in texts])


def literal_deep_word_bug(attack: DeepWordBug, victim: Any, example: Any) -> tuple[str | None, int]:
    asked = OneByOne(victim, example)

    def f(gone: set[int]) -> float:
        """Probability of the true label without some words, which take the space before them along."""
        asked.queries += 1
        text, end = "", 0
        for i, (start, stop) in enumerate(asked.words.spans):
            between = example.texts[0][end:start]
            text += (between.removesuffix(" ") if i in gone else between) + ("" if i in gone else asked.words[i])
            end = stop
        return float(np.exp(np.float64(victim.log_probabilities([(text + example.texts[0][end:],)])[0, asked.label])))

    places = asked.places
    if not places:
        return None, 1
    matters = []
    for n in range(len(places)):
        head = f(set(places[n + 1 :])) - f(set(places[n:]))
        tail = f(set(places[:n])) - f(set(places[: n + 1]))
        matters.append(head + attack.tail_weight * tail)
    asked.queries = 1 + 2 * len(places)  # heads and tails share their texts with their neighbours
    choices = attack.random_stream(example).integers(1, [len(forms) for forms in asked.forms])
    row = [0] * len(places)
    for n in sorted(range(len(places)), key=lambda n: -matters[n])[: attack.edits]:
        row[n] = int(choices[n])
        if asked.fools(row):
            return asked.text(row), asked.queries
    return None, asked.queries


@pytest.mark.parametrize("settings", [{}, {"tail_weight": 0.0, "edits": 2, "seed": 5}], ids=["combined", "head"])
def test_deep_word_bug_is_its_definition(victim: Any, settings: dict[str, Any]) -> None:
    attack, examples = DeepWordBug(substitutions=WORD_LIST, **settings), labelled(victim)
    for example, row in zip(examples, attack(victim, examples), strict=True):
        expected, queries = literal_deep_word_bug(attack, victim, example)
        assert (row.adversarial[0] if row.adversarial else None) == expected
        assert row.queries == queries


def test_deep_word_bug_makes_typing_errors() -> None:
    """A misspelt "great" is no longer known, and the rest of the text is bad."""
    victim = bag_victim()
    examples = labelled(victim, ["a great end , a dull story"])
    (row,) = DeepWordBug()(victim, examples)
    assert [before for *_, before, _ in row.swaps] == ["great"]
    assert row.swaps[0][3] in Typos().candidates(segment(row.original[0]).surfaces, 1)
    assert DeepWordBug().settings()["substitutions"]["name"] == "typos"


def test_alzantot_keeps_its_limits(victim: Any) -> None:
    examples = labelled(victim)
    results = Alzantot(substitutions=WORD_LIST, population=8, generations=5)(victim, examples)
    wide = Alzantot(substitutions=WORD_LIST, population=8, generations=5, constraints=())(victim, examples)
    assert all(len(row.swaps) <= max(1, 0.2 * row.words) for row in results)
    assert results.success_rate <= wide.success_rate
    assert Alzantot().settings()["constraints"] == [{"name": "MaxChanged", "share": 0.2}]


def test_alzantot_draws_open_words_by_their_substitutes() -> None:
    rng = np.random.default_rng(0)
    rows = np.repeat(np.array([[0, 0, 2, 0], [1, 1, 1, 1]]), 6000, axis=0)
    weights = np.array([1, 3, 5, 2])
    drawn = draw_open(rows, weights, rng)
    for half, expected in ((drawn[:6000], [1 / 6, 3 / 6, 0, 2 / 6]), (drawn[6000:], weights / 11)):
        np.testing.assert_allclose(np.bincount(half, minlength=4) / 6000, expected, atol=0.03)


def test_alzantot_finds_the_pair_of_swaps_that_a_greedy_search_would() -> None:
    """Good (2.0) -> nice (-0.2) and film (0.1) -> movie (-0.3): a margin that needs both words, within the limit."""
    victim = bag_victim()
    examples = labelled(victim, ["a good film"])
    (row,) = Alzantot(substitutions=WORD_LIST, constraints=(MaxChanged(share=0.7),))(victim, examples)
    assert row.outcome == "success"
    assert ("good", "nice") in [swap[2:] for swap in row.swaps]


def test_bae_inserts_words() -> None:
    """A victim that counts words: nothing but an insertion can fool it, and the text stays what it was around it."""

    def counts(texts: list[str]) -> list[list[float]]:
        return [[0.9, 0.1] if len(text.split()) > 3 else [0.2, 0.8] for text in texts]

    words = Dictionary(entries={"good": ["fine", "good old"]})  # as `MaskedLM(edits="replace|insert")` gives them
    victim = Victim.from_callable(counts, 2)
    (row,) = BAE(substitutions=words, constraints=())(victim, [Example(id="e", texts=("a good film",), label=1)])
    assert (row.adversarial, row.swaps) == (("a good old film",), ((0, 1, "good", "good old"),))


def test_bae_settings() -> None:
    assert BAE().substitutions == MaskedLM(model="google-bert/bert-base-uncased", k=50)
    assert BAE(edits="replace|insert").substitutions.edits == ("replace", "insert")
    assert [type(item).__name__ for item in BAE().constraints] == ["PartOfSpeech", "SentenceSimilarity"]
    assert [type(item).__name__ for item in BAE(edits="insert").constraints] == ["SentenceSimilarity"]
    built = from_spec("attack", "bae:edits=replace|insert,k=7", ATTACKS)
    assert (built.substitutions.k, built.substitutions.edits) == (7, ("replace", "insert"))


@pytest.mark.parametrize(
    ("old", "changed"),
    [
        (BAE(), {"edits": "insert"}),
        (BAE(edits="insert"), {"edits": "replace"}),
        (TextFooler(), {"variant": "paper"}),
        (TextFooler(variant="paper"), {"variant": "textattack"}),
        (BertAttack(), {"k": 3}),
    ],
)
def test_constraints_follow_the_settings_that_they_are_made_of(old: Any, changed: Any) -> None:
    expected = replace(old, constraints=None, **changed).constraints
    assert replace(old, **changed).constraints == expected
    assert replace(pickle.loads(pickle.dumps(old)), **changed).constraints == expected
    given = (MaxChanged(share=0.3),)
    assert replace(replace(old, constraints=given), **changed).constraints == given
    assert replace(old, constraints=tuple(old.constraints), **changed).constraints == old.constraints


def test_an_attack_takes_the_constraints_of_another_kind() -> None:
    assert TextFooler(constraints=BAE().constraints).constraints == BAE().constraints != TextFooler().constraints


@pytest.mark.parametrize("kind", [BAE, BertAttack])
def test_a_changed_setting_changes_the_set_that_was_made_of_it(kind: Any) -> None:
    plain = kind()
    changed = replace(replace(plain, k=10), model="other")
    assert (
        changed.substitutions
        == kind(k=10, model="other").substitutions
        == replace(plain.substitutions, k=10, model="other")
    )
    assert replace(plain, seed=1).substitutions is plain.substitutions  # its model is loaded once
    own = MaskedLM(model="mine", k=3)
    assert replace(kind(substitutions=own), k=10).substitutions is own  # what was given stays
    assert replace(BAE(), edits="insert").substitutions == BAE(edits="insert").substitutions


def test_bert_attack_weighs_words_by_a_mask(tmp_path: Any) -> None:
    assert BertAttack().substitutions == MaskedLM(model="google-bert/bert-base-uncased", k=48, edits="reread")
    assert [type(item).__name__ for item in BertAttack().constraints] == [
        "StopWords",
        "MaxChanged",
        "SentenceSimilarity",
    ]
    asked: list[str] = []

    def noted(texts: list[str]) -> Any:
        asked.extend(texts)
        return bag_of_words(texts)

    attack = BertAttack(substitutions=WORD_LIST, constraints=())
    results = attack(Victim.from_callable(noted, 2), labelled(bag_victim(), ["a good film"]))
    assert "a [UNK] film" in asked  # as in the official code
    assert results[0].outcome == "success"
    tokenizer = make_tokenizer(tmp_path)
    assert attack.probe_form(Victim.from_model(tiny_bert(tokenizer), tokenizer)) == tokenizer.unk_token == "[UNK]"


def test_settings_are_checked() -> None:
    for make in (
        lambda: HardLabel(samples=0),
        lambda: DeepWordBug(edits=0),
        lambda: Alzantot(population=1),
        lambda: Alzantot(temperature=0),
    ):
        with pytest.raises(UnshakenError):
            make()
