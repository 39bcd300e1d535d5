"""Protocols: nothing depends on file order, nothing is on two sides, sizes are what was asked."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unshaken.errors import UnshakenError
from unshaken.examples import Example, Examples
from unshaken.tasks import SHARED_SEEDS, TASKS, Balanced, LowResource, Standard, TaskData, load_task, stratified_split
from unshaken.tasks.sampling import balanced_sample, draw, rank, text_key


def examples(labels, name="sst2/train", texts=None):
    texts = texts or [f"text number {i}" for i in range(len(labels))]
    rows = tuple(
        Example(id=f"train/{i}", texts=(text,), label=label)
        for i, (text, label) in enumerate(zip(texts, labels, strict=True))
    )
    return Examples(rows=rows, name=name, label_names=("a", "b", "c"))


many = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2)), min_size=30, max_size=120)


@settings(deadline=None)
@given(many, st.floats(0.2, 0.6), st.integers(0, 5))
def test_a_split_is_a_partition_without_copies_on_both_sides(rows, share, seed):
    whole = examples([label for _, label in rows], texts=[f"text {number}" for number, _ in rows])
    try:
        rest, held_out = stratified_split(whole, share, seed)
    except UnshakenError:
        # Only where too few texts have one label: of 13, five share a label, and the smallest fits a share of 0.2.
        assert sum(len({label for n, label in rows if n == number}) == 1 for number in range(41)) < 13
        return
    assert sorted(row.id for row in (*rest, *held_out)) == sorted(row.id for row in whole)
    assert not set(rest.texts) & set(held_out.texts)
    shuffled = whole.with_rows(random.Random(seed).sample(whole.rows, len(whole)))
    assert set(stratified_split(shuffled, share, seed)[1].texts) == set(held_out.texts)


def test_every_label_gives_its_share():
    whole = examples([0] * 100 + [1] * 50 + [2] * 10)
    rest, held_out = stratified_split(whole, 0.2)
    assert Counter(held_out.labels) == {0: 20, 1: 10, 2: 2}
    assert len(rest) == 128


def test_a_new_row_moves_at_most_one_other_row():
    before = {row.texts for row in stratified_split(examples([0, 1] * 50), 0.2)[1]}
    after = {row.texts for row in stratified_split(examples([0, 1] * 50 + [0]), 0.2)[1]}
    assert len(before & after) >= len(before) - 1


def test_small_samples_are_inside_large_ones():
    pool = examples([0, 1, 2] * 100)
    small = {row.id for row in draw(pool, {None: 50}, 1)[0]}
    large = {row.id for row in draw(pool, {None: 100}, 1)[0]}
    assert small < large
    assert {row.id for row in draw(pool, {None: 50}, 2)[0]} != small


def test_the_rows_of_a_seed_are_the_same_in_every_version():
    assert SHARED_SEEDS == (0, 1, 2)
    assert rank("good film", 0).hex() == "af44c410837e22bb0eafff0afdc8bb50"  # printf '0\x1fgood film' | b2sum -l 128
    assert rank("a/1", 3).hex() == "bccf84730db1f8ac8975615e2d93b584"


def test_whoever_names_no_seed_gets_seed_0():
    pool = examples([0, 1, 2] * 20)
    assert stratified_split(pool, 0.2)[1].rows == stratified_split(pool, 0.2, 0)[1].rows
    assert balanced_sample(pool, 9).rows == balanced_sample(pool, 9, 0).rows
    assert TaskData(task=TASKS["sst2"]).seed == 0
    assert LowResource().size == 500


def test_labels_that_nobody_asked_for_are_not_drawn():
    drawn, rest = draw(examples([0, 1, 2] * 10), {1: 4}, 0)
    assert (Counter(drawn.labels), len(rest)) == ({1: 4}, 26)


def copied(*families):
    """Rows with what they were copied from: (text, None), (copy, text), ..."""
    rows = [Example(id=str(i), texts=(t,), label=0, copy_of=o and (o,)) for i, (t, o) in enumerate(families)]
    return Examples(rows=tuple(rows), label_names=("a", "b"))


def test_copies_of_copies_and_rows_that_read_like_copies_stay_with_their_origin():
    chain = [("one", None), ("two", "one"), ("three", "two"), ("Four", "three"), ("four", None), ("four", "five")]
    for seed in range(10):
        others = [(f"text {i}", None) for i in range(40)]
        for given_rows in (chain + others, others + chain[::-1]):
            whole = copied(*given_rows)
            held_out = {row.texts[0].lower() for row in stratified_split(whole, 0.5, seed)[1]}
            assert held_out & {"one", "two", "three", "four", "five"} in (set(), {"one", "two", "three", "four"})


def test_copies_move_no_row_to_the_other_side():
    """A family stands where the text does that it was made of."""
    texts = [(f"text {i}", None) for i in range(40)]
    copies = [(f"{'copy' if i % 2 else 'written anew'} {i}", f"text {i}") for i in range(40)]
    for seed in range(5):
        before = {row.texts for row in draw(copied(*texts), {None: 10}, seed)[0]}
        after = {row.texts for row in draw(copied(*copies, *texts), {None: 20}, seed)[0]}
        assert {row for row in after if row[0].startswith("text")} == before


def test_class_balance_needs_classes_and_texts_of_one_class():
    with pytest.raises(UnshakenError, match="no text with one label alone"):
        balanced_sample(examples([0, 1] * 5, texts=[f"text {i // 2}" for i in range(10)]))
    with pytest.raises(UnshakenError, match="has targets, of which no sample is class-balanced"):
        balanced_sample(examples([0.5, 1.5] * 5))


def test_texts_with_two_labels_are_never_drawn_by_label():
    whole = examples([0, 1] * 20 + [0, 1], texts=[f"text {i}" for i in range(40)] + ["Both!", "both"])
    assert Counter(balanced_sample(whole).labels) == {0: 20, 1: 20}
    rest, _ = stratified_split(whole, 0.2)
    assert {("Both!",), ("both",)} <= set(rest.texts)


def test_balanced_sample_has_as_many_of_each():
    whole = examples([0] * 100 + [1] * 50 + [2] * 10)
    assert Counter(balanced_sample(whole, 15).labels) == {0: 5, 1: 5, 2: 5}
    assert Counter(balanced_sample(whole).labels) == {0: 10, 1: 10, 2: 10}
    with pytest.raises(UnshakenError, match="sample of 16 is no multiple of the 3 labels"):
        balanced_sample(whole, 16)
    with pytest.raises(UnshakenError, match="too few rows of label 'c': 11 asked, 1 missing"):
        balanced_sample(whole, 33)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 20])
def test_a_share_is_between_nothing_and_all(share):
    with pytest.raises(UnshakenError, match="share to hold out"):
        stratified_split(examples([0, 1] * 5), share)


def test_too_little_data_to_split():
    with pytest.raises(UnshakenError, match=r"has 2 rows with 2 different texts, too few to hold out .*; add rows"):
        stratified_split(examples([0, 1]), 0.2)
    with pytest.raises(UnshakenError, match="has 40 labels in 40 rows; name the column that has the classes"):
        stratified_split(examples(list(range(40))), 0.2)
    labels = [*range(11), *range(11)]  # of each two rows, so that a fifth of them is none
    with pytest.raises(UnshakenError, match="has 11 labels in 20 rows; name the column"):
        stratified_split(examples(labels[:20]), 0.2)
    with pytest.raises(UnshakenError, match="has 22 rows with 22 different texts, too few"):  # half of them: classes
        stratified_split(examples(labels), 0.2)


@pytest.fixture
def glue():
    dev = examples([0, 1] * 5, "sst2/validation")
    return TaskData(task=TASKS["sst2"], train=examples([0, 1] * 100), validation=dev)


def test_standard_selects_and_reports_on_different_rows(glue):
    data = Standard().apply(glue, seed=0, folder=None)
    assert (len(data.train), len(data.validation), len(data.test)) == (160, 40, 10)
    assert data.test.name == "sst2/validation"
    assert data.validation.name == "sst2/train:held-out"
    assert not {row.id for row in data.train} & {row.id for row in data.validation}
    assert len(data.notes) == 2


def test_a_seed_holds_out_its_own_rows_and_all_seeds_report_on_the_same(glue):
    whole = TaskData(task=TASKS["rotten-tomatoes"], train=glue.train)
    for published in (glue, whole):
        runs = [Standard().apply(published, seed=seed, folder=None) for seed in SHARED_SEEDS]
        assert len({data.validation.fingerprint for data in runs}) == len(SHARED_SEEDS)
        assert len({data.test.fingerprint for data in runs}) == 1
    assert runs[-1].test.rows == stratified_split(glue.train, 0.125, 0)[1].rows


def test_standard_takes_published_splits_where_all_are_labelled(glue):
    snli = TaskData(task=TASKS["snli"], train=glue.train, validation=glue.validation, test=glue.validation)
    assert Standard().apply(snli, seed=0, folder=None).splits == snli.splits


@pytest.mark.parametrize("size", [20, 40])
def test_low_resource_draws_as_many_to_train_and_to_validate(glue, size):
    runs = [LowResource(size=size).apply(glue, seed=seed, folder=None) for seed in SHARED_SEEDS]
    for data in runs:
        assert (len(data.train), len(data.validation), len(data.test)) == (size, size, 10)
        assert not set(data.train.texts) & set(data.validation.texts)
    assert len({data.train.fingerprint for data in runs}) == len(SHARED_SEEDS)
    again = LowResource(size=size).apply(glue, seed=SHARED_SEEDS[0], folder=None)
    assert again.train.fingerprint == runs[0].train.fingerprint


def test_low_resource_options(glue):
    data = LowResource(size=40, validation=10, balanced=True).apply(glue, seed=0, folder=None)
    assert Counter(data.train.labels) == {0: 20, 1: 20}
    assert len(data.validation) == 10
    with pytest.raises(UnshakenError, match="sst2/train has too few rows: 500 asked, 300 missing"):
        LowResource(size=500).apply(glue, seed=0, folder=None)
    with pytest.raises(UnshakenError, match="sample of 41 is no multiple of the 2 labels"):
        LowResource(size=41, balanced=True).apply(glue, seed=0, folder=None)


def test_balanced_protocol_leaves_validation_and_test_alone(glue):
    data = Balanced(size=60).apply(glue, seed=0, folder=None)
    assert Counter(data.train.labels) == {0: 30, 1: 30}
    assert (len(data.validation), len(data.test), data.protocol) == (40, 10, "balanced")
    assert Counter(Balanced().apply(glue, seed=0, folder=None).train.labels) == {0: 80, 1: 80}
    one = examples([0] * 10 + [1] * 10)
    assert (
        len(LowResource(size=1, validation=1).apply(TaskData(task=TASKS["snli"], train=one), seed=0, folder=None).train)
        == 1
    )
    assert Balanced(size=1).size == 1
    for wrong in (Balanced, LowResource):
        with pytest.raises(UnshakenError, match=r"size=0.*at least 1 row"):
            wrong(size=0)


def test_protocols_by_name(tmp_path):
    rows = "".join(f"text {i}\t{i % 2}\n" for i in range(50))
    (tmp_path / "train.tsv").write_text("sentence\tlabel\n" + rows, encoding="utf-8")
    data = load_task("sst2", data=tmp_path, protocol="low_resource:size=10", seed=1)
    assert (data.protocol, data.seed, len(data.train), data.test) == ("low-resource", 1, 10, None)
    with pytest.raises(UnshakenError, match="unknown protocol 'standart'; did you mean 'standard'"):
        load_task("sst2", data=tmp_path, protocol="standart")
    with pytest.raises(UnshakenError, match="has no option 'sise'; did you mean 'size'"):
        load_task("sst2", data=tmp_path, protocol="low-resource:sise=10")


def test_jia_split_goes_by_file_name(tmp_path):
    for name in ("train/neg/0_1", "train/pos/0_9", "train/pos/1_8", "test/neg/0_2", "test/pos/3_9"):
        path = tmp_path / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text of {name}", encoding="utf-8")
    lists = {"train": ["pos/1_8.txt", "neg/0_1.txt"], "dev": ["pos/0_9.txt"], "test": ["pos/3_9.txt", "neg/0_2.txt"]}
    for split, names in lists.items():
        (tmp_path / f"imdb_{split}_files.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    data = load_task("imdb", data=tmp_path, protocol="jia2019")
    assert [row.id for row in data.train] == ["train/pos/1_8", "train/neg/0_1"]
    assert [row.id for row in data.validation] == ["train/pos/0_9"]
    assert [row.id for row in data.test] == ["test/pos/3_9", "test/neg/0_2"]
    (tmp_path / "imdb_dev_files.txt").write_text("pos/77_9.txt\n", encoding="utf-8")
    with pytest.raises(UnshakenError, match="no example with id 'train/pos/77_9'"):
        load_task("imdb", data=tmp_path, protocol="jia2019")
    (tmp_path / "imdb_dev_files.txt").unlink()
    with pytest.raises(UnshakenError, match=r"holds no imdb_dev_files\.txt"):
        load_task("imdb", data=tmp_path, protocol="jia2019")


def test_jia_split_is_for_imdb(tmp_path):
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\nx\t1\n", encoding="utf-8")
    with pytest.raises(UnshakenError, match="is for task 'imdb'"):
        load_task("sst2", data=tmp_path, protocol="jia2019")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("It's fine.", "it 's fine .", True),
        ("a<br /><br />b", "A b", True),
        ("ﬁne", "fine", True),
        ("good", "goods", False),
        ("!!!", "???", False),
        ("日本", "日本。", True),
    ],
)
def test_text_key(one, other, same):
    assert (text_key([one]) == text_key([other])) is same


def test_text_key_keeps_the_two_texts_apart():
    assert text_key(["a", "bc"]) != text_key(["ab", "c"])
