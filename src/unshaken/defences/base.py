"""What a defence is: a module that turns a batch into named losses, and the `Step` it sees.

A defence owns the objective and nothing else. The trainer owns accumulation, mixed precision, distribution and
logging, so a defence reads like the formula of its paper.

Distributed runs ask one rule of a defence: of the passes that end in one backward, the first goes through
`step.forward()` and the others through `step.forward(step.core, ...)`. DDP prepares one exchange of gradients at a
wrapped forward and overwrites buffers there, and gradients of all passes reach its hooks either way.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unshaken.defences.divergences import widened
from unshaken.errors import UnshakenError
from unshaken.examples import Example
from unshaken.truncation import tokenised

if TYPE_CHECKING:
    from unshaken.readers import Readers


@dataclass(frozen=True, kw_only=True)
class Passes:
    """How often one training step runs the encoder on a whole batch, teachers included."""

    forward: int = 0
    activations: int = 0  # backward passes, the half that carries gradients down through activations
    weights: int = 0  # backward passes, the half that forms weight gradients

    @property
    def cost(self) -> float:
        """In plain training steps: a forward pass and both halves of a backward pass cost about the same."""
        return (self.forward + self.activations + self.weights) / 3

    def __add__(self, other: Passes) -> Passes:
        return Passes(
            forward=self.forward + other.forward,
            activations=self.activations + other.activations,
            weights=self.weights + other.weights,
        )

    def __mul__(self, times: int) -> Passes:
        return Passes(forward=self.forward * times, activations=self.activations * times, weights=self.weights * times)


PLAIN = Passes(forward=1, activations=1, weights=1)  # one step of standard fine-tuning


@dataclass(kw_only=True)
class Step:
    """One micro-batch of training, as a defence sees it.

    Attributes:
        model: The classifier; wrapped by DDP or FSDP where the run is distributed.
        inputs: Model inputs without labels, on the model's device.
        labels: Class ids (batch,), or float targets for regression.
        examples: The examples behind the rows, where the data set kept its texts; None otherwise.
        tokenizer: The tokenizer behind `inputs`, where the trainer was given one.
        max_length: Truncation length in tokens.
        reader: What reads texts before the tokenizer, where the model has a reader.
        temperature: What the logits of this step's passes are divided by; `HighTemperature` sets it.
        progress: Share of training done, 0 to 1, for schedules.
        backward: Runs backward for all but the last pass of a defence that needs several (FreeLB, InfoBERT): the
            trainer scales the loss and handles mixed precision. The last loss is returned from `Defence.loss` instead.
        local: Context for forward and backward of all but the last pass: distributed gradients stay on their rank and
            are exchanged once, with the last pass. `with step.local(): step.backward(loss_of(step.forward(...)))`
        keep_hidden_states: Whether passes return their hidden states; `Compose` sets it for parts that read a pass.
        published: Outputs of passes that the objective shares with the parts beside it, by name.
        masks: The attention masks of those passes; that of `inputs` where a pass has none of its own.
    """

    model: nn.Module
    inputs: dict[str, Tensor]
    labels: Tensor
    examples: Sequence[Example] | None = None
    tokenizer: Any = None
    max_length: int = 128
    reader: Readers | None = None
    temperature: float = 1.0
    progress: float = 0.0
    backward: Callable[[Tensor], None] = field(default=lambda loss: loss.backward())
    local: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    keep_hidden_states: bool = False
    published: dict[str, Any] = field(default_factory=dict)
    masks: dict[str, Tensor] = field(default_factory=dict)

    @property
    def is_regression(self) -> bool:
        return self.labels.is_floating_point()

    @property
    def core(self) -> nn.Module:
        """The model inside DDP's wrapper, for passes whose parameter gradients are not wanted."""
        wrappers = (nn.parallel.DistributedDataParallel, nn.DataParallel)
        return self.model.module if isinstance(self.model, wrappers) else self.model

    def forward(self, model: nn.Module | None = None, /, **overrides: Any) -> Any:
        """Run the model on this batch; `overrides` replace inputs, and `inputs_embeds` takes the place of the ids."""
        inputs = {**self.inputs, **overrides}
        if "inputs_embeds" in overrides:
            inputs.pop("input_ids", None)
        if self.keep_hidden_states:
            inputs.setdefault("output_hidden_states", True)
        output = (self.model if model is None else model)(**inputs)
        if self.temperature != 1:
            output["logits"] = output.logits / self.temperature
        return output

    def publish(self, name: str, output: Any, mask: Tensor | None = None) -> Any:
        """Share a pass, `"clean"` or `"adversarial"`, with the parts beside this defence, and hand it on.

        A pass over other texts than `inputs` brings its attention mask.
        """
        self.published[name] = output
        if mask is not None:
            self.masks[name] = mask
        return output

    def mask_of(self, name: str) -> Tensor | None:
        """The attention mask of a published pass. (batch, seq)"""
        return self.masks.get(name, self.inputs.get("attention_mask"))

    def read(self, name: str, who: str) -> Any:
        """The output of a pass that the objective published."""
        if name not in self.published:
            made = ", ".join(self.published) or "none"
            raise UnshakenError(f"{who} reads the {name} pass of the defence beside it, which published: {made}")
        return self.published[name]

    def task_loss(self, logits: Tensor, labels: Tensor | None = None, reduction: str = "mean") -> Tensor:
        """Cross-entropy, or squared error for regression, in float32 or wider."""
        labels = self.labels if labels is None else labels
        logits = widened(logits)
        if labels.is_floating_point():
            predictions = logits.squeeze(-1)  # labels may be a column: broadcast, each would be compared with all
            return F.mse_loss(predictions, labels.to(logits.dtype).view_as(predictions), reduction=reduction)
        return F.cross_entropy(logits, labels, reduction=reduction)

    def encode(self, texts: Sequence[Sequence[str]]) -> dict[str, Tensor]:
        """Tokenise texts (or pairs) as the batch was, on the model's device."""
        if self.tokenizer is None:
            raise UnshakenError("this defence rewrites texts and needs the tokenizer: pass processing_class=tokenizer")
        encoded = tokenised(self.tokenizer, texts, self.max_length, self.reader, padding=True)
        return {key: torch.tensor(encoded[key], device=self.labels.device) for key in self.inputs if key in encoded}

    def require_examples(self, who: str) -> Sequence[Example]:
        if self.examples is None:
            raise UnshakenError(
                f"{who} works on words and needs the texts of the batch: train on an unshaken.Examples split "
                "(load_task returns one) instead of a data set that is already tokenised"
            )
        return self.examples

    def require_classes(self, who: str) -> None:
        if self.is_regression:
            raise UnshakenError(
                f"{who} compares class distributions and its paper gives no form for regression; for float labels use "
                "standard, freelb, smart, creat, infobert, ptwd or mixout"
            )


