"""What is not as it seems ends with a line and exit code 2, never with numbers."""

from __future__ import annotations

import itertools
import json
import math
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from report_parts import WORDS, examples, save_model, small_texts, tiny_model
from safetensors.torch import load_file, save_file

from unshaken import Victim
from unshaken.attacks import PWWS, AttackResult, AttackResults
from unshaken.cli import main
from unshaken.errors import UnshakenError
from unshaken.substitutions import Dictionary

SWAPS = Dictionary(entries={word: [other] for word, other in itertools.pairwise(WORDS)})


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    save_model(folder, tiny_model())
    return folder


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Run a command: its exit code, and what it said on stderr."""

    def run(*words: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["unshaken", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main()
        return int(stopped.value.code or 0), capsys.readouterr().err

    return run


def write_rows(path: Path, count: int = 12) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.dumps({"text": text, "label": number % 2}) for number, text in enumerate(small_texts(count))]
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("name", ["attack", "evaluate"])
def test_two_files_of_one_name_are_not_one_set(name, command, model_folder, tmp_path) -> None:
    one, two = write_rows(tmp_path / "x" / "rev.jsonl"), write_rows(tmp_path / "y" / "rev.jsonl", 8)
    code, said = command(name, model_folder, "--task", f"{one},{two}", "--out", tmp_path / "out", "--device", "cpu")
    assert code == 2
    assert "are called 'rev/test'; rename one" in said


# ------------------------------------------------------------------------------------------------- weights not there


def without(part: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        kept = {key: value for key, value in load_file(folder / "model.safetensors").items() if part not in key}
        save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})

    return change


def config(**values: Any) -> Callable[[Path], None]:
    return _json_file("config.json", values)


def tokenizer_config(**values: Any) -> Callable[[Path], None]:
    return _json_file("tokenizer_config.json", values)


def _json_file(name: str, values: dict[str, Any]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (without("classifier"), r"lacks 2 of the weights.*'classifier\.bias'.*train it first"),
        (without("layer.1."), r"lacks 16 of the weights.*'bert\.encoder\.layer\.1\."),
        (without("pooler"), r"lacks 2 of the weights.*'bert\.pooler"),
        (config(is_decoder=True), "is_decoder=True"),
        (config(is_decoder=True, add_cross_attention=True), "=True: an encoder would read as a decoder"),
        (config(num_hidden_layers=3), r"lacks 16 of the weights.*'bert\.encoder\.layer\.2\."),
    ],
)
def test_a_model_without_its_weights_is_not_measured(change, reason, model_folder) -> None:
    change(model_folder)
    with pytest.raises(UnshakenError, match=reason):
        Victim.from_pretrained(model_folder, device="cpu")


@pytest.mark.parametrize(
    "change",
    [
        config(num_attention_heads=-2),
        config(return_dict=False),
        config(hidden_dropout_prob=math.nan),
        config(classifier_dropout=math.nan),
        config(chunk_size_feed_forward=3),
        config(num_labels=10**12),
        config(num_hidden_layers=10**9),
        config(_attn_implementation="evil/kernel"),
        config(attn_implementation="evil/kernel"),
        config(_attn_implementation={"": "evil/kernel:fn"}),
        config(text_config={"_attn_implementation": "evil/kernel"}),
        config(experts_implementation="evil/kernel"),
        *(tokenizer_config(model_max_length=value) for value in (0, -5, 3, "x", [1], math.nan, True)),
        tokenizer_config(pad_token="not in the vocabulary"),
        tokenizer_config(unk_token="\x1b[2J"),
        tokenizer_config(model_input_names=3),
    ],
)
def test_a_bent_value_is_one_line(change, model_folder) -> None:
    change(model_folder)
    with pytest.raises(UnshakenError) as caught:
        Victim.from_pretrained(model_folder, device="cpu")
    assert "\n" not in str(caught.value)


def test_a_kernel_is_refused_before_anything_looks_for_it(model_folder) -> None:
    """Where `kernels` is installed, transformers would load code by the name in the file."""
    config(_attn_implementation="evil/kernel")(model_folder)
    with pytest.raises(UnshakenError, match=r"could fetch code to run; allowed: eager, sdpa"):
        Victim.from_pretrained(model_folder, device="cpu")


def test_weights_that_are_not_used_are_said(model_folder, capsys) -> None:
    config(num_hidden_layers=1)(model_folder)
    Victim.from_pretrained(model_folder, device="cpu")
    assert "16 weights of its file are not used, such as 'bert.encoder.layer.1." in capsys.readouterr().err


def test_training_makes_a_new_head_and_no_new_body(command, model_folder, tmp_path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 24)
    words = ["train", "--task", rows, "--model", model_folder, "--epochs", "1", "--cpu", "--max-length", "16", "--out"]
    without("classifier")(model_folder)
    assert command(*words, tmp_path / "one")[0] == 0
    without("layer.1.")(model_folder)
    code, said = command(*words, tmp_path / "two")
    assert code == 2
    assert "lacks 16 of the weights" in said


def test_a_head_for_other_classes_is_replaced_and_said(command, model_folder, tmp_path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 24)
    rows.write_text("".join(f'{{"text": "film {n}", "label": "class {n % 5}"}}\n' for n in range(40)))
    words = ["train", "--task", rows, "--model", model_folder, "--epochs", "1", "--cpu", "--max-length", "16"]
    code, said = command(*words, "--out", tmp_path / "one")
    assert code == 0
    assert "trained for other classes; its head is replaced" in said
    assert Victim.from_pretrained(tmp_path / "one" / "model", device="cpu").num_labels == 5


# ------------------------------------------------------------------------------------------- resuming something else


@pytest.mark.parametrize("change", ["weights", "tokenizer", "config"])
@pytest.mark.full
def test_a_run_goes_on_from_its_own_base_model_only(change, command, model_folder, tmp_path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 24)
    words = ["train", "--task", rows, "--epochs", "1", "--cpu", "--max-length", "16", "--out", tmp_path / "out"]
    assert command(*words, "--model", model_folder)[0] == 0
    other = tmp_path / "elsewhere" / "model"  # the same name in another folder
    shutil.copytree(model_folder, other)
    assert command(*words, "--model", other, "--resume")[0] == 0  # the same model may move
    if change == "weights":
        weights = load_file(other / "model.safetensors")
        weights["bert.encoder.layer.0.output.dense.weight"][0, 0] += 0.25
        save_file(weights, other / "model.safetensors", metadata={"format": "pt"})
    elif change == "tokenizer":
        path = other / "tokenizer.json"
        path.write_text(path.read_text().replace('"film"', '"\\u0001"', 1))
    else:
        config(layer_norm_eps=1e-3)(other)
    code, said = command(*words, "--model", other, "--resume")
    assert code == 2
    assert "its base weights is" in said


# --------------------------------------------------------------------------------------------- results under the feet


def attack_while(out: Path, happens: Callable[[], object]) -> AttackResults:
    """Attack, and let something happen to the results file when the victim is asked for the third time."""
    calls = 0

    def answer(texts: list[str]) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 3:
            happens()
        share = torch.tensor([sum(map(ord, text)) % 97 / 97 for text in texts])
        return torch.stack([share, 1 - share], 1)

    victim = Victim.from_callable(answer, 2, name="sums")
    return PWWS(substitutions=SWAPS)(victim, examples([0, 1] * 6), out=out, in_flight=2)


def by_id(row: AttackResult) -> str:
    return row.example_id


def test_results_that_are_removed_under_an_attack_are_written_anew(tmp_path, capsys) -> None:
    out = tmp_path / "runs" / "run.jsonl"
    results = attack_while(out, lambda: shutil.rmtree(out.parent))
    assert len(results) == 12
    assert sorted(AttackResults.from_jsonl(out), key=by_id) == sorted(results, key=by_id)
    assert "was removed while it was being written" in capsys.readouterr().err


def test_results_that_are_replaced_under_an_attack_are_kept_beside(tmp_path) -> None:
    out, other = tmp_path / "run.jsonl", tmp_path / "other"
    other.write_text("mine\n")
    with pytest.raises(UnshakenError, match="was replaced by another file"):
        attack_while(out, lambda: other.replace(out))
    assert out.read_text() == "mine\n"
    (kept,) = tmp_path.glob("run.kept-*.jsonl")
    assert len(AttackResults.from_jsonl(kept)) == 12


# ------------------------------------------------------------------------------------------------------------ recipes

RECIPE = """
title = "Mine"
paper = "ours"
about = "Bent."
{top}
methods = [{{ name = "plain", settings = {{ {settings} }} }}]
columns = [{{ name = "clean" }}]
[our_settings]
task = "sst2"
"""


@pytest.mark.parametrize("settings", ["epochs = -3", "batch_size = 0", "rows = -1", "learning_rate = nan"])
def test_a_recipe_s_settings_lie_in_their_ranges(settings, tmp_path) -> None:
    from unshaken_experiments import load_recipe, plan

    (tmp_path / "mine.toml").write_text(RECIPE.format(top="", settings=settings))
    with pytest.raises(UnshakenError, match=r"must lie between|expected a number"):
        plan([load_recipe(tmp_path / "mine.toml")], "minilm", seeds=[0])


@pytest.mark.parametrize("seeds", ["9" * 5000, "-1", str(2**32), ", ".join(map(str, range(200_000)))])
def test_a_recipe_s_seeds_are_few_and_small(seeds, tmp_path) -> None:
    from unshaken_experiments import load_recipe

    (tmp_path / "mine.toml").write_text(RECIPE.format(top=f"seeds = [{seeds}]", settings=""))
    with pytest.raises(UnshakenError):
        load_recipe(tmp_path / "mine.toml")


# ------------------------------------------------------------------------------------------------------------- Ctrl-C


def test_an_interrupted_run_says_how_to_go_on(command, model_folder, monkeypatch, tmp_path) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Victim, "from_pretrained", staticmethod(interrupted))
    rows = write_rows(tmp_path / "rows.jsonl")
    code, said = command("attack", model_folder, "--task", rows, "--out", tmp_path / "out")
    assert code == 130
    assert said.count("with --resume goes on from there") == 1
    assert said.count("--resume") == 1
