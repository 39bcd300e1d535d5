"""Labels must mean to the examples what they mean to the victim, or right answers count as wrong and wrong as right."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from unshaken.display import note
from unshaken.errors import UnshakenError
from unshaken.examples import Example, Examples
from unshaken.names import nearest
from unshaken.processes import Shard
from unshaken.victims.base import Victim

SHOWN = 10  # classes that a note lists


def class_number(victim: Victim, name: str) -> int:
    """The number of a class by its name: as it is written, or else in any case if that leaves one class."""
    names = list(victim.label_names)
    if name in names:
        return names.index(name)
    alike = [number for number, known in enumerate(names) if known.casefold() == name.strip().casefold()]
    if len(alike) == 1:
        return alike[0]
    raise UnshakenError(f"{victim.name} has no class {name!r}; {nearest(name, names)}")


def require_same_classes(victim: Victim, examples: Sequence[Example]) -> None:
    """Refuse labels that the victim has no class for, and class names in another place than its own.

    An order that was guessed for a victim without names is told, once, and so are names of which it has none. Examples
    without class names, a plain list of them for one, are taken to be in the victim's order.
    """
    names = examples.label_names if isinstance(examples, Examples) else ()
    called = examples.name if isinstance(examples, Examples) else "the list of examples"
    largest = max((int(row.label) for row in examples), default=0)
    if largest >= victim.num_labels:
        raise UnshakenError(f"{called} has the label {largest}, {victim.name} has {victim.num_labels} classes only")
    if names and len(names) != victim.num_labels:
        raise UnshakenError(
            f"{victim.name} has {victim.num_labels} classes, {called} has {len(names)} "
            f"({', '.join(names)}); evaluate a model on the task it was trained for"
        )
    own = [name.casefold() for name in victim.label_names]
    wanted = [name.casefold() for name in names]
    if any(own[place] != name for place, name in enumerate(wanted) if name in own):
        raise UnshakenError(
            f"{victim.name} counts its classes as {', '.join(own)}, {called} as {', '.join(wanted)}; give the "
            "examples label_names in the model's order"
        )
    if own and wanted and not {*own} & {*wanted} and not all(map(str.isdecimal, wanted)):
        _tell_names(victim.name, called, tuple(victim.label_names), tuple(names))
    is_guess = isinstance(examples, Examples) and examples.order_guessed and not victim.label_names
    is_counted = all(map(str.isdecimal, names)) and list(names) == sorted(names, key=int)
    if is_guess and not is_counted and any(row.label >= 0 for row in examples):
        _tell_order(victim.folder, called, names)


@functools.cache  # once, however many blocks, attacks and temperatures there are
def _tell_order(who: str, data: str, names: Sequence[str]) -> None:
    """Which number a class got by its name: in another order, right counts as wrong."""
    if Shard.from_environment().leads:
        numbered = ", ".join(f"{name} {number}" for number, name in enumerate(names[:SHOWN]))
        more = ", ..." if len(names) > SHOWN else ""
        note(
            f"{who} does not name its classes, so those of {data} are taken in the order {numbered}{more}; if the "
            "model counts otherwise, write their numbers in place of the names, from 0"
        )


@functools.cache
def _tell_names(who: str, data: str, own: Sequence[str], names: Sequence[str]) -> None:
    """Which class of the data is taken for which of the model, where their names tell nobody."""
    if Shard.from_environment().leads:
        pairs = ", ".join(f"{name} for {its}" for its, name in list(zip(own, names, strict=True))[:SHOWN])
        more = ", ..." if len(names) > SHOWN else ""
        note(f"{who} and {data} call their classes otherwise; by their places {pairs}{more} is taken")


def require_one_order(names: Sequence[str], what: str, known: Sequence[str], whose: str) -> None:
    """Refuse a class that has another number elsewhere; classes of other names may mean the same.

    Stricter than the above, for what is trained together: there one class that moved is refused, also among others.
    """
    places = {name.casefold(): place for place, name in enumerate(known)}
    for place, name in enumerate(names):
        if places.get(name.casefold(), place) != place:
            raise UnshakenError(
                f"{what} has its classes in the order {', '.join(names)}, and {whose} in the order "
                f"{', '.join(known)}; give both one order (label_names)"
            )
