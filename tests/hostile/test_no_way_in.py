"""Files from others are data: none of them runs code, names code, or opens a file of its own choosing."""

from __future__ import annotations

import ast
import functools
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from report_parts import made_evaluation, run, save_model, tiny_model

import unshaken
import unshaken_experiments
from unshaken import Victim
from unshaken.attacks import ATTACKS
from unshaken.cli import main
from unshaken.cli.known import TABLES
from unshaken.connections import Connection
from unshaken.defences import parse as parse_defence
from unshaken.errors import UnshakenError
from unshaken.names import from_spec
from unshaken.reports import Report
from unshaken.solvers import SOLVERS
from unshaken_experiments import load_recipe, plan
from unshaken_experiments.inputs import attack_of, substitutions_of, training_rows

SOURCES = [Path(package.__file__).parent for package in (unshaken, unshaken_experiments)]

# ------------------------------------------------------------------------------------------------- the source itself

# Modules that make objects out of bytes, or unpack archives. None is needed: weights are safetensors, results are JSON.
FORBIDDEN_MODULES = {
    "pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml", "zipfile", "tarfile",
}  # fmt: skip
FORBIDDEN_CALLS = {
    "eval", "exec", "compile", "__import__", "torch.load", "torch.jit.load", "torch.save", "np.load", "numpy.load",
    "pd.read_pickle", "pandas.read_pickle", "yaml.load", "os.system", "os.popen", "shutil.unpack_archive",
}  # fmt: skip
# Who may import a module by a name that is not written in the source, and why.
IMPORTERS = {
    "names.py": "class paths, where `allow_paths` is given, and our own modules (`at`)",
    "__init__.py": "the public names, from a table",
    "connections/auto.py": "transformers' own modules, from the table of backbones",
    "cli/listing.py": "the tables that `unshaken list` prints",
}


@functools.cache
def trees() -> list[tuple[str, ast.Module]]:
    return [
        (path.relative_to(folder).as_posix(), ast.parse(path.read_text(encoding="utf-8")))
        for folder in SOURCES
        for path in sorted(folder.rglob("*.py"))
    ]


@functools.cache
def calls() -> list[tuple[str, str, ast.Call]]:
    nodes = [(name, node) for name, tree in trees() for node in ast.walk(tree)]
    return [(name, ast.unparse(node.func), node) for name, node in nodes if isinstance(node, ast.Call)]


