"""White-box attacks: gradients on the convex hull of the substitutes choose the words, a query verifies them.

Gradients flow through whatever the model does. A connected layer is differentiated at its solution, by the implicit
function theorem, whatever it was trained with; a gradient that is zero at the words is refused.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unshaken.attacks.base import SearchAttack
from unshaken.attacks.drawing import chances, drawn_from, half_anywhere
from unshaken.attacks.goals import Targeted
from unshaken.attacks.many.looking import ask_draws, best_promises, looked_into
from unshaken.attacks.many.prefixes import ask_many_one_by_one, ask_many_prefixes
from unshaken.attacks.questions import Ask, Inspection, Scores, Search, ask_one_by_one, ask_prefixes
from unshaken.attacks.space import Space
from unshaken.attention import with_mask_made_once
from unshaken.errors import UnshakenError
from unshaken.substitutions.hull import Hull
from unshaken.substitutions.hull_builder import HullBuilder, Pieces
from unshaken.substitutions.hull_search import Fixed, HullMixer, HullSearch
from unshaken.truncation import tokenised
from unshaken.victims.base import Victim
from unshaken.victims.hugging_face import ModelVictim
from unshaken.word_gradients import refuse_blind_words, word_gradients

if TYPE_CHECKING:
    from unshaken.attacks.many.cohort import Cohort

Match = tuple[int, int, int, int, int]  # word and slot of a hull; row, position and choice of search spaces


class _Batch(NamedTuple):
    """The examples of one pass with gradients."""

    inputs: dict[str, Tensor]
    labels: Tensor
    matches: Sequence[Match]
    looks: Sequence[Inspection]


@dataclass(frozen=True, kw_only=True)
class HullGradientAttack(SearchAttack):
    """What both attacks share: the hull of a batch of examples, and its words found again in their search spaces.

    Args:
        pieces: How words of several pieces take part: "mean", "same" or "single", see
            `unshaken.substitutions.hull_builder`.
        batch_examples: Examples in one forward and backward pass.
    """

    white_box: ClassVar[bool] = True
    needs_scores: ClassVar[bool] = False

    pieces: Pieces = "mean"
    batch_examples: int = 32

    def inspect(self, victim: Victim, looks: Sequence[Inspection]) -> list[np.ndarray]:
        network = victim.network
        assert network is not None  # the engine let no other pass
        space = looks[0].space
        columns = [column for column in range(len(space.words)) if column not in space.frozen_columns]
        # The builder remembers texts, so one is kept for as long as the model is.
        key = ("hull", self.pieces, tuple(columns), self.substitutions.fingerprint)
        builder = network.notes.get(key)
        if builder is None:
            builder = HullBuilder(
                self.substitutions,
                network.tokenizer,
                max_length=network.max_length,
                pieces=self.pieces,
                columns=columns,
                reader=network.reader,
            )
            network.notes[key] = builder
        # Looks of one number go together, so that what is seen never depends on how far the neighbours are.
        order = sorted(range(len(looks)), key=lambda index: looks[index].number)
        seen: dict[int, np.ndarray] = {}
        for _, group in itertools.groupby(order, key=lambda index: looks[index].number):
            indices = list(group)
            for start in range(0, len(indices), self.batch_examples):
                block = indices[start : start + self.batch_examples]
                seen.update(zip(block, self._inspect_batch(network, builder, [looks[i] for i in block]), strict=True))
        return [seen[index] for index in range(len(looks))]

    def _inspect_batch(
        self, victim: ModelVictim, builder: HullBuilder, looks: Sequence[Inspection]
    ) -> list[np.ndarray]:
        spaces = [look.space for look in looks]
        texts = [space.example.texts for space in spaces]
        with victim.tokenizing:  # texts that are to be confirmed may be read meanwhile
            inputs = tokenised(
                victim.tokenizer, texts, victim.max_length, victim.reader, padding=True, return_tensors="pt"
            )
            inputs = inputs.to(victim.device)
            hull = builder(texts, inputs["input_ids"])
        labels = torch.tensor([int(space.example.label) for space in spaces], device=victim.device)
        seen = [np.full((len(space), int(space.sizes.max(initial=1))), -np.inf) for space in spaces]
        if not len(hull):
            return seen
        batch = _Batch(hull.narrowed(inputs), labels, _match(hull, spaces), looks)
        numbers = self._look(victim, hull, batch).cpu().numpy()
        for word, slot, row, position, choice in batch.matches:
            seen[row][position, choice] = numbers[word, slot]
        return seen

    @abstractmethod
    def _look(self, victim: ModelVictim, hull: Hull, batch: _Batch) -> Tensor:
        """A number for each word and slot of the hull, (words, slots)."""

    def gain(self, logits: Tensor, labels: Tensor) -> Tensor:
        """What is climbed: the loss of the true label, or minus that of the target. (batch, classes) -> (batch,)"""
        if isinstance(self.goal, Targeted):
            return -F.cross_entropy(logits.float(), torch.full_like(labels, self.goal.label), reduction="none")
        return F.cross_entropy(logits.float(), labels, reduction="none")


@dataclass(frozen=True, kw_only=True)
class HullAttack(HullGradientAttack):
    """Climb the loss over mixtures of substitutes, then put in the heaviest one of each word, the surest words first.

    Paper: Dong et al. 2021 (ASCC), section 3; RIFT evaluates with it. There the mixture itself is the adversary; here
        only a real text counts. A mixture is no text, and the text of all heaviest substitutes often lies far from it:
        texts on the way there are asked about too, word by word in the order of their weight, and then drawn texts:
        each word half by the weights, half from anywhere.
    Relations: `defences.ASCC` trains against the same inner search.
    Cost: `steps` forward and backward passes and up to as many queries as there are words and draws, a restart. Passes
        with gradients do not count as queries.

    Args:
        steps: Inner steps of Adam.
        learning_rate: Of Adam on the mixing logits.
        sparsity: Weight of the entropy that drives mixtures towards real words.
        restarts: Points to climb from: near the centre of the hull (official), then anywhere in it.
        draws: Texts drawn from each mixture.
        space: Where embeddings are mixed: after the embedding block's LayerNorm (official), or word vectors before it.

    Example:
        >>> HullAttack(steps=20)(victim, examples)
    """

    name: ClassVar[str] = "hull"

    steps: int = 10  # ASCC and RIFT, official code
    learning_rate: float = 1.0  # official code, BERT
    sparsity: float = 15.0  # official code; ASCC paper: 10
    restarts: int = 4
    draws: int = 24
    space: Literal["embedding_output", "word"] = "embedding_output"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.restarts < 1 or self.draws < 0:
            raise UnshakenError(f"restarts is {self.restarts}, draws {self.draws}; at least 1, and at least 0")
        self._ascent()

    def _ascent(self) -> HullSearch:
        return HullSearch(steps=self.steps, learning_rate=self.learning_rate, sparsity=self.sparsity, space=self.space)

    def search(self, space: Space, clean: Scores, rng: np.random.Generator) -> Search:
        ask = ask_one_by_one if self.checks else ask_prefixes
        for start in range(self.restarts):
            seen: Scores = yield Ask(rows=space.clean[None], look=start + 1)
            weights: np.ndarray = seen.inspection
            order, choices = _heaviest(weights)
            found = yield from ask(space, space.clean, order, choices)
            if found is not None:
                return found
            rows = drawn_from(half_anywhere(weights, space.sizes), space.sizes, self.draws, rng)
            scores = yield Ask(rows=rows, in_order=True)
            if scores.success.any():
                return np.asarray(rows[scores.success.argmax()])
        return None

    def search_many(self, cohort: Cohort, streams: Sequence[np.random.Generator]) -> Iterator[None]:
        everyone = cohort.clean_rows(cohort.labels)
        ask = ask_many_one_by_one if self.checks else ask_many_prefixes
        for start in range(self.restarts):
            active = cohort.active()
            if not len(active):
                return
            weights = looked_into(cohort, active, everyone, start + 1)
            rank, choices = np.full(everyone.shape, cohort.width), np.zeros(everyone.shape, np.int64)
            for number, own in weights.items():
                order, chosen = _heaviest(own)
                rank[number, order], choices[number, order] = np.arange(len(order)), chosen
            yield from ask(cohort, *(torch.from_numpy(part).to(cohort.device) for part in (rank, choices)))
            spread = {number: half_anywhere(own, cohort.spaces[number].sizes) for number, own in weights.items()}
            ask_draws(cohort, spread, self.draws, streams)
            yield

    def _look(self, victim: ModelVictim, hull: Hull, batch: _Batch) -> Tensor:
        number = batch.looks[0].number
        ascent, salt = self._ascent(), (self.seed, number)
        inputs = with_mask_made_once(victim.model, batch.inputs)
        found = ascent(
            victim.model,
            hull,
            ascent.first_guess(hull, victim.max_length, salt) if number == 1 else hull.noise(salt),
            lambda: victim.model(**inputs).logits,
            lambda logits: self.gain(logits, batch.labels),
            batch.inputs["input_ids"].numel(),
        )
        return hull.weights(found)


@dataclass(frozen=True, kw_only=True)
class HotFlip(HullGradientAttack):
    """Swap the word whose substitute promises most by first-order Taylor expansion, ask, and look again.

    With g the gradient of the loss at the embeddings of the text so far, a substitute promises g . (e_new - e_now),
    summed over its pieces. The promise is the gradient at a vertex of the hull.

    Paper: Ebrahimi et al. 2018, section 4, with word substitutions; the best swap is kept even where the query says
        that it did not help, as in the paper's greedy search. A first-order promise often lies, so the `asked` best
        promises are put to the victim, and what it answers decides. Swaps are never undone, so a path can lead
        nowhere; then texts are drawn, words with a high promise more often. `asked=1, draws=0` is the paper's.
    Relations: Much cheaper than `Greedy`, which asks about every substitute, and weaker where the loss is not linear.
    Cost: One forward and backward pass and `asked` queries per swap, then `draws` queries. Passes with gradients do not
        count as queries.

    Args:
        most: Most swaps; as many as there are words if None.
        asked: How many of the best promises the victim is asked about before a swap.
        draws: Texts drawn by the first promises where swap after swap led nowhere; 0 is the paper's.

    Example:
        >>> HotFlip()(victim, examples)
    """

    name: ClassVar[str] = "hotflip"
    citation: ClassVar[tuple[str, ...]] = ("ebrahimi-etal-2018-hotflip",)

    most: int | None = None
    asked: int = 8
    draws: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.asked < 1 or self.draws < 0:
            raise UnshakenError(f"asked is {self.asked}, draws {self.draws}; at least 1, and at least 0")

    def search(self, space: Space, clean: Scores, rng: np.random.Generator) -> Search:
        row = space.clean
        for step in range(min(len(space), self.most or len(space))):
            seen: Scores = yield Ask(rows=row[None], look=step + 1)
            if step == 0:
                at_first = seen.inspection
            promises: np.ndarray = np.where((row == 0)[:, None], seen.inspection, -np.inf)
            promises[:, 0] = -np.inf
            order = np.argsort(-promises, axis=None, kind="stable")[: int(np.isfinite(promises).sum())]
            taken = None
            for first in range(0, len(order), self.asked):  # the next best ones where constraints refuse all of these
                positions, choices = np.unravel_index(order[first : first + self.asked], promises.shape)
                rows = np.repeat(row[None], len(positions), axis=0)
                rows[np.arange(len(rows)), positions] = choices
                scores = yield Ask(rows=rows, previous=row)
                winner = scores.winner()
                if winner is not None:
                    return np.asarray(rows[winner])
                if np.isfinite(scores.values).any():
                    taken = rows[scores.best()]
                    break
            if taken is None:
                break
            row = taken
        rows = drawn_from(chances(at_first), space.sizes, self.draws, rng)
        scores = yield Ask(rows=rows, in_order=True)
        return np.asarray(rows[scores.success.argmax()]) if scores.success.any() else None

    def search_many(self, cohort: Cohort, streams: Sequence[np.random.Generator]) -> Iterator[None]:
        rows, walking = cohort.clean_rows(cohort.labels), cohort.active()
        at_first: dict[int, np.ndarray] = {}
        for step in range(min(cohort.width, self.most or cohort.width)):
            cohort.active()  # leaves out those whose budget is spent
            walking = walking[cohort.alive[walking] & (cohort.places[walking] > step)]
            if not len(walking):
                break
            seen = looked_into(cohort, walking, rows, step + 1)
            at_first = at_first or seen
            walking = best_promises(cohort, walking, rows, list(seen.values()), self.asked)
            yield
        ask_draws(cohort, {number: chances(own) for number, own in at_first.items()}, self.draws, streams)

    def _look(self, victim: ModelVictim, hull: Hull, batch: _Batch) -> Tensor:
        weights = torch.zeros_like(hull.allowed, dtype=torch.float32)
        weights[:, 0] = 1
        for word, slot, row, position, choice in batch.matches:
            if choice and batch.looks[row].row[position] == choice:
                weights[word, 0], weights[word, slot] = 0, 1
        weights.requires_grad_()
        mixer = HullMixer(victim.model, "embedding_output")
        with torch.enable_grad(), word_gradients(), mixer.at(hull, weights, fixed=Fixed()):
            logits = victim.model(**batch.inputs).logits
            gradient, at_logits = torch.autograd.grad(self.gain(logits, batch.labels).sum(), (weights, logits))
        refuse_blind_words(gradient, at_logits)
        promises: Tensor = gradient - (gradient * weights).sum(-1, keepdim=True)
        return promises.detach()


def _heaviest(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The positions that have a substitute in the hull, by its lead over the word itself, and the heaviest one of each.

    Args:
        weights: Of each choice, -inf where the hull has no such choice. (positions, choices)
    """
    choices = 1 + weights[:, 1:].argmax(1)
    heaviest = weights[np.arange(len(weights)), choices]
    reached = np.flatnonzero(np.isfinite(heaviest))
    order = reached[np.argsort(-(heaviest[reached] - weights[reached, 0]), kind="stable")]
    return order, choices[order]


def _match(hull: Hull, spaces: Sequence[Space]) -> list[Match]:
    """Where the hull's candidates stand in the search spaces, if allowed there."""
    where = [{place: position for position, place in enumerate(space.places)} for space in spaces]
    found: list[Match] = []
    for number, word in enumerate(hull.words):
        position = where[word.row].get((word.column, word.position))
        if position is None:
            continue
        choices = {form: choice for choice, form in reversed(list(enumerate(spaces[word.row].forms[position])))}
        found.extend(
            (number, slot, word.row, position, choices[form])
            for slot, form in enumerate(word.choices)
            if form in choices
        )
    return found
