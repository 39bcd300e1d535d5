"""Measuring: a victim, examples and attacks become plain results, statistics, comparisons and reliability flags."""

from unshaken.evaluation.evaluate import evaluate
from unshaken.evaluation.flags import FLAGS, Check
from unshaken.evaluation.report import SCHEMA_VERSION, Report, merge
from unshaken.evaluation.training_record import TrainingRecord

__all__ = ["FLAGS", "SCHEMA_VERSION", "Check", "Report", "TrainingRecord", "evaluate", "merge"]
