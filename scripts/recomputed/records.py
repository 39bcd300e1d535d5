"""The raw records and the recipes, as plain JSON and TOML: which runs stand behind a cell."""

from __future__ import annotations

import itertools
import json
import math
import statistics
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from .estimates import Estimate, Marks, paired, share_of, stars

ENCODERS = {"minilm": "MiniLM-L6", "gte-small": "gte-small", "mpnet-base": "MPNet-base"}

# What a training is if neither recipe, column, group nor method says otherwise.
DEFAULTS: dict[str, Any] = {
    "protocol": "standard", "rows": None, "epochs": 3.0, "learning_rate": 2e-5, "batch_size": 16, "max_length": 128,
    "weight_decay": 0.0, "connection": "none", "layers": None, "solver": None, "gradient": None, "form": None,
    "theta": None, "step": None, "defence": "standard", "substitutions": "counter-fitted", "select_by": None,
    "smooth": None, "hops": 1, "reader": None, "balanced": False, "word_level": False,
}  # fmt: skip
OF_TRAINING = {"gflops": "gflops", "counted-gflops": "counted_gflops", "parameters": "parameters", "seconds": "seconds"}
OF_TRAINING |= {"cost": "cost"}

Run = tuple[Any, ...]  # encoder, seed and settings


def plain_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def run_of(encoder: str, seed: int, settings: Mapping[str, Any]) -> Run:
    """Equal for equal trainings: what is left out is the default, and the loss is what selects by default."""
    whole = {**DEFAULTS, **settings}
    if whole["select_by"] == "loss":
        whole["select_by"] = None
    return (encoder, seed, *sorted(whole.items()))


