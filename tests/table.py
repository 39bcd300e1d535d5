"""Every solver, defence and attack once, in a setting small enough to test. Tests that all must pass read it.

Each section is a function, so that a test imports only what it asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any


@dataclass(frozen=True, kw_only=True)
class DefenceRow:
    """One defence as the shared tests see it."""

    name: str
    make: Callable[[], Any]
    reads_texts: bool = False  # needs examples and a tokenizer
    regression: bool = True  # defined for float labels
    calls_backward: bool = False  # several backward passes a step
    keeps_state: bool = False  # has parameters, a teacher or a memory that checkpoints must hold
    without_noise: Callable[[], Any] | None = None  # a form that draws next to nothing at random, and without dropout
    # has for its loss the mean over the batch of each example's own; none where examples interact


def solvers() -> list[Any]:
    """Each solver with steps enough to converge on an easy problem."""
    from unshaken.solvers import Anderson, Broyden, FixedPoint, GradientDescent, NewtonKrylov

    return [
        FixedPoint(steps=80),
        FixedPoint(steps=160, damping=0.5),
        Anderson(steps=14, window=8),
        Anderson(steps=20, window=4, damping=0.7),
        Broyden(steps=16),
        NewtonKrylov(steps=4, krylov=5),
        GradientDescent(steps=250, rate=0.2),
        GradientDescent(steps=250, rate=0.2, safeguard="polyak"),
    ]


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
        HighTemperature,
        InfoBERT,
        InformativeTerm,
        Mixout,
        PlainTeacher,
        Standard,
    )
    from unshaken.substitutions.dictionary import Dictionary

    words = Dictionary(entries={"good": ["fine", "great"], "bad": ["poor", "awful"], "film": ["movie"]})
    return [
        DefenceRow(name="standard", make=Standard, without_noise=Standard),
        DefenceRow(name="freelb", make=FreeLB, calls_backward=True, without_noise=lambda: FreeLB(init_magnitude=0)),
        DefenceRow(name="freelb-plus-plus", make=FreeLB.plus_plus, calls_backward=True),
        DefenceRow(name="smart", make=SMART, without_noise=lambda: SMART(noise=1e-12)),
        DefenceRow(name="smart-words", make=lambda: SMART(space="word_embeddings")),
        DefenceRow(name="smart-bregman", make=lambda: SMART.paper(weight=3), keeps_state=True),
        DefenceRow(name="r3f", make=R3F, regression=False, without_noise=lambda: R3F(eps=1e-9)),
        DefenceRow(name="r4f", make=R4F, regression=False, without_noise=lambda: R4F(eps=1e-9)),
        DefenceRow(
            name="creat", make=CreAT, without_noise=lambda: CreAT(init_std=0, cosine_reduction="mean", max_norm=0.2)
        ),
        DefenceRow(name="infobert", make=InfoBERT, calls_backward=True, keeps_state=True),
        DefenceRow(
            name="ascc",
            make=lambda: ASCC(substitutions=words, steps=3),
            reads_texts=True,
            regression=False,
            without_noise=lambda: ASCC(substitutions=words, steps=3, init="clean", objective="ce", sparsity=0),
        ),
        DefenceRow(
            name="rift",
            make=lambda: RIFT(substitutions=words, steps=3),
            reads_texts=True,
            regression=False,
            keeps_state=True,
        ),
        DefenceRow(
            name="rift-fast",
            make=lambda: RIFT.fast(substitutions=words),
            reads_texts=True,
            regression=False,
            keeps_state=True,
        ),
        DefenceRow(
            name="swap",
            make=lambda: SWAP(substitutions=words),
            reads_texts=True,
            regression=False,
            without_noise=lambda: SWAP(substitutions=words),
        ),
        DefenceRow(
            name="swap-greedy",  # its memory depends on what was seen before, so on how rows are dealt out
            make=lambda: SWAP(substitutions=words, greed=0.7),
            keeps_state=True,
            reads_texts=True,
            regression=False,
        ),
        DefenceRow(
            name="swap-informative",
            make=lambda: SWAP(substitutions=words, variants=2) + InformativeTerm(alpha=0.2),
            keeps_state=True,
            reads_texts=True,
            regression=False,
        ),
        DefenceRow(name="informative", make=lambda: InformativeTerm(on="clean"), regression=False, keeps_state=True),
        DefenceRow(name="ptwd", make=PTWD, keeps_state=True, without_noise=PTWD),
        DefenceRow(
            name="ptwd-decoupled",
            make=lambda: PTWD(form="l2_squared", decoupled=True),
            keeps_state=True,
            without_noise=lambda: PTWD(form="l2_squared", decoupled=True),
        ),
        DefenceRow(
            name="temperature",
            make=HighTemperature,
            regression=False,
            without_noise=lambda: HighTemperature(temperature=2),
        ),
        DefenceRow(
            name="teacher",
            make=lambda: PlainTeacher(model=taught()),
            reads_texts=True,
            regression=False,
            without_noise=lambda: PlainTeacher(model=taught()),
        ),
        DefenceRow(name="mixout", make=Mixout, keeps_state=True, without_noise=lambda: Mixout(p=0)),
    ]


@cache
def taught() -> Any:
    """A teacher for the texts of the tests of defences."""
    from tiny import moved, tiny_model
    from tiny_texts import tokenizer

    from unshaken.victims import Victim

    return Victim.from_model(moved(tiny_model(), by=0.3), tokenizer(), name="taught", max_length=24)


def attacks() -> list[Any]:
    """Each search with settings small enough to run on a few words; white-box ones last."""
    from unshaken.attacks import (
        BAE,
        CLARE,
        PWWS,
        Alzantot,
        Beam,
        BertAttack,
        DeepWordBug,
        Exhaustive,
        Genetic,
        Greedy,
        HardLabel,
        HotFlip,
        HullAttack,
        Random,
        TextFooler,
    )
    from unshaken.attacks.constraints import MaxChanged, StopWords
    from unshaken.substitutions.dictionary import Dictionary

    entries = {
        "good": ["fine", "great", "nice"],
        "bad": ["poor", "awful"],
        "film": ["movie", "picture"],
        "plot": ["story"],
        "slow": ["dull", "lengthy"],
    }

    class Merging(Dictionary):
        def for_pairs(self, pairs: Any) -> list[list[str]]:
            known = {("good", "film"): ["movie", "good", "film"], ("bad", "plot"): ["story", "end"]}
            return [known.get(tuple(word.lower() for word in text[at : at + 2]), []) for text, at in pairs]

    words = Dictionary(entries=entries)
    only_words = (StopWords(),)  # TextFooler's other constraints need an encoder and a tagger
    return [
        PWWS(substitutions=words),
        PWWS(substitutions=words, variant="greedy", scoring="margin"),
        Genetic(substitutions=words, population=6, generations=4),
        Genetic(substitutions=words, population=5, generations=3, scoring="probability", seed=3),
        TextFooler(substitutions=words, variant="paper", constraints=only_words),
        TextFooler(substitutions=words, variant="code", constraints=only_words),
        TextFooler(substitutions=words, variant="textattack", constraints=only_words),
        Exhaustive(substitutions=words),
        Greedy(substitutions=words),
        Beam(substitutions=words, width=3, scoring="log-probability"),
        Random(substitutions=words, samples=20),
        HardLabel(substitutions=words, samples=30),
        DeepWordBug(substitutions=words),
        BAE(substitutions=words, constraints=only_words),
        BertAttack(substitutions=words, constraints=only_words),
        CLARE(substitutions=Merging(entries=entries), constraints=only_words),
        Alzantot(substitutions=words, population=6, generations=4, constraints=(MaxChanged(share=0.4),)),
        HullAttack(substitutions=words, steps=3, restarts=2),
        HotFlip(substitutions=words),
    ]
