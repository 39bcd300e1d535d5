"""Fuzz one target by coverage: `python guided.py TARGET RUNS FOLDER`. Ends with 0 where nothing broke."""

from __future__ import annotations

import sys
from pathlib import Path

import atheris


def main() -> None:
    name, runs, folder = sys.argv[1:]
    with atheris.instrument_imports(include=["unshaken", "targets"]):
        from targets import feed, targets

        for number, seed in enumerate(targets()[name].seeds):
            (Path(folder) / f"seed-{number}").write_bytes(seed)
            feed(name, seed)  # imports what the target needs, while imports are watched

    limits = [
        "-max_len=30000",
        "-timeout=30",
        "-rss_limit_mb=4096",
        f"-artifact_prefix={folder}/",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], f"-runs={runs}", *limits, folder], lambda data: feed(name, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
