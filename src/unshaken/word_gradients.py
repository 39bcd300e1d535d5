"""Gradients at the words: what attacks and defences that climb in embedding space ask of a model.

A connected model may be trained with gradients that never reach the words (a detached solve, one phantom step).
Climbing them finds nothing, and the model looks robust. Inside `word_gradients` connected layers differentiate their
solution by the implicit function theorem instead, whatever they train with; the values stay what they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from torch import Tensor

from unshaken.errors import UnshakenError

_wanted: ContextVar[bool] = ContextVar("word gradients are wanted", default=False)
_alone: ContextVar[bool] = ContextVar("and no others", default=False)


@contextlib.contextmanager
def word_gradients(*, alone: bool = False) -> Iterator[None]:
    """While open, forward passes are recorded so that their gradient at the words is that of the solution.

    Args:
        alone: No weight's gradient is asked of these passes, and none need be recorded.
    """
    wanted, only = _wanted.set(True), _alone.set(alone)
    try:
        yield
    finally:
        _alone.reset(only)
        _wanted.reset(wanted)


def are_wanted() -> bool:
    return _wanted.get()


def are_all_wanted() -> bool:
    """Whether weights may be asked for their gradients, too."""
    return not _alone.get()


def refuse_blind_tokens(gradient: Tensor, mask: Tensor) -> None:
    """Refuse a gradient (batch, seq, width) that is zero at every token of a text but the one a classifier reads."""
    reached = ((gradient != 0).any(-1) & mask.bool()).sum(1)
    texts = mask.sum(1) > 2
    if bool((texts & (reached == 1)).any()) and not bool((texts & (reached > 1)).any()):
        raise UnshakenError(f"the gradient is zero at all tokens but one: {_CAUSE}")


def refuse_blind_words(at_words: Tensor, at_logits: Tensor) -> None:
    """Refuse a gradient that is zero at every word though the prediction's own gradient is not."""
    if bool((at_logits != 0).any()) and not bool((at_words != 0).any()):
        raise UnshakenError(f"the gradient is zero at every word: {_CAUSE}")


_CAUSE = (
    "something in the model holds its input fixed (detach, no_grad, rounding), and climbing would find nothing. Remove "
    "it, or use an attack or a defence that asks for predictions only"
)
