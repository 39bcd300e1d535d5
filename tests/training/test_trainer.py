"""The trainer: what it adds to the stock one, and that it breaks nothing of it."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path

import pandas
import pytest
import torch
from bert import random_bert
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast

from unshaken import Connection, Example, Examples, RobustTrainer, RobustTrainingArguments, UnshakenError, connect
from unshaken.attacks import PWWS
from unshaken.defences import (
    ASCC,
    PTWD,
    RIFT,
    SWAP,
    Defence,
    FreeLB,
    InfoBERT,
    InformativeTerm,
    PlainTeacher,
    Standard,
)
from unshaken.evaluation.training_record import TrainingRecord
from unshaken.readers import KnownWords, Leet, Readers, Synonyms, Unicode
from unshaken.readers import load as load_reader
from unshaken.solvers import Anderson, FixedPoint
from unshaken.substitutions import All
from unshaken.substitutions.dictionary import Dictionary
from unshaken.training import DistanceToPretrained
from unshaken.training.fine_tuning import Plan, fine_tune
from unshaken.victims import Victim

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "good",
    "fine",
    "great",
    "bad",
    "poor",
    "awful",
    "film",
    "plot",
    "a",
    "the",
]


@pytest.fixture
def tokenizer():
    core = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="[PAD]", unk_token="[UNK]", model_max_length=32)


def reviews(count: int, offset: int = 0, name: str = "reviews") -> Examples:
    good, bad = ["good", "fine", "great"], ["bad", "poor", "awful"]
    rows = []
    for index in range(offset, offset + count):
        label = index % 2
        words = [(good if label else bad)[index % 3], "film", "the", "plot"][: 3 + index % 2]
        rows.append(Example(id=f"{name}/{index}", texts=(" ".join(words),), label=label))
    return Examples(rows=tuple(rows), name=name, label_names=("negative", "positive"))


def network(dropout: float = 0.0, num_labels: int = 2) -> BertForSequenceClassification:
    dropouts = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    return random_bert(vocab_size=len(WORDS), num_labels=num_labels, **dropouts)


def arguments(folder: Path, **changes) -> RobustTrainingArguments:
    settings = {
        "per_device_train_batch_size": 8, "num_train_epochs": 1, "learning_rate": 5e-3, "report_to": "none",
        "use_cpu": True, "disable_tqdm": True, "eval_strategy": "no", "save_strategy": "no",
        "load_best_model_at_end": False, "logging_steps": 1, "warmup_steps": 0,
    }  # fmt: skip
    return RobustTrainingArguments(str(folder), **{**settings, **changes})


def train(folder: Path, tokenizer, *, model=None, resume=None, rows=None, defence=None, **changes) -> RobustTrainer:
    trainer = RobustTrainer(
        model if model is not None else network(),
        arguments(folder, **changes),
        defence=defence,
        processing_class=tokenizer,
        train_dataset=rows if rows is not None else reviews(32),
        eval_dataset=reviews(16, offset=100),
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def weights(trainer: RobustTrainer) -> dict[str, torch.Tensor]:
    return {name: parameter.detach() for name, parameter in trainer.model.named_parameters()}


@pytest.mark.parametrize("precision", [{}, {"bf16": True}], ids=str)
def test_cuda_graphs_change_nothing_on_a_cpu_and_leave_the_model_as_it_was(tmp_path, tokenizer, precision):
    trainers = [
        train(
            tmp_path / str(graphs), tokenizer, model=connect(network(), Connection()), cuda_graphs=graphs, **precision
        )
        for graphs in (False, True)
    ]
    for name, weight in weights(trainers[0]).items():
        assert torch.equal(weights(trainers[1])[name], weight), name
    assert trainers[1]._graphs.eager == trainers[1].state.global_step
    assert vars(trainers[1].model).get("forward") is not trainers[1]._graphs


@pytest.mark.parametrize("connection", [None, Connection.im_bert(), Connection(solver=Anderson(steps=2))], ids=str)
def test_it_learns_and_keeps_the_checkpoint_of_lowest_validation_loss(tmp_path, tokenizer, connection):
    model = network() if connection is None else connect(network(), connection)
    trainer = train(
        tmp_path, tokenizer, model=model, num_train_epochs=6, eval_strategy="epoch", save_strategy="epoch",
        load_best_model_at_end=True,
    )  # fmt: skip
    losses = {row["step"]: row["eval_loss"] for row in trainer.state.log_history if "eval_loss" in row}
    assert trainer.state.best_metric == min(losses.values())
    assert trainer.evaluate()["eval_loss"] == pytest.approx(min(losses.values()), rel=1e-4)
    assert trainer.evaluate()["eval_accuracy"] == 1.0


@pytest.mark.parametrize("defence", [Standard, lambda: FreeLB(init_magnitude=0.0)], ids=["standard", "freelb"])
def test_accumulating_micro_batches_is_one_large_batch(tmp_path, tokenizer, defence):
    """8 x 1 == 1 x 8, also for a last step whose micro-batches have different sizes (20 rows = 8 + 8 + 4)."""
    runs = [
        train(
            tmp_path / str(size), tokenizer, rows=reviews(20), defence=defence(), per_device_train_batch_size=size,
            gradient_accumulation_steps=8 // size, seed=1, optim="sgd",
        )
        for size in (8, 1, 4)
    ]  # fmt: skip
    for other in runs[1:]:
        for name, weight in weights(runs[0]).items():
            torch.testing.assert_close(weights(other)[name], weight, rtol=1e-4, atol=1e-6)
    uneven = train(
        tmp_path / "uneven", tokenizer, rows=reviews(20), defence=defence(), per_device_train_batch_size=3,
        gradient_accumulation_steps=7, seed=1, optim="sgd", num_train_epochs=1,
    )  # fmt: skip
    whole = train(
        tmp_path / "whole", tokenizer, rows=reviews(20), defence=defence(), per_device_train_batch_size=20, seed=1,
        optim="sgd", num_train_epochs=1,
    )  # fmt: skip
    for name, weight in weights(whole).items():
        torch.testing.assert_close(weights(uneven)[name], weight, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("order", ["random", "group_by_length"])
@pytest.mark.parametrize("step", [4, 6])
def test_a_resumed_run_ends_where_an_uninterrupted_one_does(tmp_path, tokenizer, order, step):
    settings = {
        "train_sampling_strategy": order,
        "model": None,
        "save_strategy": "steps",
        "save_steps": 2,
        "num_train_epochs": 2,
        "save_total_limit": None,
    }
    whole = train(tmp_path / "whole", tokenizer, **{**settings, "model": connect(network(dropout=0.1), Connection())})
    resumed = train(
        tmp_path / "again", tokenizer, resume=str(tmp_path / "whole" / f"checkpoint-{step}"),
        **{**settings, "model": connect(network(dropout=0.1), Connection())},
    )  # fmt: skip
    for name, weight in weights(whole).items():
        assert torch.equal(weights(resumed)[name], weight), name


@pytest.mark.parametrize("balanced", [False, True])
def test_texts_of_similar_length_share_a_batch_and_validation_keeps_its_order(tmp_path, tokenizer, balanced):
    short = reviews(64)
    longer = [replace(row, texts=(row.texts[0] + " film film" * (index // 2 % 2),)) for index, row in enumerate(short)]
    rows = short.with_rows(longer)
    trainer = train(tmp_path, tokenizer, rows=rows, balance_classes=balanced, train_sampling_strategy="group_by_length")
    batches = [batch["examples"] for batch in trainer.get_train_dataloader()]
    kinds = [{"film film film" in row.texts[0] for row in batch} for batch in batches]
    assert len(batches) == 8
    assert sum(len(kind) == 1 for kind in kinds) >= 7  # at most one batch where short texts end and long ones begin
    if balanced:
        assert all(2 * sum(row.label for row in batch) == len(batch) for batch in batches)
    evaluated = [row for batch in trainer.get_eval_dataloader() for row in batch["examples"]]
    assert evaluated == list(trainer.eval_dataset)


def test_every_defence_can_have_the_same_balanced_batches(tmp_path, tokenizer):
    rows = reviews(60).with_rows([row for index, row in enumerate(reviews(60)) if row.label == 0 or index % 4 == 1])

    def seen(name, **options):
        trainer = train(tmp_path / name, tokenizer, rows=rows, num_train_epochs=1, **options)
        return [[row.id for row in batch["examples"]] for batch in trainer.get_train_dataloader()]

    balanced = seen("plain", defence=Standard(), balance_classes=True)
    assert balanced == seen("informative", defence=InformativeTerm(on="clean"))
    labels = {row.id: row.label for row in rows}
    assert all(abs(2 * sum(labels[name] for name in batch) - len(batch)) <= 1 for batch in balanced)
    assert balanced != seen("random", defence=Standard())


@pytest.mark.parametrize("defence", [InformativeTerm(on="clean", conditional=False), InfoBERT()])
def test_rows_that_are_compared_are_never_grouped_by_length(tmp_path, tokenizer, defence):
    with pytest.raises(UnshakenError, match="compares the texts of a batch"):
        train(tmp_path, tokenizer, defence=defence, train_sampling_strategy="group_by_length")


def test_the_log_names_loss_parts_residuals_and_evaluations(tmp_path, tokenizer):
    model = connect(network(), Connection(layers="2", solver=Anderson(steps=2)))
    rows = train(tmp_path, tokenizer, model=model).state.log_history
    assert rows[0]["loss_task"] == pytest.approx(rows[0]["loss"], rel=1e-3)
    assert rows[0]["evaluations_layer_2"] == 3
    assert 0 < rows[0]["residual_layer_2"] < 1
    assert "residual_layer_1" not in rows[0]


def test_the_distance_to_the_pretrained_weights_is_logged(tmp_path, tokenizer):
    start = {name: weight.clone() for name, weight in network().base_model.state_dict().items()}
    trainer = RobustTrainer(
        network(),
        arguments(tmp_path),
        processing_class=tokenizer,
        train_dataset=reviews(32),
        callbacks=[DistanceToPretrained()],
    )
    trainer.train()
    logged = [row["distance_to_pretrained"] for row in trainer.state.log_history if "distance_to_pretrained" in row]
    end = trainer.model.base_model.state_dict()
    parameters = [name for name, _ in trainer.model.base_model.named_parameters()]
    moved = torch.cat([(end[name] - start[name]).flatten() for name in parameters]).norm()
    size = torch.cat([start[name].flatten() for name in parameters]).norm()
    assert len(logged) == 4
    assert logged[-1] == pytest.approx(float(moved / size), rel=1e-4)


def test_the_distance_is_from_the_pretrained_weights_also_after_a_resume(tmp_path, tokenizer):
    def distances(folder, **resume):
        trainer = RobustTrainer(
            network(),
            arguments(folder, save_strategy="steps", save_steps=2),
            processing_class=tokenizer,
            train_dataset=reviews(32),
            callbacks=[DistanceToPretrained()],
        )
        trainer.train(**resume)
        return [row["distance_to_pretrained"] for row in trainer.state.log_history if "distance_to_pretrained" in row]

    whole = distances(tmp_path)
    assert distances(tmp_path, resume_from_checkpoint=str(tmp_path / "checkpoint-2")) == pytest.approx(whole)
    assert whole[-1] > whole[1] > 0


def test_tensorboard_gets_the_same_numbers(tmp_path, tokenizer, monkeypatch):
    pytest.importorskip("tensorboard")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "events"))
    train(tmp_path, tokenizer, report_to="tensorboard")
    assert list((tmp_path / "events").rglob("events.*"))


class Broken(Defence):
    """Loses its number at the second step."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def loss(self, step):
        self.calls += 1
        loss = step.task_loss(step.forward().logits)
        return {"task": loss, "extra": loss * (float("nan") if self.calls == 2 else 0.0)}


