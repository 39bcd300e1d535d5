from __future__ import annotations

import warnings

import pytest

from unshaken.examples import Example, Examples
from unshaken.tasks import LeakageWarning, leakage
from unshaken.tasks.leakage import contradictions


def split(name, *rows):
    return Examples(
        rows=tuple(Example(id=f"{name}/{i}", texts=texts, label=label) for i, (texts, label) in enumerate(rows)),
        name=name,
    )


def test_leaks_are_counted_named_and_warned_of():
    train = split("train", (("It's a good film.",), 1), (("dull",), 0), (("fine",), 1))
    test = split("test", (("it 's a good film",), 1), (("new",), 0), (("DULL!",), 1), (("Fine",), 1))
    with pytest.warns(LeakageWarning, match="3 of 4 texts of test occur in train") as told:
        found = leakage(train, test)
    assert told[0].filename == __file__  # where it was asked
    assert found.ids == ("test/0", "test/2", "test/3")
    assert (found.count, found.total, found.contradicting) == (3, 4, 1)
    assert found.share == pytest.approx(3 / 4)


def test_a_premise_that_comes_back_is_no_leak():
    train = split("train", (("A man sleeps.", "He is awake."), 2))
    test = split("test", (("A man sleeps.", "He dreams."), 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert leakage(train, test).count == 0


def test_texts_with_different_labels_are_counted_once_each():
    rows = split(
        "train", (("Good.",), 1), (("good",), 0), (("good",), 0), (("dull",), 0), (("Dull",), 0), (("fine",), 1)
    )
    assert contradictions(rows) == 1
    assert contradictions(split("pairs", (("a", "b"), 0), (("a", "c"), 1))) == 0
    assert contradictions(split("scores", (("good",), 0.5), (("good",), 0.7))) == 0  # a regression may
