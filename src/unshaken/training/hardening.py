"""`harden`: smoothing, a reader and SWAP with good defaults, and a report against plain fine-tuning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unshaken.attacks import PWWS, Attack, Genetic
from unshaken.defences import SWAP
from unshaken.evaluation import Report, evaluate, merge
from unshaken.examples import Examples
from unshaken.smoothing import Smoothing
from unshaken.substitutions import All, Substitutions, Typos, WordNet
from unshaken.training.fine_tuning import MINILM, FineTuned, Plan, fine_tune
from unshaken.victims import Victim

READER = "all"


@dataclass(frozen=True, kw_only=True)
class Hardened:
    """Two trained models, and how they fare."""

    plain: FineTuned
    hardened: FineTuned
    report: Report


def harden(
    model: str,
    train: Examples,
    test: Examples,
    *,
    out: Path | str,
    validation: Examples | None = None,
    substitutions: Sequence[Substitutions] = (),
    hops: int = 2,
    variants: int = 4,
    attacked: int = 100,
    seed: int = 0,
    arguments: dict[str, Any] | None = None,
    resume: bool = False,
) -> Hardened:
    """Fine-tune a model plainly and hardened on the same rows, and attack both with every source at once.

    Hardened means a vocabulary smoothed over the sets, readers for spelling and disguises, and SWAP over the sets. It
    holds best against the sets it knows; the report says which those are.

    Args:
        model: Folder or hub name; "minilm" is the one of the demo extra.
        train: Training rows.
        test: Rows to report on, never trained on.
        out: Folder for both models and the report.
        validation: Rows that select the epoch, if any.
        substitutions: What words may be swapped; WordNet (8 synonyms per word) if none is given.
        hops: How far the vocabulary is smoothed.
        variants: Rewordings that SWAP draws of each text.
        attacked: Test rows that are attacked.
        seed: Of training and attacks.
        arguments: Of `RobustTrainingArguments`.
        resume: Continue what `out` holds: from the last checkpoints and the examples that are attacked already.

    Example:
        >>> found = unshaken.harden("minilm", data.train, data.test, out="out/hardened")
        >>> found.report.save("out/hardened/report.html")
    """
    out, sets = Path(out), tuple(substitutions) or (WordNet(limit=8),)
    source = sets[0] if len(sets) == 1 else All(sets)
    shared: dict[str, Any] = {
        "model": model or MINILM,
        "train": train,
        "validation": validation,
        "seed": seed,
        "arguments": arguments or {},
        "resume": resume,
    }
    plain = fine_tune(Plan(**shared, out=out / "plain", method="plain"))
    hardened = fine_tune(
        Plan(
            **shared,
            out=out / "hardened",
            method="hardened",
            smoothing=Smoothing(substitutions=sets, hops=hops),
            reader=READER,
            defence=SWAP(substitutions=source, variants=variants),
        )
    )
    length = (arguments or {}).get("max_length")
    victims = {
        run.record.method: Victim.from_pretrained(str(run.folder), max_length=length) for run in (plain, hardened)
    }
    everything = All((*sets, Typos()))
    attacks: list[Attack] = [
        PWWS(substitutions=everything, scoring="margin"),
        Genetic(substitutions=everything, population=20, generations=10, seed=seed),
    ]
    clean = evaluate(victims, {"held out": test}, seed=seed)
    chosen = {"attacked": test.sample(attacked, seed)}
    robust = evaluate(victims, chosen, attacks, out=out / "attacks", seed=seed, resume=resume)
    report = merge([clean, robust])
    report.save(out / "report.json")
    return Hardened(plain=plain, hardened=hardened, report=report)
