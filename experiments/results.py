"""The re-run of both papers, as pages: tables out of the runs kept in `reproduce/`, and their figures.

    python experiments/results.py collect FOLDER ...   # put the runs of result folders into reproduce/*.jsonl
    python experiments/results.py figures              # draw docs/images/results/*.png

`fill_tables.py` sets the tables into docs/results.md and the README. `reproduce/groups.toml` says which command gave
which runs.
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from unshaken_experiments import (
    Cell,
    Job,
    Outcome,
    Recipe,
    cells,
    load_outcomes,
    load_recipe,
    markdown,
    plan,
    recipe_names,
)
from unshaken_experiments.choice import chosen
from unshaken_experiments.recipe import Claim
from unshaken_experiments.results import coverage_line, settings_line
from unshaken_experiments.runs import read_outcomes
from unshaken_experiments.schedule import merge
from unshaken_experiments.table import judge, star_counts

HERE = Path(__file__).resolve().parent / "reproduce"
IMAGES = HERE.parent.parent / "docs" / "images" / "results"
STAR = "\\*"
OLD = "†"  # rests on records that name no commit
NEAR = 3  # points of clean accuracy within which two models are compared
TITLES = {"minilm": "MiniLM-L6", "gte-small": "gte-small", "mpnet-base": "MPNet-base"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """One command and its runs."""

    file: str
    encoder: str
    recipes: tuple[str, ...]
    workers: int
    methods: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    rows: str = ""  # where a protocol decides how many
    asks: str = ""  # what sets it apart from another group of the same recipe, encoder and rows
    seeds: tuple[int, ...] = ()  # instead of the recipes' own
    limit: int | None = None
    examples: int | None = None
    clean_examples: int | None = None
    group_by_length: bool = False
    scoring_dtype: str | None = None  # half precision in which searches are answered
    alone: bool = False  # without the row that others are compared with, if it is not one of the methods
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def changes(self) -> dict[str, Any]:
        return {**({} if self.limit is None else {"rows": self.limit}), **self.settings}

    @property
    def options(self) -> dict[str, Any]:
        return {"changes": self.changes, "examples": self.examples, "clean_examples": self.clean_examples}

    def recipe(self, name: str) -> Recipe:
        recipe = load_recipe(name)
        methods, columns = self._chosen(recipe)
        if self.alone:
            recipe = replace(recipe, reference=methods[0])
        chosen = recipe.only(methods, columns) if methods or columns else recipe
        return replace(chosen, seeds=self.seeds) if self.seeds else chosen

    def _chosen(self, recipe: Recipe) -> tuple[list[str], list[str]]:
        methods, columns = {row.name for row in recipe.methods}, {column.name for column in recipe.columns}
        return [name for name in self.methods if name in methods], [name for name in self.columns if name in columns]

    @property
    def method_names(self) -> list[str]:
        return list(dict.fromkeys(row.name for name in self.recipes for row in self.recipe(name).methods))

    def only(self, methods: Sequence[str]) -> Group:
        """The same with some of its methods alone, and with the recipes that have any of them."""
        kept = tuple(name for name in self.method_names if name in methods)
        recipes = [name for name in self.recipes if any(row.name in kept for row in self.recipe(name).methods)]
        return replace(self, methods=kept, recipes=tuple(recipes), alone=True)

    @property
    def title(self) -> str:
        rows = "all" if self.limit is None else f"{self.limit:,}"
        return f"{TITLES[self.encoder]}, {self.rows or rows} rows{self.asks and f', {self.asks}'}"

    def jobs(self) -> list[Job]:
        """Its training runs; those that several recipes share once."""
        return plan([self.recipe(name) for name in self.recipes], self.encoder, **self.options)

    def due(self, outcomes: Mapping[str, Outcome]) -> list[Job]:
        """Its runs with what to measure of each by now: what a row does not choose is trained and not attacked."""
        jobs = []
        for name in self.recipes:
            recipe = self.recipe(name)
            shown = chosen(recipe, outcomes, self.encoder, seeds=recipe.seeds, changes=self.changes)
            for job in plan([recipe], self.encoder, **self.options):
                free = tuple(one for one in job.measures if one.attack is None and one.certificate is None)
                jobs.append(job if job.run in shown else replace(job, measures=free))
        return merge(jobs)

    def command(self, recipe: str) -> str:
        parts = [f"unshaken reproduce {recipe} --encoder {self.encoder.upper()} --data DATA"]
        methods, columns = self._chosen(load_recipe(recipe))
        parts += [f'--method "{method}"' for method in methods]
        parts += [f'--column "{column}"' for column in columns]
        parts += [f"--seeds {','.join(map(str, self.seeds))}"] if self.seeds else []
        parts += [
            f"--{key.replace('_', '-')} {value}"
            for key in ("limit", "examples", "clean_examples")
            if (value := getattr(self, key)) is not None
        ]
        parts += [f"--set {key}={str(value).lower()}" for key, value in self.settings.items()]
        parts.append(f"--workers {self.workers} --no-checkpoints --bf16")
        parts += [f"--scoring-dtype {self.scoring_dtype}"] if self.scoring_dtype else []
        return " ".join([*parts, *(["--group-by-length"] if self.group_by_length else [])])


@cache
def groups() -> tuple[Group, ...]:
    content = tomllib.loads((HERE / "groups.toml").read_text(encoding="utf-8"))
    tuples = ("recipes", "methods", "columns", "seeds")
    return tuple(
        Group(**{key: tuple(value) if key in tuples else value for key, value in row.items()})
        for row in content["group"]
    )


@cache
def kept(file: str) -> dict[str, Outcome]:
    """The runs of a group by key; none where nothing was run."""
    path = HERE / file
    return {outcome.run.key: outcome for outcome in read_outcomes(path)} if path.is_file() else {}


@cache
def found(group: Group, name: str) -> tuple[Cell, ...]:
    return tuple(cells(group.recipe(name), kept(group.file), group.encoder, **group.options))


def labels(group: Group, name: str) -> dict[str, str]:
    """Method -> its name on a page: what a paper calls BERT is plain fine-tuning of whatever encoder a group has."""
    is_bert = group.encoder.startswith("bert")
    return {
        row.name: "plain" if row.name == "BERT" and not row.settings and not is_bert else row.name
        for row in group.recipe(name).methods
    }


def labelled(group: Group, name: str) -> tuple[Recipe, list[Cell]]:
    """A recipe and its cells by the names of a page; the cells have the paper's numbers."""
    recipe, names = group.recipe(name), labels(group, name)
    methods = tuple(replace(row, name=names[row.name]) for row in recipe.methods)
    shown = replace(recipe, methods=methods, reference=names[recipe.baseline], paper_numbers={}, claims=())
    return shown, [replace(cell, method=names[cell.method]) for cell in found(group, name)]


