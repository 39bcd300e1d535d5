"""One run, from the encoder to its numbers: train, then measure, keeping what is finished after each step."""

from __future__ import annotations

import gc
import math
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unshaken.errors import UnshakenError
from unshaken.examples import Examples
from unshaken.files import read_json, write_json
from unshaken_experiments.inputs import (
    attack_of,
    build,
    certificate_of,
    plain,
    pupil_of,
    smoothing_of,
    substitutions_of,
    synonyms_of,
    test_rows,
    training_rows,
)
from unshaken_experiments.runs import OUT_OF_MEMORY, Measure, Measured, Outcome, Run, load_outcome

FEATURE_DIMENSIONS = 16  # of the principal components a feature map is drawn from; keeps an outcome small


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """Where runs find what they need and leave what they find.

    Attributes:
        encoders: Name -> folder or hub name.
        data: Folder with the tasks' files; the hub where None.
        out: `runs/` below it takes one file a run, `work/` what is unfinished.
        keep_models: Leave the trained models in `work/`.
        checkpoints: Save each epoch, so that a killed training goes on; else it starts anew, and the best epoch is held
            in memory: short trainings are faster so.
        bf16: Train in bfloat16 autocast.
        scoring_dtype: Half precision in which the queries of attacks are answered; float32 confirms what they find.
        group_by_length: Train on batches of texts of similar length.
        deadline: `time.time()` after which no new step is begun.
    """

    encoders: dict[str, str]
    data: Path | None
    out: Path
    keep_models: bool = False
    checkpoints: bool = True
    bf16: bool = False
    scoring_dtype: str | None = None
    group_by_length: bool = False
    deadline: float = float("inf")

    @property
    def runs(self) -> Path:
        return self.out / "runs"

    def check(self) -> None:
        """A folder or encoder that is not there is a mistake of the call, not of every run."""
        from unshaken.names import lookup
        from unshaken.pretrained import DTYPES, load
        from unshaken.training.base_model import resolve_model

        if self.scoring_dtype is not None:
            lookup("dtype", self.scoring_dtype, DTYPES)
        if self.data is not None and not self.data.is_dir():
            raise UnshakenError(f"no such folder: {self.data}")
        for name in self.encoders.values():
            load("AutoConfig", resolve_model(name))

    def claim(self) -> None:
        """Keep runs apart that a run's settings do not tell apart: other weights or data of one name, or precision."""
        now: dict[str, Any] = {
            "encoders": {name: _absolute(source) for name, source in self.encoders.items()},
            "data": None if self.data is None else _absolute(str(self.data)),
            "bf16": self.bf16,
            "scoring_dtype": self.scoring_dtype,
            "group_by_length": self.group_by_length,
        }
        path = self.out / "place.json"
        was: dict[str, Any] = read_json(path) if path.is_file() else {}
        known = was.get("encoders", {})
        differ = [
            f"{key} {was[key]!r}, not {now[key]!r}"
            for key in ("data", "bf16", "scoring_dtype", "group_by_length")
            if was.get(key, now[key]) != now[key]
        ]
        differ += [
            f"{name} from {known[name]!r}, not {source!r}"
            for name, source in now["encoders"].items()
            if known.get(name, source) != source
        ]
        if differ:
            raise UnshakenError(
                f"the runs in {self.out} have {'; '.join(differ)}; name another --out, or delete {path} if it is the "
                "same under another name"
            )
        now["encoders"] = {**known, **now["encoders"]}
        if now != was:
            write_json(path, now)

    def work(self, run: Run) -> Path:
        return self.out / "work" / run.name

    def outcome(self, run: Run) -> Outcome:
        """What is known of a run; nothing where it was never begun."""
        path = self.runs / f"{run.name}.json"
        return load_outcome(path) if path.is_file() else Outcome(run=run)


def _absolute(source: str) -> str:
    return str(Path(source).resolve()) if Path(source).exists() else source


class OutOfTimeError(Exception):
    """The deadline has passed; what is finished is kept."""


