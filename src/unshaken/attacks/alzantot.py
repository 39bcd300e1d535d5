"""The genetic attack as Alzantot et al. published it."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unshaken.attacks.base import SearchAttack
from unshaken.attacks.constraints import Constraint, MaxChanged
from unshaken.attacks.goals import Scoring
from unshaken.attacks.questions import Ask, Scores, Search, best_of_groups
from unshaken.attacks.space import Space, ragged_arange
from unshaken.errors import UnshakenError


@dataclass(frozen=True, kw_only=True)
class Alzantot(SearchAttack):
    """Breed texts, as in `Genetic`, but swap words not yet swapped, and change a fifth of the text at most.

    A word is drawn in proportion to the number of its substitutes, among those still as they were; the best substitute
    is taken if it helps. Parents are drawn by softmax of their fitness.

    Paper: Alzantot et al. 2018, "Generating Natural Language Adversarial Examples", Algorithm 1, and its official code
        (drawing by neighbour counts, softmax with a temperature of 0.3). Its substitutes are the 8 nearest
        counter-fitted vectors that a language model lets pass: `substitutions` and `LanguageModelScore`.
    Relations: `Genetic` is what Jia et al. and RIFT made of it: uniform draws, swaps that can be undone, no limit on
        changed words, parents in proportion to their fitness.
    Cost: Up to population + generations * (population - 1) swaps, each asking about every choice of one word.

    Args:
        population: Texts in a generation.
        generations: Most generations.
        temperature: Of the softmax that draws parents: lower is greedier.
        constraints: At most 20% of the words changed, where not given.

    Example:
        >>> Alzantot(constraints=(MaxChanged(share=0.25),))(victim, examples)
    """

    name: ClassVar[str] = "alzantot"
    citation: ClassVar[tuple[str, ...]] = ("alzantot-etal-2018-generating",)

    constraints: tuple[Constraint, ...] = (MaxChanged(share=0.2),)  # paper section 4
    scoring: Scoring = "probability"
    population: int = 60  # paper section 4
    generations: int = 20  # paper section 4
    temperature: float = 0.3  # official code

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.population < 2 or self.generations < 1 or self.temperature <= 0:
            raise UnshakenError(
                f"Alzantot needs population >= 2, generations >= 1 and temperature > 0; given {self.population}, "
                f"{self.generations}, {self.temperature}"
            )

    def search(self, space: Space, clean: Scores, rng: np.random.Generator) -> Search:
        first = np.repeat(space.clean[None], self.population, 0)
        rows, values, winner = yield from self._perturb(space, first, rng)
        for _ in range(self.generations):
            if winner is not None or not np.isfinite(values).any():
                break
            fitness = np.exp(self.goal.chance(values, self.scoring) / self.temperature) * np.isfinite(values)
            parents = rng.choice(self.population, (self.population - 1, 2), p=fitness / fitness.sum())
            from_first = rng.random((self.population - 1, len(space))) < 0.5
            children = np.where(from_first, rows[parents[:, 0]], rows[parents[:, 1]])
            best = int(values.argmax())
            elite, elite_value = rows[best], values[best]
            rows, values, winner = yield from self._perturb(space, children, rng)
            rows, values = np.concatenate([elite[None], rows]), np.append(elite_value, values)
        return winner

    def _perturb(
        self, space: Space, rows: np.ndarray, rng: np.random.Generator
    ) -> Generator[Ask, Scores, tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
        """Each row with one more word at its best choice, the values of these, and the best text that succeeded."""
        positions = draw_open(rows, space.sizes - 1, rng)
        counts = space.sizes[positions]
        candidates = np.repeat(rows, counts, axis=0)
        candidates[np.arange(len(candidates)), np.repeat(positions, counts)] = ragged_arange(counts)
        scores = yield Ask(rows=candidates)
        best = best_of_groups(scores.values, np.cumsum(counts) - counts)
        winner = scores.winner()
        return candidates[best], scores.values[best], None if winner is None else candidates[winner]


def draw_open(rows: np.ndarray, weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A position of each row in proportion to `weights`, among those not yet swapped; any where all are. (n,)"""
    is_open = (rows == 0) | (rows != 0).all(1, keepdims=True)
    # Gumbel noise on log-weights draws in proportion to the weights, for all rows at once.
    scores = np.where(is_open, np.log(weights), -np.inf) + rng.gumbel(size=rows.shape)
    return np.asarray(scores.argmax(1))
