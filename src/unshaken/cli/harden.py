"""`unshaken harden`: a file of labelled texts becomes a model that holds, with a report against plain fine-tuning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unshaken.cli import options


def harden(
    file: Annotated[
        str, typer.Argument(metavar="DATA", help="A CSV, TSV, JSONL or Parquet file of labelled texts, or a task.")
    ],
    model: Annotated[str, typer.Option(help="Folder or hub name; 'minilm' is the model of the demo extra.")] = "minilm",
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for both models and the report.")] = Path(
        "out/hardened"
    ),
    data: Annotated[Path | None, typer.Option(help="Folder with a task's files.")] = None,
    text_column: Annotated[list[str] | None, typer.Option(help="Text column; give it twice for pairs.")] = None,
    label_column: Annotated[str | None, typer.Option(help="Label column.")] = None,
    substitutions: Annotated[
        str, typer.Option(help="What words may be swapped: wordnet:limit=8,dictionary:FILE.")
    ] = "wordnet:limit=8",
    hops: Annotated[int, typer.Option(min=1, help="How far the vocabulary is smoothed.")] = 2,
    epochs: Annotated[float | None, typer.Option(min=0, help="Chosen from the rows if none is given.")] = None,
    learning_rate: Annotated[
        float | None, typer.Option(min=0, help="Chosen from the model's size if none is given.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1)] = 16,
    max_length: Annotated[int, typer.Option(min=8, help="Truncation in tokens.")] = 128,
    limit: Annotated[int | None, typer.Option(min=2, help="Train on this many examples, chosen by id.")] = None,
    attacked: Annotated[int, typer.Option(min=1, help="Held-out examples that are attacked.")] = 100,
    seed: Annotated[int, typer.Option()] = 0,
    resume: options.Resume = False,
    cpu: options.Cpu = False,
    device: options.Device = None,
) -> None:
    """Fine-tune a model that holds; compare it with a plain one.

    The hardened model has a smoothed vocabulary, readers and SWAP, with good defaults. Both models are then attacked
    with every source at once.
    """
    options.require_files(file)
    from unshaken.files import ATTACKS, locked
    from unshaken.substitutions import parse_substitutions
    from unshaken.tasks import Standard, load_task
    from unshaken.tasks.load import split_seed

    for folder in (out, out / ATTACKS):
        options.require_room(folder, resume=resume)
    options.require_no_checkpoints(out, "*/checkpoints", resume=resume)
    sets = parse_substitutions(substitutions)
    split = split_seed(file, seed)
    loaded = load_task(
        file,
        data=data,
        protocol=Standard(selects=False),
        seed=split,
        text_columns=text_column or None,
        label_column=label_column,
    )
    loaded.require("train").require_classes()
    if limit is not None:
        loaded = loaded.with_split("train", loaded.require("train").sample(limit, seed))
    options.require_base(model)
    # What is wrong with the file is told by now: torch and transformers take seconds to import.
    from unshaken.console import Console
    from unshaken.reports.model_card import save_model_card
    from unshaken.training.hardening import harden as run

    console = Console()
    cpu = options.trains_on_cpu(cpu, device)
    for line in loaded.notes:
        console.print(f"note: {line}", markup=False, style="dim")
    arguments = {
        **({} if epochs is None else {"num_train_epochs": epochs}),
        **({} if learning_rate is None else {"learning_rate": learning_rate}),
        "per_device_train_batch_size": batch_size,
        "max_length": max_length,
        "save_strategy": "epoch",  # for --resume
        "save_total_limit": 1,
        "eval_strategy": "no",
        "load_best_model_at_end": False,
        "use_cpu": cpu,
    }
    with locked(out):
        found = run(
            model,
            loaded,
            out=out,
            substitutions=sets,
            hops=hops,
            attacked=attacked,
            seed=seed,
            arguments=arguments,
            resume=resume,
            progress=console.is_terminal,
        )
        page = found.report.save(out / "report.html")
        for tuned in (found.plain, found.hardened):
            save_model_card(tuned.folder, tuned.record, found.report)
    console.print(found.report)
    console.print(f"Model: {found.hardened.folder}\nReport: {page}", markup=False, soft_wrap=True)
    if found.held_out is not None:
        console.print(f"Rows that training did not see: {found.held_out}", markup=False, soft_wrap=True)
