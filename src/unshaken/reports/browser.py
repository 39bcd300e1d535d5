"""The data behind the example browser of the HTML page: every text once, and each adversarial text as its edits."""

from __future__ import annotations

import hashlib
import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from unshaken.display import visible
from unshaken.evaluation.results import CLEAN, Evaluation, Prediction

if TYPE_CHECKING:
    from unshaken.evaluation.report import Report

Edit = tuple[int, int, str]  # start and end in the text before, in UTF-16 units as browsers count, and what replaced it

ALIGNED = 2000  # pieces; an alignment takes the square of them
_PIECES = re.compile(r"\s+|\w+|[^\w\s]")


def browser_data(report: Report) -> dict[str, Any]:
    """All examples under all conditions, adversarial successes first because they are what a reader looks for."""
    sets: dict[str, dict[str, Any]] = {}
    conditions = list(dict.fromkeys(name for item in report.evaluations for name in (CLEAN, *item.attack_names)))
    models = list(report.model_names.values())
    rows: list[list[Any]] = []
    for evaluation in report.evaluations:
        key = evaluation.data.fingerprint
        number = list(sets).index(key) if key in sets else len(sets)
        sets.setdefault(key, _data_set(evaluation))["labels"] |= _labels(evaluation)
        place = [number, models.index(report.name_of(evaluation))]
        rows += [[*place, *row] for row in _clean_rows(evaluation, conditions.index(CLEAN))]
        rows += [[*place, *row] for row in _attack_rows(evaluation, conditions)]
    order = {"success": 0, "failure": 1, "error": 2, "wrong": 3, "right": 4}
    rows.sort(key=lambda row: order[row[4]])
    titles = ["no attack" if name == CLEAN else visible(name) for name in conditions]
    key = hashlib.sha256("".join([*report.model_names, *sets, *conditions]).encode()).hexdigest()[:16]  # of ratings
    shown = {"sets": list(sets.values()), "models": [*map(visible, models)], "conditions": titles, "rows": rows}
    return {"key": key, **shown}


def _shown(group: str | None) -> str | None:
    return None if group is None else visible(group)


def _labels(evaluation: Evaluation) -> dict[str, str]:
    """The names of the classes that occur, and that this model gave."""
    labels = {row.label for row in evaluation.predictions} | {row.prediction for row in evaluation.predictions}
    for run in evaluation.attacks:
        labels |= {row.adversarial_prediction for row in run.results if row.adversarial_prediction is not None}
    return {str(label): visible(evaluation.data.label_name(label)) for label in sorted(labels)}


def _data_set(evaluation: Evaluation) -> dict[str, Any]:
    return {
        "name": visible(evaluation.data.name),
        "columns": [visible(name) for name in evaluation.data.columns],
        "labels": {},  # of all models, which may give classes that the first one does not
        "examples": [[visible(row.id), row.label, _shown(row.group), *row.texts] for row in evaluation.predictions],
    }


# A row: data set, model, condition, example, outcome, prediction, probability of the true label before and after,
# queries, similarity, and per text column the edits (null where nothing changed), or its unperturbed texts.


def _clean_rows(evaluation: Evaluation, condition: int) -> list[list[Any]]:
    rows = []
    for number, row in enumerate(evaluation.predictions):
        outcome = "right" if row.correct else "wrong"
        rows.append(
            [condition, number, outcome, row.prediction, _round(row.confidence), None, None, None, _static(row)]
        )
    return rows


def _static(row: Prediction) -> dict[str, Any] | None:
    """A static adversarial example: what it was made from, and the edits from there."""
    if row.original is None:
        return None
    return {"from": row.original, "edits": [edits(*pair) for pair in zip(row.original, row.texts, strict=True)]}


def _attack_rows(evaluation: Evaluation, conditions: list[str]) -> list[list[Any]]:
    numbers = {row.id: number for number, row in enumerate(evaluation.predictions)}
    rows = []
    for name, run in zip(evaluation.attack_names, evaluation.attacks, strict=True):
        for result in run.results:
            if result.outcome == "skipped":  # wrong before the attack: stands under the clean answers
                continue
            changed = None
            if result.adversarial is not None:
                pairs = zip(result.original, result.adversarial, strict=True)
                changed = {"edits": [edits(*pair) for pair in pairs]}
            rows.append(
                [
                    conditions.index(name),
                    numbers[result.example_id],
                    result.outcome,
                    result.prediction if result.adversarial_prediction is None else result.adversarial_prediction,
                    _round(result.score_before),
                    _round(result.score_after),
                    result.queries,
                    _round(result.similarity),
                    changed,
                ]
            )
    return rows


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def edits(before: str, after: str) -> list[Edit]:
    """What to replace in `before` to get `after`, in whole words."""
    if before == after:
        return []
    old, new = _PIECES.findall(before), _PIECES.findall(after)
    starts = [0]
    for piece in old:
        starts.append(starts[-1] + _units(piece))
    if len(old) == len(new):  # word swaps, nearly always: no alignment to find
        changed = [(i, i + 1, i, i + 1) for i, pair in enumerate(zip(old, new, strict=True)) if pair[0] != pair[1]]
    elif max(len(old), len(new)) > ALIGNED:
        changed = [_middle(old, new)]
    else:
        opcodes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        changed = [(i, j, k, m) for tag, i, j, k, m in opcodes if tag != "equal"]
    return [(starts[i], starts[j], "".join(new[k:m])) for i, j, k, m in changed]


def _middle(old: list[str], new: list[str]) -> tuple[int, int, int, int]:
    """What lies between the common start and the common end."""
    shorter = min(len(old), len(new))
    start = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    end = next((i for i in range(shorter - start) if old[-1 - i] != new[-1 - i]), shorter - start)
    return (start, len(old) - end, start, len(new) - end)


def _units(text: str) -> int:
    return len(text) + sum(character > "\uffff" for character in text)
