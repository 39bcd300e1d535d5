"""Values <-> plain JSON: dataclasses are written field by field and read back with every key and type checked."""

from __future__ import annotations

import collections.abc
import dataclasses
import json
import math
import types
import typing
from functools import lru_cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from unshaken.errors import UnshakenError
from unshaken.names import nearest

T = TypeVar("T")

DEEPEST = 32
LARGEST = 2**63  # beyond it no count or measurement lies, and sums of them overflow


def parse_json(text: str | bytes, where: str, *, finite: bool = True) -> Any:
    """The value of a JSON text. What Python's parser lets through or breaks on is refused as well.

    Args:
        text: JSON.
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


def encode(value: Any) -> Any:
    """The JSON form of a value; dataclasses become objects and tuples become lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
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
    return typing.cast("T", _Reader(written_by_hand).read(kind, value, where))


@dataclasses.dataclass(frozen=True)
class _Reader:
    written_by_hand: bool

    def read(self, kind: Any, value: Any, where: str) -> Any:
        if kind is Any:
            _check(_is_plain(value), "values nested less deeply, and smaller numbers", value, where)
            return value
        origin, arguments = get_origin(kind), get_args(kind)
        if origin in (Union, types.UnionType):
            return self._union(arguments, value, where)
        if origin is Literal:
            if value not in arguments:
                raise UnshakenError(f"{where}: {value!r} is none of {', '.join(map(repr, arguments))}")
            return value
        if origin is tuple:
            return self._tuple(arguments, value, where)
        if origin in (dict, collections.abc.Mapping):
            _check(isinstance(value, dict), "an object", value, where)
            return {key: self.read(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
        if origin is list:
            _check(isinstance(value, list), "a list", value, where)
            return [self.read(arguments[0], item, f"{where}[{index}]") for index, item in enumerate(value)]
        if dataclasses.is_dataclass(kind):
            return self._dataclass(kind, value, where)
        if kind is float:
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            _check(is_number and abs(value) < LARGEST, "a number", value, where)
            return value
        if kind is int:
            is_whole = isinstance(value, int) and not isinstance(value, bool)
            _check(is_whole and abs(value) < LARGEST, "a whole number", value, where)
            return value
        _check(
            isinstance(value, kind), {"str": "a text", "bool": "true or false"}.get(kind.__name__, "null"), value, where
        )
        return value

    def _union(self, kinds: tuple[Any, ...], value: Any, where: str) -> Any:
        if value is None and type(None) in kinds:
            return None
        kinds = tuple(kind for kind in kinds if kind is not type(None))
        for kind in kinds[:-1]:
            try:
                return self.read(kind, value, where)
            except UnshakenError:
                continue
        return self.read(kinds[-1], value, where)

    def _tuple(self, kinds: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
        _check(isinstance(value, list), "a list", value, where)
        if len(kinds) == 2 and kinds[1] is Ellipsis:
            return tuple(self.read(kinds[0], item, f"{where}[{index}]") for index, item in enumerate(value))
        _check(len(value) == len(kinds), f"a list of {len(kinds)}", value, where)
        return tuple(
            self.read(kind, item, f"{where}[{index}]")
            for index, (kind, item) in enumerate(zip(kinds, value, strict=True))
        )

    def _dataclass(self, kind: Any, value: Any, where: str) -> Any:
        if isinstance(value, kind):  # a part that its owner read before, because its class depends on a name
            return value
        _check(isinstance(value, dict), "an object", value, where)
        fields = _field_types(kind)
        for key in value:
            if key not in fields:
                raise UnshakenError(f"{where}: unknown key {key!r}; {nearest(key, fields)}")
        optional = _with_defaults(kind) if self.written_by_hand else frozenset()
        for key in fields:
            if key not in value and key not in optional:
                raise UnshakenError(f"{where}: the key {key!r} is missing")
        return kind(**{key: self.read(fields[key], value[key], f"{where}.{key}") for key in fields if key in value})


@lru_cache
def _field_types(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


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


def _check(holds: bool, expected: str, value: Any, where: str) -> None:
    if not holds:
        shown = repr(value)
        raise UnshakenError(f"{where}: expected {expected}, got {shown if len(shown) < 60 else shown[:57] + '...'}")
