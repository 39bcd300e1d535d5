"""The commands that are disturbed, and how to read what they leave."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trials import Ended, Plan, call, made


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A command that writes to a folder, and how to read what it left there."""

    name: str
    words: Callable[[Path], list[str]]
    read: Callable[[Path], Any]
    resume: tuple[str, ...] = ("--resume",)  # added from the second start on


def subjects(folder: Path, plan: Plan) -> list[Subject]:
    """Those that the plan names; all where it names none."""
    from small_world import make_world
    from tiny_commands import make_arguments

    tiny = make_arguments(made(folder / "tiny"))
    model, data = tiny[0], tiny[2]
    substitutes = tiny[tiny.index("--substitutions") + 1]
    world = make_world(made(folder / "world"))
    big = folder / "tiny" / "big.jsonl"
    big.write_text(Path(data).read_text() * 3)
    encoder = folder / "world" / "encoder"
    training = f"--model {encoder} --cpu --batch-size 2 --epochs 4 --learning-rate 1e-3".split()
    scan = ["scan", model, data, "--device", "cpu", "--family", "typos,synonyms,spacing", "--search", "2"]
    recipe = ["reproduce", str(world / "small.toml"), "--encoder", str(encoder), "--data", str(world / "data")]
    harden = ["harden", str(big), "--model", str(encoder), "--cpu", "--epochs", "1", "--attacked", "6"]
    harden += ["--substitutions", substitutes, "--max-length", "32", "--batch-size", "8"]
    augment = ["augment", str(big), "--substitutions", substitutes, "--copies", "20"]
    found = [
        Subject(
            name="train",
            words=lambda out: ["train", "--task", data, *training, "--save-steps", "4", "--out", str(out)],
            read=_trained,
        ),
        Subject(name="attack", words=lambda out: ["attack", *tiny, "--out", str(out)], read=_reports),
        Subject(name="evaluate", words=lambda out: ["evaluate", *tiny, "--out", str(out)], read=_reports),
        Subject(
            name="attack --block",
            words=lambda out: ["attack", *replaced(tiny, data, str(big)), "--block", "16", "--out", str(out)],
            read=_totals,
        ),
        Subject(
            name="reproduce",
            words=lambda out: [*recipe, "--method", "swap", "--out", str(out)],
            read=_recipes,
            resume=(),
        ),
        Subject(name="harden", words=lambda out: [*harden, "--out", str(out)], read=_reports),
        Subject(
            name="augment",
            words=lambda out: [*augment, "--out", str(out / "a.jsonl")],
            read=lambda out: (out / "a.jsonl").read_text(),
            resume=(),
        ),
        Subject(name="scan", words=lambda out: [*scan, "--out", str(out)], read=_scanned, resume=()),
    ]
    return [subject for subject in found if subject.name in (plan.commands or [subject.name])]


def replaced(words: list[str], old: str, new: str) -> list[str]:
    return [new if word == old else word for word in words]


def undisturbed(subject: Subject, folder: Path) -> tuple[Any, float, Path]:
    """What the command leaves where nobody disturbs it, and how long that takes."""
    out = folder / f"whole-{subject.name.replace(' ', '')}"
    call(["--version"], folder)  # waits for the imports
    begin = time.monotonic()
    ended = call(subject.words(out), folder)
    if ended.code != 0:
        raise SystemExit(f"{subject.name} fails undisturbed: {ended.fault()[1]}")
    return subject.read(out), time.monotonic() - begin, out


def compared(subject: Subject, out: Path, expected: Any, ended: Ended) -> tuple[str, str]:
    """Held where a command that was resumed ended as an undisturbed one, or a fault."""
    if ended.code != 0 or ended.verdict()[0] == "traceback":
        return ended.fault("resumed: ") if ended.code != 0 else ended.verdict("resumed: ")
    try:
        found = subject.read(out)
    except Exception:
        return "wrong", f"nothing to read: {traceback.format_exc()[-500:]}"
    return ("held", "") if found == expected else ("wrong", "another result with exit code 0")


def _plain(value: Any) -> Any:
    """Without clocks, and with numbers as exact as batches of other sizes leave them."""
    if isinstance(value, dict):
        clocks = ("seconds", "created", "environment", "derived", "fingerprint", "identity", "check")
        return {key: _plain(item) for key, item in value.items() if key not in clocks}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return round(value, 3) if isinstance(value, float) else value


def _reports(out: Path) -> Any:
    found = _plain(json.loads((out / "report.json").read_text()))
    assert (out / "report.html").read_text().endswith("</html>\n")
    return json.loads(json.dumps(found).replace(str(out), "OUT"))  # harden measures models that lie in it


def _totals(out: Path) -> Any:
    found = _plain(json.loads((out / "totals.json").read_text()))
    return [found["rows"], found["blocks"], found["lines"]]


def _recipes(out: Path) -> Any:
    cells = json.loads((out / "small.json").read_text())["cells"]
    assert not list(out.rglob("*.part"))
    return _plain(cells)


def _scanned(out: Path) -> Any:
    return _plain(json.loads((out / "scan.json").read_text()))


def _trained(out: Path) -> Any:
    return (out / "model" / "model.safetensors").read_bytes().hex()
