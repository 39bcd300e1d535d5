"""`unshaken evaluate` and `unshaken report` from the command line, on a model folder and a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from report_parts import made_evaluation, save_model, small_texts, tiny_model
from typer.testing import CliRunner

from unshaken.attacks import PWWS, Genetic
from unshaken.cli.data import load_sets
from unshaken.cli.evaluate import evaluate, parse_attacks
from unshaken.cli.report import report
from unshaken.errors import UnshakenError
from unshaken.evaluation.report import READ_BY_EYE
from unshaken.names import split_specs
from unshaken.reports import Report
from unshaken.substitutions import Dictionary

app = typer.Typer()
app.command()(evaluate)
app.command()(report)


@pytest.fixture
def model(tmp_path: Path) -> str:
    names = {"id2label": {0: "negative", 1: "positive"}, "label2id": {"negative": 0, "positive": 1}}
    return save_model(tmp_path / "model", tiny_model(**names))


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    path = tmp_path / "reviews.jsonl"
    rows = [{"text": text, "label": ["negative", "positive"][n % 2]} for n, text in enumerate(small_texts(8))]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_evaluate_writes_a_report_and_report_merges_it(model: str, reviews: Path, tmp_path: Path) -> None:
    run = CliRunner()
    arguments = ["evaluate", model, "--task", str(reviews), "--attack", "pwws", "--device", "cpu"]
    first = run.invoke(app, [*arguments, "--name", "mine", "--out", str(tmp_path / "run")], catch_exceptions=False)
    assert first.exit_code == 0, first.output
    assert "pwws" in first.output
    assert (tmp_path / "run" / "report.html").read_text().startswith("<!doctype html>")
    loaded = Report.load(tmp_path / "run")
    assert loaded.evaluations[0].model.name == "mine"
    assert loaded.evaluations[0].data.label_names == ("negative", "positive")
    second = run.invoke(
        app,
        ["report", str(tmp_path / "run"), str(tmp_path / "run" / "report.json"), "--out", str(tmp_path / "all.md")],
        catch_exceptions=False,
    )
    assert second.exit_code == 0, second.output
    assert "| clean |" in (tmp_path / "all.md").read_text()
    renamed = ["report", str(tmp_path / "run"), "--out", str(tmp_path / "all.json"), "--name", "ours"]
    assert run.invoke(app, renamed, catch_exceptions=False).exit_code == 0
    assert list(Report.load(tmp_path / "all.json").model_names.values()) == ["ours"]
    wrong = run.invoke(app, [*renamed, "--name", "two"])
    assert "--name has 2 names (ours, two); give 1, each another" in str(wrong.exception)


def test_a_second_run_into_the_same_folder_is_refused(model: str, reviews: Path, tmp_path: Path) -> None:
    arguments = ["evaluate", model, "--task", str(reviews), "--out", str(tmp_path / "run")]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    failed = CliRunner().invoke(app, arguments)
    assert isinstance(failed.exception, UnshakenError)
    assert CliRunner().invoke(app, [*arguments, "--resume"]).exit_code == 0


def test_specifications_are_split_at_the_right_commas() -> None:
    pwws = "pwws,genetic:population=20,generations=10, beam"
    assert split_specs("attack", pwws) == ["pwws", "genetic:population=20,generations=10", "beam"]
    assert split_specs("defence", "ascc:beta=1e+5 + ptwd") == ["ascc:beta=1e+5 + ptwd"]
    assert split_specs("defence", "ascc:beta=1e+5+ptwd") == ["ascc:beta=1e+5", "ptwd"]
    assert split_specs("reader", "unicode, spelling:doubt=20,least=3 + leet") == [
        "unicode",
        "spelling:doubt=20,least=3",
        "leet",
    ]


def test_attacks_and_their_substitutions_are_built(tmp_path: Path) -> None:
    path = tmp_path / "words.json"
    path.write_text(json.dumps({"good": ["fine"]}))
    pwws, genetic = parse_attacks(["pwws,genetic:population=6,generations=2"], f"dictionary:path={path}")
    assert isinstance(pwws, PWWS)
    assert isinstance(genetic, Genetic)
    assert (genetic.population, genetic.generations) == (6, 2)
    assert isinstance(pwws.substitutions, Dictionary)
    with pytest.raises(UnshakenError, match="did you mean 'pwws'"):
        parse_attacks(["pwsw"], None)


def test_advglue_is_narrowed_to_the_tasks_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import unshaken.tasks
    from unshaken.examples import Example, Examples
    from unshaken.tasks import TaskData

    asked = []

    def load(name: str, **options: object) -> TaskData:
        asked.append(name)
        rows = Examples(rows=(Example(id="1", texts=("a",), label=0),), name=name)
        return TaskData(task=unshaken.tasks.TASKS[name], test=rows)

    monkeypatch.setattr(unshaken.tasks, "load_task", load)
    load_sets("sst2,advglue", None, object(), None, 0)
    assert asked == ["sst2", "advglue-sst2"]
    asked.clear()
    load_sets("advglue", None, object(), None, 0)
    assert len(asked) == 6


def test_a_report_is_not_written_over_a_run_that_it_merges(unshaken, refused, tmp_path):
    run = Report(evaluations=(made_evaluation(),)).save(tmp_path / "run" / "report.json")
    before = run.read_bytes()
    for named in (run.parent, run):
        assert "would be lost" in refused("report", named, "--name", "ours", "--out", run)
    assert run.read_bytes() == before
    for name in ("rows.csv", "notes.md", "page.html", "paper.tex", "other.json"):
        (tmp_path / name).write_text("text,label\ngood,1\n")
        assert "is no report, and would be lost" in refused("report", run.parent, "--out", tmp_path / name)
        assert (tmp_path / name).read_text() == "text,label\ngood,1\n"
        (tmp_path / name).unlink()
        for _ in range(2):  # an earlier report may be written over
            code, _, _ = unshaken("report", run.parent, "--out", tmp_path / name)
            assert code == 0
    long = Report(evaluations=(made_evaluation(total=READ_BY_EYE + 1),)).save(tmp_path / "long" / "report.json")
    for _ in range(2):  # one that is laid out on one line, too
        assert unshaken("report", long.parent, "--out", tmp_path / "other.json")[0] == 0
    assert Report.load(tmp_path / "other.json") == Report.load(long)
    words = ("--out", tmp_path / "all.html", "--figures", tmp_path / "figures")
    code, out, _ = unshaken("report", run.parent, *words)
    assert (code, "no figures" in out) == (0, True)