class Defence(nn.Module):
    """An objective: what turns a batch into the loss of a training step.

    Subclasses implement `loss` and `passes`; `setup` and `after_step` where they need them. Options are most easily
    written as a dataclass (`@dataclass(eq=False, kw_only=True)`); parameters and frozen copies of the model are made in
    `setup`. Trainable parameters join the optimizer; all state is saved in checkpoints, and restored after `setup`.

    Defences compose with regularisers: `ASCC() + PTWD()`.
    """

    citation: ClassVar[tuple[str, ...]] = ()  # keys of citations.bib, or whole BibTeX entries
    publishes: tuple[str, ...] = ()  # names of the passes shared through `Step.publish`
    balanced_batches: bool = False  # every batch must hold every class
    compares_rows: bool = False  # has a term between rows of a batch, so what stands beside a text matters

    def __post_init__(self) -> None:
        super().__init__()  # for dataclasses, whose own __init__ does not

    def setup(self, model: nn.Module, *, num_labels: int, tokenizer: Any = None) -> None:
        """Called once, before training, with the pretrained model (not yet wrapped)."""

    def check_labels(self, names: Sequence[str]) -> None:
        """Called with the class names of the training rows where they have some: refuse what is in another order."""

    def loss(self, step: Step) -> dict[str, Tensor]:
        """Named loss parts, each a mean over the batch; the training loss is their sum."""
        raise NotImplementedError

    def after_step(self, model: nn.Module) -> None:
        """Called after each optimizer step (mean teachers, decoupled decay)."""

    def finish(self) -> None:
        """Called after a training that saw all texts in one process: refuse what was none by this defence."""

    def passes(self) -> Passes:
        """What one `loss` and its backward cost."""
        raise NotImplementedError

    def facts(self) -> dict[str, Any]:
        """What this run settled by itself, as plain JSON: for its record, and for tables."""
        return {}

    def __add__(self, other: Defence) -> Compose:
        return Compose(self, other)


