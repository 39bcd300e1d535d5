"""Trains what stands on our leaderboard and scores it: ten methods per encoder, three seeds each, one suite for all.

    python experiments/board.py --encoders MODELS --data DATA --out OUT --workers 12 --minutes 20

MODELS has a folder per encoder (minilm, gte-small), DATA has glue/SST-2 and counterfitted_neighbors.json. Every step is
a command that anyone can give: `unshaken train`, `unshaken leaderboard score`, `submit` and `build`. What OUT holds
already is not done again, so the same command goes on where it was stopped. The entries end in OUT/board, the page in
OUT/board.html. Weights stay in OUT/models: an entry names them by their fingerprints, and the recipe trains them again.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

DICTIONARY = "dictionary:counterfitted_neighbors.json"
METHODS = {
    "plain": "--defence standard",
    "FreeLB": "--defence freelb",
    "SMART": "--defence smart",
    "ASCC": "--defence ascc",
    "RIFT": "--defence rift",
    "SWAP": "--defence swap",
    "SWAP, recall 0.5, spread": "--defence swap:rate=1.0,spread=true,recall=0.5",
    "Smoothed 1": f"--defence standard --smooth {DICTIONARY}",
    "Smoothed 1 + SWAP": f"--defence swap --smooth {DICTIONARY}",
    "Smoothed 2 + SWAP": f"--defence swap --smooth {DICTIONARY} --hops 2",
}
RATES = {"minilm": "1e-4", "gte-small": "5e-5"}
SEEDS = (0, 1, 2)
# Plain models of other seeds, whose adversarial texts the suite transfers; their recipe is `plain`'s.
PUBLIC = (("minilm", 100), ("minilm", 101), ("gte-small", 100))


@dataclass(frozen=True)
class Board:
    given: argparse.Namespace
    deadline: float
    failed: list[str] = field(default_factory=list)

    @property
    def out(self) -> Path:
        return Path(self.given.out)

    def training(self, encoder: str, method: str) -> list[str]:
        """The command that trains a method, but for the seed and the folder."""
        return [
            *("train", "sst2", "--data", str(self.given.data), "--model", str(self.given.encoders / encoder)),
            *(
                "--limit",
                str(self.given.rows),
                "--epochs",
                "3",
                "--batch-size",
                "64",
                "--learning-rate",
                RATES[encoder],
            ),
            *("--select-by", "pwws", "--substitutions", DICTIONARY, *shlex.split(METHODS[method])),
            *(["--bf16"] if self.given.device == "cuda" else []),
        ]

    def folder(self, encoder: str, method: str, seed: int) -> Path:
        """Where a model goes, from OUT: an entry names its weights by this path."""
        name = "".join(letter if letter.isalnum() else "-" for letter in method.lower())
        return Path("models") / f"{encoder}-{name}-s{seed}"

    def train(self, encoder: str, method: str, seed: int) -> None:
        folder = self.folder(encoder, method, seed)
        if not (self.out / folder / "model" / "config.json").is_file():
            own = ["--seed", str(seed), "--out", str(folder), "--device", self.given.device]
            self.run(folder.name, [*self.training(encoder, method), *own, "--resume"])

    def score(self, encoder: str, method: str) -> None:
        models = [str(self.folder(encoder, method, seed) / "model") for seed in SEEDS]
        folder = Path("scores") / self.folder(encoder, method, 0).name.removesuffix("-s0")
        entry = self.out / folder / "entry.json"
        if not entry.is_file():
            shared = Path(self.given.encoders).name
            recipe = shlex.join(["unshaken", *self.training(encoder, method)])
            recipe = recipe.replace(str(self.given.encoders), shared).replace(str(self.given.data), "DATA")
            public = [f"--public={self.folder(name, 'plain', seed) / 'model'}" for name, seed in PUBLIC]
            self.run(
                folder.name,
                [
                    *("leaderboard", "score", *models, "--track", f"{encoder}/known/sst2", "--name", method),
                    *("--data", str(self.given.data), "--substitutions", DICTIONARY, "--suite", self.given.suite),
                    *(public if self.given.suite == "full" else []),
                    *("-n", str(self.given.examples), "--recheck", "50", "--recipe", recipe),
                    *("--out", str(folder), "--device", self.given.device, "--resume"),
                ],
            )
            if entry.is_file():
                self.run(f"{folder.name}-submit", ["leaderboard", "submit", str(folder / "entry.json"), "board"])

    def run(self, name: str, command: list[str]) -> None:
        """One command of unshaken in OUT, told in a line; its own words go to OUT/logs."""
        if time.time() > self.deadline:
            print(f"{name}: not begun, the time is over", flush=True)
            self.failed.append(name)
            return
        logs = self.out / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        begun = time.time()
        with (logs / f"{name}.txt").open("a", encoding="utf-8") as log:
            whole = [sys.executable, "-m", "unshaken", *command]
            status = subprocess.run(whole, cwd=self.out, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
        self.failed.extend([name] if status else [])
        how = "done" if status == 0 else f"exit {status}, see {logs / name}.txt"
        print(f"{name}: {how}, {time.time() - begun:.0f} s", flush=True)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--encoders", type=Path, required=True)
    words.add_argument("--data", type=Path, required=True)
    words.add_argument("--out", type=Path, required=True)
    words.add_argument("--workers", type=int, default=12)
    words.add_argument("--minutes", type=float, default=float("inf"))
    words.add_argument("--rows", type=int, default=4000)
    words.add_argument("--examples", type=int, default=200)
    words.add_argument("--suite", choices=("full", "mini"), default="full")
    words.add_argument("--device", default="cuda")
    words.add_argument("--encoder", nargs="+", choices=sorted(RATES), default=sorted(RATES))
    words.add_argument("--method", nargs="+", choices=list(METHODS), default=list(METHODS))
    given = words.parse_args()
    given.encoders, given.data, given.out = (path.resolve() for path in (given.encoders, given.data, given.out))
    given.out.mkdir(parents=True, exist_ok=True)
    dictionary = given.out / "counterfitted_neighbors.json"
    if not dictionary.exists():  # by a name without a folder, so that a recipe fits every machine
        dictionary.symlink_to(given.data / dictionary.name)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    board = Board(given, time.time() + 60 * given.minutes)
    entries = [(encoder, method) for encoder in given.encoder for method in given.method]
    public = [(encoder, "plain", seed) for encoder, seed in PUBLIC] if given.suite == "full" else []
    trainings = [*public, *((encoder, method, seed) for seed in SEEDS for encoder, method in entries)]
    waiting = {entry: {*public, *((*entry, seed) for seed in SEEDS)} for entry in entries}
    with ThreadPoolExecutor(given.workers) as pool:
        running: dict[Future[None], tuple[str, str, int]] = {pool.submit(board.train, *one): one for one in trainings}
        while running:  # an entry is scored as soon as its models are there, beside trainings of others
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                done.result()
                trained = running.pop(done)
                for entry in [entry for entry, models in waiting.items() if trained in models]:
                    waiting[entry] -= {trained}
                    if not waiting[entry]:
                        del waiting[entry]
                        running[pool.submit(board.score, *entry)] = (*entry, -1)  # which no entry waits for
    board.run("build", ["leaderboard", "build", "board", "--out", "board.html"])
    if board.failed:
        sys.exit(f"{len(board.failed)} commands have failed or were not begun; the same command goes on")


if __name__ == "__main__":
    main()
