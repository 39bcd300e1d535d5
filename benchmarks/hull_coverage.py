"""Which part of what an attack may write stands in the hull of ASCC and RIFT, by the rule for words of several pieces.

    python benchmarks/hull_coverage.py --data DATA [--out experiments/benchmarks/cpu/hull_coverage.json]

DATA holds `glue/SST-2`, `imdb`, `snli` and `counterfitted_neighbors.json`. Nothing is trained: the tokenizer of the
encoder decides, with the counter-fitted dictionary, on texts that are cut as the recipes cut them.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from harness import parser, prepare, save
from transformers import AutoTokenizer

from unshaken.substitutions.dictionary import Dictionary
from unshaken.substitutions.hull_builder import HullBuilder, Pieces
from unshaken.tasks import load_task
from unshaken.truncation import tokenised

TASKS = {  # texts, tokens that the recipes leave of them, and the columns that RIFT lets change
    "sst2": (None, 128, None),
    "imdb": (200, 256, None),
    "snli": (1000, 80, [1]),
}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--data", type=Path, required=True)
    given = options.parse_args()
    prepare(given)
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    words = Dictionary.load(given.data / "counterfitted_neighbors.json")
    rows = []
    for task, (count, length, columns) in TASKS.items():
        test = load_task(task, data=given.data).require("test")
        texts = [row.texts for row in (test if count is None else test.sample(count))]
        for pieces in get_args(Pieces):
            build = HullBuilder(words, tokenizer, max_length=length, pieces=pieces, columns=columns)
            for start in range(0, len(texts), 64):
                some = texts[start : start + 64]
                build(some, tokenised(tokenizer, some, length, padding=True, return_tensors="pt")["input_ids"])
            found = build.coverage
            rows.append(
                {
                    "task": task,
                    "texts": len(texts),
                    "length": length,
                    "pieces": pieces,
                    "words": found.words,
                    "substitutes": found.substitutes,
                    "whole": found.texts,
                }
            )
            print(f"{task}, {len(texts):,} texts, pieces={pieces}: {found}", flush=True)
    save(given, rows)


if __name__ == "__main__":
    main()
