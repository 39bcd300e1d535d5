"""The numbers of the pages are those of the raw records, by code that shares nothing with the code that wrote them."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import runpy
import shutil
import subprocess
import sys

import pytest
from shell_lines import ROOT

SCRIPT = ROOT / "scripts" / "recompute.py"
RESULTS, FOUND, WHICH = "docs/results.md", "docs/what-we-found.md", "docs/defences/which.md"
BOARD = "docs/leaderboard.md"


@pytest.fixture(scope="module")
def recompute():
    sys.path.insert(0, str(SCRIPT.parent))
    spec = importlib.util.spec_from_file_location("recompute", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(SCRIPT.parent))


@pytest.fixture(scope="module")
def checkout(recompute):
    return recompute.Checkout(ROOT)


def read(page):
    return (ROOT / page).read_text(encoding="utf-8")


def filled(name, lines):
    return "\n".join([f"<!-- {name} -->", *lines, f"<!-- /{name} -->"])


def wrong(recompute, checkout, page, text):
    findings = recompute.Findings()
    recompute.check_page(findings, page, text, checkout)
    return findings.wrong


def test_every_number_is_that_of_the_records(recompute, checkout, capsys):
    status = recompute.main([])
    told = capsys.readouterr().out
    assert status == 0, told


@pytest.mark.parametrize("page", ["README.md", RESULTS, FOUND, WHICH, BOARD])
def test_every_filled_place_of_our_results_is_computed_again(recompute, checkout, page):
    for name, lines in recompute.blocks(read(page)):
        findings = recompute.Findings()
        recompute.check_page(findings, page, filled(name, lines), checkout)
        assert findings.unchecked == {}, name
        assert findings.cells[page] >= max(1, recompute.numeric_cells(lines)), name
    findings = recompute.Findings()
    recompute.check_sentences(findings, page, read(page), checkout)
    assert findings.cells[page] == len(re.findall("<!--n ", read(page)))


def test_what_nobody_computes_is_named_whatever_it_holds(recompute, checkout):
    findings = recompute.Findings()
    recompute.check_page(findings, "page", "<!-- mine -->\n\n| a |\n| --- |\n| few |\n\n<!-- /mine -->\n", checkout)
    assert list(findings.unchecked) == [("page", "mine", recompute.ONE_RUN)]


def test_it_asks_nothing_of_the_code_that_wrote_the_pages():
    code = f"import sys, runpy; sys.argv = ['recompute.py', 'README.md']; sys.path.insert(0, {str(SCRIPT.parent)!r})\n"
    code += f"try: runpy.run_path({str(SCRIPT)!r}, run_name='__main__')\n"
    code += "except SystemExit as end: status = end.code\n"
    code += "print(status, sorted(name for name in sys.modules if name.split('.')[0] in "
    code += "('unshaken', 'unshaken_experiments', 'results', 'fill_tables', 'torch')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"


def digit(pattern):
    """Changes the digit that a pattern has in its group, where the page has it first."""

    def change(text):
        at = re.search(pattern, text).start(1)
        return text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :]

    return change


def other(pattern, text):
    """Puts something else in the place of a pattern's first match."""
    return lambda page: re.sub(pattern, text, page, count=1)


