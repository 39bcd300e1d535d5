"""`Windows`: stretches of words of texts as rows of a token table, so that no stretch is ever written or tokenised."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from unshaken.wordings.assembly import TokenAssembler
from unshaken.wordings.choices import PROBE, Wordings


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
