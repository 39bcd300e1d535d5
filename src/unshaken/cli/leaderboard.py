"""`unshaken leaderboard`: score models, submit and check entries, break them, and build the page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unshaken.cli import options
from unshaken.cli.known import named, require_known, require_tasks
from unshaken.cli.usage import Command
from unshaken.errors import UnshakenError
from unshaken.names import nearest, track_parts

if TYPE_CHECKING:
    from unshaken.examples import Examples
    from unshaken.substitutions import Substitutions
    from unshaken.victims.base import Victim

leaderboard = typer.Typer(
    name="leaderboard", help="Score models, and check and break what others claim.", no_args_is_help=True
)

Models = Annotated[list[str], typer.Argument(help="Model folders of one method, one per training seed.")]
Data = Annotated[Path | None, typer.Option(help="Folder with the task's files, or the hub if none is given.")]
Words = Annotated[
    str, named("substitutions", "--substitutions", help="What attacks may swap: wordnet, dictionary:FILE; or several.")
]
Public = Annotated[list[str] | None, typer.Option(help="A public model to transfer from; three for the full suite.")]
Count = Annotated[int | None, typer.Option("-n", "--count", min=2, help="Examples, chosen by id; all if not given.")]
File = Annotated[Path, typer.Argument(help="An entry's file.", exists=True, dir_okay=False)]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1; the first GPU if none is given.")]


@leaderboard.command(cls=Command)
def score(
    models: Models,
    track: Annotated[str, typer.Option(help="ENCODER/THREAT/TASK, such as minilm/known/sst2.")],
    name: Annotated[str, typer.Option(help="What the board calls the method.")],
    data: Data = None,
    substitutions: Words = "wordnet",
    suite: Annotated[str, named("suite", help="full, or mini for a CPU.")] = "full",
    public: Public = None,
    count: Count = None,
    recheck: Annotated[int, typer.Option(min=0, help="Examples attacked again under other scores.")] = 100,
    recipe: Annotated[str, typer.Option(help="The command or file that trained the models.")] = "",
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for the entry and the runs behind it.")] = Path(
        "out/leaderboard"
    ),
    resume: Annotated[bool, typer.Option(help="Continue the run that the folder holds.")] = False,
    device: Device = None,
) -> None:
    """Attack a method's models with a track's whole suite.

    The entry for the board is written to OUT/entry.json.
    """
    options.require_models(*models, *(public or ()))
    _require_transfers(suite, public)
    _, threat, task = track_parts(track)
    require_known("threat", threat)
    if not Path(task).is_file():
        require_tasks(task)
    options.require_room(out / "runs", resume=resume)
    words = _substitutions(substitutions)
    rows = _rows(task, data)
    from unshaken.console import Console
    from unshaken.files import write_json
    from unshaken.leaderboard import Track, score
    from unshaken.leaderboard.tracks import require_public
    from unshaken.schema import encode

    chosen = Track.parse(track)
    require_public(suite, len(public or ()))
    console = Console()
    victims, others = _victims(models, device), _victims(public or [], device)
    examples = _examples(chosen.task, rows, count, victims)
    _tell_how_long(suite, words, others, victims, examples, recheck=recheck, resumed=out / "runs" if resume else None)
    entry = score(
        victims,
        examples,
        chosen,
        words,
        name=name,
        suite_name=suite,
        public=others,
        recheck=recheck,
        recipe=recipe,
        out=out / "runs",
        resume=resume,
        progress=console.is_terminal,
    )
    path = write_json(out / "entry.json", encode(entry))
    console.print(f"{name}: worst case {entry.share('worst')}, clean {entry.share('clean')}", markup=False)
    if unsettled := entry.unsettled():
        total = len(entry.models) * len(entry.ids)
        line = f"{unsettled:,} of {total:,} examples, over all models, could not be attacked in full: not held"
        console.print(line, markup=False, soft_wrap=True)
    console.print(f"Entry: {path}", markup=False, soft_wrap=True)


@leaderboard.command(cls=Command)
def submit(
    entry: File, board: Annotated[Path, typer.Argument(file_okay=False, help="Folder of the board's entries.")]
) -> None:
    """Add a scored entry to a board. Entries are never written over."""
    _require_entries(entry)
    from unshaken.console import Console
    from unshaken.leaderboard import read_entry, submit

    Console().print(f"Entry: {submit(read_entry(entry), board)}", markup=False, soft_wrap=True)


@leaderboard.command(cls=Command)
def verify(
    entry: File,
    data: Data = None,
    substitutions: Words = "wordnet",
    public: Public = None,
    model: Annotated[list[str] | None, typer.Option(help="A model folder; the entry's own if not given.")] = None,
    count: Annotated[int, typer.Option("-n", "--count", min=2, help="Examples attacked again.")] = 50,
    seed: Annotated[int, typer.Option(help="Chooses the examples; take one that the entry cannot know.")] = 0,
    device: Device = None,
) -> None:
    """Attack a part of an entry again, and check its claims.

    Refused, with exit code 1, are claims outside the interval of what comes out. Where an attack fails here the entry
    could not be checked, which is exit code 1 too.
    """
    options.require_models(*(model or ()), *(public or ()))
    _require_entries(entry)
    words = _substitutions(substitutions)
    from unshaken.console import Console
    from unshaken.leaderboard import read_entry, verify
    from unshaken.leaderboard.tracks import require_public

    claimed, console = read_entry(entry), Console()
    _require_transfers(claimed.suite, public)
    require_public(claimed.suite, len(public or ()))
    claimed.require_substitutions(words)
    rows = _rows(claimed.track.task, data)
    victims = _victims(model or [one.weights for one in claimed.models], device)
    examples = _examples(claimed.track.task, rows, None, victims).with_ids(claimed.ids)
    others = _victims(public or [], device)
    some = examples.sample(min(count, len(examples)), seed)
    _tell_how_long(claimed.suite, words, others, victims, some)
    verdict = verify(claimed, victims, examples, words, count=count, seed=seed, public=others)
    for line in verdict.refused:
        console.print(f"refused: {line}", markup=False, soft_wrap=True)
    for line in verdict.unchecked:
        console.print(f"could not be checked: {line}", markup=False, soft_wrap=True)
    found = "stands" if verdict.stands else "refused" if verdict.refused else "could not be checked"
    console.print(f"{claimed.name}: {found} ({verdict.checked})", markup=False)
    if not verdict.stands:
        raise typer.Exit(1)


@leaderboard.command(name="break", cls=Command)
def break_entry(
    entry: File,
    example: Annotated[str, typer.Option(help="Id of the example.")],
    text: Annotated[list[str], typer.Option(help="The changed text; once per column for pairs.")],
    model: Annotated[str, typer.Option(help="Folder of the model that it fools.")],
    data: Data = None,
    substitutions: Words = "wordnet",
    device: Device = None,
) -> None:
    """Check a text that fools an entry, and put it on record.

    One forward pass tells whether it does.
    """
    options.require_models(model)
    _require_entries(entry)
    words = _substitutions(substitutions)
    from dataclasses import asdict

    from unshaken.console import Console
    from unshaken.leaderboard import check_break, read_entry
    from unshaken.leaderboard.entry import append_break, broken_by_others

    claimed = read_entry(entry)
    claimed.require_substitutions(words)
    if example not in claimed.ids:
        raise UnshakenError(f"{claimed.name} was not scored on an example {example!r}; {nearest(example, claimed.ids)}")
    rows = _rows(claimed.track.task, data)
    victims = _victims([model], device)
    examples = _examples(claimed.track.task, rows, None, victims).with_ids(claimed.ids)
    claimed.require_examples(examples)
    found = check_break(claimed, victims[0], examples.with_ids([example])[0], text, words)
    before = claimed.share("worst", broken_by_others(entry, claimed))
    told = f"Broken; on record in {append_break(entry, asdict(found))}"
    after = claimed.share("worst", broken_by_others(entry, claimed))
    unchanged = "is the same, since the example did not count as held"
    effect = unchanged if after == before else f"falls from {before} to {after}"
    Console().print(f"{told}\nThe worst case {effect}.", markup=False, soft_wrap=True)


@leaderboard.command(cls=Command)
def build(
    board: Annotated[Path, typer.Argument(help="Folder of entries.", exists=True, file_okay=False)],
    out: Annotated[Path, typer.Option(dir_okay=False, help="The page.")] = Path("out/leaderboard.html"),
) -> None:
    """Write the board as one static page."""
    files = sorted(board.glob("*.json"))
    if not files:
        raise UnshakenError(f"{board} has no entries; `unshaken leaderboard submit ENTRY {board}` adds one")
    _require_entries(*files)
    from unshaken.console import Console
    from unshaken.leaderboard import read_entries
    from unshaken.leaderboard.page import build

    entries = read_entries(board)
    counted = f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'}"
    Console().print(f"Page: {build(entries, out)} ({counted})", markup=False, soft_wrap=True)


def _require_entries(*files: Path) -> None:
    """Tell what is no entry before the board, and torch with it, is imported."""
    from unshaken.files import read_json

    for file in files:
        values = read_json(file)
        if not isinstance(values, dict) or not values.keys() >= {"track", "models"}:
            raise UnshakenError(f"{file} is no entry of a leaderboard; `unshaken leaderboard score` writes one")


def _victims(names: list[str], device: str | None) -> list[Victim]:
    from unshaken.victims.base import Victim

    return [Victim.from_pretrained(name, device=device) for name in names]


def _tell_how_long(
    suite_name: str, words: Substitutions, public: list[Victim], victims: list[Victim], examples: Examples, **also: Any
) -> None:
    from unshaken.display import note
    from unshaken.evaluation.outlook import outlook
    from unshaken.leaderboard.tracks import suite

    if line := outlook(victims, examples, list(suite(suite_name, words, public).named.values()), **also):
        note(line)


def _require_transfers(suite: str, public: list[str] | None) -> None:
    if suite == "mini":
        options.refuse("the mini suite transfers nothing; leave it out", public=public or None)


def _substitutions(spec: str) -> Substitutions:
    from unshaken.substitutions import joined_substitutions

    return joined_substitutions(spec)


def _rows(task: str, data: Path | None) -> Examples | None:
    """The rows of a track before any model is loaded, to tell at once what is missing; of a file only what is wrong."""
    from unshaken.tasks import load_task
    from unshaken.tasks.load import check_examples

    if not Path(task).is_file():
        return load_task(task, data=data).require("test")
    options.refuse(f"{task} is a file; leave it out", data=data)
    check_examples(task)
    return None


def _examples(task: str, rows: Examples | None, count: int | None, victims: list[Victim]) -> Examples:
    """The rows of a track; labels of a file mean what the models mean by them, whatever classes the file has."""
    from unshaken.tasks import load_examples

    found = load_examples(task, label_names=victims[0].label_names or None) if rows is None else rows
    return found if count is None else found.sample(count)