MEAN = r"\| \d+\.(\d) \[\d+\.\d, \d+\.\d\]"
PAIR = r"(\| CreAT \|.*\n)(\| R3F \|.*\n)"
FAULTS = {
    "a digit of a mean": (RESULTS, digit(MEAN)),
    "a digit of an interval's low end": (RESULTS, digit(r"\| \d+\.\d \[\d+\.(\d), ")),
    "a digit of an interval's high end": (RESULTS, digit(r"\| \d+\.\d \[\d+\.\d, \d+\.(\d)\]")),
    "a digit of the paper's": (RESULTS, digit(r"<br>paper \d+\.(\d)")),
    "a digit of a cost": (RESULTS, digit(r"\| \d+\.\d\d(\d)(?: \||<br>)")),
    "a star too many": (RESULTS, other(r"\| (\d+\.\d) \[", r"| \1\\* [")),
    "a star too few": (RESULTS, other(r"\| (\d+\.\d)\\\* \[", r"| \1 [")),
    "seeds that are not told": (RESULTS, other(r", \d of 3 seeds", "")),
    "a row by the name that records have": (RESULTS, other(r"\| plain \|", "| BERT |")),
    "two rows in each other's place": (RESULTS, other(PAIR, r"\2\1")),
    "two names in each other's place": (RESULTS, other(r"\| CreAT \|(.*\n)\| R3F \|", r"| R3F |\1| CreAT |")),
    "a row that is gone": (RESULTS, other(PAIR, r"\1")),
    "a row twice": (RESULTS, other(PAIR, r"\1\1\2")),
    "a cell that is gone": (RESULTS, other(r"(\| CreAT \|.*)\|.*\|\n", r"\1|\n")),
    "a table that is gone": (RESULTS, other(r"\n\|  \|(.*\n\|)+.*\n", "\n")),
    "a reason that is not the reason": (RESULTS, other("not say that one model answered all of them", "say nothing")),
    "a verdict": (RESULTS, other(r"\*\*cannot tell\*\*", "**repeats**")),
    "a mark of older code that is gone": (RESULTS, other(r" rows † \|", " rows |")),
    "a mark that nothing explains": (RESULTS, other(r"\n†: .*\n", "\n")),
    "code that is not told": (RESULTS, other(r" Made by .*? (?=`\*`|No difference)", " ")),
    "a commit": (RESULTS, other(r"Made by commit(s?) `\w", r"Made by commit\1 `x")),
    "a claim of ours that is gone": (RESULTS, other(r"\| A hull that holds every substitute .*\n", "")),
    "a paper's number where there is no paper": (RESULTS, other(r"(\(#ours-imdb\)) \|  \|", r"\1 | not printed |")),
    "a claim that is gone": (RESULTS, other(r"\| IM-BERT is above FreeLB .*\n", "")),
    "a majority": (RESULTS, digit(r"the most frequent label: SST-2 \d+\.(\d)")),
    "a count of stars": (RESULTS, digit(r"(\d) of \d+ differences;")),
    "a count of failures": (RESULTS, digit(r", (\d) runs: ")),
    "seconds of training": (RESULTS, digit(r"(\d) s of training")),
    "all that was run": (RESULTS, digit(r"(\d) training runs")),
    "a number in a sentence": (FOUND, digit(r"<!--n [^>]*gain-->[+-]\d+\.(\d)")),
    "a plain model at equal accuracy": (FOUND, digit(r"\| (\d)000 rows \|")),
    "a difference at equal accuracy": (FOUND, digit(r"\| 1000 rows \| [+-]\d+\.(\d)")),
    "a step that was watched": (FOUND, digit(r"\| as it was \| 0 \| \d+ \| no \| \d+(\d) ")),
    "a deviation": (WHICH, digit(r"± \d+\.(\d)")),
    "a hull": (WHICH, digit(r"in training, \d(\d)%")),
    "a difference of a mend": (WHICH, digit(r"\| ASCC: the hull \| [+-]\d+\.(\d)")),
    "a star of a mend": (WHICH, other(r"(\| ASCC: the hull \| [+-]\d+\.\d) ", r"\1\\* ")),
    "a peak of memory": (WHICH, digit(r"`968a07d` \| \d,\d+(\d) to")),
    "a count of runs": (WHICH, digit(r"\((\d+) runs\) \|\n")),
    "a rounded interval": ("docs/measured.md", digit(r"\| \d+\.\d \[\d(\d), ")),
    "a worst case": (BOARD, digit(r"\| SWAP \| \d+\.(\d) \[")),
    "what training cost": (BOARD, digit(r"\| SWAP \|[^|]*\|[^|]*\| \d+\.(\d) \|")),
    "a tie": (BOARD, other(r" \(tied\)", "")),
    "a rank": (BOARD, digit(r"\n\| (\d) \|")),
    "a count of flags": (BOARD, digit(r"same-substitutions \((\d)\)")),
    "a rate": ("docs/how-to/scaling.md", digit(r"\| imdb \| pwws \| .*\.\d(\d) \|")),
    "a fit": ("docs/how-to/scaling.md", digit(r"\| imdb \| \d+ \| \d+\.(\d) \| \d+\.\d \| \d+% \|")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_page_is_found(recompute, checkout, fault):
    page, change = FAULTS[fault]
    changed = change(read(page))
    assert changed != read(page)
    blocks = zip(recompute.blocks(changed), recompute.blocks(read(page)), strict=True)
    faulty = [filled(*block) for block, was in blocks if block != was]  # the rest of the page is as it was
    assert wrong(recompute, checkout, page, "\n".join(faulty or [changed]))


def test_a_wrong_page_is_told_by_place_and_ends_in_status_1(recompute, tmp_path, capsys, monkeypatch):
    (tmp_path / "docs").mkdir()
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    first = rf"\| FreeLB {MEAN}"
    changed = digit(first)(read(RESULTS))
    (tmp_path / RESULTS).write_text(changed, encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["recompute.py", "--root", str(tmp_path), RESULTS])
    with pytest.raises(SystemExit) as ended:  # as a script: what it computes must reach its status
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert ended.value.code == 1
    shown, computed = (re.search(first, text)[0].removeprefix("| FreeLB | ") for text in (changed, read(RESULTS)))
    place = "docs/results.md | im-bert-table-1, MiniLM-L6, 4,000 rows | FreeLB | SST-2"
    assert f"1 wrong\nwrong: {place}: shown {shown}, computed {computed}\n" in capsys.readouterr().out


def changed_records(tmp_path, file, change):
    """A copy of the records with one file changed, for the pages as they are."""
    shutil.copytree(ROOT / "experiments" / "reproduce", tmp_path / "experiments" / "reproduce")
    for name in ("unshaken_experiments", "defence_trial", "benchmarks"):
        (tmp_path / "experiments" / name).symlink_to(ROOT / "experiments" / name)
    path = tmp_path / "experiments" / "reproduce" / file
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    path.write_text("\n".join(json.dumps(record) for record in change(records)), encoding="utf-8")
    return tmp_path


def without_a_seed(records):
    return [record for record in records if record["run"]["seed"] != 2]


def with_a_model_trained_again(records):
    """One attack met another model than the other attack did: there is no worst case of the two."""
    for record in records:
        for key, one in record["measured"].items():
            one["model"] += "" if "pwws" in key else "again"
    return records


@pytest.mark.parametrize(
    ("change", "page", "column"),
    [
        (without_a_seed, "README.md", "Clean"),
        (with_a_model_trained_again, "README.md", "Worst, known"),
    ],
)
def test_a_fault_of_the_records_is_found(recompute, tmp_path, change, page, column):
    root = changed_records(tmp_path, "gte-calibrated.jsonl", change)
    told = wrong(recompute, recompute.Checkout(root), page, read(page))
    assert any("gte-calibrated" in line and f"| {column}: shown" in line for line in told)


def test_an_entry_of_two_seeds_has_no_rank_and_moves_none(recompute, tmp_path, monkeypatch):
    (tmp_path / "experiments").mkdir()
    board = shutil.copytree(ROOT / "experiments" / "board", tmp_path / "experiments" / "board")
    first = min(board.glob("*smoothed-2-swap*.json"))
    entry = json.loads(first.read_text(encoding="utf-8"))
    first.write_text(json.dumps({**entry, "models": entry["models"][:2]}), encoding="utf-8")
    monkeypatch.syspath_prepend(ROOT / "experiments")
    fill_tables = importlib.import_module("fill_tables")
    monkeypatch.setattr(fill_tables, "HERE", tmp_path / "experiments")
    shown = fill_tables.board()
    assert len(re.findall(r"\| not ranked \| ", shown)) == 1
    assert "None" not in shown
    findings = recompute.Findings()
    place = recompute.Place(findings, "page", "board")
    recompute.check_board(place, shown.splitlines(), recompute.Checkout(tmp_path), "")
    assert findings.wrong == []


TOTALS = {"attack": "pwws", "examples": 8, "accuracy_under_attack": [0.25, 0.375], "outcomes_that_differ": 4}
TOTALS |= {"queries": [800, 600], "seconds": [2.0, 0.5], "speed_up": 4.0}
SENTENCES = {"survived": ["11000000", "10110000"], "unconfirmed": [0, 1], "rows": [400, 300]}


@pytest.mark.parametrize(
    ("more", "unit", "moved", "told", "rates"),
    [
        # Two gained, one lost: a deviation of 0.641 over 8, and t(7) is 2.365. A fourth cannot have moved.
        (SENTENCES, "rows", "+12.5 [-41.1, +66.1]", ("0", "1"), ("200", "600", "3.00")),
        ({}, "queries", "+12.5 [-41.1, +66.1]", ("not recorded", "not recorded"), ("400", "1200", "3.00")),
        # One gained: a deviation of 0.354.
        (
            {"outcomes_that_differ": 1},
            "queries",
            "+12.5 [-17.1, +42.1]",
            ("not recorded",) * 2,
            ("400", "1200", "3.00"),
        ),
    ],
)
def test_scoring_in_bf16_has_its_differences_twice(recompute, tmp_path, monkeypatch, more, unit, moved, told, rates):
    folder = tmp_path / "experiments" / "benchmarks" / "gpu"
    folder.mkdir(parents=True)
    monkeypatch.syspath_prepend(ROOT / "experiments")
    fill_tables = importlib.import_module("fill_tables")
    monkeypatch.setattr(fill_tables, "HERE", tmp_path / "experiments")
    assert fill_tables.attacks_precision().startswith("Not measured yet: `python benchmarks/attacks.py precision`")

    about = {"device": "a card", "torch": "2", "model": "models/small"}
    lines = "\n".join(json.dumps(line) for line in (about, {**TOTALS, **more}))
    (folder / "precision.jsonl").write_text(lines, encoding="utf-8")
    shown = fill_tables.attacks_precision()
    caption, _, heading, _, row = shown.splitlines()
    assert caption == "device a card, torch 2"
    assert f"| {unit}/s, float32 | bf16 |" in heading
    differ = {4: ("4", "50.0 [21.5, 78.5]"), 1: ("1", "12.5 [2.2, 47.1]")}[more.get("outcomes_that_differ", 4)]
    cells = ["small", "pwws", "8", "25.0%", "37.5%", moved, *differ, *told, *rates, "4.00"]
    assert row == f"| {' | '.join(cells)} |"

    checkout, page = recompute.Checkout(tmp_path), filled("attacks-precision", shown.splitlines())
    assert wrong(recompute, checkout, "page", page) == []
    for number, cell in enumerate(cells):
        faulty = page.replace(row, f"| {' | '.join([*cells[:number], cell + '1', *cells[number + 1 :]])} |")
        assert wrong(recompute, checkout, "page", faulty), cell


def test_a_detection_is_told_by_its_mean_and_ends_over_seeds(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "experiments")
    fill_tables = importlib.import_module("fill_tables")
    monkeypatch.setattr(fill_tables, "HERE", tmp_path)
    assert fill_tables.detection() == "Not measured yet."
    folder = tmp_path / "benchmarks" / "gpu" / "detection"
    folder.mkdir(parents=True)
    shares = dict.fromkeys(("clean", "fooled", "fooled_unflagged", "fooled_jointly"), 0.25)
    for seed, (auroc, flagged) in enumerate([(0.9, 0.1), (0.8, 0.4), (None, None)]):
        found = {**shares, "clean": 0.8 + seed / 100, "auroc": auroc, "true_positives": flagged}
        (folder / f"smoothed-+-SWAP-s{seed}.json").write_text(json.dumps({"found": found}))
    (row,) = [line for line in fill_tables.detection().splitlines() if line.startswith("| smoothed")]
    told = ["smoothed + SWAP", "81.0 (80.0 to 82.0)", "85.0 (80.0 to 90.0)", "25.0 (10.0 to 40.0)"]
    assert row == f"| {' | '.join([*told, *['25.0 (25.0 to 25.0)'] * 3, '3'])} |"


CHOOSING = """
title = "A table that chooses"
paper = "ours"
about = "Nothing."
choose = { learning_rate = [1e-5, 1e-4] }
methods = [{ name = "plain" }, { name = "swap", settings = { defence = "swap" } }]
columns = [{ name = "Clean" }, { name = "FLOPs", measure = { what = "gflops" } }]
[our_settings]
task = "sst2"
"""
GROUP = '[[group]]\nfile = "m.jsonl"\nencoder = "minilm"\nrecipes = ["ours-small"]\nworkers = 1\n'


@pytest.fixture
def choosing(tmp_path):
    """A checkout whose recipe chooses: plain the second rate by the mean loss, swap none yet."""
    from unshaken_experiments import Measured, Outcome, cells, markdown, parse_recipe

    recipe = parse_recipe("ours-small", CHOOSING, "ours-small.toml")
    losses = {1e-5: (0.2, 0.2, 0.9), 1e-4: (0.3, 0.3, 0.3)}
    outcomes = []
    for method, seed in ((method, seed) for method in recipe.methods for seed in recipe.seeds):
        for run in recipe.candidates("minilm", method, recipe.columns[0], seed):
            rate = run.settings.learning_rate
            if (method.name, rate) != ("swap", 1e-4):
                training = {"seconds": 1.0, "steps": 2, "gflops": 1e4 * rate}
                training["held_out"] = {"by": "loss", "best": losses[rate][seed]}
                held = "1110" * 5 if rate == 1e-5 else "1000" * 5
                answers = {"sst2 clean": Measured(held=held, majority=0.5, data="x", model="m")}
                outcomes.append(Outcome(run=run, training=training, measured=answers))
    papers = tmp_path / "experiments" / "unshaken_experiments" / "papers"
    kept = tmp_path / "experiments" / "reproduce"
    for folder in (papers, kept):
        folder.mkdir(parents=True)
    (papers / "ours-small.toml").write_text(CHOOSING)
    (kept / "groups.toml").write_text(GROUP)
    (kept / "m.jsonl").write_text("".join(outcome.line() + "\n" for outcome in outcomes))
    table = markdown(recipe, cells(recipe, {one.run.key: one for one in outcomes}, "minilm"), 3, "minilm")
    lines = ['<a id="ours-small"></a>', "", "**MiniLM-L6, all rows**", "", table, "", "<details>"]
    return tmp_path, filled("results-ours", lines)


def test_a_choice_on_held_out_rows_is_made_again(recompute, choosing):
    root, page = choosing
    assert "learning_rate 0.0001: plain." in page
    assert "3 of 6 trainings have a held-out score" in page
    assert wrong(recompute, recompute.Checkout(root), RESULTS, page) == []


@pytest.mark.parametrize(
    "fault",
    {
        "the other's mean": ("| plain | 25.0", "| plain | 75.0"),
        "the other's cost": ("| 1 |", "| 0.1 |"),
        "another value told": ("learning_rate 0.0001: plain", "learning_rate 1e-05: plain"),
        "nothing told": ("Chosen for each method", "For each method"),
        "a choice among some": ("3 of 6 trainings", "6 of 6 trainings"),
    }.items(),
    ids=lambda fault: fault[0],
)
def test_a_wrong_choice_is_found(recompute, choosing, fault):
    root, page = choosing
    before, after = fault[1]
    assert before in page
    assert wrong(recompute, recompute.Checkout(root), RESULTS, page.replace(before, after))