def of(recipe: str) -> Iterator[Group]:
    """The groups that ran some of a recipe."""
    for group in groups():
        if recipe in group.recipes and any(cell.ours is not None for cell in found(group, recipe)):
            yield group


# -------------------------------------------------------------------------------------------------------------- pages


def index() -> str:
    """Each claim of the papers with what the paper and our runs say: the way into the page."""
    lines = [["claim", "table", "paper", "ours", "encoder", "verdict", "seeds"]]
    lines.append(["---"] * len(lines[0]))
    for name in recipe_names():
        recipe = load_recipe(name)
        for claim in recipe.claims:
            rows = [_judged(group, name, claim) for group in of(name)]
            place = f"[{name}](#{name})"
            paper = "" if recipe.paper == "ours" else next((row[0] for row in rows if row is not None), "")
            told = [row for row in rows if row is not None]
            for number, (_, ours, encoder, verdict, seeds) in enumerate(told):
                first = [claim.text, place, paper] if number == 0 else ["", "", ""]
                lines.append([*first, ours, encoder, verdict, seeds])
            if not told:
                lines.append([claim.text, place, "", "", "", "not run", ""])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{table}\n\n{OLD}: rests on runs by code before commits were recorded." if OLD in table else table


def _judged(group: Group, name: str, claim: Claim) -> tuple[str, str, str, str, str] | None:
    recipe = group.recipe(name)
    if claim not in recipe.claims:  # rows or columns that the group left out
        return None
    by_place = _against(group, name, claim.over)
    cell, rival = by_place[claim.method, claim.column], by_place[claim.over, claim.column]
    if cell.gain is None:
        return None
    found = judge(claim, cell, rival)
    paper = "not printed" if found.paper is None else f"{found.paper:+.1f}"
    verdict = f"**{found.verdict}**" if found.verdict else "too few seeds"
    parts = next(column.parts for column in recipe.columns if column.name == claim.column)
    if found.verdict and _untaught(recipe, claim, parts, by_place.values()):
        verdict = "did not learn"
    pair = replace(recipe, reference=claim.over).only([claim.method], [claim.column, *parts])
    is_old = any(not outcome.environment.get("code") for _, outcome in _behind(group, pair) if outcome.training)
    title = f"{group.title} {OLD}" if is_old else group.title
    return paper, gain(cell).replace(STAR, ""), title, verdict, str(cell.gain_seeds)


