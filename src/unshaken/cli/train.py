"""`unshaken train`: fine-tune a classifier with any connection and any defence."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from unshaken.cli import options
from unshaken.cli.known import named
from unshaken.errors import UnshakenError


def train(
    data_or_task: Annotated[
        str | None,
        typer.Argument(
            metavar="[DATA]", help="A task (see `unshaken list tasks`) or a CSV, TSV, JSONL or Parquet file."
        ),
    ] = None,
    task: options.TaskOption = None,
    model: Annotated[str, typer.Option(help="Folder or hub name; 'minilm' is the model of the demo extra.")] = "minilm",
    out: Annotated[
        Path, typer.Option(file_okay=False, help="Folder for checkpoints, the model and its report.")
    ] = Path("out/train"),
    data: Annotated[Path | None, typer.Option(help="Folder with the task's files; the hub if none is given.")] = None,
    protocol: Annotated[
        str, typer.Option(help="How rows are drawn and split, for example low-resource:size=500.")
    ] = "standard",
    validation: Annotated[Path | None, typer.Option(help="File to select on, for a task of your own.")] = None,
    test: Annotated[Path | None, typer.Option(help="File to report on, for a task of your own.")] = None,
    text_column: Annotated[list[str] | None, typer.Option(help="Text column; give it twice for pairs.")] = None,
    label_column: Annotated[str | None, typer.Option(help="Label column.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=2, help="Train on this many examples; select by as many, or 500.")
    ] = None,
    connection: Annotated[
        str, named("connection", help="none, im-bert, ex-bert, implicit, crank-nicolson or runge-kutta.")
    ] = "none",
    layers: Annotated[str | None, typer.Option(help="Layers to connect: all, 4-6 or 1,3,5.")] = None,
    solver: Annotated[str | None, named("solver", help="For example anderson:steps=3.")] = None,
    gradient: Annotated[str | None, named("gradient mode", help="detached, unrolled, phantom or implicit.")] = None,
    form: Annotated[str | None, named("form", help="layer or increment.")] = None,
    theta: Annotated[float | None, typer.Option(help="0 explicit to 1 implicit.")] = None,
    step: Annotated[float | None, typer.Option(help="Step size of the Euler method.")] = None,
    defence: Annotated[str, named("defence", help="For example rift, swap:variants=4 or ascc+ptwd.")] = "standard",
    substitutions: Annotated[
        str | None,
        named(
            "substitutions",
            help="For --defence, --select-by, --reader synonyms: wordnet if not given, dictionary:FILE, or several.",
        ),
    ] = None,
    smooth: Annotated[
        str | None,
        named("substitutions", help="Smooth the vocabulary over these sets: wordnet:limit=8,dictionary:FILE."),
    ] = None,
    hops: Annotated[int | None, typer.Option(min=1, help="How far --smooth reaches; 1 if not given.")] = None,
    reader: Annotated[
        str | None, named("reader", help="What reads texts: unicode,leet,spacing,spelling or all of them; or synonyms.")
    ] = None,
    select_by: Annotated[
        str | None,
        named("attack", help="Attack whose accuracy on validation data selects the checkpoint; the loss otherwise."),
    ] = None,
    epochs: Annotated[float | None, typer.Option(min=0, help="Chosen from the rows if none is given.")] = None,
    learning_rate: Annotated[
        float | None, typer.Option(min=0, help="Chosen from the model's size if none is given.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1)] = 16,
    accumulation: Annotated[int, typer.Option(min=1, help="Micro-batches per step.")] = 1,
    max_length: Annotated[int, typer.Option(min=8, help="Truncation in tokens.")] = 128,
    seed: Annotated[int | None, typer.Option(min=0, max=2**32 - 1, help="0 if not given.")] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Several training runs, 0,1,2: a folder for each below --out, and one report.")
    ] = None,
    regression: Annotated[
        bool, typer.Option("--regression", help="Fractional labels are regression targets on purpose.")
    ] = False,
    bf16: Annotated[bool, typer.Option("--bf16", help="Train in bfloat16 autocast.")] = False,
    fp16: Annotated[bool, typer.Option("--fp16", help="Train in float16 autocast with a loss scale.")] = False,
    group_by_length: Annotated[
        bool, typer.Option("--group-by-length", help="Train on batches of texts of similar length: less padding.")
    ] = False,
    cuda_graphs: Annotated[
        bool,
        typer.Option("--cuda-graphs", help="Replay training steps as CUDA graphs, on a GPU; for connected models."),
    ] = False,
    on_nonfinite: Annotated[
        str, typer.Option(help="What a NaN or infinite loss or gradient does: stop, or skip the batch.")
    ] = "stop",
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Bit-for-bit reproducible on one machine; may be slower.")
    ] = False,
    save_steps: Annotated[
        int | None, typer.Option(min=1, help="Evaluate and save every this many steps instead of once per epoch.")
    ] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard logs.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the last checkpoint in --out.")] = False,
    cpu: options.Cpu = False,
    device: options.Device = None,
) -> None:
    """Fine-tune a classifier with the methods you choose.

    The checkpoint that does best on validation data is kept, and reported on test data.
    """
    if seeds is not None:
        options.refuse("--seeds names them all; leave one out", seed=seed)
        _train_each(_numbers(seeds), dict(locals()), out)
        return
    seed = seed or 0
    if smooth is None:
        options.refuse("nothing is smoothed; add --smooth wordnet:limit=8", hops=hops)
    hops = hops or 1
    task = options.one_task(data_or_task, task, "train")
    options.require_files(",".join(str(path) for path in (validation, test) if path is not None))
    options.require_no_checkpoints(out, resume=resume)
    if bf16 and fp16:
        raise UnshakenError("--bf16 and --fp16 exclude each other; bfloat16 is the safer of the two")
    from unshaken.tasks import leakage, load_task, save_examples
    from unshaken.tasks.load import HELD_OUT_FILE, known_task, split_seed

    reports_on_held_out = test is None and protocol == "standard"
    loaded = load_task(
        task,
        data=data,
        protocol=protocol,
        seed=split_seed(task, seed) if reports_on_held_out else seed,
        validation=validation,
        test=test,
        text_columns=text_column or None,
        label_column=label_column,
    )
    options.require_base(model)
    # What is wrong with the file is told by now: torch and transformers take seconds to import.
    from unshaken.cli.evaluate import parse_attacks
    from unshaken.connections import parse as parse_connection
    from unshaken.console import Console
    from unshaken.defences import parse
    from unshaken.files import locked
    from unshaken.processes import Shard
    from unshaken.smoothing import parse as parse_smoothing
    from unshaken.substitutions import joined_substitutions
    from unshaken.training.determinism import make_deterministic
    from unshaken.training.fine_tuning import Plan, fine_tune
    from unshaken.training.selection import SELECTION_EXAMPLES

    cpu = options.trains_on_cpu(cpu, device)
    if cuda_graphs:
        _require_one_gpu(cpu)
    if deterministic:
        make_deterministic()
    console = Console(quiet=not Shard.from_environment().leads)
    chosen = parse_connection(
        connection, layers=layers, solver=solver, gradient=gradient, form=form, theta=theta, step=step, allow_paths=True
    )
    smoothing = None if smooth is None else parse_smoothing(smooth, hops)
    words = None if substitutions is None else joined_substitutions(substitutions, allow_paths=True)
    method = parse(defence, allow_paths=True, substitutions=words)
    merges = "synonyms" in (reader or "")
    if not (select_by or merges or any(getattr(part, "substitutions", None) is words for part in method.modules())):
        options.refuse(f"{defence} swaps no words, or names its own; leave it out", substitutions=substitutions)
    selection = parse_attacks([select_by], substitutions)[0] if select_by else None
    for note in loaded.notes:
        console.print(f"note: {note}", markup=False, style="dim")
    rows = loaded.require("train")
    if rows.is_regression and known_task(task) is None and not regression:
        few = ", ".join(f"{label:g}" for label in sorted(set(rows.labels))[:5])
        raise UnshakenError(
            f"the labels of {task} are numbers with fractions ({few}, ...), so this would be a regression, not to be "
            "attacked; add --regression if that is meant, or write classes as names or whole numbers"
        )
    if not rows.is_regression:
        options.refuse(f"the labels of {task} are classes; leave it out", regression=regression)
    selecting = loaded.validation
    if limit is not None:
        rows = rows.sample(limit, seed)
        enough = max(limit, SELECTION_EXAMPLES)
        if selecting is not None and len(selecting) > enough:  # or 64 rows would wait for 13,000 to select by
            selecting = selecting.sample(enough, seed)
            console.print(f"note: {enough:,} of the validation rows select, as --limit is {limit:,}", style="dim")
    if loaded.test is not None:
        shared = leakage(rows, loaded.test)
        if shared.count:
            console.print(f"warning: {shared.count} test texts also occur in training", style="yellow")
    name = defence if chosen is None else f"{defence} + {connection} {layers or 'all'}"
    name += "" if smooth is None else f" + smoothed {hops}"
    name += "" if reader is None else f" + reader {reader}"
    run = fine_tune(
        Plan(
            model=model,
            out=out,
            method=name,
            train=rows,
            validation=selecting,
            connection=chosen,
            smoothing=smoothing,
            reader=reader,
            synonyms=() if words is None or not merges else (words,),
            defence=method,
            selection_attack=selection,
            seed=seed,
            resume=resume,
            label_column=loaded.task.label_column,
            arguments={
                **({} if epochs is None else {"num_train_epochs": epochs}),
                **({} if learning_rate is None else {"learning_rate": learning_rate}),
                "per_device_train_batch_size": batch_size,
                "per_device_eval_batch_size": 4 * batch_size,
                "gradient_accumulation_steps": accumulation,
                "max_length": max_length,
                "bf16": bf16,
                "fp16": fp16,
                "train_sampling_strategy": "group_by_length" if group_by_length else "random",
                "on_nonfinite": on_nonfinite,
                "cuda_graphs": cuda_graphs,
                "use_cpu": cpu,
                "report_to": "tensorboard" if tensorboard else "none",
                **_saving(save_steps, has_validation=loaded.validation is not None),
            },
        )
    )
    _leave_the_others()
    if Shard.from_environment().leads:
        with locked(out):
            held_out = loaded.test if loaded.test is not None else loaded.validation
            if loaded.test is None and held_out is not None:
                save_examples(out / HELD_OUT_FILE, held_out, label_column=loaded.task.label_column)
            _report(run.folder, run.record, held_out, max_length, out, console)


def _require_one_gpu(cpu: bool) -> None:
    """Graphs are CUDA's; the trainer would run without them elsewhere, and nobody would know."""
    import torch

    if cpu or not torch.cuda.is_available():
        why = "this run is on the CPU: use --device cuda:0, or" if cpu else "no CUDA device was found:"
        raise UnshakenError(f"--cuda-graphs replays steps on a GPU, and {why} leave it out")
    if torch.cuda.device_count() > 1:
        raise UnshakenError(
            f"--cuda-graphs takes one GPU, and this process sees {torch.cuda.device_count()}: "
            "set CUDA_VISIBLE_DEVICES=0"
        )


