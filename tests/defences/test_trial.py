"""The trial of all defences: its names build, its files survive a kill, and the contenders of SWAP train."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tiny import ready, run, tiny_model
from tiny_texts import text_step, tokenizer

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


@pytest.mark.parametrize("name", ["Memory", "Guided", "GuidedMemory", "Ramp", "Margin", "Labelled", "Detached"])
def test_contenders_cost_what_swap_costs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    contender = getattr(load("swap_variants", monkeypatch), name)
    model = tiny_model()
    defence = ready(contender(substitutions=WORDS), model, tokenizer())
    assert defence.passes().cost == SWAP().passes().cost
    for number in range(2):
        parts, gradients = run(defence, text_step(model, progress=number / 2))
        assert parts["swap"] > 0
        assert len(gradients) == len(list(model.parameters()))
