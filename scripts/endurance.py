"""What the commands bear: kills, full disks, damage, hostile models, hostile data, hostile names and fuzzed inputs.

    python scripts/endurance.py                        # all of it; hours on one core
    python scripts/endurance.py kills disks --scale 0.1
    python scripts/endurance.py fuzz --out endurance.jsonl

Every trial is a line of `--out`, with the commit that was measured, and the table at the end counts the lines. A trial
is *held* where the command ended as an undisturbed one does and *refused* where it ended with one line and exit code 2.
All else is a fault: a *traceback*, a *hang*, a *wrong* result with exit code 0, or any *other* end. The exit code is 1
where there is a fault. `--record SECURITY.md` puts the table of the lines of `--out` there.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# The harness that kills commands, tiny models and the fuzzed readers are those of the tests.
sys.path += [str(ROOT / "tests" / name) for name in ("tiny", "hostile")]

BEGIN, END = "<!-- endurance -->", "<!-- /endurance -->"
FAULTS = ("traceback", "hang", "wrong", "other")
COMMANDS: list[str] = []  # by `--commands`
PATIENCE = 600.0  # seconds after which a command hangs
ACTING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
PAYLOADS = (
    "<script>hacked()</script>", "<img src=x onerror=hacked()>", "</script><b>", "=cmd|'/c calc'!A1", "@SUM(1)", "+1+1",
    "\x1b[2J", "\x1b]0;owned\x07", "\x9b31m", "\u202egnp.exe", "[bold]x[/]", "[link=http://x]y[/link]",
    "`code` | **bold**", r"\input{/etc/passwd}", "${jndi:ldap://x}", "%s%n{0}",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What became of one trial."""

    kind: str  # "kills: train"
    verdict: str  # held, refused, or one of FAULTS
    what: str = ""
    times: int = 1


