"""`unshaken attack`: how many of a classifier's right answers survive an attack, with the texts that did not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unshaken.cli import measuring, options
from unshaken.cli.data import require_rows
from unshaken.cli.evaluate import parse_attacks
from unshaken.cli.known import named, require_tasks
from unshaken.errors import UnshakenError
from unshaken.names import nearest

if TYPE_CHECKING:
    from rich.text import Text

    from unshaken.attacks import Attack, AttackResult, Victim
    from unshaken.evaluation import Report


def attack(
    model: options.Model,
    data_or_task: options.Data = None,
    task: options.TaskOption = None,
    called: options.Names = None,
    attack: Annotated[
        list[str] | None, named("attack", help="Attacks: pwws,genetic:population=20; pwws if none is given.")
    ] = None,
    data: options.DataFolder = None,
    count: options.Count = None,
    block: options.Block = None,
    dry_run: options.DryRun = False,
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = None,
    out: options.Results = Path("out/attack"),
    resume: options.Resume = False,
    substitutions: options.Substitutes = None,
    similarity: options.Similarity = None,
    vote: options.Votes = 0,
    vote_rate: options.VoteRate = None,
    vote_substitutions: options.VoteSubstitutes = None,
    seed: Annotated[
        int,
        typer.Option(min=0, max=2**32 - 1, help="Seed of the sample of examples, and of searches that name none."),
    ] = 0,
    device: options.Device = None,
    dtype: options.Dtype = None,
    scoring_dtype: options.ScoringDtype = None,
    max_length: options.MaxLength = None,
    trust_remote_code: options.TrustRemoteCode = False,
    engine: Annotated[
        str, typer.Option(help="ray: over the nodes of a Ray cluster, for data in files; Parquet files in --out.")
    ] = "here",
    actors: Annotated[
        int | None, typer.Option(min=1, help="With --engine ray: how many work side by side; one per GPU if not given.")
    ] = None,
    show: Annotated[
        int | None,
        typer.Option(min=0, help="How many adversarial texts to print for each attack, the most faithful; 3."),
    ] = None,
) -> None:
    """Attack a classifier and show what fooled it.

    Every finished example is written at once; a report and a CSV for each attack come at the end.
    Under torchrun or accelerate launch the examples are shared between the processes.
    """
    task = options.one_task(data_or_task, task, f"attack {model}")
    options.require_models(model)
    names = options.model_names(called, 1, block)
    options.require_vote(vote, vote_rate, vote_substitutions)
    if block is not None:
        options.refuse("--block writes totals, no texts; leave one out", show=show)
    if dry_run:
        options.refuse("--dry-run estimates the whole run; leave one out", resume=resume)
    if engine == "ray":
        why = "--engine ray takes whole files and prints totals; leave it out"
        options.refuse(why, name=called or None, data=data, count=count, block=block, dry_run=dry_run, show=show)
        options.refuse("--engine ray asks the model itself; leave it out", vote=vote or None)
    elif engine != "here":
        raise UnshakenError(f"unknown engine {engine!r}; {nearest(engine, ('here', 'ray'))}")
    else:
        options.refuse("it is for --engine ray; leave it out", actors=actors)
        require_tasks(task)
    if engine == "here" and not dry_run:
        options.require_room(out, resume=resume, block=block)
    columns: dict[str, Any] = {"text_columns": text_column, "label_column": label_column}
    if engine == "here" and block is None:
        require_rows(task, model, count, seed, **columns)
    from unshaken.attacks import Victim
    from unshaken.attacks.faithfulness import ENCODER, by_faithfulness, keeping_meaning
    from unshaken.console import Console
    from unshaken.display import duration, note
    from unshaken.files import locked
    from unshaken.processes import Shard

    least = options.least_similarity(similarity)
    plain = parse_attacks(attack or ["pwws"], substitutions, seed)
    attacks = [keeping_meaning(item, least) for item in plain]
    if similarity and attacks == plain:
        options.refuse("no attack swaps WordNet's words without a filter of its own; leave it out", similarity=True)
    if attacks != plain and Shard.from_environment().leads:
        note(f"WordNet's swaps must leave a text {least:.0%} alike ({ENCODER}); --similarity 0 allows any")
    made: dict[str, Any] = {"dtype": dtype, "scoring_dtype": scoring_dtype, "max_length": max_length}
    load = partial(Victim.from_pretrained, model, device=device, trust_remote_code=trust_remote_code, **made)
    if engine == "ray":
        _on_ray(task, attacks, load, out, text_column, label_column, actors=actors, resume=resume)
        return
    with contextlib.nullcontext() if dry_run else locked(out):
        found = measuring.measured(
            [options.voting(load(), vote, vote_rate, vote_substitutions or substitutions)],
            task,
            attacks,
            out,
            _save_views,
            names=names,
            data=data,
            count=count,
            block=block,
            columns=columns,
            dry_run=dry_run,
            resume=resume,
            seed=seed,
        )
    if found is None:
        return
    report, page = found
    console = Console()
    console.print(report)
    shown = 3 if show is None else show
    for evaluation in report.evaluations:
        for name, run in zip(evaluation.attack_names, evaluation.attacks, strict=True):
            for row, similarity in by_faithfulness(run.results)[:shown] if shown else ():
                console.print(coloured_diff(name, row, evaluation.data.label_names, similarity))
    runs = [run for evaluation in report.evaluations for run in evaluation.attacks]
    asked, seconds = sum(row.rows for run in runs for row in run.results), sum(run.seconds for run in runs)
    if seconds:
        console.print(
            f"{asked:,} texts answered in {duration(seconds)}, {asked / seconds:,.0f} per second", markup=False
        )
    console.print(f"Results: {out}\nReport: {page}", markup=False, soft_wrap=True)


def _on_ray(
    task: str,
    attacks: Sequence[Attack],
    victim: Callable[[], Victim],
    out: Path,
    text_columns: Sequence[str] | None,
    label_column: str | None,
    **how: Any,
) -> None:
    from unshaken.attacks.ray_engine import Columns, ray_attack, read_parts
    from unshaken.console import Console

    columns = Columns(texts=tuple(text_columns or ("text",)), label=label_column or "label")
    for name, item in zip(file_names([item.name for item in attacks]), attacks, strict=True):
        folder = ray_attack(task.split(","), victim=victim, attack=item, out=out / name, columns=columns, **how)
        Console().print(f"{read_parts(folder)}\nResults: {folder}", markup=False, soft_wrap=True)


def _save_views(report: Report, out: Path) -> Path:
    """One CSV for each set of examples and attack, and the page."""
    for evaluation in report.evaluations:
        names = file_names([run.attack for run in evaluation.attacks])
        for name, run in zip(names, evaluation.attacks, strict=True):
            run.counts.to_csv(out / f"{evaluation.data.name.replace('/', '-')}.{name}.csv")
    return report.save(out / "report.html")


def file_names(names: list[str]) -> list[str]:
    """The attacks' names, numbered where one occurs several times."""
    if len(set(names)) == len(names):
        return names
    return [f"{number}-{name}" for number, name in enumerate(names, start=1)]


def coloured_diff(
    attack: str, row: AttackResult, label_names: tuple[str, ...], similarity: float | None = None
) -> Text:
    """The text with each changed word in red, struck through, and what took its place in green."""
    from rich.text import Text

    from unshaken.attacks.display import changes
    from unshaken.attacks.faithfulness import ENCODER

    def label(number: int | None) -> str:
        return label_names[number] if number is not None and number < len(label_names) else str(number)

    text = Text()
    text.append(f"{row.example_id} ", style="bold")
    alike = "" if similarity is None else f", {ENCODER} finds both texts {similarity:.0%} alike"
    text.append(f"{attack}: {label(row.prediction)} -> {label(row.adversarial_prediction)}{alike}\n", style="dim")
    for column, original in enumerate(row.original):
        for kept, before, after in changes(original, row.swaps, column):
            text.append(kept)
            text.append(before, style="red strike")
            text.append("→" if before or after else "", style="dim")  # so that the change is seen without colours too
            text.append(after, style="bold green")
        text.append("\n")
    return text
