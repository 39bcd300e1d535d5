"""What a label of a user's own data means: by name, by place, as a number; and what is no label at all."""

from __future__ import annotations

import json

import pytest

from unshaken import evaluate
from unshaken.errors import UnshakenError
from unshaken.examples import Examples
from unshaken.tasks import load_blocks, load_examples, load_task, save_examples, table_examples
from unshaken.tasks.load import check_examples

NLI = ("entailment", "neutral", "contradiction")


def csv_of(path, labels):
    path.write_text("text,label\n" + "".join(f"text {i},{label}\n" for i, label in enumerate(labels)), encoding="utf-8")
    return path


def jsonl_of(path, labels):
    rows = [json.dumps({"text": f"text {i}", "label": label}) for i, label in enumerate(labels)]
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def declared(names, labels):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=list(names))})
    return datasets.Dataset.from_dict({"text": [f"text {label}" for label in labels], "label": labels}, features)


def test_a_number_that_no_class_is_called_by_is_not_a_place_among_classes_that_numbers_name(tmp_path):
    """Stars from 1 to 3: a row with 0 stars is none of the training data, and not the first class."""
    train = csv_of(tmp_path / "train.csv", [1, 2, 3] * 10)
    assert load_task(train, test=csv_of(tmp_path / "test.csv", [3, 1, 2])).test.labels == [2, 0, 1]
    with pytest.raises(UnshakenError, match="line 2 has the unknown label '0'; known: 1, 2, 3"):
        load_task(train, test=csv_of(tmp_path / "test.csv", [0, 1, 2]))


@pytest.mark.parametrize(
    ("names", "found"), [(("1.0", "0.0"), [1, 0]), ((" no ", "Yes"), [0, 1]), (("b", "a"), [0, 1])]
)
def test_given_names_are_read_as_labels_are(tmp_path, names, found):
    spelt = {"1.0": [0, 1], " no ": ["no", "yes"], "b": [0, 1]}[names[0]]
    assert load_examples(csv_of(tmp_path / "a.csv", spelt), label_names=names).labels == found


def test_places_are_counted_from_nought_to_the_last_class(tmp_path):
    assert load_examples(csv_of(tmp_path / "a.csv", [0, 2, 1]), label_names=NLI).labels == [0, 2, 1]
    with pytest.raises(UnshakenError, match="line 3 has the unknown label '3'"):
        load_examples(csv_of(tmp_path / "a.csv", [0, 3]), label_names=NLI)


def test_numbers_of_declared_classes_mean_their_names_whatever_the_order_of_the_model(tmp_path):
    """Or a model that puts contradiction first would be measured on other labels than the file has."""
    rows = declared(NLI, [0, 1, 2, -1])
    models = ("Contradiction", "entailment", "neutral", "other")
    with pytest.raises(UnshakenError, match="1 of 4 rows have no label"):
        table_examples(rows, label_names=models)
    rows = rows.select(range(3))
    rows.to_parquet(tmp_path / "rows.parquet")
    rows.to_parquet(tmp_path / "ROWS.PARQUET")
    for found in (
        table_examples(rows, label_names=models),
        load_examples(tmp_path / "rows.parquet", label_names=models),
        load_examples(tmp_path / "ROWS.PARQUET", label_names=models),
        next(load_blocks(tmp_path / "rows.parquet", 9, label_names=models)),
    ):
        assert found.labels == [1, 2, 0]
    assert load_examples(tmp_path / "ROWS.PARQUET").label_names == NLI
    with pytest.raises(UnshakenError, match="unknown label 'neutral'"):
        table_examples(rows, label_names=("entailment", "contradiction"))
    # Of names that say nothing about the file's, or of none of them, the number is the place.
    assert table_examples(rows, label_names=("LABEL_0", "LABEL_1", "LABEL_2")).labels == [0, 1, 2]


def test_splits_may_declare_their_classes_in_another_order():
    datasets = pytest.importorskip("datasets")
    splits = {"train": declared(("no", "yes"), [0, 1, 0]), "test": declared(("yes", "no"), [0, 0, 1])}
    assert load_task(datasets.DatasetDict(splits), validation=None, protocol="official").test.labels == [1, 1, 0]


@pytest.mark.parametrize("names", [("1", "2", "3"), ("2", "1", "3")])
def test_declared_classes_that_numbers_name(tmp_path, names):
    rows = declared(names, [0, 1, 2])
    rows.to_parquet(tmp_path / "rows.parquet")
    check_examples(tmp_path / "rows.parquet")
    for found in (table_examples(rows), load_examples(tmp_path / "rows.parquet")):
        assert (found.label_names, found.labels) == (names, [0, 1, 2])


def test_categories_that_are_numbers_are_values():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["a", "b", "c"], "label": pandas.Categorical([1, 2, 0], [2, 0, 1])})
    found = table_examples(frame)
    assert (found.label_names, found.labels) == (("2", "0", "1"), [2, 0, 1])


@pytest.mark.parametrize("label", [["joy"], ["joy", "fear"], {"name": "joy"}, []])
def test_several_labels_of_one_row_are_not_one_class(tmp_path, label):
    path = jsonl_of(tmp_path / "a.jsonl", ["joy", label, "fear"])
    for names in (None, ("joy", "fear")):
        with pytest.raises(UnshakenError, match=r"line 2 has the label .*, a (list|dict); give one label a row"):
            load_examples(path, label_names=names)


