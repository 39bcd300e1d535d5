"""`Windows`: stretches of words of texts as rows of a token table, so that no stretch is ever written or tokenised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from unshaken.wordings.choices import PROBE, Array, Wordings
from unshaken.wordings.cuts import Column

if TYPE_CHECKING:
    from unshaken.wordings.assembly import TokenAssembler


class Window(NamedTuple):
    """What each place of a text that was cut at every word stands for. Each (places,)"""

    first: Array  # the word itself, or the word before what stands between two
    last: Array  # the word itself, or the word after it


def window(column: Column) -> tuple[Column, Window]:
    """A column with every word as a place that can be left out, where what stands between words can be, too.

    Args:
        column: Cut at all words, the probe being nothing.
    """
    choices: list[tuple[str, ...]] = []
    first: list[int] = []
    last: list[int] = []
    for word, between in enumerate((*column.fixed, column.tail)):
        if between and not between.isspace():  # white space has no tokens
            choices.append((between, ""))
            first.append(word - 1)
            last.append(word)
        if word < len(column.choices):
            choices.append(column.choices[word])
            first.append(word)
            last.append(word)
    return Column(("",) * len(choices), tuple(choices), ""), Window(np.array(first), np.array(last))


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
        places = [
            {word: place for place, (of, word) in enumerate(example.places) if of == column} for example in examples
        ]
        made = assembler.window_recipes(
            [_all_words(example, column, own) for example, own in zip(examples, places, strict=True)]
        )
        self.table = assembler.table([found and found[0] for found in made], device)
        width = max((len(example) for example in examples), default=0)
        word_of = np.full((len(examples), width), -1)
        source = np.full((len(examples), self.table.places), width)  # a column of zeros that is put beside the choices
        bounds = np.zeros((2, len(examples), self.table.places), np.int64)
        for row, (own, found) in enumerate(zip(places, made, strict=True)):
            word_of[row, list(own.values())] = list(own)
            if found is None:
                continue
            words, last = found[1]
            bounds[:, row, : len(words)] = found[1]
            place_of = np.full(len(examples[row].words[column]) + 1, width)  # a last one for what precedes the first
            place_of[list(own)] = list(own.values())
            source[row, : len(words)] = np.where(words == last, place_of[words], width)
        self.known = torch.tensor([found is not None for found in made], device=device)
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


def _all_words(example: Wordings, column: int, places: dict[int, int]) -> Wordings:
    """One column with every word as a place; most have but themselves to choose, or nothing."""
    words = example.words[column]
    forms = tuple(
        example.forms[places[at]] if at in places else (surface,) for at, surface in enumerate(words.surfaces)
    )
    return Wordings(texts=(words.text,), places=tuple((0, at) for at in range(len(words))), forms=forms, probe="")
