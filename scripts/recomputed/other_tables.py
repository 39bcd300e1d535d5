"""Tables that put several recipes together, or that come from other records than theirs."""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from .estimates import SEEDS_FOR_A_STAR, Estimate, Marks, difference_of, over_seeds, paired, share_of, stars
from .recipe_tables import check_majorities, check_recipe_table, check_told, weak_places
from .records import Checkout, Table, marks_of, parts_of, plain_lines
from .shown import Number, Place, check_heading, gain, grid, is_table, plain, tables_in

PASSING_OVER = ("exhaustive", "transfer")  # spaces that are too large, and what the source gets wrong
SEEDS_TO_BE_RANKED = 3
OLD = "†"  # beside claims that rest on runs of no known commit
NEAR = 3  # points of clean accuracy within which two models are compared


def only_table(lines: Sequence[str]) -> list[str]:
    ((_, shown),) = tables_in(lines)
    return shown


def check_index(place: Place, lines: Sequence[str], checkout: Checkout, _: str) -> None:
    """Each claim of the papers, and whether it repeats."""
    shown = only_table(lines)
    heading, *rows = grid(shown)
    check_heading(place, heading, ["claim", "table", "paper", "ours", "encoder", "verdict", "seeds"])
    expected = [row for name in checkout.recipes for row in claims_of(checkout, name)]
    notes = [line for line in lines if line.startswith(OLD)]
    is_told = len(notes) == any(OLD in str(row[4]) for row in expected)
    if not is_told:
        place.fail("all", f"what {OLD} means", notes, "one line where a claim has it, else none")
    shown_claims, claims = [plain(row[0]) for row in rows], [str(row[0]) for row in expected]
    if shown_claims != claims:
        place.fail("all", "claims", sorted(set(shown_claims) - set(claims)), sorted(set(claims) - set(shown_claims)))
        return
    for row, wanted in zip(rows, expected, strict=True):
        for column, cell, computed in zip(heading, row, wanted, strict=True):
            place.cell(wanted[0] or str(wanted[4]), column, plain(cell) if column == "claim" else cell, computed)


def claims_of(checkout: Checkout, name: str) -> Iterator[list[Any]]:
    for claim in checkout.recipes[name].get("claims", []):
        told = [row for table in checkout.tables[name] if (row := judged(table, claim)) is not None]
        place = f"[{name}](#{name})"
        if not told:
            yield [claim["text"], place, "", "", "", "not run", ""]
        for number, (paper, *rest) in enumerate(told):
            yield [*([claim["text"], place, paper] if number == 0 else ["", "", ""]), *rest]


def judged(table: Table, claim: Mapping[str, str]) -> list[Any] | None:
    """Paper's difference, ours, the encoder, the verdict and the seeds; None if the group left its rows out."""
    method, over, column = claim["method"], claim["over"], claim["column"]
    if not {method, over} <= set(table.methods) or column not in table.columns:
        return None
    found = table.difference(method, column, over)
    if found is None or found.low is None or found.high is None:
        return None
    means = [
        tuple(np.atleast_1d(rows[row][column])[0] for row in (method, over))
        for rows in table.recipe.get("paper_numbers", {}).values()
        if column in rows.get(method, {}) and column in rows.get(over, {})
    ]
    paper = means[0][0] - means[0][1] if means else None
    told: Any = "not printed" if paper is None else [Number(paper, "+.1f")]
    if table.recipe["paper"] == "ours":
        told = ""
    verdict = "too few seeds"
    if found.seeds >= SEEDS_FOR_A_STAR:
        refuted = found.high < 0 or (paper is not None and found.high < paper)
        verdict = "**repeats**" if found.low > 0 else "**no**" if refuted else "**cannot tell**"
        parts = parts_of(table.columns[column]) or [column]
        tasks = [own.get("settings") for part in parts if "attack" in (own := table.columns[part]).get("measure", {})]
        weak = [table.columns[clean].get("settings") for row, clean in weak_places(table) if row in (method, over)]
        verdict = "did not learn" if any(task in tasks for task in weak) else verdict
    behind = [
        record
        for seed in table.seeds
        for part in parts_of(table.columns[column]) or [column]
        for row in (method, over)
        for run in table.trainings(row, part, seed)
        if (record := table.records.get(run)) is not None and record["training"]
    ]
    title = table.title if all(record["environment"].get("code") for record in behind) else f"{table.title} {OLD}"
    return [told, gain(found, False), title, verdict, str(found.seeds)]


