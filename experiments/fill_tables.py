"""Fill the tables of README and docs from the results kept in this folder.

    python experiments/fill_tables.py            # write them
    python experiments/fill_tables.py --check    # say which page is stale, and fail

A page marks a table's place with `<!-- name -->` and `<!-- /name -->`, and a number's with
`<!--n recipe :: encoder :: method :: column-->` and `<!--/n-->`. No number of a result is typed by hand.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attack_costs
import baselines
import results
from defence_table import differences as trial_differences
from defence_table import table as trial_table
from unshaken.evaluation.statistics import over_seeds_and_examples, wilson
from unshaken.leaderboard import Entry, Scored, rank, read_entries
from unshaken.leaderboard.cost import cost_of

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
COMPARED = [("swap", "rift"), ("swap", "ascc"), ("swap", "standard"), ("rift", "ascc"), ("rift-fast", "rift")]
MAIN = ("standard", "freelb", "ascc", "rift", "rift-fast", "swap", "swap+informative")


def grid(heading: list[str], rows: list[list[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def trial(only: tuple[str, ...] = ()) -> str:
    folder = HERE / "defence_trial"
    return trial_table([folder / "minilm.jsonl", folder / "gte.jsonl"], only)


def compared() -> str:
    folder = HERE / "defence_trial"
    return trial_differences([folder / "minilm.jsonl", folder / "gte.jsonl"], COMPARED)


def swap_variants() -> str:
    return trial_table([HERE / "defence_trial" / "swap-variants.jsonl"])


def load(name: str) -> Any:
    return json.loads((HERE / "benchmarks" / name).read_text(encoding="utf-8"))


def residuals() -> str:
    """Worst relative residual of each layer, by solver and evaluations."""
    found = load("doctor-minilm.json")
    curves = {
        (row["layer"], row["solver"]): dict(zip(row["steps"], row["residuals"], strict=True))
        for row in found["residuals"]
    }
    columns = [("gradient-descent", 5, "descent T=5"), ("gradient-descent", 15, "descent T=15")]
    columns += [("fixed-point", 3, "Picard 3"), *(("anderson", n, f"Anderson {n}") for n in (1, 2, 3, 5, 8))]
    columns += [("broyden", 5, "Broyden 5"), ("newton-krylov", 2, "Newton-Krylov 2 x 3")]
    rows = []
    for layer, sigma in found["lipschitz"].items():
        reached = [number(curves[layer, solver][count], 3) for solver, count, _ in columns]
        rows.append([layer, number(sigma, 1), number(found["rightmost"][layer], 1), *reached])
    return grid(["layer", "Lipschitz", "rightmost eigenvalue", *(title for *_, title in columns)], rows)


def growth() -> str:
    rows = load("doctor-minilm.json")["growth"]
    return grid(
        ["connection", *(f"state {index}" for index in range(len(rows[0]["ratios"])))],
        [[row["name"], *(number(ratio) for ratio in row["ratios"])] for row in rows],
    )


def noise() -> str:
    found = load("doctor-minilm.json")["noise"]
    return grid(["connection", "largest difference of logits"], [[name, f"{size:.0e}"] for name, size in found.items()])


def company() -> str:
    """What `benchmarks/company.py` wrote."""
    told = {"half": "half of the texts, up to", "nine in ten": "nine in ten, up to", "largest": "largest"}
    rows = [
        [row["name"], row["precision"], *(f"{row[key]:.0e}" for key in told), f"{row['changed']} of {row['texts']}"]
        for row in load("cpu/company.json")["rows"]
    ]
    return grid(["model", "products", *told.values(), "answers that change"], rows)


def gradient_quality() -> str:
    rows = load("doctor-minilm.json")["gradients"]
    cells = [[row["mode"], number(row["weights"]), number(row["words"])] for row in rows]
    return grid(["mode", "weights", "words"], cells)


def connections(name: str) -> str:
    found = load(name)
    rows = [
        [
            row["layers"],
            row["configuration"],
            number(row["inference_ratio"]),
            number(row["training_ratio"]),
            number(row["memory_ratio"]),
            number(row["worst_residual"], 4),
        ]
        for row in found["rows"]
    ]
    heading = ["layers", "configuration", "inference", "training step", "training memory", "worst residual"]
    return caption(found["about"]) + grid(heading, rows)


def compared_gradients() -> str:
    found = load("cpu/connections-gradients.json")
    modes: dict[str, list[str]] = {}
    for row in found["rows"]:  # the layer form, then the increment form
        modes.setdefault(row["mode"], []).extend([number(row["weights"]), number(row["words"])])
    heading = ["mode", "layer form: weights", "words", "increment form: weights", "words"]
    return caption(found["about"]) + grid(heading, [[mode, *cells] for mode, cells in modes.items()])


def defences(name: str) -> str:
    found = load(name)
    told = {"step": "ratio", "bar": "bar", "memory": "memory", "declared passes": "passes"}
    columns = {heading: key for heading, key in told.items() if any(row.get(key) is not None for row in found["rows"])}
    rows = [[row["defence"], *(number(row.get(key)) for key in columns.values())] for row in found["rows"]]
    return caption(found["about"]) + grid(["defence", *columns], rows)


def packing(name: str) -> str:
    found = load(name)
    rows = [
        [row["defence"], number(row["ratio"]), f"{row['padded_ms']:.0f}", f"{row['packed_ms']:.0f}"]
        for row in found["rows"]
    ]
    share = f"{100 * found['tokens']:.0f}% of the places of a padded batch are tokens\n\n"
    return (
        caption(found["about"]).rstrip() + ", " + share + grid(["defence", "ratio", "padded, ms", "packed, ms"], rows)
    )


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def attacks_cpu() -> str:
    rows = [
        [
            row["ratio"],
            number(row["cpu_seconds_per_example"]),
            *(str(count) for count in row["rows"]),
            str(row["examples"]),
        ]
        for row in lines(HERE / "attack_speed" / "cpu.jsonl")
        if "ratio" in row
    ]
    return grid(["CPU seconds per example", "ratio", "rows, TextAttack", "rows, ours", "examples"], rows)


def attacks_int8() -> str:
    """Dynamic int8 quantisation beside float32, in one run."""
    about, *found = lines(HERE / "attack_speed" / "int8.jsonl")
    rows = [
        [
            f"int8, {row['int8 engine']}" if "int8 engine" in row else "float32",
            number(row.get("float32_over_int8_cpu_seconds", 1.0)),
            f"{row['log_probability_moved_by_company']:.2g}",
            f"{row['labels_changed_by_company']} of {about['rows']}",
        ]
        for row in found
    ]
    return grid(["answers", "speed", "a log-probability moves by", "labels that change"], rows)


def attacked_models(file: str = "attacks.jsonl") -> list[tuple[str, list[dict[str, Any]]]]:
    """The models of a GPU's record, each with what was measured of it."""
    models: list[tuple[str, list[dict[str, Any]]]] = []
    for row in lines(HERE / "benchmarks" / "gpu" / file):
        if "device" in row:
            models.append((Path(row["model"]).name, []))
        else:
            models[-1][1].append(row)
    return models


