"""`Windows`: stretches of words of texts as rows of a token table, so that no stretch is ever written or tokenised."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from unshaken.wordings.choices import PROBE, Wordings
from unshaken.wordings.cuts import AddedTokens, Column, separates

if TYPE_CHECKING:
    from unshaken.wordings.assembly import TokenAssembler


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


class Windows:
    """One column of some examples.

    Args:
        assembler: Of the tokenizer that reads the stretches, for texts of one column.
        examples: The wordings.
        column: Which of their columns.
        device: Where the table lives.

    Attributes:
        table: Its places are all words, and the signs between them.
        known: Which examples can be cut at every word. (examples,)
        words: How many words each example has. (examples,)
        word_of: The word of each place of the wordings, -1 where it is of another column. (examples, places)
    """

    def __init__(
        self, assembler: TokenAssembler, examples: Sequence[Wordings], column: int, device: torch.device
    ) -> None:
        made = assembler.window_recipes(examples, column)
        self.table = assembler.table([found and found[0] for found in made], device)
        cuts = [found and found[1] for found in made]
        width = max((len(example) for example in examples), default=0)
        word_of = np.full((len(examples), width), -1)
        own = [
            (row, place, word)
            for row, example in enumerate(examples)
            for place, (of, word) in enumerate(example.places)
            if of == column
        ]
        rows, places, words = np.array(own, np.int64).reshape(-1, 3).T
        word_of[rows, places] = words
        # A column of zeros is put beside the choices, for words that cannot change.
        source = np.full((len(examples), self.table.places), width)
        changing = [(row, *of) for row, cut in enumerate(cuts) if cut for of in cut.changing]
        rows, at, places, _ = np.array(changing, np.int64).reshape(-1, 4).T
        source[rows, at] = places
        bounds = np.zeros((2, len(examples), self.table.places), np.int64)
        filled = np.arange(self.table.places) < np.array([len(cut.first) if cut else 0 for cut in cuts])[:, None]
        bounds[0, filled] = [word for cut in cuts if cut for word in cut.first]
        bounds[1, filled] = [word for cut in cuts if cut for word in cut.last]
        self.known = torch.tensor([cut is not None for cut in cuts], device=device)
        self.words = torch.tensor([len(example.words[column]) for example in examples], device=device)
        self.word_of, self._source, self._first, self._last = (
            torch.from_numpy(part).to(device) for part in (word_of, source, *bounds)
        )

    def choices(self, owner: Tensor, rows: Tensor, start: Tensor, stop: Tensor) -> Tensor:
        """The table's choices for the words from `start` to `stop` of wordings; -1 and one too many for whole texts.

        Args:
            owner: The example of each row. (n,)
            rows: Wordings. (n, places)
            start: Each (n,)
            stop: Each (n,)
        """
        padded = torch.nn.functional.pad(rows, (0, 1))
        inside = (self._first[owner] >= start[:, None]) & (self._last[owner] < stop[:, None])
        return padded.gather(1, self._source[owner]).masked_fill(~inside, PROBE)
