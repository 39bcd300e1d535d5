"""Texts cut at every word, so that any stretch of words can be taken from them."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from unshaken.wordings.choices import Wordings
from unshaken.wordings.cuts import AddedTokens, Column, separates


class WordCut(NamedTuple):
    """A text cut at every word: its places are words, and signs between words. White space has no tokens."""

    column: Column
    first: list[int]  # of each place: the word itself, or the word before the signs
    last: list[int]  # the word itself, or the word after them
    changing: list[tuple[int, int, int]]  # place here, place of the wordings, word


def cut_at_words(example: Wordings, column: int, added: AddedTokens) -> WordCut | None:
    """Every word as a place that can be left out, and so can the signs between words; None where a word is not free."""
    words = example.words[column]
    text, count = words.text, len(words)
    starts, ends = zip(*words.spans, strict=True) if count else ((), ())
    between = [text[start:end] for start, end in zip((0, *ends), (*starts, len(text)), strict=True)]
    choices: list[tuple[str, ...]] = [(surface, "") for surface in words.surfaces]
    places = [(place, word) for place, (of, word) in enumerate(example.places) if of == column]
    for place, word in places:
        choices[word] = (*example.forms[place], "")
    if (
        added.begun(text)
        or not all(map(added.are_free, choices))
        or not all(separates(gap, added.joiners) for gap in set(between[1:-1]))
        or not separates(between[0][-1:], added.joiners, may_be_empty=True)
        or not separates(between[-1][:1], added.joiners, may_be_empty=True)
    ):
        return None
    signs = [at for at, gap in enumerate(between) if gap and not gap.isspace()]
    first, last = list(range(count)), list(range(count))
    for at in reversed(signs):
        choices.insert(at, (between[at], ""))
        first.insert(at, at - 1)
        last.insert(at, at)
    changing = [(word + bisect_right(signs, word), place, word) for place, word in places]
    return WordCut(Column(("",) * len(choices), tuple(choices), ""), first, last, changing)
