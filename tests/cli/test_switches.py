"""Switches that mean the same everywhere, lists that answer, and answers before anything heavy is loaded."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from unshaken.cli import known
from unshaken.cli.evaluate import parse_certificates
from unshaken.cli.known import TABLES, names_in, require_known
from unshaken.names import at
from unshaken.readers import READERS


@pytest.fixture
def reviews(tmp_path, write_rows):
    rows = [(f"{word} film number {n}", label) for n in range(12) for word, label in (("good", "pos"), ("bad", "neg"))]
    return write_rows(tmp_path / "reviews.csv", ("text", "label"), *rows)


def test_data_come_after_the_command_and_seeds_side_by_side(unshaken, tiny, reviews, tmp_path):
    out = tmp_path / "run"
    options = ["--model", tiny, "--device", "cpu", "--epochs", 1, "--batch-size", 8]
    code, _, err = unshaken("train", reviews, *options, "--seeds", "0,1", "--out", out)
    assert code == 0, err
    seeds = [json.loads((out / f"seed-{n}" / "model" / "unshaken_training.json").read_text())["seed"] for n in (0, 1)]
    assert seeds == [0, 1]
    report = json.loads((out / "report.json").read_text())
    assert len(report["evaluations"]) == 2
    held_out = [out / f"seed-{n}" / "held-out.jsonl" for n in (0, 1)]
    assert held_out[0].read_text() == held_out[1].read_text()  # rows that are new to the models of all seeds
    code, shown, err = unshaken(
        "evaluate", out / "seed-0", out / "seed-1", held_out[1], "--device", "cpu", "--out", tmp_path / "e"
    )
    assert code == 0, err
    assert "trained-on" not in shown


def test_a_seed_that_an_attack_names_is_its_own(unshaken, tiny, reviews, tmp_path):
    """It was overwritten by that of the command, and two seeds became one attack."""
    (tmp_path / "words.json").write_text(json.dumps({"good": ["fine", "great"], "bad": ["poor"]}))
    options = ["--substitutions", f"dictionary:{tmp_path / 'words.json'}", "--device", "cpu", "--out", tmp_path / "run"]
    chosen = f"random:samples=2,seed=3,random:samples=2,seed=4,random:samples=2,transfer:source={tiny}"
    code, _, err = unshaken("attack", tiny, reviews, "--attack", chosen, "--seed", 7, *options)
    assert code == 0, err
    runs = json.loads((tmp_path / "run" / "report.json").read_text())["evaluations"][0]["attacks"]
    assert [run["settings"].get("seed") for run in runs] == [3, 4, 7, None]
    assert runs[3]["settings"]["attack"]["seed"] == 7
    certificates = parse_certificates(["ranmask:seed=3,ranmask"], None, 7)
    assert [item.seed for item in certificates] == [3, 7]


@pytest.mark.parametrize("command", ["harden", "train"])
def test_a_seed_splits_a_task_in_any_spelling_and_no_file(unshaken, reviews, tmp_path, monkeypatch, command):
    """Of a file, the same rows are to be new to the models of every seed."""
    seeds = []

    def noted(*_, seed, **__):
        seeds.append(seed)
        raise KeyboardInterrupt

    monkeypatch.setattr("unshaken.tasks.load_task", noted)
    for data in ("sst2", "SST2", reviews):
        unshaken(command, data, "--seed", 3, "--out", tmp_path / "run")
    assert seeds == [3, 3, 0]


def test_harden_chooses_rate_and_epochs_as_train_does(unshaken, tiny, reviews, tmp_path, monkeypatch):
    """With few rows three epochs would end at the majority; what is given is taken."""
    plans = []

    def noted(plan):
        plans.append(plan.arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr("unshaken.training.hardening.fine_tune", noted)
    for words in ([], ["--epochs", 2, "--learning-rate", 3e-5, "--device", "cpu"]):
        unshaken("harden", reviews, "--model", tiny, *words, "--out", tmp_path / str(len(words)))
    left_open, given = plans
    assert not {"num_train_epochs", "learning_rate"} & left_open.keys()
    assert not left_open["use_cpu"]
    assert (given["num_train_epochs"], given["learning_rate"], given["use_cpu"]) == (2, 3e-5, True)


@pytest.mark.parametrize("command", ["harden", "train"])
def test_a_device_that_training_cannot_take_is_refused(refused, tiny, reviews, tmp_path, monkeypatch, command):
    """The trainer chooses its GPUs itself; what it cannot be told must not be taken and forgotten."""
    import torch

    words = [command, reviews, "--model", tiny, "--out", tmp_path / "run"]
    assert "leave one out" in refused(*words, "--cpu", "--device", "cuda")
    assert "give cpu" in refused(*words, "--device", "mps")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert "CUDA_VISIBLE_DEVICES=1 in place of --device cuda:1" in refused(*words, "--device", "cuda:1")
    assert not (tmp_path / "run").exists()


def test_fractions_for_labels_are_asked_about(refused, unshaken, tiny, tmp_path, write_rows):
    data = write_rows(tmp_path / "stars.csv", ("text", "label"), *((f"film {n}", f"{n / 10}") for n in range(20)))
    line = refused("train", data, "--model", tiny, "--cpu", "--out", tmp_path / "run")
    assert "--regression" in line
    assert "fractions (0" in line
    assert "fractions (0" in refused("harden", data, "--model", tiny, "--cpu", "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_harden_says_which_column_it_took_for_the_label(unshaken, tiny, tmp_path, write_rows, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("unshaken.training.hardening.fine_tune", interrupted)
    dates = [(f"film {n}", ("Monday", "Friday")[n % 2]) for n in range(20)]
    data = write_rows(tmp_path / "dated.csv", ("text", "day"), *dates)
    assert "the labels are column 'day'" in unshaken("harden", data, "--model", tiny, "--out", tmp_path / "run")[1]


@pytest.mark.parametrize(
    "words",
    [
        *(
            ["harden", "reviews.csv"],
            ["train", "reviews.csv"],
            ["demo"],
            ["doctor", "minilm"],
            ["scan", "m", "reviews.csv"],
        ),
        ["leaderboard", "score", "m", "--track", "minilm/known/sst2", "--name", "a"],
    ],
)
def test_a_file_where_a_folder_is_to_be_written_is_refused_at_once(words, unshaken, tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    code, _, err = unshaken(*words, "--out", file)
    assert code == 2
    assert "Invalid value for '--out'" in err
    assert "is a file" in err
    assert file.read_text() == "mine"


def test_graphs_are_refused_without_a_gpu_before_anything_is_written(refused, tiny, reviews, tmp_path, monkeypatch):
    import torch

    options = ["train", reviews, "--model", tiny, "--cuda-graphs", "--out", tmp_path / "run"]
    assert "this run is on the CPU" in refused(*options, "--cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    line = refused(*options)
    assert "no CUDA device was found" in line
    assert "leave it out" in line
    assert not (tmp_path / "run").exists()


def test_graphs_reach_the_trainer(unshaken, tiny, reviews, tmp_path, monkeypatch):
    """On a machine without a GPU the trainer passes by them: what it was asked for is all there is to see."""
    from unshaken.training.arguments import RobustTrainingArguments

    asked = []
    made = RobustTrainingArguments.__post_init__
    monkeypatch.setattr(
        RobustTrainingArguments, "__post_init__", lambda self: (asked.append(self.cuda_graphs), made(self))
    )
    monkeypatch.setattr(sys.modules["unshaken.cli.train"], "_require_one_gpu", lambda cpu: None)
    options = ["--model", tiny, "--cpu", "--epochs", 0.1, "--batch-size", 8]
    for switch in ([], ["--cuda-graphs"]):
        code, _, err = unshaken("train", reviews, *options, *switch, "--out", tmp_path / str(len(switch)))
        assert code == 0, err
    assert asked == [False, True]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), ["attacks", "tasks", "searches for a text", "training objectives"]),
        (("tasks",), ["67,349", "negative, positive", "hub nyu-mll/glue"]),
        (("attacks", "genetic"), ["population", "generations", "60", "WordNet(", "Untargeted("]),
        (("defences", "swap"), ["variants", "beta", "5.0"]),
    ],
)
def test_lists(unshaken, words, said):
    code, text, err = unshaken("list", *words)
    assert code == 0, err
    for word in said:
        assert word in text


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        ("attack", "unshaken attack [OPTIONS] MODEL [DATA]"),
        ("evaluate", "unshaken evaluate [OPTIONS] MODELS... [DATA]"),
        ("scan", "unshaken scan [OPTIONS] [MODEL] DATA"),
        ("harden", "unshaken harden [OPTIONS] DATA"),
        ("play", "unshaken play [OPTIONS] MODELS..."),
        ("list", "unshaken list [OPTIONS] [KIND] [NAME]"),
        ("leaderboard submit", "unshaken leaderboard submit [OPTIONS] ENTRY BOARD"),
    ],
)
def test_usage_is_what_one_types(unshaken, words, usage):
    code, text, err = unshaken(*words.split(), "--help")
    assert code == 0, err
    assert text.splitlines()[0].endswith(usage)


def test_every_line_of_the_leaderboard_is_whole(unshaken):
    _, text, _ = unshaken("leaderboard", "--help")
    assert "verify" in text
    assert "..." not in text.partition("Commands:")[2]


@pytest.mark.parametrize("name", ["train", "harden", "attack", "evaluate", "certify", "detect", "scan", "play"])
def test_every_command_that_asks_a_model_takes_a_device(unshaken, name):
    _, text, _ = unshaken(name, "--help")
    assert "--device" in text
    assert "--dtype" in text or name in ("train", "harden")  # which train in float32, or --bf16


def test_a_scan_of_nothing_says_what_is_missing(refused):
    assert "'reviews.csv' is less than needed: unshaken scan MODEL DATA" in refused("scan", "reviews.csv")


def test_a_name_in_a_list_that_is_not_there(refused):
    assert "did you mean 'genetic'" in refused("list", "attacks", "genetics")


@pytest.mark.parametrize(
    "words",
    [("train",), ("harden",), *((name, "model") for name in ("attack", "evaluate", "certify", "detect", "scan"))],
    ids=" ".join,
)
def test_a_missing_file_is_answered_before_torch_is_loaded(reviews, words):
    assert "did you mean reviews.csv?" in refused_without_torch(*words, "revews.csv", cwd=reviews.parent)


@pytest.mark.parametrize("command", ["train", "harden"])
@pytest.mark.parametrize(
    ("content", "answer"),
    [
        (b"", "rows.csv is empty"),
        (b"text,label\ngood,1\nbad,\n", "line 3 has no label"),
        (b"text,label\ncaf\xe9,1\nbad,0\n", "line 2 is not UTF-8"),
        (b"words,stars\ngood,1\nbad,0\n", "cannot tell which column is the text"),
        (b"a film of some charm,good\na bad film,bad\n", "the first line looks like a row and has to name the columns"),
        (b"id,text\n1,good\n2,bad\n", "no column has the labels; columns: 'id', 'text'; add one called 'label'"),
        (b"text,label\n" + b"good film,1\n" * 20, "every row has the label"),
    ],
)
def test_a_file_that_cannot_be_trained_on_is_answered_before_torch_is_loaded(tmp_path, command, content, answer):
    (tmp_path / "rows.csv").write_bytes(content)
    assert answer in refused_without_torch(command, "rows.csv", cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        (b"", "rows.csv is empty"),
        (b"text,label\ngood,1\nbad,\n", "1 of 2 rows have no label; the first has the id 'test/1'"),
        (b"text,label\ncaf\xe9,1\nbad,0\n", "line 2 is not UTF-8"),
        (b"words,stars\ngood,1\nbad,0\n", "cannot tell which column is the text"),
        (b"text,stars,day\ngood,1,2\nbad,0,3\n", "cannot tell which column is the label"),
        (b"text,label\ngood,1\n ,0\n", "line 3 has an empty text"),
    ],
)
@pytest.mark.parametrize("command", ["scan", "detect", "certify", "attack", "evaluate"])
def test_a_file_that_cannot_be_measured_on_is_answered_before_torch_is_loaded(tmp_path, command, content, answer):
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text("{}")
    (tmp_path / "rows.csv").write_bytes(content)
    assert answer in refused_without_torch(command, "model", "rows.csv", cwd=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "rows.csv"]


@pytest.mark.parametrize(
    ("content", "words", "answer"),
    [
        (b"text,label\ngood,1\nna\xefve,0\n", [], "line 3 is not UTF-8"),
        (b"text,label\n", [], "rows.csv has no rows"),
        (b"text,label\ngood,1\n", ["--text-column", "txt"], "did you mean 'text'?"),
    ],
)
def test_a_file_for_a_victim_of_ones_own_is_looked_at_before_it_is_imported(tmp_path, content, words, answer):
    """Which column is the text may be known to the victim alone, and is not asked."""
    (tmp_path / "rows.csv").write_bytes(content)
    (tmp_path / "guard.py").write_text("raise SystemExit('imported')\n")
    assert answer in refused_without_torch("scan", "--victim", "guard:model", "rows.csv", *words, cwd=tmp_path)


@pytest.mark.parametrize(("command", "run"), [("train", "out"), ("harden", "out/plain"), ("harden", "out/hardened")])
def test_checkpoints_of_an_earlier_run_are_told_before_torch_is_loaded(reviews, command, run):
    (reviews.parent / run / "checkpoints" / "checkpoint-4").mkdir(parents=True)
    told = refused_without_torch(command, str(reviews), "--out", "out", cwd=reviews.parent)
    assert "out holds checkpoints of an earlier run; go on with --resume" in told


def test_checkpoints_of_the_last_seed_are_told_before_the_first_is_trained(reviews):
    (reviews.parent / "out/seed-1/checkpoints/checkpoint-4").mkdir(parents=True)
    told = refused_without_torch("train", str(reviews), "--seeds", "0,1", "--out", "out", cwd=reviews.parent)
    assert "seed-1 holds checkpoints of an earlier run; go on with --resume" in told
    assert [path.name for path in (reviews.parent / "out").iterdir()] == ["seed-1"]


ONE_RUN = "model-0123abcd/reviews-4567cdef"


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ("attack MODEL reviews.csv", "out/report.json"),
        ("attack MODEL reviews.csv", f"out/{ONE_RUN}/report.json"),
        ("attack MODEL reviews.csv --block 4", "out/blocks/000000/tally.json"),
        ("evaluate MODEL reviews.csv", f"out/{ONE_RUN}/pwws-89ab0123.jsonl"),
        ("harden reviews.csv", "out/report.json"),
        ("harden reviews.csv", f"out/attacks/{ONE_RUN}/report.json"),
        ("leaderboard score MODEL --track minilm/known/sst2 --name a --suite mini", f"out/runs/{ONE_RUN}/report.json"),
    ],
)
def test_results_of_an_earlier_run_are_told_before_torch_is_loaded(reviews, command, kept):
    here = reviews.parent
    (here / "MODEL").mkdir()
    (here / "MODEL/config.json").write_text("{}")
    (here / kept).parent.mkdir(parents=True)
    (here / kept).write_text("{}")
    told = refused_without_torch(*command.split(), "--out", "out", cwd=here)
    assert "is of an earlier run; go on with --resume, or name another --out" in told
    assert [path for path in (here / "out").rglob("*") if path.is_file()] == [here / kept]


SCORE = "leaderboard score MODEL --name a --track"


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("train reviews.csv --defence swop:variants=2", "unknown defence 'swop'; did you mean 'swap'?"),
        ("train reviews.csv --defence ascc+ptvd", "unknown defence 'ptvd'; did you mean 'ptwd'?"),
        ("train reviews.csv --connection im-brt", "unknown connection 'im-brt'; did you mean 'im-bert'?"),
        ("train reviews.csv --reader unicode,speling", "unknown reader 'speling'; did you mean 'spelling'?"),
        ("train reviews.csv --select-by genetics:population=4", "unknown attack 'genetics'; did you mean 'genetic'?"),
        ("train rotten-tomatos", "did you mean 'rotten-tomatoes'?"),
        ("attack MODEL reviews.csv --attack pwws,genetics:population=4,generations=2", "did you mean 'genetic'?"),
        ("attack MODEL rotten-tomatos", "did you mean 'rotten-tomatoes'?"),
        ("evaluate MODEL reviews.csv --attack pwsw", "unknown attack 'pwsw'; did you mean 'pwws'?"),
        ("evaluate MODEL rotten-tomatos", "did you mean 'rotten-tomatoes'?"),
        ("scan MODEL reviews.csv --fail-under 0.8", "a percentage from 1 to 100; did you mean 80?"),
        ("scan MODEL reviews.csv --fail-under -5", "--fail-under is -5; it is a percentage from 1 to 100"),
        ("scan MODEL reviews.csv --fail-under 180", "--fail-under is 180; it is a percentage from 1 to 100"),
        ("scan MODEL reviews.csv --threshold 7", "--threshold is 7; it is a probability, above 0 and below 1"),
        ("scan MODEL reviews.csv --reader lete", "unknown reader 'lete'; did you mean 'leet'?"),
        ("scan MODEL rotten-tomatos", "did you mean 'rotten-tomatoes'?"),
        ("scan MODEL reviews.csv --family typos,leetspek", "unknown family 'leetspek'; did you mean 'leetspeak'?"),
        ("train reviews.csv --solver andersn:steps=3", "unknown solver 'andersn'; did you mean 'anderson'?"),
        ("train reviews.csv --gradient detachd", "unknown gradient mode 'detachd'; did you mean 'detached'?"),
        ("train reviews.csv --form incremnt", "unknown form 'incremnt'; did you mean 'increment'?"),
        ("train reviews.csv --smooth wordnt:limit=8", "unknown substitutions 'wordnt'; did you mean 'wordnet'?"),
        ("train reviews.csv --protocol lowresource:size=9", "unknown protocol 'lowresource'; did you mean"),
        ("train reviews.csv --model MODL/", "cannot load the model 'MODL/'"),
        ("harden reviews.csv --substitutions wordnt", "unknown substitutions 'wordnt'; did you mean 'wordnet'?"),
        ("harden reviews.csv --model ./MODL", "cannot load the model './MODL'"),
        ("attack MODEL reviews.csv --engine rey", "unknown engine 'rey'; did you mean 'ray'?"),
        ("attack MODEL reviews.csv --scoring-dtype bf61", "unknown dtype 'bf61'; did you mean 'bf16'?"),
        ("attack MODEL reviews.csv --substitutions typos,two-hops:wordnt:limit=8", "unknown substitutions 'wordnt'"),
        ("attack MODEL reviews.csv --vote 4 --vote-substitutions typs", "unknown substitutions 'typs'"),
        ("evaluate MODEL reviews.csv --certify safer,ranmusk:keep=0.1", "unknown certificate 'ranmusk'"),
        ("certify MODEL reviews.csv --certificate safr", "unknown certificate 'safr'; did you mean 'safer'?"),
        ("certify MODEL rotten-tomatos", "did you mean 'rotten-tomatoes'?"),
        ("detect MODEL reviews.csv --attack pwsw", "unknown attack 'pwsw'; did you mean 'pwws'?"),
        ("detect MODEL rotten-tomatos", "did you mean 'rotten-tomatoes'?"),
        ("play MODEL --dtype flaot32", "unknown dtype 'flaot32'; did you mean 'float32'?"),
        ("augment reviews.csv --constraint stop-wrds", "unknown constraint 'stop-wrds'; did you mean 'stop-words'?"),
        ("augment reviews.csv --substitutions leat", "unknown substitutions 'leat'; did you mean 'leet'?"),
        ("doctor MODEL --where sublayer", "unknown where 'sublayer'; did you mean 'sublayers'?"),
        ("doctor ./MODL", "cannot load the model './MODL'"),
        ("list attacks pwsw", "unknown attack 'pwsw'; did you mean 'pwws'?"),
        ("reproduce rift-table2", "unknown recipe 'rift-table2'; did you mean"),
        ("report nowhere", "no such file: nowhere"),
        ("cite nowhere", "no such file: nowhere"),
        ("report MODEL --out board.pdf", "cannot write a report as '.pdf'; known: .json, .md, .tex, .csv, .html"),
        ("demo --out .", "holds other files than a demo's"),
        ("leaderboard build .", "has no entries; `unshaken leaderboard submit ENTRY .` adds one"),
        ("leaderboard build MODEL", "config.json is no entry of a leaderboard"),
        ("leaderboard submit MODEL/config.json board", "config.json is no entry of a leaderboard"),
        ("leaderboard submit reviews.csv board", "reviews.csv is not JSON"),
        ("leaderboard verify MODEL/config.json", "config.json is no entry of a leaderboard"),
        (f"{SCORE} minilm/known", "track 'minilm/known'; it must be ENCODER/THREAT/TASK"),
        (f"{SCORE} minilm//sst2", "track 'minilm//sst2'; it must be ENCODER/THREAT/TASK"),
        (f"{SCORE} minilm/knwn/sst2", "unknown threat 'knwn'; did you mean 'known'?"),
        (f"{SCORE} minilm/known/st2", "unknown task 'st2'; did you mean 'sst2'?"),
        (f"{SCORE} minilm/known/sst2 --suite mni", "unknown suite 'mni'; did you mean 'mini'?"),
    ],
)
def test_a_misspelt_name_is_told_before_torch_is_loaded(reviews, command, answer):
    here = reviews.parent
    (here / "MODEL").mkdir()
    (here / "MODEL/config.json").write_text("{}")
    before = sorted(here.rglob("*"))
    assert answer in refused_without_torch(*command.split(), cwd=here)
    assert sorted(here.rglob("*")) == before


def names_by_import(path: str) -> list[str]:
    found = at(path)
    return list(get_args(found) or found)


@pytest.mark.parametrize("kind", [kind for kind in TABLES if kind != "recipe"])
def test_the_names_that_are_checked_early_are_those_of_the_tables(kind):
    assert list(names_in(TABLES[kind])) == names_by_import(TABLES[kind])


READ = [path for kind, path in TABLES.items() if kind not in ("protocol", "recipe", "task")]


def test_names_of_packages_that_import_torch_are_read_from_their_source():
    program = (
        "import sys; from unshaken.cli.known import names_in\n"
        "assert all(names_in(path) for path in sys.argv[1:])\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, *READ], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


NEW_METHOD = """
@dataclass(frozen=True, kw_only=True)
class Mine(PWWS):
    name: ClassVar[str] = "my-own"
