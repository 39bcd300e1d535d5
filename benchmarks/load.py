"""Large files on one machine: is memory flat, does the forecast hold, does a killed run end as an undisturbed one?

    python benchmarks/load.py --rows 1000000 --command attack
    python benchmarks/load.py --rows 20000 --block 2000 --command evaluate

A tiny model, short texts and a cheap attack, so that what is measured is the road and not the model. In one run: what
`--dry-run` predicts; the whole file, with the memory of the process once a second; and then the last of its blocks once
more, killed at random moments and resumed, until the totals of all rows are there again and can be compared. The line
at the end is JSON, and `--out experiments/benchmarks/cpu/load.jsonl` adds it there, from where the docs take it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

ADJECTIVES = [
    "good",
    "fine",
    "great",
    "nice",
    "decent",
    "bad",
    "poor",
    "awful",
    "weak",
    "dull",
    "slow",
    "long",
    "bright",
    "warm",
    "sharp",
    "loud",
    "calm",
    "bold",
]
NOUNS = [
    "film",
    "movie",
    "picture",
    "plot",
    "story",
    "end",
    "scene",
    "cast",
    "score",
    "tone",
    "voice",
    "play",
    "show",
    "role",
    "line",
    "frame",
    "shot",
    "song",
]
REST = ["a", "the", "was", "with", "and", "but", "not", "very", "rather", "it", "is", "of", "some"]


def make_model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *ADJECTIVES, *NOUNS, *REST, ".", ",", *"0123456789"]
    vocab += [f"##{digit}" for digit in range(10)]
    (folder / "vocab.txt").write_text("\n".join(vocab))
    tokenizer = BertTokenizerFast(vocab=str(folder / "vocab.txt"), model_max_length=32)
    torch.manual_seed(4)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        max_position_embeddings=32,
        initializer_range=0.5,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_words(path: Path) -> Path:
    groups = [ADJECTIVES[n : n + 3] for n in range(0, len(ADJECTIVES), 3)]
    groups += [NOUNS[n : n + 3] for n in range(0, len(NOUNS), 3)]
    entries = {word: [other for other in group if other != word] for group in groups for word in group}
    path.write_text(json.dumps(entries))
    return path


def make_rows(path: Path, count: int) -> Path:
    """Texts of 3 to 7 words, no two equal."""
    draw = random.Random(0)
    with path.open("w") as stream:
        stream.write("text,label\n")
        for number in range(count):
            words = [draw.choice((*ADJECTIVES, *NOUNS, *REST)) for _ in range(draw.randint(2, 6))]
            stream.write(f"{' '.join(words)} {number},{draw.randint(0, 1)}\n")
    return path


@dataclass(frozen=True)
class Spent:
    """What a command took."""

    seconds: float
    processor_seconds: float = 0.0
    megabytes: tuple[float, ...] = ()  # the peak of each tenth of the time
    code: int = 0


def run(words: list[str], log: Path, kill_after: float | None = None) -> Spent:
    """A command to its end, or until it is killed, with a look at its memory once a second."""
    with log.open("ab") as stream:
        begin = time.perf_counter()
        process = subprocess.Popen(words, stdout=stream, stderr=stream)
        looks = []
        while not (found := os.wait4(process.pid, os.WNOHANG))[0]:
            looks.append(resident(process.pid))
            if kill_after is not None and time.perf_counter() - begin > kill_after:
                process.send_signal(signal.SIGKILL)
            time.sleep(0.2 if len(looks) < 50 else 1.0)
        process.returncode = os.waitstatus_to_exitcode(found[1])
    busy = found[2].ru_utime + found[2].ru_stime
    tenths = [looks[len(looks) * n // 10 : len(looks) * (n + 1) // 10] for n in range(10)]
    return Spent(time.perf_counter() - begin, busy, tuple(max(part, default=0) for part in tenths), process.returncode)


def resident(process: int) -> float:
    """Megabytes that a process holds now."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except (OSError, IndexError):  # it has just ended
        return 0.0