def test_targets_are_numbers_as_others_write_them(tmp_path):
    train = csv_of(tmp_path / "train.csv", [".5", "1.", "-.25", "2e-1", "+3"] * 4)
    assert set(load_task(train).train.labels) | set(load_task(train).validation.labels) == {0.5, 1.0, -0.25, 0.2, 3.0}
    for wrong in ("1_0", "0x1", "inf", "half"):
        with pytest.raises(UnshakenError, match=f"line 2 has the target '{wrong}', not a number"):
            load_task(train, test=csv_of(tmp_path / "test.csv", [wrong]))
    with pytest.raises(UnshakenError, match="line 1 has the target True, not a number"):
        load_task(train, test=jsonl_of(tmp_path / "test.jsonl", [True]))


def test_names_that_read_alike_are_told(tmp_path):
    loaded = load_task(csv_of(tmp_path / "a.csv", ["Good", "good", "bad", "caf\u00e9", "cafe\u0301"] * 10))
    assert loaded.task.label_names == ("Good", "bad", "cafe\u0301", "caf\u00e9", "good")
    alike = ", ".join(map(repr, ("Good", "cafe\u0301", "caf\u00e9", "good")))
    assert f"{alike} are classes of their own, though they read alike" in loaded.notes
    assert load_task(csv_of(tmp_path / "a.csv", ["Good", "bad"] * 10)).notes[0].startswith("validation is 20%")


def test_a_test_file_whose_labels_are_called_otherwise_has_labels(tmp_path):
    train = csv_of(tmp_path / "train.csv", [0, 1] * 10)
    (tmp_path / "test.csv").write_text("text,Label\nx,1\n", encoding="utf-8")
    with pytest.raises(UnshakenError, match=r"test.csv: no column 'label'; did you mean 'Label'"):
        load_task(train, test=tmp_path / "test.csv")


def test_texts_in_two_of_the_given_files_are_told(tmp_path):
    def write(name, texts):
        rows = "".join(f'"{text}",{i % 2}\n' for i, text in enumerate(texts))
        (tmp_path / name).write_text("text,label\n" + rows, encoding="utf-8")
        return tmp_path / name

    train = write("train.csv", ["One.", "two", "three", "four"])
    loaded = load_task(train, validation=write("v.csv", ["one", "TWO!", "five"]), test=write("t.csv", ["five", "six"]))
    assert loaded.notes == (
        "2 of 3 validation texts also occur in train; leave them out",
        "1 of 2 test texts also occur in validation; leave them out",
    )
    assert load_task(train, validation=write("v.csv", ["five"]), test=write("t.csv", ["six"])).notes == ()


def test_a_hidden_label_is_written_as_none_and_not_as_the_last_class(tmp_path):
    (tmp_path / "a.csv").write_text("text\nx\ny\n", encoding="utf-8")
    hidden = load_examples(tmp_path / "a.csv", label_names=("negative", "positive"), unlabelled=True)
    assert hidden.to_pandas()["label"].tolist() == [None, None]
    again = load_examples(save_examples(tmp_path / "b.jsonl", hidden), label_names=("n", "p"), unlabelled=True)
    assert again.labels == hidden.labels == [-1, -1]
    with pytest.raises(UnshakenError, match=r"2 of 2 rows of a/test have no label \(-1\)"):
        evaluate(lambda texts: [[0.7, 0.3]] * len(texts), hidden)


def test_classes_called_by_numbers_are_in_the_order_of_the_numbers():
    given = [str(number) for number in range(12)]
    rows = Examples.from_lists([f"text {number}" for number in given], given)
    assert rows.label_names == tuple(given)
    assert rows.labels == list(range(12))
    assert Examples.from_lists(["a", "b", "c"], ["-2", "-1", "0"]).labels == [0, 1, 2]


def test_a_number_that_one_class_is_called_by_is_no_other_class(tmp_path):
    """Of "1 star" to "5 stars" a file with 1 to 4 was read as "2 stars" to "5 stars"."""
    stars = ("1 star", "2 stars", "3 stars")
    with pytest.raises(
        UnshakenError, match="line 2 has the unknown label '1'; its place is that of '2 stars', and another"
    ):
        load_examples(csv_of(tmp_path / "a.csv", [1, 2]), label_names=stars)
    named = load_examples(csv_of(tmp_path / "b.csv", ["2 stars", "1 star"]), label_names=stars)
    assert named.labels == [1, 0]
    for names in (("LABEL_0", "LABEL_1"), ("no covid19", "covid19"), ("llama3", "gpt4")):
        assert load_examples(csv_of(tmp_path / "c.csv", [0, 1]), label_names=names).labels == [0, 1]


def test_saved_examples_are_still_copies_and_adversarial_ones(tmp_path):
    """Without it a split parts a copy from its text, and a static adversarial set is attacked again."""
    rows = [
        {"text": "good film", "label": "b", "original": ["fine film"]},
        {"text": "bad film", "label": "a", "original_text": "poor film"},
        {"text": "a film", "label": "a"},
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, rows[:1] + rows[2:])), encoding="utf-8")
    copies = load_examples(path)
    assert [row.copy_of for row in copies] == [("fine film",), None]
    assert load_examples(save_examples(tmp_path / "again.jsonl", copies)).rows == copies.rows
    path.write_text(json.dumps(rows[1]), encoding="utf-8")
    static = load_examples(path)
    assert static.is_static
    assert load_examples(save_examples(tmp_path / "again.jsonl", static)).rows == static.rows


def test_numbers_that_are_not_in_their_order_are_told(capsys):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["a b", "c d"], "label": pandas.Categorical([3, 1], categories=[3, 1])})
    evaluate(lambda texts: [[0.7, 0.3]] * len(texts), frame)
    assert "in the order 3 0, 1 1" in capsys.readouterr().err
