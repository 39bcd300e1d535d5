"""A victim that answers at random is attacked by its mean, and one that fails is asked again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from victims import TEXTS, WORD_LIST, bag_of_words, bag_victim, labelled

from unshaken.attacks import PWWS, Victim
from unshaken.errors import UnshakenError
from unshaken.examples import Example
from unshaken.substitutions import Dictionary
from unshaken.victims import Averaged


def noisy(strength: float) -> Victim:
    rng = np.random.default_rng(0)

    def answer(texts: list[str]) -> np.ndarray:
        positive = np.array(bag_of_words(texts))[:, 1] + rng.normal(0, strength, len(texts))
        return np.stack([1 - positive.clip(0, 1), positive.clip(0, 1)], 1)

    return Victim.from_callable(answer, 2, name="noisy")


def test_the_mean_is_of_probabilities() -> None:
    answers = iter([[[0.9, 0.1]], [[0.3, 0.7]], [[0.6, 0.4]]])
    victim = Averaged(Victim.from_callable(lambda texts: next(answers), 2), times=3)
    np.testing.assert_allclose(np.exp(victim.log_probabilities([("a",)])), [[0.6, 0.4]], rtol=1e-6)


def test_noise_makes_up_successes_and_the_mean_does_not() -> None:
    """A text that nothing fools: luck fools a noisy victim, and is found out when asked again; not so the mean."""
    examples = [Example(id=str(number), texts=("a great plot",), label=1) for number in range(60)]
    attack = PWWS(substitutions=Dictionary(entries={"plot": ["story"]}))
    lucky, mean = attack(noisy(0.3), examples), attack(Averaged(noisy(0.3), times=64), examples)
    assert lucky.unconfirmed > 0
    assert (mean.clean_accuracy, mean.success_rate, mean.unconfirmed) == (1, 0, 0)


def test_a_failing_victim_is_asked_again() -> None:
    calls = []

    def fails_at_first(texts: list[str]) -> list[list[float]]:
        calls.append(len(texts))
        if len(calls) % 3:
            raise ConnectionError("try later")
        return bag_of_words(texts)

    victim = Averaged(Victim.from_callable(fails_at_first, 2, name="remote"), times=1, attempts=3, wait=0)
    examples = labelled(bag_victim(), TEXTS[:4])
    found = PWWS(substitutions=WORD_LIST)(victim, examples)
    direct = PWWS(substitutions=WORD_LIST)(bag_victim(), examples)
    assert [row.adversarial for row in found] == [row.adversarial for row in direct]
    with pytest.raises(ConnectionError):
        Averaged(Victim.from_callable(fails_at_first, 2), times=1, attempts=2, wait=0).log_probabilities([("a",)])


def test_each_attempt_waits_twice_as_long_as_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("unshaken.victims.averaged.time.sleep", waits.append)

    def fails(texts: list[str]) -> list[list[float]]:
        raise ConnectionError("gone")

    for options, expected in (({"attempts": 4, "wait": 0.3}, [0.3, 0.6, 1.2]), ({}, [0.5, 1.0]), ({"attempts": 1}, [])):
        waits.clear()
        with pytest.raises(ConnectionError):
            Averaged(Victim.from_callable(fails, 2), times=1, **options).log_probabilities([("a",)])
        assert waits == pytest.approx(expected)


class Numbered(Victim):
    """Answers otherwise each time it is asked anew, as one that remembers its answers to be asked again does."""

    name, num_labels, fingerprint = "numbered", 2, "numbered"

    def _predict(self, texts: Any) -> np.ndarray:
        return self.ask_again(texts, 0)

    def ask_again(self, texts: Any, number: int) -> np.ndarray:
        share = 1 / (2 + number)
        return np.log([[1 - share, share]] * len(texts))


def test_no_answer_is_part_of_two_means() -> None:
    """The first mean is of answers 0 to 2, the next of 3 to 5, and what is asked alone is one of those."""
    victim, text = Averaged(Numbered(), times=3), ("a",)
    for number in range(3):
        expected = np.mean([1 / (2 + 3 * number + one) for one in range(3)])
        assert np.exp(victim.ask_again([text], number))[0, 1] == pytest.approx(expected, rel=1e-6)
    np.testing.assert_array_equal(victim.log_probabilities([text]), victim.ask_again([text], 0))
    np.testing.assert_array_equal(victim.answer_alone(text), victim.ask_again([text], 1)[0])


def test_settings_and_names() -> None:
    victim = Averaged(bag_victim(), times=4)
    assert "4 answers" in victim.name
    assert victim.fingerprint != Averaged(bag_victim(), times=5).fingerprint != bag_victim().fingerprint
    assert (Averaged(bag_victim()).times, Averaged(bag_victim()).attempts) == (16, 3)
    for wrong in ({"times": 0}, {"attempts": 0}, {"wait": -0.1}):
        with pytest.raises(UnshakenError, match="times"):
            Averaged(bag_victim(), **wrong)
