"""`OneRun`: one model on one set of examples, kept as it goes so that it can be resumed."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from unshaken.attacks.base import Attack, AttackResult, AttackResults, SearchAttack
from unshaken.attacks.shard_files import gather, remove_parts
from unshaken.certificates import Certificate
from unshaken.errors import UnshakenError
from unshaken.evaluation import probes
from unshaken.evaluation.clean_predictions import answer_share, ask, gather_answers, truncated
from unshaken.evaluation.environment import environment, now
from unshaken.evaluation.report import Report
from unshaken.evaluation.results import AttackRun, DataInfo, Evaluation, ModelInfo, Prediction, Recheck
from unshaken.evaluation.training_record import TrainingRecord
from unshaken.examples import Examples
from unshaken.files import REPORT_FILE, run_folder
from unshaken.processes import Shard
from unshaken.tasks.metrics import score
from unshaken.victims import Victim, Vote
from unshaken.victims.calibrated import Tempered, TemperedModel

ASKED_AGAIN = 4  # texts, where a run goes on: questions to a service may cost money


def _folder_name(victim: Victim, rows: Examples) -> Path:
    return run_folder((victim.name, victim.fingerprint), (rows.name, rows.fingerprint))


def results_file(folder: Path, victim: Victim, rows: Examples, attack: Attack) -> Path:
    """Where a run in `folder` writes what one attack found."""
    return folder / _folder_name(victim, rows) / f"{_key(attack.name, attack.settings())}.jsonl"


@dataclass(frozen=True)
class OneRun:
    """One model on one set. What is finished is kept in the folder and read back when the run is resumed."""

    victim: Victim
    examples: Examples
    attacks: Sequence[Attack]
    then: Sequence[Attack]
    out: Path | None  # of all runs
    resume: bool
    seed: int
    recheck: int
    progress: bool
    shard: Shard
    certificates: Sequence[Certificate]
    spent: dict[str, float] = field(default_factory=dict)  # seconds on the share of each attack

    @cached_property
    def folder(self) -> Path | None:
        return None if self.out is None else self.out / _folder_name(self.victim, self.examples)

    def do_share(self) -> None:
        """This process's part of the answers and attacks that are left, with no word to the other processes."""
        finished = self._finished()
        if finished is None:
            answer_share(self.victim, self.examples, self._answer_file, self.shard, resume=self.resume)
        known = {_key(run.attack, run.settings) for run in finished.attacks if not run.left} if finished else set()
        for attack in () if self.examples.is_static else self.attacks:
            key = _key(attack.name, attack.settings())
            if key not in known:
                start = time.perf_counter()
                self._run(attack, self._path(key), self.examples)
                self.spent[key] = time.perf_counter() - start

    def evaluation(self) -> Evaluation:
        earlier = self._finished()
        if earlier is not None:
            self._require_same_answers(earlier)
        result = earlier or self._answers()
        self._keep(result)
        if self.folder is not None:
            remove_parts(self._answer_file)
        if self.examples.is_static:
            return self._certify(result)
        visible = probes.visible_words(self.victim, self.examples)
        kept = {_key(run.attack, run.settings): run for run in result.attacks}
        runs = {key: run for key, run in kept.items() if not run.left}  # of others the attacks before decide
        on_all = {_key(attack.name, attack.settings()): attack for attack in self.attacks}
        attacks = dict(on_all)
        for attack in self.then:
            attacks.setdefault(_key(attack.name, attack.settings()), attack)  # one that is in both is on all
        for number, (key, attack) in enumerate(attacks.items()):
            before = tuple(runs[key] for key in list(attacks)[:number])
            left = None if key in on_all else replace(result, attacks=before).standing
            run = kept.get(key)
            # Others may leave it more than before, or less. What it found already is kept in its file.
            if run is None or (run.left and [row.example_id for row in run.results] != left):
                run = self._attack(attack, visible, key, left)
            runs[key] = run if self._is_rechecked(run) else replace(run, rechecks=self._rechecks(attack, run))
            result = replace(result, attacks=tuple(runs[key] for key in attacks if key in runs))
            self._keep(result)
        return self._certify(result)

    def _certify(self, result: Evaluation) -> Evaluation:
        """The certificates that are asked for; one that is there already stays."""
        known = {_key(item.certificate, item.settings): item for item in result.certificates}
        for item in self.certificates:
            key = _key(item.name, item.settings())
            if key not in known:
                known[key] = item(self.victim, self.examples, progress=self.progress)
                result = replace(result, certificates=tuple(known.values()))
                self._keep(result)
        return result

    def _finished(self) -> Evaluation | None:
        if self.folder is None or not self.resume or not (self.folder / REPORT_FILE).exists():
            return None
        return Report.load(self.folder).evaluations[0]

    def _require_same_answers(self, earlier: Evaluation) -> None:
        """Of a function or a service little more than its name is known, by which another may go by now."""
        measured = earlier.probes
        if self.victim.network is not None or not measured.repeat_difference <= measured.tolerance:
            return
        known = {row.id: row for row in earlier.predictions}
        rounding = 2 * max(measured.tolerance, measured.batch_difference)
        for answer in ask(self.victim, self.examples.sample(ASKED_AGAIN, self.seed)):
            then = known[answer.id]
            if answer.prediction != then.prediction or abs(answer.confidence - then.confidence) > rounding:
                raise UnshakenError(
                    f"cannot resume {self.folder}: {self.victim.name} answers {answer.id!r} otherwise than when the "
                    "run began; use what was asked then, or another folder"
                )

    def _keep(self, result: Evaluation) -> None:
        if self.folder is not None:
            Report(evaluations=(result,)).save(self.folder / REPORT_FILE)

    def _answers(self) -> Evaluation:
        start = time.perf_counter()
        if self.shard.is_whole:
            answers = ask(self.victim, self.examples)
        else:
            answers = gather_answers(self.victim, self.examples, self._answer_file, self.shard)
        cut = truncated(self.victim, self.examples)
        predictions = tuple(
            Prediction(
                id=row.id,
                texts=row.texts,
                original=row.original,
                label=int(row.label),
                group=row.group,
                prediction=answer.prediction,
                confidence=answer.confidence,
                truncated=None if cut is None else cut[number],
            )
            for number, (row, answer) in enumerate(zip(self.examples, answers, strict=True))
        )
        measured = probes.probe(self.victim, self.examples, self.seed)
        return Evaluation(
            model=_model_info(self.victim),
            data=DataInfo(
                name=self.examples.name,
                fingerprint=self.examples.fingerprint,
                columns=tuple(self.examples.columns),
                label_names=tuple(self.examples.label_names),
                metric=self.examples.metric,
            ),
            predictions=predictions,
            attacks=(),
            metrics=score(self.examples.metric, self.examples.labels, [answer.prediction for answer in answers]),
            probes=measured,
            environment=environment(),
            seed=self.seed,
            created=now(),
            seconds=time.perf_counter() - start,
        )

    def _attack(
        self,
        attack: Attack,
        visible: list[tuple[tuple[int, ...], ...]] | None,
        key: str,
        left: Sequence[str] | None = None,
    ) -> AttackRun:
        """One attack on all examples, or on those that were left."""
        path = self._path(key)
        start = time.perf_counter()
        found: Sequence[AttackResult]
        if left is not None:
            rows = self.examples.part(left)
            found = self._run(attack, path, rows) if len(rows) else ()
        elif path is None or self.shard.is_whole:
            found = self._run(attack, path, self.examples)
        else:
            found = gather(attack, path, self.examples, self.shard)
        return AttackRun(
            attack=attack.name,
            settings=json.loads(json.dumps(attack.settings())),  # as they read back, so that both compare equal
            results=tuple(found),
            seconds=self.spent.get(key, 0.0) + time.perf_counter() - start,
            truncated_swaps=probes.truncated_swaps(found, self.examples, visible),
            rechecks=(),
            left=left is not None,
        )

    @property
    def _answer_file(self) -> Path:
        assert self.folder is not None
        return self.folder / "answers.jsonl"  # only its parts are ever written

    def _path(self, key: str) -> Path | None:
        return None if self.folder is None else self.folder / f"{key}.jsonl"

    def _run(self, attack: Attack, path: Path | None, rows: Examples) -> AttackResults:
        return attack(self.victim, rows, out=path, resume=self.resume, progress=self.progress, shard=self.shard)

    def _is_rechecked(self, run: AttackRun) -> bool:
        """On as many examples as are asked for, or more: a run that goes on may ask for more than it began with."""
        wanted = min(self.recheck, len(run.results))
        return bool(run.rechecks) and all(item.total >= wanted for item in run.rechecks)

    def _rechecks(self, attack: Attack, run: AttackRun) -> tuple[Recheck, ...]:
        if not self.recheck or not isinstance(attack, SearchAttack) or not probes.variants(attack):
            return ()
        rows = self.examples.part(result.example_id for result in run.results)
        return probes.rechecks(attack, self.victim, rows, run.results, self.recheck, self.seed) if len(rows) else ()


