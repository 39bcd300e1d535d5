"""Perturbations of word embeddings: how they start, climb and end, and dropout held still meanwhile."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from unshaken.defences.base import input_embeddings
from unshaken.defences.step import Step
from unshaken.errors import UnshakenError
from unshaken.substitutions.hull_search import embedding_block
from unshaken.word_gradients import refuse_blind_tokens

Norm = Literal["l2", "linf"]


def check_takes_embeddings(model: nn.Module, tokenizer: Any = None) -> None:
    """Refuse, before training, a model whose word embeddings cannot be perturbed."""
    if getattr(tokenizer, "padding_side", "right") != "right":
        raise UnshakenError(
            "the tokenizer pads on the left, where models that are fed embeddings count positions from the padding on; "
            "set tokenizer.padding_side = 'right'"
        )
    input_embeddings(model)
    parameters = inspect.signature(model.forward).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    if "inputs_embeds" not in parameters and not takes_any:
        raise UnshakenError(
            f"{type(model).__name__}.forward takes no inputs_embeds, which defences that perturb embeddings feed it; "
            "use a defence that works on texts (swap) or on weights (ptwd, mixout)"
        )


def check_reaches_words(step: Step, gradient: Tensor) -> None:
    """Refuse, in the first step, a gradient that does not reach the words. Later ones are not looked at, since a look
    makes a GPU wait."""
    if step.progress == 0:
        refuse_blind_tokens(gradient, attention_mask(step))


def word_embeddings(step: Step) -> Tensor:
    """The batch's word embeddings, before positions and LayerNorm, with their graph. (batch, seq, width)"""
    embeddings: Tensor = input_embeddings(step.core)(step.inputs["input_ids"])
    return embeddings


def embedding_output(model: nn.Module) -> nn.Module:
    """The block whose output feeds the first layer: words, positions and LayerNorm."""
    return embedding_block(model, input_embeddings(model), instead="word_embeddings")


@contextlib.contextmanager
def shifted(block: nn.Module, delta: Tensor) -> Iterator[None]:
    """While open, `delta` is added to what leaves the block. (batch, seq, width)"""
    handle = block.register_forward_hook(lambda module, given, output: output + delta.to(output.dtype))
    try:
        yield
    finally:
        handle.remove()


def attention_mask(step: Step) -> Tensor:
    """1 for tokens, 0 for padding. (batch, seq)"""
    ids = step.inputs["input_ids"]
    return step.inputs.get("attention_mask", torch.ones_like(ids))


def hidden_states(output: Any, who: str) -> tuple[Tensor, ...]:
    """Embedding output, then each layer's output. Each (batch, seq, hidden)"""
    states = getattr(output, "hidden_states", None)
    if not states:
        raise UnshakenError(f"{who} reads hidden states, and this model returns none for output_hidden_states=True")
    return tuple(states)


def random_start(embeddings: Tensor, mask: Tensor, magnitude: float, norm: Norm) -> Tensor:
    """A uniform perturbation of the tokens, none on padding.

    In l2 its expected length is magnitude / sqrt(3), whatever the number of tokens.  # official code of FreeLB
    """
    if magnitude == 0:
        return torch.zeros_like(embeddings)
    delta = torch.empty_like(embeddings).uniform_(-1, 1) * mask.unsqueeze(-1)
    if norm == "l2":
        elements = mask.sum(dim=1) * embeddings.size(-1)  # (batch,)
        return delta * (magnitude / elements.to(embeddings.dtype).sqrt()).view(-1, 1, 1)
    return delta * magnitude


def ascend(delta: Tensor, gradient: Tensor, *, rate: float, max_norm: float | None, norm: Norm) -> Tensor:
    """One step of length `rate` up each example's gradient, then back into the ball of `max_norm` around the text.

    A gradient that is not finite (an overflow under fp16, whose step the trainer skips) moves nothing.
    """
    order = 2.0 if norm == "l2" else float("inf")
    gradient = torch.nan_to_num(gradient, nan=0.0, posinf=0.0, neginf=0.0)
    length = torch.linalg.vector_norm(gradient, ord=order, dim=(1, 2), keepdim=True)
    delta = delta.detach() + rate * gradient / length.clamp_min(1e-8)  # official code
    if max_norm is None:
        return delta
    if norm == "linf":
        return delta.clamp(-max_norm, max_norm)
    reach: Tensor = torch.linalg.vector_norm(delta, dim=(1, 2), keepdim=True)
    return delta * (max_norm / reach.clamp_min(max_norm))


class SharedRandomness:
    """The same dropout masks in several passes: each `replay` starts from the random state of the first."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.start: tuple[Tensor, Tensor | None] | None = None

    @contextlib.contextmanager
    def replay(self) -> Iterator[None]:
        on_gpu = self.device.type == "cuda"
        if self.start is None:
            self.start = (torch.get_rng_state(), torch.cuda.get_rng_state(self.device) if on_gpu else None)
            yield
            return
        # What is drawn outside the passes goes on as if no pass had been repeated.
        with torch.random.fork_rng(devices=[self.device] if on_gpu else []):
            cpu, gpu = self.start
            torch.set_rng_state(cpu)
            if gpu is not None:
                torch.cuda.set_rng_state(gpu, self.device)
            yield


def positive(**options: float) -> None:
    """Refuse options that must be above zero and are not."""
    for name, value in options.items():
        if not value > 0:
            raise UnshakenError(f"{name} is {value}; it must be above 0")


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UnshakenError(f"{name} is {value!r}; allowed: {', '.join(allowed)}")
