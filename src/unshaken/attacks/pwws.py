"""PWWS: probability weighted word saliency."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import torch

from unshaken.attacks.base import SearchAttack
from unshaken.attacks.goals import Scoring
from unshaken.attacks.many.groups import first_best
from unshaken.attacks.many.prefixes import ask_many_one_by_one, ask_many_prefixes
from unshaken.attacks.many.word_by_word import by_promise, probe_rows, swap_word_by_word
from unshaken.attacks.questions import (
    Ask,
    Scores,
    Search,
    ask_one_by_one,
    ask_prefixes,
    ask_probes,
    ask_swaps,
    best_of_groups,
)
from unshaken.attacks.space import PROBE, Space
from unshaken.errors import UnshakenError

if TYPE_CHECKING:
    from unshaken.attacks.many.cohort import Cohort


@dataclass(frozen=True, kw_only=True)
class PWWS(SearchAttack):
    """Swap words in the order of how much they matter times how much their best substitute helps.

    With p the probability of the true label, S_i = p(x) - p(x without word i), w_i* the substitute that lowers p most
    and dP_i what it lowers p by, words are taken in the order of H_i = softmax(S)_i * dP_i.

    Paper: Ren et al. 2019, "Generating Natural Language Adversarial Examples through Probability Weighted Word
        Saliency", section 3. As in the official code, words are swapped even where H_i <= 0.
    Relations: Substitutes are whatever `substitutions` gives: WordNet as in the paper (without its swaps of named
        entities), or the counter-fitted dictionary as RIFT runs it. "greedy" is TextAttack's recipe, which searches all
        substitutes again at each word against the text so far: stronger, and two to three times the queries.
    Cost: "ren2019": attackable words + substitutes + swaps until success. The softmax runs over attackable words only:
        its denominator is common to all and cannot change the order, so the other words need no query.

    Args:
        variant: "ren2019" fixes each substitute on the original text; "greedy" chooses it anew on the running text.

    Example:
        >>> PWWS()(victim, examples).accuracy_under_attack
    """

    name: ClassVar[str] = "pwws"
    citation: ClassVar[tuple[str, ...]] = ("ren-etal-2019-generating",)

    variant: Literal["ren2019", "greedy"] = "ren2019"
    scoring: Scoring = "probability"  # paper section 3.2; in float64, so that a confident model creates no ties

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variant not in ("ren2019", "greedy"):
            raise UnshakenError(f"PWWS variant is {self.variant!r}; it must be 'ren2019' or 'greedy'")

    def search(self, space: Space, clean: Scores, rng: np.random.Generator) -> Search:
        blotted = yield from ask_probes(space, space.clean, np.arange(len(space)))
        swaps, scores = yield from ask_swaps(space, space.clean[None])
        best = best_of_groups(scores.values, np.searchsorted(swaps.positions, np.arange(len(space))))
        weights = np.exp(blotted.values - blotted.values.max())  # softmax(S) up to its common denominator
        if self.variant == "greedy":
            # TextAttack weighs by the score itself, not by its change.
            helpful = self.goal.chance(scores.values[best], self.scoring)
            return (yield from self._search_again(space, clean, np.argsort(-weights * helpful, kind="stable")))
        helpful = scores.values[best] - clean.values[0]
        useful = np.flatnonzero(np.isfinite(helpful))  # a constraint may refuse every substitute of a word
        order = useful[np.argsort(-(weights * helpful)[useful], kind="stable")]
        ask = ask_one_by_one if self.checks else ask_prefixes
        return (yield from ask(space, space.clean, order, swaps.choices[best[order]]))

    def _search_again(self, space: Space, clean: Scores, order: np.ndarray) -> Search:
        row, value = space.clean, clean.values[0]
        for position in order.tolist():
            rows = space.substitutes_at(row, position)
            scores = yield Ask(rows=rows, previous=row)
            winner, best = scores.winner(), scores.best()
            if winner is not None:
                return np.asarray(rows[winner])
            if scores.values[best] > value:
                row, value = rows[best], scores.values[best]
        return None

    def search_many(self, cohort: Cohort, streams: Sequence[np.random.Generator]) -> Iterator[None]:
        active = cohort.active()
        if not len(active):
            return
        owner, place, probes = probe_rows(cohort, active, PROBE)
        start, at, choice = cohort.single_swaps(active, cohort.clean_rows(active))
        of = active[start]
        rows = cohort.clean_rows(of).scatter_(1, at[:, None], choice[:, None].short())
        cohort.look_ahead(torch.cat([owner, of]), torch.cat([probes, rows]))
        blotted = cohort.per_place(owner, place, cohort.ask(owner, probes, probes=True).values)
        if not len(cohort.active()):  # all of their budget is spent
            return
        owner, place = of, at
        answers = cohort.ask(owner, rows, previous=torch.zeros_like(rows))
        best = first_best(answers.values, owner * cohort.width + place, len(cohort) * cohort.width)
        best = best.clamp_max(len(rows) - 1).view(len(cohort), cohort.width)
        is_place = cohort.is_place() & cohort.alive[:, None]
        values = answers.values[best].where(is_place, -torch.inf)  # of the best substitute (examples, places)
        weights = (blotted - blotted.amax(1, keepdim=True)).exp()
        yield
        if self.variant == "greedy":
            promise = (weights * cohort.goal.chance(values)).where(is_place, -torch.inf)
            yield from swap_word_by_word(cohort, by_promise(promise))
            return
        promise = weights * (values - cohort.clean.values[:, None])
        useful = is_place & values.isfinite()
        rank = by_promise(promise.where(useful, -torch.inf)).argsort(1)
        ask = ask_many_one_by_one if self.checks else ask_many_prefixes
        yield from ask(cohort, rank.where(useful, cohort.width), choice[best])
