"""Options of `unshaken train` that reach the trainer."""

from __future__ import annotations

import sys

import pytest

from unshaken.cli import main


def test_what_to_do_with_lost_numbers_is_checked(monkeypatch, capsys, tmp_path):
    path = tmp_path / "reviews.csv"
    rows = [f"{word} film {number},{label}" for number in range(9) for word, label in (("good", 1), ("bad", 0))]
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    words = ["train", "--task", str(path), "--out", str(tmp_path / "run"), "--cpu", "--on-nonfinite", "ignore"]
    monkeypatch.setattr(sys, "argv", ["unshaken", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert capsys.readouterr().err.endswith("error: on_nonfinite is 'ignore'; it is 'stop' or 'skip'\n")
