"""SWAP: sampled worst-case augmentation with a penalty."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from unshaken.defences.adversary import agreement, publish_halves, resolve
from unshaken.defences.base import Defence, Passes, Step, evaluation_mode
from unshaken.errors import UnshakenError
from unshaken.examples import Example
from unshaken.substitutions.base import Substitutions
from unshaken.substitutions.hull import REMEMBERED, TouchedWords
from unshaken.substitutions.words import segment

Choices = tuple[tuple[int, tuple[str, ...]], ...]  # attackable positions of one text, with their substitutes


@dataclass(eq=False, kw_only=True)
class SWAP(Defence):
    """Cross-entropy on the text, and agreement with the worst of a few random rewordings of it.

        CE(q(x), y) + beta * KL(q(x) || q(x_hat)),     x_hat = the variant of x with the highest loss

    Each variant replaces every attackable word with probability `rate` by a random allowed substitute. Variants are
    real texts with the tokenizer's own pieces, any number of them; nothing is mixed or approximated. They are compared
    in one forward pass without gradients or dropout.

    Paper: ours.
    Relations: ASCC searches mixtures of embeddings by gradient; SWAP samples texts, as an attacker must write them.
    Cost: 2 forward and backward passes and `variants` forward passes; with one variant there is nothing to compare.

    Args:
        substitutions: A substitution set, its specification, or None for WordNet.
        variants: Rewordings drawn of each text.
        rate: Probability that an attackable word is replaced.
        beta: Weight of the KL term.
        columns: Which texts of a pair may change; all where None.
        seed: Draws depend on it, on the example and on the progress of training, not on the batch around the example.

    Example:
        >>> defence = SWAP(substitutions=Dictionary.load("neighbours.json"), variants=4)
    """

    substitutions: Substitutions | str | None = None
    variants: int = 4
    rate: float = 0.5
    beta: float = 5.0
    columns: tuple[int, ...] | None = None
    seed: int = 0

    publishes = ("clean", "adversarial")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variants < 1:
            raise UnshakenError(f"variants is {self.variants}; SWAP needs at least 1")
        if not 0 < self.rate <= 1:
            raise UnshakenError(f"rate is {self.rate}; it is a probability above 0")
        self._choices: dict[str, Choices] = {}
        self._touched: TouchedWords | None = None

    def setup(self, model: nn.Module, *, num_labels: int, tokenizer: Any = None) -> None:
        self.substitutions = resolve(self.substitutions)
        self._touched = TouchedWords(self.substitutions)

    def loss(self, step: Step) -> dict[str, Tensor]:
        step.require_classes("SWAP")
        examples = step.require_examples("SWAP")
        rows = len(examples)
        # Clean texts and variants are encoded together: all have one width, and rows can be picked on the device.
        encoded = step.encode([*(example.texts for example in examples), *self.draw(step, examples)])
        variants = {name: values[rows:] for name, values in encoded.items()}
        chosen = self.worst(step, variants)
        both = {name: torch.cat([values[:rows], variants[name][chosen]]) for name, values in encoded.items()}
        clean, adversarial = publish_halves(step, step.forward(**both))
        return {"task": step.task_loss(clean.logits), "swap": self.beta * self.penalty(step, clean, adversarial)}

    def passes(self) -> Passes:
        return Passes(forward=2 + (self.variants if self.variants > 1 else 0), activations=2, weights=2)

    def draw(self, step: Step, examples: Sequence[Example]) -> list[tuple[str, ...]]:
        """All first variants, then all second ones, and so on."""
        sources = [random.Random(f"{self.seed} {step.progress} {example.id}") for example in examples]
        return [
            tuple(self._reword(text, column, source) for column, text in enumerate(example.texts))
            for _ in range(self.variants)
            for example, source in zip(examples, sources, strict=True)
        ]

    def worst(self, step: Step, variants: dict[str, Tensor]) -> Tensor:
        """For each example, the row of its variant with the highest loss. (batch,)"""
        rows = torch.arange(len(step.labels), device=step.labels.device)
        return rows if self.variants == 1 else self.losses(step, variants).argmax(0) * len(rows) + rows

    def losses(self, step: Step, variants: dict[str, Tensor]) -> Tensor:
        """The loss of every variant. (variants, batch)"""
        with torch.no_grad(), evaluation_mode(step.core):
            logits = step.forward(step.core, **variants).logits
        losses = step.task_loss(logits, step.labels.repeat(self.variants), reduction="none")
        return losses.view(self.variants, len(step.labels))

    def penalty(self, step: Step, clean: Any, adversarial: Any) -> Tensor:
        return agreement(clean, adversarial)

    def _reword(self, text: str, column: int, source: random.Random) -> str:
        if self.columns is not None and column not in self.columns:
            return text
        swaps = {
            position: source.choice(substitutes)
            for position, substitutes in self._substitutes(text)
            if source.random() < self.rate
        }
        return segment(text).replace(swaps) if swaps else text

    def _substitutes(self, text: str) -> Choices:
        if text not in self._choices:
            if len(self._choices) > REMEMBERED:
                self._choices.clear()
            if self._touched is None:
                raise UnshakenError("SWAP has no substitution set: call setup(model, num_labels=...) before training")
            found = enumerate(self._touched.substitutions.for_text(segment(text)))
            self._choices[text] = tuple((position, tuple(words)) for position, words in found if words)
            self._touched.saw(texts=1, words=len(self._choices[text]))
        return self._choices[text]