def execute(run: Run, measures: Sequence[Measure], workspace: Workspace) -> Outcome:
    """Do what is missing of a run, and write the outcome after each step."""
    outcome = replace(workspace.outcome(run), error=None)
    missing = outcome.lacks(measures)
    if not missing:
        return outcome
    try:
        folder = _trained_model(run, workspace)
        if folder is None:
            _require_time(workspace)
            shutil.rmtree(workspace.work(run) / "attacks", ignore_errors=True)  # on a model that is gone
            outcome = replace(outcome, **_train(run, workspace))
            outcome.save(workspace.runs)
            folder = workspace.work(run) / "model"
        outcome = _measure(outcome, missing, folder, workspace)
    except OutOfTimeError:
        return outcome
    except UnshakenError as error:
        outcome = replace(outcome, error=str(error))
    except Exception as error:  # one broken run must not end the others; it is named in the end and tried again
        outcome = replace(outcome, error=_told(error))
    finally:
        _give_memory_back()
    outcome.save(workspace.runs)
    if outcome.error is None and not workspace.keep_models:
        shutil.rmtree(workspace.work(run), ignore_errors=True)
    return outcome


def _told(error: Exception) -> str:
    told = f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
    return f"{OUT_OF_MEMORY}; fewer --workers need less ({told})" if "out of memory" in told else told


def _give_memory_back() -> None:
    """What torch keeps of the GPU's memory for the next run of this process, the runs beside it may need now."""
    import torch

    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()


def _require_time(workspace: Workspace) -> None:
    if time.time() > workspace.deadline:
        raise OutOfTimeError


def _trained_model(run: Run, workspace: Workspace) -> Path | None:
    """The model of a training that ended: its outcome was written after its weights."""
    folder = workspace.work(run) / "model"
    return folder if workspace.outcome(run).training and (folder / "config.json").is_file() else None


# ------------------------------------------------------------------------------------------------------------ training


def _train(run: Run, workspace: Workspace) -> dict[str, Any]:
    import torch

    from unshaken.defences import training_cost
    from unshaken.evaluation.environment import environment

    connection, defence = build(run.settings, workspace.data)
    teacher = None
    if (pupil := pupil_of(defence)) is not None:
        teacher = _teacher(run, workspace)
        pupil.model = str(teacher.folder)
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    tuned = _tuned(run, workspace, workspace.work(run), connection, defence)
    curve = [
        [int(row["step"]), round(row["distance_to_pretrained"], 6)]
        for row in tuned.history
        if "distance_to_pretrained" in row
    ]
    training = {
        "seconds": round(tuned.seconds + (teacher.seconds if teacher else 0), 2),
        "steps": tuned.steps,
        "rows": tuned.record.details["training_examples"],
        "memory_mib": round(torch.cuda.max_memory_allocated() / 2**20) if on_gpu else None,
        "bf16": workspace.bf16,
        "group_by_length": workspace.group_by_length,
        "cost": round(training_cost(defence), 3),
        "facts": defence.facts(),
        "distance": curve,
        **_held_out(run, tuned.history),
    }
    return {"training": training, "environment": environment()}


def _held_out(run: Run, history: Sequence[dict[str, float]]) -> dict[str, Any]:
    """What the rows held out of training gave after each epoch, and the best by what selects one; else nothing."""
    by_epoch = {
        key: [
            row[f"eval_{key}"] if math.isfinite(row[f"eval_{key}"]) else None for row in history if f"eval_{key}" in row
        ]
        for key in ("loss", "accuracy", "accuracy_under_attack")
    }
    by = "loss" if run.settings.select_by is None else "accuracy_under_attack"
    if not by_epoch[by]:
        return {}
    known = [value for value in by_epoch[by] if value is not None]
    best = (min if by == "loss" else max)(known, default=None)
    return {"held_out": {"by": by, "best": best, "by_epoch": {key: told for key, told in by_epoch.items() if told}}}


