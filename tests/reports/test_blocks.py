"""Large files: blocks add up to what one evaluation finds, resume where they were, and a forecast keeps nothing."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console
from victims import TEXTS, WORD_LIST, bag_victim

from unshaken.attacks import PWWS, Random
from unshaken.errors import UnshakenError
from unshaken.evaluation import Tally, evaluate, evaluate_blocks, forecast
from unshaken.evaluation.blocks import Line
from unshaken.evaluation.forecast import _drawn_on, drawn
from unshaken.examples import Example, Examples
from unshaken.files import read_json, write_json
from unshaken.tasks import load_blocks, load_examples
from unshaken.victims import Victim

ATTACKS = [PWWS(substitutions=WORD_LIST), Random(substitutions=WORD_LIST, samples=5)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "large.jsonl"
    rows = [{"text": f"{TEXTS[n % len(TEXTS)]} {n}", "label": n % 2} for n in range(50)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def in_blocks(file: Path, out: Path, size: int = 20, **options: object) -> Tally:
    found = evaluate_blocks(bag_victim(), load_blocks(file, size), ATTACKS, out=out, **options)  # type: ignore[arg-type]
    assert found is not None
    return found


def counted(tally: Tally) -> dict[tuple[str, str], tuple[int, int]]:
    return {(line.model, line.condition): (line.held, line.total) for line in tally.lines}


def test_blocks_are_the_rows_of_the_file_with_the_same_ids(file: Path) -> None:
    whole, blocks = load_examples(file), list(load_blocks(file, 20))
    assert [len(block) for block in blocks] == [20, 20, 10]
    assert [row for block in blocks for row in block] == list(whole)
    assert {block.name for block in blocks} == {whole.name}


def test_a_block_without_labels_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "torn.jsonl"
    rows = [{"text": f"row {n}", "label": n % 2 if n < 6 else None} for n in range(9)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UnshakenError, match="label"):
        list(load_blocks(path, 3, label_names=("0", "1")))


def test_blocks_add_up_to_one_evaluation(file: Path, tmp_path: Path) -> None:
    tally = in_blocks(file, tmp_path / "out")
    report = evaluate(bag_victim(), load_examples(file), ATTACKS)
    whole = report.evaluations[0]
    expected = {
        (whole.model.name, name): (whole.accuracy(name).hits, whole.accuracy(name).total) for name in whole.conditions
    }
    assert counted(tally) == expected
    assert (tally.rows, tally.blocks) == (50, 3)
    assert {item.flag: item.blocks for item in tally.raised}["few-seeds"] == 3  # which every block raises
    lines = {line.condition: line for line in tally.lines}
    pwws = whole.run("pwws").counts
    assert 0 < pwws.attacked < 50
    assert lines["pwws"].queries / lines["pwws"].attacked == pytest.approx(pwws.queries["mean"])
    shown = Console(file=io.StringIO(), width=120)
    shown.print(tally)
    (row,) = (line for line in shown.file.getvalue().splitlines() if " pwws " in line)
    assert f" {pwws.queries['mean']:.0f} " in row
    assert lines["worst case"].seconds == pytest.approx(lines["pwws"].seconds + lines["random"].seconds)
    assert Tally.load(tmp_path / "out" / "totals.json") == tally


def test_the_majority_is_that_of_all_rows_in_a_file_that_is_sorted_by_its_labels(tmp_path: Path) -> None:
    """No model does better than the one label of a block; of the whole file each label is a half."""
    rows = tuple(Example(id=str(number), texts=(str(number),), label=number // 10) for number in range(20))
    blocks = [Examples(rows=rows[start : start + 5], name="sorted") for start in range(0, 20, 5)]

    def tally(right: int) -> Tally:
        """Of a model that answers so many of each five rightly."""

        def answers(texts: list[str]) -> np.ndarray:
            first = [(int(text) < 10) == (int(text) % 5 < right) for text in texts]
            return np.array([[0.9, 0.1] if own else [0.1, 0.9] for own in first])

        victim, out = Victim.from_callable(answers, 2, name="counting"), tmp_path / str(right)
        found = evaluate_blocks(victim, blocks, out=out)
        assert evaluate_blocks(victim, blocks, out=out, resume=True) == found == Tally.load(out / "totals.json")
        assert found is not None
        return found

    better, worse = tally(3), tally(2)
    assert counted(better) == {("counting", "clean"): (12, 20)}
    assert {item.flag: item.blocks for item in better.raised} == {"few-seeds": 4}
    (flag,) = [item for item in worse.raised if item.flag == "below-majority"]
    assert flag.subject == "counting on sorted"
    assert flag.evidence == "accuracy 40.0 [21.9, 61.3] against 50.0 for the most frequent label"
    screen = Console(file=io.StringIO(), width=200)
    screen.print(worse)
    assert f"{flag.evidence} (over all blocks)" in screen.file.getvalue()


def test_a_resumed_run_opens_no_finished_block_and_ends_the_same(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    whole = in_blocks(file, out)
    shutil.rmtree(out / "blocks" / "000001")
    (out / "totals.json").unlink()
    for kept in (out / "blocks" / "000000").iterdir():  # all but the tally: nothing else may be read
        if kept.name != "tally.json":
            shutil.rmtree(kept) if kept.is_dir() else kept.unlink()
    again = in_blocks(file, out, resume=True)
    assert counted(again) == counted(whole)
    assert again.identity == whole.identity


def test_a_tally_of_an_earlier_release_is_counted_anew(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    whole = in_blocks(file, out)
    path = out / "blocks" / "000000" / "tally.json"
    found = {name: item for name, item in read_json(path).items() if name != "check"}
    for line in found["lines"]:
        del line["attacked"]
    del found["labels"], found["data"]
    write_json(path, found)
    again = in_blocks(file, out, resume=True)
    assert [replace(line, seconds=0) for line in again.lines] == [replace(line, seconds=0) for line in whole.lines]


def test_what_was_begun_otherwise_is_not_gone_on_with(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    in_blocks(file, out)
    with pytest.raises(UnshakenError, match="resume"):
        in_blocks(file, out)
    for options in ({"size": 25}, {"seed": 1}):
        with pytest.raises(UnshakenError, match="other rows"):
            in_blocks(file, out, resume=True, **options)
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:40]))
    with pytest.raises(UnshakenError, match="000002 is of a longer set"):
        in_blocks(file, out, resume=True)


def test_a_bent_tally_is_refused(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    in_blocks(file, out)
    path = out / "blocks" / "000000" / "tally.json"
    good = path.read_text()
    count = read_json(path)["lines"][0]["held"]
    path.write_text(good.replace(f'"held": {count}', f'"held": {count - 1}', 1))
    with pytest.raises(UnshakenError, match="was damaged or changed after it was written"):
        in_blocks(file, out, resume=True)
    path.write_text(good)
    in_blocks(file, out, resume=True)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("held", -1, "-1 of 20 held"),
        ("held", 21, "21 of 20 held"),
        ("total", 21, "of 21 held, of 20 rows"),
        ("errors", 1, "of 20 held, of 20 rows"),
        ("queries", -1, "of 20 held"),
        ("seconds", -0.5, "of 20 held"),
        ("condition", "pwws", "two lines of one model and condition"),
        ("hold", 1, "hold"),
        ("labels", {"0": 9, "1": 10}, "labels of 19 rows, of 20"),
        ("labels", {"0": 21, "1": -1}, "labels of 20 rows, of 20"),
        ("labels", {}, "labels of 0 rows, of 20"),
    ],
)
def test_a_tally_that_contradicts_itself_is_refused(key, value, reason, file: Path, tmp_path: Path) -> None:
    """Also one without a check, as earlier releases wrote them."""
    out = tmp_path / "out"
    in_blocks(file, out)
    path = out / "blocks" / "000000" / "tally.json"
    found = {name: item for name, item in read_json(path).items() if name != "check"}
    write_json(path, found)
    in_blocks(file, out, resume=True)
    (found if key == "labels" else found["lines"][0])[key] = value
    write_json(path, found)
    with pytest.raises(UnshakenError, match=reason):
        in_blocks(file, out, resume=True)


def test_a_set_of_which_every_example_ended_in_an_error_is_shown() -> None:
    line = Line(model="m", condition="pwws", held=0, total=0, errors=4, queries=9)
    shown = Console(file=io.StringIO())
    shown.print(Tally(identity="", rows=4, blocks=1, lines=(line,), raised=(), data="", labels={"0": 4}))
    assert "none" in shown.file.getvalue()


def test_drawn_rows_are_of_all_blocks_and_do_not_depend_on_their_size(file: Path) -> None:
    some, *counted = drawn(load_blocks(file, 7), seed=0, count=12)
    same, *whole = drawn(load_blocks(file, 50), seed=0, count=12)
    assert (counted, whole) == ([50, 8], [50, 1])  # rows and blocks
    assert list(some) == list(same)
    assert len({row.id for row in some}) == 12
    assert any(int(row.id.removeprefix("test/")) > 30 for row in some)


def test_a_forecast_measures_rows_once_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    asked: list[str] = []
    victim = bag_victim()
    answer = victim.function

    def listening(texts: list[str]) -> object:
        asked.extend(texts)
        return answer(texts)

    victim.function = listening
    rows = tuple(Example(id=str(n), texts=(f"a good film {n}",), label=1) for n in range(64))
    found = forecast([victim], Examples(rows=rows), ATTACKS[:1], rows=640)
    assert found.rows == 640
    assert found.measured_rows <= 64
    assert found.seconds > 0
    assert list(tmp_path.iterdir()) == []
    begun = [text for text in asked if text.startswith("a good film")]
    assert len(set(begun)) == found.measured_rows


def test_a_forecast_is_what_a_run_takes_where_every_text_takes_as_long(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A second a text by the clock of the wall, and a quarter of one by that of the processor."""
    answer, asked = bag_victim().function, [0]

    def counting(texts: list[str]) -> object:
        asked[0] += len(texts)
        return answer(texts)

    def some(count: int) -> Examples:
        return Examples(rows=tuple(Example(id=str(n), texts=(f"a good film {n}",), label=1) for n in range(count)))

    victim = Victim.from_callable(counting, 2, name="counting")
    evaluate(victim, some(100))
    beside = asked[0] - 100  # what probes ask, of any set of so many
    clock = SimpleNamespace(perf_counter=lambda: 100 + asked[0], process_time=lambda: 7 + asked[0] / 4)
    monkeypatch.setitem(forecast.__globals__, "time", clock)
    evaluate(victim, some(64), out=tmp_path)
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    for blocks in (1, 3):
        found = forecast([victim], some(512), [], rows=10_000, blocks=blocks)
        assert found.seconds == pytest.approx(10_000 + blocks * beside)
        assert found.processor_seconds == pytest.approx(found.seconds / 4)
        assert found.measured_rows == 32 + 32 + 64  # the first to warm up; the last takes long enough
        assert (found.measured_seconds, found.measured_processor_seconds) == (128 + 3 * beside, 32 + 3 * beside / 4)
        assert found.bytes == pytest.approx(10_000 * size / 64, rel=0.02)
        assert "and 3 MB of files, measured on 128 rows" in str(replace(found, bytes=2_600_000))
    assert forecast([victim], some(1), [], rows=10).measured_rows == 1 + 1  # the same again, as the first warms up
    assert forecast([victim], some(3), [], rows=10).measured_rows == 1 + 1
    clock.perf_counter = lambda: asked[0] / ((48 + beside) / 10)  # 32 rows are too quick, and 64 are not
    assert forecast([victim], some(512), [], rows=10_000).measured_rows == 32 + 32 + 64
    clock.perf_counter = lambda: asked[0] / 100  # too quick for the clock: more rows, as long as there are any
    found = forecast([victim], some(512), [], rows=10_000)
    assert found.measured_rows == 32 + 32 + 64 + 128 + 256
    assert found.seconds == pytest.approx((10_000 + beside) / 100)
    asked[0], slow = 0, 2 * (32 + beside)  # what is asked in the first two measurements
    clock.perf_counter = lambda: min(asked[0], slow) + max(0, asked[0] - slow) / 100
    found = forecast([victim], some(512), [], rows=10_000)
    assert found.seconds == pytest.approx((10_000 + beside) / 100)  # by the last three, which are the largest


