"""`Report`: what was measured, as plain results that become JSON, a table, Markdown, LaTeX, CSV or one HTML page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from unshaken.errors import UnshakenError
from unshaken.evaluation.comparison import Comparison, SeedSpread, compare, over_seeds
from unshaken.evaluation.flags import Check, check_all
from unshaken.evaluation.results import TOLD, AttackRun, Evaluation
from unshaken.evaluation.training_record import TrainingRecord
from unshaken.files import read_checked_json, write_checked_json, write_text
from unshaken.names import at, version
from unshaken.schema import decode, encode

SCHEMA_VERSION = 1
READ_BY_EYE = 1000  # rows up to which a result file is laid out for readers

# Suffix to view. By path, because views know the results and the results none of their views.
WRITERS = {
    ".md": "unshaken.reports.views:markdown",
    ".tex": "unshaken.reports.views:latex",
    ".csv": "unshaken.reports.views:csv_text",
    ".html": "unshaken.reports.html:page",
}


@dataclass(frozen=True, kw_only=True, repr=False)
class Report:
    """The evaluations of any number of models on any number of data sets.

    Comparisons and flags follow from the evaluations: they are computed, never stored as facts of their own, so that
    merged reports compare and flag across the runs they were merged from.

    Example:
        >>> report = evaluate(victim, data.test, attacks=[PWWS()])
        >>> report.save("out/report.html")
        >>> Report.load("out/report.json").flags
    """

    evaluations: tuple[Evaluation, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "evaluations", _told_apart(self.evaluations))

    @cached_property
    def model_names(self) -> dict[str, str]:
        """Fingerprint to name; models that share one, or have a method's, are told apart by the fingerprint's start."""
        models = [item.model for item in self.evaluations]
        bare = {model.name for model in models if model.training is None}
        rivals = {(model.method, "") for model in models if model.training is not None and model.method in bare}
        names = _distinct([*((model.name, model.fingerprint) for model in models), *rivals])
        return {model.fingerprint: names[model.name, model.fingerprint] for model in models}

    def renamed(self, names: Mapping[str, str]) -> Report:
        """The same results under other names of models, by fingerprint."""
        return Report(
            evaluations=tuple(
                replace(item, model=replace(item.model, name=names.get(item.model.fingerprint, item.model.name)))
                for item in self.evaluations
            )
        )

    def name_of(self, evaluation: Evaluation) -> str:
        return self.model_names[evaluation.model.fingerprint]

    @cached_property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Each model against the first one on the same data, with paired tests."""
        return compare(self.evaluations, self.model_names)

    @cached_property
    def spreads(self) -> tuple[SeedSpread, ...]:
        """Mean and standard deviation of each method with two or more training seeds."""
        return over_seeds(self.evaluations)

    @cached_property
    def checks(self) -> tuple[Check, ...]:
        """Every reliability check with its verdict: raised, clear, or unknown where the evidence is missing."""
        return check_all(self.evaluations, self.model_names)

    @property
    def flags(self) -> tuple[Check, ...]:
        """The reliability checks that were raised."""
        return tuple(check for check in self.checks if check.verdict == "raised")

    # ------------------------------------------------------------------------------------------------- files

    def to_json(self) -> dict[str, Any]:
        """The result file: facts under `evaluations`, what follows from them under `derived`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "unshaken_version": version("unshaken"),
            "evaluations": [_encode_evaluation(evaluation) for evaluation in self.evaluations],
            "derived": {"comparisons": encode(self.comparisons), "checks": encode(self.checks)},
        }

    @classmethod
    def from_json(cls, value: Any, where: str = "report") -> Report:
        """Read what `to_json` wrote; `derived` is computed anew."""
        if not isinstance(value, dict) or "schema_version" not in value:
            raise UnshakenError(f"{where}: not a result file of unshaken (it has no 'schema_version')")
        if value["schema_version"] != SCHEMA_VERSION:
            raise UnshakenError(
                f"{where}: schema version {value['schema_version']!r}, this release reads {SCHEMA_VERSION}; evaluate "
                "again, or read it with the release that wrote it"
            )
        evaluations = value.get("evaluations")
        if not isinstance(evaluations, list):
            raise UnshakenError(f"{where}: 'evaluations' is missing or not a list")
        return cls(
            evaluations=tuple(
                _decode_evaluation(item, f"{where}: evaluations[{index}]") for index, item in enumerate(evaluations)
            )
        )

    @classmethod
    def load(cls, path: Path | str) -> Report:
        """Read a result file, or the `report.json` of a run's folder."""
        path = Path(path)
        if path.is_dir():
            path = path / "report.json"
        return cls.from_json(read_checked_json(path), str(path))

    def save(self, path: Path | str) -> Path:
        """Write the view that the suffix names: .json, .md, .html, .tex or .csv. The file is whole or not there."""
        path = Path(path)
        if path.suffix == ".json":
            rows = sum(len(evaluation.predictions) for evaluation in self.evaluations)
            return write_checked_json(path, self.to_json(), compact=rows > READ_BY_EYE)
        if path.suffix not in WRITERS:
            known = ", ".join([".json", *WRITERS])
            raise UnshakenError(f"cannot write a report as {path.suffix or path.name!r}; known: {known}")
        return write_text(path, at(WRITERS[path.suffix])(self))

    def __repr__(self) -> str:
        shown = [
            f"{self.name_of(item)} on {item.data.name}: "
            + ", ".join(f"{item.title(name)} {item.accuracy(name).value:.1%}" for name in item.conditions)
            for item in self.evaluations[:4]
        ]
        more = [f"and {len(self.evaluations) - 4} more"] if len(self.evaluations) > 4 else []
        return f"Report({'; '.join([*shown, *more])}; {len(self.flags)} flags)"

    def to_pandas(self) -> Any:
        """The main table as a DataFrame: one row for each model, data set and condition."""
        import pandas

        return pandas.DataFrame(
            [
                {
                    "data": item.data.name,
                    "model": self.name_of(item),
                    "condition": item.title(name),
                    "accuracy": item.accuracy(name).value,
                    "low": item.accuracy(name).interval[0],
                    "high": item.accuracy(name).interval[1],
                    "n": item.accuracy(name).total,
                }
                for item in self.evaluations
                for name in item.conditions
            ]
        )

    def _repr_html_(self) -> str:
        """For notebooks: the main table, and the flags that were raised."""
        return str(at("unshaken.reports.views:notebook")(self))

    def __rich__(self) -> Any:
        return at("unshaken.reports.views:terminal")(self)


