"""What strict reading costs: every key and type of attack results checked, as a multiple of parsing their JSON.

    python benchmarks/reading.py --rows 20000

Prints both times and their ratio, the fastest of several repeats each, measured in turn in one process.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

from unshaken.attacks.results import AttackResult
from unshaken.schema import decode, encode

ROW = AttackResult(
    example_id="12",
    label=1,
    outcome="failure",
    original=("a film of some length, and of some charm",),
    queries=57,
    rows=48,
    words=8,
    seconds=0.25,
    prediction=1,
    score_before=0.98,
    score_after=0.61,
)


def fastest(run: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return min(times)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=20_000)
    options.add_argument("--repeats", type=int, default=5)
    arguments = options.parse_args()
    lines = [json.dumps(encode(ROW))] * arguments.rows
    values = [json.loads(line) for line in lines]
    kind = tuple[AttackResult, ...]
    parsed = fastest(lambda: [json.loads(line) for line in lines], arguments.repeats)
    read = fastest(lambda: decode(kind, values, "results"), arguments.repeats)
    print(f"{arguments.rows:,} rows: parsing {parsed:.2f} s, strict reading {read:.2f} s, ratio {read / parsed:.1f}")


if __name__ == "__main__":
    main()
