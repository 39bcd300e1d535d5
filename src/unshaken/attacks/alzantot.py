"""The genetic attack as Alzantot et al. published it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unshaken.attacks.constraints import Constraint, MaxChanged
from unshaken.attacks.genetic import Breeding
from unshaken.attacks.goals import Scoring
from unshaken.attacks.space import Space
from unshaken.errors import UnshakenError


@dataclass(frozen=True, kw_only=True)
class Alzantot(Breeding):
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

    def positions(self, space: Space, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return draw_open(rows, space.sizes - 1, rng)

    def weights(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(self.goal.chance(values, self.scoring) / self.temperature) * np.isfinite(values))


def draw_open(rows: np.ndarray, weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A position of each row in proportion to `weights`, among those not yet swapped; any where all are. (n,)"""
    is_open = (rows == 0) | (rows != 0).all(1, keepdims=True)
    # Gumbel noise on log-weights draws in proportion to the weights, for all rows at once.
    scores = np.where(is_open, np.log(weights), -np.inf) + rng.gumbel(size=rows.shape)
    return np.asarray(scores.argmax(1))
