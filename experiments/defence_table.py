"""A Markdown table from the lines of a trial: `python experiments/defence_table.py trial.jsonl ...`."""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from pathlib import Path

from defence_trial import read_lines

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


def spread(by_seed: dict[int, float], scale: float) -> str:
    """Mean and standard deviation over seeds."""
    if not by_seed:
        return ""
    numbers = [scale * value for value in by_seed.values()]
    deviation = f" ± {statistics.stdev(numbers):.1f}" if len(numbers) > 1 else ""
    return f"{statistics.mean(numbers):.1f}{deviation}"


if __name__ == "__main__":
    print(table([Path(name) for name in sys.argv[1:]]))