def _untaught(recipe: Recipe, claim: Claim, parts: Sequence[str], found: Iterable[Cell]) -> bool:
    """Whether an attacked model of a claim answers the texts themselves no better than one label for all."""
    columns = {column.name: column for column in recipe.measured}
    attacked = [columns[name] for name in (parts or [claim.column]) if columns[name].measure.attack]
    weak = {cell.column for cell in _at_chance(recipe, found) if cell.method in (claim.method, claim.over)}
    return any(columns[name].settings == column.settings for name in weak for column in attacked)


def _behind(group: Group, recipe: Recipe) -> list[tuple[Job, Outcome]]:
    """The runs that a recipe's numbers come from."""
    jobs = plan([recipe], group.encoder, **group.options)
    return [(job, kept(group.file)[job.run.key]) for job in jobs if job.run.key in kept(group.file)]


def made_by(outcomes: Sequence[Outcome]) -> str:
    """Which code the runs are of; the first records do not say."""
    commits: dict[str, set[str]] = defaultdict(set)
    codes = [outcome.environment.get("code") for outcome in outcomes]
    for code in filter(None, codes):
        commits[code["version"]].add(f"`{code['commit'][:7]}`" if "commit" in code else "unknown")
    told = [
        f"commit{'s' if len(names) > 1 else ''} {', '.join(sorted(names))} (version {version})"
        for version, names in sorted(commits.items())
    ]
    if old := codes.count(None):
        told.append(f"code before commits were recorded{f' ({old} of {len(codes)} runs)' if told else ''}")
    return f"Made by {' and '.join(told)}."


FOLD = '<details markdown="1"><summary>'  # the site reads Markdown inside of HTML only where it is told to


def sections(names: Iterable[str]) -> str:
    return "\n\n".join(section(name) for name in names)


def section(name: str) -> str:
    """One recipe, folded: what it claims, a table an encoder, what it took, what was not run."""
    recipe = load_recipe(name)
    lines = [f'<a id="{name}"></a>', "", f"{FOLD}<b>{recipe.title}</b></summary>", ""]
    lines += [f"`{name}`. {' '.join(recipe.about.split())}", ""]
    ran = list(of(name))
    if not ran:
        lines += [f"Not run: no device time was left for it; `unshaken reproduce {name}` runs it.", ""]
    for group in ran:
        lines += [
            f"**{group.title}**",
            "",
            markdown(*labelled(group, name), len(group.recipe(name).seeds), group.encoder),
            "",
        ]
        if labels(group, name).get("BERT") == "plain":
            is_theirs = any("BERT" in rows for rows in recipe.paper_numbers.values())
            whose = "the paper" if is_theirs else "the recipe"
            lines += [f"plain: plain fine-tuning, which {whose} calls BERT; the encoder here is another.", ""]
        lines += [*_left_out(group, recipe), *_hulls(group, name), *_weak_line(group, name)]
        if recipe.figure is not None and image(group, name).is_file():
            lines += [f"![{recipe.title}, {group.title}](images/results/{image(group, name).name})", ""]
        lines += _folded("How it was run", [_told(group, name), "", f"```\n{group.command(name)}\n```"])
    notes = [f"- {note}" for note in recipe.notes]
    notes += [f"- Not run: {absent.what}: {absent.why}." for absent in recipe.not_run]
    lines += _folded("Notes", notes) if notes else []
    return "\n".join([*lines, "</details>"])