def check_totals(place: Place, lines: Sequence[str], checkout: Checkout, _: str) -> None:
    runs = {run: record for group in checkout.groups for run, record in checkout.records(group["file"]).items()}
    trained = [record["training"] for record in runs.values() if record["training"]]
    failed = sum(record["error"] is not None for record in runs.values())
    measured = [one for record in runs.values() for one in record["measured"].values()]
    hours = [sum(training["seconds"] for training in trained) / 3600, sum(one["seconds"] for one in measured) / 3600]
    queries = sum((one["queries"] or 0) * len(one["held"]) for one in measured) / 1e6
    expected = [f"{len(trained)} training runs (", Number(statistics.fmean(one["steps"] for one in trained), ".0f")]
    expected += [f" steps on average), {failed} runs that ended in an error; ", Number(hours[0]), " h of training and "]
    expected += [Number(hours[1]), " h of measuring, side by side on one device; about ", Number(queries, ".0f")]
    place.cell("totals", "all", "\n".join(lines).strip(), [*expected, " million queries."])


def check_headline(place: Place, lines: Sequence[str], checkout: Checkout, _: str) -> None:
    """Rows of several recipes; each is looked for in every recipe of the encoder that has all of its columns."""
    shown = only_table(lines)
    heading, *rows = grid(shown)
    columns = heading[2:-1]
    majorities: dict[str, float | None] = {}
    for title, name, *cells in rows:
        sources = [
            (table, method)
            for tables in checkout.tables.values()
            for table in tables
            for method in table.methods
            if table.title == title and table.label(method) == plain(name) and set(columns) <= set(table.columns)
            and all(table.value(method, column) for column in columns)
        ]  # fmt: skip
        if not sources:
            place.fail(f"{title}, {name}", "all", "a row", "no run of it")
            continue
        table, method = sources[0]
        values = {column: table.value(method, column) for column in columns}
        majorities |= {column: table.majority(method, column) for column in columns}
        for column, cell in zip(columns, cells, strict=False):
            value = values[column]
            assert value is not None
            expected = [
                Number(value.mean),
                " [",
                Number(value.low or 0, ".0f"),
                ", ",
                Number(value.high or 0, ".0f"),
                "]",
            ]
            place.cell(f"{title}, {name}", column, cell, expected)
        place.cell(f"{title}, {name}", "seeds", cells[-1], str(min(value.seeds for value in values.values() if value)))
    for line in lines:
        if line.startswith("Always answering"):
            check_majorities(place, line, majorities)


