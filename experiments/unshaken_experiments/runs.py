"""`Run`: one training, told apart by its settings. `Outcome`: what it cost and what was measured of it, as one file."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from unshaken.errors import UnshakenError
from unshaken.files import parse_checked, read_checked_json, with_check, write_text
from unshaken.names import nearest
from unshaken.schema import decode

COUNTER_FITTED = "counter-fitted"
OUT_OF_MEMORY = "the GPU's memory is used up"
What = Literal["accuracy", "gflops", "counted-gflops", "parameters", "distance", "seconds", "cost", "features"]


RANGES: dict[str, tuple[float, float]] = {
    "rows": (2, 1e9),
    "epochs": (0, 10_000),
    "learning_rate": (0, 10),
    "batch_size": (1, 1_000_000),
    "max_length": (8, 1_000_000),
    "weight_decay": (0, 1_000),
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that decides what a training gives, but encoder and seed.

    Attributes:
        rows: Training rows, drawn by stable ids; all where None.
        substitutions: What word-substitution defences may swap: "counter-fitted" (a file of the data folder) or a name
            such as "wordnet".
        smooth: Substitution sets the vocabulary is smoothed over, `hops` far; not smoothed where None.
        reader: What reads texts before the tokenizer, such as "unicode,spelling".
        select_by: Attack on 500 rows held out of training that selects the epoch; the validation loss where None or
            "loss".
        balanced: Class-balanced batches for every method, as the official code of RIFT has them; else only defences
            that compare a class get them.
        word_level: Train and attack with the tokenizer of RIFT's official code, for which each word is one id or
            unknown: for comparison with the paper's numbers only.
    """

    task: str
    protocol: str = "standard"
    rows: int | None = None
    epochs: float = 3.0
    learning_rate: float = 2e-5
    batch_size: int = 16
    max_length: int = 128
    weight_decay: float = 0.0
    connection: str = "none"
    layers: str | None = None
    solver: str | None = None
    gradient: str | None = None
    form: str | None = None
    theta: float | None = None
    step: float | None = None
    defence: str = "standard"
    substitutions: str = COUNTER_FITTED
    select_by: str | None = None
    smooth: str | None = None
    hops: int = 1
    reader: str | None = None
    balanced: bool = False
    word_level: bool = False

    def __post_init__(self) -> None:
        for key in ("epochs", "learning_rate", "weight_decay", "theta", "step"):  # 3 and 3.0 are one setting
            value = getattr(self, key)
            object.__setattr__(self, key, None if value is None else float(value))
        if self.select_by == "loss":
            object.__setattr__(self, "select_by", None)
        for key, (least, most) in RANGES.items():
            value = getattr(self, key)
            if value is not None and not least <= value <= most:  # NaN compares false
                raise UnshakenError(f"{key} is {value}; it must lie between {least:g} and {most:g}")


LATER = ("smooth", "hops", "reader", "balanced", "word_level")
SETTINGS = {item.name: item for item in dataclasses.fields(Settings)}


def make_settings(where: str, values: Mapping[str, Any]) -> Settings:
    """Settings out of plain values; an unknown name answers with the nearest, a wrong type with what it takes."""
    for key in values:
        if key not in SETTINGS:
            raise UnshakenError(f"{where}: unknown setting {key!r}; {nearest(key, SETTINGS)}")
    if "task" not in values:
        raise UnshakenError(f"{where}: no task to train on; give `task` in the settings of a column or of the recipe")
    return decode(Settings, dict(values), where, written_by_hand=True)


