"""`unshaken evaluate`: clean accuracy, accuracy under attack and reliability flags of one or several models."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unshaken.cli import measuring, options
from unshaken.cli.data import require_rows
from unshaken.cli.known import named, require_tasks
from unshaken.errors import UnshakenError

if TYPE_CHECKING:
    from unshaken.attacks.base import Attack
    from unshaken.certificates import Certificate
    from unshaken.substitutions import Substitutions


def evaluate(
    models: Annotated[
        list[str], typer.Argument(metavar="MODELS... [DATA]", help="Folders or hub names, the first is the reference.")
    ],
    task: options.TaskOption = None,
    called: options.Names = None,
    attack: Annotated[list[str] | None, named("attack", help="Attacks: pwws,genetic:population=20.")] = None,
    data: options.DataFolder = None,
    text_column: options.TextColumn = None,
    label_column: options.LabelColumn = None,
    out: options.Results = Path("out/evaluate"),
    resume: options.Resume = False,
    count: options.Count = None,
    block: options.Block = None,
    dry_run: options.DryRun = False,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Seed of the sample of examples and of every probe.")
    ] = 0,
    substitutions: options.Substitutes = None,
    vote: options.Votes = 0,
    vote_rate: options.VoteRate = None,
    vote_substitutions: options.VoteSubstitutes = None,
    recheck: Annotated[int, typer.Option(min=0, help="Examples on which attacks are repeated under other scores.")] = 0,
    calibrate: Annotated[
        bool, typer.Option(help="Attack each model again at the temperature at which its confidence is right.")
    ] = False,
    certify: Annotated[
        list[str] | None, named("certificate", help="Also prove accuracy, as `certify` does: safer,ranmask:keep=0.1.")
    ] = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    scoring_dtype: options.ScoringDtype = None,
    max_length: options.MaxLength = None,
    trust_remote_code: options.TrustRemoteCode = False,
) -> None:
    """Compare models, clean and under attack, and write a report.

    Under torchrun or accelerate launch the examples are shared between the processes.
    """
    if task is None and len(models) > 1:
        *models, task = models
    task = options.one_task(None, task, "evaluate " + " ".join(models))
    options.require_models(*models)
    require_tasks(task)
    names = options.model_names(called, len(models), block)
    if block is not None and calibrate:
        raise UnshakenError("--calibrate fits one temperature to all examples; leave out --block")
    if block is not None and certify:
        raise UnshakenError("--certify keeps its proofs in one report; leave out --block")
    if dry_run and certify:
        raise UnshakenError("--dry-run measures answers and attacks, no certificates; leave out --certify")
    options.require_vote(vote, vote_rate, vote_substitutions)
    if dry_run:
        options.refuse("--dry-run estimates the whole run; leave one out", resume=resume)
    else:
        options.require_room(out, resume=resume, block=block)
    if not attack:
        options.refuse("no attack is repeated; add --attack pwws", recheck=recheck or None)
        if not certify and not vote:
            options.refuse("no attack swaps words; add --attack pwws", substitutions=substitutions)
    columns: dict[str, Any] = {"text_columns": text_column, "label_column": label_column}
    if block is None:
        require_rows(task, models[0], count, seed, **columns)
    from unshaken.console import Console
    from unshaken.files import locked
    from unshaken.victims.base import Victim

    attacks = parse_attacks(attack or [], substitutions)
    certificates = parse_certificates(certify or [], substitutions, seed, attacked=bool(attack or vote))
    loading: dict[str, Any] = {"device": device, "dtype": dtype, "scoring_dtype": scoring_dtype}
    loading |= {"max_length": max_length, "trust_remote_code": trust_remote_code}
    voting = (vote, vote_rate, vote_substitutions or substitutions)
    with contextlib.nullcontext() if dry_run else locked(out):
        found = measuring.measured(
            [options.voting(Victim.from_pretrained(name, **loading), *voting) for name in models],
            task,
            attacks,
            out,
            lambda report, folder: report.save(folder / "report.html"),
            names=names,
            data=data,
            count=count,
            block=block,
            columns=columns,
            dry_run=dry_run,
            resume=resume,
            seed=seed,
            recheck=recheck,
            calibrate=calibrate,
            certificates=certificates,
        )
    if found is None:
        return
    report, page = found
    console = Console()
    console.print(report)
    console.print(f"Report: {page}", markup=False, soft_wrap=True)


def parse_attacks(specs: list[str], substitutions: str | None, seed: int | None = None) -> list[Attack]:
    """The attacks behind `pwws,genetic:population=20,generations=10`; one that names a seed keeps it."""
    from unshaken.attacks import ATTACKS
    from unshaken.names import from_spec, split_specs
    from unshaken.substitutions import joined_substitutions

    attacks: list[Attack] = [
        _seeded(from_spec("attack", spec, ATTACKS, allow_paths=True), spec, seed)
        for text in specs
        for spec in filter(None, split_specs("attack", text))
    ]
    if substitutions is None:
        return attacks
    chosen = joined_substitutions(substitutions, allow_paths=True)
    return [_with_substitutions(item, chosen) for item in attacks]


def _seeded(item: Any, spec: str, seed: int | None) -> Any:
    """What a specification describes, with the seed of the command where it has one and names none."""
    from dataclasses import replace

    from unshaken.attacks import SearchAttack, Transfer
    from unshaken.certificates import Certificate

    if seed is None or re.search(r"[:,]\s*seed\s*=", spec):
        return item
    if isinstance(item, Transfer):
        return replace(item, attack=_seeded(item.attack, spec, seed))
    return replace(item, seed=seed) if isinstance(item, SearchAttack | Certificate) else item


def _with_substitutions(attack: Attack, chosen: Substitutions) -> Attack:
    from dataclasses import replace

    from unshaken.attacks import Transfer
    from unshaken.attacks.base import SearchAttack

    if isinstance(attack, SearchAttack):
        return replace(attack, substitutions=chosen)
    if isinstance(attack, Transfer):
        return replace(attack, attack=_with_substitutions(attack.attack, chosen))
    raise UnshakenError(f"--substitutions does not apply to the attack {attack.name!r}; leave one of them out")


def parse_certificates(
    specs: list[str], substitutions: str | None, seed: int, *, attacked: bool = False
) -> list[Certificate]:
    """The certificates behind `safer,ranmask:keep=0.2,samples=2000`; `attacked`: the sets serve others as well."""
    from dataclasses import replace

    from unshaken.certificates import Safer, find_certificate
    from unshaken.names import split_specs
    from unshaken.substitutions import joined_substitutions

    found = [
        _seeded(find_certificate(spec), spec, seed)
        for text in specs
        for spec in filter(None, split_specs("certificate", text))
    ]
    if substitutions is None:
        return found
    if found and not any(isinstance(item, Safer) for item in found) and not attacked:
        options.refuse("only the certificate safer swaps words; leave it out", substitutions=substitutions)
    chosen = joined_substitutions(substitutions, allow_paths=True)
    return [replace(item, substitutions=chosen) if isinstance(item, Safer) else item for item in found]