def _folded(title: str, lines: list[str]) -> list[str]:
    return [f"{FOLD}{title}</summary>", "", *lines, "", "</details>", ""]


def _left_out(group: Group, recipe: Recipe) -> list[str]:
    """Rows and columns of the recipe that the group's command does not ask for."""
    chosen = group.recipe(recipe.name)
    told = [
        f"{kind}: {'; '.join(missing)}."
        for kind, missing in (
            ("rows", [row.name for row in recipe.methods if row not in chosen.methods]),
            ("columns", [column.name for column in recipe.columns if column not in chosen.columns]),
        )
        if missing
    ]
    return [f"Not run here, for want of device time: {' And '.join(told)}", ""] if told else []


def _hulls(group: Group, name: str) -> list[str]:
    told = coverage_line(group.recipe(name), kept(group.file), group.encoder, changes=group.changes)
    return [] if told is None else [told, ""]


def image(group: Group, name: str) -> Path:
    """A recipe's figure; those of a second encoder or budget are named after the group's file."""
    first = next(of(name)) is group
    return IMAGES / (f"{name}.png" if first else f"{name}-{Path(group.file).stem}.png")


def _at_chance(recipe: Recipe, found: Iterable[Cell]) -> list[Cell]:
    """Clean accuracies of models that may have learned nothing: under attack they say nothing about their method."""
    own = {
        column.name
        for column in recipe.measured
        if column.measure.attack is None and column.measure.certificate is None and column.measure.on is None
    }
    return [
        cell
        for cell in found
        if cell.column in own and cell.majority is not None and cell.low is not None and cell.low <= cell.majority
    ]


def _weak_line(group: Group, name: str) -> list[str]:
    """Names them below a table."""
    weak = [f"{cell.method} ({cell.column})" for cell in _at_chance(group.recipe(name), labelled(group, name)[1])]
    if not weak:
        return []
    told = f"Clean accuracy that cannot be told from one label for all, in this budget: {', '.join(weak)}."
    return [f"**{told}**", ""]


def _told(group: Group, name: str) -> str:
    """Seeds, settings, and what the recipe's runs took."""
    recipe = group.recipe(name)
    both = _behind(group, recipe)
    trained = [(job, outcome) for job, outcome in both if outcome.training]
    seeds = sorted({outcome.run.seed for _, outcome in both})
    told = [f"{len(trained)} runs, seeds {', '.join(map(str, seeds))};"]
    device = Counter(_device(outcome) for _, outcome in trained).most_common(1)[0][0]
    on_device = [(job, outcome) for job, outcome in trained if _device(outcome) == device]
    training = sum(outcome.training["seconds"] for _, outcome in on_device)
    measuring = sum(_measuring(job, outcome) for job, outcome in on_device)
    share = (training + measuring) / group.workers
    told += [
        f"{training:,.0f} s of training and {measuring:,.0f} s of measuring, {group.workers} runs side by side:",
        f"about {share:,.0f} s of one {device}.",
    ]
    if len(on_device) < len(trained):
        told.append(f"{len(trained) - len(on_device)} of the runs were done on a CPU, one core each.")
    told += [f"Searches were answered in {dtype}, and their successes confirmed in float32." for dtype in _halves(both)]
    told += [
        made_by([outcome for _, outcome in trained]),
        star_counts(found(group, name), labels(group, name)[recipe.baseline]),
        settings_line(recipe, group.changes),
    ]
    return " ".join(told)


def _halves(both: Iterable[tuple[Job, Outcome]]) -> list[str]:
    measured = [found for job, outcome in both for key, found in outcome.measured.items() if key in _wanted(job)]
    return sorted({found.scoring_dtype for found in measured if found.scoring_dtype})


def _wanted(job: Job) -> set[str]:
    return {measure.key(job.run.settings.task) for measure in job.measures}


def _device(outcome: Outcome) -> str:
    return next(iter(outcome.environment.get("accelerators", [])), "CPU")


def _measuring(job: Job, outcome: Outcome) -> float:
    return sum(measured.seconds for key, measured in outcome.measured.items() if key in _wanted(job))


