"""The library as a notebook uses it: names, paths and tables for objects, and a record of every training."""

from __future__ import annotations

import json

import pandas
import pytest
from transformers import TrainerCallback, TrainingArguments
from victims import TEXTS, labelled, make_tokenizer, tiny_bert

import unshaken
from unshaken import Examples, RobustTrainer, RobustTrainingArguments, Victim, evaluate
from unshaken.errors import UnshakenError
from unshaken.evaluation import TrainingRecord


@pytest.fixture
def table(tmp_path):
    victim = Victim.from_model(tiny_bert(make_tokenizer(tmp_path)), make_tokenizer(tmp_path))
    return pandas.DataFrame({"text": TEXTS, "label": labelled(victim).labels})


@pytest.fixture
def trained(tmp_path, table):
    tokenizer = make_tokenizer(tmp_path)
    arguments = {"num_train_epochs": 1, "eval_strategy": "no", "save_strategy": "no", "load_best_model_at_end": False}
    trainer = RobustTrainer(
        tiny_bert(tokenizer).float(),
        RobustTrainingArguments(str(tmp_path / "run"), use_cpu=True, learning_rate=0.0, **arguments),
        defence="swap:beta=2+ptwd",
        processing_class=tokenizer,
        train_dataset=table[:6],
    )
    trainer.train()
    trainer.save_model(str(tmp_path / "model"))
    return tmp_path / "model"


def test_the_trainer_leaves_a_record_and_what_it_saw(trained, table):
    record = TrainingRecord.load(trained)
    assert (record.method, record.seed, record.details["training_examples"]) == ("swap + ptwd", 42, 6)
    assert [part["name"] for part in record.details["defence"]] == ["SWAP", "PTWD"]
    assert record.substitutions[0]["name"] == "wordnet"
    report = evaluate(trained, table, ["random:samples=3", "pwws"])
    assert report.evaluations[0].attack_names == ("random", "pwws")
    checks = {check.flag: check for check in report.checks}
    assert checks["trained-on"].evidence == "6 of 8 texts were trained on"
    assert checks["same-substitutions"].verdict == "raised"


def test_a_saved_model_reads_as_many_tokens_as_its_training_did(trained):
    """Commands of one folder read texts of another length than the report of its training, and said nothing."""
    file = trained / "unshaken_training.json"
    record = json.loads(file.read_text())
    assert record["details"]["arguments"]["max_length"] == 128
    assert Victim.from_pretrained(trained).max_length == 64  # it has no more positions
    lengths = {}
    for length in (16, 0, "16", None):
        record["details"]["arguments"]["max_length"] = length
        file.write_text(json.dumps(record))
        lengths[length] = Victim.from_pretrained(trained).max_length
    assert lengths == {16: 16, 0: 64, "16": 64, None: 64}
    record["details"]["arguments"]["max_length"] = 16
    file.write_text(json.dumps(record))
    assert Victim.from_pretrained(trained, max_length=32).max_length == 32
    long, cut = ("good " * 40 + "bad " * 20,), ("good " * 14,)  # two of the sixteen are marks
    as_trained, whole = Victim.from_pretrained(trained), Victim.from_pretrained(trained, max_length=64)
    assert as_trained.log_probabilities([long]) == pytest.approx(whole.log_probabilities([cut]), abs=1e-6)
    assert whole.log_probabilities([long]) != pytest.approx(whole.log_probabilities([cut]), abs=1e-6)
    file.unlink()
    assert Victim.from_pretrained(trained).max_length == 64


def test_what_a_trainer_cannot_work_with_is_told_in_its_own_words(tmp_path, table):
    tokenizer = make_tokenizer(tmp_path)
    rows = [{"text": text, "label": int(label)} for text, label in zip(table["text"], table["label"], strict=True)]
    pairs = Examples.from_lists([("a film", "a plot"), ("a plot", "a film")], [0, 1])

    def trainer(args=None, **given):
        args = args or RobustTrainingArguments(str(tmp_path / "run"), use_cpu=True, **given.pop("arguments", {}))
        return RobustTrainer(
            tiny_bert(tokenizer).float(), args, processing_class=tokenizer, train_dataset=rows, **given
        )

    stock = TrainingArguments(str(tmp_path / "run"), use_cpu=True, eval_strategy="no")
    with pytest.raises(UnshakenError, match="args is a TrainingArguments; RobustTrainer takes RobustTrainingArguments"):
        trainer(stock)
    with pytest.raises(UnshakenError, match=r"pass an eval_dataset, or RobustTrainingArguments\(eval_strategy='no'\)"):
        trainer()
    several = {"old": rows, "new": rows}
    with pytest.raises(UnshakenError, match="sets by name; name the one that selects, as in 'eval_old_loss'"):
        trainer(eval_dataset=several)
    with pytest.raises(UnshakenError, match=r"has 2 texts a row \(text1, text2\), and .* 1 text \(text\)"):
        trainer(eval_dataset=pairs)
    found = trainer(eval_dataset=several, arguments={"metric_for_best_model": "eval_new_loss"})
    assert found.train_dataset.texts == [(row["text"],) for row in rows]  # dicts are rows as of a table
    assert not found.args.greater_is_better
    assert trainer(arguments={"eval_strategy": "no"}).eval_dataset is None


class Measuring(TrainerCallback):
    def on_evaluate(self, args, state, control, metrics, **kwargs):
        metrics["eval_own"] = 1.0


class Own(RobustTrainer):
    def evaluate(self, *args, **kwargs):
        return {**super().evaluate(*args, **kwargs), "eval_own": 1.0}


