"""`Patterns`: fixed rewordings of any text, and of all that an attack may write in its place."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from unshaken.substitutions.base import Substitutions
from unshaken.substitutions.words import Words, match_case, segment
from unshaken.victims.base import Texts
from unshaken.wordings import Wordings

JOINTS = tuple("'’-‐‑")  # what joins two words to one


@dataclass(frozen=True, eq=False, kw_only=True)
class Patterns:
    """`k` ways to reword a text, each decided by two fixed numbers for each place of a word.

    The word is reworded where the first number is below `rate`, by the substitute that the second one chooses.
    """

    k: int
    rate: float
    seed: int
    substitutions: Substitutions
    _drawn: dict[int, np.ndarray] = field(default_factory=dict, repr=False)

    def rewordings(self, texts: Sequence[Texts]) -> list[list[Texts]]:
        """What each text is read as, one for each pattern."""
        words = [[segment(text) for text in row] for row in texts]
        choices = iter(self.substitutions.for_texts([column for row in words for column in row]))
        found = []
        for row in words:
            columns = [self._rewordings(number, column, next(choices)) for number, column in enumerate(row)]
            found.append(list(zip(*columns, strict=True)))
        return found

    def _rewordings(self, column: int, words: Words, choices: Sequence[Sequence[str]]) -> list[str]:
        """One column under each pattern."""
        places = [at for at, substitutes in enumerate(choices) if substitutes]
        texts = []
        for changed, chosen in self._numbers(column, len(words)):
            swaps = {at: self._form(words[at], choices[at], changed[at], chosen[at]) for at in places}
            texts.append(words.replace(swaps, carry_case=False))
        return texts

    def reworded(self, wordings: Wordings) -> list[Wordings] | None:
        """The wordings under each pattern, with the same choices; None where that cannot be said place by place.

        So it is where substitutes depend on what other places choose, and where a choice may not be read as one word in
        its place: all words behind it would meet other numbers of the pattern.
        """
        blotted = () if wordings.probe is None else segment(wordings.probe).surfaces
        if wordings.probe is not None and len(blotted) != 1:
            return None
        choices: list[list[tuple[str, ...]]] = [[(word,) for word in words] for words in wordings.words]
        for (column, place), forms in zip(wordings.places, wordings.forms, strict=True):
            words = wordings.words[column]
            start, end = words.spans[place]
            before = words.text[max(0, start - 1) : start]
            if not _stands_apart(words.text, start, end) or not all(_is_one_word(form, before) for form in forms[1:]):
                return None
            choices[column][place] = (*forms, *blotted)
        known = [[self.substitutions.for_choices(own, at) for at in range(len(own))] for own in choices]
        if any(found is None for own in known for found in own):
            return None
        by_place = []  # the forms under each pattern
        for (column, place), forms in zip(wordings.places, wordings.forms, strict=True):
            substitutes = known[column][place] or []
            if any(substitutes[len(forms) :]):
                return None  # a blotted word would be reworded
            pattern = self._numbers(column, place + 1)[:, :, place].tolist()
            own = list(zip(forms, substitutes, strict=False))
            by_place.append([tuple(self._form(*each, *numbers) for each in own) for numbers in pattern])
        made = [
            Wordings(texts=texts, places=wordings.places, forms=tuple(forms), probe=wordings.probe)
            for texts, *forms in zip(self.rewordings([wordings.texts])[0], *by_place, strict=True)
        ]
        # Substitutes of the vote may be several words, or none, or grow together with what stands beside them.
        if any(list(map(len, one.words)) != list(map(len, choices)) for one in made):
            return None
        changed = np.ones(len(wordings), np.int16)
        same = [one.write(changed) for one in made] == self.rewordings([wordings.write(changed)])[0]
        return made if same else None

    def _form(self, form: str, substitutes: Sequence[str], changed: float, chosen: float) -> str:
        """One word where a pattern has these numbers."""
        if not substitutes or changed >= self.rate:
            return form
        return match_case(form, substitutes[int(chosen * len(substitutes))])

    def _numbers(self, column: int, length: int) -> np.ndarray:
        """Two numbers for each pattern and word of a column, the same ones however long the text. (k, 2, words)"""
        known = self._drawn.get(column)
        if known is None or known.shape[2] < length:
            size = 1 << max(6, length - 1).bit_length()
            streams = [np.random.default_rng([self.seed, column, j, part]) for j in range(self.k) for part in range(2)]
            known = np.stack([stream.random(size) for stream in streams]).reshape(self.k, 2, size)
            self._drawn[column] = known
        return known


def _stands_apart(text: str, start: int, end: int) -> bool:
    """Whether another word may stand there and none grows together with what is beside it, nor becomes markup."""
    before, after = text[max(0, start - 1) : start], text[end : end + 1]
    if _grows(before) or _grows(after) or before == "&" or _between_brackets(text, start, end):
        return False
    return _joins(text[start:end]) or not (before in JOINTS or after in JOINTS)


def _between_brackets(text: str, start: int, end: int) -> bool:
    """Whether it is markup if the word is of another length, or begins otherwise."""
    closed = text.find(">", end)
    return text.rfind("<", 0, start) > text.rfind(">", 0, start) and closed >= 0 and "<" not in text[end:closed]


def _is_one_word(form: str, before: str) -> bool:
    """Whether it is read as one word there, before any sign: one that ends in a digit may go on behind a point."""
    apart = segment(f"{before}{form}'").spans == ((len(before), len(before) + len(form)),)  # "'tis" has its sign
    return apart and form[:1].isalpha() and form[-1:].isalpha() and _joins(form)


def _grows(sign: str) -> bool:
    """Whether it becomes part of a word beside it: a letter, a digit or a mark."""
    return unicodedata.category(sign)[0] in "LNM" if sign else False


def _joins(word: str) -> bool:
    """Whether hyphens join it with others; so it is already where they could, unlike Chinese characters and emoji."""
    return len(segment(f"a-{word}-a")) == 1
