"""What an attack refuses before the first query, so that a mistake costs no time."""

from __future__ import annotations

from collections.abc import Sequence

from unshaken.attacks.goals import Targeted, Unflagged
from unshaken.attacks.questions import Searcher
from unshaken.errors import UnshakenError
from unshaken.examples import Example, Examples
from unshaken.names import nearest
from unshaken.victims.base import Victim


def checked_input(attack: Searcher, victim: Victim, examples: Sequence[Example]) -> tuple[int, ...]:
    """Refuse what cannot work before any query; give back the numbers of the frozen columns."""
    if not len(examples):
        raise UnshakenError("there are no examples to attack")
    columns = len(examples[0].texts)
    ids = set()
    for example in examples:
        if isinstance(example.label, float) or not 0 <= example.label < victim.num_labels:
            raise UnshakenError(
                f"example {example.id!r} has the label {example.label!r}; {victim.name} knows the labels 0 to "
                f"{victim.num_labels - 1}"
            )
        if len(example.texts) != columns or columns > 2:
            raise UnshakenError(
                f"example {example.id!r} has {len(example.texts)} texts; all examples must have one text, or all two"
            )
        if example.id in ids:
            raise UnshakenError(f"the id {example.id!r} occurs twice; ids must be unique")
        ids.add(example.id)
    if isinstance(attack.goal, Targeted) and not 0 <= attack.goal.label < victim.num_labels:
        raise UnshakenError(f"the target label {attack.goal.label} is not one of 0 to {victim.num_labels - 1}")
    if isinstance(attack.goal, Unflagged) and victim.num_labels < 3:
        raise UnshakenError(
            f"Unflagged takes the last class for a detector's flag, and {victim.name} has {victim.num_labels} classes; "
            "attack a detection.Guarded, or with another goal"
        )
    if attack.white_box and victim.network is None:
        raise UnshakenError(
            f"{attack.name} follows gradients and needs a Hugging Face model; {victim.name} only answers texts. Use "
            "Victim.from_pretrained or a black-box attack such as pwws"
        )
    names = examples.columns if isinstance(examples, Examples) else tuple(str(number) for number in range(columns))
    frozen = tuple(_column(name, names, columns) for name in attack.frozen_columns)
    if len(set(frozen)) == columns:
        raise UnshakenError("every column is frozen; leave at least one to attack")
    return frozen


def _column(name: str | int, names: Sequence[str], columns: int) -> int:
    if isinstance(name, int) and 0 <= name < columns:
        return name
    if name in names:
        return list(names).index(str(name))
    raise UnshakenError(f"no column {name!r} to freeze; {nearest(str(name), names)}")