def predicted(words: list[str], folder: Path) -> tuple[float, float]:
    """Seconds by `--dry-run`, by both clocks, the start of the process as a run has it included."""
    log = folder / "dry-run"
    spent = require(run([*words, "--dry-run"], log), log)
    said = log.read_text().strip().splitlines()[-1]
    log.unlink()
    print(f"  {said}")
    time_in = r"((?:\d+ h )?[\d.]+ (?:s|min))"
    found = re.findall(rf"(?:about|in) {time_in} \({time_in}", said)
    (about, busy), (measured, measured_busy) = ([_seconds(text) for text in pair] for pair in found)
    return about + spent.seconds - measured, busy + spent.processor_seconds - measured_busy


def _seconds(text: str) -> float:
    units = {"h": 3600, "min": 60, "s": 1}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+) (h|min|s)", text))


def require(done: Spent, log: Path) -> Spent:
    if done.code != 0:
        sys.exit(f"a command ended with {done.code}:\n{log.read_text()[-2000:]}")
    return done


def counts(out: Path) -> object:
    found = json.loads((out / "totals.json").read_text())
    for line in found["lines"]:
        del line["seconds"]
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=20_000)
    options.add_argument("--block", type=int, default=20_000)
    options.add_argument("--attack", default="random:samples=1", help="of the command `attack`")
    options.add_argument("--command", default="attack", choices=("attack", "evaluate"))
    options.add_argument("--kills", type=int, default=5)
    options.add_argument("--out", type=Path, help="add the line to this file too")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log, out = folder / "log", folder / "out"
        data = make_rows(folder / "rows.csv", arguments.rows)
        words = [sys.executable, "-m", "unshaken", arguments.command, str(make_model(folder / "model")), str(data)]
        words += ["--block", str(arguments.block), "--device", "cpu", "--out", str(out)]
        if arguments.command == "attack":
            substitutes = f"dictionary:path={make_words(folder / 'words.json')}"
            words += ["--attack", arguments.attack, "--substitutions", substitutes]
        forecast = predicted(words, folder)
        found = require(run(words, log), log)
        print(f"{arguments.rows:,} rows: {found.seconds:.0f} s, {found.processor_seconds:.0f} s of processor time")
        print(f"megabytes in each tenth of the time: {', '.join(f'{value:.0f}' for value in found.megabytes)}")
        ratios = forecast[0] / found.seconds, forecast[1] / found.processor_seconds
        print(f"predicted / real time: {ratios[0]:.2f}, by processor time {ratios[1]:.2f}", flush=True)
        killed, same = kill_the_end(words, out, log, arguments.kills, found.seconds)
        print(f"{killed} kills, resumed: {'the same totals' if same else 'OTHER TOTALS'}")
        facts = {"command": arguments.command, "rows": arguments.rows, "block": arguments.block, "killed": killed}
        facts |= {"same": same, "seconds": found.seconds, "processor_seconds": found.processor_seconds}
        facts |= {"predicted": forecast[0], "predicted_processor": forecast[1], "megabytes": found.megabytes}
        facts |= {"device": platform.machine(), "torch": torch.__version__}
        print(json.dumps(facts))
        if arguments.out:
            with arguments.out.open("a") as stream:
                stream.write(json.dumps(facts) + "\n")


def kill_the_end(words: list[str], out: Path, log: Path, kills: int, seconds: float) -> tuple[int, bool]:
    """Take the last blocks away, do them again under kills, and compare the totals of all rows."""
    expected = counts(out)
    (out / "totals.json").unlink()
    blocks = sorted((out / "blocks").iterdir())
    for block in blocks[-max(1, len(blocks) // 20) :]:
        shutil.rmtree(block)
    draw, killed = random.Random(1), 0
    longest = max(seconds / 10, 30.0)
    while killed < kills and not (out / "totals.json").exists():
        killed += run([*words, "--resume"], log, draw.uniform(0.1, 1.0) * longest).code == -signal.SIGKILL
    require(run([*words, "--resume"], log), log)
    return killed, counts(out) == expected


if __name__ == "__main__":
    main()
