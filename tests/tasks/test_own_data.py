"""A user's own files: what is guessed, and what is refused with the row that is at fault."""

from __future__ import annotations

import csv
import json
import sys
import tracemalloc

import pytest

from unshaken.errors import UnshakenError
from unshaken.tasks import load_examples, load_task, task_names
from unshaken.tasks.load import check_examples, split_seed
from unshaken.tasks.own import ColumnNames, check_rows, describe, load_sources
from unshaken.tasks.readers import class_labels, read
from unshaken.tasks.row_sources import file_source
from unshaken.tasks.rows import build_examples

ROWS = [("good film", "pos"), ('bad, "very" bad', "neg"), ("line one\nline two", "pos"), ("dull", "neg")] * 5
ROWS = [(f"{text} {number}", label) for number, (text, label) in enumerate(ROWS)]


def write_csv(path, rows=ROWS, header=("text", "label")):
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([header, *rows])
    return path


def write_rows(path, rows=ROWS, text="text", label="label"):
    """The same rows in the format of the path's ending."""
    if path.suffix == ".csv":
        return write_csv(path, rows, (text, label))
    records = [{text: row[0], label: row[1]} for row in rows]
    if path.suffix == ".tsv":
        lines = ["\t".join((text, label)), *("\t".join(map(str, row)) for row in rows)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    elif path.suffix == ".json":
        path.write_text(json.dumps(records), encoding="utf-8")
    else:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(records), path)
    return path


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "json", "parquet"])
def test_every_format_reads_the_same(tmp_path, ending):
    rows = [(text.replace("\n", " "), label) for text, label in ROWS]
    examples = load_examples(write_rows(tmp_path / f"reviews.{ending}", rows))
    assert examples.texts == [(text,) for text, _ in rows]
    assert examples.label_names == ("neg", "pos")
    assert examples.labels == [int(label == "pos") for _, label in rows]
    assert examples.name == "reviews/test"


def test_a_file_is_train_and_validation_is_held_out(tmp_path):
    data = load_task(write_csv(tmp_path / "reviews.csv"))
    assert (len(data.train), len(data.validation), data.test) == (16, 4, None)
    assert sorted(data.validation.labels) == [0, 0, 1, 1]
    assert not set(data.train.texts) & set(data.validation.texts)


def test_the_split_does_not_depend_on_the_order_of_the_file(tmp_path):
    forward = load_task(write_csv(tmp_path / "a.csv"))
    backward = load_task(write_csv(tmp_path / "b.csv", ROWS[::-1]))
    assert set(forward.validation.texts) == set(backward.validation.texts)


def test_given_validation_and_test_are_taken(tmp_path):
    data = load_task(
        write_csv(tmp_path / "a.csv"),
        validation=write_rows(tmp_path / "b.jsonl", ROWS[:3]),
        test=write_rows(tmp_path / "c.json", ROWS[3:4]),
    )
    assert {split: len(rows) for split, rows in data.splits.items()} == {"train": 20, "validation": 3, "test": 1}
    assert data.test.labels == [0]  # the label names of train hold for all


@pytest.mark.parametrize(
    ("labels", "names", "numbers"),
    [
        (["b", "a", "c"], ("a", "b", "c"), [1, 0, 2]),
        ([10, 9, 10], ("9", "10"), [1, 0, 1]),
        ([-1, 1, -1], ("-1", "1"), [0, 1, 0]),
        ([1.0, 0.0, 1.0], ("0", "1"), [1, 0, 1]),
        ([True, False, True], ("False", "True"), [1, 0, 1]),
    ],
)
@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_labels_are_numbered_in_sorted_order(tmp_path, ending, labels, names, numbers):
    path = write_rows(tmp_path / f"a.{ending}", [(f"text {i}", label) for i, label in enumerate(labels)])
    examples = load_examples(path)
    assert examples.label_names == names
    assert examples.labels == numbers


def test_real_numbers_are_regression(tmp_path):
    path = write_rows(tmp_path / "a.csv", [(f"text {i}", i / 4) for i in range(20)])
    data = load_task(path)
    assert data.train.is_regression
    assert data.train.num_labels == 1
    assert data.train.metric == "pearson"
    assert len(data.validation) == 4


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        (("Review", "Sentiment"), ("Review",)),
        (("premise", "hypothesis", "label"), ("premise", "hypothesis")),
        (("id", "comment", "target"), ("comment",)),
        (("comment", "verdict"), ("comment",)),  # two columns, of which one is known: the other is the other
        (("what they wrote", "label"), ("what they wrote",)),
        (("question", "answer", "verdict"), ("question", "answer")),
    ],
)
def test_columns_are_guessed_whatever_their_case(tmp_path, header, columns):
    rows = [[f"{name} {i}" for name in header[:-1]] + [str(i % 2)] for i in range(4)]
    assert load_examples(write_csv(tmp_path / "a.csv", rows, header)).columns == columns


