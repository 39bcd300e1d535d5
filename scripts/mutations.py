"""Wrong programs that differ from ours by one sign, constant, comparison or detach, for `mutants.py` to try."""

from __future__ import annotations

import ast
import copy
import inspect
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What may go wrong at one place of a program: how it is called, and what stands there then."""
    if isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
        other = SWAPS[type(node.op)]
        yield f"{type(node.op).__name__} to {other.__name__}", ast.BinOp(node.left, other(), node.right)  # type: ignore[arg-type]
    is_number = isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)  # -1: its 1 is changed
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not) and not is_number:
        yield f"without {type(node.op).__name__}", node.operand
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        other = SWAPS[type(node.ops[0])]
        ops: list[Any] = [other(), *node.ops[1:]]
        yield f"{type(node.ops[0]).__name__} to {other.__name__}", ast.Compare(node.left, ops, node.comparators)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "detach":
        yield "without detach", node.func.value
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield f"{node.value} to {not node.value}", ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield f"{node.value} to {node.value + 1}", ast.Constant(node.value + 1)
    if isinstance(node, ast.FunctionDef):
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            if isinstance(argument.annotation, ast.Name) and argument.annotation.id == "Tensor":
                yield f"{argument.arg} of {node.name} detached", with_detached(node, argument.arg)


def with_detached(function: ast.FunctionDef, name: str) -> ast.FunctionDef:
    """The function with an argument cut from its graph, before all else but the docstring."""
    changed = copy.copy(function)
    has_docstring = ast.get_docstring(function) is not None
    detach = ast.parse(f"{name} = {name}.detach()").body
    changed.body = [*function.body[:has_docstring], *detach, *function.body[has_docstring:]]
    return changed


@dataclass(frozen=True)
class Mutant:
    file: str
    number: int
    line: int
    end: int
    what: str
    code: str  # the changed line as it stands in the file
    function: tuple[str, ...]  # the outermost function and its classes; none where the change is outside of functions
    nth: int = 1  # of several alike

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """What it is called wherever its lines move to: file, function, change, code, and which of several alike."""
        return self.file, ".".join(self.function), self.what, self.code, self.nth


class Change(ast.NodeTransformer):
    """Makes the change of one number, and lists all of them."""

    def __init__(self, wanted: int = -1) -> None:
        self.wanted = wanted
        self.found: list[tuple[int, int, str, tuple[str, ...]]] = []
        self.statement = (0, 0)
        self.inside: tuple[str, ...] = ()
        self.function: tuple[str, ...] = ()

    def visit(self, node: ast.AST) -> ast.AST:
        before = self.statement, self.inside, self.function
        if isinstance(node, ast.stmt) and not isinstance(node, Function | ast.ClassDef):
            body = getattr(node, "body", None)
            self.statement = (node.lineno, body[0].lineno - 1 if body else node.end_lineno or node.lineno)
        if isinstance(node, Function):
            self.statement = (node.body[0].lineno, node.end_lineno or node.lineno)
            if not self.function:
                self.function = (*self.inside, node.name)
        if isinstance(node, ast.ClassDef):
            self.inside = (*self.inside, node.name)
            node.decorator_list, decorators = [], node.decorator_list  # how a class is declared is no part of a method
        if isinstance(node, ast.arguments | ast.arg) and len(self.function) == len(self.inside) + 1:
            self.function = ()  # a default is no code of its function
        visited: ast.AST = self.generic_visit(node)
        if isinstance(node, ast.ClassDef):
            node.decorator_list = decorators
        for what, instead in changes(node):
            if len(self.found) == self.wanted:
                visited = ast.copy_location(instead, node)
            self.found.append((*self.statement, what, self.function))
        self.statement, self.inside, self.function = before
        return visited


def mutants_of(path: Path) -> list[Mutant]:
    text = path.read_text(encoding="utf-8")
    lines, change = text.splitlines(), Change()
    change.visit(ast.parse(text))
    name = str(path.relative_to(ROOT))
    found, alike = [], Counter[Any]()
    for number, (line, end, what, function) in enumerate(change.found):
        code = lines[line - 1].strip() if line else ""
        alike[function, what, code] += 1
        found.append(Mutant(name, number, line, end, what, code, function, alike[function, what, code]))
    return found


def equivalents() -> dict[tuple[str, str, str, str, int], str]:
    """Mutants that compute the same as the program, and why."""
    listed: dict[tuple[str, str, str, str, int], str] = {}
    for entry in tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get("equivalent", []):
        for nth in entry.get("nth", [1]):
            listed[entry["file"], entry["function"], entry["change"], entry["code"], nth] = entry["reason"]
    return listed


def changed_code(mutant: Mutant) -> CodeType:
    """The whole module with the change."""
    tree = ast.parse((ROOT / mutant.file).read_text(encoding="utf-8"))
    tree = ast.fix_missing_locations(Change(mutant.number).visit(tree))  # type: ignore[assignment]
    return compile(tree, str(ROOT / mutant.file), "exec")


def module_name(file: str) -> str:
    """`src` and `experiments` are where modules are imported from."""
    return ".".join(Path(file).with_suffix("").parts[1:]).removesuffix(".__init__")


def patch(mutant: Mutant) -> None:
    """Give the living function the code of its changed twin."""
    place: Any = sys.modules[module_name(mutant.file)]
    code = changed_code(mutant)
    for name in mutant.function:
        code = next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)
        place = vars(place)[name]
    for inner in ("__func__", "fget", "func"):  # static and class methods, properties, cached ones
        place = getattr(place, inner, place)
    inspect.unwrap(place).__code__ = code
