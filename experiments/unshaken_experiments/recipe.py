"""`Recipe`: a table or figure as data. Methods down, columns across, the paper's numbers beside them.

A recipe is a TOML file that names things and runs nothing: attacks, defences and tasks by their names, never by class
paths or files.
"""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from unshaken.errors import UnshakenError
from unshaken.names import lookup, nearest
from unshaken.schema import decode
from unshaken_experiments.runs import SETTINGS, Measure, Run, make_settings

Number = float | tuple[float, ...]  # a mean, or a mean with its deviation


MOST_SEEDS = 1_000
MOST_CANDIDATES = 100
# Held-out scores of two of these are of other rows or by another measure: neither is the better one.
NEVER_CHOSEN = ("task", "protocol", "rows", "select_by", "substitutions")


@dataclass(frozen=True, kw_only=True)
class Method:
    """A row of the table: what is done to the encoder.

    Attributes:
        settings: What this method changes of the training settings.
        family: Methods of one family are joined by a line in a figure.
        x: Where it stands on a figure's axis, for a sweep.
    """

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    family: str | None = None
    x: float | None = None


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of the table: what is trained on, and what is measured of it.

    Attributes:
        settings: What this column changes of the training settings, its task above all.
        measure: What is measured.
        average: The columns this one is the mean of; it then measures nothing itself.
        worst_of: The attacks on the same examples this one is the worst case of: an example holds where it held in all
            of these columns. It measures nothing itself either.
    """

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    measure: Measure = field(default_factory=Measure)
    average: tuple[str, ...] = ()
    worst_of: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """The columns it is made of."""
        return self.average or self.worst_of


@dataclass(frozen=True, kw_only=True)
class Figure:
    """How the numbers are drawn."""

    kind: Literal["trade-off", "distance", "feature-map", "sweep"]
    x: str | None = None  # a column, or the title of the methods' own axis
    y: tuple[str, ...] = ()  # columns

    @property
    def columns(self) -> set[str]:
        """The columns it is drawn from."""
        return {*self.y, *([self.x] if self.kind == "trade-off" and self.x is not None else [])}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One difference that the paper claims: `method` is above `over` in `column`."""

    text: str
    method: str
    over: str
    column: str