Trials = Iterator[Trial]


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended."""

    code: int | None  # None where it hung
    said: str

    @property
    def is_refusal(self) -> bool:
        """One line that begins with `error:` (or typer's box of usage), and no traceback."""
        lines = [line for line in self.said.splitlines() if line.startswith("error: ")]
        return self.code == 2 and "Traceback" not in self.said and (len(lines) == 1 or "Usage:" in self.said)

    def fault(self, where: str = "") -> tuple[str, str]:
        """Which fault it is, and what was said."""
        kind = "hang" if self.code is None else "traceback" if "Traceback" in self.said else "other"
        return "wrong" if self.code == 0 else kind, f"{where}exit {self.code}: {self.said[-1500:]}"

    def verdict(self, where: str = "") -> tuple[str, str]:
        """Held, refused or a fault, by how it ended alone."""
        if "Traceback (most recent call last)" in self.said:
            return "traceback", self.fault(where)[1]
        return ("held", "") if self.code == 0 else ("refused", "") if self.is_refusal else self.fault(where)


def call(words: list[str], folder: Path, limit: int | None = None) -> Ended:
    """A command in a process of its own, no file of which grows beyond `limit` bytes."""
    from harness import Command, start

    log = Path(tempfile.mkstemp(dir=folder, suffix=".log")[1])
    command = Command(words=words)
    if limit is None:
        process = start(command, log)
    else:
        process = start(Command(words=[str(limit), *words], function=_limited), log)
    process.join(PATIENCE)
    hung = process.exitcode is None
    if hung:
        process.kill()
        process.join()
    said = log.read_text(errors="replace")
    log.unlink()
    return Ended(code=None if hung else process.exitcode, said=said)


def _limited(words: list[str]) -> None:
    from unshaken.cli import main

    limit = int(words[0])
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    sys.argv = ["unshaken", *words[1:]]
    main()


# --------------------------------------------------------------------------------------------------------- commands


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A command that writes to a folder, and how to read what it left there."""

    name: str
    words: Callable[[Path], list[str]]
    read: Callable[[Path], Any]
    resume: tuple[str, ...] = ("--resume",)  # added from the second start on


def subjects(folder: Path) -> list[Subject]:
    from small_world import make_world
    from tiny_commands import make_arguments

    tiny = make_arguments(made(folder / "tiny"))
    model, data = tiny[0], tiny[2]
    substitutes = tiny[tiny.index("--substitutions") + 1]
    world = make_world(made(folder / "world"))
    big = folder / "tiny" / "big.jsonl"
    lines = Path(data).read_text()
    big.write_text(lines * 3)
    encoder = folder / "world" / "encoder"
    training = f"--model {encoder} --cpu --batch-size 2 --epochs 4 --learning-rate 1e-3".split()
    scan = ["scan", model, data, "--device", "cpu", "--family", "typos,synonyms,spacing", "--search", "2"]
    recipe = ["reproduce", str(world / "small.toml"), "--encoder", str(encoder), "--data", str(world / "data")]
    harden = ["harden", str(big), "--model", str(encoder), "--cpu", "--epochs", "1", "--attacked", "6"]
    harden += ["--substitutions", substitutes, "--max-length", "32", "--batch-size", "8"]
    return [
        Subject(
            name="train",
            words=lambda out: ["train", "--task", data, *training, "--save-steps", "4", "--out", str(out)],
            read=_trained,
        ),
        Subject(name="attack", words=lambda out: ["attack", *tiny, "--out", str(out)], read=_reports),
        Subject(name="evaluate", words=lambda out: ["evaluate", *tiny, "--out", str(out)], read=_reports),
        Subject(
            name="attack --block",
            words=lambda out: ["attack", *_with(tiny, data, str(big)), "--block", "16", "--out", str(out)],
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
            words=lambda out: ["augment", str(big), "--substitutions", substitutes, "--copies", "20",
                               "--out", str(out / "a.jsonl")],
            read=lambda out: (out / "a.jsonl").read_text(),
            resume=(),
        ),
        Subject(name="scan", words=lambda out: [*scan, "--out", str(out)], read=_scanned, resume=()),
    ]  # fmt: skip


def chosen(found: list[Subject]) -> list[Subject]:
    """Those that `--commands` names; all where it names none."""
    return [subject for subject in found if subject.name in (COMMANDS or [subject.name])]


def _with(words: list[str], old: str, new: str) -> list[str]:
    return [new if word == old else word for word in words]


def _plain(value: Any) -> Any:
    """Without clocks, and with numbers as exact as batches of other sizes leave them."""
    if isinstance(value, dict):
        clocks = ("seconds", "created", "environment", "derived", "fingerprint", "identity")
        return {key: _plain(item) for key, item in value.items() if key not in clocks}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return round(value, 3) if isinstance(value, float) else value


def _reports(out: Path) -> Any:
    found = json.loads((out / "report.json").read_text())
    assert (out / "report.html").read_text().endswith("</html>\n")
    return _named_by_file(_plain(found), out)


def _named_by_file(value: Any, out: Path) -> Any:
    return json.loads(json.dumps(value).replace(str(out), "OUT"))


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


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@contextmanager
def workspace() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="endurance-") as name:
        yield Path(name)


def undisturbed(subject: Subject, folder: Path) -> tuple[Any, float, Path]:
    """What the command leaves where nobody disturbs it, and how long that takes."""
    out = folder / f"whole-{subject.name.replace(' ', '')}"
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


# --------------------------------------------------------------------------------------------- kills, disks, damage


def kills(scale: float) -> Trials:
    """SIGKILL at random moments; the run is resumed until it ends, and compared."""
    from harness import Command, start

    draw = random.Random(0)
    with workspace() as folder:
        for subject in chosen(subjects(folder)):
            kind = f"kills: {subject.name}"
            call(["--version"], folder)  # waits for the imports
            expected, seconds, _ = undisturbed(subject, folder)
            hit, number = 0, 0
            while hit < max(1, round(30 * scale)):
                out, log = folder / f"run-{number}", folder / "log"
                number += 1
                killed = 0
                for _ in range(3):
                    words = [*subject.words(out), *(subject.resume if killed else ())]
                    process = start(Command(words=words), log)
                    process.join(draw.uniform(0.02, 0.98) * seconds)
                    if process.exitcode is not None:
                        break
                    process.kill()
                    process.join()
                    killed += 1
                if not killed:
                    seconds /= 1.5  # the machine was busier when it was measured
                ended = call([*subject.words(out), *(subject.resume if killed else ())], folder)
                if not killed and ended.is_refusal:  # it had ended well, and its folder is not written over
                    ended = Ended(code=0, said="")
                verdict, what = compared(subject, out, expected, ended)
                hit += killed
                if killed or what:
                    yield Trial(kind=kind, verdict=verdict, what=what, times=killed or 1)
                shutil.rmtree(out, ignore_errors=True)


def disks(scale: float) -> Trials:
    """A disk that is full at a random moment: one line, and after it is emptied the run goes on."""
    draw = random.Random(1)
    with workspace() as folder:
        for subject in chosen(subjects(folder)):
            expected, _, whole = undisturbed(subject, folder)
            largest = max(path.stat().st_size for path in whole.rglob("*") if path.is_file())
            for number in range(max(1, round(10 * scale))):
                out = folder / f"run-{number}"
                ended = call(subject.words(out), folder, limit=int(largest * draw.uniform(0.005, 0.95)))
                verdict, what = ended.verdict()
                if verdict == "held":
                    verdict, what = compared(subject, out, expected, ended)
                elif verdict == "refused":
                    again = call([*subject.words(out), *subject.resume], folder)
                    verdict, what = compared(subject, out, expected, again)
                    verdict = "refused" if verdict == "held" else verdict
                yield Trial(kind=f"full disks: {subject.name}", verdict=verdict, what=what)
                shutil.rmtree(out, ignore_errors=True)


def damage(scale: float) -> Trials:
    """One file of a finished run is bent; what is resumed ends as before, or says what is wrong."""
    draw = random.Random(2)
    with workspace() as folder:
        for subject in [item for item in chosen(subjects(folder)) if item.resume]:
            expected, _, whole = undisturbed(subject, folder)
            files = sorted(path for path in whole.rglob("*") if path.is_file() and path.name != ".lock")
            for number in range(max(1, round(20 * scale))):
                out = folder / f"run-{number}"
                shutil.copytree(whole, out)
                path = out / draw.choice(files).relative_to(whole)
                how = bend(path, draw)
                ended = call([*subject.words(out), *subject.resume], folder)
                verdict, what = ("refused", "") if ended.is_refusal else compared(subject, out, expected, ended)
                where = f"{how} {path.relative_to(out)}: "
                yield Trial(kind=f"damage: {subject.name}", verdict=verdict, what=what and where + what)
                shutil.rmtree(out)


def bend(path: Path, draw: random.Random) -> str:
    data = bytearray(path.read_bytes())
    how = draw.choice(("removed", "emptied", "cut", "flipped", "zeroed"))
    if how == "removed":
        path.unlink()
        return how
    if how == "cut":
        data = data[: draw.randrange(len(data) or 1)]
    elif how == "flipped" and data:
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    elif how == "zeroed":
        data = bytearray(len(data))
    path.write_bytes(b"" if how == "emptied" else data)
    return how


# ------------------------------------------------------------------------------------------- hostile models and data


ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, -2, 3, 10**12, 10**30, 0.5, 1e308, "", "x", "os.path:join", "../../x", "\x1b[2J", [], {},
    [1], {"a": 1}, [[]], "9" * 5000, "\u202e", "evil/kernel",
)  # fmt: skip


def folders(scale: float) -> Trials:
    """Model folders with one thing bent. What is taken must have another fingerprint, or answer as before."""
    from tiny_commands import make_arguments

    draw = random.Random(3)
    with workspace() as folder:
        words = make_arguments(made(folder / "tiny"))
        model = Path(words[0])
        words = ["evaluate", *_with(words, str(model), str(folder / "bent"))]
        expected = _measured(
            call([*words[:1], str(model), *words[2:], "--out", str(folder / "w")], folder), folder / "w"
        )
        for number in range(max(1, round(150 * scale))):
            shutil.copytree(model, folder / "bent")
            how = bend_model(folder / "bent", draw)
            ended = call([*words, "--out", str(folder / "out")], folder)
            verdict, what = ended.verdict(f"{number} {how}: ")
            if verdict == "held":
                found = _measured(ended, folder / "out")
                if found != expected and found[0] == expected[0]:
                    verdict, what = "wrong", f"{number} {how}: other answers under the same fingerprint"
            if ACTING.search(re.sub(r"\x1b\[[0-9;]*m", "", ended.said.replace("\r", ""))):
                verdict, what = "other", f"{how}: characters that act: {ended.said[-500:]!r}"
            yield Trial(kind="hostile folders", verdict=verdict, what=what)
            shutil.rmtree(folder / "bent")
            shutil.rmtree(folder / "out", ignore_errors=True)


def _measured(ended: Ended, out: Path) -> Any:
    """Fingerprint of the model, and what it answered."""
    found = json.loads((out / "report.json").read_text())["evaluations"][0]
    return found["model"]["fingerprint"], [row["prediction"] for row in found["predictions"]]


def bend_model(folder: Path, draw: random.Random) -> str:
    path = draw.choice(sorted(path for path in folder.iterdir() if path.is_file()))
    if path.suffix != ".json" or draw.random() < 0.2:
        return f"{bend(path, draw)} {path.name}"
    content = json.loads(path.read_text())
    holder = content
    while isinstance(holder, dict) and draw.random() < 0.5:
        inner = [value for value in holder.values() if isinstance(value, dict) and value]
        if not inner:
            break
        holder = draw.choice(inner)
    key = draw.choice([*holder, "auto_map", "architectures", "quantization_config", "_attn_implementation"])
    holder[key] = draw.choice(ODD_VALUES)
    path.write_text(json.dumps(content))
    return f"{path.name}: {key} = {str(holder[key])[:40]!r}"


def files(scale: float) -> Trials:
    """Data files with something bent. What is taken has as many rows as the file has, by another reader."""
    from targets import targets
    from tiny_commands import make_arguments

    draw = random.Random(4)
    with workspace() as folder:
        words = make_arguments(made(folder / "tiny"))
        seeds = [(name, seed) for name in ("csv", "tsv", "jsonl", "json", "parquet") for seed in targets()[name].seeds]
        for _ in range(max(1, round(100 * scale))):
            name, seed = draw.choice(seeds)
            path = folder / f"data.{name}"
            path.write_bytes(mutated(name, seed, draw))
            out = ["-n", "50", "--out", str(folder / "out")]
            ended = call(["evaluate", words[0], str(path), "--device", "cpu", *out], folder)
            verdict, what = ended.verdict(f"{path.read_bytes()[:400]!r}: ")
            if verdict == "held" and name == "jsonl":
                rows = sum(bool(line.strip()) for line in path.read_bytes().split(b"\n"))
                found = json.loads((folder / "out" / "report.json").read_text())["evaluations"][0]["predictions"]
                if len(found) != min(rows, 50):
                    verdict, what = "wrong", f"{len(found)} rows of {rows}"
            yield Trial(kind="hostile files", verdict=verdict, what=what)
            shutil.rmtree(folder / "out", ignore_errors=True)


def names(scale: float) -> Trials:
    """Payloads as text, label, column, file and folder: shown, and obeyed nowhere."""
    from tiny_commands import make_arguments

    with workspace() as folder:
        words = make_arguments(made(folder / "tiny"))
        for number, payload in enumerate(PAYLOADS[: max(1, round(len(PAYLOADS) * scale))]):
            place = folder / f"p{number}"
            named = place / re.sub(r"[/\x00]", "_", f"m{payload}")
            shutil.copytree(words[0], named)
            config = json.loads((named / "config.json").read_text())
            labels = ["neg", payload]
            config |= {"id2label": dict(enumerate(labels)), "label2id": {name: i for i, name in enumerate(labels)}}
            (named / "config.json").write_text(json.dumps(config))
            data = place / re.sub(r"[/\x00,]", "_", f"d{payload}.jsonl")
            rows = [{payload + "t": f"a good film {payload} {n}", "label": labels[n % 2]} for n in range(6)]
            data.write_text("".join(json.dumps(row) + "\n" for row in rows))
            out = place / "out"
            line = ["attack", str(named), str(data), "--text-column", payload + "t", "--device", "cpu"]
            line += ["--attack", "random:samples=3", "--substitutions", words[words.index("--substitutions") + 1]]
            ended = call([*line, "--out", str(out)], folder)
            verdict, what = ended.verdict(f"{payload!r}: ")
            if not what and (bad := _obeyed(ended, out, payload)):
                verdict, what = "other", f"{payload!r}: {bad}"
            yield Trial(kind="injected names", verdict=verdict, what=what)


def _obeyed(ended: Ended, out: Path, payload: str) -> str:
    if ACTING.search(re.sub(r"\x1b\[[0-9;]*m", "", ended.said.replace("\r", ""))):
        return "characters that act reach the terminal"
    for page in out.rglob("*.html"):
        body = re.sub(r"<script type=\"application/json\".*?</script>", "", page.read_text(), flags=re.S)
        if payload.startswith("<") and payload in body:
            return f"markup in {page.name}"
    for table in out.rglob("*.csv"):
        if any(cell.startswith(("=", "@", "+")) for line in table.read_text().splitlines() for cell in line.split(",")):
            return f"a formula in {table.name}"
    return ""


# -------------------------------------------------------------------------------------------------------------- fuzz


def fuzz(scale: float) -> Trials:
    """Every reader under bent inputs: taken, or refused by our own error."""
    from targets import feed, targets

    def late(*_: object) -> None:
        raise TimeoutError("an input took more than 30 seconds")

    signal.signal(signal.SIGALRM, late)
    draw = random.Random(5)
    count = max(1, round(150_000 * scale / len(targets())) + 1)
    for name, target in targets().items():
        verdicts: Counter[str] = Counter()
        for _ in range(count):
            data = mutated(name, draw.choice(target.seeds), draw)
            signal.alarm(30)
            try:
                verdicts["held" if feed(name, data) else "refused"] += 1
            except Exception:
                where = "".join(traceback.format_exc().splitlines(keepends=True)[-7:])
                verdict = "hang" if "TimeoutError" in where else "traceback"
                yield Trial(kind=f"fuzz: {name}", verdict=verdict, what=f"{data[:300]!r}: {where}")
            finally:
                signal.alarm(0)
        for verdict, times in verdicts.items():
            yield Trial(kind=f"fuzz: {name}", verdict=verdict, times=times)


def mutated(name: str, seed: bytes, draw: random.Random) -> bytes:
    """A valid input with some bytes, or some values, changed."""
    from targets import PIECES, targets

    form = targets()[name].form
    if form is not None and draw.random() < 0.6:
        try:
            return form.write(_other_values(form.read(seed), draw))
        except Exception:  # a value that the format cannot hold
            return seed
    data = seed
    for _ in range(draw.randint(1, 4)):
        start = draw.randint(0, len(data))
        stop = start + draw.choice([0, 0, 1, 2, 8, 64, len(data)])
        new = draw.choice([draw.choice(PIECES), draw.randbytes(draw.randint(0, 6)), data[start:stop] * 2, b""])
        data = data[:start] + new + data[stop:]
    return data


def _other_values(value: Any, draw: random.Random) -> Any:
    from targets import VALUES

    for _ in range(draw.randint(1, 3)):
        holders = [place for place in _places(value) if place]
        if not holders:
            break
        holder = draw.choice(holders)
        key = draw.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        change = draw.choice(["replace", "replace", "drop", "add"])
        if change == "drop":
            del holder[key]
        elif change == "replace":
            holder[key] = json.loads(json.dumps(draw.choice(VALUES)))
        elif isinstance(holder, dict):
            holder[draw.choice(["", "name", "label", "unheard of"])] = holder[key]
        else:
            holder.append(holder[key])
    return value


def _places(value: Any) -> list[Any]:
    if not isinstance(value, (dict, list)):
        return []
    inner = value.values() if isinstance(value, dict) else value
    return [value, *(place for item in inner for place in _places(item))]


PARTS: dict[str, Callable[[float], Trials]] = {
    "kills": kills,
    "disks": disks,
    "damage": damage,
    "folders": folders,
    "files": files,
    "names": names,
    "fuzz": fuzz,
}


def table(out: Path) -> tuple[str, bool]:
    """What the lines of `out` count up to, in Markdown, and whether there is a fault."""
    counts: dict[str, Counter[str]] = {}
    commits = set()
    for line in out.read_text().splitlines():
        found = json.loads(line)
        counts.setdefault(found["kind"], Counter())[found["verdict"]] += found["times"]
        commits.add(found["commit"])
    columns = ("held", "refused", *FAULTS)
    rows = ["| trials | all | held | refused | tracebacks | hangs | wrong with exit 0 | other |", "|---|" + "--:|" * 7]
    for kind, found in [*counts.items(), ("**all**", sum(counts.values(), Counter()))]:
        rows.append(f"| {kind} | {found.total():,} | " + " | ".join(f"{found[column]:,}" for column in columns) + " |")
    said = f"Measured on {', '.join(f'`{commit}`' for commit in sorted(commits))}.\n\n" + "\n".join(rows) + "\n"
    return said, any(found[fault] for found in counts.values() for fault in FAULTS)


def record(page: Path, said: str) -> None:
    """The table in place of the one between the page's two marks."""
    before, rest = page.read_text().split(BEGIN)
    page.write_text(before + BEGIN + "\n" + said + END + rest.split(END)[1])


def measured_commit() -> str:
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(words, capture_output=True, text=True).stdout.strip() or "an unknown commit"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all where none")
    options.add_argument("--scale", type=float, default=1.0, help="share of the trials")
    options.add_argument("--commands", default="", help="of kills, disks and damage: train,attack; all where none")
    options.add_argument("--out", type=Path, default=Path("endurance.jsonl"))
    options.add_argument(
        "--record", type=Path, metavar="PAGE", help="only count --out, and write the table into a page"
    )
    arguments = options.parse_args()
    if unknown := [part for part in arguments.parts if part not in PARTS]:
        options.error(f"unknown part {unknown[0]!r}")
    if arguments.record:
        record(arguments.record, table(arguments.out)[0])
        return
    COMMANDS.extend(filter(None, arguments.commands.split(",")))
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    commit = measured_commit()
    with arguments.out.open("a") as stream:
        for part in arguments.parts or PARTS:
            for trial in PARTS[part](arguments.scale):
                stream.write(json.dumps(vars(trial) | {"commit": commit}) + "\n")
                stream.flush()
    said, has_fault = table(arguments.out)
    print(said)
    sys.exit(has_fault)


if __name__ == "__main__":
    main()