def test_a_loss_that_is_not_finite_stops_the_run_by_name(tmp_path, tokenizer):
    with pytest.raises(UnshakenError, match=r"step 2: the loss is not finite .*extra = nan"):
        train(tmp_path, tokenizer, defence=Broken())


def test_or_skips_the_batch_where_the_user_says_so(tmp_path, tokenizer):
    trainer = train(tmp_path, tokenizer, defence=Broken(), on_nonfinite="skip", optim="sgd")
    assert all(torch.isfinite(weight).all() for weight in weights(trainer).values())
    assert any("skipped_nonfinite" in row for row in trainer.state.log_history)


class LostGradient(Defence):
    """A finite loss whose gradient is not: the square root of zero, behind the last layer, at the second step."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def loss(self, step):
        self.calls += 1
        logits = step.forward().logits
        extra = (logits.sum() * 0).abs().sqrt() if self.calls == 2 else logits.sum() * 0
        return {"task": step.task_loss(logits), "extra": extra}


def test_a_gradient_that_is_not_finite_behind_a_finite_loss_stops_the_run(tmp_path, tokenizer):
    message = r"step 2: the gradient is not finite, first at classifier\.bias \(\d+ of \d+ weights\)"
    with pytest.raises(UnshakenError, match=message):
        train(tmp_path, tokenizer, defence=LostGradient())


def test_or_its_step_is_left_out_and_said(tmp_path, tokenizer, caplog):
    trainer = train(tmp_path, tokenizer, defence=LostGradient(), on_nonfinite="skip")
    assert all(torch.isfinite(weight).all() for weight in weights(trainer).values())
    assert trainer.state.global_step == 4
    assert any("skipped_nonfinite" in row for row in trainer.state.log_history)
    assert "step 2: the gradient is not finite" in caplog.text


@pytest.mark.parametrize("what", ["weight", "output"])
def test_the_layer_where_numbers_are_lost_is_named(tmp_path, tokenizer, what):
    model = network()
    layer = model.bert.encoder.layer[1].intermediate
    if what == "weight":
        layer.dense.weight.data[0, 0] = torch.nan
        message = r"the weight bert\.encoder\.layer\.1\.intermediate\.dense\.weight is not finite"
    else:
        layer.register_forward_hook(lambda module, inputs, output: output / 0)
        message = r"numbers are lost in bert\.encoder\.layer\.1\.intermediate"
    with pytest.raises(UnshakenError, match=r"step 1: the loss is not finite \(task = nan; " + message):
        train(tmp_path, tokenizer, model=model)


def test_a_training_that_only_leaves_out_batches_ends(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr("unshaken.training.nonfinite.PATIENCE", 2)
    model = network()
    model.classifier.weight.data[0, 0] = torch.nan
    with pytest.raises(UnshakenError, match=r"step 3: .*; 2 batches in a row were left out"):
        train(tmp_path, tokenizer, model=model, on_nonfinite="skip")


def test_an_overflow_of_float16_is_the_scalers_until_its_scale_is_used_up(tmp_path, tokenizer, caplog):
    trainer = RobustTrainer(network(), arguments(tmp_path), processing_class=tokenizer, train_dataset=reviews(32))
    named = list(trainer.model.named_parameters())
    for _, parameter in named:
        parameter.grad = torch.full_like(parameter, torch.inf)
    trainer.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    trainer._guard.check_gradients(named)
    assert "first at classifier.bias" in caplog.text
    assert "float16 overflowed at loss scale 4" in caplog.text
    assert all(parameter.grad.isinf().all() for _, parameter in named)  # the scaler sees them and leaves the step out
    assert any("overflowed" in row for row in trainer.state.log_history)
    trainer.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
    with pytest.raises(UnshakenError, match="step 1: the gradient is not finite"):
        trainer._guard.check_gradients(named)


class Astray(FixedPoint):
    """Steps far away, so that it diverges on every machine: what only just diverges depends on rounding."""

    def propose(self, g, at, mask, memory, cost):
        return at.image + 1e4


def test_a_solve_that_diverges_is_counted_and_said_once(tmp_path, tokenizer, caplog):
    model = network()
    connect(model, Connection(layers="2", solver=Astray(steps=2)))
    rows = train(tmp_path, tokenizer, model=model).state.log_history
    steps = [row["step"] for row in rows if row.get("diverged_layer_2") == 1.0]
    assert steps == [row["step"] for row in rows if "loss" in row]
    assert len(steps) > 1
    assert caplog.text.count("the implicit solve of layer 2 diverged") == 1
    assert f"step {steps[0]}: the implicit solve of layer 2 diverged" in caplog.text


def test_selection_under_attack_uses_validation_examples(tmp_path, tokenizer):
    attack = PWWS(substitutions=Dictionary(entries={"good": ["bad"], "fine": ["poor"], "great": ["awful"]}))
    trainer = RobustTrainer(
        network(),
        arguments(
            tmp_path, num_train_epochs=2, eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True,
            metric_for_best_model="eval_accuracy_under_attack", greater_is_better=True,
        ),
        processing_class=tokenizer,
        train_dataset=reviews(32),
        eval_dataset=reviews(16, offset=100),
        selection_attack=attack,
        selection_examples=6,
    )  # fmt: skip
    trainer.train()
    found = [
        row["eval_accuracy_under_attack"] for row in trainer.state.log_history if "eval_accuracy_under_attack" in row
    ]
    assert len(found) == 2
    assert trainer.state.best_metric == max(found)
    assert all(share * 6 == pytest.approx(round(share * 6)) for share in found)  # of six examples, not of sixteen
    told = RobustTrainer(
        network(),
        arguments(tmp_path),
        processing_class=tokenizer,
        train_dataset=reviews(4),
        eval_dataset=reviews(4),
        selection_attack=attack,
    )
    assert told.selection_examples == 500  # as many for every method, recipes included


def test_regression_trains_on_squared_error(tmp_path, tokenizer):
    rows = Examples(
        rows=tuple(
            Example(id=str(i), texts=(row.texts[0],), label=float(row.label)) for i, row in enumerate(reviews(32))
        )
    )
    trainer = RobustTrainer(
        network(num_labels=1), arguments(tmp_path, num_train_epochs=8), processing_class=tokenizer, train_dataset=rows,
        eval_dataset=rows,
    )  # fmt: skip
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < before / 4


def test_targets_in_a_column_are_compared_each_with_its_own_prediction(tmp_path, tokenizer):
    """As the stock Trainer takes them; broadcast, each would pull on all, towards the mean."""
    rows = [{**tokenizer(row.texts[0]), "labels": [row.label + number / 8]} for number, row in enumerate(reviews(8))]
    model = network(num_labels=1)
    encoded = tokenizer([row.texts[0] for row in reviews(8)], return_tensors="pt", padding=True)
    own = model.eval()(**encoded, labels=torch.tensor([row["labels"] for row in rows])).loss.item()
    trainer = RobustTrainer(model, arguments(tmp_path), processing_class=tokenizer, train_dataset=rows)
    trainer.train()
    assert trainer.state.log_history[0]["loss"] == pytest.approx(own, rel=1e-4)


def test_a_tokenised_data_set_works_as_with_the_stock_trainer(tmp_path, tokenizer):
    rows = [{**tokenizer(row.texts[0]), "labels": row.label} for row in reviews(16)]
    trainer = RobustTrainer(network(), arguments(tmp_path), processing_class=tokenizer, train_dataset=rows)
    trainer.train()
    assert trainer.state.global_step == 2


@pytest.mark.parametrize(
    ("outputs", "labels", "kind", "message"),
    [
        (3, [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]], None, "several labels at once cannot be trained here"),
        (3, [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]], "multi_label_classification", "several labels at once"),
        (3, [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]], "regression", None),
        (1, [0, 0], None, "one class teaches nothing"),
    ],
)
def test_labels_are_what_the_model_takes_them_for(tmp_path, tokenizer, outputs, labels, kind, message):
    """Stock models take float labels for several classes at once, under a loss of their own."""
    model = network(num_labels=outputs)
    model.config.problem_type = kind
    encoded = tokenizer(["good film", "bad film"], return_tensors="pt")
    rows = [{**{key: value[row] for key, value in encoded.items()}, "labels": labels[row]} for row in range(2)]
    trainer = RobustTrainer(model, arguments(tmp_path), processing_class=tokenizer, train_dataset=rows)
    if message is not None:
        with pytest.raises(UnshakenError, match=message):
            trainer.train()
        return
    own = model(**encoded, labels=torch.tensor(labels)).loss.item()
    trainer.train()
    assert trainer.state.log_history[0]["loss"] == pytest.approx(own, rel=1e-4)


def test_a_defence_keeps_its_own_parameters_in_the_checkpoint(tmp_path, tokenizer):
    class Learned(Defence):
        def setup(self, model: nn.Module, *, num_labels: int, tokenizer=None) -> None:
            self.scale = nn.Parameter(torch.ones(()))

        def loss(self, step):
            return {"task": step.task_loss(step.forward().logits * self.scale)}

    defence = Learned()
    train(tmp_path, tokenizer, defence=defence, save_strategy="steps", save_steps=2)
    assert defence.scale.item() != 1
    assert defence.scale.grad is None or not defence.scale.grad.any()
    after = copy.deepcopy(defence.scale.detach())
    again = Learned()
    train(
        tmp_path / "again",
        tokenizer,
        defence=again,
        resume=str(tmp_path / "checkpoint-2"),
        save_strategy="steps",
        save_steps=2,
    )
    assert torch.equal(again.scale.detach(), after)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"processing_class": None}, "needs a tokenizer"),
        ({"train_dataset": reviews(4).with_rows([row for row in reviews(4) if row.label == 0])}, "one class only"),
        ({"train_dataset": reviews(2).with_rows([Example(id="x", texts=("good",), label=7)])}, "label 7"),
    ],
)
def test_bad_input_is_named_before_training(tmp_path, tokenizer, change, message):
    given = {"processing_class": tokenizer, "train_dataset": reviews(8), **change}
    with pytest.raises(UnshakenError, match=message):
        RobustTrainer(network(), arguments(tmp_path), **given)


def test_a_class_has_one_number_in_training_selection_and_model(tmp_path, tokenizer):
    """A table has no order of its own: one that lacks a class would number the others anew."""
    texts = {"negative": "bad film", "neutral": "the film", "positive": "good film"}
    train = pandas.DataFrame([(texts[name], name) for name in texts for _ in range(4)], columns=["text", "label"])
    given = {"processing_class": tokenizer, "train_dataset": train}
    trainer = RobustTrainer(network(num_labels=3), arguments(tmp_path), eval_dataset=train[4:], **given)
    assert trainer.eval_dataset.label_names == trainer.train_dataset.label_names == tuple(texts)
    assert trainer.eval_dataset.labels == [1] * 4 + [2] * 4

    reverse = Examples.from_lists(list(texts.values()), list(texts), label_names=list(texts)[::-1], name="other")
    with pytest.raises(UnshakenError, match="other has its classes in the order positive, neutral, negative, and the "):
        RobustTrainer(network(num_labels=3), arguments(tmp_path), eval_dataset=reverse, **given)
    model = network(num_labels=3)
    model.config.id2label = dict(enumerate(reverse.label_names))
    examples = Examples.from_lists(list(texts.values()), list(texts))
    with pytest.raises(UnshakenError, match="and the model in the order positive, neutral, negative"):
        RobustTrainer(model, arguments(tmp_path), processing_class=tokenizer, train_dataset=examples)
    trainer = RobustTrainer(model, arguments(tmp_path), **given)  # a table is numbered as the model has it
    assert trainer.train_dataset.labels == [2] * 4 + [1] * 4 + [0] * 4


def test_a_model_that_is_trained_on_keeps_the_record_of_what_it_knew(tmp_path, tokenizer):
    known = SWAP(substitutions=Dictionary(entries={"good": ["fine"]}), variants=2)
    first, second = tmp_path / "first", tmp_path / "second"
    train(tmp_path / "a", tokenizer, defence=known, max_steps=1).save_model(str(first))
    train(tmp_path / "b", tokenizer, model=type(network()).from_pretrained(first), max_steps=1).save_model(str(second))
    fingerprints = [
        {one["fingerprint"] for one in TrainingRecord.load(folder).substitutions} for folder in (first, second)
    ]
    assert fingerprints[0] == fingerprints[1] == {known.substitutions.fingerprint}


def test_no_reader_of_an_earlier_model_stays_beside_a_model_without_one(tmp_path, tokenizer):
    folder = tmp_path / "final"
    for reader in (Readers((Unicode(),)), None):
        trainer = RobustTrainer(
            network(), arguments(tmp_path), processing_class=tokenizer, train_dataset=reviews(8), reader=reader
        )
        trainer.save_model(str(folder))
        assert (load_reader(folder) is None) == (reader is None)


def test_every_evaluation_reads_texts_as_training_does(tmp_path, tokenizer):
    plain = reviews(16, offset=100)
    disguised = plain.with_rows(replace(row, texts=(row.texts[0].replace("o", "\u043e"),)) for row in plain)  # Cyrillic
    given = {"processing_class": tokenizer, "train_dataset": reviews(8)}

    def trainer(reader, split):
        return RobustTrainer(network(), arguments(tmp_path), eval_dataset=split, reader=reader, **given)

    unread, reading = (trainer(reader, {"own": disguised}) for reader in (None, Readers((Unicode(),))))
    wanted = unread.evaluate(plain)["eval_loss"]
    assert unread.evaluate(disguised)["eval_loss"] != pytest.approx(wanted, rel=1e-3)
    assert reading.evaluate(disguised)["eval_loss"] == wanted
    assert reading.evaluate()["eval_own_loss"] == wanted  # those given by name at the start
    assert reading.evaluate({"new": disguised})["eval_new_loss"] == wanted
    assert reading.evaluate("own")["eval_loss"] == wanted
    assert (reading.predict(disguised).predictions == unread.predict(plain).predictions).all()
    table = pandas.DataFrame({"text": [row.texts[0] for row in disguised], "label": [row.label for row in disguised]})
    assert reading.evaluate(table)["eval_loss"] == wanted
    turned = replace(plain, label_names=("positive", "negative"))
    for ask in (reading.evaluate, reading.predict, lambda split: reading.evaluate({"new": split})):
        with pytest.raises(UnshakenError, match="and the training rows in the order negative, positive"):
            ask(turned)
    with pytest.raises(UnshakenError, match="a reader reads texts"):
        reading.evaluate([{"input_ids": [4], "labels": 0}])


def test_an_evaluation_without_rows_is_refused(tmp_path, tokenizer):
    none = reviews(8).with_rows(())
    given = {"processing_class": tokenizer, "train_dataset": reviews(8)}
    trainer = RobustTrainer(network(), arguments(tmp_path), **given)
    for ask in (trainer.evaluate, trainer.predict, lambda split: trainer.evaluate({"new": split})):
        with pytest.raises(UnshakenError, match="no rows to evaluate on"):
            ask(none)
    for split in (none, {}):
        with pytest.raises(UnshakenError, match="no rows to evaluate on"):
            RobustTrainer(network(), arguments(tmp_path), eval_dataset=split, **given)
    with pytest.raises(UnshakenError, match="holds one class only"):
        RobustTrainer(network(), arguments(tmp_path), processing_class=tokenizer, train_dataset=none)


def test_the_seed_of_the_data_orders_balanced_batches(tmp_path, tokenizer):
    def order(**seeds):
        trainer = RobustTrainer(
            network(),
            arguments(tmp_path, balance_classes=True, **seeds),
            processing_class=tokenizer,
            train_dataset=reviews(40),
        )
        return [row.id for batch in trainer.get_train_dataloader() for row in batch["examples"]]

    assert order(seed=1, data_seed=5) == order(seed=2, data_seed=5) != order(seed=1, data_seed=6)
    assert order(seed=5) == order(seed=1, data_seed=5)


def test_tokens_cannot_be_balanced(tmp_path, tokenizer):
    rows = [{**tokenizer("good film"), "labels": index % 2} for index in range(8)]
    trainer = RobustTrainer(
        network(), arguments(tmp_path, balance_classes=True), processing_class=tokenizer, train_dataset=rows
    )
    with pytest.raises(UnshakenError, match="balance_classes balances texts"):
        trainer.train()


def test_a_teacher_is_compared_with_the_names_of_the_rows(tmp_path, tokenizer):
    """A model without class names could be taught the opposite: only the rows tell which class is which."""
    given = {"processing_class": tokenizer, "train_dataset": reviews(8)}

    def taught_by(*names):
        teacher = network()
        teacher.config.id2label = dict(enumerate(names))
        defence = SWAP() + PlainTeacher(model=Victim.from_model(teacher, tokenizer))
        return RobustTrainer(network(), arguments(tmp_path), defence=defence, **given)

    with pytest.raises(UnshakenError, match=r"the teacher .* in the order Positive, Negative, and the training rows"):
        taught_by("Positive", "Negative")
    taught_by("Negative", "Positive")
    taught_by("bad", "good")  # other names may mean the same


def test_a_run_does_not_go_on_with_another_teacher_or_reader_or_other_layers(tmp_path, tokenizer):
    def save(name, model):
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        return str(tmp_path / name)

    base, teacher = save("base", network()), save("teacher", network())
    Readers((Unicode(),)).save(tmp_path / "base")
    settings = {"use_cpu": True, "num_train_epochs": 1, "learning_rate": 5e-3, "per_device_train_batch_size": 8}
    plan = Plan(
        model=base, out=tmp_path / "out", method="plain", train=reviews(16), validation=reviews(8, offset=100),
        arguments=settings, on_step=lambda done, of: None, defence=Standard() + PlainTeacher(model=teacher),
    )  # fmt: skip
    assert fine_tune(plan).record.details.keys().isdisjoint({"frozen_layers", "word_level"})
    again = replace(plan, resume=True)
    assert fine_tune(again).steps == 2
    with pytest.raises(UnshakenError, match="its frozen layers is None, now 1"):
        fine_tune(replace(again, frozen_layers=1))
    Readers((Unicode(), Leet(known=KnownWords({"good": 1})))).save(tmp_path / "base")
    with pytest.raises(UnshakenError, match="its reading is"):
        fine_tune(again)
    Readers((Unicode(),)).save(tmp_path / "base")
    other = network()
    torch.nn.init.normal_(other.classifier.weight)
    save("teacher", other)
    named = replace(plan, out=tmp_path / "named", reader="unicode", defence=None)
    fine_tune(named)
    with pytest.raises(UnshakenError, match="its reader is 'unicode', now 'unicode,spacing'"):  # and not two digests
        fine_tune(replace(named, resume=True, reader="unicode,spacing"))
    with pytest.raises(UnshakenError, match="its teacher is"):
        fine_tune(again)
    kept = fine_tune(replace(plan, out=tmp_path / "frozen", frozen_layers=1)).record.details
    assert kept["frozen_layers"] == 1


def test_the_record_has_the_sets_of_a_reader_that_merges_synonyms(tmp_path, tokenizer):
    films, plots = Dictionary(entries={"good": ["fine"]}), Dictionary(entries={"bad": ["poor"]})
    sets = All((films, plots))
    reader = Readers((Synonyms.of(sets, KnownWords({})),))
    trainer = RobustTrainer(
        network(), arguments(tmp_path), processing_class=tokenizer, train_dataset=reviews(8), reader=reader
    )
    trainer.save_model(str(tmp_path / "final"))
    wanted = {one.fingerprint for one in (sets, films, plots)}
    assert TrainingRecord.load(tmp_path / "final").fingerprints == wanted
    kept = load_reader(tmp_path / "final")
    assert {one["fingerprint"] for one in kept.sets} == wanted
    assert kept.fingerprint == reader.fingerprint


@pytest.mark.parametrize("kind", [SWAP, ASCC, RIFT])
def test_a_set_that_touches_no_word_of_few_texts_is_refused_at_the_end(tmp_path, tokenizer, kind):
    def defence(word):
        return kind(substitutions=Dictionary(entries={word: ["movie"]})) + PTWD()

    with pytest.raises(UnshakenError, match="no usable substitute for any word of the first"):
        train(tmp_path / "none", tokenizer, rows=reviews(16), defence=defence("Film?"), num_train_epochs=3)
    train(tmp_path / "one", tokenizer, rows=reviews(16), defence=defence("film"))
    settings = {"rows": reviews(16), "num_train_epochs": 2, "save_strategy": "steps", "save_steps": 1}
    train(tmp_path / "whole", tokenizer, defence=defence("film"), **settings)  # what goes on may meet no such text
    again = {**settings, "defence": defence("Film?"), "resume": str(tmp_path / "whole" / "checkpoint-3")}
    assert train(tmp_path / "again", tokenizer, **again).state.global_step == 4


def test_arguments_say_what_is_allowed(tmp_path):
    with pytest.raises(ValueError, match="'stop' or 'skip'"):
        arguments(tmp_path, on_nonfinite="ignore")


def test_checkpoints_hold_no_surprise_for_plain_transformers(tmp_path, tokenizer):
    """A model trained here without a connection is a plain Hugging Face model."""
    trainer = train(tmp_path, tokenizer)
    trainer.save_model(str(tmp_path / "final"))
    assert json.loads((tmp_path / "final" / "config.json").read_text())["model_type"] == "bert"
