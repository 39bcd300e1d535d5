"""Other people's methods: by path from the command line, by entry points of an installed package, and what to cite."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from unshaken import names
from unshaken.attacks import ATTACKS, PWWS, HullAttack, Transfer
from unshaken.certificates import CERTIFICATES
from unshaken.cli.evaluate import parse_attacks
from unshaken.connections import parse as parse_connection
from unshaken.defences import DEFENCES, RIFT
from unshaken.errors import UnshakenError
from unshaken.evaluation import TrainingRecord, citations
from unshaken.solvers import SOLVERS
from unshaken.substitutions import SUBSTITUTIONS
from unshaken.tasks import known_task

MODULE = """
from typing import ClassVar
from unshaken.attacks import PWWS
from unshaken.defences import Standard
from unshaken.solvers import Anderson
from unshaken.substitutions import Dictionary
from unshaken.tasks import TASKS
from dataclasses import dataclass, field, replace

@dataclass(frozen=True, kw_only=True)
class Own(PWWS):
    name: ClassVar[str] = "own"
    white_box: ClassVar[bool] = True
    citation: ClassVar[tuple[str, ...]] = ("@misc{own, title = {Mine}}", "ren-etal-2019-generating")

@dataclass(frozen=True, kw_only=True)
class Shop(Dictionary):
    entries: dict = field(default_factory=lambda: {"good": ["fine"]})
    size: int = 1

