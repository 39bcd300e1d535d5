"""`evaluate`: models, examples and attacks in; a report that can be trusted out."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unshaken.attacks import find_attack
from unshaken.attacks.base import Attack
from unshaken.attacks.transfer import Transfer
from unshaken.certificates import Certificate, find_certificate
from unshaken.errors import UnshakenError
from unshaken.evaluation.one_run import OneRun
from unshaken.evaluation.report import Report
from unshaken.examples import Examples
from unshaken.files import REPORT_FILE, earlier_run, locked
from unshaken.processes import WHOLE, Shard
from unshaken.tasks.tables import table_examples
from unshaken.victims import Victim
from unshaken.victims.calibrated import Tempered, TemperedModel, calibrated
from unshaken.victims.classes import require_same_classes


def evaluate(
    victims: Any,
    examples: Examples | Mapping[str, Examples] | Any,
    attacks: Attack | str | Sequence[Attack | str] = (),
    *,
    then: Sequence[Attack | str] = (),
    out: Path | str | None = None,
    resume: bool = False,
    seed: int = 0,
    recheck: int = 0,
    calibrate: Examples | bool = False,
    certificates: Certificate | str | Sequence[Certificate | str] = (),
    progress: bool = False,
    shard: Shard = WHOLE,
) -> Report:
    """Measure clean accuracy and accuracy under attack, with everything needed to believe the numbers.

    A static adversarial set (examples that carry their unperturbed texts, such as AdvGLUE) is answered, not attacked.

    Args:
        victims: One model, or a list of several to compare on the same examples; the first is the reference. Anything
            that `Victim.of` takes: a victim, a folder or hub name, a pipeline, an .onnx file, an address, a function.
            A mapping gives the names that the report calls them by: `{"plain": ..., "hardened": ...}`.
        examples: One set, or several by name. A pandas DataFrame or a `datasets.Dataset` is read like a file.
        attacks: Each is run on every model and set, and the worst case over all of them is reported. Names do as on
            the command line: `attacks=["pwws", "genetic:population=20"]`.
        then: More attacks, each on those examples only that all before it left standing. They add to the worst case for
            fewer queries, and have no accuracy of their own on all examples.
        out: A folder for the results. Attacks write each finished example there, and the report is saved as JSON.
        resume: Continue the run that `out` holds.
        seed: Of the samples that probes and rechecks draw; attacks have seeds of their own.
        recheck: Repeat each attack that climbs scores on this many examples under other scores.
        calibrate: Attack every model a second time at the temperature at which its confidence is right on these clean
            examples, or on the first set itself where True: probabilities that are all 1 hide a model from a search.
            Answers do not change, so clean accuracy does not either. The report shows both as models of their own.
        certificates: Each proves, for every model and set, how many right answers no attack of its kind can change. The
            report shows that apart from accuracy under attack: one is a lower bound, the other an upper one. With
            several processes the first one certifies.
        progress: Show a progress bar for each attack.
        shard: The share of this process, where several attack together. They meet in `out`. The first waits
            for the others, repeats attacks, and returns the report; theirs is empty.

    Example:
        >>> report = evaluate([plain, hardened], data.test, attacks=[PWWS(), Genetic()], out="runs/first")
        >>> report.save("runs/first/report.html")
    """
    folder = None if out is None else Path(out)
    if folder is not None and not resume and (kept := earlier_run(folder, shard)):
        raise UnshakenError(f"{kept} exists; resume it (resume=True, or --resume), remove it or name another folder")
    if folder is None and not shard.is_whole:
        raise UnshakenError(f"{shard.count} processes meet in files, and there is no folder for them; give out=FOLDER")
    names = list(map(str, victims)) if isinstance(victims, Mapping) else None
    given = list(victims.values() if names else victims if isinstance(victims, list | tuple) else [victims])
    models = [Victim.of(victim) for victim in given]
    sets = _sets(examples, models)
    _check_input(models, sets)
    twins: list[Tempered | TemperedModel] = []
    if calibrate is not False:
        held_out = sets[0] if calibrate is True else calibrate
        twins = [calibrated(model, held_out) for model in models]
        models = [twin for pair in zip(models, twins, strict=True) for twin in pair]
        names = names and [name for own in names for name in (own, f"{own}, calibrated")]
    chosen, last = chosen_attacks(attacks), chosen_attacks(then)
    wanted = [certificates] if isinstance(certificates, Certificate | str) else certificates
    proofs = [find_certificate(item) for item in wanted]
    if last and not shard.is_whole:
        raise UnshakenError("`then` needs what all examples came to; run it in one process")
    with contextlib.nullcontext() if folder is None else locked(folder):
        how = (chosen, last, folder, resume, seed, recheck, progress, shard)
        # A temperature changes no answer, so what is proved of a model holds for its twin.
        runs = [OneRun(victim, rows, *how, () if victim in twins else proofs) for rows in sets for victim in models]
        if not shard.is_whole:  # all shares first, so that the first process waits for the others once
            for run in runs:
                run.do_share()
        if not shard.leads:
            return Report(evaluations=())
        report = Report(evaluations=tuple(run.evaluation() for run in runs))
        if names is not None:
            report = report.renamed(dict(zip((model.fingerprint for model in models), names, strict=True)))
        if folder is not None:
            report.save(folder / REPORT_FILE)
        return report


def _sets(examples: Any, models: Sequence[Victim]) -> list[Examples]:
    """Examples with their names; tables are read with the classes of the first model."""
    named = examples.items() if isinstance(examples, Mapping) else [(None, examples)]
    labels = (models[0].label_names if models else ()) or None
    sets = [(key, one if isinstance(one, Examples) else _table(one, labels)) for key, one in named]
    return [rows if key is None else replace(rows, name=str(key)) for key, rows in sets]


def _table(table: Any, labels: Sequence[str] | None) -> Examples:
    return replace(table_examples(table, label_names=labels), order_guessed=True)  # for the models but the first


def _check_input(models: Sequence[Victim], sets: Sequence[Examples]) -> None:
    if not models:
        raise UnshakenError("no model to evaluate")
    known: dict[str, Victim] = {}  # by what tells models apart in files and tables
    for victim in models:
        if victim.fingerprint in known:
            raise UnshakenError(
                f"{known[victim.fingerprint].name} and {victim.name} are one model, as far as can be told; name each "
                "model once, and give functions names of their own: Victim.from_callable(function, name='plain')"
            )
        known[victim.fingerprint] = victim
    if not sets:
        raise UnshakenError("no examples to evaluate on")
    for rows in sets:
        if not len(rows):
            raise UnshakenError(f"{rows.name} is empty; there is nothing to evaluate")
        rows.require_classes()
        for victim in models:
            require_same_classes(victim, rows)


def chosen_attacks(attacks: Attack | str | Sequence[Attack | str]) -> list[Attack]:
    """The attacks behind names, the source of a transfer loaded: once for all models, with a fingerprint to tell of."""
    chosen = [find_attack(attack) for attack in ([attacks] if isinstance(attacks, Attack | str) else attacks)]
    return [
        replace(attack, source=Victim.from_pretrained(attack.source))
        if isinstance(attack, Transfer) and isinstance(attack.source, str)
        else attack
        for attack in chosen
    ]
