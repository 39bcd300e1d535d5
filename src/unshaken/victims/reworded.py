"""What rewords texts before a model, as a table on the model's device: an attack on a vote is as fast as its passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unshaken.victims.base import Victim
from unshaken.wordings import Recipe, TokenAssembler, TokenTable, Wordings
from unshaken.wordings.memory import Memory

CELLS = 1 << 26  # choices of all rewordings that are made at once
Rewords = Callable[[Wordings], Sequence[Wordings] | None]  # None where more than the choice at a place decides


@dataclass(frozen=True)
class RewordedTable:
    """Examples under each way in which their texts are reworded, with the same choices.

    Attributes:
        table: All examples in the first way, then all in the second, and so on.
        ways: How many there are.
    """

    table: TokenTable
    ways: int

    @property
    def device(self) -> torch.device:
        return self.table.device

    @property
    def places(self) -> int:
        return self.table.places

    def keys(self, owner: Tensor, choices: Tensor) -> Tensor:
        """A number for each row, equal where the tokens of all its rewordings are. (n,)"""
        return torch.cat([self._keys(*block) for block in self._blocks(owner, choices)])

    def _keys(self, owner: Tensor, choices: Tensor) -> Tensor:
        keys = torch.zeros_like(owner)
        for own in self.table.keys(*self._all(owner, choices)).view(self.ways, -1):
            keys = keys * 6364136223846793005 + own  # wraps around
        return keys

    def answers(self, model: Victim, owner: Tensor, choices: Tensor) -> np.ndarray:
        """The model's log-probabilities of each rewording, float64 (ways, n, classes).

        What one way makes alike of two wordings of an example is asked about once.
        """
        made = [self._answers(model, *block) for block in self._blocks(owner, choices)]
        return torch.cat(made, dim=1).double().cpu().numpy()

    def _answers(self, model: Victim, owner: Tensor, choices: Tensor) -> Tensor:
        owners, chosen = self._all(owner, choices)
        known = Memory(model.num_labels, self.device).look_up(self.table.keys(owners, chosen))
        answers = model.predict_table(self.table, owners[known.new], chosen[known.new])[known.numbers]
        return answers.view(self.ways, len(owner), model.num_labels)

    def _blocks(self, owner: Tensor, choices: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Rows in parts, so that all their rewordings take no more memory than a question does."""
        step = max(1, CELLS // (self.ways * max(1, self.places)))
        for start in range(0, max(1, len(owner)), step):  # once even without rows, for the shapes
            yield owner[start : start + step], choices[start : start + step]

    def _all(self, owner: Tensor, choices: Tensor) -> tuple[Tensor, Tensor]:
        """Every rewording of rows as rows of the table: the first one of all, then the second of all, and so on."""
        first = torch.arange(self.ways, device=self.device) * (len(self.table) // self.ways)
        return (first[:, None] + owner).flatten(), choices.repeat(self.ways, 1)


@dataclass(frozen=True)
class RewordedAssembler:
    """Recipes of reworded wordings.

    Args:
        assembler: Of the model that reads them.
        rewords: The wordings of an example under each rewording, with the same choices.
    """

    assembler: TokenAssembler
    rewords: Rewords

    def with_itself(self) -> RewordedAssembler:
        """The same with the wordings as they are before the others."""

        def rewords(example: Wordings) -> list[Wordings] | None:
            found = self.rewords(example)
            return None if found is None else [example, *found]

        return RewordedAssembler(self.assembler, rewords)

    def recipes(self, examples: Sequence[Wordings]) -> list[tuple[Recipe, ...] | None]:
        """A recipe for each rewording of each example; None if its texts must stay whole."""
        reworded = [self.rewords(example) or () for example in examples]
        found = iter(self.assembler.recipes([one for own in reworded for one in own]))
        made = [[next(found) for _ in own] for own in reworded]
        whole = [tuple(recipe for recipe in own if recipe is not None) for own in made]
        return [own if own and len(own) == len(all_of) else None for own, all_of in zip(whole, made, strict=True)]

    def table(self, recipes: Sequence[tuple[Recipe, ...]], device: torch.device | str = "cpu") -> RewordedTable:
        by_way = [recipe for own in zip(*recipes, strict=True) for recipe in own]
        return RewordedTable(self.assembler.table(by_way, device), len(recipes[0]))