def attacks_caption(file: str = "attacks.jsonl") -> str:
    about = lines(HERE / "benchmarks" / "gpu" / file)[0]
    return caption({key: value for key, value in about.items() if key != "model"})


# The share of the model's own speed that the engine is to reach.
ENGINE_BARS = {"pwws": 0.4, "genetic": 0.6, "textfooler": 0.2, "pwws-imdb": 0.4}


def attacks_gpu() -> str:
    """The engine beside the model alone, by one process and by several on one card."""
    rows, counts = [], set()
    for model, found in attacked_models():
        together = {row["attack"]: row for row in found if "processes" in row}
        counts |= {str(row["processes"]) for row in together.values()}
        rows += [
            [
                model,
                row["attack"],
                str(row["examples"]),
                number(row["rows_per_s"], 0),
                number(row["forward_only_rows_per_s"], 0) if "forward_only_rows_per_s" in row else "",
                percent(row, "forward_only_padding"),
                percent(ENGINE_BARS, row["attack"]),
                percent(row, "share_of_forward_only"),
                percent(together.get(row["attack"], {}), "share_by_processes"),
                percent(row, "share_of_all_passes") if row.get("encoder_only_s") else "",
                number(row["wall_s"], 2),
                number(row["wall_s"] / row["examples"] * 1e6 / 60, 0),
            ]
            for row in found
            if "wall_s" in row
        ]
    shares = ["share", f"by {', '.join(sorted(counts))} processes", "with its encoder's passes"]
    heading = ["model", "attack", "examples", "rows/s", "model alone, rows/s", "padding in its batches", "bar", *shares]
    return attacks_caption() + grid([*heading, "seconds", "minutes for a million texts"], rows)


