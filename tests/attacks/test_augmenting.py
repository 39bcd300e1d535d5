"""Copies differ from their text in allowed words only, and the command writes a file that every command reads."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from victims import TEXTS, WORD_LIST

from unshaken.attacks.augmenting import augment
from unshaken.attacks.constraints import MaxChanged
from unshaken.cli import app
from unshaken.errors import UnshakenError
from unshaken.examples import Example
from unshaken.substitutions.words import segment
from unshaken.tasks import load_examples, load_task

EXAMPLES = [Example(id=str(number), texts=(text,), label=number % 2) for number, text in enumerate(TEXTS)]


def test_copies_are_made_of_substitutes() -> None:
    found = list(augment(EXAMPLES, WORD_LIST, copies=3, share=0.5))
    by_id = {example.id: example for example in EXAMPLES}
    assert len(found) > len(EXAMPLES)
    for copy in found:
        source = by_id[copy.id.split("+")[0]]
        assert (copy.original, copy.label) == (source.texts, source.label)
        before, after = segment(source.texts[0]), segment(copy.texts[0])
        changed = [at for at in range(len(before)) if before[at] != after[at]]
        attackable = [at for at in range(len(before)) if WORD_LIST.candidates(before.surfaces, at)]
        assert len(changed) == max(1, round(0.5 * len(attackable)))
        for at in changed:
            assert after[at].lower() in WORD_LIST.candidates(before.surfaces, at)
    assert len({copy.texts for copy in found}) == len(found)


def test_copies_depend_on_seed_and_id_alone() -> None:
    found = {copy.id: copy.texts for copy in augment(EXAMPLES, WORD_LIST, copies=2)}
    assert {copy.id: copy.texts for copy in augment(EXAMPLES[::-1], WORD_LIST, copies=2)} == found
    assert {copy.id: copy.texts for copy in augment(EXAMPLES, WORD_LIST, copies=2, seed=1)} != found


def test_few_substitutes_give_few_copies_and_constraints_hold() -> None:
    (example,) = [Example(id="e", texts=("bad plot",), label=0)]
    assert len(list(augment([example], WORD_LIST, copies=50, share=1))) == 2  # poor story, awful story
    assert not list(augment([example], WORD_LIST, share=1, constraints=[MaxChanged(share=0.5)]))
    assert not list(augment([Example(id="e", texts=("the end",), label=0)], WORD_LIST))
    for bad in ({"copies": 0}, {"share": 0}):
        with pytest.raises(UnshakenError, match="augment needs"):
            list(augment([example], WORD_LIST, **bad))


@pytest.mark.parametrize("pair", [False, True])
def test_the_command_writes_what_commands_read(tmp_path: Path, pair: bool) -> None:
    rows: list[dict[str, Any]] = [
        {"premise": "a good film", "hypothesis": "the film was good", "label": "yes"} if pair
        else {"text": text, "label": "pos" if number % 2 else "neg"} for number, text in enumerate(TEXTS)
    ]  # fmt: skip
    source, out = tmp_path / "texts.jsonl", tmp_path / "more.jsonl"
    source.write_text("\n".join(map(json.dumps, rows)))
    options = ["--substitutions", "typos", "--copies", "2", "--keep", "--out", str(out)]
    result = CliRunner().invoke(app, ["augment", str(source), *options])
    assert result.exit_code == 0, result.output
    examples = load_examples(out)
    assert len(examples) > len(rows)
    assert {row.texts for row in load_examples(source)} <= {row.texts for row in examples}
    assert set(examples.label_names) == {row["label"] for row in rows}


@pytest.mark.parametrize("keep", [[], ["--keep"]], ids=["copies alone", "with their texts"])
@pytest.mark.parametrize("protocol", ["standard", "low-resource:size=18,validation=12"])
def test_rows_that_are_held_out_have_no_copy_in_training(tmp_path: Path, keep: list[str], protocol: str) -> None:
    source, out = tmp_path / "texts.jsonl", tmp_path / "more.jsonl"
    rows = [{"text": f"a good film about {number}", "label": number % 2} for number in range(40)]
    source.write_text("\n".join(map(json.dumps, rows)))
    options = ["--substitutions", "typos", "--copies", "2", "--out", str(out), *keep]
    assert CliRunner().invoke(app, ["augment", str(source), *options]).exit_code == 0
    data = load_task(out, protocol=protocol)
    train, held_out = ({row.texts[0].split()[-1] for row in data.require(split)} for split in ("train", "validation"))
    assert train
    assert held_out
    assert not train & held_out
    assert not data.require("validation").is_static  # they are attacked as any others are


@pytest.mark.parametrize("keep", [[], ["--keep"]], ids=["copies alone", "with their texts"])
def test_copies_of_copies_stay_with_the_text_they_go_back_to(tmp_path: Path, keep: list[str]) -> None:
    files = [tmp_path / name for name in ("texts.jsonl", "more.jsonl", "most.jsonl")]
    rows = [{"text": f"a good film about {number}", "label": number % 2} for number in range(40)]
    files[0].write_text("\n".join(map(json.dumps, rows)))
    for source, out in pairwise(files):
        options = ["--substitutions", "typos", "--copies", "3", "--out", str(out), *keep]
        assert CliRunner().invoke(app, ["augment", str(source), *options]).exit_code == 0
    data = load_task(files[-1], protocol="standard")
    train, held_out = ({row.texts[0].split()[-1] for row in data.require(split)} for split in ("train", "validation"))
    assert len(train | held_out) == 40  # the numbers are never changed
    assert held_out
    assert not train & held_out


def test_the_command_takes_sets_as_attack_does(tmp_path: Path) -> None:
    source, out, words = tmp_path / "texts.jsonl", tmp_path / "more.jsonl", tmp_path / "words.json"
    source.write_text('{"text": "a good plot", "label": 1}')
    words.write_text('{"good": ["fine"], "plot": ["story"]}')
    options = ["--substitutions", f"dictionary:{words},leet", "--share", "1", "--copies", "50", "--out", str(out)]
    result = CliRunner().invoke(app, ["augment", str(source), *options])
    assert result.exit_code == 0, result.output
    ours = {word for row in load_examples(out) for word in row.texts[0].split()}
    assert {"fine", "story"} < ours
    assert any(any(letter.isdigit() for letter in word) for word in ours)


@pytest.mark.parametrize("name", ["original", "label", "id"])
def test_no_text_is_written_under_a_name_that_means_something_else(tmp_path: Path, name: str) -> None:
    source, out = tmp_path / "texts.csv", tmp_path / "more.jsonl"
    source.write_text(f"{name},class\na good film,yes\na bad film,no\n")
    words = ["augment", str(source), "--substitutions", "typos", "--text-column", name, "--label-column", "class"]
    assert f"the text column '{name}' has a name" in str(CliRunner().invoke(app, [*words, "--out", str(out)]).exception)
    assert not out.exists()


def test_columns_that_cannot_be_guessed_are_named(tmp_path: Path) -> None:
    source, out = tmp_path / "texts.csv", tmp_path / "more.jsonl"
    source.write_text("wrote,where,liked\na good film,here,yes\na bad film,there,no\n")
    words = ["augment", str(source), "--substitutions", "typos", "--out", str(out)]
    error = CliRunner().invoke(app, words).exception
    assert "name it with --text-column" in str(error)
    result = CliRunner().invoke(app, [*words, "--text-column", "wrote", "--label-column", "liked"])
    assert result.exit_code == 0, result.output
    assert {row.texts[0].split()[0] for row in load_examples(out, text_columns=["wrote"])} == {"a"}
    assert load_examples(out, text_columns=["wrote"]).label_names == ("no", "yes")


def test_what_is_read_is_not_written_over(tmp_path: Path) -> None:
    """A CSV file of reviews became JSON lines of its copies, and no command could read it."""
    source = tmp_path / "texts.csv"
    source.write_text("text,label\na good film,yes\na bad film,no\n")
    before = source.read_bytes()
    for out, told in ((source, "would be lost"), (tmp_path / "more.csv", "name a file such as copies.jsonl")):
        assert told in str(CliRunner().invoke(app, ["augment", str(source), "--out", str(out)]).exception)
    assert source.read_bytes() == before
    assert list(tmp_path.iterdir()) == [source]
    other = tmp_path / "others.jsonl"
    other.write_text('{"text": "mine", "label": 1}\n')
    error = CliRunner().invoke(app, ["augment", str(source), "--out", str(other)]).exception
    assert f"{other} exists, and would be lost" in str(error)
    assert other.read_text() == '{"text": "mine", "label": 1}\n'
