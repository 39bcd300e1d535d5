"""Which wrong programs would the tests let pass? Changes one sign, constant, comparison or detach at a time, and tests.

    python scripts/mutants.py src/unshaken/defences/smart.py tests/defences/test_embedding_losses.py -k smart

The file is changed in a copy of the source tree, never in place. Each verdict is a line of `--out`; the same command
goes on where it was stopped. Killed means that a test failed; a mutant that hangs is killed by the time limit.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
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


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What may go wrong at one place of a program: how it is called, and what stands there then."""
    if isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
        other = SWAPS[type(node.op)]
        yield f"{type(node.op).__name__} to {other.__name__}", ast.BinOp(node.left, other(), node.right)  # type: ignore[arg-type]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
        yield f"without {type(node.op).__name__}", node.operand
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        other = SWAPS[type(node.ops[0])]
        yield (
            f"{type(node.ops[0]).__name__} to {other.__name__}",
            ast.Compare(
                node.left,
                [other(), *node.ops[1:]],  # type: ignore[list-item]
                node.comparators,
            ),
        )
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "detach":
        yield "without detach", node.func.value
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield f"{node.value} to {not node.value}", ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield f"{node.value} to {node.value + 1}", ast.Constant(node.value + 1)


class Change(ast.NodeTransformer):
    """Makes the change of one number, and counts all of them."""

    def __init__(self, wanted: int) -> None:
        self.wanted, self.seen, self.made = wanted, 0, ""

    def visit(self, node: ast.AST) -> ast.AST:
        visited: ast.AST = self.generic_visit(node)
        for what, instead in changes(node):
            if self.seen == self.wanted:
                self.made = f"line {getattr(node, 'lineno', 0)}: {what}"
                visited = ast.copy_location(instead, node)
            self.seen += 1
        return visited


def mutant(tree: ast.Module, number: int) -> tuple[str, str]:
    """What was changed, and the changed source; an empty note where there are fewer changes."""
    change = Change(number)
    changed = ast.fix_missing_locations(change.visit(copy.deepcopy(tree)))
    return change.made, ast.unparse(changed)


def is_killed(source: Path, text: str, tests: list[str], seconds: float) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copied, ignore=shutil.ignore_patterns("__pycache__"))
        (copied / source.relative_to(ROOT / "src")).write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-n0", "-q", "-x", "-p", "no:cacheprovider", *tests]
        environment = {**os.environ, "PYTHONPATH": str(copied)}
        try:
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            return True
        return done.returncode != 0


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("source", type=Path)
    words.add_argument("--out", type=Path, default=Path("mutants.jsonl"))
    words.add_argument("--seconds", type=float, default=300.0, help="after which a mutant counts as killed")
    words.add_argument("--most", type=int, default=10**6, help="mutants to try now")
    given, tests = words.parse_known_args()
    source: Path = given.source.resolve()
    tree = ast.parse(source.read_text(encoding="utf-8"))
    name = str(source.relative_to(ROOT))
    if is_killed(source, ast.unparse(tree), tests, given.seconds):
        sys.exit("the tests fail on the program as it is")
    lines = given.out.read_text(encoding="utf-8").splitlines() if given.out.is_file() else []
    known = {(row["file"], row["number"]): row for row in map(json.loads, lines)}
    number = tried = 0
    while tried < given.most:
        what, text = mutant(tree, number)
        if not what:
            break
        if (name, number) not in known:
            row = {
                "file": name,
                "number": number,
                "what": what,
                "killed": is_killed(source, text, tests, given.seconds),
            }
            known[name, number] = row
            with given.out.open("a", encoding="utf-8") as out:
                out.write(json.dumps(row) + "\n")
            tried += 1
        number += 1
    own = [row for (file, _), row in known.items() if file == name]
    for row in own:
        if not row["killed"]:
            print(f"survived: {row['file']} {row['what']}")
    print(f"{sum(row['killed'] for row in own)} of {len(own)} killed")


if __name__ == "__main__":
    main()