def test_a_forecast_counts_calibrated_twins_of_a_model_that_is_always_right() -> None:
    """No temperature is best on such rows, and what the twin asks takes as long at any."""
    rows = Examples(rows=tuple(Example(id=str(n), texts=(f"a good film {n}",), label=1) for n in range(16)))
    asked = {}
    for calibrate in (False, True):
        victim = bag_victim()
        answer, texts = victim.function, []
        victim.function = lambda some, answer=answer, texts=texts: (texts.extend(some), answer(some))[1]
        assert evaluate(victim, rows).evaluations[0].accuracy("clean").value == 1
        texts.clear()
        assert forecast([victim], rows, ATTACKS[:1], rows=160, calibrate=calibrate).measured_rows <= 16
        asked[calibrate] = len(texts)
    assert asked[True] == 2 * asked[False]


def test_the_forecast_is_a_line_through_the_measurements() -> None:
    counts = np.array([256.0, 512.0, 1024.0])
    assert _drawn_on(counts, 2 + 0.01 * counts, 100_000, 1) == pytest.approx(1002)
    assert _drawn_on(counts, 2 + 0.01 * counts, 100_000, 50) == pytest.approx(1100)  # every block begins anew
    assert _drawn_on(counts[-1:], np.array([10.0]), 2048, 1) == pytest.approx(20)
    assert _drawn_on(counts, np.array([3.0, 2.0, 1.0]), 2048, 1) == pytest.approx(2)  # noise: no time runs backwards
    assert _drawn_on(counts, 0.01 * counts - 2, 102_400, 50) == pytest.approx(824)  # nor does one begin below nothing


