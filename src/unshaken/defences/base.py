"""What a defence is: a module that turns a batch, the `Step` it sees, into named losses.

A defence owns the objective and nothing else. The trainer owns accumulation, mixed precision, distribution and
logging, so a defence reads like the formula of its paper.

Distributed runs ask one rule of a defence: of the passes that end in one backward, the first goes through
`step.forward()` and the others through `step.forward(step.core, ...)`. DDP prepares one exchange of gradients at a
wrapped forward and overwrites buffers there, and gradients of all passes reach its hooks either way.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from torch import Tensor, nn

from unshaken.defences.step import Step
from unshaken.errors import UnshakenError


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