@dataclass(frozen=True, kw_only=True)
class Measure:
    """What is measured of a trained model.

    Attributes:
        what: "accuracy"; "gflops" of one text of 128 tokens as torch counts them, "counted-gflops" as IM-BERT counts
            them; its "parameters" in millions; "distance" to the pretrained weights where training ended, whichever
            epoch is kept; training "seconds"; training "cost" in plain steps; or "features" of a few hundred texts, as
            a map.
        on: The task whose test set it is; the training task where None.
        attack: As on the command line; the answers as they are where None.
        examples: How many, by stable ids; all where None.
        group: Only the examples of this group, such as AdvGLUE's level "word".
        substitutions: What the attack may swap; see `Settings`.
        constraints: What a changed text must satisfy as well, as on the command line.
        calibrated: Attack the model at the temperature at which its confidence is right on the validation rows.
        vote: Ask so many rewordings of each text, by the set of training, instead of the text; attacks go through them.
        detector: A vote of so many flags what it doubts, 1% of the validation rows; the attack has to get past it.
        certificate: Proofs instead of attacks, as on the command line: what is right and proved to stay right.
        radius: While so many words are changed; any number where None.
    """

    what: What = "accuracy"
    on: str | None = None
    attack: str | None = None
    examples: int | None = None
    group: str | None = None
    substitutions: str = COUNTER_FITTED
    constraints: tuple[str, ...] = ()
    calibrated: bool = False
    vote: int = 0
    detector: int = 0
    certificate: str | None = None
    radius: int | None = None

    def __post_init__(self) -> None:
        if self.certificate is not None and (self.attack is not None or self.vote):
            raise UnshakenError("a certificate proves by itself; leave attack and vote out of its measure")
        if self.vote and self.detector:
            raise UnshakenError("a detector flags what its own vote doubts; leave vote out of its measure")
        if self.radius is not None and self.certificate is None:
            raise UnshakenError("a radius is that of a certificate; give its measure one")
        if (self.calibrated or self.detector or self.constraints) and self.attack is None:
            raise UnshakenError("a measure that is calibrated, or has a detector or constraints, needs an attack")

    @property
    def answers(self) -> Measure:
        """The measurement this one reads: a group is a part of the whole set."""
        return dataclasses.replace(self, group=None)

    def key(self, task: str) -> str:
        """The name under which an outcome keeps it."""
        if self.what != "accuracy":
            return self.what
        parts = [self.on or task, self.attack or self.certificate or "clean"]
        if (self.attack or self.certificate) and self.substitutions != COUNTER_FITTED:
            parts.append(self.substitutions)
        parts += self.constraints
        if self.attack and self.calibrated:
            parts.append("calibrated")
        if self.vote:
            parts.append(f"vote={self.vote}")
        if self.detector:
            parts.append(f"detector={self.detector}")
        if self.radius is not None:
            parts.append(f"r={self.radius}")
        if self.examples is not None:
            parts.append(f"n={self.examples}")
        return " ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training."""

    encoder: str
    seed: int
    settings: Settings

    @cached_property
    def key(self) -> str:
        """Equal for equal trainings, on every machine."""
        settings = {name: getattr(self.settings, name) for name in SETTINGS}
        for name in LATER:  # runs from before a setting existed keep their key
            if settings[name] == SETTINGS[name].default:
                del settings[name]
        text = json.dumps({"encoder": self.encoder, "seed": self.seed, "settings": settings}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        """For people: `gte-small-sst2-rift-im-bert-4-6-s0-<key>`; the key makes it unique."""
        chosen = self.settings
        parts = [self.encoder, chosen.task, chosen.defence]
        if chosen.connection != "none":
            parts += [chosen.connection, chosen.layers or "all"]
        if chosen.smooth is not None:
            parts += [f"smooth-{chosen.hops}"]
        if chosen.reader is not None:
            parts += ["reader"]
        slug = re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(parts)).strip(".-").lower()[:80]
        return f"{slug}-s{self.seed}-{self.key}"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The answers to one set under one condition.

    Attributes:
        held: One character an example, in the order of the set: 1 where the answer is right and stays right, 0 where
            not, ? where the attack could not be carried out.
        majority: Accuracy of always answering the most frequent label.
        data: Fingerprint of the examples.
        groups: One digit an example, its group's number in `group_names`; empty where there are no groups.
        queries: Mean number an attacked example.
        unconfirmed: Successes of a search that asking about the text alone did not bear out, which `held` counts as
            withstood; None where the record is older.
        model: Fingerprint of the model that answered: a training that is done again, for one measurement more, may
            give another one.
        scoring_dtype: Half precision in which the queries were answered; None in float32.
    """

    held: str
    majority: float
    data: str
    group_names: tuple[str, ...] = ()
    groups: str = ""
    queries: float | None = None
    seconds: float = 0.0
    model: str = ""
    unconfirmed: int | None = None
    scoring_dtype: str | None = None

    def __post_init__(self) -> None:
        if len(self.groups) != (len(self.held) if self.group_names else 0):
            raise UnshakenError(f"{len(self.held)} answers have {len(self.groups)} groups; there must be one each")

    def marks(self, group: str | None = None) -> str:
        """`held`, of one group or of all examples."""
        if group is None:
            return self.held
        if group not in self.group_names:
            return ""
        digit = str(self.group_names.index(group))
        return "".join(mark for mark, own in zip(self.held, self.groups, strict=True) if own == digit)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run gave so far; written after each step of it.

    Attributes:
        training: Seconds, steps, memory, cost, distance curve, GFLOPs, and scores on the held-out rows, which older
            records lack; empty before training is finished.
        measured: By `Measure.key`.
        features: Points of the feature map, where one was asked for.
        environment: Versions and device behind the numbers.
        error: What stopped it, where something did.
    """

    run: Run
    training: dict[str, Any] = field(default_factory=dict)
    measured: dict[str, Measured] = field(default_factory=dict)
    features: dict[str, Any] | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    error: str | None = None

    @property
    def lacked_memory(self) -> bool:
        """Whether it ended because the runs beside it held the GPU's memory."""
        return self.error is not None and self.error.startswith(OUT_OF_MEMORY)

    @property
    def lost_its_numbers(self) -> bool:
        """Whether its training ended in a loss or gradient that is not finite."""
        return self.error is not None and "is not finite" in self.error

    def lacks(self, measures: Iterable[Measure]) -> list[Measure]:
        """Those not measured yet."""
        task = self.run.settings.task
        return [measure for measure in measures if not self._has(measure, measure.key(task))]

    def _has(self, measure: Measure, key: str) -> bool:
        if measure.what == "accuracy":
            return key in self.measured
        return self.features is not None if measure.what == "features" else bool(self.training)

    @property
    def summary(self) -> str:
        """For people who watch: what ended it, or what it took and gave."""
        if self.error is not None:
            return f"failed: {self.error}"
        shares = [
            f"{key} {measured.held.count('1') / max(1, len(measured.held)):.1%}"
            for key, measured in self.measured.items()
        ]
        return f"{self.training.get('seconds')} s; {', '.join(shares)}"

    def line(self) -> str:
        """As one line of JSON."""
        return json.dumps(asdict(self), allow_nan=False)

    def save(self, folder: Path) -> Path:
        return write_text(folder / f"{self.run.name}.json", with_check(self.line()) + "\n")


def load_outcome(path: Path) -> Outcome:
    return _decode(read_checked_json(path), str(path))


def _decode(value: Any, where: str) -> Outcome:
    return decode(Outcome, value, where, written_by_hand=True)  # what came with a later version may be left out


def read_outcomes(path: Path) -> list[Outcome]:
    """Outcomes that were put into one file, a line each."""
    lines = path.read_text(encoding="utf-8").splitlines()
    places = [f"{path}, line {number}" for number in range(1, len(lines) + 1)]
    return [_decode(parse_checked(line, where), where) for line, where in zip(lines, places, strict=True)]


def load_outcomes(folder: Path) -> list[Outcome]:
    """All outcomes of a folder and the folders below it: several of one run if it was run in several places."""
    named = [path for path in sorted(folder.rglob("*.json")) if re.fullmatch(r".*-s\d+-[0-9a-f]{12}", path.stem)]
    return [load_outcome(path) for path in named]
