"""`unshaken attack` on a model folder and one's own file, and white-box attacks through a connected model's solver."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from typer.testing import CliRunner
from victims import TEXTS, WORD_LIST, labelled, make_tokenizer, tiny_bert

from unshaken.attacks import PWWS, AttackResults, HotFlip, HullAttack, Victim
from unshaken.attacks.ray_engine import read_parts
from unshaken.cli import app as commands
from unshaken.cli.attack import attack, coloured_diff, file_names
from unshaken.connections import Connection, connect
from unshaken.errors import UnshakenError
from unshaken.evaluation import Report, evaluate
from unshaken.examples import Examples
from unshaken.solvers import Anderson

app = typer.Typer()
app.command()(attack)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("command")
    tokenizer = make_tokenizer(folder)
    model = tiny_bert(tokenizer)
    model.float().save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    victim = Victim.from_pretrained(folder / "model", device="cpu")
    rows = [{"text": row.texts[0], "label": row.label} for row in labelled(victim)]
    (folder / "reviews.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "words.json").write_text(json.dumps({key: list(value) for key, value in WORD_LIST.entries.items()}))
    return {"model": folder / "model", "reviews": folder / "reviews.jsonl", "words": folder / "words.json"}


def call(files: dict[str, Path], out: Path, *more: str) -> Any:
    words = f"dictionary:path={files['words']}"
    fixed = [str(files["model"]), "--task", str(files["reviews"]), "--out", str(out), "--substitutions", words]
    return CliRunner().invoke(app, [*fixed, "--device", "cpu", *more], catch_exceptions=True)


def test_an_unknown_engine_is_said(files: dict[str, Path], tmp_path: Path) -> None:
    done = call(files, tmp_path, "--engine", "rai")
    assert isinstance(done.exception, UnshakenError)
    assert "did you mean 'ray'" in str(done.exception)


def test_an_order_of_classes_that_was_guessed_is_said(files: dict[str, Path], tmp_path: Path) -> None:
    rows = [json.loads(line) for line in files["reviews"].read_text().splitlines()]
    named = tmp_path / "named.jsonl"
    named.write_text("".join(json.dumps({**row, "label": ("ham", "spam")[row["label"]]}) + "\n" for row in rows))
    by_name = call({**files, "reviews": named}, tmp_path / "names", "--attack", "pwws")
    said = "does not name its classes, so those of named/test are taken in the order ham 0, spam 1"
    assert by_name.exception is None
    assert said in by_name.stderr
    by_number = call(files, tmp_path / "numbers", "--attack", "pwws")
    assert by_number.exception is None
    assert "does not name its classes" not in by_number.stderr
    # Beside a model that names them, by whose names the file is read, it is said of the other one.
    twin = tmp_path / "twin"
    shutil.copytree(files["model"], twin)
    config = json.loads((twin / "config.json").read_text())
    config |= {"id2label": {"0": "spam", "1": "ham"}, "label2id": {"spam": 0, "ham": 1}}
    (twin / "config.json").write_text(json.dumps(config))
    words = ["evaluate", str(twin), str(files["model"]), "--task", str(named), "--out", str(tmp_path / "both")]
    words += ["--attack", "random:samples=1", "--device", "cpu"]
    both = CliRunner().invoke(commands, words, catch_exceptions=True)
    assert both.exception is None
    assert both.stderr.count("does not name its classes") == 1
    assert f"{files['model']} does not name its classes" in both.stderr
    assert "are taken in the order spam 0, ham 1" in both.stderr


UNNAMED = "does not name its classes"


@pytest.mark.parametrize(
    "words",
    [
        "attack --attack pwws,greedy --block 3",
        "attack --attack pwws --vote 2",
        "attack --attack pwws --dry-run",
        "evaluate --attack pwws --calibrate",
        "evaluate --certify safer:samples=50 -n 2",
        "certify --certificate safer:samples=50 -n 2",
        "detect --vote 2 --false-alarms 0.5",
        "scan --family typos --reader unicode",
    ],
)
def test_each_command_says_it_once(files: dict[str, Path], tmp_path: Path, words: str) -> None:
    rows = [json.loads(line) for line in files["reviews"].read_text().splitlines()]
    rows[0]["label"] = 1 - rows[0]["label"]  # or no temperature is best
    named = tmp_path / "named.jsonl"
    named.write_text("".join(json.dumps({**row, "label": ("ham", "spam")[row["label"]]}) + "\n" for row in rows))
    shutil.copytree(files["model"], tmp_path / "model")  # another one: a process says it once of each
    command, *more = words.split()
    if command != "scan":
        more += ["--substitutions", f"dictionary:path={files['words']}"]
    out = ["--out", str(tmp_path / "out"), "--device", "cpu"]
    done = CliRunner().invoke(commands, [command, str(tmp_path / "model"), str(named), *out, *more])
    assert done.exception is None, done.output
    assert done.stderr.count(UNNAMED) == 1
    assert f"{tmp_path / 'model'} {UNNAMED}, so those of named/test are taken in the order ham 0, spam 1" in done.stderr


def test_python_says_it_once_and_only_of_an_order_that_was_guessed(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(files["model"], tmp_path / "model")
    victim = Victim.from_pretrained(tmp_path / "model", device="cpu")
    texts, words = ["a good film", "bad film"], ["spam", "ham"]
    told = Examples.from_lists(texts, words, label_names=("ham", "spam"))
    for rows in (told, Examples.from_lists(texts, [0, 1]), [{"text": "good", "label": n} for n in (0, 1)]):
        evaluate(victim, rows)
    assert UNNAMED not in capsys.readouterr().err
    table = [{"text": text, "label": word} for text, word in zip(texts, words, strict=True)]
    for rows, name in ((Examples.from_lists(texts, words), "examples"), (table, "table/test")):
        for _ in range(2):
            evaluate(victim, rows, ["random:samples=1"])
        said = capsys.readouterr().err
        assert said.count(UNNAMED) == 1
        assert f"{tmp_path / 'model'} {UNNAMED}, so those of {name} are taken in the order ham 0, spam 1" in said
    # By the names of the first model, which the second has not.
    names = Victim.from_callable(lambda given: [[0.5, 0.5] for _ in given], label_names=("spam", "ham"), name="named")
    evaluate([names, victim], table)
    assert "are taken in the order spam 0, ham 1" in capsys.readouterr().err


def test_a_killed_run_is_refused_before_a_model_is_loaded(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call(files, tmp_path, "--attack", "pwws,greedy").exception is None
    (tmp_path / "report.json").unlink()  # it is written last
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    monkeypatch.setattr(Victim, "from_pretrained", lambda *_, **__: pytest.fail("a model is loaded"))
    done = call(files, tmp_path, "--attack", "greedy")
    assert isinstance(done.exception, UnshakenError)
    assert "go on with --resume, or name another --out" in str(done.exception)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_the_command_on_ray_finds_what_it_finds_here(files: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("ray", exc_type=ImportError)
    words = f"dictionary:path={files['words']}"
    fixed = [str(files["model"]), str(files["reviews"]), "--substitutions", words, "--device", "cpu"]
    command = [sys.executable, "-m", "unshaken", "attack", *fixed, "--engine", "ray", "--out", str(tmp_path / "ray")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert f"Results: {tmp_path / 'ray' / 'pwws'}" in done.stdout, done.stderr
    found = {row.original: (row.outcome, row.adversarial, row.queries) for row in read_parts(tmp_path / "ray" / "pwws")}
    assert call(files, tmp_path / "here").exit_code == 0
    report = Report.load(tmp_path / "here")
    (run,) = report.evaluations[0].attacks
    assert found == {row.original: (row.outcome, row.adversarial, row.queries) for row in run.results}


def test_attack_writes_results_and_shows_them(files: dict[str, Path], tmp_path: Path) -> None:
    spec = "pwws,genetic:population=4,generations=2"
    done = call(files, tmp_path, "--attack", spec)
    assert done.exit_code == 0, done.output
    for word in ("majority baseline", "pwws", "genetic", "worst case", "->", "few-seeds", "report.html"):
        assert word in done.output
    written = sorted(tmp_path.rglob("*.jsonl"))
    assert [path.name.split("-")[0] for path in written] == ["genetic", "pwws"]
    assert sorted(path.name for path in tmp_path.glob("*.csv")) == ["reviews-test.genetic.csv", "reviews-test.pwws.csv"]
    assert {run.attack for run in Report.load(tmp_path).evaluations[0].attacks} == {"pwws", "genetic"}
    results = AttackResults.from_jsonl(written[0])
    assert len(results) == len(TEXTS)
    assert results.settings["population"] == 4
    again = call(files, tmp_path, "--attack", spec)
    assert isinstance(again.exception, UnshakenError)
    assert "is of an earlier run; go on with --resume" in str(again.exception)
    assert call(files, tmp_path, "--attack", spec, "--resume").exit_code == 0


def test_count_and_seed(files: dict[str, Path], tmp_path: Path) -> None:
    done = call(files, tmp_path, "--attack", "random:samples=5", "-n", "3", "--seed", "4")
    assert done.exit_code == 0, done.output
    results = AttackResults.from_jsonl(next(tmp_path.rglob("*.jsonl")))
    assert len(results) == 3
    assert results.settings["seed"] == 4


def test_a_model_of_another_task_is_refused(files: dict[str, Path], tmp_path: Path) -> None:
    tokenizer = make_tokenizer(tmp_path)
    for part in (tiny_bert(tokenizer, num_labels=3).float(), tokenizer):
        part.save_pretrained(tmp_path / "three")
    words = [str(tmp_path / "three"), str(files["reviews"]), "--out", str(tmp_path / "out"), "--device", "cpu"]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, UnshakenError)
    assert "has 3 classes" in str(done.exception)
    twice = CliRunner().invoke(app, [*words, "--task", "sst2"])
    assert "named twice" in str(twice.exception)


def test_mistakes_have_the_nearest_name(files: dict[str, Path], tmp_path: Path) -> None:
    done = call(files, tmp_path, "--attack", "pwsw")
    assert isinstance(done.exception, UnshakenError)
    assert "did you mean 'pwws'" in str(done.exception)


def test_the_diff_shows_both_words() -> None:
    from victims import bag_victim

    victim = bag_victim()
    (row,) = PWWS(substitutions=WORD_LIST)(victim, labelled(victim, ["It is a Good film!"]))
    text = coloured_diff("pwws", row, ("negative", "positive"))
    assert "Good→Nice" in text.plain
    assert "positive -> negative" in text.plain
    assert {str(span.style) for span in text.spans} >= {"red strike", "bold green"}


def test_the_same_attack_twice_gets_two_files() -> None:
    assert file_names(["pwws", "hotflip"]) == ["pwws", "hotflip"]
    assert file_names(["pwws", "pwws"]) == ["1-pwws", "2-pwws"]


@pytest.mark.parametrize("kind", [HullAttack, HotFlip])
def test_gradients_flow_through_a_connected_models_solver(kind: Any, tmp_path: Path) -> None:
    tokenizer = make_tokenizer(tmp_path)
    model = connect(tiny_bert(tokenizer), Connection(layers="2", solver=Anderson(steps=4)))
    victim = Victim.from_model(model, tokenizer)
    assert victim._shortcut is None  # the last layer is no stock layer any more
    examples = labelled(victim)
    results = kind(substitutions=WORD_LIST)(victim, examples)
    assert all(row.outcome in ("success", "failure") for row in results)
    alone = [kind(substitutions=WORD_LIST)(victim, [example])[0] for example in examples[:3]]
    assert [row.adversarial for row in alone] == [row.adversarial for row in results[:3]]
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.is_grad_enabled()
