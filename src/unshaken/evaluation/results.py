"""The plain results of an evaluation, and the numbers that follow from them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from unshaken.attacks.results import PASSING_OVER, AttackResult, AttackResults
from unshaken.certificates.base import Certified
from unshaken.evaluation.training_record import TrainingRecord
from unshaken.names import split_specs
from unshaken.proportion import Proportion
from unshaken.readers import OF_ALL

CLEAN = "clean"
ALL_LEVELS = "all levels"  # the same of a static adversarial set
WORST_CASE = "worst case"
TOLD = "told_apart"  # in a vote: what tells it from others of the same size; a report writes it where there are any


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """The model behind the numbers."""

    name: str  # as given, a folder or hub name
    fingerprint: str  # SHA-256 of its weights and configuration
    num_labels: int
    max_length: int  # in tokens; 0 if the victim does not count them
    connection: dict[str, Any] | None  # as written into `config.json`; None for a stock model
    training: TrainingRecord | None  # what training left beside the weights
    vote: dict[str, Any] | None = None  # patterns, rate and substitution set; None if the model is asked directly
    temperature: float | None = None  # by which its logits are divided for the searches
    reader: str | None = None  # names of what reads its texts, "" if a trained one was taken away; None as trained

    @property
    def readers(self) -> set[str]:
        """The names of all that reads its texts, as it was asked or, in a file that does not say, as it was trained."""
        return self._trained_readers if self.reader is None else _reader_names(self.reader)

    def joined(self, other: ModelInfo) -> ModelInfo:
        """The same model, with what either of two runs tells of it."""
        return replace(
            self,
            training=other.training if self.training is None else self.training,
            reader=other.reader if self.reader is None else self.reader,
        )

    @property
    def _trained_readers(self) -> set[str]:
        return _reader_names(self.training.details.get("reader") if self.training else None)

    @property
    def has_trained_reader(self) -> bool:
        """Whether what reads its texts is what read them in training; other settings of one reader are not told."""
        both = (self.readers, self._trained_readers)
        asked, trained = (names - {"all"} | set(OF_ALL) if "all" in names else names for names in both)
        return asked == trained

    @property
    def is_as_trained(self) -> bool:
        """Whether it was asked as training left it: no vote, no temperature, no other reader."""
        return self.vote is None and self.temperature is None and self.has_trained_reader

    @property
    def seed(self) -> int | str:
        """The training seed; of a model that does not tell it, something that no other has."""
        return self.fingerprint if self.training is None else self.training.seed

    @property
    def method(self) -> str:
        """Models of one method differ by their training seed alone."""
        if self.training is None:
            return self.name
        read = "" if self.has_trained_reader else f" + reader {self.reader}" if self.reader else " without its reader"
        vote = f" + vote of {self.vote.get('k')}" if self.vote else ""
        told = f" ({self.vote[TOLD]})" if self.vote and TOLD in self.vote else ""
        return self.training.method + read + vote + told + ("" if self.temperature is None else ", calibrated")

    @property
    def kind(self) -> tuple[str, str]:
        """What seeds of one method share; without a record of its training no model is a seed of another."""
        return self.method, self.fingerprint if self.training is None else ""


def _reader_names(spec: Any) -> set[str]:
    """Without their settings; of what is no specification none, as a stranger's file may hold anything."""
    return {one.partition(":")[0] for one in split_specs("reader", spec if isinstance(spec, str) else "")} - {""}