@dataclass(frozen=True, eq=False)
class Checkout:
    """The folder with the pages, the recipes and the records."""

    root: Path

    @cached_property
    def recipes(self) -> dict[str, dict[str, Any]]:
        folder = self.root / "experiments" / "unshaken_experiments" / "papers"
        return {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.toml"))}

    @cached_property
    def groups(self) -> list[dict[str, Any]]:
        text = (self.root / "experiments" / "reproduce" / "groups.toml").read_text(encoding="utf-8")
        return list(tomllib.loads(text)["group"])

    @cache  # noqa: B019
    def records(self, file: str) -> dict[Run, dict[str, Any]]:
        path = self.root / "experiments" / "reproduce" / file
        if not path.is_file():
            return {}
        lines = plain_lines(path)
        return {run_of(line["run"]["encoder"], line["run"]["seed"], line["run"]["settings"]): line for line in lines}

    @cached_property
    def tables(self) -> dict[str, list[Table]]:
        """Recipe -> a table for each group that has run some of it."""
        found: dict[str, list[Table]] = {}
        for name in self.recipes:
            tables = [Table.of(self, group, name) for group in self.groups if name in group["recipes"]]
            found[name] = [table for table in tables if table.has_numbers]
        return found


@dataclass(frozen=True, eq=False)
class Table:
    """A recipe as one group ran it: some of its rows and columns, on one encoder."""

    recipe: dict[str, Any]
    name: str
    group: dict[str, Any]
    records: dict[Run, dict[str, Any]]
    methods: dict[str, dict[str, Any]]
    columns: dict[str, dict[str, Any]]

    @classmethod
    def of(cls, checkout: Checkout, group: dict[str, Any], name: str) -> Table:
        recipe = checkout.recipes[name]
        rows = {row["name"]: row for row in recipe["methods"]}
        columns = {column["name"]: column for column in recipe["columns"]}
        chosen = [method for method in group.get("methods", ()) if method in rows]
        asked = [column for column in group.get("columns", ()) if column in columns]
        reference = recipe.get("reference", next(iter(rows)))
        if chosen:
            rows = {method: row for method, row in rows.items() if method in {*chosen, reference}}
        if asked:
            columns = {column: own for column, own in columns.items() if {column, *parts_of(own)} <= {*asked}}
        return cls(recipe, name, group, checkout.records(group["file"]), rows, columns)

    @property
    def title(self) -> str:
        limit = self.group.get("limit")
        rows = self.group.get("rows") or ("all" if limit is None else f"{limit:,}")
        asks = f", {self.group['asks']}" if "asks" in self.group else ""
        return f"{ENCODERS[self.group['encoder']]}, {rows} rows{asks}"

    @property
    def reference(self) -> str:
        return str(self.recipe.get("reference", self.recipe["methods"][0]["name"]))

    @property
    def seeds(self) -> list[int]:
        return list(self.group.get("seeds") or self.recipe.get("seeds", (0, 1, 2)))

    @property
    def measured(self) -> dict[str, dict[str, Any]]:
        return {name: column for name, column in self.columns.items() if not parts_of(column)}

    def label(self, method: str) -> str:
        """The row's name on a page: "BERT" without settings is plain fine-tuning, here of other encoders."""
        is_other = not self.group["encoder"].startswith("bert")
        return "plain" if method == "BERT" and is_other and not self.methods[method].get("settings") else method

    @cached_property
    def has_numbers(self) -> bool:
        return any(self.value(method, column) for method in self.methods for column in self.columns)

    def settings(self, method: str, column: str, tried: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The recipe's, then a value that is tried, then the column's, then the group's, then the method's."""
        stated = {**self.recipe.get("paper_settings", {}), **self.recipe.get("our_settings", {})}
        stated |= {**(tried or {}), **self.columns[column].get("settings", {})}
        limit = {} if "limit" not in self.group else {"rows": self.group["limit"]}
        if limit and isinstance(stated.get("rows"), int):
            limit["rows"] = min(limit["rows"], stated["rows"])
        return {**stated, **limit, **self.group.get("settings", {}), **self.methods[method].get("settings", {})}

    def candidates(self, method: str, column: str) -> list[dict[str, Any]]:
        """The settings that a method chooses from; of values that something else decides there is one."""
        choose = self.recipe.get("choose", {})
        found: list[dict[str, Any]] = []
        for values in itertools.product(*choose.values()):
            settings = self.settings(method, column, dict(zip(choose, values, strict=True)))
            found += [] if settings in found else [settings]
        return found

    def trainings(self, method: str, column: str, seed: int) -> list[Run]:
        return [run_of(self.group["encoder"], seed, settings) for settings in self.candidates(method, column)]

    @cache  # noqa: B019
    def chosen(self, method: str, column: str) -> tuple[int | None, list[int]]:
        """The place of the best candidate, by the mean over the seeds that all candidates have, and these seeds."""
        count = len(self.candidates(method, column))
        if count == 1:
            return 0, self.seeds
        scores = {
            seed: [held_out(self.records.get(run)) for run in self.trainings(method, column, seed)]
            for seed in self.seeds
        }
        seeds = [seed for seed in self.seeds if None not in scores[seed]]
        losses = np.array([scores[seed] for seed in seeds], dtype=float)
        if not seeds or np.isinf(losses).any(axis=0).all():
            return None, []
        return int(losses.mean(axis=0).argmin()), seeds

    def record(self, method: str, column: str, seed: int) -> dict[str, Any] | None:
        place, seeds = self.chosen(method, column)
        return (
            self.records.get(self.trainings(method, column, seed)[place])
            if place is not None and seed in seeds
            else None
        )

    def key(self, method: str, column: str) -> str:
        """The name under which a record has what a column shows."""
        measure = self.columns[column].get("measure", {})
        attack, examples = measure.get("attack") or measure.get("certificate"), measure.get("examples")
        limit = self.group.get("examples" if attack else "clean_examples")
        counts = [count for count in (examples, limit) if count is not None]
        words = [measure.get("on") or self.settings(method, column)["task"], attack or "clean"]
        if attack and measure.get("substitutions", "counter-fitted") != "counter-fitted":
            words.append(measure["substitutions"])
        words += measure.get("constraints", [])
        if attack and measure.get("calibrated"):
            words.append("calibrated")
        words += [f"{name}={measure[name]}" for name in ("vote", "detector") if name in measure]
        words += [f"r={measure['radius']}"] if "radius" in measure else []
        return " ".join([*words, *([f"n={min(counts)}"] if counts else [])])

    def answers(self, method: str, column: str, seed: int) -> dict[str, Any] | None:
        found = self.record(method, column, seed)
        return None if found is None else found["measured"].get(self.key(method, column))

    @cache  # noqa: B019
    def marks(self, method: str, column: str) -> Marks:
        own = self.columns[column]
        if "worst_of" in own:
            return self._worst(method, own["worst_of"])
        found = {}
        for seed in self.seeds:
            answers = self.answers(method, column, seed)
            if answers is not None:
                marks = marks_of(answers, own.get("measure", {}).get("group"))
                if not np.isnan(marks).all():
                    found[seed] = marks
        return found

    def _worst(self, method: str, parts: Sequence[str]) -> Marks:
        """Held where it held under every attack on one and the same model."""
        found = {}
        for seed in self.seeds:
            if not self.is_one_model(method, parts, seed):
                continue
            rows = np.stack([self.marks(method, part)[seed] for part in parts])
            worst = np.where((rows == 0).any(axis=0), 0.0, np.where(np.isnan(rows).any(axis=0), np.nan, 1.0))
            if not np.isnan(worst).all():
                found[seed] = worst
        return found

    def is_one_model(self, method: str, parts: Sequence[str], seed: int) -> bool:
        """Whether the records say that one model answered all attacks, on the same examples."""
        answers = [self.answers(method, part, seed) for part in parts]
        models = {(one["model"], one["data"], len(one["held"])) for one in answers if one is not None}
        return None not in answers and len(models) == 1 and bool(next(iter(models))[0])

    def what(self, column: str) -> str:
        return str(self.columns[column].get("measure", {}).get("what", "accuracy"))

    @cache  # noqa: B019
    def value(self, method: str, column: str) -> Estimate | None:
        """The mean over seeds; None if nothing was run."""
        own = self.columns[column]
        if "average" in own:
            parts = [self.marks(method, part) for part in own["average"]]
            return share_of(parts) if all(parts) else None
        if self.what(column) == "accuracy":
            marks = self.marks(method, column)
            return share_of([marks]) if marks else None
        records = [self.record(method, column, seed) for seed in self.seeds]
        values = [number for record in records if (number := of_training(record, self.what(column))) is not None]
        return Estimate(statistics.fmean(values), len(values)) if values else None

    @cache  # noqa: B019
    def difference(self, method: str, column: str, rival: str) -> Estimate | None:
        if self.what(column) != "accuracy" or method == rival:
            return None
        parts = self.columns[column].get("average", [column])
        columns = [self.marks(method, part) for part in parts]
        return paired(columns, [self.marks(rival, part) for part in parts]) if all(columns) else None

    @cached_property
    def differences(self) -> dict[tuple[str, str], Estimate]:
        """All from the reference."""
        found = {
            (method, column): self.difference(method, column, self.reference)
            for method in self.methods
            for column in self.columns
        }
        return {place: one for place, one in found.items() if one is not None}

    @cached_property
    def stars(self) -> set[tuple[str, str]]:
        return stars(self.differences)

    def failed(self, method: str, columns: Sequence[str]) -> set[Run]:
        """The runs behind some columns that ended in an error."""
        parts = [part for column in columns for part in (parts_of(self.columns[column]) or [column])]
        tried = {run for part in parts for seed in self.seeds for run in self.trainings(method, part, seed)}
        return {run for run in tried if self.records.get(run, {}).get("error")}

    def majority(self, method: str, column: str) -> float | None:
        own = self.columns[column]
        if parts_of(own) or self.what(column) != "accuracy" or "group" in own.get("measure", {}):
            return None
        found = [self.answers(method, column, seed) for seed in self.seeds]
        shares = [100 * answers["majority"] for answers in found if answers is not None]
        return shares[0] if shares and self.value(method, column) is not None else None

    @cache  # noqa: B019
    def runs(self) -> dict[Run, tuple[dict[str, Any], set[str]]]:
        """Run -> its record, and what this table reads of it."""
        found: dict[Run, tuple[dict[str, Any], set[str]]] = {}
        for seed in self.seeds:
            for method in self.methods:
                for column in self.measured:
                    for run in self.trainings(method, column, seed):
                        if run in self.records:
                            keys = found.setdefault(run, (self.records[run], set()))[1]
                            keys |= {self.key(method, column)} if self.what(column) == "accuracy" else set()
        return found


def parts_of(column: Mapping[str, Any]) -> list[str]:
    return list(column.get("average", column.get("worst_of", [])))


def held_out(record: Mapping[str, Any] | None) -> float | None:
    """The less the better: infinite if the training lost its numbers, None if nothing is known."""
    found = None if record is None else record["training"].get("held_out")
    if found is None:
        return math.inf if record is not None and "is not finite" in (record["error"] or "") else None
    return math.inf if found["best"] is None else found["best"] * (1 if found["by"] == "loss" else -1)


def marks_of(answers: Mapping[str, Any], group: str | None) -> np.ndarray:
    held = [{"1": 1.0, "0": 0.0, "?": math.nan}[mark] for mark in answers["held"]]
    if group is not None:
        names = list(answers["group_names"])
        own = str(names.index(group)) if group in names else "none"
        held = [mark for mark, digit in zip(held, answers["groups"], strict=True) if digit == own]
    return np.array(held)


def of_training(record: Mapping[str, Any] | None, what: str) -> float | None:
    training = {} if record is None else record["training"]
    if what == "distance":
        return float(training["distance"][-1][1]) if training.get("distance") else None
    return float(training[OF_TRAINING[what]]) if what in OF_TRAINING and OF_TRAINING[what] in training else None