HEADLINE = {  # file of the group -> rows of its recipes
    "minilm-sst2-full.jsonl": {
        "ours-connections-6": ("BERT", "IM, descent 5, all", "IM, descent 5, 5-6", "IM, Anderson 8, 5-6"),
        "ours-trade-off": ("FreeLB", "ASCC, beta 4", "RIFT, beta 4", "SWAP, beta 5", "SWAP greedy, beta 5"),
    },
    "gte-sst2.jsonl": {
        "ours-connections-12": ("BERT", "IM, descent 5, 4-6", "IM, descent 5, 10-12", "IM, Anderson 8, 10-12"),
        "ours-trade-off": ("FreeLB", "ASCC, beta 4", "RIFT, beta 4", "SWAP, beta 5", "SWAP greedy, beta 5"),
    },
    "mpnet-sst2.jsonl": {
        "ours-connections-12": ("BERT", "IM, descent 5, 4-6", "IM, descent 5, 10-12", "IM, Anderson 8, 10-12"),
        "ours-trade-off": ("FreeLB", "RIFT, beta 4", "SWAP, beta 5", "SWAP greedy, beta 5"),
    },
}


def headline() -> str:
    """The README's table: what the encoders at hand give on SST-2, by method."""
    columns = ("Clean", "AdvGLUE", "PWWS", "Genetic")
    lines = [["encoder", "method", *columns, "seeds"], ["---"] * (len(columns) + 3)]
    majorities: dict[str, float] = {}
    for group in groups():
        for name, methods in HEADLINE.get(group.file, {}).items():
            by_place = {(cell.method, cell.column): cell for cell in found(group, name)}
            for method in methods:
                row = [by_place[method, column] for column in columns]
                majorities |= {cell.column: cell.majority for cell in row if cell.majority is not None}
                seeds = min(len(cell.seeds) for cell in row)
                lines.append([group.title, labels(group, name)[method], *(_short(cell) for cell in row), str(seeds)])
    told = ", ".join(f"{column} {value:.1f}" for column, value in majorities.items())
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{table}\n\nAlways answering the most frequent label: {told}."


def equal_clean(encoder: str, recipe: str) -> str:
    """Each connection less the plain model nearest to it in clean accuracy, trained on fewer rows: paired, by seeds."""
    heading = ["connection", "Clean", "plain model", "Clean, minus plain"]
    for group in of(recipe):
        if group.encoder == encoder and "ours-equal-clean" in group.recipes:
            break
    else:
        raise KeyError(f"no group of {encoder} ran both {recipe} and ours-equal-clean")
    plain = group.recipe("ours-equal-clean")
    weaker = [method for method in plain.methods if "rows" in method.settings]  # "all rows" are those of --limit
    connections = group.recipe(recipe)
    both = replace(connections, methods=(*connections.methods, *weaker), columns=plain.columns, reference=None)
    clean = {
        cell.method: cell
        for cell in cells(both, kept(group.file), group.encoder, **group.options)
        if cell.column == "Clean" and cell.ours is not None
    }
    learned = [method for method in weaker if clean[method.name].low > clean[method.name].majority]
    lines = []
    for method in connections.methods:
        if method.name == connections.baseline or method.name not in clean:
            continue
        ours = clean[method.name].ours
        nearest = min(learned, key=lambda other: abs(clean[other.name].ours - ours))
        row = [method.name, f"{ours:.1f}"]
        if abs(clean[nearest.name].ours - ours) > NEAR:
            lines.append([*row, "none so weak", *([""] * len(plain.columns))])
            continue
        pair = replace(both, methods=(method, nearest), reference=nearest.name)
        found_ = {
            cell.column: cell
            for cell in cells(pair, kept(group.file), group.encoder, **group.options)[: len(plain.columns)]
        }
        lines.append([*row, nearest.name, *(gain(found_[column.name]) for column in plain.columns)])
    heading += [column.name for column in plain.columns if column.name != "Clean"]
    return "\n".join(f"| {' | '.join(line)} |" for line in [heading, ["---"] * len(heading), *lines])


def gain(cell: Cell) -> str:
    """A difference with its interval."""
    if cell.gain is None:
        return "not run"
    told = f"{cell.gain:+.1f}{STAR if cell.significant else ''} [{cell.gain_low:+.1f}, {cell.gain_high:+.1f}]"
    return told if cell.gain_seeds > 1 else f"{told}, one seed"


