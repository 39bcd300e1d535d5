"""The command line as a user meets it: real commands on a tiny model, and one line for every mistake."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoTokenizer, GPT2Config

from unshaken.cli import main
from unshaken.cli.demo import _make_room, steps_shown
from unshaken.cli.listing import KINDS
from unshaken.console import Console
from unshaken.errors import UnshakenError


@pytest.fixture
def reviews(tmp_path) -> Path:
    words = (("good", "pos"), ("bad", "neg"))
    return write(
        tmp_path / "reviews.csv", [(f"{word} film number {n}", label) for n in range(12) for word, label in words]
    )


def write(path: Path, rows: list[tuple[str, str]], header: tuple[str, str] = ("text", "label")) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([header, *rows])
    return path


def run(monkeypatch, capsys, *arguments: object) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["unshaken", *map(str, arguments)])
    try:
        main()
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def complaint(err: str) -> str:
    """The one line of an error; progress bars of other libraries may stand before it."""
    lines = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, err
    assert err.strip().splitlines()[-1] == lines[0]
    assert "Traceback" not in err
    return lines[0]


def test_help_imports_nothing_heavy():
    heavy = ("torch", "transformers", "numpy", "scipy", "datasets", "rich", "jinja2")
    program = (
        "import atexit, sys; sys.argv = ['unshaken', '--help']\n"
        f"atexit.register(lambda: print([m for m in {heavy} if m in sys.modules], file=sys.stderr))\n"
        "from unshaken.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "Commands:" in done.stdout


@pytest.mark.full
def test_recipes_say_what_to_install():
    """Both commands, in a process that cannot see the package."""
    program = (
        "import sys; sys.modules['unshaken_experiments'] = None\n"
        "import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'unshaken_experiments' else real(name, *more)\n"
        "from unshaken.cli import main; main()"
    )
    for words in (["reproduce", "rift-table-1", "--seeds", "0"], ["reproduce"], ["list", "recipes"]):
        done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
        assert done.returncode == 2
        assert "pip install ./experiments" in complaint(done.stderr)
    done = subprocess.run([sys.executable, "-c", program, "--help"], capture_output=True, text=True)
    assert "reproduce" in done.stdout
    assert "..." not in done.stdout.partition("Commands:")[2]  # every line is whole


def test_help_names_every_command(monkeypatch, capsys):
    code, out, _ = run(monkeypatch, capsys, "--help")
    assert code == 0
    assert all(name in out for name in ("demo", "train", "attack", "evaluate", "report", "doctor", "list"))
    assert "..." not in out.partition("Commands:")[2]  # every line is whole


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_list_knows_every_kind(monkeypatch, capsys, kind):
    code, out, _ = run(monkeypatch, capsys, "list", kind)
    assert code == 0
    assert len(out.splitlines()) >= 4


def test_train_writes_a_model_a_record_a_card_and_a_report(monkeypatch, capsys, tiny, reviews, tmp_path):
    out = tmp_path / "run"
    common = ["train", "--task", reviews, "--model", tiny, "--out", out, "--cpu", "--epochs", 1, "--batch-size", 4]
    changes = ["--connection", "im-bert", "--layers", "2", "--solver", "anderson:steps=2"]
    code, text, err = run(monkeypatch, capsys, *common, *changes, "--defence", "freelb:steps=2+ptwd")
    assert code == 0, err
    assert "Report:" in text
    config = json.loads((out / "model" / "config.json").read_text())
    assert config["model_type"] == "unshaken-bert"
    assert config["connection"]["solver"]["steps"] == 2
    record = json.loads((out / "model" / "unshaken_training.json").read_text())
    assert [part["name"] for part in record["details"]["defence"]] == ["FreeLB", "PTWD"]
    assert "IM-BERT" in (out / "model" / "README.md").read_text()
    assert (out / "report.html").is_file()
    assert not list(tmp_path.rglob("*.part"))
    code, _, err = run(monkeypatch, capsys, *common)
    assert code == 2
    assert "--resume" in complaint(err)
    attack = ["attack", out / "model", "--task", reviews, "--attack", "random", "-n", 4, "--out", tmp_path / "attacked"]
    code, _, err = run(monkeypatch, capsys, *attack, "--device", "cpu")
    assert code == 0, err
    assert list((tmp_path / "attacked").rglob("*.jsonl"))


@pytest.mark.full
def test_a_resumed_training_ends_like_an_uninterrupted_one(monkeypatch, capsys, tiny, reviews, tmp_path):
    def train(out: Path, *extra: object) -> int:
        common = ["train", "--task", reviews, "--model", tiny, "--out", out, "--cpu", "--epochs", 2, "--batch-size", 4]
        return run(monkeypatch, capsys, *common, *extra)[0]

    assert train(tmp_path / "whole") == 0
    assert train(tmp_path / "cut") == 0
    checkpoints = (tmp_path / "cut" / "checkpoints").glob("checkpoint-*")
    last = max(checkpoints, key=lambda path: int(path.name.split("-")[1]))
    for path in last.iterdir():  # as if the run had been killed after its first epoch
        path.unlink()
    last.rmdir()
    assert train(tmp_path / "cut", "--resume") == 0
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "cut")]
    assert weights[0] == weights[1]


@pytest.mark.full
def test_doctor_measures_every_layer(monkeypatch, capsys, tiny, tmp_path):
    code, out, err = run(monkeypatch, capsys, "doctor", tiny, "--out", tmp_path / "doctor")
    assert code == 0, err
    assert "Recommended: Connection(solver=Anderson(steps=" in out
    found = json.loads((tmp_path / "doctor" / "doctor.json").read_text())
    assert sorted(found["lipschitz"]) == ["1", "2"]
    solvers = {row["solver"] for row in found["residuals"]}
    assert solvers == {"gradient-descent", "fixed-point", "anderson", "broyden", "newton-krylov"}
    assert (tmp_path / "doctor" / "stability-regions.svg").is_file()


@pytest.mark.parametrize("terminal", [True, False])
def test_demo_shows_the_steps_of_models_side_by_side(terminal, capsys):
    screen = io.StringIO()
    with steps_shown(Console(file=screen, force_terminal=terminal, width=100)) as show:
        for done in range(1, 21):
            for name in ("SWAP", "RIFT"):
                show(name, done, 20)
    lines = [f"{name}: step {done} of 20" for done in range(2, 21, 2) for name in ("SWAP", "RIFT")]
    said = [line.removeprefix("note: ").partition(",")[0] for line in capsys.readouterr().err.splitlines()]
    assert said == ([] if terminal else lines)
    assert all((f"{name} is trained" in screen.getvalue()) == terminal for name in ("SWAP", "RIFT"))
    assert ("20/20" in screen.getvalue()) == terminal


@pytest.mark.full
def test_demo_does_the_main_job(tmp_path):
    """The whole demo in its small form, as a user starts it."""
    command = [sys.executable, "-m", "unshaken", "demo", "--fast", "--out", str(tmp_path / "demo")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    methods = ["plain", "IM", "RIFT", "SWAP", "hardened"]
    for name in methods:
        assert name in done.stdout
        assert f"note: {name}: step 2 of" in done.stderr  # also of those that train side by side
        assert (tmp_path / "demo" / name.lower() / "model" / "model.safetensors").is_file()
    report = json.loads((tmp_path / "demo" / "report.json").read_text())
    assert [item["model"]["training"]["method"] for item in report["evaluations"]] == methods
    assert [item["model"]["name"] for item in report["evaluations"]] == methods
    assert {len(item["predictions"]) for item in report["evaluations"]} == {8}  # one denominator
    assert (tmp_path / "demo" / "report.html").as_uri() in done.stdout
    assert "Of 8 reviews the plain model keeps" in " ".join(done.stdout.split())
    (tmp_path / "demo" / "plain" / "left.txt").write_text("an earlier demo is replaced")
    _make_room(tmp_path / "demo")
    assert [path.name for path in (tmp_path / "demo").iterdir()] == ["demo.json"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("not to be lost")
    with pytest.raises(UnshakenError, match="other files than a demo's"):
        _make_room(tmp_path / "mine")


# ------------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--layers", "9"], "layers are 1 to 2"),
        (["--layers", ""], "names no layer"),
        (["--connection", "none", "--layers", "1"], "layers is given without a connection"),
        (["--connection", "ex-bert", "--solver", "anderson"], "nothing to solve"),
        (["--connection", "runge-kutta:ordr=4"], "ordr"),
        (["--solver", "anderson:steps=2.5"], "a whole number"),
        (["--connection", "im-birt"], "did you mean 'im-bert'"),
        (["--defence", "rifft"], "did you mean 'rift'"),
        (["--defence", "swap:variant=3"], "did you mean 'variants'"),
        (["--defence", "ascc+freelb"], "each of these is a whole objective"),
        (["--solver", "andersen"], "did you mean 'anderson'"),
        (["--solver", "anderson:steps=-1"], "steps"),
        (["--label-column", "lable"], "label"),
        (["--text-column", "body"], "body"),
        (["--select-by", "pws"], "did you mean 'pwws'"),
    ],
)
def test_a_mistake_in_train_is_one_line(monkeypatch, capsys, tiny, reviews, tmp_path, arguments, message):
    out = tmp_path / "run"
    command = ["train", "--task", reviews, "--model", tiny, "--out", out, "--cpu"]
    if "--connection" not in arguments:
        command += ["--connection", "im-bert"]
    code, _, err = run(monkeypatch, capsys, *command, *arguments)
    assert code == 2
    assert message in complaint(err)
    assert not out.exists()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "no rows"),
        ([(f"good {n}", "pos") for n in range(9)], "class"),
        ([("good film", "pos"), ("", "neg"), ("bad", "neg")], "row"),
    ],
)
def test_data_that_cannot_be_trained_on(monkeypatch, capsys, tiny, tmp_path, rows, message):
    path, out = write(tmp_path / "odd.csv", rows), tmp_path / "run"
    code, _, err = run(monkeypatch, capsys, "train", "--task", path, "--model", tiny, "--out", out, "--cpu")
    assert code == 2
    assert message in complaint(err)
    assert not out.exists()


def test_files_and_models_that_are_not_there(monkeypatch, capsys, tiny, reviews, tmp_path):
    for arguments in (
        ["train", "--task", tmp_path / "none.csv", "--model", tiny],
        ["train", "--task", reviews, "--model", tmp_path / "no-model"],
        ["train", "--task", "sst22", "--model", tiny],
        ["attack", tmp_path / "no-model", "--task", reviews],
        ["evaluate", tmp_path / "no-model", "--task", reviews],
        ["report", tmp_path / "none"],
        ["doctor", tmp_path / "no-model"],
        ["list", "defenses"],
    ):
        code, _, err = run(monkeypatch, capsys, *arguments)
        assert code == 2, (arguments, err)
        complaint(err)


def test_a_folder_without_weights(monkeypatch, capsys, tiny, tmp_path):
    folder = tmp_path / "other"
    AutoTokenizer.from_pretrained(tiny).save_pretrained(folder)
    GPT2Config(n_embd=8, n_layer=1, n_head=1).save_pretrained(folder)
    code, _, err = run(monkeypatch, capsys, "doctor", folder)
    assert code == 2
    assert "cannot load the model" in complaint(err)


def test_an_output_folder_that_cannot_be_written(monkeypatch, capsys, tiny, reviews, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    command = ["train", "--task", reviews, "--model", tiny, "--out", blocked, "--cpu", "--epochs", 1]
    code, _, err = run(monkeypatch, capsys, *command)
    assert code == 2
    assert f"'{blocked}' is a file" in err
    assert blocked.read_text() == "in the way"
