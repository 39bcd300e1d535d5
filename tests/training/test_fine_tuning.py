"""Plans of a training: what they leave open, what they refuse, and the record and files they end in."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from test_trainer import network, reviews, tokenizer
from test_training_parts import checkpoint
from transformers import TrainerCallback

from unshaken import Connection, RobustTrainingArguments, UnshakenError
from unshaken.attacks import PWWS
from unshaken.defences import SWAP
from unshaken.embedded import minilm_path
from unshaken.evaluation import TrainingRecord
from unshaken.files import TRAINING_FILE
from unshaken.readers import Readers, Unicode
from unshaken.substitutions.dictionary import Dictionary
from unshaken.training.base_model import ensure_padding, freeze, load_classifier, resolve_model
from unshaken.training.fine_tuning import Plan, _identity, _reader, _record, _schedule, fine_tune
from unshaken.training.resuming import begin

__all__ = ["tokenizer"]  # the fixture


@pytest.fixture
def plan(tmp_path, tokenizer):
    """Three steps on sixteen rows, from a model in a folder."""
    network(num_labels=3).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    settings = {"use_cpu": True, "max_steps": 3, "learning_rate": 5e-3, "save_strategy": "no"}
    return Plan(
        model=str(tmp_path / "base"), out=tmp_path / "out", method="plain", train=reviews(16), validation=None,
        arguments=settings, seed=7,
    )  # fmt: skip


class StoppedError(Exception):
    """Training was about to begin."""


class Stop(TrainerCallback):
    def on_train_begin(self, args, state, control, **kwargs):
        raise StoppedError(args)


def arguments_of(plan: Plan) -> RobustTrainingArguments:
    """Those that a plan would train with."""
    with pytest.raises(StoppedError) as found:
        fine_tune(replace(plan, callbacks=[Stop()]))
    return found.value.args[0]


def test_what_a_plan_leaves_open_goes_by_what_it_has(plan, monkeypatch):
    found = arguments_of(plan)
    assert (found.eval_strategy, found.load_best_model_at_end) == ("no", False)  # there are no rows to select on
    assert (found.logging_steps, found.report_to, found.seed, found.disable_tqdm) == (50, [], 7, True)
    assert found.output_dir == str(plan.out / "checkpoints")
    assert Plan(model="minilm", out=plan.out, method="plain", train=plan.train, validation=None).seed == 0
    selecting = replace(plan, validation=reviews(8, offset=100), arguments={**plan.arguments, "save_strategy": "epoch"})
    found = arguments_of(replace(selecting, out=plan.out / "selecting"))
    assert (found.eval_strategy, found.load_best_model_at_end) == ("epoch", True)
    assert (found.metric_for_best_model, found.greater_is_better) == ("eval_loss", False)
    attack = PWWS(substitutions=Dictionary(entries={"good": ["bad"]}))
    found = arguments_of(replace(selecting, selection_attack=attack, out=plan.out / "attacked"))
    assert (found.metric_for_best_model, found.greater_is_better) == ("eval_accuracy_under_attack", True)
    monkeypatch.setattr("sys.stderr", SimpleNamespace(isatty=lambda: True, write=lambda text: None, flush=lambda: None))
    assert not arguments_of(replace(plan, out=plan.out / "terminal")).disable_tqdm
    shown = replace(plan, out=plan.out / "shown", on_step=lambda done, of: None)
    assert arguments_of(shown).disable_tqdm


def test_arguments_that_exclude_each_other_are_told_in_a_line(plan):
    given = {**plan.arguments, "eval_strategy": "steps", "save_strategy": "epoch", "load_best_model_at_end": True}
    with pytest.raises(UnshakenError, match=r"training arguments: .*load_best_model_at_end") as told:
        fine_tune(replace(plan, arguments=given, validation=reviews(8)))
    assert "\n" not in str(told.value)
    with pytest.raises(UnshakenError, match=r"^on_nonfinite is"):
        fine_tune(replace(plan, arguments={**plan.arguments, "on_nonfinite": "ignore"}))


class Denormals(TrainerCallback):
    def __init__(self) -> None:
        self.kept: list[bool] = []

    def on_step_begin(self, args, state, control, **kwargs):
        self.kept.append(denormals_are_kept())


def denormals_are_kept() -> bool:
    return bool((torch.tensor([1e-40]) * 0.5).item())


def test_a_plan_is_trained_and_saved_with_its_record(plan, capsys):
    watch, steps = Denormals(), []
    found = fine_tune(replace(plan, on_step=lambda done, of: steps.append((done, of)), callbacks=[watch]))
    assert steps == [(1, 3), (2, 3), (3, 3)]
    assert denormals_are_kept()
    assert watch.kept == [not torch.set_flush_denormal(False)] * 3  # where the processor can flush them, it does
    assert (found.folder, found.steps, found.record.seed, found.record.method) == (plan.out / "model", 3, 7, "plain")
    assert TrainingRecord.load(found.folder) == found.record
    assert found.record.base_model == "base"
    details = found.record.details
    assert (details["connection"], details["defence"], details["facts"], details["steps"]) == (None, None, {}, 3)
    assert details.keys().isdisjoint({"smoothing", "reader", "frozen_layers", "word_level"})
    assert details["seconds"] == pytest.approx(found.seconds, abs=0.00501)
    assert details["seconds"] == round(details["seconds"], 2)
    assert "nothing was left" not in capsys.readouterr().out
    assert "record" not in repr(found)
    assert "history" not in repr(found)
    model = type(network()).from_pretrained(found.folder)
    assert model.config.id2label == {0: "negative", 1: "positive"}  # a new head, in place of one of three classes


def test_the_record_of_a_plan_says_what_was_changed(plan):
    changed = replace(
        plan, connection=Connection.im_bert(), frozen_layers=1, word_level=True, reader="unicode", model="minilm",
        defence=SWAP(substitutions=Dictionary(entries={"good": ["fine"]})),
    )  # fmt: skip
    record = _record(changed, None, {"b": 1, "a": 2}, 5, 1.23456)
    assert record.base_model == "minilm"
    details = record.details
    assert details["connection"] == Connection.im_bert().to_dict()
    assert (details["frozen_layers"], details["word_level"], details["reader"]) == (1, True, "unicode")
    assert [part["name"] for part in details["defence"]] == ["SWAP"]
    assert (details["steps"], details["seconds"], list(details["arguments"])) == (5, 1.23, ["a", "b"])
    assert record.fingerprints == {changed.defence.substitutions.fingerprint}
    record.save(Path(plan.model))
    assert _record(plan, network(), {}, 0, 0.0).fingerprints == record.fingerprints  # what it knew before
    assert _record(plan, None, {}, 0, 0.0).fingerprints == set()
    same = _identity(changed, "weights", None)
    assert (same["frozen_layers"], same["word_level"], same["reader"], same["reading"]) == (1, True, "unicode", None)
    assert (same["validation_data"], same["base_weights"]) == (None, "weights")
    rows, read = reviews(8, offset=100), Readers((Unicode(),))
    same = _identity(replace(plan, validation=rows), "weights", read)
    assert (same["validation_data"], same["reading"]) == (rows.fingerprint, read.fingerprint)
    assert (same["word_level"], same["teacher"], same["frozen_layers"]) == (None, None, None)


@pytest.mark.parametrize("selects", [False, True])
def test_a_run_that_had_ended_is_not_trained_on_and_says_so(plan, capsys, selects):
    """What it saves again is what it had saved, the tokenizer's file too, which holds what it was asked for last."""
    steps = {"save_strategy": "steps", "save_steps": 1, "max_steps": 2, "max_length": 24}
    saving = replace(plan, arguments={**plan.arguments, **steps})
    if selects:
        evaluated = {"eval_strategy": "steps", "eval_steps": 1}
        saving = replace(saving, arguments={**saving.arguments, **evaluated}, validation=reviews(8, offset=100))
        saving = replace(saving, selection_attack=PWWS(substitutions=Dictionary(entries={"good": ["fine"]})))
    first = fine_tune(replace(saving, resume=True))
    assert f"{plan.out / 'checkpoints'} holds no checkpoint yet; training starts from" in capsys.readouterr().out
    before = {path.name: path.read_bytes() for path in first.folder.iterdir()}
    assert json.loads(before["tokenizer.json"])["truncation"]["max_length"] == 24
    with pytest.raises(UnshakenError, match="holds checkpoints of an earlier run; continue it with --resume"):
        fine_tune(saving)
    again = fine_tune(replace(saving, resume=True))
    assert "nothing was left to train: the run had ended at step 2" in capsys.readouterr().out
    assert again.steps == 2
    after = {path.name: path.read_bytes() for path in again.folder.iterdir()}
    del before[TRAINING_FILE], after[TRAINING_FILE]  # which has the seconds of both
    assert after == before


