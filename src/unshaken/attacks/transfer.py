"""Transfer: texts that fool another model, tried on this one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Unpack

import numpy as np

from unshaken.attacks.base import Attack
from unshaken.attacks.confirming import confirmed
from unshaken.attacks.engine import RunOptions
from unshaken.attacks.pwws import PWWS
from unshaken.attacks.results import AttackResult, AttackResults, Outcome
from unshaken.attacks.storage import derived_results
from unshaken.attacks.worst_case import part_of
from unshaken.errors import UnshakenError
from unshaken.examples import Example
from unshaken.processes import WHOLE
from unshaken.victims.base import Victim

NO_TEXT = "so that it yields no text to try"  # by which an error is told from an attack that failed


@dataclass(frozen=True, kw_only=True)
class Transfer(Attack):
    """Attack `source`, then ask the victim once about what was found.

    An example that the source gets wrong yields no text to try. It ends as an error, apart from those the victim held.

    Relations: A sanity check. Where texts found on an undefended model fool the victim more often than the direct
        attack does, the victim's scores mislead searches and its robustness is an illusion.
    Cost: The attack on the source, and two queries per example on the victim.

    Args:
        source: The model the texts are made for: a victim, or what `Victim.from_pretrained` takes.
        attack: How they are made.

    Example:
        >>> Transfer(source=Victim.from_pretrained("undefended"), attack=PWWS())(victim, examples)
    """

    name: ClassVar[str] = "transfer"
    needs_scores: ClassVar[bool] = False

    source: Victim | str
    attack: Attack = field(default_factory=PWWS)

    def __call__(self, victim: Victim, examples: Sequence[Example], **options: Unpack[RunOptions]) -> AttackResults:
        """See `Attack.__call__`; the attack on the source writes a file of its own beside `out`."""
        out, resume, shard = options.get("out"), options.get("resume", False), options.get("shard", WHOLE)
        if isinstance(self.source, str):
            return replace(self, source=Victim.from_pretrained(self.source))(victim, examples, **options)
        if self.source.num_labels != victim.num_labels:
            raise UnshakenError(
                f"{self.source.name} has {self.source.num_labels} labels and {victim.name} has {victim.num_labels}; a "
                "transfer needs two models of one task"
            )
        ours, theirs = (tuple(map(str.casefold, one.label_names)) for one in (victim, self.source))
        if ours != theirs and sorted(ours) == sorted(theirs):
            raise UnshakenError(
                f"{self.source.name} has the classes in the order {', '.join(self.source.label_names)}, and "
                f"{victim.name} {', '.join(victim.label_names)}; a transfer needs one order"
            )
        empty = self.no_results(victim)
        with derived_results(out, empty, resume=resume, shard=shard) as write:
            own: RunOptions = {**options, "out": None if out is None else part_of(Path(out), "source")}
            on_source = self.attack(self.source, examples, **own)
            started = time.perf_counter()
            asked = victim.exact  # two questions are no search that half precision would make faster
            before = asked.log_probabilities([row.original for row in on_source])
            after = asked.log_probabilities([row.adversarial or row.original for row in on_source])
            seconds = (time.perf_counter() - started) / max(1, len(on_source))
            rows = tuple(self._tried(*parts, seconds) for parts in zip(on_source, before, after, strict=True))
            results = replace(empty, rows=tuple(confirmed(self.goal_reached, victim, rows)))
            write(results)
        return results

    def files(self, out: Path) -> list[Path]:
        return [out, *self.attack.files(part_of(out, "source"))]

    def goal_reached(self, log_probabilities: np.ndarray, label: int) -> np.ndarray:
        return self.attack.goal_reached(log_probabilities, label)

    def _tried(self, row: AttackResult, before: np.ndarray, after: np.ndarray, seconds: float) -> AttackResult:
        was_right = int(before.argmax()) == row.label
        if row.outcome == "skipped" and was_right:
            source = getattr(self.source, "name", self.source)
            untried = f"{source} gets this example wrong, {NO_TEXT}"
            return replace(row, outcome="error", score_before=None, queries=0, rows=0, error=untried)
        if row.outcome == "error":
            return row
        fooled = row.adversarial is not None and bool(self.goal_reached(after[None], row.label)[0])
        outcome: Outcome = "skipped" if not was_right else "success" if fooled else "failure"
        fooled = outcome == "success"
        return replace(
            row,
            outcome=outcome,
            adversarial=row.adversarial if fooled else None,
            swaps=row.swaps if fooled else (),
            similarity=row.similarity if fooled else None,
            prediction=int(before.argmax()),
            adversarial_prediction=int(after.argmax()) if fooled else None,
            score_before=float(np.exp(before[row.label])),
            score_after=float(np.exp(after[row.label])) if was_right else None,
            queries=1 + (row.adversarial is not None),
            rows=1 + (row.adversarial is not None),
            seconds=seconds,
            error=None,  # that the source did not confirm a text says nothing about this victim
        )