def _numbers(seeds: str) -> list[int]:
    try:
        return list(dict.fromkeys(int(number) for number in seeds.split(",")))
    except ValueError:
        raise UnshakenError(f"--seeds is {seeds!r}; it is whole numbers with commas, such as 0,1,2") from None


def _train_each(seeds: list[int], given: dict[str, Any], out: Path) -> None:
    """One training run per seed, and their results as one report."""
    for number in seeds:  # all of them, or the last would be refused after hours of the first
        options.require_no_checkpoints(out / f"seed-{number}", resume=given["resume"])
    for number in seeds:
        train(**{**given, "seeds": None, "seed": number, "out": out / f"seed-{number}"})
    from unshaken.console import Console
    from unshaken.evaluation import Report, merge

    merged = merge([Report.load(out / f"seed-{number}") for number in seeds])
    merged.save(out / "report.json")
    page = merged.save(out / "report.html")
    Console().print(merged, f"Report: {page}")


def _saving(steps: int | None, *, has_validation: bool) -> dict[str, Any]:
    """When to save; the best checkpoint is known where each one was evaluated."""
    if steps is None:
        return {}
    evaluation = {"eval_strategy": "steps", "eval_steps": steps} if has_validation else {}
    return {"save_strategy": "steps", "save_steps": steps, **evaluation}


def _leave_the_others() -> None:
    """Training is over: rank 0 reports alone, and the other processes may end."""
    import torch.distributed

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _report(folder: Path, record: Any, examples: Any, max_length: int, out: Path, console: Any) -> None:
    """Measure the saved model on test data; if there is none, on the validation data that selected it."""
    from unshaken import Victim, evaluate
    from unshaken.reports.model_card import save_model_card

    if examples is None:
        save_model_card(folder, record)
        console.print(f"Model: {folder} (no test or validation split to report on)", markup=False)
        return
    if len(examples) == 0:
        raise UnshakenError(f"{examples.name} is empty: nothing to report on")
    report = evaluate(Victim.from_pretrained(str(folder), max_length=max_length), examples)
    report.save(out / "report.json")
    page = report.save(out / "report.html")
    save_model_card(folder, record, report)
    console.print(report)
    console.print(f"Model: {folder}\nReport: {page}", markup=False, soft_wrap=True)
