"""Ways to make SWAP better, to be compared with it at equal training cost by `defence_trial.py`."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from unshaken.defences.base import Passes, Step, evaluation_mode, kl_divergence, log_probabilities
from unshaken.defences.swap import SWAP
from unshaken.examples import Example
from unshaken.substitutions.hull import HullBuilder
from unshaken.substitutions.words import segment

Swap = tuple[int, str, str]  # label, word, substitute


@dataclass(eq=False, kw_only=True)
class Chosen(SWAP):
    """Base of variants that choose substitutes by a score instead of uniformly."""

    greed: float = 0.7  # probability that the best-scored substitute is taken instead of a random one

    def __post_init__(self) -> None:
        super().__post_init__()
        self._drawn: list[list[Swap]] = []

    def scores(self, step: Step, example: Example, column: int) -> dict[int, list[float]]:
        """A score for each substitute of each attackable position."""
        raise NotImplementedError

    def draw(self, step: Step, examples: Sequence[Example]) -> list[tuple[str, ...]]:
        sources = [random.Random(f"{self.seed} {step.progress} {example.id}") for example in examples]
        scored = [[self.scores(step, example, column) for column in range(len(example.texts))] for example in examples]
        self._drawn, texts = [], []
        for _ in range(self.variants):
            for example, source, columns in zip(examples, sources, scored, strict=True):
                swaps: list[Swap] = []
                texts.append(
                    tuple(
                        self._choose(text, columns[column], source, int(example.label), swaps)
                        for column, text in enumerate(example.texts)
                    )
                )
                self._drawn.append(swaps)
        return texts

    def _choose(
        self, text: str, scores: dict[int, list[float]], source: random.Random, label: int, swaps: list[Swap]
    ) -> str:
        words, chosen = segment(text), {}
        for position, substitutes in self._substitutes(text):
            if source.random() < self.rate:
                known = scores.get(position)
                best = known is not None and source.random() < self.greed
                index = (
                    max(range(len(substitutes)), key=known.__getitem__) if best else source.randrange(len(substitutes))
                )
                chosen[position] = substitutes[index]
                swaps.append((label, words[position].lower(), substitutes[index]))
        return words.replace(chosen) if chosen else text


@dataclass(eq=False, kw_only=True)
class Memory(Chosen):
    """Prefers swaps that raised the loss above that of the other variants before. No extra pass."""

    momentum: float = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        self._gain: dict[Swap, float] = defaultdict(float)

    def scores(self, step: Step, example: Example, column: int) -> dict[int, list[float]]:
        words, label = segment(example.texts[column]), int(example.label)
        return {
            position: [self._gain[label, words[position].lower(), substitute] for substitute in substitutes]
            for position, substitutes in self._substitutes(example.texts[column])
        }

    def losses(self, step: Step, variants: dict[str, Tensor]) -> Tensor:
        losses = super().losses(step, variants)
        for swaps, gain in zip(self._drawn, (losses - losses.mean(0)).flatten().tolist(), strict=True):
            for swap in swaps:
                self._gain[swap] += self.momentum * (gain - self._gain[swap])
        return losses


@dataclass(eq=False, kw_only=True)
class Guided(Chosen):
    """Prefers swaps that raise the loss to first order at the clean text: one gradient for two variants less."""

    variants: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        self._builder: HullBuilder | None = None
        self._found: dict[tuple[str, ...], list[tuple[int, int, list[tuple[int, ...]], range]]] = {}
        self._by_example: dict[str, list[dict[int, list[float]]]] = {}

    def passes(self) -> Passes:
        return super().passes() + Passes(forward=1, activations=1)

    def scores(self, step: Step, example: Example, column: int) -> dict[int, list[float]]:
        return self._by_example[example.id][column]

    def draw(self, step: Step, examples: Sequence[Example]) -> list[tuple[str, ...]]:
        self._score_all(step, examples)
        return super().draw(step, examples)

    def _words(self, step: Step, texts: tuple[str, ...]) -> list[tuple[int, int, list[tuple[int, ...]], range]]:
        """(column, position, pieces of the word and of each substitute, tokens of the word)"""
        if texts not in self._found:
            builder = self._builder or HullBuilder(
                self._touched.substitutions, step.tokenizer, max_length=step.max_length, pieces="same"
            )
            self._builder = builder
            encoding = step.tokenizer(
                *([text] for text in texts), truncation=True, max_length=step.max_length
            ).encodings[0]
            found = list(builder._find_words(texts, encoding))
            builder._learn(prefix + word for _, _, prefix, choices, _ in found for word in choices)
            self._found[texts] = [
                (column, position, [builder._ids[prefix + word] or (0,) for word in choices], tokens)
                for column, position, prefix, choices, tokens in found
            ]
        return self._found[texts]

    def _score_all(self, step: Step, examples: Sequence[Example]) -> None:
        table = step.core.get_input_embeddings()
        seen: list[Tensor] = []

        def leaf(module: Any, args: Any, output: Tensor) -> Tensor:
            seen.append(output.detach().requires_grad_())
            return seen[0]

        handle = table.register_forward_hook(leaf)
        try:
            with evaluation_mode(step.core), torch.enable_grad():
                loss = step.task_loss(step.forward(step.core).logits, reduction="sum")
        finally:
            handle.remove()
        (gradient,) = torch.autograd.grad(loss, seen[0])  # (batch, seq, hidden)

        pieces: list[int] = []
        offsets: list[int] = []
        owner: list[int] = []  # the word's own bag, for each bag
        place: list[tuple[int, int]] = []  # row and first token, for each bag
        slots: list[tuple[int, int, int]] = []  # row, column, position, for each bag
        for row, example in enumerate(examples):
            for column, position, choices, tokens in self._words(step, example.texts):
                first = len(offsets)
                for ids in choices:
                    offsets.append(len(pieces))
                    pieces += ids
                    owner.append(first)
                    place.append((row, tokens.start))
                    slots.append((row, column, position))
        by_example = [[defaultdict(list) for _ in example.texts] for example in examples]
        if offsets:
            device = gradient.device
            bags = F.embedding_bag(
                torch.tensor(pieces, device=device), table.weight.detach(), torch.tensor(offsets, device=device)
            )
            rows, tokens_at = torch.tensor(place, device=device).T
            change = ((bags - bags[torch.tensor(owner, device=device)]) * gradient[rows, tokens_at]).sum(-1).tolist()
            for bag, (slot, value) in enumerate(zip(slots, change, strict=True)):
                if owner[bag] != bag:
                    by_example[slot[0]][slot[1]][slot[2]].append(value)
        self._by_example = {example.id: scores for example, scores in zip(examples, by_example, strict=True)}


@dataclass(eq=False, kw_only=True)
class GuidedMemory(Guided, Memory):
    """The first-order score plus what the memory says of the swap."""

    def scores(self, step: Step, example: Example, column: int) -> dict[int, list[float]]:
        remembered = Memory.scores(self, step, example, column)
        return {
            position: [gain + known for gain, known in zip(gains, remembered[position], strict=True)]
            for position, gains in Guided.scores(self, step, example, column).items()
        }


@dataclass(eq=False, kw_only=True)
class Ramp(SWAP):
    """Few words at first, most of them at the end."""

    def draw(self, step: Step, examples: Sequence[Example]) -> list[tuple[str, ...]]:
        self.rate = 0.2 + 0.6 * step.progress
        return super().draw(step, examples)


@dataclass(eq=False, kw_only=True)
class Margin(SWAP):
    """The loss of margin between the text and its worst variant, instead of KL."""

    beta: float = 0.5

    def penalty(self, step: Step, clean: Any, adversarial: Any) -> Tensor:
        def margin(logits: Tensor) -> Tensor:
            own = F.one_hot(step.labels, logits.shape[-1]).bool()
            return logits[own] - logits.masked_fill(own, -torch.inf).max(-1).values

        return (margin(clean.logits) - margin(adversarial.logits)).clamp_min(0).mean()


@dataclass(eq=False, kw_only=True)
class Labelled(SWAP):
    """The worst variant is a training text with the label: cross-entropy instead of KL."""

    beta: float = 1.0

    def penalty(self, step: Step, clean: Any, adversarial: Any) -> Tensor:
        return step.task_loss(adversarial.logits)


@dataclass(eq=False, kw_only=True)
class Detached(SWAP):
    """KL that moves the variant towards the text and never the text towards the variant."""

    def penalty(self, step: Step, clean: Any, adversarial: Any) -> Tensor:
        return kl_divergence(log_probabilities(clean.logits).detach(), log_probabilities(adversarial.logits)).mean()
