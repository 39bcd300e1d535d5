"""Compute again what the pages show, from the raw records and by other code than the code that wrote the pages.

    python scripts/recompute.py                        # every page
    python scripts/recompute.py docs/results.md        # some of them
    python scripts/recompute.py --root FOLDER          # of another checkout

`experiments/fill_tables.py` writes the tables with the package's own statistics; a fault in those would stand on every
page and in every check that asks them. This script takes nothing from there: it reads the Markdown, the records
(`experiments/reproduce/*.jsonl`, `experiments/defence_trial/*.jsonl`) and the recipes with the standard library, and
computes means, intervals, differences, stars and verdicts with numpy and scipy. It says how many cells it has checked
on each page and which it cannot check, and why. Wrong cells are listed with what is shown and what was computed, and
the exit status is 1.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recomputed.other_tables import (
    check_baselines,
    check_board,
    check_descent,
    check_equal_clean,
    check_fits,
    check_flags,
    check_headline,
    check_index,
    check_peaks,
    check_precision,
    check_rates,
    check_totals,
    check_trial,
    check_trial_differences,
)
from recomputed.recipe_tables import check_sections
from recomputed.records import Checkout
from recomputed.shown import Findings, Number, Place, blocks, gain, grid, tables_in

SHOWN_AT_MOST = 40  # wrong cells

# Filled place -> who checks it, and with what.
CHECKS: dict[str, tuple[Any, str]] = {
    "results-totals": (check_totals, ""),
    "results-index": (check_index, ""),
    "results-headline": (check_headline, ""),
    "results-im-bert": (check_sections, "im-bert"),
    "results-rift": (check_sections, "rift"),
    "results-ours": (check_sections, "ours"),
    "results-equal-clean-minilm": (check_equal_clean, "minilm"),
    "results-equal-clean-gte": (check_equal_clean, "gte-small"),
    "board": (check_board, ""),
    "results-flags": (check_flags, ""),
    "baselines": (check_baselines, ""),
    "trial": (check_trial, "minilm.jsonl gte.jsonl"),
    "trial-all": (check_trial, "minilm.jsonl gte.jsonl"),
    "trial-differences": (check_trial_differences, "minilm.jsonl gte.jsonl"),
    "swap-variants": (check_trial, "swap-variants.jsonl"),
    "swap-greed": (check_trial, "swap-greed.jsonl"),
    "peak-memory": (check_peaks, ""),
    "descent-watched": (check_descent, ""),
    "attacks-precision": (check_precision, ""),
    "attack-rates": (check_rates, ""),
    "attack-fit-gpu": (check_fits, ""),
}
ONE_RUN = "a benchmark, whose file holds the cells themselves: there is no raw record under it"
BY_HAND = "outside of the filled places: written by hand"


def check_sentences(findings: Findings, page: str, text: str, checkout: Checkout) -> None:
    for words, shown in re.findall(r"<!--n (.+?)-->(.*?)<!--/n-->", text):
        recipe, source, method, what = (part.strip() for part in words.split(" :: "))
        Place(findings, page, f"in a sentence: {recipe}, {source}").cell(
            method, what, shown, sentence_number(checkout, recipe, source, method, what)
        )


def sentence_number(checkout: Checkout, recipe: str, source: str, method: str, what: str) -> list[Any]:
    """`Genetic` is a mean, `Genetic gain` a difference from the reference, `Genetic gain over RIFT` from another."""
    column, asks_gain, rival = re.fullmatch(r"(.*?)( gain)?(?: over (.*))?", what).groups()  # type: ignore[union-attr]
    for table in checkout.tables.get(recipe, []):
        if source not in (table.group["encoder"], table.group["file"].removesuffix(".jsonl")):
            continue
        if method not in table.methods or column not in table.columns:
            continue
        value = table.value(method, column)
        if value is not None and not asks_gain:
            return [Number(value.mean, ".1f" if value.low is not None else ".3g")]
        found = table.difference(method, column, rival or table.reference) if value is not None else None
        if found is not None:
            return gain(found, False)
    return ["no run of it"]


def check_page(findings: Findings, page: str, text: str, checkout: Checkout) -> None:
    for name, lines in blocks(text):
        place = Place(findings, page, name)
        if name in CHECKS:
            check, argument = CHECKS[name]
            try:
                check(place, lines, checkout, argument)
            except ValueError as error:  # rows of several lengths, or not one table
                place.fail("all", "all", "what cannot be read", error)
        else:  # named if it has no cell that looks like a number, too: nobody has looked at it
            place.skip(ONE_RUN, numeric_cells(lines))
    check_sentences(findings, page, text, checkout)
    rest = re.sub(r"<!-- ([a-z0-9-]+) -->\n.*?<!-- /\1 -->", "", text, flags=re.DOTALL)
    rest = re.sub(r"<!--n .+?-->.*?<!--/n-->", "", rest)
    for _, lines in tables_in(rest.splitlines()):
        count = numeric_cells(lines)
        if count:
            heading = " | ".join(cell for cell in grid(lines)[0] if cell)
            Place(findings, page, f"table of {heading[:60]}").skip(BY_HAND, count)


def numeric_cells(lines: Sequence[str]) -> int:
    """How many cells of tables are a number, with or without a unit, an interval or a deviation."""
    number = r"[+-]?[\d,]*\.?\d+(e[+-]?\d+)?( ?(%|x|s|MB|MiB))?"
    cell = rf"{number}( ± {number}| to {number}| \[.*\])?"
    return sum(bool(re.fullmatch(cell, one)) for _, table in tables_in(lines) for row in grid(table)[1:] for one in row)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", help="from the root; every page if none is named")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    given = parser.parse_args(words)
    checkout, findings = Checkout(given.root), Findings()
    every = [given.root / "README.md", *sorted((given.root / "docs").rglob("*.md"))]
    pages = given.pages or [path.relative_to(given.root).as_posix() for path in every]
    for page in pages:
        check_page(findings, page, (given.root / page).read_text(encoding="utf-8"), checkout)
    for page, cells in findings.cells.items():
        print(f"{page}: {cells:,} cells with {findings.numbers[page]:,} numbers computed again")
    for (page, table, why), count in findings.unchecked.items():
        print(f"not computed again: {page}, {table}: {count} cells; {why}")
    skipped = sum(findings.unchecked.values())
    print(f"{findings.cells.total():,} cells checked, {skipped:,} that cannot be, {len(findings.wrong)} wrong")
    for line in findings.wrong[:SHOWN_AT_MOST]:
        print(f"wrong: {line}")
    return int(bool(findings.wrong))


if __name__ == "__main__":
    sys.exit(main())
