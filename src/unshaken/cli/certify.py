"""`unshaken certify`: the share of a classifier's right answers that no attack of a stated kind can change."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unshaken.cli import options
from unshaken.cli.known import named, require_tasks


def certify(
    model: options.Model,
    data_or_task: options.Data = None,
    task: options.TaskOption = None,
    certificate: Annotated[
        list[str] | None,
        named("certificate", help="safer, ranmask:keep=0.1 or deletion:rate=0.9; safer if none is given."),
    ] = None,
    data: options.DataFolder = None,
    count: options.Count = 100,
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = None,
    substitutions: options.Substitutes = None,
    radius: Annotated[str, typer.Option(help="Numbers of words for which accuracy is told.")] = "0,1,2,4",
    out: options.Results = Path("out/certify"),
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the sample of examples and the draws.")] = 0,
    device: options.Device = None,
    dtype: options.Dtype = None,
    max_length: options.MaxLength = None,
    trust_remote_code: options.TrustRemoteCode = False,
) -> None:
    """Prove how many right answers no attacker can change.

    The proof is about the majority over many random changes of each text, not about single answers of the model.
    A certified accuracy is a lower bound; accuracy under attack is an upper one. Keep them in separate columns.
    """
    task = options.one_task(data_or_task, task, f"certify {model}")
    options.require_models(model)
    require_tasks(task)
    from unshaken.cli.data import load_sets, require_rows

    require_rows(task, model, count, seed, text_columns=text_column, label_column=label_column)
    from unshaken.cli.evaluate import parse_certificates
    from unshaken.console import Console
    from unshaken.display import note
    from unshaken.evaluation.outlook import certificates_outlook
    from unshaken.files import locked, write_json
    from unshaken.reports.certified import terminal_certified, title
    from unshaken.schema import encode
    from unshaken.victims import Victim
    from unshaken.victims.classes import require_same_classes

    chosen = parse_certificates(certificate or ["safer"], substitutions, seed)
    radii = [options.whole_number("--radius", part) for part in radius.split(",")]
    console = Console()
    with locked(out):
        victim = Victim.from_pretrained(
            model, device=device, dtype=dtype, max_length=max_length, trust_remote_code=trust_remote_code
        )
        sets = load_sets(task, data, victim, count, seed, text_columns=text_column, label_column=label_column)
        for examples in sets.values():  # all of them before the first is certified, which takes long
            require_same_classes(victim, examples)
        paths = options.new_files(out, sets, "certified")
        for name, examples in sets.items():
            note(certificates_outlook(victim, examples, chosen))
            found = [own(victim, examples, progress=console.is_terminal) for own in chosen]
            heading = f"Certified accuracy on {name} (%)"
            console.print(terminal_certified(heading, [(title(item), item) for item in found], radii))
            path = write_json(paths[name], encode(found))
            console.print(f"Certificates: {path}", markup=False, soft_wrap=True)
