"""A Markdown table from the lines of a trial: `python experiments/defence_table.py trial.jsonl ...`."""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from pathlib import Path

from defence_trial import read_lines
from unshaken.evaluation.statistics import aggregate, over_seeds_and_examples

COLUMNS = (
    ("clean", "validation", "clean"),
    ("clean", "advglue", "AdvGLUE"),
    ("pwws", "accuracy", "PWWS"),
    ("genetic", "accuracy", "Genetic"),
    ("genetic-wordnet", "accuracy", "Genetic, WordNet"),
    ("genetic-typos", "accuracy", "Genetic, typos"),
)


def table(paths: list[Path], only: tuple[str, ...] = ()) -> str:
    """Mean and standard deviation over seeds, one row an encoder and defence, in % where it is an accuracy."""
    values: dict[tuple[str, str], dict[tuple[str, str], dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for line in (line for path in paths for line in read_lines(path)):
        for key, value in line.items():
            if isinstance(value, int | float) and key != "seed":  # a repeated run replaces its first try
                values[line["encoder"], line["defence"]][line["stage"], key][line["seed"]] = value
    rows = [
        f"| encoder | defence | seeds | {' | '.join(title for *_, title in COLUMNS)} | train s | MiB |",
        "|---" * (len(COLUMNS) + 5) + "|",
    ]
    for (encoder, defence), found in sorted(values.items()):
        if only and defence not in only:
            continue
        cells = [spread(found[stage, key], 100) for stage, key, _ in COLUMNS]
        cells += [spread(found["train", "seconds"], 1), spread(found["train", "memory_mib"], 1)]
        rows.append(f"| {encoder} | {defence} | {len(found['train', 'seconds'])} | {' | '.join(cells)} |")
    return "\n".join(rows)


def differences(paths: list[Path], pairs: list[tuple[str, str]]) -> str:
    """First minus second on the same seeds and texts, in points, one row an encoder and pair."""
    lines = [line for path in paths for line in read_lines(path)]
    columns = [column for column in COLUMNS if column[2] != "AdvGLUE"]
    rows = [
        f"| encoder | difference | {' | '.join(title for *_, title in columns)} |",
        "|---" * (len(columns) + 2) + "|",
    ]
    for encoder in sorted({line["encoder"] for line in lines}):
        for pair in pairs:
            # Under attack each text is on record; of clean accuracy there is one number per seed.
            found = [
                {
                    line["seed"]: [int(mark) for mark in line["survived"]] if "survived" in line else [line[key]]
                    for line in lines
                    if (line["encoder"], line["defence"], line["stage"]) == (encoder, defence, stage)
                }
                for stage, key, _ in columns
                for defence in pair
            ]
            cells = [difference(one, other) for one, other in zip(found[::2], found[1::2], strict=True)]
            rows.append(f"| {encoder} | {' minus '.join(pair)} | {' | '.join(cells)} |")
    return "\n".join(rows)


def difference(one: dict[int, list[float]], other: dict[int, list[float]]) -> str:
    """Its mean and 95% interval: over seeds and texts, or over seeds where no texts are on record."""
    seeds = sorted(one.keys() & other.keys())
    table = [[a - b for a, b in zip(one[seed], other[seed], strict=True)] for seed in seeds]
    over_seeds = len(table[0]) == 1
    found = aggregate([row[0] for row in table]).interval if over_seeds else over_seeds_and_examples([table])
    if found is None:
        return "one seed"
    return f"{100 * found.estimate:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"


def spread(by_seed: dict[int, float], scale: float) -> str:
    """Mean and standard deviation over seeds."""
    if not by_seed:
        return ""
    numbers = [scale * value for value in by_seed.values()]
    deviation = f" ± {statistics.stdev(numbers):.1f}" if len(numbers) > 1 else ""
    return f"{statistics.mean(numbers):.1f}{deviation}"


if __name__ == "__main__":
    print(table([Path(name) for name in sys.argv[1:]]))
