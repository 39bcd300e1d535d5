"""Lines of every room of the package, then and now, with the rooms and files of features that came since left aside.

    python scripts/lines_by_room.py [COMMIT]

`all` counts every line, `code` those that are not blank, comment or docstring. The commit to compare with is the last
one before the rooms were planned anew. What stood in `recipes` is a package of its own now, beside the wheel.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import PurePosixPath

BEFORE = "c9f004a"
PACKAGE = "src/unshaken"
BESIDE = "experiments/unshaken_experiments"
NEW = {
    *("certificates", "detection", "leaderboard", "play", "readers", "scanning", "smoothing"),
    *("attacks/many", "attacks/constraints/encoder.py", "attacks/constraints/many_texts.py"),  # batched searches
    *(
        f"attacks/{name}.py"
        for name in ("alzantot", "augmenting", "bae", "bert_attack", "clare", "confirming", "deep_word_bug", "display")
    ),
    *(f"attacks/{name}.py" for name in ("faithfulness", "hard_label", "one_text", "ray_engine")),
    *(f"cli/{name}.py" for name in ("augment", "certify", "cite", "detect", "harden", "large", "leaderboard")),
    *(f"cli/{name}.py" for name in ("play", "scan", "usage")),
    *(f"connections/{name}.py" for name in ("graphs", "quality", "sublayers")),
    *(
        "defences/teacher.py",
        "defences/temperature.py",
        "evaluation/blocks.py",
        "evaluation/citations.py",
        "evaluation/forecast.py",
        "evaluation/outlook.py",
    ),
    *(
        "reports/certified.py",
        "reports/headline.py",
        "substitutions/disguises.py",
        "substitutions/joined.py",
        "substitutions/reach.py",
    ),
    *("tasks/tables.py", "training/defaults.py", "training/hardening.py", "training/step_lines.py", "truncation.py"),
    *(f"victims/{name}.py" for name in ("answers", "averaged", "bare_encoder", "calibrated", "http", "onnx")),
    *(f"victims/{name}.py" for name in ("alone", "reading", "vote", "wrapper")),
    *("wordings/memory.py", "wordings/windows.py", "wordings/word_cuts.py"),
}  # what the wheel could not do before


def git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout


def files(commit: str, folder: str) -> dict[str, tuple[int, int]]:
    """Path below the folder -> all lines and lines of code."""
    paths = [path for path in git("ls-tree", "-r", "--name-only", commit, folder).split() if path.endswith(".py")]
    texts = {path.removeprefix(f"{folder}/"): git("show", f"{commit}:{path}") for path in paths}
    return {path: (text.count("\n"), lines_of_code(text)) for path, text in texts.items()}


def lines_of_code(text: str) -> int:
    quiet = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in quiet]
    lines = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):  # a docstring, or `...`
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def is_new(path: str) -> bool:
    return not NEW.isdisjoint({path, *map(str, PurePosixPath(path).parents)})


def main() -> None:
    before, now = files(sys.argv[1] if len(sys.argv) > 1 else BEFORE, PACKAGE), files("HEAD", PACKAGE)
    beside = files("HEAD", BESIDE)
    table: dict[str, Counter[str]] = {}
    for when, counted in (
        ("then", before),
        ("now", now),
        ("now", {f"{BESIDE}/{path}": n for path, n in beside.items()}),
    ):
        for path, (lines, code) in counted.items():
            beside_it, room = path.startswith(BESIDE), path.split("/")[0] if "/" in path else "."
            kind = "since" if when == "now" and is_new(path) else when
            table.setdefault("(experiments)" if beside_it else room, Counter()).update(
                {kind: lines, f"{kind} code": code}
            )
    kinds = ("then", "then code", "now", "now code", "since", "since code")
    titles = ("then all", "code", "now all", "code", "since all", "code")
    rows = [(room, *(counts[kind] for kind in kinds)) for room, counts in sorted(table.items())]
    rows.append(("in the wheel", *(sum(row[at] for row in rows if row[0] != "(experiments)") for at in range(1, 7))))
    for name, *values in [("room", *titles), *rows]:
        print(f"| {name:<13} |" + "".join(f" {value:>9} |" for value in values))


if __name__ == "__main__":
    main()
