"""Values <-> plain JSON: dataclasses are written field by field and read back with every key and type checked."""

from __future__ import annotations

import collections.abc
import dataclasses
import types
import typing
from functools import lru_cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from unshaken.errors import UnshakenError
from unshaken.names import nearest

T = TypeVar("T")


def encode(value: Any) -> Any:
    """The JSON form of a value; dataclasses become objects and tuples become lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, collections.abc.Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    return value


def decode(kind: type[T], value: Any, where: str) -> T:
    """The value of type `kind` that `encode` wrote as `value`.

    Raises:
        UnshakenError: With the path of the first key that is unknown, missing or of another type.
    """
    return typing.cast("T", _decode(kind, value, where))


def _decode(kind: Any, value: Any, where: str) -> Any:
    if kind is Any:
        return value
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _decode_union(arguments, value, where)
    if origin is Literal:
        if value not in arguments:
            raise UnshakenError(f"{where}: {value!r} is none of {', '.join(map(repr, arguments))}")
        return value
    if origin is tuple:
        return _decode_tuple(arguments, value, where)
    if origin in (dict, collections.abc.Mapping):
        _check(isinstance(value, dict), "an object", value, where)
        return {key: _decode(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, value, where)
    if kind is float:
        _check(isinstance(value, (int, float)) and not isinstance(value, bool), "a number", value, where)
        return value
    if kind is int:
        _check(isinstance(value, int) and not isinstance(value, bool), "a whole number", value, where)
        return value
    _check(isinstance(value, kind), {"str": "a text", "bool": "true or false"}.get(kind.__name__, "null"), value, where)
    return value


def _decode_union(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    for kind in kinds[:-1]:
        try:
            return _decode(kind, value, where)
        except UnshakenError:
            continue
    return _decode(kinds[-1], value, where)


def _decode_tuple(kinds: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    _check(isinstance(value, list), "a list", value, where)
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(_decode(kinds[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    _check(len(value) == len(kinds), f"a list of {len(kinds)}", value, where)
    return tuple(
        _decode(kind, item, f"{where}[{index}]") for index, (kind, item) in enumerate(zip(kinds, value, strict=True))
    )


def _decode_dataclass(kind: Any, value: Any, where: str) -> Any:
    _check(isinstance(value, dict), "an object", value, where)
    fields = _field_types(kind)
    for key in value:
        if key not in fields:
            raise UnshakenError(f"{where}: unknown key {key!r}; {nearest(key, fields)}")
    for key in fields:
        if key not in value:
            raise UnshakenError(f"{where}: the key {key!r} is missing")
    return kind(**{key: _decode(fields[key], value[key], f"{where}.{key}") for key in fields})


@lru_cache
def _field_types(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _check(holds: bool, expected: str, value: Any, where: str) -> None:
    if not holds:
        shown = repr(value)
        raise UnshakenError(f"{where}: expected {expected}, got {shown if len(shown) < 60 else shown[:57] + '...'}")
