"""Training that is killed and resumed ends with the bytes and the log of a run that nobody disturbed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from bert import random_bert
from harness import Command, finish, kill_and_resume, moments, start
from transformers import AutoTokenizer

from unshaken.embedded import minilm_path
from unshaken.training.checkpoints import last_complete

CLOCK = ("runtime", "per_second")  # what a log says of the machine, not of the training


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A run with all that a checkpoint must hold: dropout, a teacher, a defence's own weights, balanced batches."""
    folder = tmp_path_factory.mktemp("tiny")
    AutoTokenizer.from_pretrained(minilm_path()).save_pretrained(folder)
    random_bert().save_pretrained(folder)
    rows = "".join(f"{word} film number {n},{label}\n" for n in range(15) for word, label in (("good", 1), ("bad", 0)))
    (folder / "reviews.csv").write_text("text,label\n" + rows)
    training = "--cpu --batch-size 2 --epochs 5 --learning-rate 1e-3"
    method = "--connection implicit --layers 2 --defence informative:on=clean"
    data = ["--task", str(folder / "reviews.csv"), "--model", str(folder)]
    return ["train", *data, *training.split(), *method.split()]


def outcome(out: Path) -> tuple[bytes, list[dict[str, float]], list[str]]:
    """The model, the log and the names of all files."""
    found = last_complete(out / "checkpoints").folder
    assert found is not None
    history = json.loads((found / "trainer_state.json").read_text())["log_history"]
    rows = [{key: row[key] for key in row if not key.endswith(CLOCK)} for row in history]
    files = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    return (out / "model" / "model.safetensors").read_bytes(), rows, files


@pytest.fixture(scope="module")
def undisturbed(words: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """A run nobody disturbed, and how long it takes."""
    folder = tmp_path_factory.mktemp("undisturbed")
    finish(Command(words=["--version"]), folder / "log")  # waits for the imports
    return folder / "run", finish(train(words, folder / "run"), folder / "log")


def train(words: list[str], out: Path) -> Command:
    return Command(words=[*words, "--out", str(out)])


def survive(words: list[str], undisturbed: tuple[Path, float], folder: Path, kills: int, seed: int) -> None:
    expected = outcome(undisturbed[0])
    assert any("loss" in row for row in expected[1])
    when, done = moments(seed, undisturbed[1]), 0
    while done < kills:
        out = folder / f"run-{done}"
        done += kill_and_resume(train(words, out), list(islice(when, 3)), folder / "log")
        assert outcome(out) == expected
        shutil.rmtree(out)


def test_killed_at_random_moments(words: list[str], undisturbed: tuple[Path, float], tmp_path: Path) -> None:
    survive(words, undisturbed, tmp_path, kills=2, seed=1)


@pytest.mark.slow
def test_killed_thirty_times(words: list[str], undisturbed: tuple[Path, float], tmp_path: Path) -> None:
    survive(words, undisturbed, tmp_path, kills=30, seed=2)


def test_equal_runs_give_equal_bytes(words: list[str], tmp_path: Path) -> None:
    """In a forked process and in one of its own, whose hashes differ."""
    deterministic = [*words, "--deterministic", "--epochs", "1", "--save-steps", "5"]
    finish(Command(words=[*deterministic, "--out", str(tmp_path / "first")]), tmp_path / "log")
    command = [sys.executable, "-m", "unshaken", *deterministic, "--out", str(tmp_path / "second")]
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    digests = [
        hashlib.sha256((tmp_path / run / "model" / name).read_bytes()).hexdigest()
        for name in ("model.safetensors", "config.json", "tokenizer.json")
        for run in ("first", "second")
    ]
    assert digests[::2] == digests[1::2]
    assert {path.name for path in (tmp_path / "first" / "checkpoints").glob("checkpoint-*")} >= {"checkpoint-5"}


def test_another_run_does_not_go_on_here(words: list[str], undisturbed: tuple[Path, float], tmp_path: Path) -> None:
    changed = Command(words=[*train(words, undisturbed[0]).words, "--seed", "3", "--resume"])
    process = start(changed, tmp_path / "log")
    process.join()
    assert process.exitcode == 2
    assert "holds another run: its seed is 0, now 3; resume it as it was started" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--learning-rate", "3e-3"], "its learning rate is 0.001, now 0.003"),
        (["--epochs", "6"], "its num train epochs is 5.0, now 6.0"),
        (["--batch-size", "4"], "its per device train batch size is 2, now 4"),
        (["--max-length", "16"], "its max length is 128, now 16"),
        (["--save-steps", "5"], "its eval steps is None, now 5"),  # which would choose among others
    ],
)
def test_other_arguments_are_another_run(
    words: list[str], undisturbed: tuple[Path, float], tmp_path: Path, options: list[str], said: str
) -> None:
    """Its record would tell them, though the model was trained by those before."""
    model = undisturbed[0] / "model"
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    process = start(Command(words=[*train(words, undisturbed[0]).words, *options, "--resume"]), tmp_path / "log")
    process.join()
    assert process.exitcode == 2
    assert said in (tmp_path / "log").read_text()
    assert {path.name: path.read_bytes() for path in model.iterdir()} == before


