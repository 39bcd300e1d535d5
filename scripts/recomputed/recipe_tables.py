"""The tables of recipes, and the lines about each: every cell from the runs behind it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .estimates import SEEDS_FOR_A_STAR
from .records import Checkout, Table, held_out, parts_of
from .shown import Number, Place, check_heading, grid, is_table, plain, tables_in

ENOUGH_HULL = 0.95


def check_recipe_table(place: Place, lines: Sequence[str], table: Table) -> None:
    """Every cell of a recipe's table; the rows are the recipe's, in its order."""
    heading, *rows = grid(lines)
    if not check_heading(place, heading, ["", *table.columns]):
        return
    for method, row in zip(table.methods, rows, strict=False):
        values = [table.value(method, column) for column in table.columns]
        counts = {value.seeds for value in values if value is not None}
        all_fewer = len(counts) == 1 and min(counts) < len(table.seeds)
        fewer = f", {min(counts)} of {len(table.seeds)} seeds" if all_fewer else ""
        if plain(row[0]) != table.label(method) + fewer:
            place.fail(method, "the row's name", row[0], table.label(method) + fewer)
            continue
        for column, shown in zip(table.columns, row[1:], strict=True):
            check_recipe_cell(place, table, method, column, shown, tell_seeds=not all_fewer)
    if len(rows) != len(table.methods):
        place.fail("all", "rows", len(rows), len(table.methods))


def check_recipe_cell(place: Place, table: Table, method: str, column: str, shown: str, tell_seeds: bool) -> None:
    ours, *papers = shown.split("<br>")
    value = table.value(method, column)
    if value is None:
        expected: list[Any] = [absent(table, method, column)]
        ours = plain(ours)
    elif value.low is None or value.high is None:
        expected = [Number(value.mean, ".4g")]
    else:
        star = "\\*" if (method, column) in table.stars else ""
        expected = [Number(value.mean), star, " [", Number(value.low), ", ", Number(value.high), "]"]
    if value is not None and tell_seeds and value.seeds < len(table.seeds):
        expected.append(f", {value.seeds} of {len(table.seeds)} seeds")
    place.cell(method, column, ours, expected)
    told = papers_of(table, method, column)
    if [plain(paper) for paper in papers] != told:
        place.fail(method, f"{column}, the paper's", "; ".join(papers), "; ".join(told))


def absent(table: Table, method: str, column: str) -> str:
    """What stands where no number is."""
    for part in parts_of(table.columns[column]) or [column]:
        if table.chosen(method, part)[0] is None:
            return undecided(table, method, part)
    records = [table.record(method, column, seed) for seed in table.seeds]
    if table.what(column) == "features" and any(record and record.get("features") for record in records):
        return "failed" if table.failed(method, [column]) else "in the figure"
    if table.failed(method, [column]):
        return "failed"
    parts = parts_of(table.columns[column])
    if not parts:
        return "not run"
    whole = [seed for seed in table.seeds if all(seed in table.marks(method, part) for part in parts)]
    if "worst_of" in table.columns[column] and whole and not any(table.is_one_model(method, parts, n) for n in whole):
        return "not known: the records do not say that one model answered all of them"
    return "not run: not all of its columns were run"


def undecided(table: Table, method: str, column: str) -> str:
    """What stands where no candidate can be chosen."""
    records = [table.records.get(run) for seed in table.seeds for run in table.trainings(method, column, seed)]
    known = sum(held_out(record) is not None for record in records)
    why = "every value lost its numbers" if known == len(records) else ""
    why = why or f"{known} of {len(records)} trainings have a held-out score"
    return f"not run: {' and '.join(differing(table, method, column))} cannot be chosen: {why}"


def differing(table: Table, method: str, column: str) -> list[str]:
    settings = table.candidates(method, column)
    return [key for key in table.recipe.get("choose", {}) if any(one[key] != settings[0][key] for one in settings)]


def check_choices(place: Place, lines: Sequence[str], table: Table) -> None:
    """The line under a table that tells what was chosen on held-out rows."""
    shown = [plain(line) for line in lines if line.startswith("Chosen for each method")]
    told = choices(table)
    if shown or told:
        place.cell("choices", "values", "; ".join(shown), told)


def choices(table: Table) -> str:
    """What each method chose, by its value; nothing if none did."""
    by_value: dict[str, list[str]] = {}
    keys: list[str] = []
    for method in table.methods:
        own: dict[str, list[str]] = {}
        for column in table.columns:
            parts = parts_of(table.columns[column]) or [column]
            places = [table.chosen(method, part)[0] for part in parts]
            if None in places:
                continue
            values = [
                {key: table.candidates(method, part)[place or 0][key] for key in differing(table, method, part)}
                for part, place in zip(parts, places, strict=True)
            ]
            if values[0] and all(one == values[0] for one in values):
                keys += [key for key in values[0] if key not in keys]
                told = ", ".join(f"{key} {told_value(value)}" for key, value in values[0].items())
                own.setdefault(told, []).append(column)
        for told, columns in own.items():
            where = "" if len(own) == 1 else f" ({', '.join(columns)})"
            by_value.setdefault(told, []).append(table.label(method) + where)
    if not by_value:
        return ""
    tried = "; ".join(f"{key} of {', '.join(map(told_value, table.recipe['choose'][key]))}" for key in keys)
    told = ". ".join(f"{value}: {'; '.join(methods)}" for value, methods in by_value.items())
    return f"Chosen for each method on held-out training rows, by the mean over seeds ({tried}): {told}."


def told_value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def papers_of(table: Table, method: str, column: str) -> list[str]:
    """The paper's numbers of a cell, as the recipe has them."""
    numbers = table.recipe.get("paper_numbers", {})
    known = [
        encoder
        for encoder, rows in numbers.items()
        if any(name in rows.get(row, {}) for row in table.methods for name in table.columns)
    ]
    told = []
    for encoder in known:
        number = numbers[encoder].get(method, {}).get(column)
        if number is not None:
            mean, *deviation = number if isinstance(number, list) else [number]
            spread = f" ± {deviation[0]:g}" if deviation else ""
            told.append(f"{'paper' if len(known) == 1 else encoder} {mean:g}{spread}")
    return told


