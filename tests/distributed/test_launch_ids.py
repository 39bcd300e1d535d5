"""One launch is not taken for another, whatever ports and run ids they share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist
from victims import WORD_LIST, bag_victim, labelled

from unshaken.attacks import PWWS
from unshaken.attacks.parts import Part, new_part, parts_of
from unshaken.attacks.storage import Merged
from unshaken.errors import UnshakenError
from unshaken.processes import Shard, launch_id, process_start

ENVIRONMENT = {"RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_USE_AGENT_STORE": "True"}
ASK = "from unshaken.processes import launch_id; print(launch_id())"


def ids_of_two_ranks(port: int) -> set[str]:
    environment = {**os.environ, **ENVIRONMENT, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [
        subprocess.Popen([sys.executable, "-c", ASK], env={**environment, "RANK": rank}, stdout=subprocess.PIPE)
        for rank in ("0", "1")
    ]
    return {rank.communicate()[0].decode().strip() for rank in ranks}


@pytest.mark.dist
def test_ranks_agree_and_launches_with_one_endpoint_differ() -> None:
    """What torchrun does: an agent that keeps a store for its workers. The second launch has the same address."""
    agent = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    port = agent.port
    first = ids_of_two_ranks(port)
    del agent
    agent = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    second = ids_of_two_ranks(port)
    assert len(first) == len(second) == 1
    assert first != second
    assert agent.port == port


def stale(path: Path) -> Path:
    """A part that an earlier launch with the same id left, an hour ago."""
    path.write_text("")
    os.utime(path, (process_start() - 3600,) * 2)
    return path


def test_parts_of_a_dead_launch_are_not_taken_over_unasked(tmp_path: Path) -> None:
    victim, out, shard = bag_victim(), tmp_path / "run.jsonl", Shard(rank=0, count=2)
    left = stale(new_part(out, Shard(rank=1, count=2)))
    (part,) = parts_of(out)
    assert part == Part(path=left, launch=launch_id(), attempt=0, rank=1)
    assert not part.is_of_this_start()
    examples = labelled(victim, ["a good film", "a bad film"])
    with pytest.raises(UnshakenError, match="exists; resume it"):
        PWWS(substitutions=WORD_LIST)(victim, examples, out=out, shard=shard)
    PWWS(substitutions=WORD_LIST)(victim, examples, out=out, shard=shard, resume=True)


def test_a_part_of_now_is_of_this_start(tmp_path: Path) -> None:
    path = new_part(tmp_path / "run.jsonl", Shard(rank=1, count=2))
    path.write_text("")
    assert parts_of(tmp_path / "run.jsonl")[0].is_of_this_start()


def test_a_link_that_leads_nowhere_is_no_part(tmp_path: Path) -> None:
    out = tmp_path / "run.jsonl"
    new_part(out, Shard(rank=1, count=2)).symlink_to(tmp_path / "nowhere")
    os.mkfifo(new_part(out, Shard(rank=1, count=2)))
    new_part(out, Shard(rank=1, count=2)).mkdir()
    assert parts_of(out) == []
    assert Merged(out).rows == {}
