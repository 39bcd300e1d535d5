"""After a power cut at any moment: files old or new and never half, whole checkpoints, results that can be resumed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from power import Disk
from safetensors.torch import save_file
from victims import WORD_LIST

from unshaken.attacks import PWWS, AttackResults, storage
from unshaken.examples import Example, Examples
from unshaken.files import read_json, write_json
from unshaken.training import checkpoints
from unshaken.victims import Victim


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    root = tmp_path / "disk"
    root.mkdir()
    watched = Disk(root, monkeypatch)
    yield watched
    watched.close()


def test_the_disk_loses_what_is_not_synced(disk) -> None:
    """The layer itself: a plain write is lost, its name with it."""
    (disk.root / "plain.txt").write_text("gone")
    assert disk.left() == {}
    assert disk.left(early_names=True) == {"plain.txt": b""}


def test_a_file_is_old_or_new(disk, tmp_path) -> None:
    path = disk.root / "a" / "b" / "value.json"
    write_json(path, {"is": "old"})
    assert read_json(disk.restore(disk.left(), tmp_path / "first") / "a/b/value.json") == {"is": "old"}
    start = len(disk.cuts)
    write_json(path, {"is": "new"})
    for number, cut in enumerate(disk.cuts[start:]):
        found = read_json(disk.restore(cut, tmp_path / str(number)) / "a/b/value.json")
        assert found in ({"is": "old"}, {"is": "new"})
    assert read_json(disk.restore(disk.left(), tmp_path / "last") / "a/b/value.json") == {"is": "new"}


def save_checkpoint(folder: Path, step: int) -> None:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    save_file({"weight": torch.full((64,), float(step))}, path / "model.safetensors")
    (path / checkpoints.STATE).write_text('{"best_model_checkpoint": null}')
    checkpoints.seal(path)


def test_a_sealed_checkpoint_survives(disk, tmp_path) -> None:
    """Once `seal` has returned, older checkpoints may go: this one must stay."""
    save_checkpoint(disk.root, 1)
    start = len(disk.cuts)
    save_checkpoint(disk.root, 2)
    for number, cut in enumerate(disk.cuts[start:]):
        found = checkpoints.last_complete(disk.restore(cut, tmp_path / str(number)))
        assert found.folder is not None
        assert found.folder.name in ("checkpoint-1", "checkpoint-2")
    for early in (False, True):
        left = disk.restore(disk.left(early_names=early), tmp_path / f"last-{early}")
        assert checkpoints.last_complete(left).folder == left / "checkpoint-2"


def test_a_model_that_is_there_is_whole(disk, tmp_path) -> None:
    for content in ("old", "new"):
        with checkpoints.replaced_folder(disk.root / "model") as filling:
            (filling / "config.json").write_text(content)
    for cut in disk.cuts:
        assert cut.get("model/config.json", b"old") in (b"old", b"new")
    assert disk.left()["model/config.json"] == b"new"


def rows(count: int) -> Examples:
    texts = [f"a good film number {number}" for number in range(count)]
    return Examples(rows=tuple(Example(id=str(n), texts=(text,), label=n % 2) for n, text in enumerate(texts)))


def answer(texts: list[str]) -> torch.Tensor:
    share = torch.tensor([sum(map(ord, text)) % 97 / 97 for text in texts])
    return torch.stack([share, 1 - share], 1)


def test_results_go_on_after_a_power_cut(disk, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(storage, "SYNC_SECONDS", 0.0)
    victim, attack = Victim.from_callable(answer, 2, name="sums"), PWWS(substitutions=WORD_LIST)
    expected = attack(victim, rows(8), out=disk.root / "run.jsonl", in_flight=2)
    cuts = [*disk.cuts, disk.left()]
    kept = set()
    for number, cut in enumerate(cuts):
        left = disk.restore(cut, tmp_path / str(number))
        if (left / "run.jsonl").exists() and (left / "run.jsonl").stat().st_size:
            kept.add(len(AttackResults.from_jsonl(left / "run.jsonl")))
        found = attack(victim, rows(8), out=left / "run.jsonl", resume=True)
        assert [row.outcome for row in found] == [row.outcome for row in expected]
    assert kept == set(range(9))  # each result was on the disk once it was finished


def test_without_intervals_the_end_is_synced(disk) -> None:
    victim = Victim.from_callable(answer, 2, name="sums")
    PWWS(substitutions=WORD_LIST)(victim, rows(4), out=disk.root / "run.jsonl")
    assert disk.left()["run.jsonl"] == (disk.root / "run.jsonl").read_bytes()
