"""Large inputs: one long text, many labels, many rows. Work grows with the input, memory with what is kept."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from report_parts import made_evaluation, run, tiny_model, tokenizer, with_text

from unshaken import Victim
from unshaken.attacks import PWWS
from unshaken.errors import UnshakenError
from unshaken.examples import Example, Examples
from unshaken.reports import Report
from unshaken.reports.browser import edits
from unshaken.reports.html import page
from unshaken.substitutions import Dictionary
from unshaken.substitutions.words import segment
from unshaken.tasks import load_examples, load_task
from unshaken.tasks.sampling import text_key
from unshaken.training.collator import TextCollator

MEGABYTE = 1 << 20
# Each is a worst case of something: words, one word, markup that never ends, marks, entities, joints, emoji, numbers.
UNITS = (
    "a good film ", "x", "<a ", "<", "á", "&amp", "a-", "'s ", "👩\u200d👩\u200d👧", "1,0", "漢", "\u200d", "\x00", "🇦",
    "don't-", " ",
)  # fmt: skip


def long_text(unit: str, size: int = MEGABYTE) -> str:
    return (unit * (size // len(unit) + 1))[:size]


def seconds(work: Callable[[], Any]) -> float:
    times = []
    for _ in range(3):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def test_the_words_of_a_megabyte_are_found() -> None:
    words = segment.__wrapped__(long_text("a good film "))
    assert len(words) == 3 * MEGABYTE // 12 + 1
    assert words.replace(dict.fromkeys(range(len(words)), "x")).split() == ["x"] * len(words)


@pytest.mark.parametrize("unit", UNITS, ids=ascii)
def test_words_of_long_strange_texts_are_put_back(unit: str) -> None:
    text = long_text(unit, MEGABYTE // 16)
    words = segment.__wrapped__(text)
    assert words.replace(dict(enumerate(words.surfaces)), carry_case=False) == text


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS, ids=ascii)
@pytest.mark.parametrize("work", [segment.__wrapped__, lambda text: text_key((text,))], ids=["words", "keys"])
def test_time_grows_with_the_length_of_a_text(unit: str, work: Callable[[str], Any]) -> None:
    """Four times the text takes about four times as long; a quadratic step would take sixteen times."""
    quarter, whole = (seconds(lambda size=size: work(long_text(unit, size))) for size in (MEGABYTE, 4 * MEGABYTE))
    assert whole < 8 * quarter + 0.05


@pytest.fixture(params=[MEGABYTE // 8, pytest.param(MEGABYTE, marks=pytest.mark.slow)])
def long_examples(request: pytest.FixtureRequest) -> Examples:
    text = long_text("a good film ", request.param)
    return Examples(rows=(Example(id="0", texts=(text,), label=1), Example(id="1", texts=("a bad film",), label=0)))


def test_a_long_text_is_collated_to_what_the_model_reads(long_examples: Examples) -> None:
    batch = TextCollator(tokenizer(), max_length=32)(list(long_examples))
    assert batch["input_ids"].shape == (2, 32)


def test_a_long_text_is_attacked_in_the_words_the_model_reads(long_examples: Examples) -> None:
    victim = Victim.from_model(tiny_model(), tokenizer())
    labels = victim.log_probabilities(long_examples.texts).argmax(-1).tolist()
    rows = [Example(id=row.id, texts=row.texts, label=label) for row, label in zip(long_examples, labels, strict=True)]
    attack = PWWS(substitutions=Dictionary(entries={"good": ["fine", "great"], "film": ["movie"]}))
    results = attack(victim, long_examples.with_rows(rows))
    assert results.errors == 0
    assert results[0].queries < 1000  # the words behind the truncation cost nothing


def test_a_megabyte_is_reported() -> None:
    text = long_text("a good film ")
    written = page(Report(evaluations=(with_text(made_evaluation(run("xo"), total=2), text),)))
    assert written.count(text[:1000]) >= 1


def test_edits_of_long_texts_that_cannot_be_aligned_word_by_word() -> None:
    before = long_text("a good film ")
    after = before[:500] + "quite " + before[500:-500] + "not " + before[-500:]
    (start, stop, added), *others = edits(before, after)
    assert not others
    assert before[:start] + added + before[stop:] == after


def test_a_field_or_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unshaken.tasks.readers.LONGEST", 1000)
    for name, content in {
        "lost-quote.csv": 'text,label\n"never closed,1\n' + "a good film,1\n" * 500,
        "no-end.jsonl": '{"text": "' + "x" * 5000,
        "no-end.tsv": "text\tlabel\n" + "x" * 5000,
    }.items():
        (tmp_path / name).write_text(content)
        with pytest.raises(UnshakenError, match="line"):
            load_examples(tmp_path / name)


# -------------------------------------------------------------------------------------------------------- labels


@pytest.mark.full
def test_a_hundred_thousand_labels(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["text", "label"])
        writer.writerows([f"text {number}", f"class {number:06}"] for number in range(100_000))
    loaded = load_examples(path)
    assert loaded.num_labels == 100_000
    assert loaded.labels == list(range(100_000))
    with pytest.raises(UnshakenError, match=r"unknown label.*99,960 more") as caught:
        load_examples(path, label_names=[f"kind {number}" for number in range(100_000)])
    assert len(str(caught.value)) < 2000


def test_many_columns(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text("text,label," + ",".join(f"c{i}" for i in range(50_000)) + "\na film,1" + ",0" * 50_000 + "\n")
    assert len(load_examples(path)) == 1


# ---------------------------------------------------------------------------------------------------------- rows

# Not getrusage: its peak is carried over from the process that started this one.
READ = """
import re, sys, time
from pathlib import Path
from unshaken.tasks import load_examples

