"""ASCC: adversarial training on the convex hull of word substitutions (RIFT's Adv-Base)."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unshaken.attention import with_mask_made_once
from unshaken.defences.adversary import agreement, publish_halves, resolve
from unshaken.defences.base import Defence, Passes, evaluation_mode
from unshaken.defences.divergences import log_probabilities
from unshaken.defences.step import Step
from unshaken.errors import UnshakenError
from unshaken.substitutions.base import Substitutions
from unshaken.substitutions.hull import SLOTS, Hull
from unshaken.substitutions.hull_builder import HullBuilder, Pieces
from unshaken.substitutions.hull_search import HullMixer, HullSearch, MixingSpace


@dataclass(eq=False, kw_only=True)
class ASCC(Defence):
    """Cross-entropy on the text, and agreement with the worst mixture of its substitutions.

        CE(q(x), y) + beta * KL(q(x) || q(x_hat)),     x_hat = argmax over the hull of KL(q(x) || q(.))

    Gradients flow through both sides of the outer KL, and through the candidate embeddings of x_hat; the mixing weights
    are constants there. The inner search runs without dropout and takes gradients of the mixing weights alone.

    Paper: Dong et al., Towards Robustness Against Natural Language Word Substitutions, ICLR 2021; as Adv-Base in Dong
        et al., How Should Pre-Trained Language Models Be Fine-Tuned Towards Adversarial Robustness?, NeurIPS 2021.
    Relations: RIFT is ASCC + InformativeTerm; SWAP replaces mixtures by real texts and the search by samples.
    Cost: 2 forward and backward passes, `steps` forward passes and backward passes through activations, 1 forward pass.

    Args:
        substitutions: A substitution set, its specification, or None for WordNet.
        beta: Weight of the KL term.
        steps, learning_rate, weight_decay, sparsity, entropy, init, optimiser, space: See `HullSearch`.
        objective: What the search maximises: "kl" from the clean prediction (official), or "ce" of the label, which
            saves a pass.
        attack_dropout: Keep dropout on in the search (TextDefender) instead of off (official).
        warm_start: Start the search where it ended the last time this token had this label.
        pieces: How words of several pieces take part: "mean", "single" or "same", see
            `unshaken.substitutions.hull_builder`.
        columns: Which texts of a pair may change; all if None.

    Example:
        >>> defence = ASCC(substitutions=Dictionary.load("neighbours.json"), beta=4)
    """

    citation: ClassVar[tuple[str, ...]] = ("dong-etal-2021-towards", "dong-etal-2021-how")

    substitutions: Substitutions | str | None = None
    beta: float = 4.0  # official code of ASCC (IMDB); Adv-Base of the RIFT paper: 10 IMDB, 5 SNLI
    steps: int = 10  # official code
    learning_rate: float = 1.0  # official code, BERT
    weight_decay: float = 2e-5  # official code
    sparsity: float = 15.0  # official code; ASCC paper: 10
    entropy: Literal["sum", "mean"] = "sum"
    init: Literal["uniform", "clean"] = "uniform"
    optimiser: Literal["adam", "sign"] = "adam"
    space: MixingSpace = "embedding_output"
    objective: Literal["kl", "ce"] = "kl"
    attack_dropout: bool = False
    warm_start: bool = False
    pieces: Pieces = "mean"  # the official code gives every listed word one id; "single" leaves out the others
    columns: tuple[int, ...] | None = None

    publishes = ("clean", "adversarial")
    memory: ClassVar[
        Tensor
    ]  # mixing logits by label and token, where `warm_start` keeps them: (labels, vocabulary, slots)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objective not in ("kl", "ce"):
            raise UnshakenError(f"objective is {self.objective!r}; it is 'kl' or 'ce'")
        if isinstance(self.columns, int):  # as a command line writes it
            self.columns = (self.columns,)
        self.search = HullSearch(**{field.name: getattr(self, field.name) for field in fields(HullSearch)})
        self._build: HullBuilder | None = None
        self._has_looked = False

    def setup(self, model: nn.Module, *, num_labels: int, tokenizer: Any = None) -> None:
        HullMixer(model, self.space)  # says now, not in the first step, what the model lacks
        self.substitutions = resolve(self.substitutions)
        self._has_looked = False  # whether gradients reach the words: asked once, because it makes a GPU wait
        if self.warm_start:
            vocabulary = model.get_input_embeddings().num_embeddings  # type: ignore[operator]
            self.register_buffer("memory", torch.zeros(num_labels, vocabulary, SLOTS))

    def loss(self, step: Step) -> dict[str, Tensor]:
        step.require_classes("ASCC")
        hull = self.hull_of(step)
        reworded = hull.narrowed(step.inputs)
        weights = hull.weights(self.worst(step, hull, reworded))
        rows = len(step.labels)
        both = {name: torch.cat([values, reworded[name]]) for name, values in step.inputs.items()}
        with HullMixer(step.core, self.space).at(hull, weights, first_row=rows):
            clean, adversarial = publish_halves(step, step.forward(**both), both.get("attention_mask"))
        return {"task": step.task_loss(clean.logits), "ascc": self.beta * agreement(clean, adversarial)}

    def facts(self) -> dict[str, Any]:
        return {} if self._build is None else {"hull_coverage": asdict(self._build.coverage)}

    def finish(self) -> None:
        if self._build is not None:
            self._build.touched.require_some()

    def passes(self) -> Passes:
        clean_target = 1 if self.objective == "kl" else 0
        return Passes(forward=clean_target + self.steps + 2, activations=self.steps + 2, weights=2)

    def hull_of(self, step: Step) -> Hull:
        """What the words of a batch may become."""
        if self._build is None:
            if step.tokenizer is None:
                raise UnshakenError(
                    "ASCC aligns words to tokens and needs the tokenizer: pass processing_class=tokenizer"
                )
            self._build = HullBuilder(
                resolve(self.substitutions),
                step.tokenizer,
                max_length=step.max_length,
                pieces=self.pieces,
                columns=self.columns,
                reader=step.reader,
            )
        return self._build([example.texts for example in step.require_examples("ASCC")], step.inputs["input_ids"])

    def worst(self, step: Step, hull: Hull, reworded: dict[str, Tensor]) -> Tensor:
        """Mixing logits of the worst point found. (words, slots)"""
        step = replace(step, keep_hidden_states=False)  # the search reads predictions only
        inputs = with_mask_made_once(step.core, reworded)

        def logits() -> Tensor:
            found: Tensor = step.forward(step.core, **inputs).logits
            return found

        def gain(found: Tensor) -> Tensor:
            if minus_clean is None:
                return step.task_loss(found, reduction="none")
            return (minus_clean * log_probabilities(found)).sum(-1)  # the KL but for a constant, which nothing climbs

        start = self.search.first_guess(hull, step.max_length, step.progress)
        if self.warm_start:
            first = torch.searchsorted(hull.word_of, torch.arange(len(hull), device=start.device))
            known = (step.labels[hull.rows[first]], hull.candidates[first, 0])  # the first piece stands for its word
            start = start + F.pad(self.memory[known], (0, start.shape[1]))[:, : start.shape[1]]
        with contextlib.nullcontext() if self.attack_dropout else evaluation_mode(step.core):
            with torch.no_grad():
                clean = log_probabilities(step.forward(step.core).logits) if self.objective == "kl" else None
                minus_clean = None if clean is None else -clean.exp()
            area = step.inputs["input_ids"].numel()
            found = self.search(step.core, hull, start, logits, gain, area=area, looks=not self._has_looked)
            self._has_looked = self._has_looked or len(hull) > 0  # a batch without words to change shows nothing
        if self.warm_start:
            self.memory[known] = F.pad(found - found.mean(-1, keepdim=True), (0, SLOTS))[:, :SLOTS]
        return found