class Regulariser(Defence):
    """A term beside an objective. Alone it stands beside the plain task loss: `PTWD()` is `Standard() + PTWD()`.

    Subclasses implement `penalty`, and `extra_passes` where it runs an encoder. A penalty may read the passes of the
    objective (`reads`, `Step.read`) instead of running its own.
    """

    reads: tuple[str, ...] = ()  # names of published passes this term needs

    def prepare(self, step: Step) -> None:
        """Called before the objective runs its passes."""

    def penalty(self, step: Step) -> dict[str, Tensor]:
        """Named parts to add to the objective's; empty if the term acts on the weights."""
        raise NotImplementedError

    def extra_passes(self) -> Passes:
        return Passes()

    def loss(self, step: Step) -> dict[str, Tensor]:
        step.keep_hidden_states |= bool(self.reads)
        self.prepare(step)
        output = step.publish("clean", step.forward())
        return {"task": step.task_loss(output.logits)} | self.penalty(step)

    def passes(self) -> Passes:
        return PLAIN + self.extra_passes()


class Compose(Defence):
    """One objective and the regularisers beside it, made by `+`. Without an objective it is the plain task loss.

    Example:
        >>> defence = ASCC(beta=4) + PTWD(weight=0.01)
    """

    def __init__(self, *defences: Defence) -> None:
        super().__init__()
        parts: list[Defence] = []
        for defence in defences:
            parts += defence.parts if isinstance(defence, Compose) else [defence]
        objectives = [part for part in parts if not isinstance(part, Regulariser)]
        if len(objectives) > 1:
            names = " + ".join(type(part).__name__ for part in objectives)
            raise UnshakenError(
                f"{names}: each of these is a whole objective, and a defence has one; only regularisers (ptwd, mixout, "
                "informative, temperature, teacher) can be added to it"
            )
        terms = [part for part in parts if isinstance(part, Regulariser)]
        kinds = [type(term) for term in terms]
        for kind in kinds:
            if kinds.count(kind) > 1:
                raise UnshakenError(f"{kind.__name__} is given {kinds.count(kind)} times; give it once")
        self.publishes = objectives[0].publishes if objectives else ("clean",)
        for term in terms:
            for name in term.reads:
                if name not in self.publishes:
                    beside = type(objectives[0]).__name__ if objectives else "the plain task loss"
                    raise UnshakenError(
                        f"{type(term).__name__} reads the {name} pass, but {beside} has "
                        f"{' and '.join(self.publishes) or 'none to share'}; put it beside a defence that makes one"
                    )
        self.modules_in_order = nn.ModuleList([*objectives, *terms])

    @property
    def parts(self) -> list[Defence]:
        """The objective, where there is one, then the regularisers."""
        return cast("list[Defence]", list(self.modules_in_order))

    @property
    def terms(self) -> list[Regulariser]:
        """All parts but the first."""
        return cast("list[Regulariser]", self.parts[1:])

    def setup(self, model: nn.Module, *, num_labels: int, tokenizer: Any = None) -> None:
        for part in self.parts:
            part.setup(model, num_labels=num_labels, tokenizer=tokenizer)

    def loss(self, step: Step) -> dict[str, Tensor]:
        step.keep_hidden_states |= any(term.reads for term in self.terms)
        for term in self.terms:
            term.prepare(step)
        losses = self.parts[0].loss(step)
        for term in self.terms:
            losses |= term.penalty(step)
        return losses

    def check_labels(self, names: Sequence[str]) -> None:
        for part in self.parts:
            part.check_labels(names)

    def after_step(self, model: nn.Module) -> None:
        for part in self.parts:
            part.after_step(model)

    def finish(self) -> None:
        for part in self.parts:
            part.finish()

    def passes(self) -> Passes:
        return sum((term.extra_passes() for term in self.terms), start=self.parts[0].passes())

    def facts(self) -> dict[str, Any]:
        return {name: fact for part in self.parts for name, fact in part.facts().items()}

    def __repr__(self) -> str:
        return " + ".join(repr(part) for part in self.parts)


@contextlib.contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Dropout off inside, every module's own mode restored after, also when the block raises."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def frozen_copy(model: nn.Module) -> nn.Module:
    """A teacher: the same weights, without gradients and in evaluation mode."""
    teacher = copy.deepcopy(model).requires_grad_(False)
    return teacher.eval()


def input_embeddings(model: nn.Module) -> nn.Module:
    """The token embedding table, or an error that says why a perturbation of embeddings cannot work."""
    getter = getattr(model, "get_input_embeddings", None)
    try:
        table = getter() if getter is not None else None
    except (AttributeError, NotImplementedError):
        table = None
    if not isinstance(table, nn.Module):
        raise UnshakenError(
            f"{type(model).__name__} gives no access to its token embeddings; defences that perturb embeddings need "
            "get_input_embeddings() and a forward that takes inputs_embeds"
        )
    return table