def check_equal_clean(place: Place, lines: Sequence[str], checkout: Checkout, encoder: str) -> None:
    """Each connection minus the plain model nearest to it in clean accuracy, trained on fewer rows."""
    by_group = {id(table.group): table for table in checkout.tables["ours-equal-clean"]}
    table, plain_models = next(
        (table, by_group[id(table.group)])
        for name in ("ours-connections-6", "ours-connections-12")
        for table in checkout.tables[name]
        if table.group["encoder"] == encoder and id(table.group) in by_group
    )
    weaker = {name: row for name, row in plain_models.methods.items() if "rows" in row.get("settings", {})}
    both = Table(
        table.recipe, table.name, table.group, table.records, {**table.methods, **weaker}, plain_models.columns
    )
    clean = {name: value for name in both.methods if (value := both.value(name, "Clean")) is not None}
    learned = [name for name in weaker if (clean[name].low or 0) > (both.majority(name, "Clean") or 0)]
    shown = only_table(lines)
    heading, *rows = grid(shown)
    others = [column for column in both.columns if column != "Clean"]
    check_heading(place, heading, ["connection", "Clean", "plain model", "Clean, minus plain", *others])
    connections = [name for name in table.methods if name != table.reference and name in clean]
    if [plain(row[0]) for row in rows] != connections:
        place.fail("all", "rows", [row[0] for row in rows], connections)
        return
    for name, row in zip(connections, rows, strict=True):
        apart = {other: abs(clean[other].mean - clean[name].mean) for other in learned}
        nearest = min(apart, key=lambda other: apart[other])
        is_near = apart[nearest] <= NEAR
        place.cell(name, "Clean", row[1], [Number(clean[name].mean)])
        place.cell(name, "plain model", row[2], nearest if is_near else "none so weak")
        found = {column: both.difference(name, column, nearest) for column in ("Clean", *others)} if is_near else {}
        starred = stars({column: one for column, one in found.items() if one is not None})
        for column, cell in zip(("Clean", *others), row[3:], strict=True):
            place.cell(name, column, cell, gain(found[column], column in starred) if is_near else "")


def contrasts() -> dict[str, list[tuple[str, str]]]:
    """Question -> the pairs of methods whose differences are averaged over beta."""

    def pairs(one: str, other: str) -> list[tuple[str, str]]:
        def at(name: str, beta: int) -> str:
            return name if name.startswith("SWAP") else f"{name}, beta {beta}"

        return [(at(one, beta), at(other, beta)) for beta in (1, 2, 4)]

    before = "RIFT, old hull, old teacher"
    return {
        "ASCC: the hull": pairs("ASCC", "ASCC, old hull"),
        "RIFT: the hull, with the old teacher": pairs("RIFT, old teacher", before),
        "RIFT: the hull, with the teacher": pairs("RIFT", "RIFT, old hull"),
        "RIFT: the teacher, on the old hull": pairs("RIFT, old hull", before),
        "RIFT: the teacher, on the hull": pairs("RIFT", "RIFT, old teacher"),
        "RIFT: both": pairs("RIFT", before),
        "RIFT minus ASCC": pairs("RIFT", "ASCC"),
        "SWAP, M 4, minus RIFT as it was": pairs("SWAP, M 4", before),
        "SWAP, M 4, minus RIFT": pairs("SWAP, M 4", "RIFT"),
        "SWAP, M 4, minus ASCC": pairs("SWAP, M 4", "ASCC"),
        "SWAP, M 4, minus SWAP, M 1": [("SWAP, M 4", "SWAP, M 1")],
    }


def check_baselines(place: Place, lines: Sequence[str], checkout: Checkout, _: str) -> None:
    """The compared methods, a table for each encoder, and under it what each mend changes."""
    table: Table | None = None
    starts = dict(tables_in(lines))
    is_first = True
    for number, line in enumerate(lines):
        if match := re.match(r"\*\*([^*]+ rows)\*\*$", line):
            table = next((one for one in checkout.tables["ours-baselines"] if one.title == match[1]), None)
            is_first = True
        if table is None:
            continue
        here = place.named(f"{table.title}{'' if is_first else ', what each mend changes'}")
        if number in starts and is_first:
            check_recipe_table(here, starts[number], table)
            is_first = False
        elif number in starts:
            check_contrasts(here, starts[number], table)
        elif not is_table(line):
            check_told(here, line, table)


