"""Large files on one machine: is memory flat, does the forecast hold, does a killed run end as an undisturbed one?

    python benchmarks/load.py --rows 20000 --block 2000 --kills 5

A tiny model and a cheap attack, so that what is measured is the road and not the model. In one run: a file of `--rows`
rows and one of ten times as many through `unshaken attack --block`; the peak memory of the second as a multiple of the
first, the time that `--dry-run` predicted as a multiple of the real one, and a run that is killed at random moments,
resumed, and compared with the undisturbed one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
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
    """Texts of 6 to 16 words, no two equal."""
    draw = random.Random(0)
    with path.open("w") as stream:
        stream.write("text,label\n")
        for number in range(count):
            words = [draw.choice((*ADJECTIVES, *NOUNS, *REST)) for _ in range(draw.randint(5, 15))]
            stream.write(f"{' '.join(words)} {number},{draw.randint(0, 1)}\n")
    return path


@dataclass(frozen=True)
class Spent:
    """What a command took."""

    seconds: float
    processor_seconds: float = 0.0
    megabytes: float = 0.0  # at its peak
    code: int = 0


def run(words: list[str], log: Path, kill_after: float | None = None) -> Spent:
    with log.open("ab") as stream:
        begin = time.perf_counter()
        process = subprocess.Popen(words, stdout=stream, stderr=stream)
        if kill_after is not None:
            try:
                process.wait(kill_after)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
            return Spent(time.perf_counter() - begin, code=process.returncode)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    busy = used.ru_utime + used.ru_stime
    return Spent(time.perf_counter() - begin, busy, used.ru_maxrss / 1024, process.returncode)


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
    options.add_argument("--rows", type=int, default=20_000, help="of the smaller file")
    options.add_argument("--block", type=int, default=2_000)
    options.add_argument("--attack", default="random:samples=4")
    options.add_argument("--command", default="attack", choices=("attack", "evaluate"))
    options.add_argument("--kills", type=int, default=5, help="of the smaller run")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, words, log = make_model(folder / "model"), make_words(folder / "words.json"), folder / "log"
        substitutes = ["--substitutions", f"dictionary:path={words}"]

        def command(data: Path, out: Path) -> list[str]:
            start = [sys.executable, "-m", "unshaken", arguments.command, str(model), str(data), *substitutes]
            options = ["--attack", arguments.attack, "--block", str(arguments.block), "--out", str(out)]
            return [*start, *options, "--device", "cpu"]

        runs = []
        for times_more in (1, 10):
            rows = arguments.rows * times_more
            data = make_rows(folder / f"{times_more}.csv", rows)
            said = predicted(command(data, folder / "nothing"), folder)
            found = require(run(command(data, folder / f"out-{times_more}"), log), log)
            runs.append(found)
            print(f"{rows:,} rows: {found.seconds:.0f} s, {found.processor_seconds:.0f} s of processor time")
            print(f"  peak memory {found.megabytes:,.0f} MB")
            print(f"  predicted / real time: {said[0] / found.seconds:.2f}", end="")
            print(f", by processor time {said[1] / found.processor_seconds:.2f}", flush=True)
        print(f"peak memory, ten times the rows / once: {runs[1].megabytes / runs[0].megabytes:.2f}")
        draw, killed, out = random.Random(1), 0, folder / "killed"
        words_again = command(folder / "1.csv", out)
        while killed < arguments.kills:
            moment = draw.uniform(0.05, 0.95) * runs[0].seconds
            killed += run([*words_again, "--resume"], log, kill_after=moment).code == -signal.SIGKILL
            if (out / "totals.json").exists():
                break
        require(run([*words_again, "--resume"], log), log)
        same = counts(out) == counts(folder / "out-1")
        print(f"{killed} kills, resumed: {'the same totals' if same else 'OTHER TOTALS'}")


if __name__ == "__main__":
    main()
