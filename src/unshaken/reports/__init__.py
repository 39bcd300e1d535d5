"""Evaluation, reliability flags, and reports in every form."""

from unshaken.reports.evaluation import evaluate
from unshaken.reports.flags import FLAGS, Check
from unshaken.reports.report import SCHEMA_VERSION, Report, merge
from unshaken.reports.training_record import TrainingRecord

__all__ = ["FLAGS", "SCHEMA_VERSION", "Check", "Report", "TrainingRecord", "evaluate", "merge"]