def check_contrasts(place: Place, lines: Sequence[str], table: Table) -> None:
    heading, *rows = grid(lines)
    columns = [column for column in table.columns if table.what(column) == "accuracy"]
    questions = contrasts()
    check_heading(place, heading, ["", *columns])
    if [plain(row[0]) for row in rows] != list(questions):
        place.fail("all", "rows", [row[0] for row in rows], list(questions))
        return
    found: dict[tuple[str, str], Estimate] = {}
    for question, pairs in questions.items():
        for column in columns:
            marks = [[table.marks(method, column) for method in pair] for pair in pairs]
            seeds = sorted(set.intersection(*(set(own) for pair in marks for own in pair)))
            tables = [np.stack([one[seed] - other[seed] for seed in seeds]) for one, other in marks] if seeds else []
            one = difference_of([np.mean(tables, axis=0)]) if tables else None
            if one is not None:
                found[question, column] = one
    starred = stars(found)
    for row in rows:
        for column, cell in zip(columns, row[1:], strict=True):
            at = (plain(row[0]), column)
            place.cell(*at, cell, gain(found.get(at), at in starred))


TRIAL_COLUMNS = {
    "clean": ("clean", "validation", 100), "AdvGLUE": ("clean", "advglue", 100), "PWWS": ("pwws", "accuracy", 100),
    "Genetic": ("genetic", "accuracy", 100), "Genetic, WordNet": ("genetic-wordnet", "accuracy", 100),
    "Genetic, typos": ("genetic-typos", "accuracy", 100), "train s": ("train", "seconds", 1),
    "MiB": ("train", "memory_mib", 1),
}  # fmt: skip


def check_trial(place: Place, lines: Sequence[str], checkout: Checkout, files: str) -> None:
    """Mean and deviation over seeds of the trial of all defences."""
    records = [
        line for file in files.split() for line in plain_lines(checkout.root / "experiments" / "defence_trial" / file)
    ]
    shown = only_table(lines)
    heading, *rows = grid(shown)
    check_heading(place, heading, ["encoder", "defence", "seeds", *TRIAL_COLUMNS])
    known = sorted({(line["encoder"], line["defence"]) for line in records})
    listed = [(row[0], row[1]) for row in rows]
    if [at for at in known if at in listed] != listed or (place.table != "trial" and listed != known):
        place.fail("all", "rows", listed, known)
    for encoder, defence, seeds, *cells in rows:
        own = [line for line in records if (line["encoder"], line["defence"]) == (encoder, defence)]
        values: dict[str, dict[int, float]] = {}
        for column, (stage, key, scale) in TRIAL_COLUMNS.items():
            values[column] = {line["seed"]: scale * line[key] for line in own if line["stage"] == stage and key in line}
        place.cell(f"{encoder} {defence}", "seeds", seeds, str(len(values["train s"])))
        for column, cell in zip(TRIAL_COLUMNS, cells, strict=True):
            numbers = list(values[column].values())
            expected: list[Any] = [Number(float(np.mean(numbers)))] if numbers else [""]
            expected += [" ± ", Number(float(np.std(numbers, ddof=1)))] if len(numbers) > 1 else []
            place.cell(f"{encoder} {defence}", column, cell, expected)


def check_trial_differences(place: Place, lines: Sequence[str], checkout: Checkout, files: str) -> None:
    """Pairs of the trial: under attack over seeds and texts, clean over seeds alone."""
    records = [
        line for file in files.split() for line in plain_lines(checkout.root / "experiments" / "defence_trial" / file)
    ]
    columns = ["clean", "PWWS", "Genetic", "Genetic, WordNet", "Genetic, typos"]
    heading, *rows = grid(only_table(lines))
    check_heading(place, heading, ["encoder", "difference", *columns])
    for encoder, pair, *cells in rows:
        for column, cell in zip(columns, cells, strict=True):
            stage, key, _ = TRIAL_COLUMNS[column]
            marks: list[Marks] = [
                {
                    line["seed"]: np.array([float(mark) for mark in line.get("survived", [line.get(key)])])
                    for line in records
                    if (line["encoder"], line["defence"], line["stage"]) == (encoder, defence, stage)
                }
                for defence in pair.split(" minus ")
            ]
            found = over_seeds(*marks) if column == "clean" else paired(marks[:1], marks[1:])
            place.cell(f"{encoder} {pair}", column, cell, gain(found, False))


