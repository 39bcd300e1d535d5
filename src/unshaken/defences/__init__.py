"""Defences: what turns a batch into the loss of a training step. One file per method.

In Python they are classes that compose, `ASCC(beta=4) + PTWD()`; on the command line they have names, read by `parse`.
"""

from __future__ import annotations

from collections.abc import Callable

from unshaken.defences.ascc import ASCC
from unshaken.defences.base import PLAIN, Compose, Defence, Passes, Regulariser
from unshaken.defences.cost import training_cost
from unshaken.defences.creat import CreAT
from unshaken.defences.freelb import FreeLB
from unshaken.defences.infobert import InfoBERT
from unshaken.defences.informative import InformativeTerm
from unshaken.defences.mixout import Mixout
from unshaken.defences.ptwd import PTWD
from unshaken.defences.r3f import R3F, R4F
from unshaken.defences.rift import RIFT
from unshaken.defences.smart import SMART
from unshaken.defences.standard import Standard
from unshaken.defences.step import Step
from unshaken.defences.swap import SWAP
from unshaken.defences.teacher import PlainTeacher
from unshaken.defences.temperature import HighTemperature
from unshaken.defences.weights import release
from unshaken.names import from_spec, split_specs
from unshaken.substitutions.base import Substitutions

DEFENCES: dict[str, Callable[..., Defence]] = {
    "standard": Standard,
    "freelb": FreeLB,
    "freelb-plus-plus": FreeLB.plus_plus,
    "smart": SMART,
    "r3f": R3F,
    "r4f": R4F,
    "creat": CreAT,
    "infobert": InfoBERT,
    "ascc": ASCC,
    "rift": RIFT,
    "rift-fast": RIFT.fast,
    "rift-imdb": RIFT.imdb,
    "rift-snli": RIFT.snli,
    "swap": SWAP,
    "informative": InformativeTerm,
    "ptwd": PTWD,
    "mixout": Mixout,
    "temperature": HighTemperature,
    "teacher": PlainTeacher,
}


def parse(spec: str, *, allow_paths: bool = False, substitutions: Substitutions | None = None) -> Defence:
    """The defence a command line names, for example `ascc+ptwd:weight=0.01`.

    `substitutions` go to the parts that swap words and name no set of their own.
    """
    parts: list[Defence] = [
        from_spec("defence", one, DEFENCES, allow_paths=allow_paths) for one in split_specs("defence", spec)
    ]
    whole = parts[0] if len(parts) == 1 else Compose(*parts)
    if substitutions is not None:
        for part in whole.modules():
            if getattr(part, "substitutions", substitutions) is None:
                part.substitutions = substitutions  # type: ignore[assignment]
    return whole


__all__ = [
    "ASCC",
    "DEFENCES",
    "PLAIN",
    "PTWD",
    "R3F",
    "R4F",
    "RIFT",
    "SMART",
    "SWAP",
    "Compose",
    "CreAT",
    "Defence",
    "FreeLB",
    "HighTemperature",
    "InfoBERT",
    "InformativeTerm",
    "Mixout",
    "Passes",
    "PlainTeacher",
    "Regulariser",
    "Standard",
    "Step",
    "parse",
    "release",
    "training_cost",
]
