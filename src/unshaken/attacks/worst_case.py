"""The worst case over several attacks, example by example."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np

from unshaken.attacks.base import Attack
from unshaken.attacks.engine import RunOptions
from unshaken.attacks.results import PASSING_OVER, AttackResult, AttackResults
from unshaken.attacks.storage import derived_results
from unshaken.errors import UnshakenError
from unshaken.examples import Example, Examples
from unshaken.processes import WHOLE
from unshaken.victims.base import Victim


@dataclass(frozen=True, kw_only=True)
class WorstCase(Attack):
    """An example holds only where it holds under every attack. Each attack gets the examples that are still standing.

    An error of one is an error here, unless another breaks the example: `worst_of` says how results are joined.

    Relations: The accuracy under it is at most the lowest of its attacks, the number to quote for "robust".
    Cost: The first attack on all examples, the next ones on what is left; put the cheap ones first.

    Args:
        attacks: In the order in which they are run.

    Example:
        >>> WorstCase(attacks=(PWWS(), Genetic()))(victim, examples).accuracy_under_attack
    """

    name: ClassVar[str] = "worst-case"
    needs_scores: ClassVar[bool] = False

    attacks: tuple[Attack, ...]

    def __post_init__(self) -> None:
        if not self.attacks:
            raise UnshakenError("WorstCase needs at least one attack")

    def __call__(self, victim: Victim, examples: Sequence[Example], **options: Unpack[RunOptions]) -> AttackResults:
        """See `Attack.__call__`; each attack writes a file of its own beside `out`, and `out` is written at the end."""
        out, resume, shard = options.get("out"), options.get("resume", False), options.get("shard", WHOLE)
        empty, standing, runs = self.no_results(victim), examples, []
        with derived_results(out, empty, resume=resume, shard=shard) as write:
            for number, attack in enumerate(self.attacks):
                if not len(standing):
                    break
                own: RunOptions = {**options, "out": None if out is None else self._part(Path(out), number)}
                runs.append(run := attack(victim, standing, **own))
                held = {row.example_id for row in run if row.outcome in ("failure", "error")}
                left = [example for example in standing if example.id in held]
                standing = examples.with_rows(left) if isinstance(examples, Examples) else left
            results = replace(empty, rows=worst_of(runs, [row.example_id for row in runs[0]]))
            write(results)
        return results

    def goal_reached(self, log_probabilities: np.ndarray, label: int) -> np.ndarray:
        reached = [attack.goal_reached(log_probabilities, label) for attack in self.attacks]
        return np.asarray(np.any(reached, axis=0))

    def files(self, out: Path) -> list[Path]:
        inner = [attack.files(self._part(out, number)) for number, attack in enumerate(self.attacks)]
        return [out, *(file for files in inner for file in files)]

    def _part(self, out: Path, number: int) -> Path:
        return part_of(out, f"{number}-{self.attacks[number].name}")


def worst_of(runs: Sequence[AttackResults], ids: Sequence[str]) -> tuple[AttackResult, ...]:
    """Of each example the first success, or else an error, or else the failure that came nearest; costs of all runs.

    As in reports, an attack that ended in an error proved nothing, whatever others did not break. What exhaustive
    search or a transfer passes over is known by the other attacks, if there are any.
    """
    others = any(run.attack not in PASSING_OVER for run in runs)
    by_id: dict[str, list[tuple[AttackResult, bool]]] = {key: [] for key in ids}
    for run in runs:
        for row in run:
            if row.example_id in by_id:
                by_id[row.example_id].append((row, others and run.attack in PASSING_OVER))
    return tuple(_worst(results) for results in by_id.values())


def _worst(told: Sequence[tuple[AttackResult, bool]]) -> AttackResult:
    """Of results, each with whether its attack may pass over examples."""

    def rank(item: tuple[AttackResult, bool]) -> tuple[int, float]:
        row, may_pass = item
        order = {"success": 0, "skipped": 1, "error": 4 if may_pass else 2, "failure": 3}[row.outcome]
        # Of failures, the one that left the true label the least probability came nearest.
        return order, (row.score_after or 0.0) * (row.outcome == "failure")

    worst, results = min(told, key=rank)[0], [row for row, _ in told]
    totals: dict[str, Any] = {
        name: sum(getattr(row, name) for row in results) for name in ("queries", "rows", "seconds")
    }
    if worst.outcome == "failure":  # what any of the attacks did not get confirmed stays told
        totals["error"] = next((row.error for row in results if row.unconfirmed), None)
    return replace(worst, **totals)


def part_of(out: Path, part: str) -> Path:
    """results.jsonl -> results.0-pwws.jsonl"""
    return out.with_name(f"{out.stem}.{part}{out.suffix}")
