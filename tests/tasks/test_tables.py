"""Data in memory: pandas, datasets and lists become the same examples as a file of them."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from unshaken import Examples, load_task
from unshaken.errors import UnshakenError
from unshaken.tasks import load_examples, table_examples

ROWS = [
    {"review": f"{word} film {n}", "stars": label} for n in range(6) for word, label in (("bad", "no"), ("good", "yes"))
]


@pytest.fixture
def as_file(tmp_path):
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ["review", "stars"])
        writer.writeheader()
        writer.writerows(ROWS)
    return load_examples(path, label_column="stars")


def test_pandas_datasets_and_lists_of_dicts_are_the_file(as_file):
    import datasets
    import pandas

    for table in (pandas.DataFrame(ROWS), datasets.Dataset.from_list(ROWS), ROWS):
        found = table_examples(table, label_column="stars")
        assert (found.rows, found.label_names, found.columns) == (as_file.rows, ("no", "yes"), ("review",))
    assert Examples.from_pandas(pandas.DataFrame(ROWS), label_column="stars").rows == as_file.rows
    assert Examples.from_dataset(datasets.Dataset.from_list(ROWS), label_column="stars").rows == as_file.rows
    back = as_file.to_pandas()
    assert list(back["label"]) == [row["stars"] for row in ROWS]
    assert list(back["review"]) == [row["review"] for row in ROWS]


def test_class_names_of_a_data_set_and_categories_keep_their_order():
    import datasets
    import pandas

    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["yes", "no"])})
    data = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]}, features=features)
    found = Examples.from_dataset(data)
    assert (found.label_names, found.labels) == (("yes", "no"), [1, 0])
    frame = pandas.DataFrame({"text": ["a", "b"], "label": pandas.Categorical(["no", "yes"], ["yes", "no"])})
    assert (Examples.from_pandas(frame).label_names, Examples.from_pandas(frame).labels) == (("yes", "no"), [1, 0])


def test_a_table_is_a_task_with_splits():
    import datasets
    import pandas

    loaded = load_task(pandas.DataFrame(ROWS), label_column="stars")
    assert (len(loaded.train), len(loaded.validation)) == (10, 2)
    rows = datasets.Dataset.from_list(ROWS)
    loaded = load_task(datasets.DatasetDict({"train": rows, "dev": rows, "test": rows}), label_column="stars")
    assert {name: len(split) for name, split in loaded.splits.items()} == {"train": 12, "validation": 12, "test": 12}


def test_lists():
    found = Examples.from_lists(["good", "bad"], ["pos", "neg"])
    assert (found.label_names, found.labels) == (("neg", "pos"), [1, 0])
    assert Examples.from_lists([("a", "b")], [1]).columns == ("text1", "text2")
    targets = Examples.from_lists(["good", "bad"], np.asarray([0.75, 0.25], dtype=np.float32))
    assert targets.is_regression
    assert targets.labels == [0.75, 0.25]
    assert not Examples.from_lists(["good", "bad"], np.asarray([1, 0])).is_regression
    with pytest.raises(UnshakenError, match="one label a text"):
        Examples.from_lists(["a"], [])
    with pytest.raises(UnshakenError, match="'odd' is none of label_names"):
        Examples.from_lists(["a"], ["odd"], label_names=["pos", "neg"])


@pytest.mark.parametrize(
    ("texts", "labels", "said"),
    [
        (["good", None], [0, 1], r"row 1 \(from 0\) is None; give a text"),
        (["good", float("nan")], [0, 1], r"row 1 \(from 0\) is nan"),
        ([("a", "b"), ("c", None)], [0, 1], r"row 1 \(from 0\) is \('c', None\)"),
        ([("a", "b"), "c"], [0, 1], r"the first row has 2 texts and row 1 \(from 0\) has 1"),
        (["good", "bad"], [0, 5], "the label 5 has no name; label_names are no, yes"),
    ],
)
def test_lists_that_are_no_rows_are_refused_where_they_are_given(texts, labels, said):
    with pytest.raises(UnshakenError, match=said):
        Examples.from_lists(texts, labels, label_names=("no", "yes"))


def test_what_is_no_table():
    import pandas

    for value in (object(), [], [1, 2], {"a": 1}):
        with pytest.raises(UnshakenError):
            load_task(value)
    with pytest.raises(UnshakenError, match="row 1 has no text in column 'text'"):
        Examples.from_pandas(pandas.DataFrame({"text": [float("nan")], "label": [1]}))
    with pytest.raises(UnshakenError, match="row 1 has int in text column"):
        Examples.from_pandas(pandas.DataFrame({"text": [3], "label": [1]}))


def test_reprs_are_short(as_file):
    assert repr(as_file) == "Examples(12 rows, name='rows/test', columns=review, labels no 6, yes 6)"
    loaded = load_task("rotten-tomatoes")
    assert len(repr(loaded)) < 200
    assert "negative, positive" in repr(loaded)
