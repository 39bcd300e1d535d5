"""The examples of the page and of the docstrings do what they say."""

import doctest
from pathlib import Path

import pytest

from unshaken.attacks import constraints
from unshaken.substitutions import Dictionary, Typos, WordNet, Words, segment

PAGE = Path(__file__).parents[2] / "docs" / "substitutions.md"


def failures(test):
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(test)
    assert runner.tries > 0
    return runner.failures


def test_the_page():
    assert failures(doctest.DocTestParser().get_doctest(PAGE.read_text("utf-8"), {}, PAGE.name, str(PAGE), 0)) == 0


@pytest.mark.parametrize(
    "documented",
    [
        Words, WordNet, Dictionary, Typos, constraints.StopWords, constraints.FrozenColumns, constraints.MaxChanged,
        constraints.PartOfSpeech, constraints.SentenceEncoder, constraints.SentenceSimilarity,
    ],
)  # fmt: skip
def test_docstrings(documented):
    names = vars(constraints) | {"segment": segment} | {documented.__name__: documented}
    assert failures(doctest.DocTestParser().get_doctest(documented.__doc__, names, documented.__name__, None, 0)) == 0