def test_a_label_column_of_an_unknown_name_is_told(tmp_path):
    """A file of texts and dates would be trained on dates without a word."""
    path = write_csv(tmp_path / "x.csv", header=("text", "Stars"))
    said = "the labels are column 'Stars', the one that is left (--label-column)"
    assert said in load_task(path).notes
    assert not any("Stars" in note for note in load_task(path, label_column="Stars").notes)
    assert not any("column" in note for note in load_task(write_csv(path, header=("text", "Label"))).notes)


def test_columns_can_be_named(tmp_path):
    rows = [("k1", "first", "second", "yes"), ("k2", "third", "fourth", "no")]
    path = write_csv(tmp_path / "a.csv", rows, ("key", "left", "right", "same"))
    examples = load_examples(
        path, text_columns=("left", "right"), label_column="same", id_column="key", label_names=("yes", "no")
    )
    assert [row.id for row in examples] == ["test/k1", "test/k2"]
    assert examples.texts == [("first", "second"), ("third", "fourth")]
    assert examples.labels == [0, 1]


def test_one_text_column_may_be_a_plain_name(tmp_path):
    path = write_csv(tmp_path / "a.csv", [("x", "1"), ("y", "0")], ("opinion", "label"))
    assert load_examples(path, text_columns="opinion").columns == ("opinion",)


def test_label_names_also_take_numbers(tmp_path):
    path = write_csv(tmp_path / "a.csv", [("x", "1"), ("y", "0")])
    assert load_examples(path, label_names=("neg", "pos")).labels == [1, 0]


def test_semicolons_and_byte_order_marks(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("\ufefftext;label\ngut, sehr gut;1\n\ufeffschlecht;0\n".encode())
    assert load_examples(path).columns == ("text",)
    assert load_examples(path).texts == [("gut, sehr gut",), ("\ufeffschlecht",)]  # a mark is one at the start alone


def test_quoted_fields_of_a_tsv_lose_their_quotes(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text('text\tlabel\n"He said ""no"""\t1\n"half\t0\n', encoding="utf-8")
    assert load_examples(path).texts == [('He said "no"',), ('"half',)]


def test_very_long_fields(tmp_path):
    path = write_csv(tmp_path / "a.csv", [("x" * 200_000, "1"), ("y", "0")])
    assert len(load_examples(path)[0].texts[0]) == 200_000


def test_a_file_in_two_formats_is_no_two_files(tmp_path):
    """Every row counted twice: intervals were too narrow by a third."""
    (tmp_path / "data").mkdir()
    for name in ("train.csv", "test.csv", "test.jsonl"):
        write_rows(tmp_path / "data" / name)
    with pytest.raises(UnshakenError, match=r"holds test.csv and test.jsonl, one file in two formats"):
        load_task(tmp_path / "data")


def test_folder_of_split_files(tmp_path):
    folder = tmp_path / "train_v2"  # the folder's own name decides nothing
    (folder / "data").mkdir(parents=True)
    write_rows(folder / "data" / "train-00000-of-00002.jsonl", ROWS[:10])
    write_rows(folder / "data" / "train-00001-of-00002.jsonl", ROWS[10:])
    write_rows(folder / "data" / "dev.csv", ROWS[:4])
    write_rows(folder / "data" / "test.csv", ROWS[:2])
    data = load_task(folder)
    assert {split: len(rows) for split, rows in data.splits.items()} == {"train": 20, "validation": 4, "test": 2}
    write_rows(folder / "testing.csv", ROWS[:4])  # a person means the test split by it; we do not guess
    again = load_task(folder)
    assert len(again.require("test")) == 2
    assert again.notes == (*data.notes, "not read, for their names are no train, validation or test: testing.csv")


@pytest.mark.parametrize("with_splits", [True, False])
def test_folder_written_by_save_to_disk(tmp_path, with_splits):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"sentence": datasets.Value("string"), "label": datasets.ClassLabel(names=["worse", "better"])}
    )
    rows = {"sentence": [f"text {i}" for i in range(20)], "label": [i % 2 for i in range(20)]}
    made = datasets.Dataset.from_dict(rows, features=features)
    if with_splits:
        made = datasets.DatasetDict({"train": made, "validation": made.select(range(7))})
    made.save_to_disk(tmp_path / "saved")
    data = load_task(tmp_path / "saved")
    assert data.train.label_names == ("worse", "better")  # as declared, not as sorted
    assert len(data.train) == (20 if with_splits else 16)
    assert len(data.validation) == (7 if with_splits else 4)


