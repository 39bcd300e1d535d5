"""What the settings of a run name: rows, connection, defence, attack, substitutions. Never a class path or a path."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unshaken.errors import UnshakenError
from unshaken.examples import Examples
from unshaken.names import nearest
from unshaken_experiments.runs import COUNTER_FITTED, SETTINGS, Measure, Settings

COUNTER_FITTED_FILE = "counterfitted_neighbors.json"
# Substitution sets that read nothing a recipe could choose.
WITHOUT_FILES = ("wordnet", "typos", "homoglyphs", "invisible", "leet", "spacing")
OWN = "own/"  # before the name of a user's own data
UNSEEN = "unseen-neighbours"  # in the input embeddings of MiniLM, less those of both dictionaries
UNSEEN_GUESSES = "unseen-guesses"  # of the masked language model in the data folder, less both dictionaries
MASKED_LM_FOLDER = "masked-lm"  # below the data folder
CONNECTING = ("connection", "layers", "solver", "gradient", "form", "theta", "step")
HARDENING = (*CONNECTING, "defence", "smooth", "hops", "reader")
FEATURE_EXAMPLES = 500  # RIFT, Figure 3


def training_rows(settings: Settings, seed: int, data: Path | None) -> tuple[Examples, Examples | None]:
    """Rows to train and to select on; where rows are limited, the paper's 8:2 between the two is kept."""
    loaded = _task(settings.task, data, settings.protocol, seed)
    train, validation = loaded.require("train"), loaded.validation
    if settings.rows is not None and settings.rows < len(train):
        train = train.sample(settings.rows, seed)
        validation = None if validation is None else validation.sample(max(2, settings.rows // 4), seed)
    return train, validation


@functools.lru_cache(maxsize=4)  # a task may be large, and every worker keeps its own
def _task(name: str, data: Path | None, protocol: str, seed: int) -> Any:
    from unshaken.names import lookup
    from unshaken.tasks import TASKS, load_task

    if name.startswith(OWN):
        return load_task(_own_folder(name, data), protocol=protocol, seed=seed)
    task = lookup("task", name, TASKS)  # by name alone: a recipe opens no file of its own choosing
    return load_task(task.name, data=data if task.package is None else None, protocol=protocol, seed=seed)


def _own_folder(name: str, data: Path | None) -> Path:
    """The folder of own/NAME, one of those that the caller has put into the data folder's own/, and never another."""
    if data is None:
        raise UnshakenError(f"task {name!r} is a folder of your own data; hand over the one that has it with --data")
    there = {path.name: path for path in (data / OWN).glob("*") if path.is_dir()}
    if name.removeprefix(OWN) not in there:
        raise UnshakenError(
            f"no folder {name!r} in {data}, for a task of your own data with its train and test files"
            + (f"; {nearest(name, [OWN + one for one in there])}" if there else "")
        )
    return there[name.removeprefix(OWN)]


def parse_parts(settings: Settings) -> tuple[Any, Any]:
    """Connection (or None) and defence of some settings; neither may be a class path."""
    from unshaken.connections import parse as parse_connection
    from unshaken.defences import parse as parse_defence

    connection = parse_connection(
        settings.connection,
        layers=settings.layers,
        solver=settings.solver,
        gradient=settings.gradient,
        form=settings.form,
        theta=settings.theta,
        step=settings.step,
    )
    if "substitutions=" in settings.defence:
        raise UnshakenError(
            f"defence {settings.defence!r}: a recipe names the set in `substitutions` of its settings, and nowhere else"
        )
    defence = parse_defence(settings.defence)
    if getattr(pupil_of(defence), "model", None) is not None:
        raise UnshakenError(
            f"defence {settings.defence!r}: a recipe names no models; without model= the teacher is trained first"
        )
    return connection, defence


def build(settings: Settings, data: Path | None) -> tuple[Any, Any]:
    """The same, with the defence reading the substitution set of the settings."""
    connection, defence = parse_parts(settings)
    for part in defence.modules():
        if hasattr(part, "substitutions"):
            part.substitutions = substitutions_of(settings.substitutions, data)
    return connection, defence


def pupil_of(defence: Any) -> Any:
    """The part of a defence that has a teacher; None if none has."""
    from unshaken.defences import PlainTeacher

    return next((part for part in defence.modules() if isinstance(part, PlainTeacher)), None)


def plain(settings: Settings) -> Settings:
    """The same rows and schedule without anything that hardens: what a teacher is trained with."""
    defaults: dict[str, Any] = {name: SETTINGS[name].default for name in HARDENING}
    return replace(settings, **defaults)


def smoothing_of(settings: Settings, data: Path | None) -> Any:
    """How the vocabulary of some settings is smoothed; None where it is not."""
    from unshaken.names import split_specs
    from unshaken.smoothing import Smoothing

    if settings.smooth is None:
        return None
    sets = tuple(substitutions_of(name, data) for name in split_specs("substitutions", settings.smooth))
    return Smoothing(substitutions=sets, hops=settings.hops)


def synonyms_of(settings: Settings, data: Path | None) -> tuple[Any, ...]:
    """The set whose words the reader of some settings takes for one; none if it tells them apart."""
    if "synonyms" not in (settings.reader or ""):
        return ()
    return (substitutions_of(settings.substitutions, data),)


@functools.lru_cache(maxsize=16)
def substitutions_of(name: str, data: Path | None) -> Any:
    from unshaken.embedded import minilm_path
    from unshaken.names import from_spec, split_specs
    from unshaken.substitutions import SUBSTITUTIONS, All, Dictionary, EmbeddingNeighbours, MaskedLM, Unseen
    from unshaken.substitutions.specs import MADE_OF_ANOTHER

    if len(names := split_specs("substitutions", name)) > 1:
        return All(tuple(substitutions_of(one, data) for one in names))
    way, _, source = name.partition(":")
    if way in MADE_OF_ANOTHER:
        return MADE_OF_ANOTHER[way][0](substitutions_of(source, data))
    if name in (UNSEEN, UNSEEN_GUESSES):
        known = (substitutions_of(COUNTER_FITTED, data), substitutions_of("wordnet", data))
        if name == UNSEEN:
            return Unseen(EmbeddingNeighbours(model=str(minilm_path())), known)
        return Unseen(MaskedLM(model=str(_masked_lm(data))), known)
    if name != COUNTER_FITTED:
        if name.partition(":")[0] not in WITHOUT_FILES:
            allowed = ", ".join([COUNTER_FITTED, UNSEEN, UNSEEN_GUESSES, *WITHOUT_FILES])
            raise UnshakenError(f"substitutions {name!r}: a recipe names no files and no models; use one of {allowed}")
        return from_spec("substitutions", name, SUBSTITUTIONS)
    path = None if data is None else data / COUNTER_FITTED_FILE
    if path is None or not path.is_file():
        raise UnshakenError(
            f"the counter-fitted substitutions are read from {COUNTER_FITTED_FILE} in the data folder, which has none; "
            "put it there, or write substitutions=wordnet into settings (for defences) and measures (for attacks)"
        )
    return Dictionary.load(path)


def _masked_lm(data: Path | None) -> Path:
    folder = None if data is None else data / MASKED_LM_FOLDER
    if folder is None or not (folder / "config.json").is_file():
        raise UnshakenError(
            f"{UNSEEN_GUESSES!r} are the guesses of a masked language model, which is read from the folder "
            f"{MASKED_LM_FOLDER} of the data folder, and there is none"
        )
    return folder


def attack_of(spec: str | None, substitutions: str, data: Path | None, constraints: Sequence[str] = ()) -> Any:
    """The attack a recipe names, against the given substitution set and held to constraints; None for none."""
    from unshaken.attacks import ATTACKS, SearchAttack
    from unshaken.attacks.constraints import CONSTRAINTS
    from unshaken.names import from_spec
    from unshaken.substitutions import MaskedLM

    if spec is None:
        return None
    attack = from_spec("attack", spec, ATTACKS)
    if not isinstance(attack, SearchAttack):
        raise UnshakenError(f"attack {spec!r} needs another model; a recipe names attacks on the model alone")
    if isinstance(attack.substitutions, MaskedLM):
        raise UnshakenError(
            f"attack {spec!r} brings a set of its own; a recipe's attacks take their words from its measure's "
            "substitutions"
        )
    held = tuple(from_spec("constraint", one, CONSTRAINTS) for one in constraints)
    if any(getattr(one, "model", None) is not None for one in held):
        raise UnshakenError(
            f"constraints {', '.join(constraints)}: a recipe names no models; the embedded MiniLM reads"
        )
    attack = replace(attack, substitutions=substitutions_of(substitutions, data))
    return replace(attack, constraints=(*attack.constraints, *held)) if held else attack


def certificate_of(spec: str, substitutions: str, data: Path | None) -> Any:
    """The certificate a recipe names; one that swaps words swaps those of the given substitution set."""
    from unshaken.certificates import Safer, find_certificate

    found = find_certificate(spec)
    return replace(found, substitutions=substitutions_of(substitutions, data)) if isinstance(found, Safer) else found


def test_rows(measure: Measure, task: str, data: Path | None) -> Examples:
    """The examples of a measurement: the same for every method and every seed, so that they can be paired."""
    rows: Examples = _task(measure.on or task, data, "standard", 0).require("test")
    count = FEATURE_EXAMPLES if measure.what == "features" else measure.examples
    return rows if count is None else rows.sample(count)