def number(recipe: str, encoder: str, method: str, column: str) -> str:
    """One number of a table, for a sentence.

    `Genetic` is a mean, `Genetic gain` the difference from the recipe's reference with its interval, and
    `Genetic gain over RIFT` the difference from another method. The encoder may be the file of a group, without its
    ending, where several groups have run the recipe on it.
    """
    name, asks_gain, rival = column.partition(" gain")
    rival = rival.removeprefix(" over ")
    for group in of(recipe):
        if encoder not in (group.encoder, Path(group.file).stem):
            continue
        cell = _against(group, recipe, rival or group.recipe(recipe).baseline).get((method, name))
        if cell is not None and cell.ours is not None:
            if not asks_gain:
                return f"{cell.ours:.1f}" if cell.low is not None else f"{cell.ours:.3g}"
            if cell.gain is not None:
                return gain(cell).replace(STAR, "")
    raise KeyError(f"no run gave {recipe} | {encoder} | {method} | {column}")


@cache
def _against(group: Group, name: str, reference: str) -> dict[tuple[str, str], Cell]:
    recipe = replace(group.recipe(name), reference=reference)
    compared = cells(recipe, kept(group.file), group.encoder, **group.options)
    return {(cell.method, cell.column): cell for cell in compared}


def _short(cell: Cell | None) -> str:
    if cell is None or cell.ours is None:
        return "not run"
    return f"{cell.ours:.1f} [{cell.low:.0f}, {cell.high:.0f}]" if cell.low is not None else f"{cell.ours:.4g}"


def paper(prefix: str) -> str:
    return sections(name for name in recipe_names() if name.startswith(prefix))


def totals() -> str:
    """How much was run in all."""
    outcomes = list({key: outcome for group in groups() for key, outcome in kept(group.file).items()}.values())
    finished = [outcome for outcome in outcomes if outcome.training]
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    training = sum(outcome.training["seconds"] for outcome in finished)
    measuring = sum(measured.seconds for outcome in outcomes for measured in outcome.measured.values())
    questions = sum(
        (measured.queries or 0) * len(measured.held) for outcome in outcomes for measured in outcome.measured.values()
    )
    steps = fmean(outcome.training["steps"] for outcome in finished)
    told = [
        f"{len(finished)} training runs ({steps:.0f} steps on average), {len(failed)} runs that ended in an error;",
        f"{training / 3600:.1f} h of training and {measuring / 3600:.1f} h of measuring, side by side on one device;",
        f"about {questions / 1e6:.0f} million queries.",
    ]
    return " ".join(told)


# ---------------------------------------------------------------------------------------------- collecting and drawing


def collect(folders: list[str], *, again: bool = False) -> None:
    """Write each group's runs, as the command left them, to its file; answers that are not taken go to earlier/.

    Fuller by what the file's own groups ask: a training that another group shares may have been measured for that one.
    Records are taken whole, since two of one run may be of two models. Of equally full ones the kept one stays, then
    the first of the folders counts: a record does not tell whether its code is newer. Other answers are told of.

    Args:
        again: The folders are of runs that were made again, by newer code: of equally full ones theirs counts.
    """
    records: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in (outcome for folder in folders for outcome in load_outcomes(Path(folder))):
        records[outcome.run.key].append(outcome)
    planned: dict[str, list[Job]] = defaultdict(list)  # of a file, which several groups may share
    for group in groups():
        planned[group.file] += group.jobs()
    others: dict[str, list[Outcome]] = defaultdict(list)  # answers that are not taken
    for file, jobs in planned.items():
        known = dict(kept(file))
        wanted = {job.run.key: job.measures for job in merge(jobs)}
        fuller = {}
        for key in sorted(wanted.keys() & records.keys()):
            mine = [known[key]] if key in known else []
            rivals = [*records[key], *mine] if again else [*mine, *records[key]]
            best = min(rivals, key=lambda one: len(one.lacks(wanted[key])))
            asked = {measure.key(best.run.settings.task) for measure in wanted[key]}
            for other in rivals:
                if any(best.measured.get(name) != other.measured[name] for name in asked & other.measured.keys()):
                    print(f"{file}: {best.run.name} has two answers. Taken: {made_by([best])} Not: {made_by([other])}")
                    others[file].append(other)
            if best is not known.get(key):
                fuller[key] = best
        # First, so that a run that is stopped here has lost nothing.
        _keep_earlier(file, [known[key] for key in fuller if key in known])
        known |= fuller
        if fuller:  # other files stay as they were written
            lines = sorted(outcome.line() for outcome in known.values())
            (HERE / file).write_text("\n".join(lines) + "\n", encoding="utf-8")
        due = merge(job for group in groups() if group.file == file for job in group.due(known))
        whole = sum(job.run.key in known and not known[job.run.key].lacks(job.measures) for job in due)
        print(f"{file}: {whole} of {len(wanted)} planned runs")
    taken = {
        line for file in planned if (HERE / file).is_file() for line in (HERE / file).read_text("utf-8").splitlines()
    }
    for file, left in others.items():
        _keep_earlier(file, [other for other in left if other.line() not in taken])
        taken |= {other.line() for other in left}  # groups that share a training need not keep it twice