def test_parquet_of_the_hub_keeps_its_class_names(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["z", "a"])})
    datasets.Dataset.from_dict({"text": ["x", "y"], "label": [0, 1]}, features=features).to_parquet(
        tmp_path / "a.parquet"
    )
    assert load_examples(tmp_path / "a.parquet").label_names == ("z", "a")


def test_a_test_file_may_have_no_labels(tmp_path):
    path = write_csv(tmp_path / "test.csv", [("unknown",)], ("text",))
    data = load_task(write_csv(tmp_path / "a.csv"), test=path)
    assert data.test is None
    assert len(data.unlabelled) == 1
    with pytest.raises(UnshakenError, match="no labels in column 'label'; the validation split needs them"):
        load_task(write_csv(tmp_path / "a.csv"), validation=path)


def test_one_class_may_be_evaluated_but_not_trained_on(tmp_path):
    path = write_csv(tmp_path / "a.csv", [("x", "pos"), ("y", "pos")])
    assert load_examples(path, label_names=("neg", "pos")).labels == [1, 1]
    for rows in ([("x", "pos"), ("y", "pos")], [("x", "pos")]):
        with pytest.raises(UnshakenError, match=r"a.csv: every row has the label 'pos'; training needs two classes"):
            load_task(write_csv(path, rows))


def test_many_classes_need_two_rows_each_on_average(tmp_path):
    def classes(rows, count=60):
        return write_csv(tmp_path / "a.csv", [(f"text {i}", f"class {i % count}") for i in range(rows)])

    assert len(load_task(classes(120), protocol="official").train.label_names) == 60
    with pytest.raises(UnshakenError, match="60 classes in 119 rows, so most have one example"):
        load_task(classes(119))
    with pytest.raises(UnshakenError, match="51 classes in 101 rows"):
        load_task(classes(101, 51))
    assert len(load_task(classes(60, 50), protocol="official").train) == 60  # few enough to have been meant


def test_rows_are_drawn_while_reading_by_their_ids_in_the_order_of_the_file(tmp_path):
    path = write_csv(tmp_path / "a.csv", [(f"k{i}", f"text {i}", i % 2) for i in range(50)], ("id", "text", "label"))
    drawn = {count: load_examples(path, id_column="id", count=count).texts for count in (1, 20, 50, 99)}
    assert [len(texts) for texts in drawn.values()] == [1, 20, 50, 50]
    assert set(drawn[1]) < set(drawn[20]) < set(drawn[50])
    numbers = [int(text.split()[1]) for (text,) in drawn[20]]
    assert numbers == sorted(numbers)
    assert load_examples(path, id_column="id", count=20, seed=1).texts != drawn[20]
    with pytest.raises(UnshakenError, match="count is 0; draw at least 1 row"):
        load_examples(path, count=0)


def test_nobody_who_names_no_seed_gets_other_rows_than_seed_0(tmp_path):
    path = write_csv(tmp_path / "a.csv", [(f"text {i}", i % 2) for i in range(50)])
    assert load_task(path).train.rows == load_task(path, seed=0).train.rows != load_task(path, seed=1).train.rows
    drawn = load_examples(path, count=5)
    assert drawn.rows == load_examples(path, count=5, seed=0).rows != load_examples(path, count=5, seed=1).rows
    whole = load_sources({"test": file_source(path)}, ColumnNames(), name="a", count=5).require("test")
    built = build_examples(read(path), describe(file_source(path), ColumnNames(), name="a"), "test", "a.csv", count=5)
    assert drawn.rows == whole.rows == built.rows
    first = int(drawn[0].id.removeprefix("test/"))  # the only one without a label: a check of five rows draws it, too
    write_csv(path, [(f"text {i}", "" if i == first else i % 2) for i in range(50)])
    with pytest.raises(UnshakenError, match="1 of 5 rows have no label"):
        check_examples(path, count=5)
    with pytest.raises(UnshakenError, match="1 of 5 rows have no label"):
        check_rows(file_source(path), ColumnNames(), count=5)
    check_examples(path, count=5, seed=1)


