"""What attacks take at most, at a glance: one line before they start."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import inf
from pathlib import Path
from statistics import fmean
from typing import TypeGuard

from unshaken.attacks import PWWS, Beam, Genetic, SearchAttack, TextFooler
from unshaken.attacks.base import Attack
from unshaken.attacks.shard_files import Merged
from unshaken.certificates import Certificate
from unshaken.display import counted, duration
from unshaken.evaluation.one_run import results_file
from unshaken.evaluation.probes import variants
from unshaken.examples import Examples
from unshaken.substitutions import MaskedLM, coverage
from unshaken.victims.base import Victim
from unshaken.victims.calibrated import calibrated

GLANCE = 32  # examples that are looked at
BOUNDED = (PWWS, TextFooler, Genetic, Beam)  # searches of which `queries_to_the_end` knows the end


def outlook(
    victims: Sequence[Victim],
    examples: Examples,
    attacks: Sequence[Attack],
    *,
    recheck: int = 0,
    calibrate: Examples | bool = False,
    certify: bool = False,
    resumed: Path | None = None,
) -> str:
    """How long the attacks take at most: what searches that find nothing ask, and how fast the models answer.

    Much cheaper than `forecast`, and much rougher. Empty if there is no search of which the end is known, or nothing is
    left of it.

    Args:
        recheck, calibrate: As for `evaluate`.
        certify: Whether certificates follow. They are not counted, and the line says so.
        resumed: The folder of a run that goes on; what it holds is not asked again.
    """
    if not examples or examples.is_static:
        return ""
    few = examples.sample(min(GLANCE, len(examples)))
    asked = [(attack, _most_questions(attack, few)) for attack in attacks if _is_bounded(attack)]
    again = min(recheck, len(examples))

    def most(victim: Victim) -> float:
        """A search of which nothing is left is not rechecked again either."""
        left = [(_left(victim, examples, attack, resumed), attack, each) for attack, each in asked]
        return sum(each * (count + again * variants(attack)) for count, attack, each in left if count)

    def with_twin(victim: Victim) -> float:
        if calibrate is False:
            return most(victim)
        if resumed is None:
            return 2 * most(victim)
        return most(victim) + most(calibrated(victim, examples if calibrate is True else calibrate))

    totals = [with_twin(victim) for victim in victims] if asked else []
    total = sum(totals)
    if not total:
        return ""
    also = [
        f"{len(victims)} models" if len(victims) > 1 else "",
        "each again calibrated" if calibrate else "",
        f"{again} of them rechecked" if again else "",
        "without what is finished" if resumed else "",
        "without certificates" if certify else "",
    ]
    names = ", ".join(attack.name for attack, _ in asked)
    where = ", ".join(filter(None, (f"{names} on {counted(len(examples), 'example')} of {examples.name}", *also)))
    line = f"{where}: at most about {total:,.0f} questions"
    texts = [row.texts for row in few]
    try:
        seconds = sum(number / _rate(victim, texts) for victim, number in zip(victims, totals, strict=True))
    except Exception:  # the run meets what is wrong with a text too, and lets that example alone fail
        return line
    reads = any(victim.reader is not None for victim in victims)
    fewer = "; far fewer where a reader mends what a search writes, as equal texts are asked once" if reads else ""
    told = f"{line}, {duration(seconds)} at {total / seconds:,.0f} per second; a search that succeeds stops earlier"
    return told + fewer


def certificates_outlook(victim: Victim, examples: Examples, certificates: Sequence[Certificate]) -> str:
    """How long certificates take at most: equal draws of a text are asked once."""
    total = len(examples) * sum(own.guesses + own.samples for own in certificates)
    names = ", ".join(own.name for own in certificates)
    line = f"{names} on {counted(len(examples), 'example')}: at most {total:,} questions"
    try:
        rate = _rate(victim, [row.texts for row in examples.sample(min(GLANCE, len(examples)))])
    except Exception:  # the run meets what is wrong with a text too, and tells it
        return line
    return f"{line}, {duration(total / rate)} at {rate:,.0f} per second; equal draws are asked once"


def _rate(victim: Victim, texts: Sequence[tuple[str, ...]]) -> float:
    """Texts that are answered in a second."""
    victim.log_probabilities(texts[:1])  # the first answer of a process is slow
    begin = time.perf_counter()
    victim.log_probabilities(texts)
    return len(texts) / max(time.perf_counter() - begin, 1e-9)


def _left(victim: Victim, examples: Examples, attack: Attack, resumed: Path | None) -> int:
    """Examples that a run has still to attack."""
    if resumed is None:
        return len(examples)
    finished = Merged(results_file(resumed, victim, examples, attack))
    return sum(not finished.has(row.id) for row in examples)


def _is_bounded(attack: Attack) -> TypeGuard[SearchAttack]:
    """Not with a masked LM, whose substitutes take as long to know as to ask about."""
    return isinstance(attack, BOUNDED) and not isinstance(attack.substitutions, MaskedLM)


def _most_questions(attack: SearchAttack, few: Examples) -> float:
    """About one example, by a search that finds nothing or meets its budget: the mean, as long texts ask for most."""
    most = inf if attack.query_budget is None else attack.query_budget
    source = attack.substitutions.against(None)  # a reader leaves an attacker less to ask about
    found = [coverage(source, few.with_rows([row])) for row in few]
    return fmean(
        min(queries_to_the_end(attack, one.positions, one.positions * (one.choices - 1)), most) for one in found
    )


def queries_to_the_end(attack: Attack, words: float, choices: float) -> float:
    """Of a search that finds nothing in a text of so many swappable words and swaps; see docs/how-to/scaling.md."""
    if isinstance(attack, Genetic):
        born = attack.population + attack.generations * (attack.population - 1)
        return 1 + born * (choices / max(words, 1) + 1)
    if isinstance(attack, Beam):  # all swaps of the words that are left, for each word
        return 1 + attack.width * choices * (words + 1) / 2
    return 1 + 2 * words + choices  # PWWS: each word blotted out, each swap, each prefix of the order
