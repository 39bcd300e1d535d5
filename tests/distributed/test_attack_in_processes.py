"""Several processes attack together: what they find is what one finds, whoever dies and however many come back."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from victims import WORD_LIST, bag_victim, labelled

from unshaken.attacks import PWWS, Attack, AttackResults, Genetic, Transfer, Victim, WorstCase, gather, shard_files
from unshaken.attacks.shard_files import parts_of
from unshaken.errors import UnshakenError
from unshaken.evaluation.clean_predictions import answer_share, ask, gather_answers
from unshaken.processes import Shard, own_device
from unshaken.reports import Report, evaluate

TEXTS = [
    f"a {one} film with a {two} plot , number {n}"
    for n in range(5)
    for one in ("good", "bad")
    for two in ("slow", "bad")
]
PLAIN = PWWS(substitutions=WORD_LIST)
GENETIC = Genetic(substitutions=WORD_LIST, population=4, generations=2)
ATTACKS: list[Attack] = [
    PLAIN,
    WorstCase(attacks=(PLAIN, GENETIC)),
    Transfer(source=Victim.from_callable(lambda texts: [[0.4, 0.6] for _ in texts], 2, name="source"), attack=PLAIN),
    Transfer(source=bag_victim(), attack=WorstCase(attacks=(PLAIN, GENETIC))),
]


@pytest.fixture(autouse=True)
def nobody_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transfers end in errors here, and no process is left that could try them again."""
    monkeypatch.setattr(shard_files, "GRACE", 0.1)


def plain(results: AttackResults) -> list[dict[str, Any]]:
    return [{key: value for key, value in asdict(row).items() if key != "seconds"} for row in results]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
@pytest.mark.parametrize("count", [2, 30])
def test_shares_make_the_whole(attack: Attack, count: int, tmp_path: Path) -> None:
    """Also with more processes than examples, some of which have nothing to do."""
    victim = bag_victim()
    examples, out = labelled(victim, TEXTS), tmp_path / "run.jsonl"
    whole = attack(victim, examples)
    shares = [attack(victim, examples, out=out, shard=Shard(rank=rank, count=count)) for rank in range(count)]
    assert sorted(row.example_id for share in shares for row in share) == sorted(row.id for row in examples)
    merged = gather(attack, out, examples, Shard(rank=0, count=count))
    assert plain(merged) == plain(whole)
    assert merged.header() == whole.header()
    assert plain(AttackResults.from_jsonl(out)) == plain(whole)
    assert [file for file in attack.files(out) if parts_of(file)] == []
    assert len(list(tmp_path.iterdir())) == len(attack.files(out))


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
@pytest.mark.parametrize("following", [1, 3])
def test_another_number_of_processes_takes_over(attack: Attack, following: int, tmp_path: Path) -> None:
    """Two of four processes never came; one, two or three others finish what is left, and ask about nothing else."""
    victim = bag_victim()
    examples, out = labelled(victim, TEXTS), tmp_path / "run.jsonl"
    whole = attack(victim, examples)
    for rank in (1, 3):
        attack(victim, examples, out=out, shard=Shard(rank=rank, count=4))
    with pytest.raises(UnshakenError, match=r"examples have no result in .*start again with resume"):
        gather(attack, out, examples, Shard(rank=0, count=4), patience=0.1)
    with pytest.raises(UnshakenError, match="exists; resume it"):
        attack(victim, examples, out=out)
    found = attack(victim, examples, out=out, resume=True, shard=Shard(rank=0, count=following))
    for rank in range(1, following):
        attack(victim, examples, out=out, resume=True, shard=Shard(rank=rank, count=following))
    if following > 1:
        found = gather(attack, out, examples, Shard(rank=0, count=following))
    assert plain(found) == plain(whole)
    ids = [row.example_id for row in AttackResults.from_jsonl(out)]
    assert ids == [row.id for row in examples]
    assert not list(tmp_path.glob("*.part-*"))


def test_what_another_process_has_finished_is_not_asked_again(tmp_path: Path) -> None:
    victim, asked = bag_victim(), []
    examples, out = labelled(victim, TEXTS), tmp_path / "run.jsonl"
    PLAIN(victim, examples, out=out, shard=Shard(rank=0, count=2))

    def counting(texts: list[str]) -> Any:
        asked.extend(texts)
        return victim.function(texts)  # type: ignore[attr-defined]

    PLAIN(Victim.from_callable(counting, 2, name="bag"), examples, out=out, resume=True)
    clean = {row.texts[0] for row in examples} & set(asked)
    assert clean == {row.texts[0] for row in examples if not Shard(rank=0, count=2).owns(row.id)}