def check_descent(place: Place, lines: Sequence[str], checkout: Checkout, _: str) -> None:
    """What grew in training runs whose every step was watched."""
    steps: dict[tuple[str, str], list[Any]] = {}
    for step in plain_lines(checkout.root / "experiments" / "benchmarks" / "gpu" / "nonfinite.jsonl"):
        steps.setdefault((step["variant"], str(step["seed"])), []).append(step)
    shown = only_table(lines)
    heading, *rows = grid(shown)
    if [(plain(row[0]), row[1]) for row in rows] != list(steps):
        place.fail("all", "rows", [row[:2] for row in rows], list(steps))
        return
    for row, (at, own) in zip(rows, steps.items(), strict=True):
        largest = max(value for step in own for value in step["largest_z"].values())
        losses = [step["loss"] for step in own[-16:]]
        computed = [
            str(len(own)),
            "yes" if any(step["lost"] for step in own) else "no",
            [Number(largest, ".3g")],
            [Number(max(step["largest_logit"] for step in own), ".2g")],
            [Number(sum(losses) / len(losses), ".3f")],
        ]
        for column, cell, wanted in zip(heading[2:], row[2:], computed, strict=True):
            place.cell(" ".join(at), column, cell, wanted)


def check_board(place: Place, lines: Sequence[str], checkout: Checkout, _: str) -> None:
    """The leaderboard: worst case over attacks, example by example, and ranks with ties by paired differences."""
    tracks: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for path in sorted((checkout.root / "experiments" / "board").glob("*.json")):
        entry = json.loads(path.read_text(encoding="utf-8"))
        breaks = path.with_suffix(".breaks.jsonl")
        broken = {(line["model"], line["example"]) for line in plain_lines(breaks)} if breaks.is_file() else set()
        track = "/".join(entry["track"][key] for key in ("encoder", "threat", "task"))
        place_of = (track, entry["suite"], entry["data"], entry["substitutions"].get("fingerprint", ""))
        tracks[place_of].append({**entry, "worst": worst_cases(entry, broken)})
    shown = list(tables_in(lines))
    if len(shown) != len(tracks):
        place.fail("all", "tables", len(shown), len(tracks))
        return
    for (start, table), (at, entries) in zip(shown, sorted(tracks.items()), strict=True):
        here = place.named(f"board, {at[0]}")
        about = [f"**{at[0]}**, {at[1]} suite, {len(entries[0]['ids'])} examples, majority "]
        here.cell("all", "about", lines[start - 2], [*about, Number(100 * entries[0]["majority"])])
        check_ranking(here, table, entries)


def flags_with(model: dict[str, Any], verdict: str) -> set[str]:
    return {flag for flag, own, _ in model["flags"] if own == verdict}


def check_flags(place: Place, lines: Sequence[str], checkout: Checkout, _: str) -> None:
    """In how many models of the board each flag is raised, or else unknown, or else clear."""
    paths = sorted((checkout.root / "experiments" / "board").glob("*.json"))
    entries = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    models = [(entry["name"], model) for entry in entries for model in entry["models"]]
    heading, *rows = grid(only_table(lines))
    check_heading(place, heading, ["flag", "raised", "unknown", "clear", "raised in, and in how many models"])
    shown, wanted = {row[0] for row in rows}, {f"`{flag}`" for _, model in models for flag, *_ in model["flags"]}
    if shown != wanted:
        place.fail("all", "flag", sorted(shown), sorted(wanted))
        return
    for flag, *cells in rows:
        own = [(name, model) for name, model in models if any(f"`{one}`" == flag for one, *_ in model["flags"])]
        raised = [name for name, model in own if flag.strip("`") in flags_with(model, "raised")]
        unknown = [name for name, model in own if flag.strip("`") in flags_with(model, "unknown")]
        both = sum(flag.strip("`") in flags_with(model, "raised") & flags_with(model, "unknown") for _, model in own)
        doubtful = len(unknown) - both
        named = ", ".join(f"{name} ({raised.count(name)})" for name in sorted(set(raised))) or "none"
        computed = [str(len(raised)), str(doubtful), str(len(own) - len(raised) - doubtful), named]
        for column, cell, value in zip(heading[1:], cells, computed, strict=True):
            place.cell(flag, column, cell, value)


