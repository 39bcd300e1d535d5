"""What to cite: each method names its papers (`citation`), records and results carry the names, one file the BibTeX.

A name is a key of `citations.bib`, or a whole BibTeX entry, for methods that come from elsewhere.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

from unshaken.attacks import ATTACKS
from unshaken.certificates import CERTIFICATES
from unshaken.defences import DEFENCES
from unshaken.display import visible
from unshaken.evaluation.results import Evaluation
from unshaken.evaluation.training_record import TrainingRecord

CONNECTION = "kim-etal-2024-im"


@functools.cache
def entries() -> dict[str, str]:
    """Key -> BibTeX entry."""
    text = (resources.files("unshaken") / "citations.bib").read_text(encoding="utf-8")
    return {re.match(r"@\w+{([^,]+),", entry)[1]: entry.strip() for entry in text.split("\n\n")}  # type: ignore[index]


def bibtex(names: Iterable[str]) -> list[str]:
    """The entries behind names, each once; a name that is neither a key nor an entry is left out."""
    known = entries()
    papers = [known.get(name) or (visible(name) if name.startswith("@") else "") for name in names]
    return list(dict.fromkeys(filter(None, papers)))


def of_evaluations(evaluations: Iterable[Evaluation]) -> list[str]:
    """The papers behind every model, attack and certificate."""
    names: list[str] = []
    for evaluation in evaluations:
        names += [CONNECTION] * bool(evaluation.model.connection)
        names += _of_training(evaluation.model.training) if evaluation.model.training else []
        for run in evaluation.attacks:
            names += _of_attack(run.attack, run.settings)
        for proof in evaluation.certificates:
            names += _own(CERTIFICATES, proof.certificate)
    return bibtex(names)


def of_record(record: TrainingRecord) -> list[str]:
    """The papers behind a trained model."""
    return bibtex(_of_training(record))


def _of_training(record: TrainingRecord) -> list[str]:
    method = record.method.lower()
    names = [CONNECTION] * (bool(record.details.get("connection")) or "im-bert" in method)
    parts = record.details.get("defence")
    if not isinstance(parts, list):  # a record by hand
        return names + [name for word in re.findall(r"[a-z0-9-]+", method) for name in _own(DEFENCES, word)]
    classes = {getattr(item, "__name__", key): item for key, item in DEFENCES.items()}
    for part in parts:
        if isinstance(part, dict):
            names += _texts(part["citation"]) if "citation" in part else _own(classes, part.get("name"))
    return names


def _of_attack(attack: str, settings: dict[str, Any]) -> list[str]:
    """Of an attack, and of one that it is made of."""
    inner = settings.get("attack")
    names = _of_attack(str(inner.get("name")), inner) if isinstance(inner, dict) else []
    return [*(_texts(settings["citation"]) if "citation" in settings else _own(ATTACKS, attack)), *names]


def _own(table: Mapping[str, Any], name: Any) -> list[str]:
    """What a method of ours says, for results of releases that did not write it down."""
    method = table.get(str(name))
    return list(getattr(getattr(method, "__self__", method), "citation", ()))  # RIFT.imdb speaks for RIFT


def _texts(value: Any) -> list[str]:
    """Names out of a file, which may hold anything."""
    return [name for name in value if isinstance(name, str)] if isinstance(value, (list, tuple)) else []
