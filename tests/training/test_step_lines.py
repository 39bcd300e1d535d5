"""Progress of a training run off a terminal: few lines, and the time left by the steps so far."""

from __future__ import annotations

import time

import pytest

from unshaken.training.step_lines import StepLines


def test_ten_lines_with_the_time_left(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter(100.0 + 2.0 * step for step in range(200))  # after the first step, two seconds each
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    lines = StepLines()
    for done in range(1, 101):
        lines(done, 100)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 10
    assert said[4].endswith("step 50 of 100, about 100 s left")
    assert said[-1].endswith("step 100 of 100")
