"""What a plan will cost, before it is spent: passes and queries counted, seconds from timing the encoder here."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unshaken.errors import UnshakenError
from unshaken.evaluation.outlook import queries_to_the_end
from unshaken_experiments.inputs import attack_of, certificate_of, parse_parts, test_rows, training_rows
from unshaken_experiments.runs import Measure, Run, Settings
from unshaken_experiments.schedule import Job
from unshaken_experiments.work import Workspace

SAMPLE = 20  # texts from which the size of a search space is taken


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
    for name, members in groups.items():
        rows, passes, attacked, queries, seconds = 0.0, 0.0, 0, 0.0, 0.0
        for job in members:
            try:
                training, inference = cost_factors(job.run.settings, clock.layers(job.run))
            except UnshakenError as error:
                impossible[job.run.name] = str(error)
                continue
            trained = len(training_rows(job.run.settings, job.run.seed, workspace.data)[0]) * job.run.settings.epochs
            asked = 0.0
            for measure in job.measures:
                count, questions = _questions(measure, job.run, workspace)
                attacked += count if measure.attack else 0
                asked += questions
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


def _questions(measure: Measure, run: Run, workspace: Workspace) -> tuple[int, float]:
    """(examples, questions to the model where no search succeeds; one that does stops earlier)."""
    if measure.what != "accuracy":
        return 0, 0.0
    rows = test_rows(measure, run, workspace.data)
    answers = float(len(rows) * max(measure.vote, measure.detector, 1))
    if measure.certificate is not None:
        proof = certificate_of(measure.certificate, measure.substitutions, workspace.data)
        return len(rows), answers * (proof.samples + proof.guesses)
    if measure.attack is None:
        return len(rows), answers
    attack = attack_of(measure.attack, measure.substitutions, workspace.data)
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
    """Times the plain encoder once for each batch size and length."""

    def __init__(self, workspace: Workspace) -> None:
        import torch

        self.workspace = workspace
        self.device = torch.cuda.get_device_name() if torch.cuda.is_available() else "this CPU"
        self._models: dict[str, Any] = {}
        self._known: dict[tuple[str, int, int], tuple[float, float]] = {}

    def _model(self, encoder: str) -> Any:
        if encoder not in self._models:
            import torch
            from transformers import AutoModelForSequenceClassification

            from unshaken.pretrained import load
            from unshaken.training.fine_tuning import resolve_model

            config = load("AutoConfig", resolve_model(self.workspace.encoders[encoder]))
            model = AutoModelForSequenceClassification.from_config(config)
            self._models[encoder] = model.to("cuda" if torch.cuda.is_available() else "cpu")
        return self._models[encoder]

    def layers(self, run: Run) -> int:
        return int(self._model(run.encoder).config.num_hidden_layers)

    def seconds(self, run: Run) -> tuple[float, float]:
        """Seconds a row of plain training, and of inference."""
        key = (run.encoder, run.settings.batch_size, run.settings.max_length)
        if key not in self._known:
            import torch

            model = self._model(run.encoder)
            ids = torch.full((run.settings.batch_size, run.settings.max_length), 5, device=model.device)

            def train() -> None:
                model(input_ids=ids).logits.sum().backward()

            def answer() -> None:
                with torch.no_grad():
                    model(input_ids=ids)

            self._known[key] = (_seconds(train) / len(ids), _seconds(answer) / len(ids))
        return self._known[key]


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