def _teacher(run: Run, workspace: Workspace) -> Any:
    """The plain model that a run's defence looks up to: the same rows, seed and schedule, and nothing else of the run.

    It is trained anew where the run is: models of other runs are gone, or not there yet.
    """
    settings = plain(run.settings)
    connection, defence = build(settings, workspace.data)
    folder = workspace.work(run) / "teacher"
    return _tuned(replace(run, settings=settings), workspace, folder, connection, defence)


def _tuned(run: Run, workspace: Workspace, out: Path, connection: Any, defence: Any) -> Any:
    import torch

    from unshaken.training import DistanceToPretrained, KeepBest
    from unshaken.training.fine_tuning import Plan, fine_tune

    settings = run.settings
    train, validation = training_rows(settings, run.seed, workspace.data)
    selects = settings.epochs > 1  # with one epoch there is nothing to choose from
    selection = attack_of(settings.select_by, settings.substitutions, workspace.data) if selects else None
    best = KeepBest("eval_accuracy_under_attack" if selection else "eval_loss")
    return fine_tune(
        Plan(
            model=workspace.encoders[run.encoder],
            out=out,
            method=run.settings.defence,
            train=train,
            validation=validation if selects else None,
            connection=connection,
            smoothing=smoothing_of(settings, workspace.data),
            reader=settings.reader,
            synonyms=synonyms_of(settings, workspace.data),
            defence=defence,
            selection_attack=selection,
            seed=run.seed,
            word_level=settings.word_level,
            resume=(out / "checkpoints").is_dir(),
            on_step=lambda done, total: None,
            callbacks=[DistanceToPretrained(), *([] if workspace.checkpoints else [best])],
            arguments={
                "num_train_epochs": settings.epochs,
                "learning_rate": settings.learning_rate,
                "per_device_train_batch_size": settings.batch_size,
                "per_device_eval_batch_size": 256,
                "max_length": settings.max_length,
                "weight_decay": settings.weight_decay,
                "bf16": workspace.bf16,
                "use_cpu": not torch.accelerator.is_available(),  # else transformers refuses bfloat16 there
                "balance_classes": settings.balanced,
                "train_sampling_strategy": "group_by_length" if workspace.group_by_length else "random",
                "dataloader_pin_memory": torch.cuda.is_available(),
                "logging_steps": max(1, round(len(train) * settings.epochs / settings.batch_size / 20)),
                **(
                    {}
                    if selects and workspace.checkpoints
                    else {"save_strategy": "no", "load_best_model_at_end": False}
                ),
            },
        )
    )


# ----------------------------------------------------------------------------------------------------------- measuring


def _measure(outcome: Outcome, missing: Iterable[Measure], folder: Path, workspace: Workspace) -> Outcome:
    from unshaken.attacks import Victim
    from unshaken_experiments.flops import count_gflops, count_parameters

    run = outcome.run
    victim = Victim.from_pretrained(
        str(folder), max_length=run.settings.max_length, scoring_dtype=workspace.scoring_dtype
    )
    if "gflops" not in outcome.training:
        outcome = replace(outcome, training={**outcome.training, **count_gflops(victim.model)})
    if "parameters" not in outcome.training:
        outcome = replace(outcome, training={**outcome.training, "parameters": count_parameters(victim.model)})
    for measure in missing:
        key = measure.key(run.settings.task)
        if measure.what == "features" and outcome.features is None:
            _require_time(workspace)
            outcome = replace(
                outcome, features=_features(victim, test_rows(measure, run.settings.task, workspace.data))
            )
        elif measure.what == "accuracy" and key not in outcome.measured:
            _require_time(workspace)
            found = _answers(victim, measure, run, workspace)
            outcome = replace(outcome, measured={**outcome.measured, key: found})
        else:
            continue
        outcome.save(workspace.runs)
    return outcome


