"""`experiments/own_data.py`: public files as own data, with the labels that their authors gave."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from unshaken.tasks import load_task
from unshaken_experiments.inputs import COUNTER_FITTED_FILE

SCRIPT = Path(__file__).parents[2] / "experiments" / "own_data.py"


@pytest.fixture
def public(tmp_path: Path) -> Path:
    """The three files as they are published: a text says which label is right."""
    data = tmp_path / "data"
    for folder in ("sms_spam", "hate_speech", "ag_news"):
        (data / folder).mkdir(parents=True)
    (data / COUNTER_FITTED_FILE).write_text("{}")
    spam = [f"ham\t\"hello {number}, it's a ham" for number in range(40)] + ["spam\twin a spam"] * 3
    spam += [f"spam\tspam {number}" for number in range(10)]
    (data / "sms_spam" / "SMSSpamCollection.tsv").write_text("\n".join(["Label\tSMS", *spam]))
    with (data / "hate_speech" / "labeled_data.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["", "count", "hate_speech", "offensive_language", "neither", "class", "tweet"])
        for number in range(60):
            kind = min(number // 10, 2)
            writer.writerow([number, 3, 0, 0, 0, kind, f"{('hate', 'offensive', 'neither')[kind]}\n{number}, x"])
    with (data / "ag_news" / "test.csv").open("w", newline="") as stream:
        for number in range(80):
            kind = number % 4
            row = [kind + 1, f"{('world', 'sports', 'business', 'science')[kind]} {number}", 'says "no", twice']
            csv.writer(stream, quoting=csv.QUOTE_ALL).writerow(row)
    return data


def make(data: Path, out: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(SCRIPT), "--data", str(data), "--out", str(out)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_rows_keep_their_labels_and_test_rows_are_balanced_and_new(public: Path, tmp_path: Path) -> None:
    done = make(public, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / COUNTER_FITTED_FILE).is_file()
    for name, held_out in (("spam", 3), ("tweets", 2), ("news", 4)):  # a fifth of the rarest label
        data = load_task(tmp_path / "out" / "own" / name, protocol="official")
        train, test = data.require("train"), data.require("test")
        for rows in (train, test):
            assert all(rows.label_names[int(row.label)] in row.texts[0] for row in rows)
        assert set(Counter(test.labels).values()) == {held_out}
        assert set(test.labels) == set(train.labels) == set(range(len(train.label_names)))
        assert not {row.texts for row in train} & {row.texts for row in test}
    again = make(public, tmp_path / "again")
    assert again.stdout == done.stdout
    for path in (tmp_path / "out").rglob("*.jsonl"):
        assert path.read_bytes() == (tmp_path / "again" / path.relative_to(tmp_path / "out")).read_bytes()


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    done = make(tmp_path, tmp_path / "out")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "SMSSpamCollection.tsv" in done.stderr
    assert done.stderr.count("\n") == 1
