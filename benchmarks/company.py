"""How far the texts beside a text move its answer, in float32 and with TF32's factors, measured in one run.

    python benchmarks/company.py --models NAME=FOLDER [NAME=FOLDER ...] [--texts FILE] [--sentences 96] [--out FILE]

Each text is answered in one batch with the others and alone; told is the largest change of a log-probability. TF32 is
what its definition says, on any device: both factors of each linear layer rounded to ten bits on the way forward,
products summed up in float32.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from harness import parser, prepare, save, texts_of
from torch import Tensor

from unshaken.attacks import Victim

BITS = 13  # of a float32's 23 that TF32 has not


def rounded(numbers: Tensor) -> Tensor:
    """To the nearest number of ten bits, of two as near to the even one; gradients, as descent takes them, pass."""
    bits = numbers.detach().contiguous().view(torch.int32)
    even = (bits >> BITS) & 1
    near = ((bits + (1 << (BITS - 1)) - 1 + even) & -(1 << BITS)).view(torch.float32)
    return numbers + (near - numbers).detach()


@contextlib.contextmanager
def tf32() -> Iterator[None]:
    linear = F.linear

    def with_rounded_factors(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return linear(rounded(inputs), rounded(weight), bias)

    F.linear = with_rounded_factors  # type: ignore[assignment]
    try:
        yield
    finally:
        F.linear = linear


PRECISIONS = {"float32": contextlib.nullcontext, "TF32": tf32}


def answered(victim: Any, texts: list[str]) -> np.ndarray:
    """Log-probabilities of one padded batch by the model's own pass: a victim's shortcuts multiply in other ways."""
    inputs = victim.tokenizer(texts, padding=True, truncation=True, return_tensors="pt").to(victim.device)
    with torch.no_grad():
        return np.asarray(victim.model(**inputs).logits.double().log_softmax(-1).cpu())


def measured(victim: Any, texts: list[str]) -> dict[str, Any]:
    together = answered(victim, texts)
    alone = np.concatenate([answered(victim, [text]) for text in texts])
    moved = np.abs(together - alone).max(1)
    half, most, largest = np.quantile(moved, [0.5, 0.9, 1.0]).tolist()
    changed = int((together.argmax(1) != alone.argmax(1)).sum())
    return {"texts": len(texts), "half": half, "nine in ten": most, "largest": largest, "changed": changed}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--models", nargs="+", required=True, metavar="NAME=FOLDER")
    options.add_argument("--sentences", type=int, default=96)
    arguments = options.parse_args()
    prepare(arguments)
    texts = texts_of(arguments)[: arguments.sentences]
    rows = []
    for name, _, folder in (model.partition("=") for model in arguments.models):
        victim = Victim.from_pretrained(folder, device=arguments.device)
        for precision, kind in PRECISIONS.items():
            with kind():
                rows.append({"name": name, "precision": precision, **measured(victim, texts)})
            print(rows[-1], flush=True)
    save(arguments, rows)


if __name__ == "__main__":
    main()
