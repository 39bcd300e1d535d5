"""Every solver, defence and attack once, in a setting small enough to test. Tests that all must pass read it.

Each section is a function, so that a test imports only what it asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class DefenceRow:
    """One defence as the shared tests see it."""

    name: str
    make: Callable[[], Any]
    reads_texts: bool = False  # needs examples and a tokenizer
    regression: bool = True  # defined for float labels
    calls_backward: bool = False  # several backward passes a step
    per_example: bool = True  # without noise and dropout, a batch's loss is the mean of its examples' losses
    without_noise: Callable[[], Any] | None = None  # the same defence with nothing drawn at random, where it has one


def defences() -> list[DefenceRow]:
    from unshaken.defences import (
        ASCC,
        PTWD,
        R3F,
        R4F,
        RIFT,
        SMART,
        SWAP,
        CreAT,
        FreeLB,
        InfoBERT,
        InformativeTerm,
        Mixout,
        Standard,
    )
    from unshaken.substitutions.dictionary import Dictionary

    words = Dictionary(entries={"good": ["fine", "great"], "bad": ["poor", "awful"], "film": ["movie"]})
    return [
        DefenceRow(name="standard", make=Standard, without_noise=Standard),
        DefenceRow(name="freelb", make=FreeLB, calls_backward=True, without_noise=lambda: FreeLB(init_magnitude=0)),
        DefenceRow(name="smart", make=SMART),
        DefenceRow(name="smart-bregman", make=lambda: SMART.paper(weight=3)),
        DefenceRow(name="r3f", make=R3F, regression=False),
        DefenceRow(name="r4f", make=R4F, regression=False),
        DefenceRow(
            name="creat", make=CreAT, without_noise=lambda: CreAT(init_std=0, cosine_reduction="mean", max_norm=0.2)
        ),
        DefenceRow(name="infobert", make=InfoBERT, calls_backward=True, per_example=False),
        DefenceRow(name="ascc", make=lambda: ASCC(substitutions=words, steps=3), reads_texts=True, regression=False),
        DefenceRow(name="rift", make=lambda: RIFT(substitutions=words, steps=3), reads_texts=True, regression=False),
        DefenceRow(name="rift-fast", make=lambda: RIFT.fast(substitutions=words), reads_texts=True, regression=False),
        DefenceRow(name="swap", make=lambda: SWAP(substitutions=words), reads_texts=True, regression=False),
        DefenceRow(
            name="swap-informative",
            make=lambda: SWAP(substitutions=words, variants=2) + InformativeTerm(alpha=0.2),
            reads_texts=True,
            regression=False,
        ),
        DefenceRow(name="informative", make=lambda: InformativeTerm(on="clean"), regression=False, per_example=False),
        DefenceRow(name="ptwd", make=PTWD, without_noise=PTWD),
        DefenceRow(
            name="ptwd-decoupled",
            make=lambda: PTWD(form="l2_squared", decoupled=True),
            without_noise=lambda: PTWD(form="l2_squared", decoupled=True),
        ),
        DefenceRow(name="mixout", make=Mixout),
    ]
