"""`attack`, `evaluate` and `report`, killed at random moments and started again, end as if nobody had disturbed."""

from __future__ import annotations

import itertools
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Command, finish, kill_and_resume, moments

sys.path.insert(0, str(Path(__file__).parents[1] / "attacks"))
from victims import TEXTS, WORD_LIST, labelled, make_tokenizer, tiny_bert

from unshaken.attacks import Victim
from unshaken.files import read_json

CLOCK = ("seconds", "created", "environment")
ATTACKS = "pwws,genetic:population=6,generations=3"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What `attack` and `evaluate` are called with: a tiny model, sentences, substitutes."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = make_tokenizer(folder)
    tiny_bert(tokenizer).float().save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    victim = Victim.from_pretrained(folder / "model", device="cpu")
    examples = labelled(
        victim, [f"{text} {word}" for word in ("end", "the end", "not it", "slow", "bad") for text in TEXTS]
    )
    rows = [{"text": row.texts[0], "label": row.label} for row in examples]
    (folder / "reviews.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "words.json").write_text(json.dumps({key: list(value) for key, value in WORD_LIST.entries.items()}))
    words = f"dictionary:path={folder / 'words.json'}"
    fixed = (
        f"{folder / 'model'} --task {folder / 'reviews.jsonl'} --substitutions {words} --attack {ATTACKS} --device cpu"
    )
    return fixed.split()


def differences(found: Any, expected: Any, where: str = "") -> list[str]:
    """Where two results disagree. Times may, and so may the last digits: a kill changes how examples are batched."""
    if isinstance(expected, dict) and isinstance(found, dict):
        keys = sorted((expected.keys() | found.keys()) - set(CLOCK))
        return [path for key in keys for path in differences(found.get(key), expected.get(key), f"{where}.{key}")]
    if isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        pairs = enumerate(zip(found, expected, strict=True))
        return [path for number, pair in pairs for path in differences(*pair, f"{where}[{number}]")]
    is_close = isinstance(expected, float) and found == pytest.approx(expected, abs=1e-4)
    return [] if is_close or found == expected else [f"{where}: {found!r}, not {expected!r}"]


def attacked(out: Path) -> dict[str, Any]:
    """What an attack leaves; each example once."""
    found = {}
    for path in sorted(out.glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        ids = [row["example_id"] for row in rows[1:]]
        assert len(set(ids)) == len(ids) == 40
        found[path.name] = [rows[0], *sorted(rows[1:], key=lambda row: row["example_id"])]
        assert len(path.with_suffix(".csv").read_text().splitlines()) == 41
    return found


def evaluated(out: Path) -> dict[str, Any]:
    assert (out / "report.html").read_text().endswith("</html>\n")
    found: dict[str, Any] = read_json(out / "report.json")
    for run in found["evaluations"][0]["attacks"]:
        ids = [row["example_id"] for row in run["results"]]
        assert len(set(ids)) == len(ids) == 40
    return found


def reported(out: Path) -> dict[str, Any]:
    """Reports hold no time of their writing: every byte must agree."""
    return {str(path.relative_to(out)): path.read_bytes().hex() for path in sorted(out.rglob("*")) if path.is_file()}


def all_whole(out: Path) -> None:
    """After a kill, what has its final name can be read; only a JSONL file may end in a torn line."""
    for path in out.rglob("[!.]*"):
        if path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".html":
            assert path.read_text().endswith("</html>\n")
        elif path.suffix == ".jsonl":
            for line in path.read_text().splitlines(keepends=True):
                assert not line.endswith("\n") or json.loads(line)
        elif path.suffix == ".svg":
            assert path.read_text().endswith("</svg>\n")


def survive(
    command: Callable[[Path], Command], read: Callable[[Path], dict[str, Any]], tmp_path: Path, kills: int, seed: int
) -> None:
    undisturbed, out, log = tmp_path / "undisturbed", tmp_path / "run", tmp_path / "log"
    duration = finish(command(undisturbed), log)
    expected = read(undisturbed)
    assert expected
    when, done = moments(seed, duration), 0
    while done < kills:
        hit = kill_and_resume(command(out), list(itertools.islice(when, min(kills, 3))), log, lambda: all_whole(out))
        assert differences(read(out), expected) == []
        assert {path.name for path in out.rglob("*")} - {".lock"} == {path.name for path in undisturbed.rglob("*")} - {
            ".lock"
        }
        done += hit
        shutil.rmtree(out)
    print(f"{done} kills in runs of {duration:.1f} s")


def attack_command(model: list[str], out: Path) -> Command:
    return Command(words=["attack", *model, "--out", str(out)])


def evaluate_command(model: list[str], out: Path) -> Command:
    return Command(words=["evaluate", *model, "--out", str(out)])


@pytest.fixture(scope="module")
def evaluation(model: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluation")
    finish(evaluate_command(model, folder / "run"), folder / "log")
    return folder / "run"


def report_command(evaluation: Path, out: Path) -> Command:
    words = ["report", str(evaluation), "--out", str(out / "report.html"), "--figures", str(out / "figures")]
    return Command(words=words, resume=())


KILLS = [pytest.param(2, id="short"), pytest.param(24, id="long", marks=pytest.mark.slow)]


@pytest.mark.parametrize("kills", KILLS)
def test_attack(model: list[str], tmp_path: Path, kills: int) -> None:
    survive(lambda out: attack_command(model, out), attacked, tmp_path, kills, seed=1)


@pytest.mark.parametrize("kills", KILLS)
def test_evaluate(model: list[str], tmp_path: Path, kills: int) -> None:
    survive(lambda out: evaluate_command(model, out), evaluated, tmp_path, kills, seed=2)


@pytest.mark.parametrize("kills", KILLS)
def test_report(evaluation: Path, tmp_path: Path, kills: int) -> None:
    survive(lambda out: report_command(evaluation, out), reported, tmp_path, kills, seed=3)
