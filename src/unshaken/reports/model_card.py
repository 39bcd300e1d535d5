"""The model card saved with each model: its numbers with intervals, how it was trained, its limits, what to cite."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unshaken.display import visible
from unshaken.evaluation import citations
from unshaken.evaluation.report import Report
from unshaken.evaluation.results import CLEAN, Evaluation
from unshaken.evaluation.training_record import TrainingRecord
from unshaken.files import write_text
from unshaken.reports.views import escape_markdown, markdown_table
from unshaken.schema import encode

LIMITS = (
    "Accuracy under attack is an upper bound: it holds for the attacks, substitution sets and budgets named here, and "
    "a stronger attack can only lower it.",
    "Word substitutions are not always faithful to the meaning; look at the adversarial examples of the report before "
    "quoting a number.",
    "The intervals cover the choice of examples, not the training seed; compare methods over three or more seeds.",
    "The model has been tested on the data sets named here alone; other domains, languages and lengths are untested.",
)


def model_card(record: TrainingRecord, report: Report | None = None, *, name: str | None = None) -> str:
    """The card as Markdown with the hub's metadata on top.

    Args:
        report: Its evaluation, where there is one; with several models, those of this record count, asked as training
            left them: not through a vote, at another temperature, or by another reader.
        name: Title of the card; the method if None.
    """
    evaluations = [] if report is None else _own(record, report.evaluations)
    title = name or record.method
    parts = [
        _metadata(record, evaluations, title),
        f"# {escape_markdown(title)}",
        f"{escape_markdown(record.base_model)} fine-tuned on {escape_markdown(record.task)} with "
        f"{escape_markdown(record.method)}, training seed {record.seed}, by [unshaken](https://pypi.org/project/unshaken/).",
        "## Use",
        _usage(record),
        "## Numbers",
        _numbers(evaluations) if evaluations else "Not evaluated yet: run `unshaken evaluate` on this folder.",
    ]
    if report is not None:
        subjects = tuple(f"{name} on " for item in evaluations for name in (report.name_of(item), item.model.method))
        flags = [check for check in report.flags if check.subject.startswith(subjects)]
        parts += [
            f"- **{check.flag}**: {escape_markdown(check.evidence)}. {escape_markdown(check.settle.capitalize())}."
            for check in flags
        ]
    parts += ["## Limits", "\n".join(f"- {limit}" for limit in LIMITS)]
    settings = visible(json.dumps(encode(record), indent=2, ensure_ascii=False))
    parts += ["## Training", f"```json\n{_unfenced(settings)}\n```"]
    papers = dict.fromkeys([*citations.of_record(record), *citations.of_evaluations(evaluations)])
    if papers:
        parts += ["## Citation", *(f"```bibtex\n{_unfenced(text)}\n```" for text in papers)]
    return "\n\n".join(parts) + "\n"


def _own(record: TrainingRecord, evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """Those of this record's model. One without a record can be any model, unless the report has no other."""
    alone = len({item.model.fingerprint for item in evaluations}) == 1
    told = [(item, replace(item.model, training=item.model.training or record)) for item in evaluations]
    return [
        item
        for item, model in told
        if (alone or item.model.training is not None)
        and model.training is not None
        and model.training.as_trained == record.as_trained
        and model.is_as_trained
    ]


def save_model_card(folder: Path | str, record: TrainingRecord, report: Report | None = None) -> Path:
    """Write the card and the training record into a model's folder."""
    record.save(folder)
    return write_text(Path(folder) / "README.md", model_card(record, report))


def _metadata(record: TrainingRecord, evaluations: list[Evaluation], title: str) -> str:
    """The hub's front matter; huggingface_hub knows its format."""
    from huggingface_hub import EvalResult, ModelCardData

    results = [
        EvalResult(
            task_type="text-classification",
            dataset_type=item.data.name,
            dataset_name=item.data.name,
            metric_type="accuracy",
            metric_name="accuracy" if condition == CLEAN else f"accuracy ({condition})",
            metric_value=round(item.accuracy(condition).value, 4),
        )
        for item in evaluations
        for condition in item.conditions
        if item.accuracy(condition).total  # of an attack that ended in errors alone nothing is known
    ]
    fields: dict[str, Any] = {
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "tags": ["unshaken", "adversarial-robustness"],
    }
    if re.fullmatch(r"[\w.-]+(/[\w.-]+)?", record.base_model):  # the hub refuses anything but its own names here
        fields["base_model"] = record.base_model
    if results:
        fields |= {"model_name": title, "eval_results": results}
    return f"---\n{ModelCardData(**fields).to_yaml().strip()}\n---"


def _usage(record: TrainingRecord) -> str:
    if record.details.get("reader"):
        return (
            "```python\nfrom unshaken import Victim\n\n"
            'classify = Victim.from_pretrained("path/or/name/of/this/model")\n'
            'classify.log_probabilities([("a gripping, funny film",)])  # of each class\n```\n\n'
            f"Its reader ({escape_markdown(str(record.details['reader']))}) is saved beside the weights and mends "
            "texts before the model sees them. `transformers.pipeline` loads the model without it; what it answers "
            "then was not measured here."
        )
    needs_unshaken = bool(record.details.get("connection"))
    import_line = "import unshaken  # teaches transformers the connected layers\n" if needs_unshaken else ""
    return (
        f"```python\n{import_line}from transformers import pipeline\n\n"
        'classify = pipeline("text-classification", "path/or/name/of/this/model")\n'
        'classify("a gripping, funny film")\n```'
    )


def _numbers(evaluations: list[Evaluation]) -> str:
    headings = ("data", "condition", "accuracy [95%]", "n", "most frequent label")
    shares = [(item, condition, item.accuracy(condition)) for item in evaluations for condition in item.conditions]
    return markdown_table(
        headings,
        [
            (item.data.name, item.title(condition), str(share), str(share.total), f"{100 * item.majority_baseline:.1f}")
            for item, condition, share in shares
        ],
    )


def _unfenced(text: str) -> str:
    """A fence inside a value would end the block."""
    return text.replace("```", "` ` `")
