"""Corners in which a search once went wrong: three classes, refused texts, steps without gain, rows never asked of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from victims import WORD_LIST, bag_victim, labelled

from unshaken.attacks import (
    PWWS,
    Beam,
    Genetic,
    Greedy,
    SearchAttack,
    Targeted,
    TextFooler,
    Transfer,
    Unflagged,
    Victim,
)
from unshaken.attacks.constraints import Candidate, Constraint, SentenceSimilarity
from unshaken.attacks.questions import Ask, Scores, Search
from unshaken.attacks.space import Space
from unshaken.errors import UnshakenError
from unshaken.examples import Example
from unshaken.substitutions import Dictionary


def table_victim(answers: Mapping[str, Sequence[float]], name: str = "table") -> Victim:
    """A victim that knows the answer to each text; to others it gives that of "" ."""

    def answer(texts: list[str]) -> list[Sequence[float]]:
        return [answers.get(text, answers[""]) for text in texts]

    return Victim.from_callable(answer, len(answers[""]), name=name)


CLEAN = (0.40, 0.35, 0.25)
HELD = (0.39, 0.31, 0.30)


@pytest.mark.parametrize(
    "attack",
    [
        PWWS(substitutions=WORD_LIST, variant="greedy"),
        Genetic(substitutions=WORD_LIST, population=4, generations=3, scoring="probability"),
        Beam(substitutions=WORD_LIST, scoring="probability"),
        Greedy(substitutions=WORD_LIST, scoring="probability"),
    ],
    ids=lambda attack: attack.name,
)
@pytest.mark.parametrize("flip", [(0.42, 0.45, 0.13), (0.385, 0.39, 0.225)], ids=["true-gains", "true-loses-less"])
def test_a_flip_counts_where_another_text_lowers_the_true_class_more(attack: Any, flip: tuple[float, ...]) -> None:
    """With three classes the text with the lowest true class may hold while another one flips."""
    answers = {"a good film": CLEAN, "a nice film": flip, "a great film": (0.34, 0.33, 0.33), "": HELD}
    (row,) = attack(table_victim(answers), [Example(id="e", texts=("a good film",), label=0)])
    assert (row.outcome, row.adversarial) == ("success", ("a nice film",))


@dataclass(frozen=True, kw_only=True)
class Refuses(Constraint):
    """Refuses texts that hold a word, and keeps what it was shown."""

    name: ClassVar[str] = "refuses"

    word: str
    seen: Callable[[Candidate], object] = id

    def check(self, candidates: Sequence[Candidate]) -> list[bool]:
        for candidate in candidates:
            self.seen(candidate)
        return [self.word not in candidate.text or len(candidate.swaps) == 1 for candidate in candidates]


def test_pwws_leaves_a_refused_swap_out_of_the_texts_that_follow() -> None:
    """Alone "poor" is allowed, beside another swap it is not."""
    weights = {"good": 1.0, "nice": 0.6, "bad": 0.8, "poor": 0.2, "slow": 0.5, "dull": -2.5}

    def answer(texts: list[str]) -> list[list[float]]:
        sums = [sum(weights.get(word, 0.0) for word in text.split()) for text in texts]
        return [[1 / (1 + np.exp(score)), 1 / (1 + np.exp(-score))] for score in sums]

    words = Dictionary(entries={"good": ["nice"], "bad": ["poor"], "slow": ["dull"]})
    shown: list[Candidate] = []
    refuses = Refuses(word="poor", seen=shown.append)
    victim = Victim.from_callable(answer, 2)
    example = Example(id="e", texts=("good bad slow good",), label=1)
    (row,) = PWWS(substitutions=words, constraints=(refuses,))(victim, [example])
    # Of 3.3 slow -> dull leaves 0.3; then bad -> poor (-0.6) is refused, and good -> nice (-0.4) does it.
    assert row.outcome == "success"
    assert [after for *_, after in row.swaps] == ["nice", "dull"]
    assert dict(shown[-1].previous) == {2: "dull"}


def test_greedy_goes_on_through_a_step_without_gain() -> None:
    """Each swap alone raises the true class; both together flip."""
    words = Dictionary(entries={"good": ["fine"], "film": ["movie"]})
    answers = {
        "good film": (0.4, 0.6),
        "fine film": (0.3, 0.7),
        "good movie": (0.35, 0.65),
        "fine movie": (0.9, 0.1),
        "": (0.4, 0.6),
    }
    example = Example(id="e", texts=("good film",), label=1)
    for attack in (Greedy(substitutions=words), Beam(substitutions=words, width=2)):
        (row,) = attack(table_victim(answers), [example])
        assert row.adversarial == ("fine movie",)


def test_a_beam_of_refused_texts_ends() -> None:
    refuses = Refuses(word="", seen=id)  # a second swap is always refused
    examples = labelled(bag_victim(), ["a good film with a bad plot"])
    (row,) = Beam(substitutions=WORD_LIST, constraints=(refuses,))(bag_victim(), examples)
    assert len(row.swaps) <= 1


@dataclass(frozen=True, kw_only=True)
class Unasked(SearchAttack):
    """Returns a text that it never asked about."""

    name: ClassVar[str] = "unasked"

    choice: int = 1

    def search(self, space: Space, clean: Scores, rng: np.random.Generator) -> Search:
        if self.choice < 0:
            yield Ask(rows=space.clean[None])
        return np.full(len(space), self.choice, np.int16)


def test_a_returned_text_that_was_never_asked_about_is_asked_about() -> None:
    victim = bag_victim()
    examples = labelled(victim, ["a good film", "bad film"])
    words = Dictionary(entries={"good": ["bad"], "bad": ["poor"], "film": ["movie"]})
    first, second = Unasked(substitutions=words)(victim, examples)
    assert (first.outcome, first.adversarial, first.queries) == ("success", ("a bad movie",), 2)
    assert (second.outcome, second.queries) == ("failure", 2)
    spent = Unasked(substitutions=words, query_budget=1)(victim, examples)
    assert [(row.outcome, row.queries) for row in spent] == [("failure", 1), ("failure", 1)]
    refused = Unasked(substitutions=words, constraints=(Refuses(word="movie"),))(victim, examples)
    assert [row.outcome for row in refused] == ["failure", "failure"]
    assert (
        Unasked(substitutions=words, choice=-1)(victim, examples)[0].outcome == "failure"
    )  # a blotted word is no text


def test_transfer_keeps_the_goal_and_tells_what_was_never_tried() -> None:
    words = Dictionary(entries={"good": ["fine"]})
    clean, other = (0.8, 0.1, 0.1), (0.1, 0.8, 0.1)
    source = table_victim({"": clean, "a fine film": (0.1, 0.1, 0.8), "a good plot": other}, "source")
    victim = table_victim({"": clean, "a fine film": other, "a fine story": (0.1, 0.1, 0.8)}, "victim")
    examples = [
        Example(id="wrong-class", texts=("a good film",), label=0),
        Example(id="source-wrong", texts=("a good plot",), label=0),
        Example(id="held", texts=("a good day",), label=0),
        Example(id="own-class", texts=("a good end",), label=2),
    ]
    targeted = Transfer(source=source, attack=PWWS(substitutions=words, goal=Targeted(label=2)))(victim, examples)
    assert [row.outcome for row in targeted] == ["failure", "error", "failure", "skipped"]
    assert "source gets this example wrong" in str(targeted[1].error)
    assert targeted.answered == 3
    plain = Transfer(source=source, attack=PWWS(substitutions=words))(victim, examples)
    assert [row.outcome for row in plain] == ["success", "error", "failure", "skipped"]


def test_textfooler_takes_the_best_of_the_texts_that_fool() -> None:
    """The nearest in meaning where an encoder measures it, the most harmful where none does; never just the first."""
    words = Dictionary(entries={"good": ["zebra", "fine", "great"]})
    answers = {"a good film": (0.2, 0.8), "a zebra film": (0.6, 0.4), "a fine film": (0.9, 0.1), "": (0.55, 0.45)}
    example = Example(id="e", texts=("a good film",), label=1)
    loose = SentenceSimilarity(metric="cosine", threshold=-1, short_threshold=-1)
    for constraints, expected in [((), "a fine film"), ((loose,), "a great film")]:
        (row,) = TextFooler(substitutions=words, constraints=constraints)(table_victim(answers), [example])
        assert row.adversarial == (expected,)


@pytest.mark.parametrize("scoring", ["margin", "probability"])
def test_a_search_past_a_flag_wants_a_victim_that_has_one(scoring: Any) -> None:
    victim = bag_victim()
    with pytest.raises(UnshakenError, match="for a detector's flag, and bag has 2 classes; attack"):
        Greedy(substitutions=WORD_LIST, goal=Unflagged(), scoring=scoring)(victim, labelled(victim))
