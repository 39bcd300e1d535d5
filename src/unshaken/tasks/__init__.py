"""Data sets as rows of data, a user's own files, and the protocols of the papers."""

from unshaken.tasks.leakage import Leakage, LeakageWarning, leakage, save_trained_on, trained_on
from unshaken.tasks.load import known_task, load_blocks, load_examples, load_task, save_examples, task_names
from unshaken.tasks.metrics import METRICS, advglue_score, score
from unshaken.tasks.sampling import (
    PROTOCOLS,
    SHARED_SEEDS,
    Balanced,
    Jia2019,
    LowResource,
    Official,
    Protocol,
    Standard,
    balanced_sample,
    stratified_split,
)
from unshaken.tasks.specs import TASK_GROUPS, TASKS
from unshaken.tasks.tables import table_examples
from unshaken.tasks.task import Hub, Task, TaskData

__all__ = [
    "METRICS",
    "PROTOCOLS",
    "SHARED_SEEDS",
    "TASKS",
    "TASK_GROUPS",
    "Balanced",
    "Hub",
    "Jia2019",
    "Leakage",
    "LeakageWarning",
    "LowResource",
    "Official",
    "Protocol",
    "Standard",
    "Task",
    "TaskData",
    "advglue_score",
    "balanced_sample",
    "known_task",
    "leakage",
    "load_blocks",
    "load_examples",
    "load_task",
    "save_examples",
    "save_trained_on",
    "score",
    "stratified_split",
    "table_examples",
    "task_names",
    "trained_on",
]