@dataclass(frozen=True, kw_only=True)
class DataInfo:
    """The examples behind the numbers."""

    name: str
    fingerprint: str
    columns: tuple[str, ...]
    label_names: tuple[str, ...]
    metric: str

    def label_name(self, label: int | None) -> str:
        if label is None:
            return "none"
        return self.label_names[label] if 0 <= label < len(self.label_names) else str(label)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a model answered to one example as it is."""

    id: str
    texts: tuple[str, ...]
    original: tuple[str, ...] | None  # the unperturbed texts of a static adversarial set
    label: int
    group: str | None
    prediction: int
    confidence: float  # probability of the predicted label
    truncated: bool | None  # None where the tokenizer does not say

    @property
    def correct(self) -> bool:
        return self.prediction == self.label


@dataclass(frozen=True, kw_only=True)
class Recheck:
    """An attack repeated on a sample with another scoring or temperature, to see whether scores starve the search."""

    variant: str  # "margin scoring", "temperature 0.1"
    total: int
    held: int  # examples that stood the attack as configured, of those that neither attack ended in an error on
    held_by_variant: int


@dataclass(frozen=True, kw_only=True)
class AttackRun:
    """One attack on all examples; where it is on those `left`, only on what the attacks before it had left standing.

    Others have no result then, and its accuracy is what all of the attacks together leave.
    """

    attack: str
    settings: dict[str, Any]  # every hyperparameter, the substitution set with its fingerprint, constraints, thresholds
    results: tuple[AttackResult, ...]  # one per example, in the order of the examples
    seconds: float  # of the process that finished it
    truncated_swaps: tuple[int, int] | None  # of words the model never sees, and all; None if nobody can tell
    rechecks: tuple[Recheck, ...]  # under other scores, where that was asked for
    left: bool = False

    @cached_property
    def counts(self) -> AttackResults:
        """The results with the numbers that follow from them."""
        return AttackResults(rows=self.results, attack=self.attack, settings=self.settings)

    def joined(self, other: AttackRun) -> AttackRun:
        """One of two runs of the same attack, with the rechecks of both: on all examples, with the fewest errors."""
        best = self
        if self.left == other.left:
            same = {item.example_id for item in self.results} == {item.example_id for item in other.results}
            best = self._with_doubts_of(other) if same else self
        elif self.left:
            best = other
        swaps = [one for one in (self.truncated_swaps, other.truncated_swaps) if one is not None]
        rechecks: dict[str, Recheck] = {}
        for item in (*self.rechecks, *other.rechecks):
            known = rechecks.setdefault(item.variant, item)
            rechecks[item.variant] = max(known, item, key=lambda one: (one.total, one.held - one.held_by_variant))
        return replace(best, truncated_swaps=max(swaps, default=None), rechecks=tuple(rechecks.values()))

    def _with_doubts_of(self, other: AttackRun) -> AttackRun:
        """The run with fewer errors, then the one that broke more, and what either of them could not confirm."""
        best, rest = sorted((self, other), key=lambda one: (one.counts.errors, one.counts.held.hits))
        doubts = {row.example_id: row for row in rest.results if row.unconfirmed}
        held = [doubts.get(row.example_id, row) if row.outcome == "failure" else row for row in best.results]
        return replace(best, results=tuple(held))


@dataclass(frozen=True, kw_only=True)
class Probes:
    """Small measurements on the victim from which flags are raised."""

    repeat_difference: float  # largest change of a probability between two equal calls
    batch_difference: float  # largest change of a probability between one at a time and all in one batch
    tolerance: float  # what rounding explains at the model's precision
    unknown_words: float | None  # share of the tokens that the tokenizer does not know
    trained_on: int | None  # texts that the model was trained on; None if training left no hashes of its texts

    def joined(self, other: Probes) -> Probes:
        """The worse of two measurements of the same answers, so that no order hides what one of them saw.

        Where the tolerances differ, as of two machines, differences are taken from one of them with its own.
        """
        worse = max(self, other, key=Probes._shakiness)
        if self.tolerance == other.tolerance:
            repeat, batch = (
                max(values, key=_nan_last)
                for values in (
                    (self.repeat_difference, other.repeat_difference),
                    (self.batch_difference, other.batch_difference),
                )
            )
            worse = replace(worse, repeat_difference=repeat, batch_difference=batch)
        return replace(
            worse,
            unknown_words=_largest_known(self.unknown_words, other.unknown_words),
            trained_on=_largest_known(self.trained_on, other.trained_on),
        )

    def _shakiness(self) -> tuple[int, tuple[bool, float]]:
        """How many differences are beyond the tolerance, then how large they are."""
        found = (self.repeat_difference, self.batch_difference)
        return sum(not value <= self.tolerance for value in found), max(_nan_last(value) for value in found)


def _nan_last(value: float) -> tuple[bool, float]:
    return math.isnan(value), value


def _largest_known(*values: float | None) -> Any:
    return max((value for value in values if value is not None), default=None)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One model on one set of examples: clean answers, attacks and probes."""

    model: ModelInfo
    data: DataInfo
    predictions: tuple[Prediction, ...]
    attacks: tuple[AttackRun, ...]
    metrics: dict[str, float]  # the task's own metrics on the clean answers
    probes: Probes
    environment: dict[str, Any]
    seed: int
    created: str
    seconds: float  # clean answers and probes; attacks carry their own
    certificates: tuple[Certified, ...] = ()  # lower bounds, of the majority: never among the accuracies under attack

    @cached_property
    def attack_names(self) -> tuple[str, ...]:
        """One name an attack run, with the settings that tell equal attacks apart; "then" one on what others left."""
        names = attack_names([(run.attack, run.settings) for run in self.attacks])
        return tuple(f"then {name}" if run.left else name for name, run in zip(names, self.attacks, strict=True))

    @property
    def clean(self) -> Proportion:
        return Proportion(hits=sum(row.correct for row in self.predictions), total=len(self.predictions))

    @property
    def majority_baseline(self) -> float:
        return max(Counter(row.label for row in self.predictions).values()) / len(self.predictions)

    @cached_property
    def groups(self) -> dict[str, Proportion]:
        """Clean accuracy by group, for example AdvGLUE's attack level."""
        names = dict.fromkeys(row.group for row in self.predictions if row.group is not None)
        members = {name: [row.correct for row in self.predictions if row.group == name] for name in names}
        return {name: Proportion(hits=sum(rows), total=len(rows)) for name, rows in members.items()}

    def held(self, condition: str) -> dict[str, bool]:
        """For each example id, whether the answer is right and stays right under this attack.

        An example whose attack ended in an error proved nothing and is left out, unless another attack broke it. What
        exhaustive search or a transfer passes over is known by the other attacks: left out only where they broke
        nothing, it would make the share too low.
        """
        runs = self.behind(condition)
        had_to = [run for run in runs if run.attack not in PASSING_OVER] or runs
        broken = {item.example_id for run in runs for item in run.results if item.outcome in ("success", "skipped")}
        unknown = {item.example_id for run in had_to for item in run.results if item.outcome == "error"} - broken
        return {row.id: row.correct and row.id not in broken for row in self.predictions if row.id not in unknown}

    def behind(self, condition: str) -> tuple[AttackRun, ...]:
        """The attacks that a condition is about: all for the worst case, and with one on what was left those before."""
        if condition in (CLEAN, WORST_CASE):
            return self.attacks if condition == WORST_CASE else ()
        number = self.attack_names.index(condition)
        return self.attacks[0 if self.attacks[number].left else number : number + 1]

    @property
    def standing(self) -> list[str]:
        """The ids of the examples that are right and that no attack so far has broken."""
        broken = {result.example_id for run in self.attacks for result in run.results if result.outcome == "success"}
        return [row.id for row in self.predictions if row.correct and row.id not in broken]

    def run(self, name: str) -> AttackRun:
        return self.attacks[self.attack_names.index(name)]

    def accuracy(self, condition: str) -> Proportion:
        held = self.held(condition)
        return Proportion(hits=sum(held.values()), total=len(held))

    @property
    def is_static(self) -> bool:
        """Whether the examples themselves are adversarial, made against other models (AdvGLUE)."""
        return any(row.original is not None for row in self.predictions)

    def title(self, condition: str) -> str:
        """What to call a condition: the answers to a static adversarial set are not clean ones."""
        return ALL_LEVELS if condition == CLEAN and self.is_static else condition

    @cached_property
    def searches(self) -> dict[str, AttackRun]:
        """The attacks on all examples that ask this model as they search, for which a query budget means something."""
        named = zip(self.attack_names, self.attacks, strict=True)
        return {name: run for name, run in named if run.attack != "transfer" and not run.left}

    @property
    def conditions(self) -> tuple[str, ...]:
        worst = (WORST_CASE,) if len(self.attacks) > 1 else ()
        return (CLEAN, *self.attack_names, *worst)


def attack_names(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> tuple[str, ...]:
    """Each attack's name; where one occurs several times, with the settings in which its runs differ."""
    names = []
    for name, settings in runs:
        rivals = [other for rival, other in runs if rival == name]
        differing = [key for key in settings if any(rival.get(key) != settings[key] for rival in rivals)]
        short = ", ".join(f"{key}={_short(settings[key])}" for key in differing)
        names.append(f"{name} ({short})" if short else name)
    return tuple(
        f"{name} #{names[:index].count(name) + 1}" if names.count(name) > 1 else name
        for index, name in enumerate(names)
    )


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("name", value.get("fingerprint", "...")))
    return str(value)


def accuracy_at_budget(run: AttackRun, budgets: Sequence[int]) -> list[float]:
    """Accuracy under the attack had it been stopped after this many queries per example."""
    broken = [result.queries for result in run.results if result.outcome == "success"]
    held = [run.counts.attacked - sum(queries <= budget for queries in broken) for budget in budgets]
    return [count / run.counts.answered for count in held]
