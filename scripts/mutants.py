"""Which wrong programs would the tests let pass? Changes one sign, constant, comparison or detach at a time, and tests.

    python scripts/mutants.py src/unshaken/defences tests/defences --out mutants.jsonl
    python scripts/mutants.py src/unshaken/defences/smart.py tests/defences/test_embedding_losses.py -k smart

Tests are collected once. A first run notes which test enters which line; then every mutant is a fork of this process
with one function's code changed, which runs the tests of the changed line until one fails, first those that killed
others of its file, then quick ones. What is no code of a function (defaults, constants of a module) is changed in a
fork that imports the module anew. No file is touched. Each verdict is a line of `--out`; the same command goes on where
it was stopped, and tries again what survived with `--again`. Killed means that a test failed; a mutant that hangs is
killed by the time limit.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import importlib.abc
import importlib.machinery
import inspect
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
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
    return [
        Mutant(name, number, line, end, what, lines[line - 1].strip() if line else "", function)
        for number, (line, end, what, function) in enumerate(change.found)
    ]


def changed_code(mutant: Mutant) -> CodeType:
    """The whole module with the change."""
    tree = ast.parse((ROOT / mutant.file).read_text(encoding="utf-8"))
    tree = ast.fix_missing_locations(Change(mutant.number).visit(tree))  # type: ignore[assignment]
    return compile(tree, str(ROOT / mutant.file), "exec")


def module_name(file: str) -> str:
    return ".".join(Path(file).relative_to("src").with_suffix("").parts).removesuffix(".__init__")


class Replaced(importlib.abc.MetaPathFinder):
    """Imports the changed module in place of the one in the file."""

    def __init__(self, mutant: Mutant) -> None:
        self.name, self.code = module_name(mutant.file), changed_code(mutant)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        spec = importlib.machinery.PathFinder.find_spec(name, path) if name == self.name else None
        if spec is not None and spec.loader is not None:
            spec.loader.get_code = lambda _: self.code  # type: ignore[attr-defined]
        return spec


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


class Lines:
    """Notes the lines of the chosen files that each test enters, and how long it takes."""

    def __init__(self, files: set[str]) -> None:
        self.files, self.lines, self.seconds = files, set[tuple[str, int]](), dict[str, float]()
        self.tests: dict[str, list[tuple[str, int]]] = {}

    def global_trace(self, frame: Any, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in self.files:
            return None
        file = frame.f_code.co_filename

        def local_trace(inner: Any, event: str, _: Any) -> Any:
            if event == "line":
                self.lines.add((file, inner.f_lineno))
            return local_trace

        return local_trace

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Any:
        self.lines = set()
        begun = time.monotonic()
        sys.settrace(self.global_trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            self.seconds[item.nodeid] = time.monotonic() - begun
            self.tests[item.nodeid] = sorted(self.lines)


def in_fork(task: Callable[[], int], seconds: float) -> int:
    """The exit code of a task in a fork of this process; 124 if it did not end in time."""
    process = os.fork()
    if process == 0:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        code = 1
        try:
            code = task()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return 124


class Failures:
    """Whether a test failed, and the first that did."""

    first = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.first:
            self.first = report.nodeid


def run_some(session: Any, items: list[Any], failures: Failures) -> int:
    for number, item in enumerate(items):
        following = items[number + 1] if number + 1 < len(items) else None
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if failures.first:
            return 1
    return 0


class Search:
    """Tries the mutants instead of running the tests that were collected."""

    def __init__(self, mutants: list[Mutant], given: argparse.Namespace, tests: list[str]) -> None:
        self.given, self.arguments = given, ["-n0", "-q", "-x", "-p", "no:cacheprovider", *tests]
        self.mutants = mutants
        lines = given.out.read_text(encoding="utf-8").splitlines() if given.out.is_file() else []
        rows = [json.loads(line) for line in lines]
        self.known = {
            (row["file"], row["line"], row["what"], row["code"], row["nth"]): row
            for row in rows
            if row["killed"] or not given.again
        }
        self.note = Path(tempfile.mkdtemp()) / "note"
        self.failures = Failures()

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.failures.pytest_runtest_logreport(report)

    def pytest_runtestloop(self, session: Any) -> bool:
        self.session = session
        tests, seconds = self.entered_lines()
        items = {item.nodeid: item for item in session.items}
        by_place = defaultdict(set)
        for test, lines in tests.items():
            for file, line in lines:
                by_place[str(Path(file).relative_to(ROOT)), line].add(test)
        if any(not mutant.function for _, mutant in self.left()):
            quick = sorted(seconds, key=lambda test: seconds[test])[:3]
            if self.anew(replace(self.mutants[0], number=-2), quick):
                sys.exit(f"the tests fail on the program as it is, imported anew: {self.note.read_text()}")
        for key, mutant in self.left():
            if mutant.function:
                lines = range(mutant.line, mutant.end + 1)
                useful = set().union(*(by_place[mutant.file, line] for line in lines))
            else:
                useful = set().union(*(tests for (file, _), tests in by_place.items() if file == mutant.file))
            kills = Counter(row["by"] for row in self.known.values() if row["file"] == mutant.file)
            ordered = sorted((test for test in useful if test in items), key=lambda test: (-kills[test], seconds[test]))
            budget, chosen = self.given.seconds / (3 if mutant.function else 10), []
            for test in ordered:
                budget -= seconds[test]
                if budget > 0:
                    chosen.append(test)
            begun = time.monotonic()
            if not chosen:
                code = 0
            elif mutant.function:
                code = in_fork(lambda m=mutant, c=chosen: self.try_living(m, [items[t] for t in c]), self.given.seconds)
            else:
                code = self.anew(mutant, chosen)
            self.write(key, mutant, code, len(chosen), time.monotonic() - begun)
        return True

    def try_living(self, mutant: Mutant, items: list[Any]) -> int:
        patch(mutant)
        try:
            return run_some(self.session, items, self.failures)
        finally:
            self.note.write_text(self.failures.first)

    def anew(self, mutant: Mutant, tests: list[str]) -> int:
        """In a process that has not imported the module yet."""
        order = json.dumps({"mutant": asdict(mutant), "tests": tests, "note": str(self.note)})
        os.write(self.given.orders, (order + "\n").encode())
        return int(self.given.answers.readline())

    def left(self) -> Iterator[tuple[tuple[Any, ...], Mutant]]:
        seen: dict[tuple[Any, ...], int] = defaultdict(int)
        for mutant in self.mutants:
            short = (mutant.file, mutant.line, mutant.what, mutant.code)
            seen[short] += 1
            if (*short, seen[short]) not in self.known:
                yield (*short, seen[short]), mutant

    def entered_lines(self) -> tuple[dict[str, list[tuple[str, int]]], dict[str, float]]:
        """By test, and how long it takes: from a run of all tests on the program as it is."""
        kept = self.given.lines
        if not kept.is_file():
            plugin = Lines({str(ROOT / mutant.file) for mutant in self.mutants})

            def trace() -> int:
                self.session.config.pluginmanager.register(plugin)
                code = run_some(self.session, self.session.items, self.failures)
                self.note.write_text(self.failures.first)
                kept.write_text(json.dumps([plugin.tests, plugin.seconds, sorted(sys.modules)]))
                return code

            if in_fork(trace, 36000):
                kept.unlink(missing_ok=True)
                sys.exit(f"the tests fail on the program as it is: {self.note.read_text()}")
        tests, seconds, modules = json.loads(kept.read_text())
        load(modules)  # what is imported late would be imported late in every fork
        os.write(self.given.orders, (json.dumps([name for name in modules if "." in name]) + "\n").encode())
        return tests, seconds

    def write(self, key: tuple[Any, ...], mutant: Mutant, code: int, tests: int, seconds: float) -> None:
        by = self.note.read_text() if code == 1 and self.note.is_file() else "the time limit" if code == 124 else ""
        row = {
            **dict(zip(("file", "line", "what", "code", "nth"), key, strict=True)),
            "killed": code != 0,
            "by": by,
            "tests": tests,
            "seconds": round(seconds, 1),
        }
        self.note.unlink(missing_ok=True)
        self.known[key] = row
        with self.given.out.open("a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")

    def rows(self) -> list[dict[str, Any]]:
        """What is known of the mutants of today."""
        seen: dict[tuple[Any, ...], int] = defaultdict(int)
        found = []
        for mutant in self.mutants:
            short = (mutant.file, mutant.line, mutant.what, mutant.code)
            seen[short] += 1
            if row := self.known.get((*short, seen[short])):
                found.append(row)
        return found


def load(modules: list[str]) -> None:
    for name in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def serve_imports(orders: int, answers: int, seconds: float) -> None:
    """Another process, which has foreign libraries only: answers with the exit code of each mutant it is told."""
    lines = os.fdopen(orders)
    ours = ("unshaken", "pytest", "_pytest", "xdist", "hypothesis", "_hypothesis")
    load([name for name in json.loads(lines.readline()) if not name.startswith(ours)])
    for line in lines:
        order = json.loads(line)
        mutant = Mutant(**order["mutant"])

        def task(mutant: Mutant = mutant, order: dict[str, Any] = order) -> int:
            sys.meta_path.insert(0, Replaced(mutant))
            failures = Failures()
            chosen = set(order["tests"])
            sort = {test: number for number, test in enumerate(order["tests"])}

            class Select:
                def pytest_collection_modifyitems(self, items: list[Any]) -> None:
                    items[:] = sorted((item for item in items if item.nodeid in chosen), key=lambda i: sort[i.nodeid])

            files = sorted({test.split("::")[0] for test in order["tests"]})
            quiet = ["-n0", "-q", "-x", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
            code = pytest.main([*quiet, *files], plugins=[failures, Select()])
            Path(order["note"]).write_text(failures.first or "its import or collection")
            return int(code != 0)

        os.write(answers, f"{in_fork(task, seconds)}\n".encode())


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("source", type=Path, help="a file, or a folder of them")
    words.add_argument("--out", type=Path, default=Path("mutants.jsonl"))
    words.add_argument("--lines", type=Path, help="where the lines that each test enters are kept between runs")
    words.add_argument("--seconds", type=float, default=120.0, help="after which a mutant counts as killed")
    words.add_argument("--most", type=int, default=10**6, help="mutants to try, drawn at random")
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--again", action="store_true", help="try the survivors of before again")
    words.add_argument("--part", default="1/1", help="2/3: the second of three parts, for processes side by side")
    given, tests = words.parse_known_args()
    source: Path = given.source.resolve()
    given.lines = given.lines or Path(tempfile.mkdtemp()) / "lines.json"
    paths = sorted(source.rglob("*.py")) if source.is_dir() else [source]
    every = [mutant for path in paths for mutant in mutants_of(path)]
    if given.most < len(every):
        every = sorted(random.Random(given.seed).sample(every, given.most), key=every.index)
    part, parts = map(int, given.part.split("/"))
    order_read, given.orders = os.pipe()
    answer_read, answer_write = os.pipe()
    if (server := os.fork()) == 0:
        os.close(given.orders)
        serve_imports(order_read, answer_write, given.seconds)
        os._exit(0)
    os.close(order_read)
    given.answers = os.fdopen(answer_read)
    search = Search(every[part - 1 :: parts], given, tests)
    pytest.main(search.arguments, plugins=[search])
    os.close(given.orders)
    os.waitpid(server, 0)
    rows = search.rows()
    for row in rows:
        if not row["killed"]:
            print(f"survived: {row['file']}:{row['line']}: {row['what']}: {row['code']}")
    print(f"{sum(row['killed'] for row in rows)} of {len(rows)} killed; {len(search.mutants)} in all")


if __name__ == "__main__":
    main()