@dataclass(frozen=True, kw_only=True)
class Absent:
    """What the paper shows and this recipe cannot run."""

    what: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A table or figure of a paper, or of ours.

    Attributes:
        paper: "IM-BERT", "RIFT" or "ours".
        about: What it claims.
        seeds: Training seeds; every method has the same ones.
        paper_settings: Training settings that the paper states.
        our_settings: Training settings where the paper is silent, or where we depart from it and say so in `notes`.
        choose: Setting -> the values that each method chooses from, on held-out rows; see `choice`.
        reference: The method the others are compared with; the first where none is given.
        paper_numbers: The paper's numbers in percent (or as the column says), by encoder, method and column.
        not_run: What the paper shows and this recipe cannot run.
        claims: What it says in differences that can be held against ours.
    """

    name: str
    title: str
    paper: str
    about: str
    methods: tuple[Method, ...]
    columns: tuple[Column, ...]
    seeds: tuple[int, ...] = (0, 1, 2)
    reference: str | None = None
    paper_settings: dict[str, Any] = field(default_factory=dict)
    our_settings: dict[str, Any] = field(default_factory=dict)
    choose: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    paper_numbers: dict[str, dict[str, dict[str, Number]]] = field(default_factory=dict)
    figure: Figure | None = None
    notes: tuple[str, ...] = ()
    not_run: tuple[Absent, ...] = ()
    claims: tuple[Claim, ...] = ()

    def __post_init__(self) -> None:
        methods, columns = [row.name for row in self.methods], [column.name for column in self.columns]
        for kind, names in (("method", methods), ("column", columns)):
            if not names:
                raise UnshakenError(f"recipe {self.name!r} has no {kind}")
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise UnshakenError(f"recipe {self.name!r} has two {kind}s of the name {twice!r}")
        if not self.seeds:
            raise UnshakenError(f"recipe {self.name!r} has no seed")
        if len(self.seeds) > MOST_SEEDS:
            raise UnshakenError(f"recipe {self.name!r} has {len(self.seeds):,} seeds; at most {MOST_SEEDS} are taken")
        for seed in self.seeds:
            if not 0 <= seed < 2**32:
                raise UnshakenError(f"recipe {self.name!r} has the seed {seed}; seeds go from 0 to {2**32 - 1}")
        for settings in (self.paper_settings, self.our_settings, *(row.settings for row in self.methods)):
            _check_keys(self.name, settings)
        self._check_choose()
        for column in self.columns:
            _check_keys(self.name, column.settings)
            for part in column.parts:
                _require(self.name, "column", part, columns)
            self._check_parts(column)
        for numbers in self.paper_numbers.values():
            for method, row in numbers.items():
                _require(self.name, "method", method, [*methods, *(absent.what for absent in self.not_run)])
                for name, number in row.items():
                    _require(self.name, "column", name, columns)
                    if isinstance(number, tuple) and not 1 <= len(number) <= 2:
                        place = f"recipe {self.name!r}: {method}, {name}"
                        raise UnshakenError(f"{place}: give a mean, or a mean with its deviation")
        if self.reference is not None:
            _require(self.name, "method", self.reference, methods)
        for claim in self.claims:
            _require(self.name, "method", claim.method, methods)
            _require(self.name, "method", claim.over, methods)
            _require(self.name, "column", claim.column, columns)
        if self.figure is not None:
            for name in self.figure.y:
                _require(self.name, "column", name, columns)
            if self.figure.kind in ("trade-off", "sweep") and not self.figure.y:
                raise UnshakenError(f"recipe {self.name!r}: a {self.figure.kind} figure needs columns as its `y`")
            if self.figure.kind == "trade-off":
                _require(self.name, "column", self.figure.x or "", columns)

    def _check_choose(self) -> None:
        _check_keys(self.name, self.choose)
        for key, values in self.choose.items():
            if key in NEVER_CHOSEN:
                raise UnshakenError(
                    f"recipe {self.name!r}: {key} cannot be chosen on held-out rows, since it says which rows they are "
                    "or what is asked of them"
                )
            if key in {**self.paper_settings, **self.our_settings}:
                raise UnshakenError(f"recipe {self.name!r}: {key} is to be chosen, so leave it out of the settings")
            if len(values) < 2 or any(value in values[:place] for place, value in enumerate(values)):
                raise UnshakenError(f"recipe {self.name!r}: give {key} two or more values to choose from, each once")
        count = math.prod(map(len, self.choose.values()))
        if count > MOST_CANDIDATES:
            raise UnshakenError(
                f"recipe {self.name!r} has {count:,} candidates a method; at most {MOST_CANDIDATES} are taken"
            )

    def _check_parts(self, column: Column) -> None:
        parts = [part for part in self.columns if part.name in column.parts]
        if any(part.average or part.measure.what != "accuracy" for part in parts):
            raise UnshakenError(f"recipe {self.name!r}: column {column.name!r} must be made of measured accuracies")
        if column.worst_of:
            sets = {(str(part.settings), part.measure.on, part.measure.group, part.measure.examples) for part in parts}
            if len(sets) > 1 or any(part.parts for part in parts) or column.average:
                raise UnshakenError(
                    f"recipe {self.name!r}: column {column.name!r} is a worst case, so its columns must be measured on "
                    "the same model and the same examples"
                )

    @property
    def baseline(self) -> str:
        return self.reference or self.methods[0].name

    @property
    def measured(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if not column.parts)

    def only(self, methods: Sequence[str] = (), columns: Sequence[str] = ()) -> Recipe:
        """The recipe with some of its rows and columns; an average stays where all of its columns do."""
        for kind, names, known in (("method", methods, self.methods), ("column", columns, self.columns)):
            for name in names:
                _require(self.name, kind, name, [part.name for part in known])
        rows = {row.name for row in self.methods if not methods or row.name in {*methods, self.baseline}}
        chosen = {column.name for column in self.columns if not columns or column.name in columns}
        kept = [column for column in self.columns if column.name in chosen and set(column.parts) <= chosen]
        shown = {column.name for column in kept}
        absent = {row.what for row in self.not_run}
        return replace(
            self,
            methods=tuple(row for row in self.methods if row.name in rows),
            columns=tuple(kept),
            paper_numbers={
                encoder: {
                    method: {name: value for name, value in row.items() if name in shown}
                    for method, row in numbers.items()
                    if method in rows | absent
                }
                for encoder, numbers in self.paper_numbers.items()
            },
            figure=self.figure if self.figure is not None and self.figure.columns <= shown else None,
            claims=tuple(
                claim for claim in self.claims if {claim.method, claim.over} <= rows and claim.column in shown
            ),
        )

    def candidates(
        self, encoder: str, method: Method, column: Column, seed: int, changes: Mapping[str, Any] | None = None
    ) -> tuple[Run, ...]:
        """The trainings that one cell is chosen from; one where nothing is to be chosen.

        What a user's `changes`, the column or the method say of a setting is not chosen.
        """
        each = [dict(zip(self.choose, values, strict=True)) for values in itertools.product(*self.choose.values())]
        runs = dict.fromkeys(self.run(encoder, method, column, seed, changes, chosen) for chosen in each)
        if len(runs) > 1 and any(run.settings.epochs <= 1 for run in runs):
            raise UnshakenError(
                f"recipe {self.name!r} chooses {' and '.join(self.choose)} on held-out rows, which a training of one "
                "epoch does not ask; give it more epochs, or a value"
            )
        return tuple(runs)

    def run(
        self,
        encoder: str,
        method: Method,
        column: Column,
        seed: int,
        changes: Mapping[str, Any] | None = None,
        chosen: Mapping[str, Any] | None = None,
    ) -> Run:
        """The training behind one cell. A user's `changes` win over the recipe's settings; a method stays itself."""
        stated = {**self.paper_settings, **self.our_settings, **(chosen or {}), **column.settings}
        merged = {**stated, **(changes or {}), **method.settings}
        own, limit = stated.get("rows"), (changes or {}).get("rows")
        if "rows" not in method.settings and isinstance(own, int) and isinstance(limit, int):
            merged["rows"] = min(own, limit)  # a limit adds none
        return Run(encoder=encoder, seed=seed, settings=make_settings(self.name, merged))


def _check_keys(recipe: str, settings: Mapping[str, Any]) -> None:
    for key in settings:
        if key not in SETTINGS:
            raise UnshakenError(f"recipe {recipe!r} has the unknown setting {key!r}; {nearest(key, SETTINGS)}")


def _require(recipe: str, kind: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise UnshakenError(
            f"recipe {recipe!r} names the {kind} {name!r}, which it does not have; {nearest(name, known)}"
        )


def recipe_names() -> list[str]:
    """The recipes that ship with the package."""
    return sorted(entry.name.removesuffix(".toml") for entry in _folder().iterdir() if entry.name.endswith(".toml"))


def load_recipe(name_or_path: str | Path) -> Recipe:
    """A recipe by name, or a TOML file of one's own."""
    path = Path(name_or_path)
    if path.suffix == ".toml":
        try:
            return parse_recipe(path.stem, path.read_bytes().decode(), str(path))
        except OSError as error:
            raise UnshakenError(f"cannot read the recipe {path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UnshakenError(f"{path}: not UTF-8 (byte {error.start})") from error
    name = lookup("recipe", str(name_or_path), {known: known for known in recipe_names()})
    return parse_recipe(name, (_folder() / f"{name}.toml").read_text(encoding="utf-8"), name)


def parse_recipe(name: str, text: str, where: str) -> Recipe:
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
        raise UnshakenError(f"{where}: not TOML ({error})") from error
    if "name" in content:
        raise UnshakenError(f"{where}: a recipe's name is its file's; leave `name` out")
    return decode(Recipe, {"name": name, **content}, where, written_by_hand=True)


def _folder() -> Any:
    return resources.files("unshaken_experiments") / "papers"