def _told_apart(evaluations: Sequence[Evaluation]) -> tuple[Evaluation, ...]:
    """The same with other names for data, and for methods, that share one: tables go by names, and would mix them."""
    names = _distinct((item.data.name, item.data.fingerprint) for item in evaluations)
    methods = _distinct(_called(item.model.training) for item in evaluations if item.model.training is not None)
    votes = {_voted(item.model.vote) for item in evaluations if item.model.vote}
    told, sizes = _distinct((shown, key) for _, shown, key in votes), Counter(size for size, _, _ in votes)

    def named(vote: dict[str, Any] | None) -> dict[str, Any] | None:
        if not vote:
            return vote
        size, shown, key = _voted(vote)
        bare = {name: value for name, value in vote.items() if name != TOLD}
        return {**bare, TOLD: told[shown, key]} if sizes[size] > 1 else bare

    return tuple(
        replace(
            item,
            data=replace(item.data, name=names[item.data.name, item.data.fingerprint]),
            model=replace(item.model, training=_renamed(item.model.training, methods), vote=named(item.model.vote)),
        )
        for item in evaluations
    )


def _voted(vote: Mapping[str, Any]) -> tuple[str, str, str]:
    """Its size, and what tells it from others of that size, in words and exactly; not the seed of its patterns."""
    source = vote.get("substitutions")
    source = source if isinstance(source, Mapping) else {}
    return str(vote.get("k")), f"rate {vote.get('rate')}, {source.get('name')}", str(source.get("fingerprint"))


def _called(record: TrainingRecord) -> tuple[str, str]:
    """A method's name, as its training gave it, and what tells it from others of that name."""
    return record.as_trained.method, record.recipe


def _renamed(record: TrainingRecord | None, methods: Mapping[tuple[str, str], str]) -> TrainingRecord | None:
    return None if record is None else replace(record, method=methods[_called(record)])


