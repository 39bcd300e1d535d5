"""Which wrong programs would the tests let pass? Changes one sign, constant, comparison or detach at a time, and tests.

    python scripts/mutants.py src/unshaken/defences tests/defences --out mutants.jsonl
    python scripts/mutants.py src/unshaken/defences/smart.py tests/defences/test_embedding_losses.py -k smart

Tests are collected once. A first run notes which test enters which line; then every mutant is a fork of this process
with one function's code changed, which runs the tests of the changed line until one fails, first those that killed
others of its file, then quick ones. What is no code of a function (defaults, constants of a module) is changed in a
fork that imports the module anew. No file is touched. Each verdict is a line of `--out`; the same command goes on where
it was stopped, and tries again what survived with `--again`. Killed means that a test failed; a mutant that hangs is
killed by the time limit. Seconds are those of the processor, so that a busy machine gives the same verdicts.

A mutant that computes the same as the program stands in `equivalent_mutants.toml` with the reason, is not tried, and
does not count. What is printed for each survivor is what an entry there needs. `--listed` tries those of the list
instead, to find entries that a test tells from the program after all. `--summary` keeps the counts in a file.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.abc
import importlib.machinery
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from mutations import ROOT, Mutant, changed_code, equivalents, module_name, mutants_of, patch


class Replaced(importlib.abc.MetaPathFinder):
    """Imports the changed module in place of the one in the file."""

    def __init__(self, mutant: Mutant) -> None:
        self.name, self.code = module_name(mutant.file), changed_code(mutant)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        spec = importlib.machinery.PathFinder.find_spec(name, path) if name == self.name else None
        if spec is not None and spec.loader is not None:
            spec.loader.get_code = lambda _: self.code  # type: ignore[attr-defined]
        return spec


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
        begun = time.process_time()
        sys.settrace(self.global_trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            self.seconds[item.nodeid] = time.process_time() - begun
            self.tests[item.nodeid] = sorted(self.lines)


def in_fork(task: Callable[[], int], seconds: float) -> int:
    """The exit code of a task in a fork of this process; 124 if it did not end in time."""
    process = os.fork()
    if process == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 1))
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
    until = time.monotonic() + 10 * seconds  # of a clock: one that sleeps uses no processor
    while time.monotonic() < until:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return 124 if code in (-signal.SIGXCPU, -signal.SIGKILL) else code
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


KEY = ("file", "function", "what", "code", "nth")


class Search:
    """Tries the mutants instead of running the tests that were collected."""

    def __init__(self, mutants: list[Mutant], given: argparse.Namespace, tests: list[str]) -> None:
        self.given, self.arguments = given, ["-n0", "-q", "-x", "-p", "no:cacheprovider", *tests]
        self.mutants = mutants
        lines = given.out.read_text(encoding="utf-8").splitlines() if given.out.is_file() else []
        rows = [json.loads(line) for line in lines]
        self.known = {tuple(row[name] for name in KEY): row for row in rows if row["killed"] or not given.again}
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
        if any(not mutant.function for mutant in self.left()):
            quick = sorted(seconds, key=lambda test: seconds[test])[:3]
            if self.anew(replace(self.mutants[0], number=-2), quick):
                sys.exit(f"the tests fail on the program as it is, imported anew: {self.note.read_text()}")
        for mutant in self.left():
            if mutant.function:
                lines = range(mutant.line, mutant.end + 1)
                useful = set().union(*(by_place[mutant.file, line] for line in lines))
            else:
                entering = set().union(*(tests for (file, _), tests in by_place.items() if file == mutant.file))
                files = {test.split("::")[0] for test in entering}  # a test of a constant alone enters no line
                useful = {test for test in seconds if test.split("::")[0] in files}
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
            self.write(mutant, code, len(chosen), time.monotonic() - begun)
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

    def left(self) -> list[Mutant]:
        """Those outside of functions last, since an import takes longer than a fork."""
        return sorted((m for m in self.mutants if m.key not in self.known), key=lambda m: not m.function)

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

    def write(self, mutant: Mutant, code: int, tests: int, seconds: float) -> None:
        by = self.note.read_text() if code == 1 and self.note.is_file() else "the time limit" if code == 124 else ""
        row = {
            **dict(zip(KEY, mutant.key, strict=True)),
            "line": mutant.line,
            "killed": code != 0,
            "by": by,
            "tests": tests,
            "seconds": round(seconds, 1),
        }
        self.note.unlink(missing_ok=True)
        self.known[mutant.key] = row
        with self.given.out.open("a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")


def load(modules: list[str]) -> None:
    for name in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def serve_imports(orders: int, answers: int, seconds: float) -> None:
    """Another process, which has foreign libraries only: answers with the exit code of each mutant it is told."""
    lines = os.fdopen(orders)
    ours = ("unshaken", "pytest", "_pytest", "xdist", "hypothesis", "_hypothesis")
    load([name for name in json.loads(lines.readline() or "[]") if not name.startswith(ours)])
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
    words.add_argument("--count", action="store_true", help="try nothing, and count what --out tells")
    kind = words.add_mutually_exclusive_group()
    kind.add_argument("--listed", action="store_true", help="try the mutants of the list of equivalent ones instead")
    kind.add_argument("--summary", type=Path, help="a JSON file in which the counts of this source are kept")
    given, tests = words.parse_known_args()
    source: Path = given.source.resolve()
    given.lines = given.lines or Path(tempfile.mkdtemp()) / "lines.json"
    paths = sorted(source.rglob("*.py")) if source.is_dir() else [source]
    alike = equivalents()
    every = [mutant for path in paths for mutant in mutants_of(path)]
    for key in alike.keys() - {mutant.key for mutant in every}:
        if ROOT / key[0] in paths:
            print(f"listed as equivalent, but no mutant any more: {': '.join(map(str, key))}")
    whole = len(every)
    if given.most < whole:
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
    ours = every[part - 1 :: parts]
    search = Search([mutant for mutant in ours if (mutant.key in alike) == given.listed], given, tests)
    if not given.count:
        pytest.main(search.arguments, plugins=[search])
    os.close(given.orders)
    os.waitpid(server, 0)
    counts = report(ours, search)
    if given.summary:
        kept = json.loads(given.summary.read_text(encoding="utf-8")) if given.summary.is_file() else {}
        last = ["git", "-C", str(ROOT), "log", "-1", "--format=%H", "--", str(source)]  # that changed the source
        commit = subprocess.run(last, capture_output=True, text=True, check=True).stdout.strip()
        kept[str(source.relative_to(ROOT))] = {"tests": tests, "in_source": whole, **counts, "commit": commit}
        given.summary.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def report(mutants: list[Mutant], search: Search) -> dict[str, int]:
    tried = [(mutant, search.known[mutant.key]) for mutant in search.mutants if mutant.key in search.known]
    listed, survivors = search.given.listed, [mutant for mutant, row in tried if not row["killed"]]
    for mutant in [mutant for mutant, row in tried if row["killed"]] if listed else survivors:
        nth = f" (the {mutant.nth}th)" if mutant.nth > 1 else ""
        place = f"{mutant.file}:{mutant.line}: {'.'.join(mutant.function) or 'no function'}"
        print(f"{'killed' if listed else 'survived'}: {place}: {mutant.what}{nth}: {mutant.code}")
    killed, aside = len(tried) - len(survivors), len(mutants) - len(search.mutants)
    why = "not listed" if listed else "equivalent"
    print(f"{len(mutants)} mutants, {aside} of them {why}, {len(search.mutants) - len(tried)} not tried yet")
    print(f"{killed} of {len(tried)} killed, {killed / max(len(tried), 1):.1%}; {len(survivors)} survivors")
    return {"mutants": len(mutants), "equivalent": aside, "tried": len(tried), "killed": killed}


if __name__ == "__main__":
    main()