"""


def test_a_method_is_named_in_one_place_for_the_command_line_and_the_table(tmp_path):
    """In a copy of the package: a class and its place in a table are all that is written."""
    package = tmp_path / "unshaken"
    shutil.copytree(Path(known.__file__).parent.parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    method, attacks, defences = (
        package / f"{name}.py" for name in ("attacks/pwws", "attacks/__init__", "defences/__init__")
    )
    method.write_text(method.read_text() + NEW_METHOD)
    imported = attacks.read_text().replace("pwws import PWWS", "pwws import PWWS, Mine")
    attacks.write_text(imported.replace("in (\n        PWWS,", "in (\n        Mine,\n        PWWS,"))
    defences.write_text(defences.read_text().replace('    "rift": RIFT,', '    "rift": RIFT,\n    "rift-again": RIFT,'))
    program = (
        "import sys; from unshaken.cli.known import require_known\n"
        "require_known('attack', 'my-own'); require_known('defence', 'ascc+rift-again')\n"
        "print('torch' in sys.modules)\n"
        "from unshaken.attacks import ATTACKS; from unshaken.defences import DEFENCES, RIFT\n"
        "print(ATTACKS['my-own'].__name__, DEFENCES['rift-again'] is RIFT)"
    )
    own = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=own, cwd=tmp_path)
    assert done.stdout.split() == ["False", "Mine", "True"], done.stderr


def test_a_table_whose_names_do_not_stand_in_its_source_is_imported(monkeypatch):
    monkeypatch.setattr("unshaken.cli.known._source", lambda module: [])
    names_in.cache_clear()
    try:
        assert list(names_in(TABLES["reader"])) == list(READERS)
        assert names_in(TABLES["form"]) == ("auto", "layer", "increment")
    finally:
        names_in.cache_clear()


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("attack", "PWWS,genetic:population=20,generations=10,rate=1e+5"),
        ("attack", "transfer:source=MODEL,attack=genetic:population=4"),
        ("attack", "mine:MyAttack:steps=3"),
        ("connection", "runge-kutta:order=4,step=0.5"),
        ("defence", "ascc:beta=1e+5+ptwd"),
        ("defence", "rift_fast"),
        ("reader", "unicode, spelling:doubt=20,least=3+leet"),
        ("substitutions", "wordnet:limit=8,dictionary:words.json,two-hops:typos, Leet"),
        ("substitutions", "two-hops"),
        ("connection", "none"),
        ("reader", "all"),
        ("reader", ""),
    ],
)
def test_what_is_spelt_rightly_passes_the_early_check(kind, spec):
    require_known(kind, spec)


def test_rows_of_a_track_that_are_not_at_hand_are_told_before_torch_is_loaded(tmp_path, monkeypatch):
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # where nobody answers
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text("{}")
    score = ["leaderboard", "score", "model", "--name", "a", "--suite", "mini", "--track"]
    told = " ".join(refused_without_torch(*score, "minilm/known/sst2", cwd=tmp_path).split())
    assert "cannot load 'nyu-mll/glue' from the hub" in told
    assert "go online once, or pass data=DIR (--data DIR) with the files" in told
    (tmp_path / "rows.csv").write_text("text,label\ngood,1\n ,0\n")
    assert "line 3 has an empty text" in refused_without_torch(*score, "minilm/known/rows.csv", cwd=tmp_path)


def refused_without_torch(*words: str, cwd: Path) -> str:
    program = (
        "import sys; sys.argv = ['unshaken', *sys.argv[1:]]\n"
        "from unshaken.cli import main\n"
        "try:\n    main()\nfinally:\n    print('torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 2
    assert done.stderr.strip().endswith("False")
    return done.stderr


def test_an_interrupted_command_says_how_to_go_on(unshaken, reviews, tiny, monkeypatch, tmp_path):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("unshaken.training.fine_tuning.fine_tune", interrupted)
    code, _, err = unshaken("train", reviews, "--model", tiny, "--cpu", "--out", tmp_path / "run")
    assert code == 130
    assert "--resume goes on" in err


def test_a_score_says_how_long_it_takes_and_how_to_go_on(unshaken, refused, reviews, tiny, monkeypatch, tmp_path):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    words = ["leaderboard", "score", tiny, "--track", f"tiny/known/{reviews}", "--name", "a", "--device", "cpu"]
    words += ["--out", tmp_path / "run"]
    monkeypatch.setattr("unshaken.leaderboard.score", interrupted)
    code, _, err = unshaken(*words, "--suite", "mini", "-n", 4)
    assert code == 130
    assert "pwws, genetic on 4 examples" in err
    assert "at most about" in err
    assert "--resume goes on" in err
    assert "no such file: none.json" in refused(*words, "--suite", "mini", "--substitutions", "dictionary:none.json")
    monkeypatch.setattr("unshaken.victims.base.Victim.from_pretrained", None)  # no model is loaded before it is told
    assert "0 public models; the full suite transfers from 3" in refused(*words)


def test_play_ends_by_ctrl_c_without_a_complaint(unshaken, refused, tiny, monkeypatch):
    from unshaken.play import Playground

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Playground, "serve", interrupted)
    assert unshaken("play", tiny, "--no-browser", "--device", "cpu")[::2] == (0, "")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert f"port {port} cannot be used" in refused("play", tiny, "--no-browser", "--port", port)
    assert "no such file: guard.onnx" in refused("play", "guard.onnx")


def test_sets_made_of_another_are_named_alike_by_the_parser_and_by_what_is_told_before_it_is_imported():
    from unshaken.cli import known
    from unshaken.substitutions import specs

    assert tuple(specs.MADE_OF_ANOTHER) == known.MADE_OF_ANOTHER
