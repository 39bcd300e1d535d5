"""Strict reading: what `encode` writes reads back, and what it never writes is refused with its path."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from unshaken.errors import UnshakenError
from unshaken.schema import LARGEST, decode, encode


@dataclass(frozen=True, kw_only=True)
class Leaf:
    size: int
    share: float | None = None
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True, kw_only=True)
class Tree:
    leaves: tuple[Leaf, ...]
    by_name: dict[str, Leaf]
    pair: tuple[int, str]
    children: tuple[Tree, ...] = ()  # a class that holds values of its own
    free: Any = None
    either: Leaf | int | list[str] = field(default=1)


TREE = Tree(
    leaves=(Leaf(size=1), Leaf(size=2, share=0.5, kind="b")),
    by_name={"x": Leaf(size=3, share=1)},
    pair=(4, "four"),
    children=(Tree(leaves=(), by_name={}, pair=(0, ""), either=["q"]),),
    free={"any": [1, {"thing": None}]},
    either=Leaf(size=5),
)


def test_what_is_written_reads_back() -> None:
    assert decode(Tree, encode(TREE), "tree") == TREE
    assert decode(Tree, TREE, "tree") is TREE  # a part that its owner read before


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("leaves", 1, "size"), True, "tree.leaves[1].size: expected a whole number, got True"),
        (("leaves", 1, "size"), LARGEST, "tree.leaves[1].size: expected a whole number"),
        (("leaves", 0, "share"), "1", "tree.leaves[0].share: expected a number, got '1'"),
        (("leaves", 0, "kind"), "c", "tree.leaves[0].kind: 'c' is none of 'a', 'b'"),
        (("leaves", 0, "sise"), 1, "tree.leaves[0]: unknown key 'sise'; did you mean 'size'?"),
        (("leaves",), {}, "tree.leaves: expected a list, got {}"),
        (("by_name", "x"), [], "tree.by_name.x: expected an object, got []"),
        (("pair",), [1], "tree.pair: expected a list of 2, got [1]"),
        (("pair", 1), 1, "tree.pair[1]: expected a text, got 1"),
        (("children", 0, "pair", 0), None, "tree.children[0].pair[0]: expected a whole number, got None"),
        (("children", 0, "either"), 0.5, "tree.children[0].either: expected a list, got 0.5"),
        (("free", "any"), [10**30], "tree.free: expected values nested less deeply, and smaller numbers"),
    ],
)
def test_what_is_never_written_is_refused_with_its_path(path: tuple[Any, ...], value: Any, message: str) -> None:
    written = place = encode(TREE)
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    with pytest.raises(UnshakenError) as caught:
        decode(Tree, written, "tree")
    assert str(caught.value).startswith(message)


def test_keys_may_be_missing_in_what_people_write_alone() -> None:
    assert decode(Leaf, {"size": 1}, "leaf", written_by_hand=True) == Leaf(size=1)
    with pytest.raises(UnshakenError, match="leaf: the key 'share' is missing"):
        decode(Leaf, {"size": 1}, "leaf")
    with pytest.raises(UnshakenError, match="leaf: the key 'size' is missing"):
        decode(Leaf, {}, "leaf", written_by_hand=True)
