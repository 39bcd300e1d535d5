"""One sentence in a notebook: the attack on a set of one, with the right answer named or the victim's own."""

from __future__ import annotations

import pytest
from victims import WORD_LIST, bag_of_words

import unshaken
from unshaken import Examples, UnshakenError, Victim
from unshaken.attacks import PWWS


def test_one_sentence_is_a_set_of_one():
    victim = Victim.from_callable(bag_of_words, label_names=("bad", "good"))
    found = unshaken.attack(victim, "a good film", PWWS(substitutions=WORD_LIST))
    (wanted,) = PWWS(substitutions=WORD_LIST)(victim, Examples.from_lists(["a good film"], [1]))
    assert (found.outcome, found.adversarial, found.queries) == ("success", wanted.adversarial, wanted.queries)
    assert "line-through" in found._repr_html_()
    before, after = found.swaps[0][2:]
    text, answer = str(found).splitlines()  # what the README's `print` shows
    assert text == found.original[0].replace(before, f"{before}→{after}")
    assert answer == f"success: label {found.label} ({found.score_before:.0%} sure), now 0, {found.queries} queries"
    assert bag_of_words([found.adversarial[0]])[0][1] < 0.5


def test_a_text_that_fooled_in_company_only_is_told_as_withstood():
    def batch_bound(texts):
        return [[0.4, 0.6]] if len(texts) == 1 and "film" in texts[0] else bag_of_words(texts)

    found = unshaken.attack(batch_bound, "a good film", PWWS(substitutions=WORD_LIST), label=1)
    assert (found.outcome, found.unconfirmed) == ("failure", True)


def test_the_right_answer_may_be_named():
    victim = Victim.from_callable(bag_of_words, label_names=("bad", "good"))
    assert unshaken.attack(victim, "a good film", label="bad").outcome == "skipped"  # wrong to begin with
    assert unshaken.attack(bag_of_words, ("a good film", "good"), "random:samples=2").label == 1
    signs = Victim.from_callable(bag_of_words, label_names=("very_bad", "LABEL_1"))
    assert [unshaken.attack(signs, "a good film", label=name).label for name in ("very_bad", "label_1")] == [0, 1]
    with pytest.raises(UnshakenError, match="did you mean 'good'"):
        unshaken.attack(victim, "a good film", label="goood")
    with pytest.raises(UnshakenError, match="empty"):
        unshaken.attack(victim, " ")
