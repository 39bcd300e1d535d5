"""The notebooks run from their first cell to their last, with a tiny model in the place of MiniLM."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
# What takes the place of the cell that is tagged `parameters`.
SMALL = {
    "compare_defences": {"ROWS": 24, "EPOCHS": 1, "ATTACKED": 3, "DEFENCES": ["standard", "swap:variants=2"]},
    "harden_your_classifier": {"ROWS": 24, "EPOCHS": 1, "ATTACKED": 2},
    "scan_a_guard": {"SEARCH": 1},
}


def code_cells(name: str) -> list[dict[str, Any]]:
    notebook = json.loads((EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell as Jupyter does; its last expression is shown."""
    *body, last = ast.parse(source).body
    exec(compile(ast.Module([*body], []), "cell", "exec"), names)
    if not isinstance(last, ast.Expr):
        exec(compile(ast.Module([last], []), "cell", "exec"), names)
        return None
    shown = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    return shown._repr_html_() if hasattr(shown, "_repr_html_") else repr(shown)


def test_every_notebook_is_here_and_has_no_output() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.ipynb")} == SMALL.keys()
    for name in SMALL:
        assert not [cell for cell in code_cells(name) if cell["outputs"] or cell["execution_count"]]


@pytest.mark.full
@pytest.mark.parametrize("name", SMALL)
def test_a_notebook_runs(name: str, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "notebook"}
    shown = []
    for cell in code_cells(name):
        source = "".join(cell["source"])
        if "parameters" in cell["metadata"].get("tags", ()):
            run_cell(source, names)
            assert names.keys() >= SMALL[name].keys()
            names |= SMALL[name] | {key: tiny for key in ("MODEL",) if key in names}
        else:
            shown.append(run_cell(source, names))
    assert [text for text in shown if text and len(text) < 200_000]
    assert list((tmp_path / "out").rglob("*.html"))
