"""What a plan will cost, before it is spent: passes and queries counted, seconds from timing the encoder here."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unshaken.errors import UnshakenError
from unshaken.evaluation.outlook import queries_to_the_end
from unshaken_experiments.inputs import attack_of, certificate_of, parse_parts, plain, test_rows, training_rows
from unshaken_experiments.runs import Measure, Run, Settings
from unshaken_experiments.schedule import Job
from unshaken_experiments.work import Workspace

SAMPLE = 20  # texts from which the size of a search space is taken
FEWEST = 32  # rows from which lengths are taken, where a batch has fewer
FEW_AT_ONCE = 8  # as many rows keep a processor busy as a whole batch, and take less long to time


@dataclass(frozen=True, kw_only=True)
class Line:
    """All runs of one kind of training."""

    name: str
    runs: int
    rows: float
    passes: float  # rows trained, in plain passes
    attacked: int
    queries: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Estimate:
    lines: tuple[Line, ...]
    impossible: dict[str, str]  # run -> why this encoder cannot do it
    device: str

    @property
    def seconds(self) -> float:
        return sum(line.seconds for line in self.lines)


def estimate(jobs: Sequence[Job], workspace: Workspace) -> Estimate:
    """Costs of some jobs, by task, defence and connection."""
    groups: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        groups[_kind(job.run.settings)].append(job)
    clock = _Clock(workspace)
    lines, impossible = [], {}

    # Whole tasks are read for these, so once for all methods.
    @functools.cache
    def count(settings: Settings, seed: int) -> int:
        return len(training_rows(settings, seed, workspace.data)[0])

    @functools.cache
    def questions(measure: Measure, task: str) -> tuple[int, float]:
        return _questions(measure, task, workspace)

    for name, members in groups.items():
        rows, passes, attacked, queries, seconds = 0.0, 0.0, 0, 0.0, 0.0
        for job in members:
            try:
                training, inference = cost_factors(job.run.settings, clock.layers(job.run))
            except UnshakenError as error:
                impossible[job.run.name] = str(error)
                continue
            trained = count(plain(job.run.settings), job.run.seed) * job.run.settings.epochs
            asked = 0.0
            for measure in job.measures:
                examples, queried = questions(measure, job.run.settings.task)
                attacked += examples if measure.attack else 0
                asked += queried
            per_training, per_query = clock.seconds(job.run)
            rows, passes, queries = rows + trained, passes + trained * training, queries + asked
            seconds += trained * training * per_training + asked * inference * per_query
        lines.append(
            Line(
                name=name,
                runs=len(members),
                rows=rows,
                passes=passes,
                attacked=attacked,
                queries=queries,
                seconds=seconds,
            )
        )
    return Estimate(lines=tuple(lines), impossible=impossible, device=clock.device)


def _kind(settings: Settings) -> str:
    parts = [settings.task, settings.defence]
    if settings.connection != "none":
        parts.append(f"{settings.connection} {settings.layers or 'all'} {settings.solver or ''}".strip())
    return ", ".join(parts)


def cost_factors(settings: Settings, layers: int) -> tuple[float, float]:
    """Training and inference of these settings in plain training and inference."""
    from unshaken.connections.cost import connection_cost
    from unshaken.defences import training_cost

    connection, defence = parse_parts(settings)
    training, inference = connection_cost(connection, {"encoder": layers})
    return training_cost(defence) * training, inference


def _questions(measure: Measure, task: str, workspace: Workspace) -> tuple[int, float]:
    """(examples, questions to the model where no search succeeds; one that does stops earlier)."""
    if measure.what != "accuracy":
        return 0, 0.0
    rows = test_rows(measure, task, workspace.data)
    answers = float(len(rows) * max(measure.vote, measure.detector, 1))
    if measure.certificate is not None:
        proof = certificate_of(measure.certificate, measure.substitutions, workspace.data)
        return len(rows), answers * (proof.samples + proof.guesses)
    if measure.attack is None:
        return len(rows), answers
    attack = attack_of(measure.attack, measure.substitutions, workspace.data, measure.constraints)
    words, choices = _space(attack, rows.sample(SAMPLE).texts)
    return len(rows), queries_to_the_end(attack, words, choices) * answers


def _space(attack: Any, texts: Sequence[tuple[str, ...]]) -> tuple[float, float]:
    """Mean number of words that can be swapped, and of swaps."""
    from unshaken.substitutions.words import segment

    words = choices = 0
    substitutions = attack.substitutions.against(None)  # as of a model without a reader: the most there can be
    for row in texts:
        for text in row:
            found = [options for options in substitutions.for_text(segment(text)) if options]
            words += len(found)
            choices += sum(map(len, found))
    return words / len(texts), choices / len(texts)


class _Clock:
    """Times the plain encoder, once for each size of a batch."""

    def __init__(self, workspace: Workspace) -> None:
        import torch

        self.workspace = workspace
        self.device = torch.cuda.get_device_name() if torch.cuda.is_available() else "this CPU"
        self._parts: dict[str, tuple[Any, Any]] = {}
        self._lengths: dict[tuple[Any, ...], tuple[int, int]] = {}
        self._known: dict[tuple[str, int, int, bool], float] = {}

    def layers(self, run: Run) -> int:
        return int(self._loaded(run.encoder)[0].config.num_hidden_layers)

    def seconds(self, run: Run) -> tuple[float, float]:
        """Seconds a row of plain training, and of inference: batches are padded, searches ask texts of like length."""
        size, (longest, mean) = run.settings.batch_size, self._row_lengths(run)
        return self._timed(run.encoder, size, longest, training=True), self._timed(run.encoder, size, mean)

    def _loaded(self, encoder: str) -> tuple[Any, Any]:
        if encoder not in self._parts:
            import torch
            from transformers import AutoModelForSequenceClassification

            from unshaken.pretrained import load
            from unshaken.training.base_model import resolve_model

            path = resolve_model(self.workspace.encoders[encoder])
            model = AutoModelForSequenceClassification.from_config(load("AutoConfig", path))
            self._parts[encoder] = (
                model.to("cuda" if torch.cuda.is_available() else "cpu"),
                load("AutoTokenizer", path),
            )
        return self._parts[encoder]

    def _row_lengths(self, run: Run) -> tuple[int, int]:
        settings = run.settings
        key = (run.encoder, settings.task, settings.protocol, settings.batch_size, settings.max_length)
        if key not in self._lengths:
            rows = training_rows(settings, run.seed, self.workspace.data)[0]
            few = rows.sample(min(len(rows), max(settings.batch_size, FEWEST)))
            self._lengths[key] = row_lengths(self._loaded(run.encoder)[1], few.texts, settings.max_length)
        return self._lengths[key]

    def _timed(self, encoder: str, size: int, length: int, *, training: bool = False) -> float:
        model = self._loaded(encoder)[0]
        if model.device.type == "cpu":
            size = min(size, FEW_AT_ONCE)
        key = (encoder, size, length, training)
        if key not in self._known:
            import torch

            ids = torch.full((size, length), 5, device=model.device)

            def work() -> None:
                with torch.set_grad_enabled(training):
                    answers = model(input_ids=ids).logits
                if training:
                    answers.sum().backward()

            self._known[key] = _seconds(work) / size
        return self._known[key]


def row_lengths(tokenizer: Any, texts: Sequence[tuple[str, ...]], most: int) -> tuple[int, int]:
    """Tokens of the longest of some rows, and of the mean one."""
    lengths = [len(tokenizer(*row, truncation=True, max_length=most)["input_ids"]) for row in texts]
    return max(lengths), round(sum(lengths) / len(lengths))


def _seconds(work: Any) -> float:
    """The faster of two, after one to warm up."""
    import torch

    times = []
    for _ in range(3):
        start = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times[1:])