def _asked(victim: Any, measure: Measure, run: Run, workspace: Workspace) -> Any:
    """Who answers: the model itself, its scores made right, a vote over rewordings, or one that may flag a text."""
    from unshaken.detection import Agreement, Guarded, threshold_for
    from unshaken.victims import Vote
    from unshaken.victims.calibrated import calibrated

    if measure.attack is None:
        victim = victim.exact  # half precision is for the queries of searches
    if measure.calibrated:
        victim = calibrated(victim, _validation(run, workspace))
    if measure.vote:
        victim = Vote(victim, measure.vote, substitutions=substitutions_of(run.settings.substitutions, workspace.data))
    if measure.detector:
        known = substitutions_of(run.settings.substitutions, workspace.data)
        detector = Agreement(Vote(victim, measure.detector, substitutions=known))
        return Guarded(detector, threshold_for(detector.suspicion(_validation(run, workspace).texts), 0.01))
    return victim


def _validation(run: Run, workspace: Workspace) -> Examples:
    _, validation = training_rows(run.settings, run.seed, workspace.data)
    if validation is None:
        raise UnshakenError(f"the protocol {run.settings.protocol!r} has no validation rows to calibrate on")
    return validation


def _answers(victim: Any, measure: Measure, run: Run, workspace: Workspace) -> Measured:
    from unshaken.attacks import Unflagged
    from unshaken.certificates import ALL_WORDS

    rows = test_rows(measure, run.settings.task, workspace.data)
    started = time.perf_counter()
    asked = _asked(victim, measure, run, workspace)
    queries = unconfirmed = None
    if measure.certificate is not None:
        proof = certificate_of(measure.certificate, measure.substitutions, workspace.data)
        radius = ALL_WORDS if measure.radius is None else measure.radius
        held = "".join("01"[text.holds(radius)] for text in proof(asked, rows).rows)
    elif measure.attack is None:
        right = asked.log_probabilities(rows.texts).argmax(-1) == rows.labels
        held = "".join("01"[int(value)] for value in right)
    else:
        attack = attack_of(measure.attack, measure.substitutions, workspace.data, measure.constraints)
        attack = replace(attack, goal=Unflagged()) if measure.detector else attack
        path = workspace.work(run) / "attacks" / f"{_slug(measure.key(run.settings.task))}.jsonl"
        results = attack(asked, rows, out=path, resume=path.exists())
        held = "".join({"failure": "1", "error": "?"}.get(result.outcome, "0") for result in results)
        queries = round(results.queries["mean"], 1) if results.attacked else None
        unconfirmed = results.unconfirmed
    names = tuple(dict.fromkeys(row.group for row in rows if row.group is not None))
    return Measured(
        held=held,
        majority=rows.majority_baseline,
        data=rows.fingerprint,
        group_names=names,
        groups="".join(str(names.index(row.group)) for row in rows if row.group is not None),
        queries=queries,
        unconfirmed=unconfirmed,
        seconds=round(time.perf_counter() - started, 2),
        model=victim.exact.fingerprint[:12],
        scoring_dtype=workspace.scoring_dtype if measure.attack else None,
    )


def _slug(text: str) -> str:
    import hashlib
    import re

    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9]+', '-', text)[:60].strip('-')}-{digest}"


def _features(victim: Any, rows: Examples) -> dict[str, Any]:
    """What the classifier's head reads of each text, by its first principal components."""
    import torch

    from unshaken.truncation import tokenised

    model = victim.model
    found = []
    with torch.no_grad():
        for start in range(0, len(rows), 64):
            texts, length = rows[start : start + 64].texts, victim.max_length
            batch = tokenised(victim.tokenizer, texts, length, victim.reader, padding=True, return_tensors="pt")
            states = model.base_model(**batch.to(model.device)).last_hidden_state  # (batch, seq, hidden)
            found.append(states[:, 0].float().cpu())
    features = torch.cat(found)
    centred = features - features.mean(0)
    _, _, axes = torch.linalg.svd(centred, full_matrices=False)
    largest = axes.gather(1, axes.abs().argmax(1, keepdim=True))
    axes = axes * torch.sign(largest)  # LAPACK leaves the sign open
    places = centred @ axes[:FEATURE_DIMENSIONS].T
    return {
        "labels": [int(label) for label in rows.labels],
        "label_names": list(rows.label_names),
        "places": [[round(value, 3) for value in row] for row in places.tolist()],
    }
