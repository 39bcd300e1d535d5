"""The library as a notebook uses it: names, paths and tables for objects, and a record of every training."""

from __future__ import annotations

import pandas
import pytest
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