def test_a_file_without_labels_is_one_where_that_is_said(tmp_path):
    path = write_csv(tmp_path / "a.csv", [("x",), ("y",)], ("text",))
    assert load_examples(path, unlabelled=True).labels == [-1, -1]
    check_examples(path, unlabelled=True)
    for read_in in (load_examples, check_examples, load_task):
        with pytest.raises(UnshakenError, match="no column has the labels"):
            read_in(path)


def test_ones_own_rows_are_held_out_alike_for_all_seeds_and_those_of_a_task_by_seed(tmp_path):
    path = write_csv(tmp_path / "a.csv")
    assert [split_seed(data, 3) for data in ("sst2", "Rotten_Tomatoes", path, str(path), [{"text": "x"}])] == [
        3, 3, 0, 0, 0,
    ]  # fmt: skip


def test_a_name_that_no_file_system_takes_is_no_file():
    with pytest.raises(UnshakenError, match="unknown task"):
        task_names("x" * 5000)


CSV_FAULTS = {
    "empty file": (b"", "is empty; its first line must name the columns"),
    "header only": (b"text,label\n", "has no rows"),
    "no text column": (
        b"opinion,by,label\nx,me,1\n",
        r"which column is the text; columns: 'opinion', 'by', 'label'; .*--text-column",
    ),
    "a row in the place of the header": (
        b"a film of five words,1\nanother film,0\n",
        "the first line looks like a row and has to name the columns",
    ),
    "a heading of four words": (
        b"what they wrote down,by,label\nx,me,1\n",
        "cannot tell which column is the text.*name it with --text-column",
    ),
    "no label column": (
        b"text,stars,by\nx,1,me\n",
        r"column is the label; columns: 'text', 'stars', 'by'; .*--label-column",
    ),
    "two columns of one name": (b"text,text\nx,1\n", "two columns are named 'text'"),
    "empty text": (b"text,label\nx,1\n  ,0\n", "line 3 has an empty text in column 'text'"),
    "empty label": (b"text,label\nx,1\ny,\n", "line 3 has no label in column 'label'; fill it in, or remove the row"),
    "label nan": (
        b"text,label\nx,pos\ny,NaN\n",
        "line 3 has no label in column 'label'; fill it in, or remove the row",
    ),
    "label null": (b"text,label\nx,1\ny,null\n", "line 3 has no label in column 'label'; fill it in"),
    "a class for each row": (
        b"text,label\n" + b"".join(b"x %d,%d\n" % (n, n) for n in range(1000)),
        r"1,000 classes in [\d,]+ rows, so most have one example; name the column .*--label-column",
    ),
    "two columns for labels and none for texts": (
        b"opinion,label,sentiment\nx,1,1\ny,0,0\n",
        "cannot tell which column is the text; columns: 'opinion', 'label', 'sentiment'",
    ),
    "mixed labels": (b"text,label\nx,1\ny,good\n", "labels of mixed types .line 2 has '1', line 3 has 'good'."),
    "broken utf-8": (b"text,label\nx,1\ncaf\xe9,0\n", "line 3 is not UTF-8 .byte 0xe9 at column 4."),
    "short row": (b"text,label\nx,1\ny\n", "line 3 has 1 fields, the header has 2"),
    "open quote": (b'text,label\nx,1\n"y,0\nz,1\n', "line 3 is not well-formed CSV"),
}


@pytest.mark.parametrize(("content", "message"), CSV_FAULTS.values(), ids=CSV_FAULTS)
def test_faults_are_named_with_their_row(tmp_path, content, message):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(UnshakenError, match=message):
        load_task(path)


JSONL_FAULTS = {
    "not json": ('{"text": "x", "label": 1}\n{"text": \n', "line 2 is not JSON"),
    "not an object": ('["x", 1]\n', "line 1 is list, not an object"),
    "text is no text": ('{"text": 5, "label": 1}\n{"text": "x", "label": 0}\n', "line 1 has int in text column 'text'"),
    "column missing later": (
        '{"text": "x", "label": 1}\n{"txt": "y", "label": 0}\n',
        "line 2: no column 'text'; did you",
    ),
    "mixed labels": ('{"text": "x", "label": 1}\n{"text": "y", "label": "no"}\n', "labels of mixed types"),
}


@pytest.mark.parametrize(("content", "message"), JSONL_FAULTS.values(), ids=JSONL_FAULTS)
def test_faults_in_json_lines(tmp_path, content, message):
    path = tmp_path / "a.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UnshakenError, match=message):
        load_task(path)