class Mine(Standard): ...
TASK = replace(TASKS["sst2"], name="own-task")
class Faster(Anderson): ...
"""
POINTS = """
[unshaken.attacks]
own = their_methods:Own
broken = their_methods:Missing
[unshaken.defences]
mine = their_methods:Mine
[unshaken.substitutions]
Shop_Words = their_methods:Shop
[unshaken.tasks]
own-task = their_methods:TASK
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed distribution with a module and entry points."""
    about = tmp_path / "their_methods-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: their-methods\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(POINTS)
    (tmp_path / "their_methods.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "their_methods", raising=False)
    names.installed.cache_clear()
    yield tmp_path
    names.installed.cache_clear()


def test_installed_packages_add_names(package: Path) -> None:
    assert "their_methods" not in sys.modules
    assert "own" in names.installed("attack")
    assert "their_methods" not in sys.modules  # nothing runs before it is named
    (attack,) = parse_attacks(["own:query_budget=7"], "shop-words:size=2")
    assert (type(attack).__name__, attack.name, attack.query_budget) == ("Own", "own", 7)  # type: ignore[attr-defined]
    assert attack.substitutions.candidates(["good"], 0) == ["fine"]  # type: ignore[attr-defined]
    assert type(names.from_spec("defence", "mine", DEFENCES)).__name__ == "Mine"
    found = known_task("own_task")
    assert found is not None
    assert found.name == "own-task"
    assert known_task("no-such-task") is None


def test_what_ships_comes_first_and_what_is_broken_says_so(package: Path) -> None:
    assert names.lookup("attack", "pwws", ATTACKS) is PWWS
    with pytest.raises(UnshakenError, match=r"attack 'broken' of their-methods .* cannot be loaded"):
        names.lookup("attack", "broken", ATTACKS)
    with pytest.raises(UnshakenError, match="did you mean 'own'"):
        names.lookup("attack", "owns", ATTACKS)


@pytest.mark.full
def test_paths_without_a_dot_name_a_module_of_this_folder(package: Path) -> None:
    """The installed command does not have the working folder on its path; `mine:Cls` finds it all the same."""
    program = (
        f"import sys; sys.path = [p for p in sys.path if p not in ('', {str(package)!r})]\n"
        "from unshaken.cli.evaluate import parse_attacks\n"
        "print(parse_attacks(['their_methods:Own:query_budget=7'], 'their_methods:Shop:size=3')[0].query_budget)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=package, capture_output=True, text=True)
    assert done.stdout.strip() == "7", done.stderr


def test_paths_are_for_commands(package: Path) -> None:
    made = parse_connection("implicit", layers="1", solver="their_methods:Faster:steps=4", allow_paths=True)
    assert made is not None
    assert (type(made.solver).__name__, made.solver.steps) == ("Faster", 4)  # type: ignore[attr-defined]
    for kind, spec, table in (
        ("attack", "their_methods:Own", ATTACKS),
        ("substitutions", "their_methods:Shop", SUBSTITUTIONS),
        ("solver", "their_methods:Faster", SOLVERS),
    ):
        with pytest.raises(UnshakenError, match="class paths are taken from the command line only"):
            names.from_spec(kind, spec, table)
    with pytest.raises(UnshakenError, match="is not key=value"):
        names.from_spec("attack", "pwws:Own", ATTACKS, allow_paths=True)


def test_traits_are_written_where_they_are_not_the_usual_ones(package: Path) -> None:
    own = names.from_spec("attack", "own", ATTACKS).settings()
    assert own["white_box"] is True
    assert "needs_scores" not in own
    assert {"white_box": True, "needs_scores": False}.items() <= HullAttack().settings().items()
    assert "white_box" not in PWWS().settings()
    assert Transfer(source="x").settings()["attack"]["citation"] == list(PWWS.citation)


# ------------------------------------------------------------------------------------------------------------- papers


PLACES = {"@inproceedings": "booktitle", "@article": "journal"}


def test_every_paper_is_used_and_every_name_is_known() -> None:
    tables = (ATTACKS, CERTIFICATES, DEFENCES)
    used = {name for table in tables for item in table.values() for name in getattr(item, "citation", ())}
    parts = {name for part in RIFT().parts for name in part.citation}
    assert used | parts | {citations.CONNECTION} == set(citations.entries())
    for key, entry in citations.entries().items():
        kind = entry.partition("{")[0]
        assert entry.startswith(f"{kind}{{{key},")
        assert entry.count("{") == entry.count("}")
        assert all(f"  {field} = " in entry for field in ("title", "author", PLACES[kind], "year"))


def record(method: str, **details: object) -> TrainingRecord:
    return TrainingRecord(method=method, seed=0, base_model="bert", task="sst2", details=details)


def test_a_record_names_its_papers() -> None:
    keys = list(citations.entries())

    def cited(made: TrainingRecord) -> list[str]:
        return [key for key in keys if citations.entries()[key] in citations.of_record(made)]

    assert cited(record("rift + im-bert 4-6")) == ["kim-etal-2024-im", "dong-etal-2021-how"]
    assert cited(record("rift-imdb")) == ["dong-etal-2021-how"]
    parts = [{"name": "ASCC", "steps": 10}, {"name": "InformativeTerm"}]
    assert cited(record("mine", defence=parts)) == ["dong-etal-2021-how", "dong-etal-2021-towards"]
    assert cited(
        record("mine", defence=[{"name": "X", "citation": ["zhu-etal-2020-freelb", 3]}], connection={"a": 1})
    ) == [
        "kim-etal-2024-im",
        "zhu-etal-2020-freelb",
    ]
    assert cited(record("standard", defence=[{"name": "Standard"}])) == []
    assert citations.of_record(record("x", defence=["text", 3, {"name": ["x"], "citation": "text"}])) == []


def test_entries_of_others_are_shown_not_obeyed() -> None:
    assert citations.bibtex(["@misc{x, title = {\x1b[2J}}", "no-such-key"]) == ["@misc{x, title = {\\x1b[2J}}"]


@pytest.mark.full
def test_cite_prints_the_papers_of_a_model(unshaken: Any, tmp_path: Path) -> None:
    record("freelb", defence=[{"name": "FreeLB"}]).save(tmp_path)
    _, out, _ = unshaken("cite", tmp_path)
    assert out.strip() == citations.entries()["zhu-etal-2020-freelb"]
    code, out, err = unshaken("cite", tmp_path.parent)
    assert (code, out) == (2, "")
    assert "holds neither a report.json nor a model" in err
