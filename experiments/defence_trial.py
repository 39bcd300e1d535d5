"""Every defence on SST-2, trained alike and attacked alike. One JSON line a stage; see README.md beside this file."""

from __future__ import annotations

import argparse
import fcntl
import functools
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]  # runs from a checkout; a path in it can name a defence of one's own

# Slowest first, so that no long run is left alone at the end. Everything has its default setting.
DEFENCES = (
    "rift", "ascc", "ascc+ptwd", "ascc+mixout", "rift-fast", "infobert", "swap+informative", "swap", "smart", "freelb",
    "creat", "r4f", "r3f", "informative:on=clean", "mixout", "ptwd", "standard",
)  # fmt: skip
STAGES = ("train", "clean", "pwws", "genetic", "genetic-wordnet", "genetic-typos")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One model to train and attack."""

    encoder: str
    folder: str
    learning_rate: float
    defence: str
    seed: int

    @property
    def key(self) -> str:
        return f"{self.encoder}/{self.defence}/{self.seed}"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What all runs share."""

    data: str
    out: str
    rows: int
    epochs: float
    batch_size: int
    max_length: int
    attacked: int
    unseen: int
    population: int
    generations: int
    stages: tuple[str, ...]
    deadline: float


def main() -> None:
    args = arguments()
    settings = Settings(
        data=args.data,
        out=args.out,
        rows=args.rows,
        epochs=args.epochs,
        batch_size=args.batch_size,
        max_length=args.max_length,
        attacked=args.attacked,
        unseen=args.unseen,
        population=args.population,
        generations=args.generations,
        stages=STAGES[: STAGES.index(args.last_stage) + 1],
        deadline=time.time() + args.limit_seconds,
    )
    runs = [
        Run(encoder=encoder, folder=folder, learning_rate=rate, defence=defence, seed=seed)
        for seed in args.seeds  # seeds outermost: a trial that is cut short has whole seeds first
        for defence in args.defences
        for encoder, folder, rate in args.model
    ]
    done = finished_keys(Path(args.out))
    todo = [run for run in runs if run.key not in done and (args.only is None or args.only in run.key)]
    print(f"{len(todo)} runs to do, {len(runs) - len(todo)} done or left out, {args.workers} at a time", flush=True)
    with (
        sharing_the_gpu(args.mps),
        ProcessPoolExecutor(
            args.workers, multiprocessing.get_context("spawn"), initializer=prepare_worker, initargs=(settings,)
        ) as pool,
    ):
        futures = {pool.submit(carry_out, run, settings): run for run in todo}
        for number, future in enumerate(as_completed(futures), 1):
            print(f"[{number}/{len(todo)}] {futures[future].key}: {future.result()}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add(
        "--model",
        action="append",
        required=True,
        type=encoder,
        metavar="NAME=FOLDER@RATE",
        help="encoder, learning rate",
    )
    add("--data", required=True, help="folder with glue/SST-2, advglue and counterfitted_neighbors.json")
    add("--out", required=True, help="JSON lines; runs it holds are not repeated")
    add("--defences", nargs="+", default=list(DEFENCES), metavar="SPEC", help="as on the command line: swap:variants=8")
    add("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[0, 1, 2])
    add("--rows", type=int, default=40_000, help="training rows, the same for every seed")
    add("--epochs", type=float, default=1.0)
    add("--batch-size", type=int, default=64)
    add("--max-length", type=int, default=64)
    add("--attacked", type=int, default=400, help="validation sentences under each attack")
    add("--unseen", type=int, default=200, help="of them, under the sets no defence has seen")
    add("--population", type=int, default=20)
    add("--generations", type=int, default=10)
    add("--last-stage", choices=STAGES, default=STAGES[-1])
    add("--workers", type=int, default=1, help="processes side by side on one device")
    add("--mps", action="store_true", help="share the GPU through NVIDIA's multi-process service")
    add("--only", help="runs whose key (encoder/defence/seed) contains this")
    add("--limit-seconds", type=float, default=float("inf"), help="start no stage after this time")
    return parser.parse_args()


def encoder(text: str) -> tuple[str, str, float]:
    """`minilm=FOLDER@1e-4`: name, folder, learning rate."""
    name, _, rest = text.partition("=")
    folder, _, rate = rest.rpartition("@")
    return name, folder, float(rate)


class sharing_the_gpu:  # noqa: N801  # reads as a clause
    """NVIDIA's MPS daemon while open, where asked for and at hand."""

    def __init__(self, wanted: bool) -> None:
        self.control = shutil.which("nvidia-cuda-mps-control") if wanted else None

    def __enter__(self) -> None:
        if self.control:
            os.environ["CUDA_MPS_PIPE_DIRECTORY"] = tempfile.mkdtemp()
            os.environ["CUDA_MPS_LOG_DIRECTORY"] = tempfile.mkdtemp()
            subprocess.run([self.control, "-d"], check=True)

    def __exit__(self, *error: object) -> None:
        if self.control:
            subprocess.run([self.control], input="quit\n", text=True, check=False)


def finished_keys(out: Path) -> set[str]:
    return {line["run"] for line in read_lines(out) if line["stage"] == "done"}


def read_lines(out: Path) -> Iterator[dict[str, Any]]:
    if out.exists():
        for text in out.read_text(encoding="utf-8").splitlines():
            try:
                yield json.loads(text)
            except json.JSONDecodeError:
                continue  # torn when a trial was killed


def protocol(settings: Settings) -> dict[str, Any]:
    """The settings that a result depends on."""
    return {
        name: value for name, value in asdict(settings).items() if name not in ("data", "out", "deadline", "stages")
    }


def write_line(settings: Settings, run: Run, stage: str, **values: Any) -> None:
    names = {name: value for name, value in asdict(run).items() if name != "folder"}
    line = json.dumps({"run": run.key, **names, "stage": stage, **values}) + "\n"
    with open(settings.out, "a", encoding="utf-8") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        stream.seek(0, os.SEEK_END)
        if stream.tell() and Path(settings.out).read_bytes()[-1:] != b"\n":
            stream.write("\n")  # after the torn last line of a killed trial
        stream.write(line)


# ------------------------------------------------------------------------------------------------------ in a worker


def prepare_worker(settings: Settings) -> None:
    import torch
    from transformers.utils import logging

    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    splits(settings.data)


@functools.cache
def splits(data: str) -> tuple[Any, Any, Any]:
    """Training rows, SST-2's validation rows, AdvGLUE's."""
    from unshaken.tasks import load_task

    sst2, advglue = load_task("sst2", data=data), load_task("advglue-sst2", data=data)
    return sst2.train, sst2.test, advglue.test if advglue.test is not None else advglue.validation


@functools.cache
def dictionary(data: str) -> Any:
    from unshaken.substitutions import Dictionary

    return Dictionary.load(Path(data) / "counterfitted_neighbors.json")


def carry_out(run: Run, settings: Settings) -> str:
    """Train, evaluate and attack one model; write a line after each stage."""
    try:
        for stage, values in stages_of(run, settings):
            write_line(settings, run, stage, **values)
            if stage == settings.stages[-1]:
                write_line(settings, run, "done", protocol=protocol(settings))
                return "done"
            if time.time() > settings.deadline:
                return f"out of time after {stage}"
        return "out of time"
    except Exception as error:
        write_line(
            settings, run, "error", error=f"{type(error).__name__}: {error}", where=traceback.format_exc()[-1500:]
        )
        return f"failed: {error}"


def stages_of(run: Run, settings: Settings) -> Iterator[tuple[str, dict[str, Any]]]:
    from unshaken.attacks import PWWS, Genetic, Victim
    from unshaken.substitutions import Typos, WordNet

    if time.time() > settings.deadline:
        return
    model, tokenizer, values = train(run, settings)
    yield "train", values
    victim = Victim.from_model(model, tokenizer, max_length=settings.max_length)
    _, validation, advglue = splits(settings.data)
    yield "clean", {"validation": accuracy(victim, validation), "advglue": accuracy(victim, advglue)}
    words = dictionary(settings.data)
    breeding = {"population": settings.population, "generations": settings.generations}
    attacked = validation.sample(settings.attacked)
    unseen = attacked.sample(settings.unseen)
    for stage, attack, examples in (
        ("pwws", PWWS(substitutions=words), attacked),
        ("genetic", Genetic(substitutions=words, **breeding), attacked),
        ("genetic-wordnet", Genetic(substitutions=WordNet(), **breeding), unseen),
        ("genetic-typos", Genetic(substitutions=Typos(kinds=("swap", "drop")), **breeding), unseen),
    ):
        started = time.perf_counter()
        results = attack(victim, examples)
        survived = "".join(str(int(result.outcome == "failure")) for result in results)
        seconds = round(time.perf_counter() - started, 2)
        yield stage, {"accuracy": results.accuracy_under_attack, "survived": survived, "seconds": seconds}


def train(run: Run, settings: Settings) -> tuple[Any, Any, dict[str, Any]]:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, set_seed

    from unshaken.training import RobustTrainer, RobustTrainingArguments

    set_seed(run.seed)
    tokenizer = AutoTokenizer.from_pretrained(run.folder)
    model = AutoModelForSequenceClassification.from_pretrained(run.folder, num_labels=2, dtype=torch.float32)
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    with tempfile.TemporaryDirectory() as folder:
        arguments = RobustTrainingArguments(
            folder,
            num_train_epochs=settings.epochs,
            per_device_train_batch_size=settings.batch_size,
            learning_rate=run.learning_rate,
            max_length=settings.max_length,
            bf16=on_gpu,
            seed=run.seed,
            eval_strategy="no",
            save_strategy="no",
            load_best_model_at_end=False,
            logging_steps=100,
            disable_tqdm=True,
        )
        trainer = RobustTrainer(
            model,
            arguments,
            defence=make_defence(run.defence, dictionary(settings.data)),
            processing_class=tokenizer,
            train_dataset=splits(settings.data)[0].sample(settings.rows),
        )
        started = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - started
    losses = next((row for row in reversed(trainer.state.log_history) if "loss" in row), {})
    return (
        model,
        tokenizer,
        {
            "seconds": round(seconds, 2),
            "steps": trainer.state.global_step,
            "memory_mib": round(torch.cuda.max_memory_allocated() / 2**20) if on_gpu else None,
            "declared_cost": round(trainer.defence.passes().cost, 2),
            "last_losses": {key: value for key, value in losses.items() if key.startswith("loss")},
        },
    )


def make_defence(spec: str, words: Any) -> Any:
    """The defence with its default setting, against the dictionary's substitutions where it reads words."""
    from unshaken.defences import parse

    defence = parse(spec, allow_paths=True)
    for part in defence.modules():
        if hasattr(part, "substitutions"):
            part.substitutions = words
    return defence


def accuracy(victim: Any, examples: Any) -> float:
    predicted = victim.log_probabilities(examples.texts).argmax(-1)
    return float((predicted == examples.labels).mean())


if __name__ == "__main__":
    main()
