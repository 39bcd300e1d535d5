"""Measuring: a victim, examples and attacks become plain results, statistics, comparisons and reliability flags."""

from unshaken.evaluation.blocks import Tally, evaluate_blocks
from unshaken.evaluation.evaluate import evaluate
from unshaken.evaluation.flags import FLAGS, Check
from unshaken.evaluation.forecast import Forecast, forecast
from unshaken.evaluation.report import SCHEMA_VERSION, Report, merge
from unshaken.evaluation.training_record import TrainingRecord

__all__ = [
    "FLAGS",
    "SCHEMA_VERSION",
    "Check",
    "Forecast",
    "Report",
    "Tally",
    "TrainingRecord",
    "evaluate",
    "evaluate_blocks",
    "forecast",
    "merge",
]