def check_peaks(place: Place, lines: Sequence[str], checkout: Checkout, _: str) -> None:
    """The least and the most memory that ASCC and RIFT took, per commit that trained both."""
    peaks: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for line in plain_lines(checkout.root / "experiments" / "reproduce" / "gte-baselines.jsonl"):
        if line["training"]:
            defence = line["run"]["settings"]["defence"].partition(":")[0]
            peaks[line["environment"]["code"]["commit"][:7]][defence].append(line["training"]["memory_mib"])
    wanted = {f"`{commit}`": found for commit, found in peaks.items() if found.keys() >= {"ascc", "rift"}}
    heading, *rows = grid(only_table(lines))
    check_heading(place, heading, ["commit", "ASCC, MiB", "RIFT, MiB"])
    if [row[0] for row in rows] != list(wanted):
        place.fail("all", "commit", [row[0] for row in rows], list(wanted))
        return
    for commit, *cells in rows:
        for name, column, cell in zip(("ascc", "rift"), heading[1:], cells, strict=True):
            found = wanted[commit][name]
            ends = [Number(min(found), ".0f"), " to ", Number(max(found), ".0f")]
            place.cell(commit, column, cell, [*ends, f" ({len(found)} runs)"])


def worst_cases(entry: Mapping[str, Any], broken: set[tuple[str, str]]) -> Marks:
    """What held under every attack and no third party broke; what could not be attacked did not hold.

    An attack that may pass over an example leaves it to the others. Models are paired by the order of their seeds.
    """
    found = {}
    for number, model in enumerate(sorted(entry["models"], key=lambda model: model["record"]["seed"])):
        attacks = {name: marks_of({"held": marks}, None) for name, marks in model["held"].items()}
        is_broken = np.any([marks == 0 for marks in attacks.values()], axis=0)
        is_broken |= [(model["fingerprint"], name) in broken for name in entry["ids"]]
        had_to = [np.isnan(marks) for name, marks in attacks.items() if name.split()[0] not in PASSING_OVER]
        found[number] = np.where(is_broken | np.any(had_to, axis=0), 0.0, 1.0)
    return found


def check_ranking(place: Place, lines: Sequence[str], entries: Sequence[dict[str, Any]]) -> None:
    heading, *rows = grid(lines)
    worst = {entry["name"]: estimate for entry in entries if (estimate := share_of([entry["worst"]])) is not None}
    ordered = sorted(entries, key=lambda entry: (-worst[entry["name"]].mean, entry["name"]))
    if [plain(row[1]) for row in rows] != [entry["name"] for entry in ordered]:
        place.fail("all", "order", [row[1] for row in rows], [entry["name"] for entry in ordered])
        return
    ranked = [entry for entry in ordered if len(entry["models"]) >= SEEDS_TO_BE_RANKED]
    ranks: list[int] = []
    for number, entry in enumerate(ranked):
        leader = ranked[ranks[-1] - 1] if ranks else entry
        apart = paired([leader["worst"]], [entry["worst"]]) if ranks else None
        is_tied = apart is not None and (apart.low or 0) <= 0  # the leader's lead, however long, must be one
        ranks.append(ranks[-1] if is_tied else number + 1)
    places = {entry["name"]: rank for entry, rank in zip(ranked, ranks, strict=True)}
    for row, entry in zip(rows, ordered, strict=True):
        rank = places.get(entry["name"])
        clean = share_of([{n: marks_of({"held": model["clean"]}, None) for n, model in enumerate(entry["models"])}])
        flags = Counter(flag for model in entry["models"] for flag in flags_with(model, "raised"))
        computed = [
            "not ranked" if rank is None else f"{rank} (tied)" if ranks.count(rank) > 1 else str(rank),
            entry["name"],
            interval(worst[entry["name"]]),
            interval(clean),
            passes_of(entry),
            str(len(entry["models"])),
            ", ".join(f"{flag} ({count})" for flag, count in sorted(flags.items())) or "none",
        ]
        for column, cell, wanted in zip(heading, row, computed, strict=True):
            place.cell(entry["name"], column, plain(cell) if column == "Method" else cell, wanted)


