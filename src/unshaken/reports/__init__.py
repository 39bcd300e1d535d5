"""Views of a report: terminal, Markdown, LaTeX, CSV, one HTML page, figures and the model card."""

from unshaken.evaluation import FLAGS, SCHEMA_VERSION, Check, Report, TrainingRecord, evaluate, merge

__all__ = ["FLAGS", "SCHEMA_VERSION", "Check", "Report", "TrainingRecord", "evaluate", "merge"]