def percent(row: dict[str, Any], key: str) -> str:
    return f"{row[key]:.0%}" if key in row else ""


def attacks_compared() -> str:
    """Cohorts against one search per example: the same sentences, the same victim."""
    rows = [
        [
            model,
            row["attack"],
            str(row["compared"]),
            str(row["outcomes_that_differ"]),
            *(f"{share:.1%}" for share in row["accuracy_under_attack"]),
            *(str(count) for count in row["queries"]),
            number(row["speed_up_over_flights"], 1),
        ]
        for model, found in attacked_models()
        for row in found
        if "compared" in row
    ]
    heading = ["model", "attack", "examples", "outcomes that differ", "accuracy, cohorts", "one by one"]
    return attacks_caption() + grid([*heading, "queries, cohorts", "one by one", "speed-up"], rows)


def attacks_precision() -> str:
    """Queries answered in bf16 beside float32: the same sentences, the same weights."""
    file = "precision.jsonl"
    if not (HERE / "benchmarks" / "gpu" / file).exists():
        return "Not measured yet: `python benchmarks/attacks.py precision` makes the numbers."
    found = [(model, row) for model, own in attacked_models(file) for row in own]
    asked = "rows" if all("rows" in row for _, row in found) else "queries"  # older records have no rows
    rows = []
    for model, row in found:
        rates = [count / seconds for count, seconds in zip(row[asked], row["seconds"], strict=True)]
        moved = over_seeds_and_examples([[gained_in_bf16(row)]])
        rows.append(
            [
                model,
                row["attack"],
                str(row["examples"]),
                *(f"{share:.1%}" for share in row["accuracy_under_attack"]),
                f"{100 * moved.estimate:+.1f} [{100 * moved.low:+.1f}, {100 * moved.high:+.1f}]",
                str(row["outcomes_that_differ"]),
                str(wilson(row["outcomes_that_differ"], row["examples"])),
                *(str(count) for count in row.get("unconfirmed", ["not recorded"] * 2)),
                *(number(rate, 0) for rate in rates),
                number(rates[1] / rates[0]),
                number(row["speed_up"]),
            ]
        )
    heading = ["model", "attack", "examples", "accuracy, float32", "bf16", "difference, points"]
    heading += ["outcomes that differ", "in %", "not confirmed, float32", "bf16"]
    return attacks_caption(file) + grid([*heading, f"{asked}/s, float32", "bf16", "ratio", "speed-up"], rows)