def test_the_first_result_counts_and_an_error_only_where_there_is_no_other(tmp_path: Path) -> None:
    victim = bag_victim()
    examples, out = labelled(victim, TEXTS[:6]), tmp_path / "run.jsonl"
    whole = PLAIN(victim, examples)
    broken = replace(whole[2], outcome="error", error="no route", adversarial=None, swaps=())
    for number, rows in enumerate(([broken, whole[0]], [whole[0], whole[2], replace(whole[0], queries=999)], whole)):
        replace(whole, rows=tuple(rows)).to_jsonl(tmp_path / f"run.part-{number}-of-3.jsonl")
    found = PLAIN(victim, examples, out=out, resume=True)
    assert plain(found) == plain(whole)
    assert plain(AttackResults.from_jsonl(out)) == plain(whole)


def test_a_kill_between_merging_and_removing_the_parts(tmp_path: Path) -> None:
    victim = bag_victim()
    examples, out = labelled(victim, TEXTS), tmp_path / "run.jsonl"
    for rank in range(2):
        PLAIN(victim, examples, out=out, shard=Shard(rank=rank, count=2))
    parts = {part: part.read_bytes() for part in parts_of(out)}
    whole = gather(PLAIN, out, examples, Shard(rank=0, count=2))
    for count in (1, 3):
        for path, content in parts.items():
            path.write_bytes(content)
        for rank in range(count):
            found = PLAIN(victim, examples, out=out, resume=True, shard=Shard(rank=rank, count=count))
        if count > 1:
            found = gather(PLAIN, out, examples, Shard(rank=0, count=count))
        assert found == AttackResults.from_jsonl(out) == whole
        assert [path.name for path in tmp_path.iterdir()] == ["run.jsonl"]


def test_parts_that_are_merged_while_a_late_process_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = bag_victim()
    examples, out = labelled(victim, TEXTS), tmp_path / "run.jsonl"
    for rank in range(2):
        PLAIN(victim, examples, out=out, shard=Shard(rank=rank, count=2))
    read, seen = shard_files.read_results, []

    def merged_meanwhile(path: Path) -> Any:
        seen.append(path)
        if len(seen) == 2:
            monkeypatch.setattr(shard_files, "read_results", read)
            gather(PLAIN, out, examples, Shard(rank=0, count=2))
        return read(path)

    monkeypatch.setattr(shard_files, "read_results", merged_meanwhile)
    assert shard_files.Merged(out).rows.keys() == {row.id for row in examples}
    assert seen[1] not in tmp_path.iterdir()


def test_parts_of_another_attack_are_refused(tmp_path: Path) -> None:
    victim = bag_victim()
    examples, out = labelled(victim, TEXTS), tmp_path / "run.jsonl"
    PLAIN(victim, examples, out=out, shard=Shard(rank=0, count=2))
    for shard in (Shard(), Shard(rank=1, count=2)):
        with pytest.raises(UnshakenError, match=r"cannot resume .*attack was 'pwws' and is 'genetic'"):
            GENETIC(victim, examples, out=out, resume=True, shard=shard)
    assert len(parts_of(out)) == 1


def test_a_torn_part_is_said_and_its_example_attacked_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    victim = bag_victim()
    examples, out = labelled(victim, TEXTS), tmp_path / "run.jsonl"
    for rank in range(2):
        PLAIN(victim, examples, out=out, shard=Shard(rank=rank, count=2))
    (part, _) = parts_of(out)
    lines = part.read_bytes().splitlines(keepends=True)
    part.write_bytes(b"".join(lines[:-1]) + lines[-1][:30])
    assert plain(PLAIN(victim, examples, out=out, resume=True)) == plain(PLAIN(victim, examples))
    assert f"the last line is damaged; the {len(lines) - 2} results before it are used" in capsys.readouterr().err


def test_a_process_with_nothing_to_do_leaves_no_part_behind(tmp_path: Path) -> None:
    """Also where it comes after all has been merged."""
    victim = bag_victim()
    examples, out = labelled(victim, TEXTS), tmp_path / "run.jsonl"
    PLAIN(victim, examples, out=out)
    assert len(PLAIN(victim, examples, out=out, resume=True, shard=Shard(rank=1, count=2)))
    assert [path.name for path in tmp_path.iterdir()] == ["run.jsonl"]


def facts(report: Report) -> Any:
    """A report without times."""
    clock = ("seconds", "created", "environment")

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip(item) for key, item in value.items() if key not in clock}
        return [strip(item) for item in value] if isinstance(value, list) else value

    return strip(report.to_json())


