"""Values <-> plain JSON: dataclasses are written field by field and read back with every key and type checked."""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import itertools
import json
import math
import types
import typing
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from unshaken.errors import UnshakenError
from unshaken.names import nearest

T = TypeVar("T")

DEEPEST = 32
PLAIN = frozenset({str, int, float, bool, types.NoneType})
LARGEST = 2**63  # beyond it no count or measurement lies, and sums of them overflow


def parse_json(text: str | bytes, where: str, *, finite: bool = True) -> Any:
    """The value of a JSON text. What Python's parser lets through or breaks on is refused as well.

    Args:
        where: What the text is called in errors.
        finite: Refuse NaN, Infinity and numbers too large for a float: JSON has none, and they cannot be written back.
    """
    hooks: dict[str, Any] = {"parse_constant": _refuse, "parse_float": _finite} if finite else {}
    try:
        return json.loads(text, **hooks)
    except RecursionError as error:
        raise UnshakenError(f"{where} is not JSON that can be read (nested too deeply)") from error
    except ValueError as error:  # also bytes that are not UTF-8 and numbers of thousands of digits
        raise UnshakenError(f"{where} is not JSON ({error})") from error


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _refuse(digits)


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    """Of a dataclass; none of any other type."""
    return tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else ()


def encode(value: Any) -> Any:
    """The JSON form of a value; dataclasses become objects and tuples become lists."""
    kind: Any = type(value)
    if kind in PLAIN:  # nearly all values of a large report: asked first
        return value
    if names := _field_names(kind):
        return {name: encode(getattr(value, name)) for name in names}
    if isinstance(value, collections.abc.Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    return value


def decode(kind: type[T], value: Any, where: str, *, written_by_hand: bool = False) -> T:
    """The value of type `kind` that `encode` wrote as `value`.

    Args:
        where: What the value is called in errors.
        written_by_hand: Fields that have a default may be left out.

    Raises:
        UnshakenError: With the path of the first key that is unknown, missing or of another type.
    """
    try:
        return typing.cast("T", _reader(typing.cast("Any", kind), written_by_hand)(value))
    except _RefusedError as refused:
        raise UnshakenError(f"{where}{refused.path}: {refused.message}") from None


class _RefusedError(Exception):
    """What is wrong with a value. The path to it is put together on the way out, so that good values pay nothing."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message, self.path = message, ""

    def under(self, part: str) -> _RefusedError:
        self.path = part + self.path
        return self


Read = Callable[[Any], Any]


@cache
def _reader(kind: Any, by_hand: bool) -> Read:
    """The function that checks and makes values of a type; made once per type."""
    if kind is Any:
        return _plain
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _union(tuple(_reader(item, by_hand) for item in arguments if item is not type(None)), arguments)
    if origin is Literal:
        return _literal(arguments)
    if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        return _sequence(tuple, [_reader(item, by_hand) for item in arguments], len(arguments))
    if origin in (tuple, list):
        return _sequence(origin, itertools.repeat(_reader(arguments[0], by_hand)))
    if origin in (dict, collections.abc.Mapping):
        return _mapping(_reader(arguments[1], by_hand))
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, by_hand)
    return {float: _number, int: _whole}.get(kind) or _instance(kind)


def _plain(value: Any) -> Any:
    _check(_is_plain(value), "values nested less deeply, and smaller numbers", value)
    return value


def _number(value: Any) -> Any:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    _check(is_number and abs(value) < LARGEST, "a number", value)
    return value


def _whole(value: Any) -> Any:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    _check(is_whole and abs(value) < LARGEST, "a whole number", value)
    return value


def _instance(kind: Any) -> Read:
    expected = {"str": "a text", "bool": "true or false"}.get(kind.__name__, "null")

    def read(value: Any) -> Any:
        _check(isinstance(value, kind), expected, value)
        return value

    return read


def _literal(allowed: tuple[Any, ...]) -> Read:
    def read(value: Any) -> Any:
        if value not in allowed:
            raise _RefusedError(f"{value!r} is none of {', '.join(map(repr, allowed))}")
        return value

    return read


def _union(readers: tuple[Read, ...], kinds: tuple[Any, ...]) -> Read:
    takes_none = type(None) in kinds

    def read(value: Any) -> Any:
        if value is None and takes_none:
            return None
        for reader in readers[:-1]:
            with contextlib.suppress(UnshakenError, _RefusedError):
                return reader(value)
        return readers[-1](value)

    return read


def _sequence(make: Callable[[list[Any]], Any], items: Iterable[Read], length: int | None = None) -> Read:
    """A list whose parts are read in turn by `items`, which do not end where its `length` is free."""

    def read(value: Any) -> Any:
        _check(isinstance(value, list), "a list", value)
        _check(length in (None, len(value)), f"a list of {length}", value)
        made: list[Any] = []
        try:
            for item, part in zip(items, value, strict=False):
                made.append(item(part))
        except _RefusedError as refused:
            raise refused.under(f"[{len(made)}]") from None
        return make(made)

    return read


def _mapping(item: Read) -> Read:
    def read(value: Any) -> Any:
        _check(isinstance(value, dict), "an object", value)
        return _fields(value, dict.fromkeys(value, item))

    return read


def _dataclass(kind: Any, by_hand: bool) -> Read:
    @lru_cache  # when first needed: a class may hold values of its own
    def parts() -> dict[str, Read]:
        hints = typing.get_type_hints(kind)
        return {field.name: _reader(hints[field.name], by_hand) for field in dataclasses.fields(kind)}

    optional = _with_defaults(kind) if by_hand else frozenset()

    def read(value: Any) -> Any:
        if isinstance(value, kind):  # a part that its owner read before, because its class depends on a name
            return value
        _check(isinstance(value, dict), "an object", value)
        readers = parts()
        if value.keys() != readers.keys():
            for key in value:
                if key not in readers:
                    raise _RefusedError(f"unknown key {key!r}; {nearest(key, readers)}")
            for key in readers:
                if key not in value and key not in optional:
                    raise _RefusedError(f"the key {key!r} is missing")
        return kind(**_fields(value, readers))

    return read


def _fields(value: dict[str, Any], readers: dict[str, Read]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    key = ""
    try:
        for key, reader in readers.items():
            if key in value:
                made[key] = reader(value[key])
    except _RefusedError as refused:
        raise refused.under(f".{key}") from None
    return made


def _with_defaults(kind: Any) -> frozenset[str]:
    missing = dataclasses.MISSING
    return frozenset(
        item.name
        for item in dataclasses.fields(kind)
        if item.default is not missing or item.default_factory is not missing
    )


def _is_plain(value: Any, levels: int = DEEPEST) -> bool:
    """Whether functions that call themselves can walk a value, and sums of its numbers stay numbers."""
    if isinstance(value, (dict, list)):
        inner = value.values() if isinstance(value, dict) else value
        return levels > 0 and all(_is_plain(item, levels - 1) for item in inner)
    return not isinstance(value, int) or abs(value) < LARGEST


def _check(holds: bool, expected: str, value: Any) -> None:
    if not holds:
        shown = repr(value)
        raise _RefusedError(f"expected {expected}, got {shown if len(shown) < 60 else shown[:57] + '...'}")
