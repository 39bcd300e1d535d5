"""`unshaken reproduce`: a table or figure of a paper, run again, with the paper's numbers beside ours."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unshaken.errors import UnshakenError

if TYPE_CHECKING:
    from rich.console import Console

    from unshaken_experiments import Job, Outcome, Recipe, Run, Workspace


PATIENCE = 3600  # seconds without a finished step of any process


def reproduce(
    names: Annotated[
        list[str], typer.Argument(help="Recipes (see `unshaken list recipes`) or TOML files of your own.")
    ],
    encoder: Annotated[
        str, typer.Option(help="Folder or hub name; 'minilm' is the model of the demo extra.")
    ] = "minilm",
    data: Annotated[Path | None, typer.Option(help="Folder with the tasks' files; the hub if none is given.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results; what it holds is not run again.")] = Path(
        "out/reproduce"
    ),
    seeds: Annotated[str | None, typer.Option(help="Training seeds, such as 0,1,2; the recipe's if not given.")] = None,
    limit: Annotated[int | None, typer.Option(min=2, help="Train on at most this many rows.")] = None,
    examples: Annotated[int | None, typer.Option(min=1, help="Attack at most this many examples.")] = None,
    clean_examples: Annotated[
        int | None, typer.Option(min=1, help="Measure clean accuracy on at most this many examples.")
    ] = None,
    method: Annotated[list[str] | None, typer.Option(help="Only this row, and the one it is compared with.")] = None,
    column: Annotated[list[str] | None, typer.Option(help="Only this column.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Another training setting, such as epochs=1 or batch_size=64."),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Training runs side by side on one device.")] = 1,
    minutes: Annotated[float | None, typer.Option(min=0, help="Begin nothing new after this time.")] = None,
    checkpoints: Annotated[
        bool, typer.Option(help="Save each epoch, so that a killed training run continues instead of starting again.")
    ] = True,
    bf16: Annotated[bool, typer.Option("--bf16", help="Train in bfloat16 autocast.")] = False,
    scoring_dtype: Annotated[
        str | None, typer.Option(help="bf16 answers the queries of attacks in half precision.")
    ] = None,
    group_by_length: Annotated[
        bool, typer.Option("--group-by-length", help="Train on batches of texts of similar length: less padding.")
    ] = False,
    keep_models: Annotated[bool, typer.Option("--keep-models", help="Keep the trained models.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and what it costs, and stop.")] = False,
) -> None:
    """Run the tables and figures of the papers again.

    Prints the paper's numbers and ours side by side. Every finished step is kept, and a run belongs to its settings:
    the same command continues where it was stopped, and recipes that need the same training run share it.
    """
    from unshaken_experiments import load_recipe

    recipes = [load_recipe(name) for name in names]  # a slip is told before torch is imported
    from unshaken.console import Console
    from unshaken.files import locked
    from unshaken.processes import Shard
    from unshaken_experiments import Workspace, execute_all, plan, tidy, unfinished
    from unshaken_experiments.launch import alone
    from unshaken_experiments.results import require_extras

    console = Console()
    if method or column:
        recipes = [recipe.only(method or (), column or ()) for recipe in recipes]
    name = encoder_name(encoder)
    options: dict[str, Any] = {
        "seeds": _seeds(seeds),
        "changes": _changes(set_ or [], limit),
        "examples": examples,
        "clean_examples": clean_examples,
    }
    jobs = plan(recipes, name, **options)
    workspace = Workspace(
        encoders={name: encoder},
        data=data,
        out=out,
        keep_models=keep_models,
        checkpoints=checkpoints,
        bf16=bf16,
        scoring_dtype=scoring_dtype,
        group_by_length=group_by_length,
        deadline=float("inf") if minutes is None else time.time() + 60 * minutes,
    )
    workspace.check()
    begun = {job.run: _written(job, workspace) for job in jobs}
    todo = unfinished(jobs, workspace)
    if dry_run:
        _print_plan(jobs, todo, workspace, console)
        return
    require_extras(recipes)
    shard = Shard.from_environment()
    with locked(out):
        if shard.leads:
            workspace.claim()
        own = [job for job in todo if shard.owns(job.run.key)]
        with alone():
            execute_all(own, workspace, workers=workers, report=lambda *event: _say(console, *event))
        if not shard.leads:
            return  # the first process reports, and ends the launch
        if not shard.is_whole:
            _wait_for_others(todo, begun, workspace, console)
        tidy(jobs, workspace)
        _print_results(recipes, name, options, workspace, console)
    left = unfinished(jobs, workspace)
    if left:
        console.print(f"unfinished training runs: {len(left)}; the same command continues them", style="yellow")
        raise typer.Exit(1)


def _wait_for_others(jobs: list[Job], begun: dict[Run, float], workspace: Workspace, console: Console) -> None:
    """Until every training is done or has failed; not for ever, since a process that died changes no file.

    A file is read again only when it was written again: an error in it may be of an earlier command.
    """
    read, told, changed = dict(begun), -1, time.time()
    open_ = [job for job in jobs if workspace.outcome(job.run).lacks(job.measures)]
    while True:
        for job in list(open_):
            written = _written(job, workspace)
            if written != read[job.run]:
                read[job.run], changed = written, time.time()
                outcome = workspace.outcome(job.run)
                if outcome.error is not None or not outcome.lacks(job.measures):
                    open_.remove(job)
        if not open_ or time.time() > min(workspace.deadline + 60, changed + PATIENCE):
            return
        if len(open_) != told:
            told = len(open_)
            console.print(f"waiting for {told} training runs of other processes", style="dim")
        time.sleep(1)


def _written(job: Job, workspace: Workspace) -> float:
    path = workspace.runs / f"{job.run.name}.json"
    return path.stat().st_mtime if path.is_file() else 0.0


def encoder_name(encoder: str) -> str:
    """What results call the encoder: the folder's name."""
    return Path(encoder).resolve().name if Path(encoder).exists() else Path(encoder.rstrip("/")).name