def test_wrong_names_answer_with_the_nearest(tmp_path):
    path = write_csv(tmp_path / "a.csv", ROWS, ("review_text", "label"))
    with pytest.raises(UnshakenError, match="no column 'reviewtext'; did you mean 'review_text'"):
        load_task(path, text_columns=("reviewtext",))
    with pytest.raises(UnshakenError, match="no column 'lable'; did you mean 'label'"):
        load_task(path, text_columns=("review_text",), label_column="lable")
    with pytest.raises(UnshakenError, match="line 2 has the unknown label 'pos'; did you mean 'post'"):
        load_task(path, text_columns=("review_text",), label_names=("pre", "post"))
    with pytest.raises(UnshakenError, match="3 text columns given"):
        load_task(path, text_columns=("review_text", "label", "label"))


def test_labels_unseen_in_train_are_unknown(tmp_path):
    second = write_csv(tmp_path / "b.csv", [("x", "neutral")])
    with pytest.raises(UnshakenError, match=r"b.csv: line 2 has the unknown label 'neutral'"):
        load_task(write_csv(tmp_path / "a.csv"), validation=second)


def test_duplicate_ids(tmp_path):
    path = write_csv(tmp_path / "a.csv", [("7", "x", "1"), ("7", "y", "0")], ("id", "text", "label"))
    with pytest.raises(UnshakenError, match="id 'train/7' occurs 2 times"):
        load_task(path, id_column="id")


def test_missing_paths(tmp_path):
    with pytest.raises(UnshakenError, match="no such file"):
        load_task(tmp_path / "nowhere.csv")
    (tmp_path / "a.xlsx").write_bytes(b"PK")
    with pytest.raises(UnshakenError, match=r"the ending '.xlsx' is not known"):
        load_task(tmp_path / "a.xlsx")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnshakenError, match="holds no data; name its files train"):
        load_task(tmp_path / "empty")


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_a_file_that_is_not_what_its_ending_says(tmp_path, ending):
    pytest.importorskip("pyarrow")
    path = tmp_path / f"a.{ending}"
    path.write_bytes(b"text,label\nx,1\n" * 10)
    with pytest.raises(UnshakenError, match=f"a.{ending}: not a {ending.capitalize()} file, or a broken one"):
        load_task(path)
    with pytest.raises(UnshakenError, match=f"a.{ending}: not a {ending.capitalize()} file"):
        class_labels(path, "label")


def test_only_parquet_needs_pyarrow(tmp_path, monkeypatch):
    parquet = write_rows(tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert len(load_examples(write_csv(tmp_path / "a.csv"))) == len(ROWS)
    with pytest.raises(UnshakenError, match="needs pyarrow"):
        load_examples(parquet)


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_reading_holds_one_row_at_a_time(tmp_path, ending):
    path = write_rows(tmp_path / f"a.{ending}", [("word " * 200, i % 2) for i in range(10_000)])
    assert path.stat().st_size > 10_000_000
    tracemalloc.start()
    try:
        assert sum(1 for _ in read(path)) == 10_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


def test_a_column_is_no_text_and_label_at_once(tmp_path):
    """A model that reads its labels would be right about everything."""
    (tmp_path / "rows.csv").write_text("text,other,label\na,b,yes\nc,d,no\n")
    for texts, label in ((["label"], "label"), (["other", "label"], "label"), (["text", "text"], None)):
        with pytest.raises(UnshakenError, match=f"column '{texts[-1]}' is named twice"):
            load_examples(tmp_path / "rows.csv", text_columns=texts, label_column=label)


def test_texts_alone_are_taken_from_any_file(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("premise,hypothesis,label\na,b,\nc,d,yes\n")
    with pytest.raises(UnshakenError, match="line 2 has no label"):
        load_examples(file, unlabelled=True)
    found = load_examples(file, texts_only=True)
    assert found.texts == [("a", "b"), ("c", "d")]
    assert set(found.labels) == {-1}
    (tmp_path / "answers.csv").write_text("target,day\ngood,Monday\nbad,Friday\n")
    assert load_examples(tmp_path / "answers.csv", text_columns=["target"], texts_only=True).texts == [
        ("good",),
        ("bad",),
    ]
    (tmp_path / "called.csv").write_text("label\ngood\nbad\n")  # no class, although labels mostly have that name
    for names in (None, ("negative", "positive")):
        found = load_examples(tmp_path / "called.csv", text_columns=["label"], label_names=names, texts_only=True)
        assert (found.texts, set(found.labels)) == ([("good",), ("bad",)], {-1})
    with pytest.raises(UnshakenError, match="did you mean 'premise'"):
        load_examples(file, text_columns=["premis"], texts_only=True)
