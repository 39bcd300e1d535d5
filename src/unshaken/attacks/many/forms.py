"""Two forms of one thing: for one example, and for many at once."""

from __future__ import annotations


def has_many(cls: type, many: str, one: str) -> bool:
    """Whether `many` is there, and as new as `one`: a subclass that changes `one` alone means that."""
    own, other = (next(owner for owner in cls.__mro__ if name in vars(owner)) for name in (many, one))
    base = next(owner for owner in reversed(cls.__mro__) if many in vars(owner))  # where it only says what it is
    return own is not base and issubclass(own, other)