@pytest.mark.full
def test_commands(unshaken, refused, tiny, file: Path, tmp_path: Path) -> None:
    (tmp_path / "words.json").write_text(json.dumps({key: list(value) for key, value in WORD_LIST.entries.items()}))
    fixed = ["--device", "cpu", "--substitutions", f"dictionary:path={tmp_path / 'words.json'}"]
    fixed += ["--attack", "random:samples=2"]
    code, text, err = unshaken("attack", tiny, file, *fixed, "--dry-run", "--out", tmp_path / "none")
    assert code == 0, err
    assert "50 rows: about" in text
    assert not (tmp_path / "none").exists()
    for command in ("attack", "evaluate"):
        out = tmp_path / command
        words = [command, tiny, file, *fixed, "--block", 20, "--out", out]
        code, text, err = unshaken(*words)
        assert code == 0, err
        assert "50 rows in 3 blocks" in text
        assert Tally.load(out / "totals.json").rows == 50
        assert "resume" in refused(*words)
        assert unshaken(*words, "--resume")[0] == 0
    assert "leave one out" in refused("attack", tiny, file, *fixed, "--block", 20, "-n", 5, "--out", tmp_path / "n")
    assert "is none" in refused("attack", tiny, "sst2", *fixed, "--block", 20, "--out", tmp_path / "n")