def imports() -> Iterator[tuple[str, str]]:
    for name, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from ((name, item.name) for item in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield name, node.module or ""


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((item.value for item in call.keywords if item.arg == name), None)


def test_the_walk_sees_the_source() -> None:
    assert len(trees()) > 100
    assert any(module == "torch" for _, module in imports())


def test_no_module_that_makes_objects_out_of_bytes() -> None:
    found = {(name, module) for name, module in imports() if module.split(".")[0] in FORBIDDEN_MODULES}
    assert not found


def test_nothing_is_evaluated() -> None:
    found = {(name, called) for name, called, _ in calls() if called in FORBIDDEN_CALLS}
    assert not found


def test_no_shell() -> None:
    shells = {name for name, _, call in calls() if keyword(call, "shell") is not None}
    assert not shells


def test_models_come_in_by_one_door() -> None:
    """`pretrained.load` asks for no remote code; whoever called transformers past it might be asked to run some."""
    ours = ("Victim", "ModelVictim", "super()")
    loaders = {
        name for name, called, _ in calls() if called.endswith(".from_pretrained") and not called.startswith(ours)
    }
    assert loaders == {"pretrained.py"}
    trusting = [
        (name, value.value)
        for name, _, call in calls()
        for option in ("trust_remote_code", "weights_only")
        if isinstance(value := keyword(call, option), ast.Constant) and value.value is (option == "trust_remote_code")
    ]
    assert not trusting


def test_class_paths_are_taken_by_commands_alone() -> None:
    allowing = {name for name, _, call in calls() if isinstance(keyword(call, "allow_paths"), ast.Constant)}
    assert allowing
    assert all(name.startswith("cli/") for name in allowing)
    importing = {name for name, called, _ in calls() if called.endswith("import_module")}
    assert importing <= IMPORTERS.keys()
    ours = [(name, ast.unparse(call.args[0])) for name, called, call in calls() if called == "at"]
    assert len(ours) > 5
    written = {"evaluation/report.py": "WRITERS[path.suffix]", "cli/known.py": "path", "cli/listing.py": "path"}
    assert all(path.startswith("'unshaken.") or path == written.get(name) for name, path in ours)
    # What the last two of them take are the tables of the command line, which are ours.
    assert all(path.startswith(("unshaken.", "unshaken_experiments:")) for path in TABLES.values())


# ---------------------------------------------------------------------------------------------------- names and paths


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that leaves a file behind when it is imported; the file must never appear."""
    sprung = tmp_path / "sprung"
    (tmp_path / "trap_box").mkdir()
    (tmp_path / "trap_box" / "__init__.py").write_text("")
    (tmp_path / "trap_box" / "inner.py").write_text(
        f"open({str(sprung)!r}, 'w').close()\n"
        "from unshaken.attacks import PWWS as Own\nfrom unshaken.solvers import Anderson\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "trap_box.inner", raising=False)
    return sprung


def test_the_trap_springs_where_a_user_asks_for_a_class_path(trap: Path) -> None:
    from_spec("attack", "trap_box.inner:Own", ATTACKS, allow_paths=True)
    assert trap.exists()


def test_text_from_files_names_no_class(trap: Path, tmp_path: Path) -> None:
    path = "trap_box.inner:Own"
    saved = Connection().to_dict()
    attempts = [
        lambda: from_spec("attack", path, ATTACKS),
        lambda: from_spec("solver", "trap_box.inner:Anderson:steps=3", SOLVERS),
        lambda: parse_defence(f"standard+{path}"),
        lambda: Connection.from_dict({**saved, "solver": {**saved["solver"], "name": path}}),
        lambda: Connection.from_dict({**saved, "gradient": {**saved["gradient"], "name": path}}),
        lambda: attack_of(path, "wordnet", None),
        lambda: substitutions_of(path, None),
    ]
    for attempt in attempts:
        with pytest.raises(UnshakenError):
            attempt()
    assert not trap.exists()


def test_a_report_names_no_class(trap: Path, tmp_path: Path) -> None:
    """Names in results are shown, whatever they say, and never looked up."""
    written = Report(evaluations=(made_evaluation(run("xo", attack="trap_box.inner:Own"), total=2),))
    for suffix in (".json", ".html", ".md", ".tex", ".csv"):
        Report.load(written.save(tmp_path / "report.json")).save(tmp_path / f"again{suffix}")
    assert not trap.exists()


RECIPE = """
title = "Mine"
paper = "ours"
about = "Hostile."
methods = [{{ name = "plain", settings = {{ {settings} }} }}]
columns = [{{ name = "clean" }}]
[our_settings]
task = "sst2"
"""


@pytest.mark.parametrize(
    "settings",
    [
        'defence = "trap_box.inner:Own"',
        'connection = "trap_box.inner:Own"',
        'solver = "trap_box.inner:Anderson:steps=3"',
    ],
)
def test_a_recipe_names_no_class(trap: Path, tmp_path: Path, settings: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE.format(settings=settings))
    with pytest.raises(UnshakenError):
        plan([load_recipe(path)], "minilm")
    assert not trap.exists()


@pytest.mark.parametrize("task", ["../secret.csv", "/etc/passwd", "secret.csv", "owner/name", "~/x.jsonl"])
def test_a_recipe_opens_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str) -> None:
    (tmp_path / "secret.csv").write_text("text,label\na,1\nb,0\n")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path if task == "secret.csv" else tmp_path / "below")
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE.format(settings=f'task = "{task}"'))
    (job,) = plan([load_recipe(path)], "minilm", seeds=[0])
    with pytest.raises(UnshakenError, match="unknown task"):
        training_rows(job.run.settings, 0, None)


@pytest.mark.parametrize("name", ["dictionary:path=x.json", "embedding:vectors=/etc/passwd", "masked-lm:model=owner/x"])
def test_a_recipe_names_no_substitution_file_and_no_model(name: str) -> None:
    with pytest.raises(UnshakenError, match="no files and no models"):
        substitutions_of(name, None)


@pytest.mark.parametrize(
    "part", ["../../../tmp/x", "/etc/x", "..", "a/b", "a\\b", "\x00", "CON", "." * 300, "😀" * 200]
)
def test_results_of_a_run_stay_in_their_folder(tmp_path: Path, part: str) -> None:
    from unshaken_experiments.runs import Outcome, Run, Settings

    run = Run(encoder=part, seed=0, settings=Settings(task=part, defence=part, connection=part, layers=part))
    assert Outcome(run=run).save(tmp_path).parent == tmp_path
    assert len(list(tmp_path.iterdir())) == 1


# ------------------------------------------------------------------------------------------------------------- models


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    save_model(folder, tiny_model())
    return folder


def with_code(folder: Path, sprung: Path, *, known_type: bool) -> Path:
    """A model that brings a Python file, as some on the hub do."""
    (folder / "modeling_own.py").write_text(
        f"open({str(sprung)!r}, 'w').close()\n"
        "from transformers import BertConfig as OwnConfig\n"
        "from transformers import BertForSequenceClassification as OwnModel\n"
    )
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {
        "AutoConfig": "modeling_own.OwnConfig",
        "AutoModelForSequenceClassification": "modeling_own.OwnModel",
    }
    config["model_type"] = "bert" if known_type else "nobody-knows-this"
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_model_that_brings_code_is_refused_at_once(model_folder: Path, tmp_path: Path) -> None:
    sprung = tmp_path / "sprung"
    with pytest.raises(UnshakenError, match=r"brings Python code of its own.*--trust-remote-code"):
        Victim.from_pretrained(with_code(model_folder, sprung, known_type=False), device="cpu")
    assert not sprung.exists()


def test_code_beside_a_known_model_is_not_run(model_folder: Path, tmp_path: Path) -> None:
    sprung = tmp_path / "sprung"
    victim = Victim.from_pretrained(with_code(model_folder, sprung, known_type=True), device="cpu")
    assert type(victim.model).__module__.startswith("transformers.")
    assert not sprung.exists()


@pytest.mark.parametrize("command", ["attack", "evaluate", "train", "doctor"])
def test_no_command_runs_a_model_s_code_unasked(
    command: str,
    model_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sprung = tmp_path / "sprung"
    folder = str(with_code(model_folder, sprung, known_type=False))
    (tmp_path / "rows.csv").write_text(
        "text,label\n" + "".join(f"film {number},{number % 2}\n" for number in range(20))
    )
    task = ["--task", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "out")]
    arguments = {"doctor": [folder], "train": ["--model", folder, *task, "--cpu"]}.get(command, [folder, *task])
    monkeypatch.setattr(sys, "argv", ["unshaken", command, *arguments])
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked whether to run the code"))
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "brings Python code of its own" in capsys.readouterr().err
    assert not sprung.exists()


class Spring:
    """What a pickle can do: `torch.load` without `weights_only` would call this."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (self.path, "w"))


def test_weights_in_pickle_form_make_tensors_and_nothing_else(model_folder: Path, tmp_path: Path) -> None:
    sprung = tmp_path / "sprung"
    state = tiny_model().state_dict()
    (model_folder / "model.safetensors").unlink()
    torch.save(state, model_folder / "pytorch_model.bin")
    assert Victim.from_pretrained(model_folder, device="cpu").num_labels == 2
    torch.save({**state, "classifier.bias": Spring(sprung)}, model_folder / "pytorch_model.bin")
    with pytest.raises(UnshakenError, match="cannot load the model"):
        Victim.from_pretrained(model_folder, device="cpu")
    (model_folder / "pytorch_model.bin").write_bytes(pickle.dumps(Spring(sprung)))
    with pytest.raises(UnshakenError, match="cannot load the model"):
        Victim.from_pretrained(model_folder, device="cpu")
    assert not sprung.exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b"{"),
        ("config.json", b'{"model_type": "bert", "num_hidden_layers": "many"}'),
        ("config.json", b'{"model_type": "bert", "hidden_size": -1}'),
        ("config.json", b'{"model_type": "unshaken-bert", "connection": {"solver": {"name": "os.path:join"}}}'),
        ("config.json", b"[" * 5000),
        ("model.safetensors", b""),
        ("model.safetensors", b"\xff" * 100),
        ("tokenizer.json", b"{}"),
        ("tokenizer.json", b'{"version": "1.0", "model": 3}'),
        ("tokenizer_config.json", b"null"),
    ],
)
def test_a_broken_model_folder_is_one_line(model_folder: Path, name: str, content: bytes) -> None:
    (model_folder / name).write_bytes(content)
    with pytest.raises(UnshakenError) as caught:
        Victim.from_pretrained(model_folder, device="cpu")
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_model_is_trusted_where_the_user_says_so(model_folder: Path, tmp_path: Path) -> None:
    """In a process of its own: transformers keeps the module it imported."""
    sprung = tmp_path / "sprung"
    folder = with_code(model_folder, sprung, known_type=False)
    code = (
        "import sys; from unshaken import Victim\n"
        f"Victim.from_pretrained({str(folder)!r}, device='cpu', trust_remote_code=True)"
    )
    cache = {"HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **cache}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert sprung.exists()


FINGERPRINT = """
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from unshaken.victims.object_digest import object_digest
texts, labels = ["a good film", "a bad film", "fine", "poor plot"] * 3, [1, 0, 1, 0] * 3
for model in (LogisticRegression(), LogisticRegression(C=2.0), RandomForestClassifier(3, random_state=0)):
    print(object_digest(make_pipeline(TfidfVectorizer(stop_words="english"), model).fit(texts, labels)).hex())
"""


@pytest.mark.slow
def test_a_pipeline_is_told_from_another_without_pickle() -> None:
    """The same in every process, also where sets are walked in another order."""
    found = []
    for seed in ("1", "2"):
        command = [sys.executable, "-c", FINGERPRINT]
        done = subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        found.append(done.stdout.split())
    assert found[0] == found[1]
    assert len(set(found[0])) == 3