def check_told(place: Place, line: str, table: Table) -> None:
    """A line of text about a table: majorities, stars, seconds, hulls, failures."""
    if line.startswith("Always answering the most frequent label: "):
        first = next(iter(table.methods))
        check_majorities(place, line, {column: table.majority(first, column) for column in table.columns})
    if match := re.search(r"(\d+) of (\d+) differences; (\d+) if each is judged alone", line):
        asked = {at: one for at, one in table.differences.items() if one.seeds >= SEEDS_FOR_A_STAR}
        alone = sum((one.low or 0) > 0 or (one.high or 0) < 0 for one in asked.values())
        told = f"{len(table.stars)} of {len(asked)} differences; {alone} if each is judged alone"
        place.cell("stars", "counted", match[0], told)
    if line.startswith("Substitutes that the hull held in training, "):
        place.cell("hulls", "shares", line, hulls(table))
    if match := re.match(r"(\d+ runs, seeds .*?)\. (?:(\d+) of the runs were done on a CPU)?", line):
        check_costs(place, match[1], int(match[2] or 0), table)
        code = re.search(r"Made by .*?\.(?= |$)", line)
        place.cell("code", "commits", "" if code is None else code[0], made_by(table))
    if line.startswith("**Clean accuracy that cannot be told from one label for all"):
        place.cell("at chance", "listed", line.partition(": ")[2], ", ".join(at_chance(table)) + ".**")


def check_majorities(place: Place, line: str, found: Mapping[str, float | None]) -> None:
    expected: list[Any] = ["Always answering the most frequent label: "]
    for column, share in found.items():
        if share is not None:
            expected += [", " if len(expected) > 1 else "", f"{column} ", Number(share)]
    place.cell("majority", "all columns", plain(line), [*expected, "."])


def at_chance(table: Table) -> list[str]:
    return [f"{table.label(method)} ({column})" for method, column in weak_places(table)]


def weak_places(table: Table) -> Iterator[tuple[str, str]]:
    """Clean accuracies whose interval reaches down to one label for all, by method and column."""
    for method in table.methods:
        for column, own in table.measured.items():
            measure, value = own.get("measure", {}), table.value(method, column)
            share = table.majority(method, column)
            if "attack" in measure or "on" in measure or value is None or value.low is None or share is None:
                continue
            if value.low <= share:
                yield method, column