def test_a_run_that_had_ended_keeps_its_record_and_its_time(
    words: list[str], undisturbed: tuple[Path, float], tmp_path: Path
) -> None:
    out, log = tmp_path / "run", tmp_path / "log"
    shutil.copytree(undisturbed[0], out)
    records = []
    for again in (False, True):
        if again:
            finish(train(words, out), log, resume=True)
        records.append(json.loads((out / "model" / "unshaken_training.json").read_text()))
    seconds = [record["details"].pop("seconds") for record in records]
    assert records[0] == records[1]
    assert "nothing was left to train: the run had ended at step 60" in log.read_text()
    assert seconds[1] > 0.8 * seconds[0]  # and not those of a run that did nothing


def test_rate_and_epochs_that_were_chosen_stay_so_when_a_run_goes_on(words: list[str], tmp_path: Path) -> None:
    """What suits is another rate for other rows per step, as with more processes; a run has one schedule."""
    chosen = [word for word in words if word not in ("--epochs", "5", "--learning-rate", "1e-3")]
    chosen = [*chosen, "--limit", "8"]
    finish(train(chosen, tmp_path / "run"), tmp_path / "log")
    plan = tmp_path / "run" / "checkpoints" / "plan.json"
    kept = json.loads(plan.read_text())
    kept["arguments"] |= {"learning_rate": 1.25e-4}
    plan.write_text(json.dumps(kept))
    finish(train(chosen, tmp_path / "run"), tmp_path / "log", resume=True)
    record = json.loads((tmp_path / "run" / "model" / "unshaken_training.json").read_text())
    assert record["details"]["arguments"]["learning_rate"] == 1.25e-4


def test_damaged_checkpoints_are_left_out_by_name(
    words: list[str], undisturbed: tuple[Path, float], tmp_path: Path
) -> None:
    expected, out, log = outcome(undisturbed[0]), tmp_path / "run", tmp_path / "log"
    shutil.copytree(undisturbed[0], out)
    checkpoints = (out / "checkpoints").glob("checkpoint-*")
    older, newer = sorted(checkpoints, key=lambda path: int(path.name.split("-")[1]))
    (newer / "seal.json").unlink()  # killed before the end
    finish(train(words, out), log, resume=True)
    assert f"note: {newer.name} is left out: its writing was cut off" in log.read_text()
    assert outcome(out) == expected
    for checkpoint in (older, newer):
        changed = bytearray((checkpoint / "optimizer.safetensors").read_bytes())
        changed[-1] ^= 1
        (checkpoint / "optimizer.safetensors").write_bytes(changed)
    finish(train(words, out), log, resume=True)
    assert f"note: {older.name} is left out: optimizer.safetensors has changed since it was written" in log.read_text()
    assert "holds no checkpoint that can be used; training starts from the beginning" in log.read_text()
    assert outcome(out) == expected
