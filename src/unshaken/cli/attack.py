"""`unshaken attack`: how many of a classifier's right answers survive an attack, with the texts that did not."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unshaken.cli.evaluate import load_sets, parse_attacks

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from unshaken.attacks import AttackResult, AttackResults
    from unshaken.attacks.base import Attack


def attack(
    model: Annotated[str, typer.Argument(help="Folder or hub name of a Hugging Face classifier.")],
    task: Annotated[str, typer.Option(help="Tasks or files, separated by commas: sst2 or reviews.csv.")],
    attack: Annotated[
        list[str] | None, typer.Option(help="Attacks: pwws,genetic:population=20; pwws where none is given.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder with the tasks' files; the hub where none is given.")
    ] = None,
    count: Annotated[int | None, typer.Option("-n", "--count", min=1, help="Examples a task, by stable ids.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("out/attack"),
    resume: Annotated[bool, typer.Option(help="Continue the run that the folder holds.")] = False,
    substitutions: Annotated[str | None, typer.Option(help="wordnet, dictionary:FILE, typos; or several.")] = None,
    seed: Annotated[int, typer.Option(help="Of the sample of examples and of the searches.")] = 0,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1; the first GPU where none is given.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32 where none is given; bfloat16 is faster on a GPU.")] = None,
    scoring_dtype: Annotated[
        str | None, typer.Option(help="bf16 answers the queries of a search in half precision; the weights stay.")
    ] = None,
    max_length: Annotated[int | None, typer.Option(min=8, help="Truncation in tokens; the model's where none.")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run the Python code that a model brings; read it first.")
    ] = False,
    show: Annotated[int, typer.Option(min=0, help="How many adversarial texts to print for each attack.")] = 3,
) -> None:
    """Attack a classifier and show what fooled it.

    Writes a JSONL file for each task and attack, to which every finished example is added at once, and a CSV beside it.
    Under torchrun or accelerate launch the examples are shared between the processes.
    """
    from dataclasses import replace

    from unshaken.attacks import SearchAttack, Victim, gather
    from unshaken.display import Console
    from unshaken.files import locked
    from unshaken.processes import Shard

    chosen = parse_attacks(attack or ["pwws"], substitutions)
    attacks = [replace(item, seed=seed) if isinstance(item, SearchAttack) else item for item in chosen]
    names = file_names(attacks)
    shard, console = Shard.from_environment(), Console()
    with locked(out):
        victim = Victim.from_pretrained(
            model,
            device=device,
            dtype=dtype,
            scoring_dtype=scoring_dtype,
            max_length=max_length,
            trust_remote_code=trust_remote_code,
        )
        shows = console.is_terminal and shard.leads
        for title, examples in load_sets(task, data, victim, count, seed).items():
            paths = [out / f"{title.replace('/', '-')}.{name}.jsonl" for name in names]
            runs = [
                item(victim, examples, out=path, resume=resume, progress=shows, shard=shard)
                for item, path in zip(attacks, paths, strict=True)
            ]
            if not shard.leads:
                continue
            if not shard.is_whole:
                runs = [gather(item, path, examples, shard) for item, path in zip(attacks, paths, strict=True)]
            for results, path in zip(runs, paths, strict=True):
                results.to_csv(path.with_suffix(".csv"))
            console.print(summary_table(title, names, runs))
            for name, results in zip(names, runs, strict=True):
                for row in [row for row in results if row.outcome == "success"][:show]:
                    console.print(coloured_diff(name, row, examples.label_names))
    if shard.leads:
        console.print(f"Results: {out}", markup=False)


def file_names(attacks: list[Attack]) -> list[str]:
    """The attacks' names, numbered where one occurs several times."""
    names = [item.name for item in attacks]
    if len(set(names)) == len(names):
        return names
    return [f"{number}-{name}" for number, name in enumerate(names, start=1)]


def summary_table(title: str, names: list[str], runs: list[AttackResults]) -> Table:
    """Accuracies with intervals, success rate with its denominator, and cost; below them the worst case of several."""
    from dataclasses import replace

    from rich import box
    from rich.table import Table
    from rich.text import Text

    from unshaken.attacks import worst_of

    rows = list(zip(names, runs, strict=True))
    if len(runs) > 1:
        union = worst_of(runs, [row.example_id for row in runs[0]])
        rows.append(("worst case", replace(runs[0], rows=union, attack="worst-case")))
    # Text, not str: a file's or an attack's name may hold what rich would read as markup.
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE, pad_edge=False)
    headings = ["attack", "clean", "under attack", "success", "queries", "changed"]
    if any(results.errors for results in runs):
        headings.append("errors")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "attack" else "right", no_wrap=True)
    for name, results in rows:
        low, high = results.intervals["accuracy_under_attack"]
        cells: list[Text | str] = [
            Text(name),
            f"{results.clean_accuracy:.1%}",
            f"{results.accuracy_under_attack:.1%} ({low:.1%} to {high:.1%})",
            f"{results.success_rate:.1%} of {results.attacked}",
            f"{results.queries['mean']:.0f}",
            "-" if math.isnan(results.words_changed) else f"{results.words_changed:.1%}",
            str(results.errors),
        ]
        table.add_row(*cells[: len(headings)])
    return table


def coloured_diff(attack: str, row: AttackResult, label_names: tuple[str, ...]) -> Text:
    """The text with each changed word in red, struck through, and what took its place in green."""
    from rich.text import Text

    from unshaken.substitutions.words import segment

    def label(number: int | None) -> str:
        return label_names[number] if number is not None and number < len(label_names) else str(number)

    text = Text()
    text.append(f"{row.example_id} ", style="bold")
    text.append(f"{attack}: {label(row.prediction)} -> {label(row.adversarial_prediction)}\n", style="dim")
    for column, original in enumerate(row.original):
        words, end = segment(original), 0
        for _, position, before, after in (swap for swap in row.swaps if swap[0] == column):
            start, stop = words.spans[position]
            text.append(original[end:start])
            text.append(before, style="red strike")
            text.append("→", style="dim")  # so that the change is seen without colours too
            text.append(after, style="bold green")
            end = stop
        text.append(original[end:] + "\n")
    return text
