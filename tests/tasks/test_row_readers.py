"""Files as programs write them and as they break: what is read of each, and which row is named."""

from __future__ import annotations

import json

import pytest

from unshaken.errors import UnshakenError
from unshaken.tasks import load_blocks, load_examples, load_task
from unshaken.tasks.readers import LONGEST, read, text_lines


def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    assert LONGEST == 134_217_728
    monkeypatch.setattr("unshaken.tasks.readers.LONGEST", 20)
    (tmp_path / "a.tsv").write_text("text\n" + 19 * "x" + "\n" + 20 * "y" + "\n", encoding="utf-8")
    lines = text_lines(tmp_path / "a.tsv")
    assert [next(lines), next(lines)] == ["text\n", 19 * "x" + "\n"]
    with pytest.raises(UnshakenError, match="line 3 has more than 20 bytes"):
        next(lines)


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ('"plain"', "plain"),
        ('"a ""b"" c"', 'a "b" c'),
        ('"a" and "b"', '"a" and "b"'),
        ('"', '"'),
        ('x"', 'x"'),
        ('"""', '"""'),
        ('""""', '"'),
    ],
)
def test_only_a_field_wholly_in_quotes_loses_them(tmp_path, cell, text):
    (tmp_path / "a.tsv").write_text(f"text\tlabel\n{cell}\t1\n", encoding="utf-8")
    assert load_examples(tmp_path / "a.tsv").texts == [(text,)]


def test_quotes_around_nothing_are_no_text(tmp_path):
    (tmp_path / "a.tsv").write_text('text\tlabel\nx\t0\n""\t1\n', encoding="utf-8")
    with pytest.raises(UnshakenError, match="line 3 has an empty text"):
        load_examples(tmp_path / "a.tsv")


def test_json_may_hold_what_is_missing_in_columns_that_nobody_reads(tmp_path):
    rows = [{"text": f"text {i}", "label": i, "score": float("nan")} for i in range(2)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (tmp_path / "a.json").write_text(json.dumps(rows), encoding="utf-8")
    (tmp_path / "b.json").write_text(json.dumps({"data": rows}), encoding="utf-8")
    for name in ("a.jsonl", "a.json", "b.json"):
        assert load_examples(tmp_path / name).labels == [0, 1]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"rows": []}, "a.json: expected a list of objects"),
        ({"data": [], "more": []}, "a.json: expected a list of objects"),
        ([{"text": "x", "label": 1}, 3], "row 2 is int, not an object with named fields"),
        ([{"text": "x", "label": 1}, {"text": "\ud83d", "label": 0}], "row 2 has half a surrogate pair in 'text'"),
        ([{"text": "x", "\ud83d": 1}], "row 1 has half a surrogate pair"),
    ],
)
def test_json_that_is_no_table(tmp_path, value, message):
    (tmp_path / "a.json").write_text(json.dumps(value), encoding="utf-8")
    with pytest.raises(UnshakenError, match=message):
        load_examples(tmp_path / "a.json")


def test_a_file_of_several_tasks_has_a_list_for_each(tmp_path):
    (tmp_path / "dev.json").write_text('{"sst2": {"sentence": "x", "label": 1}}', encoding="utf-8")
    with pytest.raises(UnshakenError, match="expected an object whose 'sst2' is a list of objects"):
        load_task("advglue-sst2", data=tmp_path)


def test_offsets_that_point_outside_an_arrow_file_are_not_followed(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    offsets = pyarrow.array([0, 3, 1_000_000, 9], pyarrow.int32()).buffers()[1]
    texts = pyarrow.StringArray.from_buffers(3, offsets, pyarrow.py_buffer(b"onetwosix"))
    batch = pyarrow.record_batch([texts, pyarrow.array([0, 1, 0])], ["text", "label"])
    with pyarrow.OSFile(str(tmp_path / "a.arrow"), "wb") as file, pyarrow.ipc.new_stream(file, batch.schema) as stream:
        stream.write_batch(batch)
    with pytest.raises(UnshakenError, match=r"a.arrow: not a Arrow file, or a broken one"):
        list(read(tmp_path / "a.arrow"))


def test_blocks_are_the_file_cut_into_rows_of_that_number(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\n" + "".join(f"text {i},{i % 2}\n" for i in range(20)), encoding="utf-8")
    whole = load_examples(path)
    for size, lengths in ((1, [1] * 20), (7, [7, 7, 6]), (20, [20]), (99, [20])):
        blocks = list(load_blocks(path, size))
        assert [len(block) for block in blocks] == lengths
        assert [row for block in blocks for row in block] == list(whole)
    with pytest.raises(UnshakenError, match="a block has 0 rows"):
        next(load_blocks(path, 0))


def test_a_block_is_checked_as_a_whole_file_is(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\na,1\nb,0\nc,\nd,-1\n", encoding="utf-8")
    blocks = load_blocks(path, 2, label_names=("no", "yes"))
    assert next(blocks).labels == [1, 0]
    with pytest.raises(UnshakenError, match="no labels in column 'label', from the id 'test/2' on"):
        next(blocks)
    path.write_text("text,label\na,1\n ,0\n", encoding="utf-8")
    with pytest.raises(UnshakenError, match="line 3 has an empty text"):
        next(load_blocks(path, 2))
    path.write_text("text,label\na,0.5\nb,1.5\n", encoding="utf-8")
    assert next(load_blocks(path, 2)).labels == [0.5, 1.5]


@pytest.mark.parametrize(
    ("told", "origin"), [(["A text"], ("A text",)), (["one", "two"], None), ([3], None), ("A text", None), ([], None)]
)
def test_a_copy_says_which_text_it_was_made_from(tmp_path, told, origin):
    rows = [{"text": "B text", "label": 1, "original": told}, {"text": "x", "label": 0}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert [row.copy_of for row in load_examples(tmp_path / "a.jsonl")] == [origin, None]


def test_unperturbed_texts_may_be_empty_as_published(tmp_path):
    (tmp_path / "a.csv").write_text("text,original_text,label\na,,1\nb,c,0\n", encoding="utf-8")
    found = load_examples(tmp_path / "a.csv", label_column="label")
    assert [row.original for row in found] == [("",), ("c",)]
