"""`unshaken evaluate`: clean accuracy, accuracy under attack and reliability flags of one or several models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unshaken.errors import UnshakenError

if TYPE_CHECKING:
    from unshaken.attacks.base import Attack
    from unshaken.examples import Examples
    from unshaken.substitutions import Substitutions
    from unshaken.victims.base import Victim


def evaluate(
    models: Annotated[list[str], typer.Argument(help="Folders or hub names; the first is the reference.")],
    task: Annotated[str, typer.Option(help="Tasks or files, separated by commas: sst2,advglue or reviews.csv.")],
    attack: Annotated[list[str] | None, typer.Option(help="Attacks: pwws,genetic:population=20.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder with the tasks' files; the hub where none is given.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("out/evaluate"),
    resume: Annotated[bool, typer.Option(help="Continue the run that the folder holds.")] = False,
    count: Annotated[int | None, typer.Option("-n", "--count", min=1, help="Examples a task, by stable ids.")] = None,
    seed: Annotated[int, typer.Option(help="Of the sample of examples and of every probe.")] = 0,
    substitutions: Annotated[str | None, typer.Option(help="wordnet, dictionary:FILE, typos; or several.")] = None,
    recheck: Annotated[int, typer.Option(min=0, help="Examples on which attacks are repeated under other scores.")] = 0,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1; the first GPU where none is given.")] = None,
    max_length: Annotated[int | None, typer.Option(min=8, help="Truncation in tokens; the model's where none.")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run the Python code that a model brings; read it first.")
    ] = False,
) -> None:
    """Measure models on clean and attacked examples, side by side, and write a report.

    Under torchrun or accelerate launch the examples are shared between the processes.
    """
    from unshaken.display import Console
    from unshaken.evaluation import evaluate as run
    from unshaken.files import locked
    from unshaken.processes import Shard
    from unshaken.victims.base import Victim

    attacks = parse_attacks(attack or [], substitutions)
    options: dict[str, Any] = {"max_length": max_length, "trust_remote_code": trust_remote_code}
    shard, console = Shard.from_environment(), Console()
    with locked(out):
        victims: list[Victim] = [Victim.from_pretrained(name, device=device, **options) for name in models]
        examples = load_sets(task, data, victims[0], count, seed)
        report = run(
            victims,
            examples,
            attacks,
            out=out,
            resume=resume,
            seed=seed,
            recheck=recheck,
            progress=console.is_terminal and shard.leads,
            shard=shard,
        )
        if not shard.leads:
            return
        page = report.save(out / "report.html")
    console.print(report)
    console.print(f"Report: {page}", markup=False)


def parse_attacks(specs: list[str], substitutions: str | None) -> list[Attack]:
    """The attacks behind `pwws,genetic:population=20,generations=10`."""
    from unshaken.attacks import ATTACKS
    from unshaken.names import build
    from unshaken.substitutions import joined_substitutions

    attacks: list[Attack] = [
        build("attack", spec, ATTACKS, allow_paths=True) for text in specs for spec in split_specs(text)
    ]
    if substitutions is None:
        return attacks
    chosen = joined_substitutions(substitutions, allow_paths=True)
    return [_with_substitutions(item, chosen) for item in attacks]


def _with_substitutions(attack: Attack, chosen: Substitutions) -> Attack:
    from dataclasses import replace

    from unshaken.attacks import Transfer
    from unshaken.attacks.base import SearchAttack

    if isinstance(attack, SearchAttack):
        return replace(attack, substitutions=chosen)
    if isinstance(attack, Transfer):
        return replace(attack, attack=_with_substitutions(attack.attack, chosen))
    raise UnshakenError(f"--substitutions does not apply to the attack {attack.name!r}; leave one of them out")


def split_specs(text: str) -> list[str]:
    """Specifications separated by commas; `key=value` belongs to the one before it.

    Example:
        >>> split_specs("pwws,genetic:population=20,generations=10")
        ['pwws', 'genetic:population=20,generations=10']
    """
    specs: list[str] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        is_option = "=" in part and ":" not in part.partition("=")[0]
        if is_option and specs:
            specs[-1] += f",{part}"
        else:
            specs.append(part)
    return specs


def load_sets(tasks: str, data: Path | None, victim: Victim, count: int | None, seed: int) -> dict[str, Examples]:
    """What can be reported of each task; AdvGLUE is narrowed to the tasks named beside it."""
    from unshaken.tasks import TASKS, known_task, load_examples, load_task, task_names

    names = task_names(tasks)
    clean = {name for name in names if name in TASKS and TASKS[name].clean_task is None}
    sets: dict[str, Examples] = {}
    for name in names:
        is_named = name in (part.strip() for part in tasks.split(","))
        if not is_named and clean and name in TASKS and TASKS[name].clean_task not in {None, *clean}:
            continue
        if Path(name).is_file():
            rows = load_examples(name, label_names=_label_names(victim), count=count, seed=seed)
        else:
            task = known_task(name)
            takes_data = task is not None and task.package is None  # the others bring or name their own files
            rows = load_task(name, data=data if takes_data else None, seed=seed).require("test")
        if twin := next((known for known in sets if _file_stem(known) == _file_stem(rows.name)), None):
            raise UnshakenError(f"two of the sets in {tasks!r} are called {twin!r}; rename one of the files")
        sets[rows.name] = rows if count is None else rows.sample(count, seed)
    if not sets:
        raise UnshakenError(f"no task in {tasks!r}; name one, such as sst2, or a file")
    return sets


def _file_stem(name: str) -> str:
    """How the files of a set's results begin: what is the same here would be mixed up there."""
    return name.replace("/", "-").casefold()


def _label_names(victim: Victim) -> list[str] | None:
    """The model's class names, where someone gave it any."""
    config = getattr(getattr(victim, "model", None), "config", None)
    names = [str(name) for _, name in sorted(getattr(config, "id2label", {}).items())]
    return None if all(name == f"LABEL_{index}" for index, name in enumerate(names)) else names
