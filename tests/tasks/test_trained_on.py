"""Hashes of training texts: the texts come back known, others do not, and a cut file is no file."""

from __future__ import annotations

from dataclasses import replace

import pytest
from safetensors.numpy import load_file

from unshaken.errors import UnshakenError
from unshaken.examples import Example, Examples
from unshaken.readers import KnownWords, parse
from unshaken.tasks import load_examples, save_examples, save_trained_on, trained_on


def split(*texts: tuple[str, ...] | str) -> Examples:
    rows = [text if isinstance(text, tuple) else (text,) for text in texts]
    return Examples(rows=tuple(Example(id=str(n), texts=row, label=n % 2) for n, row in enumerate(rows)))


def test_texts_are_known_again_up_to_case_and_punctuation(tmp_path):
    save_trained_on(tmp_path, split("It's a good film.", "dull", "naïve"))
    assert trained_on(tmp_path, split("it 's a good film", "DULL!", "naive", "new", "naïve")) == 3
    assert trained_on(tmp_path, split(("dull", "naïve"))) == 0  # a pair is another text than its parts
    assert trained_on(tmp_path / "nothing", split("dull")) is None


def test_texts_that_the_models_reader_changes_are_known_again(tmp_path):
    train = split("a fr33 film", "dull", "a m0vie")
    reader = parse("leet", KnownWords.of(["free film movie dull"]))
    save_trained_on(tmp_path, reader.examples(train))  # as a trainer does
    reader.save(tmp_path)
    assert trained_on(tmp_path, train) == trained_on(tmp_path, reader.examples(train)) == 3


def test_the_file_does_not_hold_the_texts(tmp_path):
    path = save_trained_on(tmp_path, split("a very secret sentence", "a very secret sentence", "b"))
    assert load_file(path)["hashes"].nbytes == 16  # two texts, eight bytes each
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(UnshakenError, match="is damaged"):
        trained_on(tmp_path, split("b"))


def test_examples_read_back_as_written(tmp_path):
    names = ("no", "yes")
    rows = Examples(
        rows=tuple(Example(id=f"test/{n}", texts=(f"a {n}\u2028", 'say "b"'), label=n % 2) for n in range(4)),
        columns=("premise", "hypothesis"),
        label_names=names,
    )
    path = save_examples(tmp_path / "rows.jsonl", rows, label_column="gold")
    found = load_examples(path, label_column="gold", label_names=names)
    assert found.rows == rows.rows
    assert found.columns == rows.columns
    assert "\u2028" in path.read_text(encoding="utf-8")  # as itself, for whoever opens the file
    with pytest.raises(ValueError, match="zip"):  # no text is left out
        save_examples(tmp_path / "rows.jsonl", replace(rows, columns=("premise",)))
