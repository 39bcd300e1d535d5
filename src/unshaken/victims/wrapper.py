"""`Wrapper`: a victim that asks another one."""

from __future__ import annotations

import copy
from typing import Self

from unshaken.victims.base import Victim


class Wrapper(Victim):
    """What a victim is to reports and attacks, it stays inside another one, until that says otherwise.

    `name` is how reports call both together; as the victim itself if None.
    """

    def __init__(self, victim: Victim, name: str | None = None) -> None:
        self.victim = victim
        self.name = victim.name if name is None else name
        self.num_labels, self.label_names = victim.num_labels, victim.label_names
        self.max_length, self.unknown, self.reader = victim.max_length, victim.unknown, victim.reader

    @property
    def folder(self) -> str:
        return self.victim.folder

    @property
    def exact(self) -> Self:
        inner = self.victim.exact
        if inner is self.victim:
            return self
        twin = copy.copy(self)
        twin.victim = inner
        return twin
