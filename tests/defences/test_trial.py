"""The trial of all defences: its names build, and its files survive a kill."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from unshaken.defences import SWAP
from unshaken.substitutions import Dictionary

WORDS = Dictionary(entries={"good": ["fine and great", "poor"], "bad": ["poor", "awful"], "film": ["movie"]})
FOLDER = Path(__file__).parents[2] / "experiments"


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [*sys.path])  # the script puts its checkout there
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def test_every_name_builds_and_gets_the_substitutions(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = load("defence_trial", monkeypatch)
    reading = {spec for spec in trial.DEFENCES if spec.startswith(("ascc", "rift", "swap"))}
    for spec in trial.DEFENCES:
        defence = trial.make_defence(spec, WORDS)
        sets = [part.substitutions for part in defence.modules() if hasattr(part, "substitutions")]
        assert sets == ([WORDS] if spec in reading else [])


def test_a_killed_trial_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = load("defence_trial", monkeypatch)
    monkeypatch.setattr(trial, "stages_of", lambda run, settings: iter([("train", {"steps": 2})]))
    out = tmp_path / "trial.jsonl"
    out.write_text('{"run": "torn')
    numbers = dict.fromkeys(("rows", "epochs", "batch_size", "max_length", "attacked", "unseen"), 1)
    numbers |= {"population": 2, "generations": 1, "deadline": float("inf")}
    settings = trial.Settings(data="", out=str(out), stages=("train",), **numbers)
    first = trial.Run(encoder="e", folder="f", learning_rate=1e-4, defence="swap", seed=0)
    assert trial.carry_out(first, settings) == "done"
    assert trial.finished_keys(out) == {"e/swap/0"}
    assert [line["stage"] for line in trial.read_lines(out)] == ["train", "done"]

    def break_down(run: object, settings: object) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(trial, "stages_of", break_down)
    second = trial.Run(encoder="e", folder="f", learning_rate=1e-4, defence="swap", seed=1)
    assert "no memory" in trial.carry_out(second, settings)
    assert trial.finished_keys(out) == {"e/swap/0"}


def test_options_of_a_defence_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    defence = load("defence_trial", monkeypatch).make_defence("swap:greed=0.7", WORDS)
    assert isinstance(defence, SWAP)
    assert (defence.greed, defence.substitutions) == (0.7, WORDS)
    assert defence.passes() == SWAP().passes()
