"""The genetic attack of Alzantot et al. as Jia et al. and RIFT run it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from unshaken.attacks.base import SearchAttack
from unshaken.attacks.many.groups import first_best, within
from unshaken.attacks.questions import Ask, Scores, Search, best_of_groups
from unshaken.attacks.space import Space, ragged_arange
from unshaken.errors import UnshakenError

if TYPE_CHECKING:
    from unshaken.attacks.many.cohort import Cohort


@dataclass(frozen=True, kw_only=True)
class Breeding(SearchAttack):
    """What genetic searches share: the best text survives, children mix the words of two parents and get one swap."""

    search_parts: ClassVar[tuple[str, ...]] = ("positions", "weights")

    population: int
    generations: int

    @abstractmethod
    def positions(self, space: Space, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Which word of each row is swapped. (n, positions) -> (n,)"""

    @abstractmethod
    def weights(self, values: np.ndarray) -> np.ndarray:
        """How likely each text becomes a parent, up to a factor; all zero ends the search. (n,) -> (n,)"""

    def search(self, space: Space, clean: Scores, rng: np.random.Generator) -> Search:
        first = np.repeat(space.clean[None], self.population, 0)
        rows, values, winner = yield from self._perturb(space, first, rng)
        for _ in range(self.generations):
            if winner is not None or not (weights := self.weights(values)).any():
                break
            parents = rng.choice(self.population, (self.population - 1, 2), p=weights / weights.sum())
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
        """Each row with one word set to its best choice (the word itself is one of them), the values of these, and the
        best text that succeeded."""
        positions = self.positions(space, rows, rng)
        counts = space.sizes[positions]
        candidates = np.repeat(rows, counts, axis=0)
        candidates[np.arange(len(candidates)), np.repeat(positions, counts)] = ragged_arange(counts)
        scores = yield Ask(rows=candidates)
        best = best_of_groups(scores.values, np.cumsum(counts) - counts)
        winner = scores.winner()
        return candidates[best], scores.values[best], None if winner is None else candidates[winner]


@dataclass(frozen=True, kw_only=True)
class Genetic(Breeding):
    """Breed texts: the best survives, parents are drawn by fitness, children mix their words and get one best swap.

    Paper: Alzantot et al. 2018, section 3; Jia et al. 2019, section 5.1, with any number of changed words; RIFT (Dong
        et al. 2021) runs Jia's version with its counter-fitted dictionary and, where it is at hand, a filter by a
        language model (`constraints=(LanguageModelScore(...),)`).
    Relations: Parents are drawn in proportion to 1 - p + floor, where p is the true label's share against the best
        other class: Jia and RIFT alike. The official code never looks at the last generation; here it is looked at,
        which can only make the attack stronger. TextAttack's GeneticAlgorithm prefers the worst parents and is not this
        attack.
    Cost: Up to population + generations * (population - 1) swaps, each asking about every choice of one word: about
        15,000 queries where the victim holds. Far fewer reach the model, because children repeat.

    Args:
        population: Texts in a generation.
        generations: Most generations.
        floor: Added to each weight, so that hopeless parents are drawn at times.

    Example:
        >>> Genetic(population=20, generations=10)(victim, examples)
    """

    name: ClassVar[str] = "genetic"
    citation: ClassVar[tuple[str, ...]] = ("alzantot-etal-2018-generating",)

    population: int = 60  # Jia et al. 2019 section 5.1; RIFT, official code
    generations: int = 40  # Jia et al. 2019 section 5.1; RIFT, official code
    floor: float = 1e-4  # RIFT, official code for SNLI; 1e-8 for IMDB, 1e-6 in Jia's code

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.population < 2 or self.generations < 1 or self.floor <= 0:
            raise UnshakenError(
                f"Genetic needs population >= 2, generations >= 1 and floor > 0; given {self.population}, "
                f"{self.generations}, {self.floor}"
            )

    def positions(self, space: Space, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        # By the same call as all else that is drawn, so that `search_many` draws once per generation.
        return np.asarray((rng.random(len(rows)) * len(space)).astype(np.int64))

    def weights(self, values: np.ndarray) -> np.ndarray:
        return self.goal.chance(values, self.scoring) + self.floor

    def search_many(self, cohort: Cohort, streams: Sequence[np.random.Generator]) -> Iterator[None]:
        active = cohort.active()
        if not len(active):
            return
        first = cohort.clean_rows(active)[:, None].expand(-1, self.population, -1)  # (active, population, places)
        draws = self._draws(cohort, active, streams, self.population, 0)
        rows, values = self._perturb_many(cohort, active, first, draws)
        yield
        children = self.population - 1
        for _ in range(self.generations):
            kept = cohort.alive[active].nonzero()[:, 0]  # numbers: each mask of booleans would wait for the device
            active, rows, values = active[kept], rows[kept], values[kept]
            if not len(active):
                return
            best = values.argmax(1)
            each = torch.arange(len(active), device=rows.device)
            elite, elite_values = rows[each, best], values[each, best]
            weights = cohort.goal.chance(values) + self.floor
            shares = (weights / weights.sum(1, keepdim=True)).cumsum(1)
            draws = self._draws(cohort, active, streams, 3 * children, children)  # in the order of `search`
            parents = torch.searchsorted(shares / shares[:, -1:], draws[:, : 2 * children].contiguous(), right=True)
            parents = parents.view(len(active), children, 2).clamp_max(self.population - 1)
            mother, father = rows[each[:, None], parents[..., 0]], rows[each[:, None], parents[..., 1]]
            child = torch.arange(children, device=cohort.device)
            places = cohort.places[active, None]
            word = torch.arange(cohort.width, device=cohort.device)  # each child draws for as many as there are
            at = 2 * children + child[:, None] * places[..., None] + word  # (active, children, places)
            from_first = draws.gather(1, at.clamp_max(draws.shape[1] - 1).flatten(1)).view_as(at) < 0.5
            swapped = draws.gather(1, 2 * children + children * places + child)
            rows, values = self._perturb_many(cohort, active, mother.where(from_first, father), swapped)
            rows = torch.cat([elite[:, None], rows], 1)
            values = torch.cat([elite_values[:, None], values], 1)
            yield

    def _draws(
        self, cohort: Cohort, active: Tensor, streams: Sequence[np.random.Generator], count: int, per_place: int
    ) -> Tensor:
        """What each example draws: `count` numbers, and more for each of its places. (active, most)"""
        drawn = np.ones((len(active), count + per_place * cohort.width))
        for row, number in enumerate(active.tolist()):
            streams[number].random(out=drawn[row, : count + per_place * len(cohort.spaces[number])])
        return torch.from_numpy(drawn).to(cohort.device)

    def _perturb_many(self, cohort: Cohort, active: Tensor, rows: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """As `_perturb`, for the rows of every example. (active, rows, places) -> the same, and (active, rows)"""
        count = rows.shape[1]
        place = (draws * cohort.places[active, None]).long().flatten()
        member = active.repeat_interleave(count)
        counts = cohort.sizes[member, place]
        total = int(counts.sum())
        start = torch.arange(len(member), device=cohort.device).repeat_interleave(counts, output_size=total)
        choice = within(counts, total)
        candidates = rows.flatten(0, 1)[start].scatter_(1, place[start, None], choice[:, None].short())
        owner = member[start]
        answers = cohort.ask(owner, candidates)
        cohort.settle(owner, candidates, answers)
        best = first_best(answers.values, start, len(member)).clamp_max(total - 1)
        return candidates[best].view_as(rows), answers.values[best].view(rows.shape[:2])
