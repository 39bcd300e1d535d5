"""The script that runs the groups of `experiments/reproduce/groups.toml`, on a small world."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from small_world import make_world

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
GROUPS = """
[[group]]
file = "small.jsonl"
encoder = "encoder"
recipes = ["{recipe}"]
methods = ["swap"]
columns = ["Clean", "PWWS"]
workers = 2
limit = 16
examples = 3
group_by_length = true
settings = {{ epochs = 1 }}

[[group]]
file = "small.jsonl"
encoder = "encoder"
recipes = ["{recipe}"]
methods = ["plain"]
columns = ["AdvGLUE"]
workers = 2
limit = 16
settings = {{ epochs = 1 }}
"""


def test_groups_share_their_trainings_and_are_not_run_twice(tmp_path: Path) -> None:
    world, place = make_world(tmp_path), tmp_path / "experiments"
    (place / "reproduce").mkdir(parents=True)
    for script in ("results.py", "run_groups.py"):
        shutil.copy(EXPERIMENTS / script, place)
    (place / "reproduce" / "groups.toml").write_text(GROUPS.format(recipe=world / "small.toml"))

    def call(*words: str) -> str:
        done = subprocess.run([sys.executable, *words], cwd=place, capture_output=True, text=True, check=True)
        return done.stdout

    command = [
        "run_groups.py",
        "small.jsonl",
        "--encoders",
        str(world),
        "--data",
        str(world / "data"),
        "--workers",
        "2",
    ]
    assert call(*command, "--out", str(tmp_path / "out")).startswith("4 trainings")  # two methods, two seeds
    assert "small.jsonl: 4 of 4 planned runs" in call("results.py", "collect", str(tmp_path / "out"))
    kept = [json.loads(line) for line in (place / "reproduce" / "small.jsonl").read_text().splitlines()]
    assert [outcome["error"] for outcome in kept] == [None] * 4
    plain = [outcome for outcome in kept if outcome["run"]["settings"]["defence"] == "standard"]
    assert [len(outcome["measured"]) for outcome in plain] == [3, 3]  # one training for both groups
    assert all(outcome["training"]["group_by_length"] for outcome in kept)
    assert call(*command, "--out", str(tmp_path / "other")).strip() == "0 trainings"