def hulls(table: Table) -> str:
    """The smallest share of substitutes that each method's hull held."""
    least: dict[str, float] = {}
    for method in table.methods:
        for column in table.measured:
            for seed in table.seeds:
                record = table.record(method, column, seed)
                facts = {} if record is None else record["training"].get("facts") or {}
                if "hull_coverage" in facts:
                    share = facts["hull_coverage"]["substitutes"]
                    least[method] = min(share, least.get(method, share))
    by_share: dict[str, list[str]] = {}
    for method, share in least.items():
        told = f"{share:.0%}{'' if share >= ENOUGH_HULL else ' **(below 95%)**'}"
        by_share.setdefault(told, []).append(method)
    told = ". ".join(f"{share}: {'; '.join(methods)}" for share, methods in by_share.items())
    return f"Substitutes that the hull held in training, {told}."


def check_costs(place: Place, shown: str, on_processors: int, table: Table) -> None:
    """Runs, seeds and seconds of what a table reads."""
    found = list(table.runs().values())
    trained = [(record, keys) for record, keys in found if record["training"]]
    devices = Counter(device_of(record) for record, _ in trained)
    device = devices.most_common(1)[0][0]
    own = [(record, keys) for record, keys in trained if device_of(record) == device]
    training = sum(record["training"]["seconds"] for record, _ in own)
    measuring = sum(
        record["measured"][key]["seconds"] for record, keys in own for key in keys & set(record["measured"])
    )
    seeds = ", ".join(map(str, sorted({record["run"]["seed"] for record, _ in found})))
    workers = table.group["workers"]
    expected = [f"{len(trained)} runs, seeds {seeds}; ", Number(training, ".0f"), " s of training and "]
    expected += [Number(measuring, ".0f"), f" s of measuring, {workers} runs side by side: about "]
    expected += [Number((training + measuring) / workers, ".0f"), f" s of one {device}"]
    place.cell("costs", "runs and seconds", shown, expected)
    if on_processors != len(trained) - len(own):
        place.fail("costs", "runs on a CPU", on_processors, len(trained) - len(own))


def made_by(table: Table) -> str:
    """The code behind a table, by version; records of before 0.1.0 name none."""
    records = [record for record, _ in table.runs().values() if record["training"]]
    named = [record["environment"]["code"] for record in records if record["environment"].get("code")]
    told = []
    for version in sorted({code["version"] for code in named}):
        own = [code for code in named if code["version"] == version]
        commits = {f"`{code['commit'][:7]}`" if "commit" in code else "unknown" for code in own}
        word = "commit" if len(commits) == 1 else "commits"
        told.append(f"{word} {', '.join(sorted(commits))} (version {version})")
    if len(named) < len(records):
        count = f" ({len(records) - len(named)} of {len(records)} runs)" if named else ""
        told.append(f"code before commits were recorded{count}")
    return f"Made by {' and '.join(told)}."


def device_of(record: Mapping[str, Any]) -> str:
    return next(iter(record["environment"].get("accelerators", [])), "CPU")


def check_failures(place: Place, lines: Sequence[str], table: Table) -> None:
    """The list of runs that failed, under a table: how many of each method."""
    shown: Counter[str] = Counter()
    for line in lines:
        for method in table.methods:
            match = re.match(rf"- {re.escape(table.label(method))}, (\d+) runs?: ", plain(line))
            shown[method] += int(match[1]) if match else 0
    for method in table.methods:
        failed = len(table.failed(method, list(table.columns)))
        if failed or shown[method]:
            place.cell(method, "runs that failed", str(shown[method]), str(failed))


def check_sections(place: Place, lines: Sequence[str], checkout: Checkout, prefix: str) -> None:
    """All recipes of one paper: a section each, a table for each encoder that ran it."""
    recipe, table = "", None
    seen = set()
    starts = dict(tables_in(lines))
    for number, line in enumerate(lines):
        if match := re.match(r'<a id="([a-z0-9-]+)"></a>', line):
            recipe, table = match[1], None
        elif match := re.match(r"\*\*([^*]+ rows(?:, [^*]+)?)\*\*$", line):
            table = next((one for one in checkout.tables.get(recipe, []) if one.title == match[1]), None)
            here = place.named(f"{recipe}, {match[1]}")
            if table is None:
                here.fail("all", "all", "a table", "no run of it")
        if table is None:
            continue
        if number in starts:
            check_recipe_table(here, starts[number], table)
            seen.add((recipe, table.title))
            until = next((n for n in range(number, len(lines)) if lines[n].startswith("<details")), len(lines))
            check_failures(here, lines[number:until], table)
            check_choices(here, lines[number:until], table)
        elif not is_table(line):
            check_told(here, line, table)
    for name, tables in checkout.tables.items():
        for one in tables:
            if name.startswith(prefix) and (name, one.title) not in seen:
                place.fail(name, one.title, "no table", "a table")