def _keep_earlier(file: str, left: Sequence[Outcome]) -> None:
    """Add to earlier/ what is not there."""
    path = HERE / "earlier" / file
    there = set(path.read_text(encoding="utf-8").splitlines()) if path.is_file() else set()
    if lines := [line for line in dict.fromkeys(one.line() for one in left) if line not in there]:
        path.parent.mkdir(exist_ok=True)
        with path.open("a", encoding="utf-8") as earlier:
            earlier.writelines(f"{line}\n" for line in lines)


def figures() -> None:
    from unshaken.reports.figures import save_figure
    from unshaken_experiments.figure import draw

    IMAGES.mkdir(parents=True, exist_ok=True)
    save_figure(headline_figure(), IMAGES / "headline")[1].unlink()
    for name in recipe_names():
        for group in of(name):
            chosen = group.recipe(name)
            if chosen.figure is not None:
                named, cells = labelled(group, name)
                drawn = draw(named, kept(group.file), group.encoder, cells, changes=group.changes)
                if drawn is not None:
                    png, svg = save_figure(drawn, image(group, name).with_suffix(""))
                    svg.unlink()
                    print(png)


SHOWN = {
    **{"Standard": "plain", "FreeLB": "FreeLB", "ASCC": "ASCC", "RIFT": "RIFT", "SWAP": "SWAP"},
    **{"Smoothed 1": "smoothed", "Smoothed 1 + SWAP": "smoothed + SWAP"},
}


def headline_figure() -> Any:
    """The README's: clean accuracy against the worst attack of the known dictionary, an encoder per panel."""
    from unshaken_experiments.figure import interval
    from unshaken_experiments.paper_figures import tradeoff_panels

    panels = {}
    for group in of("ours-smoothing"):
        all_defences = [found(own, "ours-calibrated") for own in of("ours-calibrated") if own.encoder == group.encoder]
        points = best_known([found(group, "ours-smoothing"), *all_defences])
        panels[TITLES[group.encoder]] = {
            SHOWN[method]: (interval(clean), interval(worst)) for method, (clean, worst) in points.items()
        }
    return tradeoff_panels(panels, y_label="worst of PWWS and Genetic (%)")


def best_known(tables: Sequence[Sequence[Cell]]) -> dict[str, tuple[Cell, Cell]]:
    """Clean and worst case of each method shown, both of one table: that with more seeds, then the later one."""
    points: dict[str, tuple[Cell, Cell]] = {}
    for table in tables:
        by_place = {(cell.method, cell.column): cell for cell in table if cell.ours is not None}
        for method in SHOWN:
            worst = by_place.get((method, "Worst, known"))
            if worst and (method not in points or len(worst.seeds) >= len(points[method][1].seeds)):
                points[method] = by_place[method, "Clean"], worst
    return {method: points[method] for method in SHOWN if method in points}


def main(words: list[str]) -> None:
    if words[:1] == ["collect"]:
        collect([word for word in words[1:] if word != "--again"], again="--again" in words)
    elif words == ["figures"]:
        figures()
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
