"""The hub, by way of `datasets` itself: a folder stands for a repository, so nothing is downloaded."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from unshaken.errors import UnshakenError
from unshaken.tasks import TASKS, Hub, load_task
from unshaken.tasks.own import ColumnNames, load_sources
from unshaken.tasks.row_sources import hub_sources
from unshaken.tasks.sources import from_hub

datasets = pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def offline_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


def write_split(folder, split, labels):
    folder.mkdir(exist_ok=True)
    rows = [{"sentence": f"{split} {i}", "label": label, "idx": i} for i, label in enumerate(labels)]
    (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_a_built_in_task_from_the_hub(tmp_path):
    folder = tmp_path / "repository"
    for split, labels in {"train": [0, 1, 1], "validation": [1], "test": [-1, -1]}.items():
        write_split(folder, split, labels)
    hub = Hub(path=str(folder), splits={"train": "train", "validation": "validation", "test": "test"})
    data = from_hub(replace(TASKS["sst2"], hub=hub))
    assert data.train.labels == [0, 1, 1]
    assert data.validation[0].id == "validation/0"
    assert data.test is None
    assert len(data.unlabelled) == 2


def test_a_data_set_of_ones_own_from_the_hub(tmp_path):
    folder = tmp_path / "repository"
    write_split(folder, "train", ["up", "down"])
    write_split(folder, "test", ["down"])
    data = load_sources(hub_sources(str(folder)), ColumnNames(), name="mine")
    assert data.train.labels == [1, 0]
    assert data.test.labels == [0]


def test_offline_is_an_error_with_a_cure():
    with pytest.raises(UnshakenError, match=r"cannot load 'nyu-mll/glue' from the hub .*pass data=DIR"):
        load_task("sst2")
    with pytest.raises(
        UnshakenError, match="no such file or folder: nobody/nothing; cannot load 'nobody/nothing' from the hub"
    ):
        load_task("nobody/nothing")


@pytest.mark.parametrize("answers", [True, False])
def test_a_hub_that_does_not_answer_is_asked_once_and_the_cache_is_looked_at(monkeypatch, answers):
    """`datasets` would ask again and again, for twenty seconds."""
    import huggingface_hub
    from huggingface_hub import constants

    asked, offline = [], []

    class Session:
        def head(self, url, **options):
            asked.append(url)
            if not answers:
                raise OSError("no network")

    def load_dataset(*words, **options):
        offline.append((constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE))
        raise ValueError("not there")

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "get_session", Session)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(UnshakenError, match="not there"):
        load_task("sst2")
    assert asked == [constants.ENDPOINT]
    assert offline == [(not answers, not answers)]
    assert (constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE) == (False, False)


def test_without_datasets_is_an_error_with_a_cure(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UnshakenError, match="'datasets' is not installed"):
        load_task("imdb")