def test_evaluate_shares_answers_and_attacks(tmp_path: Path) -> None:
    victim, asked = bag_victim(), []
    examples = labelled(victim, TEXTS)
    whole = evaluate(victim, examples, [PLAIN, WorstCase(attacks=(PLAIN, GENETIC))], out=tmp_path / "one")

    def counting(texts: list[str]) -> Any:
        asked.append(len(texts))
        return victim.function(texts)  # type: ignore[attr-defined]

    attacks = [PLAIN, WorstCase(attacks=(PLAIN, GENETIC))]
    for rank in (2, 1, 0):
        shard = Shard(rank=rank, count=3)
        victim_here = Victim.from_callable(counting, 2, name="bag")
        report = evaluate(victim_here, examples, attacks, out=tmp_path / "three", shard=shard)
        assert bool(report.evaluations) == shard.leads
        assert asked.pop(0) == sum(shard.owns(row.id) for row in examples)  # clean answers of its share come first
        asked.clear()
    assert facts(report) == facts(whole)
    assert not list(tmp_path.rglob("*.part-*"))
    with pytest.raises(UnshakenError, match="give out=FOLDER"):
        evaluate(victim, examples, shard=Shard(rank=1, count=2))


def test_the_first_process_answers_for_one_that_died(tmp_path: Path) -> None:
    victim, path = bag_victim(), tmp_path / "answers.jsonl"
    examples = labelled(victim, TEXTS)
    for rank in range(2):
        answer_share(victim, examples, path, Shard(rank=rank, count=2), resume=False)
    part = parts_of(path)[0]
    lines = part.read_bytes().splitlines(keepends=True)
    part.write_bytes(lines[0] + b"bent\n" + lines[2][:10])
    assert gather_answers(victim, examples, path, Shard(rank=0, count=2), patience=0.1) == ask(victim, examples)


WRITER = """
import sys
from unshaken.attacks import AttackResults
from unshaken.attacks.storage import ResultsFile
from unshaken.processes import Shard
header = AttackResults.from_jsonl(sys.argv[2]).header()
with ResultsFile(sys.argv[1], header, resume=True, shard=Shard(rank=1, count=2)):
    print("inside", flush=True)
    sys.stdin.read()
"""


def test_the_first_process_waits_while_another_lives_and_says_when_it_died(tmp_path: Path) -> None:
    victim, out = bag_victim(), tmp_path / "run.jsonl"
    examples = labelled(victim, TEXTS)
    PLAIN(victim, examples, out=tmp_path / "other.jsonl")
    PLAIN(victim, examples, out=out, shard=Shard(rank=0, count=2))
    words = [sys.executable, "-c", WRITER, str(out), str(tmp_path / "other.jsonl")]
    second = subprocess.Popen(words, stdin=-1, stdout=-1, text=True)
    assert second.stdout is not None
    assert second.stdout.readline() == "inside\n"
    with ThreadPoolExecutor() as pool:
        gathered = pool.submit(gather, PLAIN, out, examples, Shard(rank=0, count=2), patience=0.2)
        with pytest.raises(TimeoutError):
            gathered.result(timeout=2)
        second.kill()
        with pytest.raises(UnshakenError, match="a process ended before its share was done"):
            gathered.result()
    second.communicate()
    PLAIN(victim, examples, out=out, resume=True, shard=Shard(rank=1, count=2))
    assert plain(gather(PLAIN, out, examples, Shard(rank=0, count=2))) == plain(PLAIN(victim, examples))


def test_ranks_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnshakenError, match="rank 2 of 2"):
        Shard(rank=2, count=2)
    assert Shard.from_environment() == Shard(rank=0, count=1)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert Shard.from_environment() == Shard(rank=1, count=3)
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(UnshakenError, match="RANK='first'; it must be a whole number"):
        Shard.from_environment()


@pytest.mark.parametrize(
    ("wanted", "gpus", "local_rank", "device"),
    [
        (None, 0, "1", "cpu"),
        (None, 4, None, "cuda"),
        (None, 4, "3", "cuda:3"),
        ("cuda", 4, "3", "cuda:3"),
        (None, 1, "3", "cuda:0"),  # a scheduler shows each process its own GPU only
        ("cuda:1", 4, "3", "cuda:1"),
        ("cpu", 4, "3", "cpu"),
    ],
)
def test_each_process_has_its_own_gpu(
    wanted: str | None, gpus: int, local_rank: str | None, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpus > 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    if local_rank is not None:
        monkeypatch.setenv("LOCAL_RANK", local_rank)
    assert own_device(wanted) == device


def test_shares_are_even_and_do_not_overlap() -> None:
    ids = [f"sst2-{number}" for number in range(8_000)]
    shares = [[key for key in ids if Shard(rank=rank, count=8).owns(key)] for rank in range(8)]
    assert sorted(key for share in shares for key in share) == sorted(ids)
    assert all(880 < len(share) < 1_120 for share in shares)  # four standard deviations
    assert json.dumps(shares[0][:3]) == '["sst2-2", "sst2-6", "sst2-8"]'  # the same on every machine
