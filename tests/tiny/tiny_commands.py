"""`attack` and `evaluate` on a tiny model, and what they leave behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from victims import TEXTS, WORD_LIST, labelled, make_tokenizer, tiny_bert

from unshaken.attacks import Victim
from unshaken.files import read_json

CLOCK = ("seconds", "created", "environment", "check")  # the check is that of a text with clocks in it
ATTACKS = "pwws,genetic:population=6,generations=3"


def make_arguments(folder: Path) -> list[str]:
    """What `attack` and `evaluate` are called with: a tiny model, sentences, substitutes."""
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
    for path in sorted(out.rglob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        ids = [row["example_id"] for row in rows[1:]]
        assert len(set(ids)) == len(ids) == 40
        found[path.name] = [rows[0], *sorted(rows[1:], key=lambda row: row["example_id"])]
    tables = [path.read_text().splitlines() for path in out.glob("*.csv")]
    assert [len(lines) for lines in tables] == [41] * len(found)
    return found


def evaluated(out: Path) -> dict[str, Any]:
    assert (out / "report.html").read_text().endswith("</html>\n")
    found: dict[str, Any] = read_json(out / "report.json")
    for run in found["evaluations"][0]["attacks"]:
        ids = [row["example_id"] for row in run["results"]]
        assert len(set(ids)) == len(ids) == 40
    return found