# Defence -> forward passes, and halves of backward passes, of a step: a plain one has three.
STEPS: dict[str, Callable[[Mapping[str, Any]], int]] = {
    "Standard": lambda _: 3,
    "ASCC": lambda own: 6 + (own["objective"] == "kl") + 2 * own["steps"],  # both passes train, the ascent does not
    "InformativeTerm": lambda _: 1,  # the frozen encoder
    "FreeLB": lambda own: 3 * own["steps"],
    "SMART": lambda own: 6 + 2 * own["steps"] + (own["bregman_weight"] > 0),
    "SWAP": lambda own: 6 + (own["variants"] if own["variants"] > 1 else 0),
}


def passes_of(entry: Mapping[str, Any]) -> list[Any]:
    """What training cost, in plain steps; from the options of its defence if nothing has told it."""
    details = entry["models"][0]["record"]["details"]
    told = entry.get("cost") or details.get("passes")
    return [Number(told or sum(STEPS[part["name"]](part) for part in details["defence"]) / 3)]


def interval(one: Estimate | None) -> list[Any]:
    assert one is not None
    return [Number(one.mean), " [", Number(one.low or 0), ", ", Number(one.high or 0), "]"]


def attack_costs(checkout: Checkout) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """(task, attack) -> queries and seconds of an example, in runs of MiniLM without a connection."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for path in sorted((checkout.root / "experiments" / "reproduce").glob("*.jsonl")):
        for record in plain_lines(path):
            run = record["run"]
            if record["error"] or run["encoder"] != "minilm" or run["settings"]["connection"] != "none":
                continue
            for name, one in record["measured"].items():
                words = name.split()
                if one["queries"] and len(words) == 3:  # task, attack and count: the substitutions of the training
                    found[words[0], words[1]].append((one["queries"], one["seconds"] / len(one["held"])))
    return found


def check_rates(place: Place, lines: Sequence[str], checkout: Checkout, _: str) -> None:
    """Medians over runs of what an attack takes, and how long that is for many texts on several devices."""
    shown = only_table(lines)
    heading, *rows = grid(shown)
    # Texts go to devices by a hash of each, so that the largest share is more than an equal one; the benchmark has it.
    path = checkout.root / "experiments" / "benchmarks" / "cpu" / "attack_cost.json"
    shares = json.loads(path.read_text(encoding="utf-8"))["estimates"][0]
    check_heading(place, heading[5:], [f"hours for {shares['texts']:,} texts on {shares['devices']}"])
    costs = attack_costs(checkout)
    if [(row[0], row[1]) for row in rows] != sorted(costs):
        place.fail("all", "rows", [row[:2] for row in rows], sorted(costs))
        return
    for row in rows:
        points = np.array(costs[row[0], row[1]])
        queries, seconds = np.median(points, axis=0)
        hours = shares["largest_share"] * seconds / 3600
        computed = [str(len(points)), [Number(queries, ".0f")], [Number(1 / seconds, ".0f")], [Number(hours, ".2f")]]
        for column, cell, wanted in zip(heading[2:], row[2:], computed, strict=True):
            place.cell(f"{row[0]} {row[1]}", column, cell, wanted)


def check_fits(place: Place, lines: Sequence[str], checkout: Checkout, _: str) -> None:
    """Seconds as a + b * queries, by least squares of the relative errors: the normal equations, written out."""
    shown = only_table(lines)
    heading, *rows = grid(shown)
    by_task: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for (task, attack), points in attack_costs(checkout).items():
        by_task[task] += [] if attack.startswith("hull") else points
    if [row[0] for row in rows] != sorted(by_task):
        place.fail("all", "rows", [row[0] for row in rows], sorted(by_task))
        return
    for row in rows:
        queries, seconds = np.array(by_task[row[0]]).T
        one, many = 1 / seconds, queries / seconds
        both = np.array([[np.sum(one * one), np.sum(one * many)], [np.sum(one * many), np.sum(many * many)]])
        fixed, each = np.linalg.solve(both, [np.sum(one), np.sum(many)])
        missed = 100 * float(np.median(np.abs((fixed + each * queries) / seconds - 1)))
        computed = [str(len(seconds)), [Number(1e3 * fixed)], [Number(1e6 * each)], [Number(missed, ".0f"), "%"]]
        for column, cell, wanted in zip(heading[1:], row[1:], computed, strict=True):
            place.cell(row[0], column, cell, wanted)


def check_precision(place: Place, lines: Sequence[str], checkout: Checkout, _: str) -> None:
    """Searches answered in bf16 beside float32, by sentences; from totals, the widest interval that they allow."""
    path = checkout.root / "experiments" / "benchmarks" / "gpu" / "precision.jsonl"
    if not path.exists():
        place.skip("not measured yet", 0)
        return
    records: list[tuple[str, Any]] = []
    model = ""
    for record in plain_lines(path):
        if "device" in record:
            model = re.split(r"[\\/]", record["model"])[-1]
        else:
            records.append((model, record))
    heading, *rows = grid(only_table(lines))
    if [(row[0], row[1]) for row in rows] != [(model, one["attack"]) for model, one in records]:
        place.fail("all", "rows", [row[:2] for row in rows], [(model, one["attack"]) for model, one in records])
        return
    unit = "rows" if all("rows" in one for _, one in records) else "queries"
    check_heading(place, heading[10:11], [f"{unit}/s, float32"])
    for row, (_, one) in zip(rows, records, strict=True):
        count, differ, shares = one["examples"], one["outcomes_that_differ"], one["accuracy_under_attack"]
        if "survived" in one:
            full, half = (np.array([mark == "1" for mark in marks], float) for marks in one["survived"])
            moved = half - full
        else:  # of all splits of what differs that give these accuracies, the one that moves most
            held = [round(count * share) for share in shares]
            splits = [(held[1] - held[0] + lost, lost) for lost in range(held[0] + 1)]
            gained, lost = max((split for split in splits if split[0] >= 0 and sum(split) <= differ), key=sum)
            moved = np.repeat([1.0, -1.0, 0.0], [gained, lost, count - gained - lost])
        found = difference_of([moved[None]])
        assert found is not None
        bounds = stats.binomtest(differ, count).proportion_ci(method="wilson")
        speeds = [asked / seconds for asked, seconds in zip(one[unit], one["seconds"], strict=True)]
        computed: list[str | list[Any]] = [
            str(count),
            *([Number(100 * share), "%"] for share in shares),
            [*gain(found, False)[:-1], "]"],
            str(differ),
            [Number(100 * differ / count), " [", Number(100 * bounds.low), ", ", Number(100 * bounds.high), "]"],
            *(str(told) for told in one.get("unconfirmed", ("not recorded", "not recorded"))),
            *([Number(speed, ".0f")] for speed in speeds),
            [Number(speeds[1] / speeds[0], ".2f")],
            [Number(one["seconds"][0] / one["seconds"][1], ".2f")],
        ]
        for column, cell, wanted in zip(heading[2:], row[2:], computed, strict=True):
            place.cell(f"{row[0]} {row[1]}", column, cell, wanted)
