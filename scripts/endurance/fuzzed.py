"""Every reader under bent inputs."""

from __future__ import annotations

import json
import random
import signal
import traceback
from collections import Counter
from typing import Any

from trials import Plan, Trial, Trials

GOAL = 150_000  # inputs, of all readers together
AT_ONCE = 500  # a line counts so many
LONGEST = 30.0  # seconds an input may take


class Late(BaseException):
    """An input took too long. No `except Exception` or `except OSError` of a reader takes this for bad input."""


def fuzz(plan: Plan) -> Trials:
    """Every reader under bent inputs: taken, or refused by our own error."""
    from targets import targets

    def late(*_: object) -> None:
        raise Late

    signal.signal(signal.SIGALRM, late)
    for name in targets():
        kind = f"fuzz: {name}"
        missing, draw = plan.missing(kind, GOAL // len(targets()) + 1), plan.draw(kind)
        while missing > 0:
            yield from _fed(name, kind, min(missing, AT_ONCE), draw)
            missing -= AT_ONCE


def _fed(name: str, kind: str, count: int, draw: random.Random) -> Trials:
    from targets import feed, targets

    verdicts: Counter[str] = Counter()
    for _ in range(count):
        data = mutated(name, draw.choice(targets()[name].seeds), draw)
        signal.setitimer(signal.ITIMER_REAL, LONGEST)
        try:
            verdicts["held" if feed(name, data) else "refused"] += 1
        except (Exception, Late) as fault:
            where = "".join(traceback.format_exc().splitlines(keepends=True)[-7:])
            verdict = "hang" if isinstance(fault, Late) else "traceback"
            yield Trial(kind=kind, verdict=verdict, what=f"{data[:300]!r}: {where}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    for verdict, times in verdicts.items():
        yield Trial(kind=kind, verdict=verdict, times=times)


def mutated(name: str, seed: bytes, draw: random.Random) -> bytes:
    """A valid input with some bytes, or some values, changed."""
    from targets import PIECES, targets

    form = targets()[name].form
    if form is not None and draw.random() < 0.6:
        try:
            bent: bytes = form.write(_other_values(form.read(seed), draw))
        except Exception:  # a value that the format cannot hold
            return seed
        return bent
    data = seed
    for _ in range(draw.randint(1, 4)):
        start = draw.randint(0, len(data))
        stop = start + draw.choice([0, 0, 1, 2, 8, 64, len(data)])
        new = draw.choice([draw.choice(PIECES), draw.randbytes(draw.randint(0, 6)), data[start:stop] * 2, b""])
        data = data[:start] + new + data[stop:]
    return data


def _other_values(value: Any, draw: random.Random) -> Any:
    from targets import VALUES

    for _ in range(draw.randint(1, 3)):
        holders = [place for place in _places(value) if place]
        if not holders:
            break
        holder = draw.choice(holders)
        key = draw.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        change = draw.choice(["replace", "replace", "drop", "add"])
        if change == "drop":
            del holder[key]
        elif change == "replace":
            holder[key] = json.loads(json.dumps(draw.choice(VALUES)))
        elif isinstance(holder, dict):
            holder[draw.choice(["", "name", "label", "unheard of"])] = holder[key]
        else:
            holder.append(holder[key])
    return value


def _places(value: Any) -> list[Any]:
    if not isinstance(value, (dict, list)):
        return []
    inner = value.values() if isinstance(value, dict) else value
    return [value, *(place for item in inner for place in _places(item))]