def _key(name: str, settings: Mapping[str, Any]) -> str:
    """A file name for one attack with these settings."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    return f"{name}-{digest[:8]}"


def _model_info(victim: Victim) -> ModelInfo:
    model = getattr(victim.network, "model", None)
    training = TrainingRecord.load(victim.folder) if Path(victim.folder).is_dir() else None
    taken_away = "" if training is not None and training.details.get("reader") else None
    return ModelInfo(
        name=victim.name,
        fingerprint=victim.fingerprint,
        num_labels=victim.num_labels,
        max_length=victim.max_length,
        connection=getattr(getattr(model, "config", None), "connection", None),
        training=training,
        vote=next((asked.settings() for asked in _asked(victim) if isinstance(asked, Vote)), None),
        temperature=victim.temperature if isinstance(victim, Tempered | TemperedModel) else None,
        reader=",".join(dict.fromkeys(_readers(victim))) or taken_away,
    )


def _asked(victim: Victim) -> Iterator[Any]:
    """A victim, and whoever it asks."""
    asked: Any = victim
    while asked is not None:
        yield asked
        asked = getattr(asked, "victim", None)


def _readers(victim: Victim) -> Iterator[str]:
    """The names of what reads a text before the model, whatever wraps it."""
    for asked in _asked(victim):
        yield from (part.name for part in getattr(getattr(asked, "reader", None), "parts", ()))
