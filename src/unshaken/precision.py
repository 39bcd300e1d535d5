"""Products of float32 numbers in float32, whatever a process allows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

# Where each may say "tf32" (ten bits of a factor) or "bf16" (seven) by itself.
_PARTS = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]


@contextlib.contextmanager
def full_products() -> Iterator[None]:
    """While open, float32 is multiplied as such, though the process asked for faster products.

    In TF32 the texts beside a text move its log-probabilities some hundred times as much (benchmarks/company.py), and
    in models that amplify rounding, as IM-BERT's descent does, they change answers.
    """
    before = [part.fp32_precision for part in _PARTS]
    if all(precision in ("none", "ieee") for precision in before):
        yield
        return
    try:
        chosen = torch.get_float32_matmul_precision()
    except RuntimeError:  # it was chosen by the newer names, of which this one knows nothing
        chosen = None
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        if chosen is not None:
            torch.set_float32_matmul_precision(chosen)
        for part, precision in zip(_PARTS, before, strict=True):
            if part.fp32_precision != precision:
                part.fp32_precision = precision
