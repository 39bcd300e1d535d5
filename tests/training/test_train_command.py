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


@pytest.mark.parametrize(("limit", "selecting"), [(8, 500), (600, 600), (None, 800)])
def test_a_limit_holds_for_the_rows_that_select_too(monkeypatch, tmp_path, limit, selecting):
    """64 rows to train on waited for the 13,000 held-out rows of SST-2 at every evaluation."""
    path = tmp_path / "reviews.csv"
    rows = [f"{word} film {number},{label}" for number in range(2000) for word, label in (("good", 1), ("bad", 0))]
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    plans = []

    def stop_before_training(plan):
        plans.append(plan)
        raise KeyboardInterrupt

    monkeypatch.setattr("unshaken.training.fine_tuning.fine_tune", stop_before_training)
    words = ["train", "--task", str(path), "--out", str(tmp_path / "run"), "--cpu"]
    monkeypatch.setattr(sys, "argv", ["unshaken", *words, *(["--limit", str(limit)] if limit else [])])
    with pytest.raises(SystemExit):
        main()
    (plan,) = plans
    assert len(plan.validation) == selecting
    assert len(plan.train) == (limit or 3200)
    assert not {example.id for example in plan.validation} & {example.id for example in plan.train}
