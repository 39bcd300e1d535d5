"""Options that several commands share, so that a switch means the same everywhere."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unshaken.cli.known import named
from unshaken.errors import UnshakenError

if TYPE_CHECKING:
    from unshaken.victims import Victim

ENCODER = "minilm"  # the model of the demo extra, which is trained and not attacked
DATA_ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet", ".arrow")  # of tasks.readers.FORMATS

Model = Annotated[str, typer.Argument(help="Folder or hub name of a Hugging Face classifier.")]
Data = Annotated[
    str | None, typer.Argument(metavar="[DATA]", help="Tasks or files, separated by commas: sst2 or reviews.csv.")
]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 or mps; the first GPU if none is given.")]
Cpu = Annotated[bool, typer.Option("--cpu", help="Use the CPU even if a GPU is present; same as --device cpu.")]
Dtype = Annotated[str | None, named("dtype", help="float32 if none is given; bfloat16 is faster on a GPU.")]
ScoringDtype = Annotated[
    str | None, named("dtype", help="bf16 answers the queries of a search in half precision; the weights stay.")
]
MaxLength = Annotated[
    int | None, typer.Option(min=8, help="Truncation in tokens; that of training, or the model's own, if not given.")
]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run the Python code that a model brings; read it first.")
]
DataFolder = Annotated[Path | None, typer.Option(help="Folder with the tasks' files; the hub if none is given.")]
Count = Annotated[int | None, typer.Option("-n", "--count", min=1, help="Examples per task, chosen by id.")]
TextColumn = Annotated[
    list[str] | None, typer.Option(help="Text column of a file, twice for pairs; the one trained on if not given.")
]
LabelColumn = Annotated[str | None, typer.Option(help="Label column of a file; the one trained on if not given.")]
Names = Annotated[
    list[str] | None, typer.Option("--name", help="What the report calls the models, in order: plain,hardened.")
]
Substitutes = Annotated[
    str | None, named("substitutions", "--substitutions", help="wordnet, dictionary:FILE; or several.")
]
Similarity = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        help="Least similarity of a text after WordNet's swaps; 0.8 if the extra `demo` is installed; 0: any.",
    ),
]
Votes = Annotated[int, typer.Option("--vote", min=0, help="Average over this many rewordings of each text; 0: none.")]
VoteRate = Annotated[
    float | None, typer.Option(min=0.01, max=1, help="The share of words that a rewording of --vote changes; 0.5.")
]
VoteSubstitutes = Annotated[
    str | None,
    named("substitutions", "--vote-substitutions", help="What --vote rewords by; --substitutions if none is given."),
]
Block = Annotated[
    int | None, typer.Option(min=1, help="Read the file this many rows at a time, such as 20000, to bound memory.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Measure a sample and estimate the run's time; writes no results.")
]
Results = Annotated[Path, typer.Option(file_okay=False, help="Folder for the results.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run that the folder holds.")]
TaskOption = Annotated[
    str | None, typer.Option("--task", help="The same as an option: sst2,advglue or reviews.csv.", show_default=False)
]


def one_task(positional: str | None, option: str | None, command: str) -> str:
    """The data of a command, named once: after the model, or as --task. Files of them are there."""
    if positional and option:
        raise UnshakenError(f"the data are named twice, {positional!r} and --task {option!r}; leave one out")
    task = positional or option
    if not task:
        raise UnshakenError(f"which data? for example: unshaken {command} reviews.csv (or --task sst2)")
    require_files(task)
    return task


def require_room(out: Path, *, resume: bool, block: int | None = None) -> None:
    """Refuse a folder that holds an earlier run, before anything is written there and before a model is loaded."""
    from unshaken.files import BLOCKS, earlier_run
    from unshaken.processes import Shard

    shard = Shard.from_environment()
    blocks = out / BLOCKS
    kept = earlier_run(out, shard) if block is None else blocks if blocks.exists() and shard.leads else None
    if kept is not None and not resume:
        raise UnshakenError(f"{kept} is of an earlier run; go on with --resume, or name another --out")


def require_no_checkpoints(out: Path, place: str = "checkpoints", *, resume: bool) -> None:
    """Refuse a folder that holds checkpoints, before data and models are loaded."""
    if not resume and any(out.glob(f"{place}/checkpoint-*")):
        raise UnshakenError(f"{out} holds checkpoints of an earlier run; go on with --resume, or name another --out")


def refuse(why: str, **given: object) -> None:
    """Refuse options that a command would take and not use; `given` has None or False for those not typed."""
    named = [f"--{key.replace('_', '-')}" for key, value in given.items() if value is not None and value is not False]
    if named:
        raise UnshakenError(f"{' and '.join(named)} would do nothing: {why}")


def require_vote(votes: int, rate: float | None, substitutions: str | None) -> None:
    if not votes:
        refuse("no vote is asked for; add --vote 16", vote_rate=rate, vote_substitutions=substitutions)


def voting(victim: Victim, votes: int, rate: float | None, substitutions: str | None) -> Victim:
    """The victim behind a vote over rewordings, where one is asked for."""
    if not votes:
        return victim
    from unshaken.substitutions import joined_substitutions
    from unshaken.victims import Vote

    chosen = joined_substitutions(substitutions, allow_paths=True) if substitutions else None
    return Vote(victim, votes, 0.5 if rate is None else rate, substitutions=chosen)


def least_similarity(given: float | None) -> float:
    """What --similarity comes to: by default a filter, if the encoder that it needs is installed."""
    from unshaken.attacks.faithfulness import LEAST, encoder_at_hand

    return given if given is not None else LEAST if encoder_at_hand() else 0.0


def trains_on_cpu(cpu: bool, device: str | None) -> bool:
    """What --cpu and --device come to in training, which takes every GPU that it sees and no other device."""
    if device is None:
        return cpu
    if cpu and device != "cpu":
        raise UnshakenError(f"--cpu and --device {device} exclude each other; leave one out")
    import torch

    from unshaken.processes import own_device

    own_device(device)
    kind, _, number = device.partition(":")
    if kind not in ("cpu", "cuda"):
        raise UnshakenError(f"training is on cpu or cuda, not on {device}; leave out --device, or give cpu")
    if kind == "cuda" and number and torch.cuda.device_count() > 1:
        raise UnshakenError(
            f"training takes every GPU that it sees; set CUDA_VISIBLE_DEVICES={number} in place of --device {device}"
        )
    return kind == "cpu"


def whole_number(option: str, text: str) -> int:
    """One of several numbers that an option names."""
    if not text.strip().isdecimal():
        raise UnshakenError(f"{option} has {text!r}; it takes whole numbers separated by commas")
    return int(text)


def require_files(tasks: str) -> None:
    """Answer a missing file at once, before the seconds that importing torch takes."""
    for name in filter(None, (part.strip() for part in tasks.split(","))):
        path = Path(name).expanduser()
        if path.suffix.lower() in DATA_ENDINGS and not path.is_file():
            near = get_close_matches(path.name, [item.name for item in _beside(path)], n=1)
            hint = f"; did you mean {path.parent / near[0]}?" if near else ""
            raise UnshakenError(f"no such file: {name}{hint}")


def require_runs(runs: list[Path]) -> None:
    """The same for folders and files of results."""
    for run in runs:
        if not run.exists():
            raise UnshakenError(f"no such file: {run}")


def require_other_file(out: Path, *read: Path) -> None:
    """Refuse to write over what the command reads."""
    if out.resolve() in {path.resolve() for path in read}:
        raise UnshakenError(f"{out} is what is read, and would be lost; name another file with --out")


def require_new_file(out: Path) -> None:
    """Refuse to write over what is there: it may be hours of work, or somebody's rows."""
    if out.exists():
        raise UnshakenError(f"{out} exists, and would be lost; remove it or name another with --out")


