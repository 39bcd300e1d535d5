"""Attacks on a Ray cluster: equal to one process, whatever is killed on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from victims import TEXTS, WORD_LIST, bag_victim

from unshaken.attacks import PWWS, Genetic
from unshaken.attacks.ray_engine import Columns, _Attacker, _done, _parts, ray_attack, read_parts
from unshaken.errors import UnshakenError
from unshaken.examples import Example

ATTACK = Genetic(substitutions=WORD_LIST, population=4, generations=2)
ROWS = [(f"row {number}", f"{text} {number}") for number, text in enumerate(text for text in TEXTS for _ in range(12))]


def actor(folder: Path, done: Any = (), **options: Any) -> _Attacker:
    """What runs in a Ray actor, without Ray."""
    given = {"columns": Columns(id="id"), "attack": ATTACK, **options}
    return _Attacker(
        victim=bag_victim, folder=str(folder), in_flight=16, done=np.sort(np.array(done, np.int64)), **given
    )


def batch(rows: list[tuple[str, str]]) -> dict[str, np.ndarray]:
    return {
        "id": np.array([row for row, _ in rows]),
        "text": np.array([text for _, text in rows]),
        "label": np.array([1] * len(rows)),
    }


def plain(results: Any) -> list[dict[str, Any]]:
    rows = sorted(results, key=lambda row: row.example_id)
    return [{key: value for key, value in asdict(row).items() if key != "seconds"} for row in rows]


def expected(attack: Any = ATTACK) -> list[dict[str, Any]]:
    return plain(attack(bag_victim(), [Example(id=row, texts=(text,), label=1) for row, text in ROWS]))


def test_parts_hold_what_one_process_finds(tmp_path: Path) -> None:
    first = actor(tmp_path)
    for start in (0, 40):
        first(batch(ROWS[start : start + 40]))
    before = {part: part.read_bytes() for part in _parts(tmp_path)}
    first(batch(ROWS[:40]))  # as after the death of an actor: the same part again
    assert list(before) == _parts(tmp_path)
    second = actor(tmp_path, _done(_parts(tmp_path)))
    assert second(batch(ROWS[20:]))["attacked"].tolist() == [len(ROWS) - 80]  # what is done is left out
    results = read_parts(tmp_path)
    assert plain(results) == expected()
    assert (results.attack, results.victim["name"]) == ("genetic", bag_victim().name)
    assert {row.outcome for row in results} >= {"success", "skipped"}


def test_a_batch_without_any_word_to_change_is_no_mistake(tmp_path: Path) -> None:
    actor(tmp_path)(batch([("a", "the the"), ("b", "of of")]))
    assert {row.outcome for row in read_parts(tmp_path)} <= {"failure", "skipped"}


def test_rows_without_ids_are_told_apart_by_their_content(tmp_path: Path) -> None:
    table = {"text": np.array(["a good film", "a bad film", "a good film"]), "label": np.array([1, 0, 1])}
    attacker = actor(tmp_path, columns=Columns())
    attacker(table)
    once = plain(read_parts(tmp_path))
    assert len(once) == 2
    attacker({name: values[1:2] for name, values in table.items()})  # the same row in another batch
    assert len(_parts(tmp_path)) == 2
    assert plain(read_parts(tmp_path)) == once


def test_ids_tell_rows_apart_within_batches_and_across(tmp_path: Path) -> None:
    with pytest.raises(UnshakenError, match="two rows have the id 'a'"):
        actor(tmp_path)(batch([("a", "a good film"), ("a", "a bad film")]))
    for text in ("a good film", "a bad film"):
        actor(tmp_path)(batch([("a", text), (text, text)]))
    with pytest.raises(UnshakenError, match="two rows have the id 'a'"):
        read_parts(tmp_path)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("text", None, "no text in the column 'text'"),
        ("text", float("nan"), "no text in the column 'text'"),
        ("label", 0.5, "the label 0.5"),
        ("label", None, "the label None"),
        ("label", float("nan"), "the label nan"),
    ],
)
def test_rows_that_lack_something_are_refused(tmp_path: Path, column: str, value: Any, said: str) -> None:
    rows = batch(ROWS[:2])
    rows[column] = np.array([rows[column][0], value], object)
    with pytest.raises(UnshakenError, match=said):
        actor(tmp_path)(rows)


def test_what_does_not_fit_is_said(tmp_path: Path) -> None:
    actor(tmp_path)(batch(ROWS[:3]))
    with pytest.raises(UnshakenError, match="of another attack or victim"):
        actor(tmp_path, attack=PWWS(substitutions=WORD_LIST))
    with pytest.raises(UnshakenError, match="no column 'text'"):
        actor(tmp_path)({"id": np.array(["1"]), "label": np.array([1]), "sentence": np.array(["a"])})
    with pytest.raises(UnshakenError, match="'great' is none of the victim's"):
        actor(tmp_path)({"id": np.array(["1"]), "label": np.array(["great"]), "text": np.array(["a"])})
    with pytest.raises(UnshakenError, match="holds no parts"):
        read_parts(tmp_path / "nothing")


DRIVER = """
import sys, time, json
import ray
from victims import WORD_LIST, bag_victim
from unshaken.attacks import Genetic, Victim
from unshaken.attacks.ray_engine import Columns, ray_attack

def slow_victim():
    inner = bag_victim()
    def answer(texts):
        time.sleep(0.2)  # so that there is something to kill
        return inner.function(texts)
    return Victim.from_callable(answer, 2, name=inner.name)

data, out = sys.argv[1:]
paths = {"env_vars": {"PYTHONPATH": ":".join(sys.path)}}
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=paths)
attack = Genetic(substitutions=WORD_LIST, population=4, generations=2)
columns = Columns(id="id")
ray_attack(data, victim=slow_victim, attack=attack, out=out, columns=columns, actors=2, batch_size=4, resume=True)
print("done")
"""


def attackers() -> list[psutil.Process]:
    """The actors of this test's drivers."""
    own = psutil.Process().children(recursive=True)
    return [process for process in own if "MapWorker" in " ".join(process.cmdline()[:1])]


def wait_for(found: Any, seconds: float = 240) -> None:
    until = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < until, "nothing happened"
        time.sleep(0.2)


@pytest.mark.slow
def test_an_actor_and_then_the_driver_are_killed(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    for number in range(3):  # many files
        lines = [json.dumps({"id": row, "text": text, "label": 1}) + "\n" for row, text in ROWS[number::3]]
        (data / f"{number}.jsonl").write_text("".join(lines))
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    paths = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, str(script), str(data), str(out)]
    environment = {**os.environ, "PYTHONPATH": paths}
    with subprocess.Popen(command, env=environment, start_new_session=True) as driver:
        wait_for(lambda: len(_parts(out)) >= 2)
        victim = attackers()
        assert victim
        victim[0].kill()  # SIGKILL
        count = len(_parts(out))
        wait_for(lambda: len(_parts(out)) >= count + 3)  # the other one, or its successor, goes on
        os.killpg(driver.pid, signal.SIGKILL)
    assert 0 < len(read_parts(out)) < len(ROWS)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, start_new_session=True)
    assert done.stdout.endswith("done\n"), done.stderr
    assert plain(read_parts(out)) == expected()
    with pytest.raises(UnshakenError, match="resume the run"):
        ray_attack(str(data), victim=bag_victim, attack=ATTACK, out=out)