@pytest.mark.parametrize(
    ("given", "processes", "epochs"),
    [
        ({}, 1, 5),  # 480 rows, eight in a step: sixty steps
        ({"per_device_train_batch_size": 4}, 1, 3),
        ({"per_device_train_batch_size": 16}, 1, 10),
        ({"gradient_accumulation_steps": 2}, 1, 10),
        ({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 3}, 1, 8),
        ({"per_device_train_batch_size": 4}, 4, 10),
    ],
)
def test_rate_and_epochs_are_chosen_where_the_plan_leaves_them_open(
    plan, monkeypatch, capsys, given, processes, epochs
):
    monkeypatch.setenv("WORLD_SIZE", str(processes))
    monkeypatch.setenv("RANK", "0")
    chosen = {"learning_rate": 1e-4, "num_train_epochs": epochs}
    rate = "learning rate 0.0001 for 2 million parameters (--learning-rate)"
    for more, said in (
        ({}, (rate, "480 rows (--epochs)")),
        ({"learning_rate": 1e-3}, ("480 rows (--epochs)",)),
        ({"max_steps": 3}, (rate,)),
        ({"num_train_epochs": 3}, (rate,)),
    ):
        assert _schedule(replace(plan, train=reviews(480), arguments={**given, **more}), 2_000_000) == chosen
        told = capsys.readouterr().out
        assert all(part in told for part in said)
        assert (told.count("(--learning-rate)"), told.count("(--epochs)")) == (rate in said, said[-1] != rate)
        assert told.count(", ") == len(said) - 1
    both = {**given, "learning_rate": 1e-3, "max_steps": 3}
    assert (_schedule(replace(plan, arguments=both), 2_000_000), capsys.readouterr().out) == ({}, "")