@pytest.mark.parametrize(
    ("metric", "given", "told"),
    [
        ("eval_acuracy", {}, "'eval_acuracy', which no evaluation gives; did you mean 'eval_accuracy'"),
        ("acuracy", {}, "'acuracy', which no evaluation gives; did you mean 'accuracy'"),
        ("f1", {}, "'f1', which no evaluation gives; known: accuracy, loss"),
        (
            "accuracy_under_attack",
            {},
            "pass the attack that it is about: .*selection_attack='pwws'",
        ),
        ("accuracy_under_atack", {"selection_attack": "pwws"}, "did you mean 'accuracy_under_attack'"),
        ("accuracy", {"arguments": {"prediction_loss_only": True}}, "known: loss"),
        (
            "eval_loss",
            {"several": True},
            "did you mean 'eval_(old|new)_loss'",
        ),  # though nothing is loaded at the end
        ("eval_accuracy", {}, None),
        ("accuracy", {}, None),
        ("runtime", {}, None),
        ("accuracy_under_attack", {"selection_attack": "random:samples=1"}, None),
        ("eval_new_accuracy", {"several": True}, None),
        ("f1", {"compute_metrics": lambda prediction: {"f1": 1.0}}, None),
        ("own", {"callbacks": [Measuring()]}, None),
        ("own", {"kind": Own}, None),
        (None, {"arguments": {"load_best_model_at_end": False}}, None),
        ("f1", {"arguments": {"eval_strategy": "no"}}, None),
    ],
)
def test_a_metric_that_nothing_gives_is_told_before_training(tmp_path, table, metric, given, told):
    """The stock Trainer ends in a KeyError after a whole epoch."""
    tokenizer = make_tokenizer(tmp_path)
    given = {"kind": RobustTrainer, "several": False, "arguments": {}, **given}
    kind, several, arguments = (given.pop(key) for key in ("kind", "several", "arguments"))
    arguments = {"load_best_model_at_end": False if several else None, "num_train_epochs": 1, **arguments}
    trainer = kind(
        tiny_bert(tokenizer).float(),
        RobustTrainingArguments(str(tmp_path / "run"), use_cpu=True, metric_for_best_model=metric, **arguments),
        processing_class=tokenizer,
        train_dataset=table,
        eval_dataset={"old": table, "new": table[:4]} if several else table[:4],
        **given,
    )
    if told is None:
        trainer.train()
        assert trainer.state.global_step
        return
    with pytest.raises(UnshakenError, match=told):
        trainer.train()
    assert not trainer.state.global_step


def test_a_model_without_class_names_takes_those_it_was_trained_on(tmp_path, table):
    """Else a table of words is numbered in sorted order, and right answers count as wrong."""
    tokenizer = make_tokenizer(tmp_path)
    arguments = {"max_steps": 1, "eval_strategy": "no", "save_strategy": "no", "load_best_model_at_end": False}
    rows = Examples.from_lists(list(table["text"]), list(table["label"]), label_names=("spam", "ham"))
    trainer = RobustTrainer(
        tiny_bert(tokenizer).float(),
        RobustTrainingArguments(str(tmp_path / "run"), use_cpu=True, learning_rate=0.0, **arguments),
        processing_class=tokenizer,
        train_dataset=rows,
    )
    trainer.save_model(str(tmp_path / "model"))
    victim = Victim.from_pretrained(tmp_path / "model")
    assert victim.label_names == ("spam", "ham")
    words = table.assign(label=[("spam", "ham")[label] for label in table["label"]])
    answers = victim.log_probabilities(rows.texts).argmax(-1)
    (evaluation,) = evaluate(victim, words).evaluations
    assert evaluation.clean.value == (answers == table["label"]).mean() > 0.5
    named = tiny_bert(tokenizer).float()
    named.config.id2label = {0: "no", 1: "yes"}
    RobustTrainer(named, trainer.args, processing_class=tokenizer, train_dataset=rows)
    assert named.config.id2label == {0: "no", 1: "yes"}


def test_names_that_are_wrong_have_the_nearest(trained, table):
    with pytest.raises(UnshakenError, match="did you mean 'pwws'"):
        evaluate(trained, table, "pwsw")
    with pytest.raises(UnshakenError, match="no such folder"):
        evaluate(str(trained) + "s", table)


def test_what_a_notebook_shows(trained, table):
    report = evaluate(trained, table, "pwws")
    assert len(repr(report)) < 400
    assert "pwws" in repr(report)
    assert report._repr_html_().count('data-label="condition"') == 2  # rows: clean, pwws
    frame = report.to_pandas()
    assert list(frame["condition"]) == ["clean", "pwws"]
    assert frame["accuracy"][0] == report.evaluations[0].clean.value
    results = unshaken.attacks.PWWS()(Victim.from_pretrained(trained), Examples.from_pandas(table))
    assert len(repr(results)) < 200
    assert len(results.to_pandas()) == len(TEXTS)
    assert "3.14159" not in str(results.summary())
    assert "line-through" in results._repr_html_() or not results.tally("success")


def test_texts_in_a_notebook_are_shown_not_obeyed():
    def says_yes(texts):
        return [[0.9, 0.1] if "good" in text else [0.1, 0.9] for text in texts]

    victim = Victim.from_callable(says_yes, 2)
    (row,) = unshaken.attacks.PWWS()(victim, Examples.from_lists(["<script>alert(1)</script> good"], [0]))
    assert row.outcome == "success"
    assert "<script>" not in row._repr_html_()
    assert "line-through" in row._repr_html_()
