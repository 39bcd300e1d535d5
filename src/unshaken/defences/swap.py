"""SWAP: sampled worst-case augmentation with a penalty."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from unshaken.defences.adversary import agreement, publish_halves, resolve
from unshaken.defences.base import Defence, Passes, evaluation_mode
from unshaken.defences.step import Step
from unshaken.errors import UnshakenError
from unshaken.examples import Example
from unshaken.substitutions.base import Substitutions
from unshaken.substitutions.hull_builder import REMEMBERED
from unshaken.substitutions.joined import All
from unshaken.substitutions.reach import TouchedWords
from unshaken.substitutions.words import segment
from unshaken.wordings import Recipe, TokenAssembler, Wordings
from unshaken.wordings.choices import Array

if TYPE_CHECKING:
    from unshaken.readers import Readers

MEMORY = 2**18  # gains kept, 1 MiB: three times the swaps of SST-2 with counter-fitted neighbours
TEMPERATURE = 0.1  # of the softmax of gains, which are differences of cross-entropies, mostly a few tenths
EXAMPLES_MEMORY = 2**22  # worst choices kept, 8 MiB: three times the places of SST-2
MOMENTUM = 0.3  # a gain follows the last few sightings of its swap, because the model it was measured on moves


@dataclass(eq=False, kw_only=True)
class SWAP(Defence):
    """Cross-entropy on the text, and agreement with the worst of a few random rewordings of it.

        CE(q(x), y) + beta * KL(q(x) || q(x_hat)),     x_hat = the variant of x with the highest loss

    Each variant replaces every attackable word with probability `rate` by a random allowed substitute. Variants are
    real texts with the tokenizer's own pieces, any number of them; nothing is mixed or approximated. They are compared
    in one forward pass without gradients or dropout.

    With `greed` it remembers, for each label, word and substitute, by how much variants with that swap lost more than
    the other variants of their text, and prefers substitutes that hurt more. That costs no pass. Swaps share a fixed
    number of entries by hash. The memory is saved in checkpoints. Each process of a distributed run keeps its own, and
    a resumed one starts with that of the first process.

    With `recall` it remembers the worst variant of each example, and in the next epoch every variant takes its choices
    at about that share of the places: a crossover of what hurt before with a fresh draw, which mutates it. Places share
    a fixed number of entries by hash, saved in checkpoints as well.

    With several sources (`All((WordNet(), Typos()))`, or `wordnet,typos` by name) each word's source is drawn first, so
    that one with many substitutes does not drown the others. Of a model with a reader, substitutes that it reads as the
    word itself (most typing errors) are left out: only what an attacker has left is drawn.

    Paper: ours. Prior art: augmentation by random sampling at every step, Ivgi and Berant, "Achieving Model Robustness
        through Discrete Adversarial Training", EMNLP 2021, arXiv 2104.05062.
    Relations: ASCC searches mixtures of embeddings by gradient; SWAP samples texts, as an attacker must write them.
    Cost: 2 forward and backward passes and `variants` forward passes; with one variant there is nothing to compare.

    Args:
        substitutions: A substitution set, its specification, or None for WordNet.
        variants: Rewordings drawn of each text.
        rate: Probability that an attackable word is replaced.
        spread: Variant m of M replaces words with probability rate * m / M, so that there are light and heavy ones.
        beta: Weight of the KL term.
        greed: Probability that a replaced word takes a substitute drawn by the softmax of the gains remembered, instead
            of evenly.
        recall: Probability that a place takes the choice that it had in the worst variant of its example before.
        columns: Which texts of a pair may change; all if None.
        seed: Draws depend on it, on the example and on the progress of training, not on the batch around the example;
            what greed prefers depends on all that was seen before.

    Example:
        >>> defence = SWAP(substitutions=Dictionary.load("neighbours.json"), variants=4)
    """

    substitutions: Substitutions | str | None = None
    variants: int = 4
    rate: float = 0.5
    beta: float = 5.0
    greed: float = 0.0
    recall: float = 0.0
    spread: bool = False
    columns: tuple[int, ...] | None = None
    seed: int = 0

    publishes = ("clean", "adversarial")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variants < 1:
            raise UnshakenError(f"variants is {self.variants}; SWAP needs at least 1")
        if not 0 < self.rate <= 1:
            raise UnshakenError(f"rate is {self.rate}; it is a probability above 0")
        if not 0 <= self.greed <= 1:
            raise UnshakenError(f"greed is {self.greed}; it is a probability")
        if not 0 <= self.recall < 1:
            raise UnshakenError(f"recall is {self.recall}; it is a probability below 1, or nothing new is ever tried")
        for name in ("greed", "recall", "spread"):
            if getattr(self, name) and self.variants == 1:
                raise UnshakenError(f"{name} compares variants, and there is 1; SWAP needs at least 2 for it")
        if isinstance(self.columns, int):  # as a command line writes it
            self.columns = (self.columns,)
        self._wordings: dict[tuple[str, ...], Wordings] = {}
        self._assembler: TokenAssembler | None = None
        self._recipes: dict[tuple[str, ...], Recipe | None] = {}
        self._touched: TouchedWords | None = None
        self._reader: Readers | None = None
        self._shares: dict[tuple[str, ...], Array] | None = None  # of several sources: how likely each substitute is
        if self.greed:
            self.gains: Tensor
            self.register_buffer("gains", torch.zeros(MEMORY))
        if self.recall:
            self.worst: Tensor  # one more than the choice; 0 if nothing is remembered
            self.register_buffer("worst", torch.zeros(EXAMPLES_MEMORY, dtype=torch.int16))

    def setup(self, model: nn.Module, *, num_labels: int, tokenizer: Any = None) -> None:
        self.substitutions = resolve(self.substitutions)
        self._touched = TouchedWords(self.substitutions)
        self._shares = {} if isinstance(self.substitutions, All) else None

    def finish(self) -> None:
        if self._touched is not None:
            self._touched.require_some()

    def loss(self, step: Step) -> dict[str, Tensor]:
        step.require_classes("SWAP")
        examples = step.require_examples("SWAP")
        rows = len(examples)
        # Clean texts and variants are encoded together: all have one width, and rows can be picked on the device.
        encoded, choices = self.encode(step, examples)
        variants = {name: values[rows:] for name, values in encoded.items()}
        losses = self.losses(step, variants)
        worst = losses.argmax(0) * rows + torch.arange(rows, device=losses.device)  # (batch,)
        both = {name: torch.cat([values[:rows], variants[name][worst]]) for name, values in encoded.items()}
        clean, adversarial = publish_halves(step, step.forward(**both), both.get("attention_mask"))
        parts = {"task": step.task_loss(clean.logits), "swap": self.beta * agreement(clean, adversarial)}
        if self.greed:  # last, so that the device has all its work before we wait for the losses
            self.remember(examples, choices, losses)
        if self.recall:
            self.remember_worst(examples, choices, losses)
        return parts

    def passes(self) -> Passes:
        return Passes(forward=2 + (self.variants if self.variants > 1 else 0), activations=2, weights=2)

    def draw(self, step: Step, examples: Sequence[Example]) -> list[tuple[str, ...]]:
        """The texts: all first variants, then all second ones, and so on."""
        choices = self._choose(step, examples)
        wordings = [self._wording(example.texts) for example in examples]
        ends = np.cumsum([len(wording.places) for wording in wordings])[:-1]
        return [
            wording.write(own.tolist())
            for row in choices
            for wording, own in zip(wordings, np.split(row, ends), strict=True)
        ]

    def encode(self, step: Step, examples: Sequence[Example]) -> tuple[dict[str, Tensor], Array]:
        """Model inputs of the texts and then of their variants, and the choices behind the variants."""
        choices = self._choose(step, examples)
        columns, device = len(examples[0].texts), step.labels.device
        known = self._assembler
        if known is None or not known.serves(step.tokenizer, columns, step.max_length, step.reader):
            self._assembler = known = TokenAssembler(step.tokenizer, columns, step.max_length, step.reader)
            self._recipes = {}
        if not known.usable or step.tokenizer.padding_side != "right":
            return step.encode([*(example.texts for example in examples), *self.draw(step, examples)]), choices
        wordings = [self._wording(example.texts) for example in examples]
        new = {wording.texts: wording for wording in wordings if wording.texts not in self._recipes}
        if new:
            self._recipes |= zip(new, known.recipes(list(new.values())), strict=True)
        recipes = [self._recipes[wording.texts] for wording in wordings]
        made = known.inputs(wordings, recipes, np.concatenate([np.zeros_like(choices[:1]), choices]))
        return {name: made[name].to(device, non_blocking=True) for name in step.inputs if name in made}, choices

    def losses(self, step: Step, variants: dict[str, Tensor]) -> Tensor:
        """The loss of every variant; a single one is not measured. (variants, batch)"""
        if self.variants == 1:
            return torch.zeros(1, len(step.labels), device=step.labels.device)
        with torch.no_grad(), evaluation_mode(step.core):
            logits = step.forward(step.core, **variants).logits
        losses = step.task_loss(logits, step.labels.repeat(self.variants), reduction="none")
        return losses.view(self.variants, len(step.labels))

    def remember(self, examples: Sequence[Example], choices: Array, losses: Tensor) -> None:
        """Move the gain of every swap that was made towards what its variant lost above the mean of its text."""
        above = (losses - losses.mean(0)).float().cpu().numpy()  # (variants, batch)
        if not np.isfinite(above).all():  # a batch that diverged teaches nothing
            return
        first, owner, entries = self._entries(examples)
        made = choices > 0
        swaps = entries[(first + choices)[made]]
        seen, which, counts = np.unique(swaps, return_inverse=True, return_counts=True)
        mean = np.bincount(which, above[:, owner][made]) / counts
        gains = self.gains.numpy()
        gains[seen] += (1 - (1 - MOMENTUM) ** counts) * (mean - gains[seen])

    def remember_worst(self, examples: Sequence[Example], choices: Array, losses: Tensor) -> None:
        """Keep what the worst variant of each example writes at each of its places."""
        counts = [len(self._wording(example.texts).places) for example in examples]
        worst = np.repeat(losses.argmax(0).cpu().numpy(), counts)  # (places,)
        self.worst.numpy()[self._slots(examples)] = choices[worst, np.arange(len(worst))] + 1

    def _slots(self, examples: Sequence[Example]) -> Array:
        """Where the memory keeps the choice at each place of the examples. (places,)"""
        return np.asarray(_mixed(self._keys(examples, zlib.crc32(b"worst"))) % np.uint64(EXAMPLES_MEMORY))

    def _keys(self, examples: Sequence[Example], salt: int) -> Array:
        """A number for each place of each example, which depends on nothing else but the salt. (places,)"""
        seeds = np.array([zlib.crc32(example.id.encode("utf-8", "surrogatepass"), salt) for example in examples])
        counts = np.array([len(self._wording(example.texts).places) for example in examples])
        place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.asarray(np.repeat(seeds, counts).astype(np.uint64) << np.uint64(32) | place.astype(np.uint64))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> SWAP:
        """Memories stay where texts are drawn, in their own precision, wherever the defence goes."""
        kept: dict[str, Tensor | None] = {
            name: self._buffers.pop(name) for name in ("gains", "worst") if name in self._buffers
        }
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._buffers.update(kept)
        return self

    def _choose(self, step: Step, examples: Sequence[Example]) -> Array:
        """What each variant writes at each place of the batch: 0 is the word, k substitute k. (variants, places)"""
        # Between batches, because all texts of one are needed together.
        if step.reader is not self._reader or len(self._wordings) > REMEMBERED:
            self._reader = step.reader
            self._forget()
        keys = self._keys(examples, zlib.crc32(f"{self.seed} {step.progress}".encode()))
        replaced, which, greedy, recalled = _uniform(keys, 4 * self.variants).reshape(4, self.variants, -1)
        sizes = np.concatenate([self._wording(example.texts).sizes for example in examples])
        choices = self._draw(examples, which, sizes)
        if self.greed:
            choices = np.where(greedy < self.greed, self._likely(examples, sizes, which), choices)
        choices = np.where(replaced < self._rates(), choices, 0)
        if self.recall:
            known = self.worst.numpy()[self._slots(examples)].astype(np.int64) - 1  # (places,)
            known = np.minimum(known, sizes - 1)  # two places may share an entry
            choices = np.where((known >= 0) & (recalled < self.recall), known, choices)
        return choices

    def _rates(self) -> Array:
        """Of each variant. (variants, 1)"""
        steps = np.arange(1, self.variants + 1)[:, None] / self.variants
        return np.asarray(self.rate * (steps if self.spread else np.ones_like(steps)))

    def _draw(self, examples: Sequence[Example], which: Array, sizes: Array) -> Array:
        """A random substitute at every place; of several sources, one is drawn first. (variants, places)"""
        if self._shares is None:
            return np.asarray(1 + (which * (sizes - 1)).astype(np.int64))
        place = np.arange(len(sizes))
        ends = np.cumsum(sizes - 1)
        rising = np.concatenate([self._shares[example.texts] for example in examples])  # (forms - places,)
        rising = rising + np.repeat(place, sizes - 1)
        found = np.searchsorted(rising, place + which, side="right")
        return np.asarray(1 + np.minimum(found, ends - 1) - (ends - sizes + 1))

    def _likely(self, examples: Sequence[Example], sizes: Array, which: Array) -> Array:
        """Substitutes drawn by the softmax of their gains; unseen ones are alike. (variants, places)"""
        first, _, entries = self._entries(examples)
        if not len(first):
            return np.zeros_like(which, dtype=np.int64)
        gains = self.gains.numpy()[entries].astype(np.float64)
        gains[first] = -np.inf  # the word itself
        shares = np.exp((gains - np.repeat(np.maximum.reduceat(gains, first), sizes)) / TEMPERATURE)
        ends = np.cumsum(shares)
        before = ends[first]  # the share of the word itself is 0
        totals = np.add.reduceat(shares, first)
        drawn = np.searchsorted(ends, before + which * totals, side="right") - first
        return np.asarray(np.clip(drawn, 1, sizes - 1))

    def _entries(self, examples: Sequence[Example]) -> tuple[Array, Array, Array]:
        """Where the forms of each place begin (places,), its example (places,), and each form's entry (forms,)."""
        wordings = [self._wording(example.texts) for example in examples]
        sizes = np.concatenate([wording.sizes for wording in wordings])
        owner = np.repeat(np.arange(len(wordings)), [len(wording.places) for wording in wordings])
        labels = np.array([int(example.label) for example in examples], np.uint32)[owner]
        hashes = np.concatenate([wording.hashes for wording in wordings])
        entries = (hashes + np.repeat(labels, sizes) * np.uint32(0x9E3779B1)) % np.uint32(MEMORY)
        return np.cumsum(sizes) - sizes, owner, entries

    def _wording(self, texts: tuple[str, ...]) -> Wordings:
        if texts not in self._wordings:
            if self._touched is None:
                raise UnshakenError("SWAP has no substitution set: call setup(model, num_labels=...) before training")
            chosen = [self.columns is None or column in self.columns for column in range(len(texts))]
            split = [segment(text if on else "") for on, text in zip(chosen, texts, strict=True)]
            source = self._touched.substitutions
            if self._shares is not None and isinstance(source, All):
                grouped = [
                    [
                        [self._left(word, own) for own in of_word]
                        for word, of_word in zip(words, source.by_source(words), strict=True)
                    ]
                    for words in split
                ]
                candidates = [[list(chain.from_iterable(of_word)) for of_word in words] for words in grouped]
                self._shares[texts] = _rising([of_word for words in grouped for of_word in words])
            else:
                candidates = [list(map(self._left, words, source.for_text(words))) for words in split]
            self._wordings[texts] = Wordings.of(texts, candidates)
            self._touched.saw(texts=1, words=len(self._wordings[texts].places))
        return self._wordings[texts]

    def _left(self, word: str, substitutes: list[str]) -> list[str]:
        """What the model's reader does not read as the word itself: a draw that it mends would teach nothing."""
        read = self._reader
        return substitutes if read is None else [other for other in substitutes if read(other).lower() != word.lower()]

    def _forget(self) -> None:
        self._wordings, self._recipes = {}, {}
        self._shares = None if self._shares is None else {}


def _rising(words: Sequence[Sequence[Sequence[str]]]) -> Array:
    """Of each word's substitutes, the running sum of their chances: a source that has any, then one of it."""
    rising = []
    for sources in words:
        counts = [len(own) for own in sources if own]
        shares = [1 / len(counts) / count for count in counts for _ in range(count)]
        rising.append(np.cumsum(shares))
    return np.concatenate(rising) if rising else np.zeros(0)


def _uniform(keys: Array, draws: int) -> Array:
    """Numbers in [0, 1) that depend on a key and the number of the draw only (SplitMix64). (keys,) -> (draws, keys)"""
    streams = _mixed(keys) + np.arange(1, draws + 1, dtype=np.uint64)[:, None] * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray((_mixed(streams) >> np.uint64(11)) * 2.0**-53)


def _mixed(values: Array) -> Array:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)))