def new_files(out: Path, names: Iterable[str], kind: str) -> dict[str, Path]:
    """For each data set the file that its results are written to: one that is not there yet."""
    paths = {name: out / f"{name.replace('/', '-')}.{kind}.json" for name in names}
    for path in paths.values():
        require_new_file(path)
    return paths


def require_models(*names: str, others: bool = False) -> None:
    """The same for models: a folder, or what the hub has, and with `others` an .onnx file or an address."""
    from unshaken.pretrained import locate

    for name in names:
        is_address = name.startswith(("http://", "https://"))
        if is_address and others:
            continue
        if not is_address and Path(name).suffix.lower() in DATA_ENDINGS and not Path(name).is_dir():
            raise UnshakenError(f"{name} is a file of data where the model goes; the model comes first, then the data")
        if name == ENCODER and not Path(name).exists():
            raise UnshakenError(
                f"{name} is an encoder that answers nothing yet; fine-tune it first: unshaken train DATA --model {name}"
            )
        if not (others and name.endswith(".onnx")):
            locate(name)
        elif not Path(name).is_file():
            raise UnshakenError(f"no such file: {name}")


def require_base(name: str) -> None:
    """The same for a model to train or to examine, which may be the demo's encoder."""
    from unshaken.pretrained import locate

    if name != ENCODER:
        locate(name)


def require_loaded_here(model: str, **given: object) -> None:
    """Refuse what only a folder or hub name can be loaded with, given for a model that is loaded otherwise."""
    named = ", ".join(f"--{key.replace('_', '-')}" for key, value in given.items() if value)
    if named and (model.startswith(("http://", "https://", "--victim")) or model.endswith(".onnx")):
        raise UnshakenError(f"{named} is for a folder or hub name, and does nothing to {model}; leave it out")


def _beside(path: Path) -> list[Path]:
    try:
        return [item for item in path.parent.iterdir() if item.is_file()]
    except OSError:
        return []


def model_names(given: list[str] | None, count: int, block: int | None = None) -> list[str] | None:
    """The names of --name, one for each model; None if none is given."""
    if given is None:
        return None
    if block is not None:
        raise UnshakenError("--name goes with a report, and --block writes totals; leave one out")
    names = [name.strip() for text in given for name in text.split(",")]
    if len(names) != count or len(set(names)) != count or not all(names):
        raise UnshakenError(f"--name has {len(names)} names ({', '.join(names)}); give {count}, each another")
    return names