def test_a_run_that_goes_on_keeps_the_rate_and_epochs_it_began_with(plan, capsys):
    checkpoints = plan.out / "checkpoints"
    begin(checkpoints, {}, {"learning_rate": 0.5, "num_train_epochs": 2, "weight_decay": 0.1})
    checkpoint(checkpoints, 1)
    open_plan = replace(plan, arguments={})
    assert _schedule(replace(open_plan, resume=True), 2_000_000) == {"learning_rate": 0.5, "num_train_epochs": 2}
    assert capsys.readouterr().out == ""
    assert _schedule(open_plan, 2_000_000)["learning_rate"] == 1e-4


def test_a_model_is_that_of_its_folder_and_minilm_that_of_its_wheel(plan):
    assert resolve_model(plan.model) == plan.model
    assert resolve_model("minilm") == str(minilm_path())
    model, _ = load_classifier(plan.model, plan.train)
    assert (model.config.hidden_size, model.num_labels, model.dtype) == (network().config.hidden_size, 2, torch.float32)


@pytest.mark.parametrize("layers", [0, 1, 2])
def test_frozen_layers_are_the_embeddings_and_the_first(layers):
    model = network()
    freeze(model, layers)
    still = {name for name, weight in model.named_parameters() if not weight.requires_grad}
    first = ("bert.embeddings.word_embeddings", *(f"bert.encoder.layer.{number}." for number in range(layers)))
    assert still == {name for name, _ in model.named_parameters() if name.startswith(first)}


@pytest.mark.parametrize("layers", [-1, 3])
def test_more_layers_than_there_are_cannot_be_frozen(layers):
    model = network()
    with pytest.raises(UnshakenError, match=f"frozen_layers is {layers}; the model has 2"):
        freeze(model, layers)
    assert all(weight.requires_grad for weight in model.parameters())


@pytest.mark.parametrize(
    ("pad", "end", "known", "wanted"),
    [("[PAD]", None, 0, ("[PAD]", 0)), ("[PAD]", "[SEP]", None, ("[PAD]", 0)), (None, "[SEP]", None, ("[SEP]", 3)),
     (None, "[SEP]", 0, ("[SEP]", 0))],
)  # fmt: skip
def test_the_end_of_text_pads_where_nothing_else_does(tokenizer, pad, end, known, wanted):
    tokenizer.pad_token, tokenizer.eos_token = pad, end
    model = SimpleNamespace(config=SimpleNamespace(pad_token_id=known))
    ensure_padding(tokenizer, model, "a model")
    assert (tokenizer.pad_token, model.config.pad_token_id) == wanted


def test_nothing_to_pad_with_is_refused(tokenizer):
    tokenizer.pad_token = tokenizer.eos_token = None
    with pytest.raises(UnshakenError, match="'a model' has neither a padding nor an end-of-text token"):
        ensure_padding(tokenizer, SimpleNamespace(config=SimpleNamespace(pad_token_id=None)), "a model")


def test_a_reader_that_a_model_has_reads_on(plan, capsys):
    assert (_reader(plan), capsys.readouterr().out) == (None, "")
    kept = Readers((Unicode(),))
    kept.save(Path(plan.model))
    assert _reader(plan).fingerprint == kept.fingerprint
    assert "base has a reader (unicode), which reads on; --reader names another" in capsys.readouterr().out
    assert (_reader(replace(plan, reader="leet")).names, capsys.readouterr().out) == ("leet", "")
