"""Full and read-only disks, and damaged results files: one line says what is wrong, and what was finished is kept."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from report_parts import made_evaluation, run
from tiny_commands import make_arguments
from victims import WORD_LIST, bag_of_words, bag_victim, labelled

from unshaken.attacks import PWWS, AttackResults, Victim
from unshaken.attacks.storage import ResultsFile
from unshaken.cli import main
from unshaken.errors import UnshakenError
from unshaken.evaluation import Report, Tally, evaluate_blocks
from unshaken.evaluation.clean_predictions import _stored, answer_share
from unshaken.processes import Shard
from unshaken.victims.http import HttpVictim
from unshaken_experiments.runs import Measured, Outcome, Run, Settings, load_outcome

ATTACK = PWWS(substitutions=WORD_LIST)
TEXTS = [f"a good film with a bad plot, number {number}" for number in range(60)]


def mount(*words: str) -> bool:
    return subprocess.run(["mount", *words], capture_output=True, check=False).returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 8 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        is_mounted = mount("-t", "tmpfs", "-o", "size=8k", "tmpfs", str(folder))
    except FileNotFoundError:
        is_mounted = False
    if not is_mounted:
        pytest.skip("this user may not mount a disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return make_arguments(tmp_path_factory.mktemp("model"))


def plain(results: AttackResults) -> list[dict[str, Any]]:
    return [{key: value for key, value in asdict(row).items() if key != "seconds"} for row in results]


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> Any:
    monkeypatch.setattr(sys, "argv", ["unshaken", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code


@pytest.mark.parametrize("shard", [Shard(), Shard(rank=0, count=2)])
def test_a_full_disk_keeps_what_is_finished(small_disk: Path, shard: Shard) -> None:
    victim, out = bag_victim(), small_disk / "run.jsonl"
    examples = labelled(victim, TEXTS)
    with pytest.raises(UnshakenError, match=r"No space left on device; finished examples are kept, resume"):
        ATTACK(victim, examples, out=out, shard=shard, in_flight=4)
    assert mount("-o", "remount,size=4m", str(small_disk))
    asked: list[str] = []

    def counting(texts: list[str]) -> Any:
        asked.extend(texts)
        return bag_of_words(texts)

    results = ATTACK(Victim.from_callable(counting, 2, name="bag"), examples, out=out, resume=True)
    assert plain(results) == plain(ATTACK(victim, examples))
    assert len(set(asked) & {row.texts[0] for row in examples}) < len(examples)
    assert sorted(row.example_id for row in AttackResults.from_jsonl(out)) == sorted(row.id for row in examples)


def test_commands_on_a_full_disk(
    small_disk: Path,
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(monkeypatch, "evaluate", *arguments, "--out", str(tmp_path / "run")) == 0
    for words in (
        ["attack", *arguments, "--out", str(small_disk / "attack")],
        ["report", str(tmp_path / "run"), "--out", str(small_disk / "report.html")],
        ["report", str(tmp_path / "run"), "--out", str(tmp_path / "r.html"), "--figures", str(small_disk / "figures")],
    ):
        assert call(monkeypatch, *words) == 2
        shown = capsys.readouterr().err
        assert shown.count("error: cannot write ") == 1
        assert f"{small_disk}/" in shown
        assert "No space left on device" in shown
    assert not list(small_disk.rglob("report.html"))


def test_commands_on_a_read_only_disk(
    small_disk: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mount("-o", "remount,ro", str(small_disk))
    for name in ("attack", "evaluate"):
        assert call(monkeypatch, name, *arguments, "--out", str(small_disk / "run")) == 2
        shown = capsys.readouterr().err
        assert shown.startswith(f"error: cannot write {small_disk}/run")  # before the model is loaded
        assert shown.endswith("Read-only file system\n")
        assert shown.count("\n") == 1


def test_a_file_where_the_folder_should_be(
    tmp_path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    for name in ("attack", "evaluate"):
        assert call(monkeypatch, name, *arguments, "--out", str(tmp_path / "file")) == 2
        assert f"Invalid value for '--out': dir '{tmp_path}/file' is a file." in " ".join(
            capsys.readouterr().err.split()
        )


def test_a_second_run_on_one_folder(
    tmp_path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = (
        "import sys\nfrom unshaken.files import locked\nwith locked(sys.argv[1]): print(flush=True), sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdin=-1, stdout=-1) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        for name in ("attack", "evaluate"):
            assert call(monkeypatch, name, *arguments, "--out", str(tmp_path)) == 2
            assert f"is in use by process {holder.pid} on " in capsys.readouterr().err
        holder.communicate(b"")


def test_two_runs_do_not_write_to_one_file(tmp_path: Path) -> None:
    victim, out = bag_victim(), tmp_path / "run.jsonl"
    examples = labelled(victim, TEXTS[:4])
    with (
        ResultsFile(out, ATTACK.no_results(victim).header(), resume=False, shard=Shard()),
        pytest.raises(UnshakenError, match=r"run\.jsonl is being written by another process"),
    ):
        ATTACK(victim, examples, out=out, resume=True)
    assert len(ATTACK(victim, examples, out=out, resume=True)) == 4


@pytest.mark.parametrize("tail", [b'{"example_id": "e', b"\0" * 500, b'{"example_id": \xff"e1"}\n', b"}{\n"])
def test_a_damaged_tail_is_said_and_left_out(tail: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    victim, out = bag_victim(), tmp_path / "run.jsonl"
    examples = labelled(victim, TEXTS[:8])
    whole = ATTACK(victim, examples, out=out)
    lines = out.read_bytes().splitlines(keepends=True)
    out.write_bytes(b"".join(lines[:5]) + tail)
    assert len(AttackResults.from_jsonl(out)) == 4
    assert f"note: {out}: the last line is damaged; the 4 results before it are used" in capsys.readouterr().err
    assert plain(ATTACK(victim, examples, out=out, resume=True)) == plain(whole)
    assert "the 4 results before it are used" in capsys.readouterr().err
    assert len(AttackResults.from_jsonl(out)) == 8
    assert capsys.readouterr().err == ""


def test_damage_in_the_middle_is_named_and_costs_nothing_but_its_line(tmp_path: Path) -> None:
    victim, out = bag_victim(), tmp_path / "run.jsonl"
    examples = labelled(victim, TEXTS[:8])
    whole = ATTACK(victim, examples, out=out)
    lines = out.read_bytes().splitlines(keepends=True)
    out.write_bytes(b"".join([*lines[:3], lines[3][:40] + b"\n", *lines[4:]]))
    damaged = out.read_bytes()
    with pytest.raises(UnshakenError, match=r"line 4 is not JSON .*; remove that line to go on without it"):
        ATTACK(victim, examples, out=out, resume=True)
    assert out.read_bytes() == damaged
    out.write_bytes(b"".join([*lines[:3], *lines[4:]]))
    assert plain(ATTACK(victim, examples, out=out, resume=True)) == plain(whole)


def results_of(out: Path) -> Callable[[], Any]:
    victim = bag_victim()
    ATTACK(victim, labelled(victim, TEXTS[:3]), out=out)
    return lambda: list(AttackResults.from_jsonl(out))


def report_of(out: Path) -> Callable[[], Any]:
    Report(evaluations=(made_evaluation(run("xo-!"), total=4),)).save(out)
    return lambda: [Report.load(out)]


def tally_of(out: Path) -> Callable[[], Any]:
    victim = bag_victim()
    evaluate_blocks(victim, [labelled(victim, TEXTS[:3])], [ATTACK], out=out.parent / "run")
    shutil.copy(out.parent / "run" / "blocks" / "000000" / "tally.json", out)
    return lambda: [Tally.load(out)]


def answers_of(out: Path) -> Callable[[], Any]:
    victim, whole = bag_victim(), out.with_name("answers.jsonl")
    answer_share(victim, labelled(victim, TEXTS[:8]), whole, Shard(rank=1, count=2), resume=False)
    return lambda: list(_stored(whole).values())


def asked_of(out: Path) -> Callable[[], Any]:
    def open_cache() -> HttpVictim:
        return HttpVictim("http://127.0.0.1:9", label_names=("a", "b"), request={"inputs": "$texts"}, cache=out)

    victim = open_cache()
    victim._send = lambda body: [[0.25, 0.75], [0.5, 0.5]]  # type: ignore[method-assign]
    victim._ask([("a film",), ("a plot",)])
    return lambda: list(open_cache()._known.items())


def outcome_of(out: Path) -> Callable[[], Any]:
    measured = Measured(held="01?1", majority=0.5, data="ab")
    run = Run(encoder="minilm", seed=0, settings=Settings(task="sst2"))
    Outcome(run=run, training={"seconds": 1.5}, measured={"sst2 clean": measured}).save(out.parent).rename(out)
    return lambda: [load_outcome(out)]


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("run.jsonl", results_of),
        ("report.json", report_of),
        ("tally.json", tally_of),
        ("answers.part-1-of-2.jsonl", answers_of),
        ("asked.jsonl", asked_of),
        ("outcome.json", outcome_of),
    ],
)
def test_a_bit_that_turns_is_no_other_result(name: str, make: Callable[[Path], Any], tmp_path: Path) -> None:
    """Digits and letters turn into others: without a check of the text the file would read well."""
    out = tmp_path / name
    read = make(out)
    good, whole, draw, lost = out.read_bytes(), read(), random.Random(0), 0
    assert whole
    for _ in range(400):
        bent = bytearray(good)
        bent[draw.randrange(len(bent))] ^= 1 << draw.randrange(8)
        out.write_bytes(bent)
        try:
            found = read()
        except UnshakenError:
            found = []
        assert all(item in whole for item in found), bent
        lost += len(found) < len(whole)
    assert lost > 200
