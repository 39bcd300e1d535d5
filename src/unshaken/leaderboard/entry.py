"""`Entry`: what a method claims, example by example, so that every number of it can be checked and broken."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unshaken.attacks.results import PASSING_OVER
from unshaken.errors import UnshakenError
from unshaken.evaluation.comparison import mean_interval
from unshaken.evaluation.statistics import Interval
from unshaken.evaluation.training_record import TrainingRecord
from unshaken.examples import Examples
from unshaken.files import read_json, write_json
from unshaken.leaderboard.tracks import ATTACKS, Track
from unshaken.schema import decode, encode, parse_json
from unshaken.substitutions import Substitutions
from unshaken.substitutions.base import content_hash
from unshaken.victims.base import Victim

BREAKS = ".breaks.jsonl"


@dataclass(frozen=True, kw_only=True)
class Scored:
    """One trained model of an entry, and what became of each example.

    Attributes:
        weights: Where its folder is: a path or an address, for those who check.
        clean: One character per example: 1 if the answer is right, 0 if not.
        held: The same for each attack: 1 if the answer is right and stays right; ? if the attack was not carried out,
            or not tried because another had broken the example. 1 under exhaustive search is a proof: no wording of the
            space flips it.
        flags: Every reliability check as [flag, verdict, evidence].
    """

    weights: str
    fingerprint: str
    record: TrainingRecord
    clean: str
    held: dict[str, str]
    flags: tuple[tuple[str, str, str], ...]

    def __post_init__(self) -> None:
        lengths = {len(self.clean), *map(len, self.held.values())}
        if len(lengths) != 1 or not self.held or not self.clean:
            raise UnshakenError(f"{self.weights}: each attack needs one mark per example, and there must be some")
        if set(self.clean) - set("01") or set("".join(self.held.values())) - set("01?"):
            raise UnshakenError(f"{self.weights}: marks are 1, 0 and ?")
        for attack, marks in self.held.items():
            if any(mark == "1" and right == "0" for mark, right in zip(marks, self.clean, strict=True)):
                raise UnshakenError(f"{self.weights}: under {attack} an example holds that was wrong from the start")

    @property
    def worst(self) -> str:
        return worst_of(self.held)


def worst_of(held: Mapping[str, str]) -> str:
    """Broken if one attack broke it; unknown if none did and one that had to was not carried out."""
    has_to = [name.split(" ")[0] not in PASSING_OVER for name in held]
    return "".join(
        "0"
        if "0" in marks
        else "?"
        if any(mark == "?" and needed for mark, needed in zip(marks, has_to, strict=True))
        else "1"
        for marks in zip(*held.values(), strict=True)
    )


def require_seeds_of_one_method(name: str, fingerprints: Sequence[str], records: Sequence[TrainingRecord]) -> None:
    """Refuse models that cannot stand in one entry."""
    if len(set(fingerprints)) < len(fingerprints):
        raise UnshakenError(f"{name}: one model is listed twice; each seed needs a training run of its own")
    if len({record.seed for record in records}) < len(records):
        raise UnshakenError(f"{name}: two models have one seed; train each with a --seed of its own")
    if len({record.method for record in records}) > 1:
        raise UnshakenError(f"{name}: its models are of several methods; an entry is seeds of one")
    if len({record.recipe for record in records}) > 1:
        raise UnshakenError(f"{name}: its models were trained in several ways under one name; an entry is seeds of one")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A method on one track: the models of its seeds, on the same examples, under the same suite.

    Attributes:
        name: What the board calls it.
        data: Fingerprint of the examples; `ids` are theirs, in the order of the marks.
        substitutions: Name and fingerprint of what the attacks could swap.
        majority: Accuracy of always answering with the most frequent label.
        cost: Training passes relative to plain fine-tuning, if the record says.
        code: Version, digest and commit of the unshaken that scored it.
        left: The attacks that were tried on what those before them had left; none in entries of earlier releases, in
            which every attack was tried on every example.
        public: Name and fingerprint of each model whose texts were transferred, in the order of the attacks; none in
            entries of earlier releases, which do not say.
    """

    name: str
    track: Track
    suite: str
    data: str
    ids: tuple[str, ...]
    substitutions: dict[str, str]
    majority: float
    models: tuple[Scored, ...]
    cost: float | None
    code: dict[str, str]
    created: str
    recipe: str = ""
    left: tuple[str, ...] = ()
    public: tuple[dict[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not self.models:
            raise UnshakenError(f"{self.name}: an entry needs at least one model")
        if all(name.split(" ")[0] in PASSING_OVER for name in self.models[0].held):
            raise UnshakenError(f"{self.name}: only attacks that may pass over examples; nothing shows that any holds")
        if len(set(self.ids)) < len(self.ids):
            raise UnshakenError(f"{self.name}: an example is listed twice; each counts once")
        if not 0 < self.majority <= 1 or (self.cost is not None and self.cost <= 0):
            raise UnshakenError(
                f"{self.name}: majority {self.majority:g} and cost {self.cost}; a share of the examples, and training "
                "passes above 0"
            )
        for model in self.models:
            if len(model.clean) != len(self.ids):
                raise UnshakenError(f"{self.name}: {len(self.ids)} ids and {len(model.clean)} marks of {model.weights}")
            if set(model.held) != set(self.models[0].held):
                raise UnshakenError(f"{self.name}: its models were not attacked by the same suite")
            if set(model.worst) == {"?"}:
                raise UnshakenError(f"{self.name}: no attack told anything about {model.weights}; score it again")
        if not set(self.left) < set(self.models[0].held):
            raise UnshakenError(f"{self.name}: {', '.join(self.left)} cannot all have been tried on what others left")
        require_seeds_of_one_method(
            self.name, [model.fingerprint for model in self.models], [model.record for model in self.models]
        )

    def marks(self, condition: str, broken: Sequence[tuple[str, str]] = ()) -> np.ndarray:
        """(seeds, examples) of 1, 0 and NaN under "clean", "worst" or an attack.

        The worst case has no NaN: what is unknown there has not held under every attack, and leaving it out would rank
        an entry by the examples on which its attacks worked.

        Args:
            broken: (model fingerprint, example id) that third parties broke; they count in the worst case.
        """
        values = {"1": 1.0, "0": 0.0, "?": 0.0 if condition == "worst" else np.nan}
        rows = [
            model.clean if condition == "clean" else model.worst if condition == "worst" else model.held[condition]
            for model in self.models
        ]
        table = np.array([[values[mark] for mark in row] for row in rows])
        if condition == "worst":
            models, ids = [model.fingerprint for model in self.models], list(self.ids)
            for fingerprint, key in broken:
                table[models.index(fingerprint), ids.index(key)] = 0.0
        return table

    def unsettled(self, broken: Sequence[tuple[str, str]] = ()) -> int:
        """Examples, over all models, that nothing broke and an attack that had to be tried could not be tried on."""
        settled = set(broken)
        return sum(
            mark == "?" and (model.fingerprint, key) not in settled
            for model in self.models
            for key, mark in zip(self.ids, model.worst, strict=True)
        )

    def share(self, condition: str, broken: Sequence[tuple[str, str]] = ()) -> Interval:
        """Mean over seeds with its interval over other seeds and other examples.

        An attack on what others had left has none: its marks leave out what they broke.
        """
        if condition in self.left:
            raise UnshakenError(f"{self.name}: {condition} was tried on what was left, no share of all; take 'worst'")
        return mean_interval(self.marks(condition, broken))

    def require_examples(self, examples: Examples) -> None:
        """Refuse other texts or labels than the entry's, whose ids may well be the same."""
        if examples.fingerprint != self.data:
            raise UnshakenError(f"{examples.name} has other examples than those {self.name} was scored on")

    def require_substitutions(self, substitutions: Substitutions) -> None:
        if substitutions.fingerprint != self.substitutions.get("fingerprint"):
            raise UnshakenError(
                f"{substitutions.name} is another set than the one {self.name} was attacked with, "
                f"{self.substitutions.get('name', 'which has no name')}; give that one by --substitutions"
            )

    @property
    def comparable(self) -> tuple[str, ...]:
        """Entries that agree in this can be ranked against each other: mark by mark, so also in the order of ids."""
        examples = content_hash([self.data, *self.ids])
        words = self.substitutions.get("fingerprint", "")
        return (
            str(self.track),
            self.suite,
            examples,
            words,
            *sorted(one.get("fingerprint", "") for one in self.public),
        )

    def same_public(self, given: Sequence[Victim]) -> list[Victim]:
        """The public models in the order of the entry's transfers; others would try other texts."""
        by_fingerprint = {victim.fingerprint: victim for victim in given}
        wanted = {one.get("fingerprint", ""): one.get("name", "") for one in self.public}
        if wanted and (lacking := [name for key, name in wanted.items() if key not in by_fingerprint]):
            raise UnshakenError(
                f"{self.name} was attacked with texts from {', '.join(wanted.values())}; give these by --public "
                f"(not given: {', '.join(lacking)})"
            )
        return [by_fingerprint[key] for key in wanted] or list(given)


def read_entry(path: Path | str) -> Entry:
    values = read_json(path)
    entry = decode(Entry, {"left": [], "public": [], **values} if isinstance(values, dict) else values, str(path))
    _require_its_suite(entry)
    return entry


def _require_its_suite(entry: Entry) -> None:
    """Refuse an entry that stood a part of its suite: what it leaves out would count as held."""
    if lacking := [name for name in ATTACKS.get(entry.suite, ()) if name not in entry.models[0].held]:
        raise UnshakenError(
            f"{entry.name}: the suite {entry.suite!r} has the attacks {', '.join(lacking)} as well, of which the entry "
            "says nothing; score it again"
        )


def read_entries(folder: Path | str) -> dict[Path, Entry]:
    """Every entry of a folder, by file."""
    return {path: read_entry(path) for path in sorted(Path(folder).glob("*.json"))}


def submit(entry: Entry, folder: Path | str) -> Path:
    """Write an entry's file. Entries are append-only: what is there is never written over."""
    _require_its_suite(entry)
    slug = re.sub(r"[^a-z0-9]+", "-", f"{entry.track} {entry.name}".lower()).strip("-")[:100]
    path = Path(folder) / f"{slug}-{entry.models[0].fingerprint[:8]}.json"
    if path.exists():
        raise UnshakenError(f"{path} exists; entries are never written over, so submit it under another name")
    return write_json(path, encode(entry))


def read_breaks(path: Path) -> list[dict[str, Any]]:
    """What third parties broke of an entry; empty if nothing."""
    file = path.with_suffix(BREAKS)
    if not file.is_file():
        return []
    lines = file.read_text(encoding="utf-8").splitlines()
    found = [parse_json(line, f"{file}, line {number}") for number, line in enumerate(lines, start=1)]
    if wrong := [number for number, line in enumerate(found, start=1) if not isinstance(line, dict)]:
        raise UnshakenError(f"{file}, line {wrong[0]} is no break; `unshaken leaderboard break` writes one")
    return found


def broken_by_others(path: Path, entry: Entry) -> list[tuple[str, str]]:
    """(model fingerprint, example id) of what third parties broke of an entry, each once."""
    found = sorted({(str(line.get("model")), str(line.get("example"))) for line in read_breaks(path)})
    fingerprints, ids = {model.fingerprint for model in entry.models}, set(entry.ids)
    for model, example in found:
        if model not in fingerprints or example not in ids:
            raise UnshakenError(
                f"{path.with_suffix(BREAKS)} tells of the model {model[:12]!r} and the example {example!r}, and "
                f"{entry.name} does not have both; take out what `unshaken leaderboard break` has not written"
            )
    return found


def append_break(path: Path, values: dict[str, Any]) -> Path:
    file = path.with_suffix(BREAKS)
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(values, ensure_ascii=True) + "\n")
    return file