def _seeds(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UnshakenError(f"--seeds {text!r}: give whole numbers separated by commas, such as 0,1,2") from None


def _changes(pairs: list[str], limit: int | None) -> dict[str, Any]:
    from unshaken.names import literal, nearest
    from unshaken_experiments.runs import SETTINGS

    changes: dict[str, Any] = {} if limit is None else {"rows": limit}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        key = key.strip().replace("-", "_")
        if not equals:
            raise UnshakenError(f"--set {pair!r} is not KEY=VALUE")
        if key not in SETTINGS:
            raise UnshakenError(f"--set {pair!r}: unknown setting; {nearest(key, SETTINGS)}")
        changes[key] = literal(value.strip())
    return changes


def _say(console: Console, done: int, total: int, run: Run, outcome: Outcome) -> None:
    style = None if outcome.error is None else "red"
    console.print(f"[{done}/{total}] {run.name}: {outcome.summary}", markup=False, highlight=False, style=style)


def _print_plan(jobs: list[Job], todo: list[Job], workspace: Workspace, console: Console) -> None:
    from unshaken.console import terminal_table
    from unshaken.display import duration, shortened
    from unshaken_experiments.cost import estimate

    with console.status("timing the encoder on this machine"):
        found = estimate(todo, workspace)
    rows = [
        (
            line.name,
            str(line.runs),
            *map(shortened, (line.rows, line.passes, line.attacked, line.queries)),
            duration(line.seconds),
        )
        for line in found.lines
    ]
    headings = ("training", "runs", "rows x\nepochs", "plain\npasses", "attacked", "queries\nat most", "time\nat most")
    table = terminal_table(
        f"{len(jobs)} training runs, {len(jobs) - len(todo)} of them finished", headings, rows, expand=True
    )
    for column in table.columns[1:]:
        column.no_wrap = True  # a number that is cut off is another number
    console.print(table)
    for name, why in found.impossible.items():
        console.print(f"cannot run {name}: {why}", markup=False, style="yellow")
    console.print(f"At most about {duration(found.seconds)} of {found.device}, one run at a time.", markup=False)
    console.print(
        "Passes count a row trained once without defence; queries are those of searches that find nothing: others stop "
        "earlier.",
        style="dim",
    )


def _print_results(
    recipes: list[Recipe], encoder: str, options: dict[str, Any], workspace: Workspace, console: Console
) -> None:
    from unshaken_experiments.results import save_results
    from unshaken_experiments.runs import load_outcomes

    outcomes = {outcome.run.key: outcome for outcome in load_outcomes(workspace.runs)}
    for recipe in recipes:
        saved = save_results(recipe, outcomes, encoder, workspace.out, **options)
        console.print(saved.terminal)
        for path in saved.paths:
            console.print(f"  {path}", markup=False, highlight=False)
