"""`unshaken detect`: texts on which a model and a vote over rewordings disagree, and who gets past that knowingly."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unshaken.cli import options
from unshaken.cli.known import named, require_tasks
from unshaken.errors import UnshakenError

if TYPE_CHECKING:
    from rich.table import Table

    from unshaken.detection import Detection
    from unshaken.examples import Examples


def detect(
    model: options.Model,
    data_or_task: options.Data = None,
    task: options.TaskOption = None,
    attack: Annotated[str, named("attack", help="A search: pwws, genetic:population=20.")] = "pwws",
    data: options.DataFolder = None,
    count: options.Count = 100,
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = None,
    substitutions: options.Substitutes = None,
    vote: Annotated[int, typer.Option(min=1, help="Rewordings of each text.")] = 16,
    vote_rate: options.VoteRate = None,
    vote_substitutions: options.VoteSubstitutes = None,
    false_alarms: Annotated[float, typer.Option(min=0, max=0.99, help="Share of clean texts that may be flagged.")] = (
        0.01
    ),
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="File of other clean texts, labelled or not, to take the threshold from; the examples if not given."
        ),
    ] = None,
    out: options.Results = Path("out/detect"),
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the sample of examples.")] = 0,
    device: options.Device = None,
    dtype: options.Dtype = None,
    max_length: options.MaxLength = None,
    trust_remote_code: options.TrustRemoteCode = False,
) -> None:
    """Flag suspicious texts, and attack the detector as well.

    A text is suspicious if the model and a vote over its rewordings disagree.

    The last line is the one to report: texts that flip the answer and are not flagged, by an attack that knows both.
    """
    task = options.one_task(data_or_task, task, f"detect {model}")
    options.require_models(model)
    require_tasks(task)
    from unshaken.cli.data import load_sets, require_rows

    columns: dict[str, Any] = {"text_columns": text_column, "label_column": label_column}
    require_rows(task, model, count, seed, **columns)
    if calibration is not None:
        options.require_files(str(calibration))
        if not calibration.is_file():
            raise UnshakenError(f"--calibration is {str(calibration)!r}; it is a file of texts")
        require_rows(str(calibration), model, None, seed, **columns, unlabelled=True)
    from unshaken.attacks.base import SearchAttack
    from unshaken.cli.evaluate import parse_attacks
    from unshaken.console import Console
    from unshaken.detection import Agreement, Guarded
    from unshaken.detection import detect as run
    from unshaken.display import note
    from unshaken.evaluation.outlook import outlook
    from unshaken.files import locked, write_json
    from unshaken.schema import encode
    from unshaken.victims import Victim, Vote
    from unshaken.victims.classes import require_same_classes

    chosen = parse_attacks([attack], substitutions)
    if len(chosen) != 1 or not isinstance(chosen[0], SearchAttack):
        raise UnshakenError(f"--attack is {attack!r}; a detector is attacked by one search, such as pwws or genetic")
    console = Console()
    with locked(out):
        victim = Victim.from_pretrained(
            model, device=device, dtype=dtype, max_length=max_length, trust_remote_code=trust_remote_code
        )
        voted = options.voting(victim, vote, vote_rate, vote_substitutions or substitutions)
        assert isinstance(voted, Vote)
        sets = load_sets(task, data, victim, count, seed, **columns)
        for examples in sets.values():  # all of them before the first is attacked
            require_same_classes(victim, examples)
        paths = options.new_files(out, sets, "detection")
        others: Examples | None = None
        if calibration is not None:
            (others,) = load_sets(str(calibration), None, victim, None, seed, **columns, unlabelled=True).values()
        detector = Agreement(voted)
        for name, examples in sets.items():
            clean = examples if others is None else others
            if false_alarms * len(clean) < 1:
                more = "examples (-n)" if others is None else "texts (--calibration)"
                note(
                    f"{100 * false_alarms:g}% of {len(clean)} clean texts is less than one: the threshold is the "
                    f"suspicion of the most suspicious, and says little; give more {more} or more --false-alarms"
                )
            for what, attacked in {"the model alone": victim, "model and detector": Guarded(detector, 0.5)}.items():
                if line := outlook([attacked], examples, chosen):
                    note(f"{what}: {line}")
            how: dict[str, Any] = {"calibration": others, "false_alarms": false_alarms}
            found = run(detector, examples, chosen[0], **how, progress=console.is_terminal)
            console.print(detection_table(name, len(examples), chosen[0].name, found))
            about = {"attack": chosen[0].settings(), "vote": voted.settings(), "model": victim.fingerprint}
            if others is not None:
                about["calibration"] = {"data": others.name, "texts": len(others)}
            path = write_json(paths[name], {**about, "found": encode(found)})
            console.print(f"Detection: {path}", markup=False, soft_wrap=True)


def detection_table(data: str, count: int, attack: str, found: Detection) -> Table:
    """The numbers with their intervals, from what a detector promises to what it keeps."""
    from unshaken.console import terminal_table
    from unshaken.proportion import Proportion

    def percent(share: float | None, total: int = count) -> str:
        return "none fooled" if share is None else str(Proportion(hits=round(share * total), total=total))

    alone, both = count - found.errors, count - found.errors_jointly
    rows = {
        "clean texts answered rightly": percent(found.clean),
        "clean texts flagged": percent(found.false_alarms),
        "AUROC, attack on the model alone": "none fooled" if found.auroc is None else f"{100 * found.auroc:.1f}",
        "of its texts flagged": percent(found.true_positives, round(found.fooled * alone)),
        "examples fooled, no detector": percent(found.fooled, alone),
        "fooled and not flagged, attack on the model alone": percent(found.fooled_unflagged, alone),
        "fooled and not flagged, either attack": percent(found.fooled_jointly, both),
    }
    if found.errors or found.errors_jointly:
        rows["could not be attacked: the model alone, both"] = f"{found.errors}, {found.errors_jointly}"
    return terminal_table(f"Detection on {count} examples of {data} under {attack} (% [95%])", ("", ""), rows.items())