def _distinct(given: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Name and fingerprint to a name, with the fingerprint's start where several share one."""
    pairs = set(given)
    counts = Counter(name for name, _ in pairs)
    return {(name, key): name if counts[name] == 1 else f"{name} [{key[:6]}]" for name, key in pairs}


def _encode_evaluation(evaluation: Evaluation) -> dict[str, Any]:
    """The original texts of attack results stand under predictions already, so they are written once."""
    value: dict[str, Any] = encode(evaluation)
    for run in value["attacks"]:
        for result in run["results"]:
            del result["original"]
    return value


EARLIER = {"unknown_words": None, "trained_on": None}  # probes that files of earlier releases do not have


def _decode_evaluation(value: Any, where: str) -> Evaluation:
    if isinstance(value, dict) and isinstance(value.get("probes"), dict):
        value = {**value, "probes": {**EARLIER, **value["probes"]}}
    if isinstance(value, dict) and isinstance(value.get("model"), dict):
        later = {"vote": None, "temperature": None, "reader": None}
        value = {"certificates": [], **value, "model": {**later, **value["model"]}}
    bare = decode(Evaluation, {**value, "attacks": []} if isinstance(value, dict) else value, where)
    runs = decode(tuple[Any, ...], value.get("attacks"), f"{where}.attacks")
    texts = {row.id: list(row.texts) for row in bare.predictions}
    whole = [_with_texts(run, texts, f"{where}.attacks[{number}]") for number, run in enumerate(runs)]
    evaluation = replace(bare, attacks=decode(tuple[AttackRun, ...], whole, f"{where}.attacks"))
    for problem in _contradictions(evaluation):
        raise UnshakenError(f"{where}: {problem}; the file was changed after it was written")
    return evaluation


def _contradictions(evaluation: Evaluation) -> Iterator[str]:
    """What no evaluation leaves behind, and every view of one relies on."""
    columns, ids = len(evaluation.data.columns), {row.id for row in evaluation.predictions}
    if not evaluation.predictions:
        yield "no predictions"
    if len(ids) < len(evaluation.predictions):
        yield "two predictions have the same id"
    known = [texts for row in evaluation.predictions for texts in (row.texts, row.original) if texts is not None]
    if any(len(texts) != columns for texts in known):
        yield f"a prediction has other than {columns} texts"
    for run in evaluation.attacks:
        if len({result.example_id for result in run.results}) < len(run.results):
            yield f"{run.attack} has two results of one example"
        changed = [result.adversarial for result in run.results if result.adversarial is not None]
        if any(len(texts) != columns for texts in changed):
            yield f"a result of {run.attack} has other than {columns} texts"
    for number, run in enumerate(evaluation.attacks):
        # An example without a result would count as one that held.
        wanted = replace(evaluation, attacks=evaluation.attacks[:number]).standing if run.left else ids
        if not {*wanted} <= {result.example_id for result in run.results}:
            yield f"{run.attack} was not tried on all {'that was left' if run.left else 'examples'}"
    labels = {row.id: row.label for row in evaluation.predictions}
    for item in evaluation.certificates:
        if sorted(row.example_id for row in item.rows) != sorted(ids):
            yield f"{item.certificate} is a certificate of other examples"
        if any(row.label != labels.get(row.example_id) for row in item.rows):
            yield f"{item.certificate} has other labels than the predictions"
        if item.fingerprint != evaluation.model.fingerprint:
            yield f"{item.certificate} is a certificate of another model"
        samples, alpha = item.settings.get("samples"), item.settings.get("alpha")
        if type(samples) is not int or type(alpha) is not float:
            yield f"{item.certificate} does not tell its samples and its chance of error"


def _with_texts(run: Any, texts: dict[str, list[str]], where: str) -> Any:
    """An attack run with the original texts back in its results; what is no run is left for `decode` to refuse."""
    if not isinstance(run, dict) or not isinstance(run.get("results"), list):
        return run
    results = []
    for index, result in enumerate(run["results"]):
        if isinstance(result, dict):
            key = decode(str, result.get("example_id"), f"{where}.results[{index}].example_id")
            if key not in texts:
                raise UnshakenError(f"{where}.results[{index}]: no prediction has the id {key!r}")
            result = {**result, "original": texts[key]}
        results.append(result)
    return {"left": False, **run, "results": results}  # which files of earlier releases do not have


def merge(reports: Sequence[Report]) -> Report:
    """One report from several runs. The same model on the same data becomes one evaluation with the attacks of both.

    Of an attack that both ran, the run with fewer errors counts, with the rechecks of both: whatever raises a flag in
    one of them raises it in the report, in whatever order they are given.

    Raises:
        UnshakenError: Where two runs of the same model on the same data answered differently.
    """
    merged: dict[tuple[str, str], Evaluation] = {}
    for report in reports:
        for evaluation in report.evaluations:
            key = (evaluation.model.fingerprint, evaluation.data.fingerprint)
            merged[key] = _join(merged[key], evaluation) if key in merged else evaluation
    if not merged:
        raise UnshakenError("nothing to report: no evaluation was given")
    return Report(evaluations=tuple(merged.values()))


def _join(first: Evaluation, second: Evaluation) -> Evaluation:
    answers = {row.id: row.prediction for row in second.predictions}
    differing = sum(answers.get(row.id) != row.prediction for row in first.predictions)
    if differing:
        raise UnshakenError(
            f"two runs of {first.model.name} on {first.data.name} disagree on {differing} of {len(first.predictions)} "
            "clean answers; they cannot be one result: evaluate again on one machine"
        )
    own = list(first.attacks)
    for run in second.attacks:
        at = next((n for n, one in enumerate(own) if (one.attack, one.settings) == (run.attack, run.settings)), None)
        if at is None:
            own.append(run)
        else:
            own[at] = own[at].joined(run)
    proved = [(item.certificate, item.settings) for item in first.certificates]
    new = [item for item in second.certificates if (item.certificate, item.settings) not in proved]
    joined = replace(
        first,
        model=first.model.joined(second.model),
        attacks=tuple(own),
        probes=first.probes.joined(second.probes),
        certificates=(*first.certificates, *new),
    )
    for problem in _contradictions(joined):  # an attack of both that broke other examples there, where others were left
        raise UnshakenError(
            f"two runs of {first.model.name} on {first.data.name} cannot be one result: {problem}; evaluate again on "
            "one machine"
        )
    return joined
