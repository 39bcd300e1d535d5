"""What attacks cost, from the kept measurements: the tables of docs/how-to/scaling.md."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
Table = tuple[dict[str, str], list[str], list[list[str]]]  # about, heading, rows
Costs = dict[tuple[str, str], list[tuple[float, float]]]  # task and attack -> queries and seconds of an example


def measured(machine: str) -> Any:
    """What benchmarks/attack_cost.py wrote on "cpu" or "gpu"; None where it was not run."""
    path = HERE / "benchmarks" / machine / "attack_cost.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def about(found: Any) -> dict[str, str]:
    return {key: value for key, value in found["about"].items() if key not in ("batch", "length")}


def settings(machine: str) -> Table | None:
    """Measured costs by setting, and how far a fit to all the other settings misses each."""
    found = measured(machine)
    if found is None:
        return None
    rows = [
        [
            row["attack"],
            str(row["length"]),
            str(row["candidates"]),
            str(row["population"] or ""),
            f"{row['queries']:.0f}",
            f"{row['rows']:.0f}",
            f"{1 / row['seconds_per_example']:.2f}",
            f"{row['left_out_error']:+.0%}",
        ]
        for row in found["rows"]
    ]
    heading = [
        "attack",
        "words",
        "candidates",
        "population",
        "queries",
        "distinct texts",
        "examples/s",
        "fit misses by",
    ]
    return about(found), heading, rows


def fits() -> Table:
    """The three coefficients of the cost model, for each machine it was fitted on."""
    rows = []
    for found in filter(None, (measured(machine) for machine in ("cpu", "gpu"))):
        fit = found["fit"]
        terms = [fit[key] for key in ("seconds_per_example", "seconds_per_query", "seconds_per_token")]
        errors = [f"{fit['median_error']:.0%}", f"{fit['largest_error']:.0%}"]
        machine = found["about"]["device"] + (", bf16" if found["about"]["bf16"] else "")
        rows.append([machine, *(f"{1e6 * value:,.2f}" for value in terms), *errors])
    return {}, ["machine", "a, us", "b, us", "c, us", "median miss", "largest miss"], rows


def estimates(machine: str) -> Table | None:
    found = measured(machine)
    if found is None:
        return None
    rows = [
        [
            row["name"],
            str(row["length"]),
            str(row["candidates"]),
            f"{row['queries']:,}",
            f"{row['examples_per_second']:.2f}",
            f"{row['texts']:,}",
            str(row["devices"]),
            f"{row['largest_share']:,}",
            f"{row['hours']:.1f}" if row["hours"] >= 1 else f"{row['hours']:.2g}",  # a GPU may need seconds
        ]
        for row in found["estimates"]
    ]
    heading = [
        "attack",
        "words",
        "candidates",
        "queries",
        "examples/s, one device",
        "texts",
        "devices",
        "largest share",
    ]
    return about(found), [*heading, "hours at most"], rows


def reruns() -> tuple[Costs, dict[str, str]]:
    """What attacks took in the re-runs of the papers on MiniLM without a connection, and on what."""
    costs: Costs = defaultdict(list)
    devices, cuts = set(), set()
    for file in sorted((HERE / "reproduce").glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            run = json.loads(line)
            if run["error"] or run["run"]["encoder"] != "minilm" or run["run"]["settings"]["connection"] != "none":
                continue
            devices.update(run["environment"]["accelerators"])
            cuts.add(run["run"]["settings"]["max_length"])
            for name, found in run["measured"].items():
                task, attack, *variant = name.split()
                if found["queries"] and len(variant) == 1:  # the count alone: the substitutions of the training
                    costs[task, attack].append((found["queries"], found["seconds"] / len(found["held"])))
    shown = {"device": ", ".join(sorted(devices)), "most tokens": " or ".join(map(str, sorted(cuts)))}
    return costs, {"model": "MiniLM-L6", **shown}


def rerun_rates() -> Table:
    """Examples a second in the re-runs, and the hours a million texts would take."""
    costs, machine = reruns()
    share = measured("cpu")["estimates"][0]
    rows = []
    for (task, attack), found in sorted(costs.items()):
        queries, cost = (median(column) for column in zip(*found, strict=True))
        hours = share["largest_share"] * cost / 3600
        rows.append([task, attack, str(len(found)), f"{queries:.0f}", f"{1 / cost:.0f}", f"{hours:.2f}"])
    texts = f"hours for {share['texts']:,} texts on {share['devices']}"
    return machine, ["task", "attack", "runs", "queries", "examples/s", texts], rows


def rerun_fits() -> Table:
    """Seconds an example as a + b * queries for each task of the re-runs, by least squares on relative errors."""
    costs, machine = reruns()
    rows = []
    for task in sorted({task for task, _ in costs}):
        black_box = [found for (name, attack), found in costs.items() if name == task and not attack.startswith("hull")]
        queries, seconds = np.array([point for found in black_box for point in found]).T
        terms = np.stack([np.ones_like(queries), queries], axis=1) / seconds[:, None]
        (fixed, each), *_ = np.linalg.lstsq(terms, np.ones_like(seconds), rcond=None)
        missed = np.median(np.abs((fixed + each * queries) / seconds - 1))
        rows.append([task, str(len(seconds)), f"{1e3 * fixed:.1f}", f"{1e6 * each:.1f}", f"{missed:.0%}"])
    return machine, ["task", "runs", "a, ms", "b, us", "median miss"], rows
