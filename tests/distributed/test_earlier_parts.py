"""What an earlier launch left is taken over where that is asked for, and never unasked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from victims import WORD_LIST, bag_victim, labelled

from unshaken.attacks import PWWS
from unshaken.attacks.shard_files import Merged, part_path, parts_of
from unshaken.errors import UnshakenError
from unshaken.evaluation.clean_predictions import answer_share
from unshaken.processes import Shard

ATTACK = PWWS(substitutions=WORD_LIST)
TEXTS = [f"a {word} film , number {number}" for word in ("good", "bad") for number in range(4)]


@pytest.mark.parametrize(
    ("left", "comes"),
    [
        (Shard(rank=1, count=2), Shard(rank=1, count=2)),  # its own
        (Shard(rank=2, count=3), Shard(rank=0, count=2)),  # that of another number of processes: the first looks
        (Shard(rank=1, count=2), Shard()),
        (Shard(), Shard(rank=0, count=2)),
        (Shard(), Shard()),
    ],
)
def test_results_of_an_earlier_launch_are_not_taken_over_unasked(left: Shard, comes: Shard, tmp_path: Path) -> None:
    victim, out = bag_victim(), tmp_path / "run.jsonl"
    examples = labelled(victim, TEXTS)
    ATTACK(victim, examples, out=out, shard=left)
    before = part_path(out, left).read_bytes()
    with pytest.raises(UnshakenError, match="exists; resume it"):
        ATTACK(victim, examples, out=out, shard=comes)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]
    ATTACK(victim, examples, out=out, shard=comes, resume=True)


def test_the_parts_of_this_launch_are_no_earlier_ones(tmp_path: Path) -> None:
    victim, out = bag_victim(), tmp_path / "run.jsonl"
    examples = labelled(victim, TEXTS)
    for rank in (2, 1, 0):
        ATTACK(victim, examples, out=out, shard=Shard(rank=rank, count=3))
    assert len(parts_of(out)) == 3


def test_processes_that_their_launcher_starts_anew_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`torchrun --max-restarts`: the command has no --resume."""
    victim, out, shard = bag_victim(), tmp_path / "run.jsonl", Shard(rank=1, count=2)
    examples = labelled(victim, TEXTS)
    ATTACK(victim, examples, out=out, shard=shard)
    before = part_path(out, shard).read_bytes()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    ATTACK(victim, examples, out=out, shard=shard)
    assert part_path(out, shard).read_bytes() == before


def test_answers_of_an_earlier_launch_are_not_taken_over_unasked(tmp_path: Path) -> None:
    victim, path, shard = bag_victim(), tmp_path / "answers.jsonl", Shard(rank=1, count=2)
    examples = labelled(victim, TEXTS)
    answer_share(victim, examples, path, shard, resume=False)
    with pytest.raises(UnshakenError, match="exists; resume it"):
        answer_share(victim, examples, path, shard, resume=False)
    before = part_path(path, shard).read_bytes()
    answer_share(victim, examples, path, shard, resume=True)
    assert part_path(path, shard).read_bytes() == before


def test_a_link_that_leads_nowhere_is_no_part(tmp_path: Path) -> None:
    out = tmp_path / "run.jsonl"
    part_path(out, Shard(rank=0, count=3)).symlink_to(tmp_path / "nowhere")
    os.mkfifo(part_path(out, Shard(rank=1, count=3)))
    part_path(out, Shard(rank=2, count=3)).mkdir()
    assert parts_of(out) == []
    assert Merged(out).rows == {}
