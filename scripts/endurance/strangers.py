"""What strangers wrote: model folders, data files and names."""

from __future__ import annotations

import csv
import io
import json
import random
import re
import shutil
from pathlib import Path
from typing import Any

from disturbed import bend
from fuzzed import mutated
from pyarrow import parquet
from trials import Ended, Plan, Trial, Trials, call, made, workspace

ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, -2, 3, 10**12, 10**30, 0.5, 1e308, "", "x", "os.path:join", "../../x", "\x1b[2J", [], {},
    [1], {"a": 1}, [[]], "9" * 5000, "\u202e", "evil/kernel",
)  # fmt: skip
PAYLOADS = (
    "<script>hacked()</script>", "<img src=x onerror=hacked()>", "</script><b>", "=cmd|'/c calc'!A1", "@SUM(1)", "+1+1",
    "\x1b[2J", "\x1b]0;owned\x07", "\x9b31m", "\u202egnp.exe", "[bold]x[/]", "[link=http://x]y[/link]",
    "`code` | **bold**", r"\input{/etc/passwd}", "${jndi:ldap://x}", "%s%n{0}",
)  # fmt: skip


def folders(plan: Plan) -> Trials:
    """Model folders with one thing bent. What is taken must have another fingerprint, or answer as before."""
    from tiny_commands import make_arguments

    kind = "hostile folders"
    draw = plan.draw(kind)
    with workspace() as folder:
        words = make_arguments(made(folder / "tiny"))
        model = Path(words[0])
        bent, out = folder / "bent", folder / "out"
        few = ["--task", words[2], "--device", "cpu", "-n", "16", "--out"]
        call(["evaluate", str(model), *few, str(folder / "whole")], folder)
        expected = _measured(folder / "whole")
        for _ in range(plan.missing(kind, 150)):
            shutil.copytree(model, bent)
            how = bend_model(bent, draw)
            ended = call(["evaluate", str(bent), *few, str(out)], folder)
            verdict, what = ended.verdict(f"{how}: ")
            if verdict == "held":
                found = _measured(out)
                if found != expected and found[0] == expected[0]:
                    verdict, what = "wrong", f"{how}: other answers under the same fingerprint"
            if ended.acts:
                verdict, what = "other", f"{how}: characters that act: {ended.said[-500:]!r}"
            yield Trial(kind=kind, verdict=verdict, what=what)
            shutil.rmtree(bent)
            shutil.rmtree(out, ignore_errors=True)


def _measured(out: Path) -> Any:
    """Fingerprint of the model, and what it answered."""
    found = json.loads((out / "report.json").read_text())["evaluations"][0]
    return found["model"]["fingerprint"], [row["prediction"] for row in found["predictions"]]


def bend_model(folder: Path, draw: random.Random) -> str:
    """Change one file of a model, and say how."""
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


def files(plan: Plan) -> Trials:
    """Data files with something bent. What is taken has as many rows as the file has, by another reader."""
    from targets import targets
    from tiny_commands import make_arguments

    kind = "hostile files"
    draw = plan.draw(kind)
    with workspace() as folder:
        words = make_arguments(made(folder / "tiny"))
        seeds = [(name, seed) for name in ("csv", "tsv", "jsonl", "json", "parquet") for seed in targets()[name].seeds]
        for _ in range(plan.missing(kind, 100)):
            name, seed = draw.choice(seeds)
            path = folder / f"data.{name}"
            path.write_bytes(mutated(name, seed, draw))
            out = ["-n", "50", "--out", str(folder / "out")]
            ended = call(["evaluate", words[0], str(path), "--device", "cpu", *out], folder)
            verdict, what = ended.verdict(f"{path.read_bytes()[:400]!r}: ")
            if verdict == "held":
                rows = rows_in(path)
                found = json.loads((folder / "out" / "report.json").read_text())["evaluations"][0]["predictions"]
                if len(found) != min(rows, 50):
                    verdict, what = "wrong", f"{path.read_bytes()[:400]!r}: {len(found)} rows of {rows}"
            yield Trial(kind=kind, verdict=verdict, what=what)
            shutil.rmtree(folder / "out", ignore_errors=True)


def rows_in(path: Path) -> int:
    """The rows of a data file, counted by other readers than ours."""
    if path.suffix == ".parquet":
        return int(parquet.read_metadata(path).num_rows)
    data = path.read_bytes()
    lines = [line for line in data.split(b"\n") if line.strip()]
    if path.suffix == ".jsonl":
        return len(lines)
    if path.suffix == ".tsv":
        return len(lines) - 1
    if path.suffix == ".json":
        found = json.loads(data)
        return (
            len(found)
            if isinstance(found, list)
            else max(len(item) for item in found.values() if isinstance(item, list))
        )
    delimiter = max(",;", key=lines[0].decode().count)
    return sum(map(any, csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), delimiter=delimiter))) - 1


def payloads_left(plan: Plan, kind: str) -> tuple[str, ...]:
    """Those after the ones that earlier lines have, whatever the scale was."""
    done = plan.done[kind]
    return PAYLOADS[done : done + plan.missing(kind, len(PAYLOADS))]


def names(plan: Plan) -> Trials:
    """Payloads as text, label, column, file and folder: shown, and obeyed nowhere."""
    from tiny_commands import make_arguments

    kind = "injected names"
    with workspace() as folder:
        words = make_arguments(made(folder / "tiny"))
        for number, payload in enumerate(payloads_left(plan, kind)):
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
            yield Trial(kind=kind, verdict=verdict, what=what)


def _obeyed(ended: Ended, out: Path, payload: str) -> str:
    if ended.acts:
        return "characters that act reach the terminal"
    for page in out.rglob("*.html"):
        body = re.sub(r"<script type=\"application/json\".*?</script>", "", page.read_text(), flags=re.S)
        if payload.startswith("<") and payload in body:
            return f"markup in {page.name}"
    for table in out.rglob("*.csv"):
        if any(cell.startswith(("=", "@", "+")) for line in table.read_text().splitlines() for cell in line.split(",")):
            return f"a formula in {table.name}"
    return ""