def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])

names, count = ("negative", "positive"), None if "all" in sys.argv else 100
load_examples(sys.argv[1], count=count, label_names=names)
small, start = peak(), time.perf_counter()
rows = load_examples(sys.argv[2], count=count, label_names=None if "infer" in sys.argv else names)
print(len(rows), small, peak(), round(time.perf_counter() - start, 1))
"""


def write_rows(path: Path, count: int) -> None:
    """A file of many rows, written row by row."""
    texts = (f"a gripping and funny film, number {number}, that nobody should miss" for number in range(count))
    if path.suffix == ".csv":
        with path.open("w") as stream:
            stream.write("text,label\n")
            stream.writelines(f'"{text}",{number % 2}\n' for number, text in enumerate(texts))
    elif path.suffix == ".tsv":
        with path.open("w") as stream:
            stream.write("text\tlabel\n")
            stream.writelines(f"{text}\t{number % 2}\n" for number, text in enumerate(texts))
    elif path.suffix == ".jsonl":
        with path.open("w") as stream:
            stream.writelines(
                json.dumps({"text": text, "label": number % 2}) + "\n" for number, text in enumerate(texts)
            )
    else:
        import pyarrow
        from pyarrow import parquet

        schema = pyarrow.schema({"text": pyarrow.string(), "label": pyarrow.int64()})
        with parquet.ParquetWriter(path, schema) as writer:
            for start in range(0, count, 100_000):
                numbers = range(start, min(count, start + 100_000))
                rows = {"text": [next(texts) for _ in numbers], "label": [number % 2 for number in numbers]}
                writer.write_table(pyarrow.table(rows, schema=schema))


def memory_to_read(folder: Path, suffix: str, count: int, *options: str) -> tuple[float, float]:
    """(growth of a process's memory in MB from a file of 1,000 rows to one of `count`, seconds)."""
    small, large = folder / f"small{suffix}", folder / f"large{suffix}"
    write_rows(small, 1000)
    write_rows(large, count)
    command = [sys.executable, "-c", READ, str(small), str(large), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    large.unlink()
    rows, before, after, took = map(float, done.stdout.split())
    assert rows == (count if "all" in options else 100)
    return (after - before) / 1024, took


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("suffix", [".csv", pytest.param(".parquet", marks=pytest.mark.slow)])
@pytest.mark.full
def test_memory_does_not_grow_with_the_file(tmp_path: Path, suffix: str) -> None:
    """200,000 rows held as examples take some 100 MB; drawn while reading they take next to nothing."""
    growth, _ = memory_to_read(tmp_path, suffix, 200_000)
    assert growth < 30
    if suffix == ".csv":
        assert memory_to_read(tmp_path, suffix, 200_000, "all")[0] > 60  # so the measurement sees what there is to see


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_ten_million_rows(tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    growth, took = memory_to_read(tmp_path, suffix, 10_000_000, "infer")
    with capsys.disabled():
        print(f"\n10,000,000 rows of {suffix}, read twice (labels, rows): {growth:.0f} MB more, {took:.0f} s")
    assert growth < 60


def test_rows_are_drawn_by_id_and_seed_alone(tmp_path: Path) -> None:
    path, shuffled = tmp_path / "rows.jsonl", tmp_path / "shuffled.jsonl"
    rows = [{"key": f"k{number}", "text": f"film {number}", "label": number % 2} for number in range(500)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    shuffled.write_text("".join(json.dumps(row) + "\n" for row in rows[::-1]))
    whole = load_examples(path, id_column="key")
    one = load_examples(path, id_column="key", count=50)
    assert {row.id for row in one} == {row.id for row in load_examples(shuffled, id_column="key", count=50)}
    assert {row.id for row in one} != {row.id for row in load_examples(path, id_column="key", count=50, seed=1)}
    assert {row.id for row in one} > {row.id for row in load_examples(path, id_column="key", count=20)}
    assert [row for row in whole if row in set(one)] == list(one)  # as they are, in the order of the file
    assert load_examples(path, id_column="key", count=1000) == whole
    with pytest.raises(UnshakenError, match="at least 1"):
        load_examples(path, count=0)


def test_a_bad_row_is_found_whether_it_is_drawn_or_not(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("text,label\n" + "a film,1\n" * 300 + ",1\n")
    with pytest.raises(UnshakenError, match="line 302 has an empty text"):
        load_examples(path, count=1)


def test_real_targets_are_not_collected_as_classes(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    path.write_text("text,score\n" + "".join(f"film {number},{number / 7}\n" for number in range(2000)))
    assert load_examples(path, label_column="score").is_regression
    assert load_task(path, label_column="score").task.label_names == ()