def gained_in_bf16(row: dict[str, Any]) -> list[int]:
    """For each example: 1 where it held in bf16 alone, -1 where it held in float32 alone, else 0."""
    if "survived" in row:
        return [int(half) - int(full) for full, half in zip(*row["survived"], strict=True)]
    # An older record has totals: as many examples as they allow held in one alone, which makes the widest interval.
    full, half = (round(share * row["examples"]) for share in row["accuracy_under_attack"])
    lost = min(full, (row["outcomes_that_differ"] - (half - full)) // 2)
    gained = lost + half - full
    return [1] * gained + [-1] * lost + [0] * (row["examples"] - gained - lost)


def attacks_profile() -> str:
    """Where one process spends its time, as shares of the sum of the steps."""
    profiles = [
        (model, row["attack"], row["seconds_of"])
        for model, found in attacked_models()
        for row in found
        if "seconds_of" in row
    ]
    steps = list(dict.fromkeys(step for *_, spent in profiles for step in spent))
    rows = [
        [model, attack, *(f"{spent[step] / sum(spent.values()):.0%}" if step in spent else "" for step in steps)]
        for model, attack, spent in profiles
    ]
    return attacks_caption() + grid(["model", "attack", *steps], rows)


def connections_bars(name: str) -> str:
    found = load(name)
    rows = [
        [
            f"{row['batch']}, {'bf16' if row['bf16'] else 'float32'}",
            {"infer": "inference", "train": "training step"}[row["job"]],
            row["model"],
            number(row["ratio"]),
            number(row["milliseconds"], 1),
        ]
        for row in found["rows"]
        if name.startswith("gpu/") or "captured" not in row["model"]  # a CPU captures nothing
    ]
    return caption(found["about"]) + grid(["batch", "what", "model", "ratio to plain", "milliseconds"], rows)


def attack(found: attack_costs.Table | None) -> str:
    """A table of the page on scaling, or how to measure what it needs."""
    if found is None:
        return "Not measured yet: `python benchmarks/attack_cost.py --device cuda --bf16` makes the numbers."
    about, heading, rows = found
    return (caption(about) if about else "") + grid(heading, rows)


def smoothing_cost() -> str:
    """What a smoothed vocabulary costs, by record."""
    rows = []
    kept = ["cpu/smoothing", "cpu/smoothing_wordnet"] + [f"gpu/smoothing_{sizes}" for sizes in ("32", "256", "32_512")]
    for name in kept:
        found = load(f"{name}.json")
        about, jobs = found["about"], {row["job"]: row for row in found["rows"]}
        kernels = jobs["training step"].get("kernels")
        rows.append(
            [
                f"{about['device']}, {about['batch']} of {about['length']}",
                f"{found['substitutions']}, {found['words']:,}",
                f"{found['tokenizer loaded in']:.1f} s",
                number(jobs["tokenising"]["ratio"]),
                number(jobs["training step"]["ratio"]) + (f" (kernels {number(kernels)})" if kernels else ""),
                number(jobs.get("inference", {}).get("ratio")),
            ]
        )
    timed = ["tokenising", "training step", "inference when settled"]
    return grid(["device, texts of at most as many tokens", "words", "tokenizer loads in", *timed], rows)


VERDICTS = ("raised", "unknown", "clear")  # the gravest first
DETECTION = """\
Plain with seed 0; seeds 1 and 2 alike, and smoothed + SWAP with `--defence swap --smooth dictionary:FILE`:

```bash
unshaken train sst2 --data DATA --model MINILM --limit 10000 --epochs 3 --batch-size 64 --learning-rate 1e-4 --bf16 \\
  --select-by pwws --substitutions dictionary:FILE --seed 0 --out out/plain-s0
unshaken detect out/plain-s0/model --task sst2 --data DATA --attack genetic:population=60,generations=40 -n 500 \\
  --vote 16 --substitutions dictionary:FILE --out out/detect-plain-s0
```"""


def detection() -> str:
    """What `unshaken detect` wrote of models of several seeds, `METHOD-sSEED.json`: means, and the ends over seeds."""
    by_method: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path in sorted((HERE / "benchmarks" / "gpu" / "detection").glob("*-s*.json")):
        by_method[path.stem.rpartition("-s")[0].replace("-", " ")].append(json.loads(path.read_text(encoding="utf-8")))
    if not by_method:
        return "Not measured yet."
    shown = {
        "clean": "clean",
        "auroc": "AUROC",
        "true_positives": "flagged of those that fool the model",
        "fooled": "fooled, no detector",
        "fooled_unflagged": "fooled and not flagged",
        "fooled_jointly": "the same, by an attack that knows the detector",
    }
    rows = []
    for method, found in by_method.items():
        shares = {key: [100 * row["found"][key] for row in found if row["found"][key] is not None] for key in shown}
        rows.append([method, *(_with_ends(values) for values in shares.values()), str(len(found))])
    return f"{grid(['%', *shown.values(), 'seeds'], rows)}\n\n{DETECTION}"


def _with_ends(values: list[float]) -> str:
    if not values:
        return "none fooled"
    mean = f"{statistics.fmean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.1f} to {max(values):.1f})"


def caption(about: dict[str, Any]) -> str:
    shown = ", ".join(f"{key} {value}" for key, value in about.items() if value not in (False, None))
    return f"{shown}\n\n"


def large_files() -> str:
    """The last run of each command by `benchmarks/load.py`."""
    lines = (HERE / "benchmarks" / "cpu" / "load.jsonl").read_text(encoding="utf-8").splitlines()
    runs = {row["command"]: row for row in map(json.loads, lines)}
    heading = ["command", "rows", "rows in a block", "memory in each tenth of the run, MB", "seconds", "promised"]
    heading += ["seconds of processor", "promised", "kills", "totals after them"]
    rows = [
        [
            f"`{name}`",
            f"{row['rows']:,}",
            f"{row['block']:,}",
            f"{min(row['megabytes']):.0f} to {max(row['megabytes']):.0f}",
            *(f"{row[key]:.0f}" for key in ("seconds", "predicted", "processor_seconds", "predicted_processor")),
            str(row["killed"]),
            "the same" if row["same"] else "**others**",
        ]
        for name, row in sorted(runs.items())
    ]
    about = {key: next(iter(runs.values()))[key] for key in ("device", "torch")}
    return caption(about) + grid(heading, rows)


def descent_watched() -> str:
    """What grew in the training runs of `experiments/nonfinite.py`, a line per run."""
    runs: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for step in lines(HERE / "benchmarks" / "gpu" / "nonfinite.jsonl"):
        runs.setdefault((step["variant"], step["seed"]), []).append(step)
    heading = [
        "descent, T = 15",
        "seed",
        "steps",
        "numbers lost",
        "largest z",
        "largest q.k / sqrt(d)",
        "loss, last 16 steps",
    ]
    rows = [
        [
            variant,
            str(seed),
            str(len(steps)),
            "yes" if any(step["lost"] for step in steps) else "no",
            f"{max(max(step['largest_z'].values()) for step in steps):.3g}",
            f"{max(step['largest_logit'] for step in steps):.2g}",
            f"{statistics.fmean(step['loss'] for step in steps[-16:]):.3f}",
        ]
        for (variant, seed), steps in runs.items()
    ]
    return grid(heading, rows)


def readers_speed() -> str:
    """Words per second of each reader, and how many misspelt words come back."""
    found = load("cpu/readers.json")
    speed = grid(
        ["reader", "words per second, met before", "at first"],
        [[f"`{row['reader']}`", f"{row['met']:,.0f}", f"{row['first']:,.0f}"] for row in found["rows"]],
    )
    mended = [
        f"`{row['speller']}` brings back {row['right'] / row['words']:.0%} of {row['words']} misspelt words, each new, "
        f"at {row['per_second']:,.0f} per second."
        for row in found["mended"]
    ]
    where = f"{found['texts']} texts, load {found['load']:.1f} on {found['cores']} cores, seconds of processor"
    told = f"`all` is four, until nothing changes; with WordNet's words they take {found['memory']:.0f} MB."
    return f"{where}\n\n{speed}\n\n{' '.join([told, *mended])}"


def reading_by_parts() -> str:
    """Rows a second that readers allow an attack, put together from parts and read whole."""
    found = load("cpu/reading_by_parts.json")
    rows = []
    for row in found["rows"]:
        speeds = ["", "", ""]
        if "rows" in row:
            parts, whole = row["seconds_from_parts"], row["seconds_whole"]
            speeds = [f"{row['rows'] / parts:,.0f}", f"{row['rows'] / whole:,.0f}", f"{whole / parts:.1f}"]
        rows.append([f"`{row['source']}`", f"{row['together']} of {row['texts']}", *speeds])
    searched = found["search"]
    told = (
        f"A genetic search of 20 by 10 over `wordnet,typos` took {searched['seconds_from_parts']:.1f} s instead of "
        f"{searched['seconds_whole']:.1f} s for {searched['texts']} reviews, forward passes on the CPU included: "
        f"{searched['seconds_whole'] / searched['seconds_from_parts']:.1f} times as fast, with "
        f"{searched['equal']} of {searched['texts']} outcomes equal."
    )
    return f"{grid(['source', 'texts put together', 'from parts', 'whole', 'ratio'], rows)}\n\n{told}"


def hull_coverage() -> str:
    """Which part of the substitutes stands in a hull, by the rule for words of several pieces."""
    tasks = {"sst2": "SST-2 dev", "imdb": "IMDB", "snli": "SNLI"}
    rows = load("cpu/hull_coverage.json")["rows"]
    shares = {(row["pieces"], row["task"]): row for row in rows}
    heading = [f"{tasks[row['task']]}, {row['texts']:,} texts of {row['length']} tokens" for row in rows[::3]]
    return grid(
        ["share of substitutes in the hull", *heading],
        [
            [f'`pieces="{pieces}"`', *(f"{shares[pieces, task]['substitutes']:.1%}" for task in tasks)]
            for pieces in ("mean", "same", "single")
        ],
    )


def board() -> str:
    """Our own entries as `unshaken leaderboard` ranks them, a table per track, with what its checks found in them."""
    heading = ["Rank", "Method", "Worst case", "Clean", "Training passes", "Seeds"]
    heading.append("Flags raised, and in how many models")
    tables = []
    for ranking in rank(read_entries(HERE / "board")).values():
        entry = ranking[0].entry
        rows = [
            [
                "not ranked" if one.rank is None else f"{one.rank}{' (tied)' if one.tied else ''}",
                one.entry.name,
                str(one.worst),
                str(one.clean),
                passes(one.entry),
                str(len(one.entry.models)),
                raised(one.entry),
            ]
            for one in ranking
        ]
        about = (
            f"**{entry.track}**, {entry.suite} suite, {len(entry.ids)} examples, majority {100 * entry.majority:.1f}"
        )
        tables.append(f"{about}\n\n{grid(heading, rows)}")
    return "\n\n".join(tables)


def peak_memory() -> str:
    """Peak memory of training by commit, before and after a step let go of its passes."""
    runs = [run for run in lines(HERE / "reproduce" / "gte-baselines.jsonl") if run["training"]]
    peaks: dict[str, dict[str, list[int]]] = {}
    for run in runs:
        method = run["run"]["settings"]["defence"].split(":")[0]
        commit = run["environment"]["code"]["commit"][:7]
        peaks.setdefault(commit, {}).setdefault(method, []).append(run["training"]["memory_mib"])
    shown = [(commit, found) for commit, found in peaks.items() if {"ascc", "rift"} <= set(found)]
    rows = [
        [
            f"`{commit}`",
            *(f"{min(found[name]):,} to {max(found[name]):,} ({len(found[name])} runs)" for name in ("ascc", "rift")),
        ]
        for commit, found in shown
    ]
    return grid(["commit", "ASCC, MiB", "RIFT, MiB"], rows)


def passes(entry: Entry) -> str:
    cost = cost_of(entry.models[0].record) if entry.cost is None else entry.cost
    return "not told" if cost is None else f"{cost:.1f}"


def verdicts(model: Scored) -> dict[str, str]:
    """Of each flag the gravest of its checks, of which there is one per attack."""
    found: dict[str, str] = {}
    for flag, verdict, _ in model.flags:
        found[flag] = min(found.get(flag, "clear"), verdict, key=VERDICTS.index)
    return found


def flags() -> str:
    """What the checks found in the models of our board, flag by flag."""
    by_flag: dict[str, list[tuple[str, str]]] = defaultdict(list)
    entries = [one.entry for ranking in rank(read_entries(HERE / "board")).values() for one in ranking]
    for name, model in [(entry.name, model) for entry in entries for model in entry.models]:
        for flag, verdict in verdicts(model).items():
            by_flag[flag].append((verdict, name))
    rows = []
    for flag, found in by_flag.items():
        counts = Counter(verdict for verdict, _ in found)
        where = Counter(name for verdict, name in found if verdict == "raised")
        named = ", ".join(f"{name} ({count})" for name, count in sorted(where.items())) or "none"
        rows.append([f"`{flag}`", *(str(counts[verdict]) for verdict in VERDICTS), named])
    return grid(["flag", *VERDICTS, "raised in, and in how many models"], rows)


def raised(entry: Entry) -> str:
    counts = Counter(flag for model in entry.models for flag, verdict in verdicts(model).items() if verdict == "raised")
    return ", ".join(f"{flag} ({count})" for flag, count in sorted(counts.items())) or "none"


TABLES: dict[str, Callable[[], str]] = {
    "board": board,
    "results-flags": flags,
    "peak-memory": peak_memory,
    "readers-speed": readers_speed,
    "reading-by-parts": reading_by_parts,
    "hull-coverage": hull_coverage,
    "descent-watched": descent_watched,
    "trial": lambda: trial(MAIN),
    "trial-all": trial,
    "trial-differences": compared,
    "swap-variants": swap_variants,
    "residuals": residuals,
    "growth": growth,
    "noise": noise,
    "company": company,
    "gradient-quality": gradient_quality,
    "connections-cpu": lambda: connections("cpu/connections.json"),
    "connections-cpu-implicit": lambda: connections("cpu/connections-implicit.json"),
    "connections-gradients": compared_gradients,
    "connections-cpu-gte": lambda: connections("cpu/connections-gte.json"),
    "connections-gpu": lambda: connections("gpu/connections.json"),
    "connections-bars": lambda: connections_bars("gpu/connections_bars.json"),
    "connections-bars-cpu": lambda: connections_bars("cpu/connections_bars.json"),
    "connections-gpu-bf16": lambda: connections("gpu/connections_bf16_256.json"),
    "defences-cpu": lambda: defences("cpu/defences.json"),
    "defences-gpu": lambda: defences("gpu/defences.json"),
    "defences-gpu-swap": lambda: defences("gpu/defences_swap.json"),
    "packing-cpu": lambda: packing("cpu/packing.json"),
    "packing-gpu": lambda: packing("gpu/packing.json"),
    "large-files": large_files,
    "attacks-cpu": attacks_cpu,
    "attacks-int8": attacks_int8,
    "attacks-gpu": attacks_gpu,
    "smoothing-cost": smoothing_cost,
    "detection": detection,
    "baselines": baselines.table,
    "attacks-compared": attacks_compared,
    "attacks-precision": attacks_precision,
    "attacks-profile": attacks_profile,
    "results-totals": results.totals,
    "results-index": results.index,
    "results-headline": results.headline,
    "results-equal-clean-minilm": lambda: results.equal_clean("minilm", "ours-connections-6"),
    "results-equal-clean-gte": lambda: results.equal_clean("gte-small", "ours-connections-12"),
    "results-im-bert": lambda: results.paper("im-bert"),
    "results-rift": lambda: results.paper("rift"),
    "results-ours": lambda: results.paper("ours"),
    "attack-fit": lambda: attack(attack_costs.fits()),
    "attack-fit-gpu": lambda: attack(attack_costs.rerun_fits()),
    "attack-rates": lambda: attack(attack_costs.rerun_rates()),
    "attack-cost-cpu": lambda: attack(attack_costs.settings("cpu")),
    "attack-cost-gpu": lambda: attack(attack_costs.settings("gpu")),
    "attack-estimate-gpu": lambda: attack(attack_costs.estimates("gpu")),
    "swap-greed": lambda: trial_table([HERE / "defence_trial" / "swap-greed.jsonl"]),
}


def filled(text: str) -> str:
    def fill(match: re.Match[str]) -> str:
        name = match.group(1)
        return f"<!-- {name} -->\n\n{TABLES[name]()}\n\n<!-- /{name} -->"

    def fill_number(match: re.Match[str]) -> str:
        where = [part.strip() for part in match.group(1).split(" :: ")]  # a bar would end a table's cell
        return f"<!--n {match.group(1)}-->{results.number(*where)}<!--/n-->"

    text = re.sub(r"<!-- ([a-z0-9-]+) -->\n.*?<!-- /\1 -->", fill, text, flags=re.DOTALL)
    return re.sub(r"<!--n (.+?)-->.*?<!--/n-->", fill_number, text)


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--check", action="store_true", help="write nothing; fail if a page is stale")
    check = words.parse_args().check
    stale = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        new = filled(text)
        if new != text:
            stale.append(str(page.relative_to(ROOT)))
            if not check:
                page.write_text(new, encoding="utf-8")
    print(("stale: " if check else "filled: ") + (", ".join(stale) or "none"))
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
