"""The report as one self-contained HTML page: it opens offline, and every text from data is shown, never run.

Numbers, tables, flags and charts are plain HTML, so the page reads without scripts. One script, the only one the
page's content security policy lets run, pages through the adversarial examples; their texts reach it as JSON and the
document as text nodes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

from unshaken.evaluation.flags import FLAGS, Check
from unshaken.evaluation.results import CLEAN, WORST_CASE, Evaluation, Proportion
from unshaken.reports import charts
from unshaken.reports.browser import browser_data
from unshaken.reports.tables import (
    attack_table,
    by_data,
    comparison_tables,
    escape,
    interval,
    percent,
    plain_table,
    table_row,
)

if TYPE_CHECKING:
    from unshaken.evaluation.report import Report


def page(report: Report) -> str:
    """The whole page."""
    parts = files("unshaken.reports") / "page"
    script = (parts / "browse.js").read_text(encoding="utf-8")
    script_hash = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Template((parts / "page.html").read_text(encoding="utf-8")).substitute(
        script_hash=script_hash,
        style=(parts / "style.css").read_text(encoding="utf-8"),
        script=script,
        data=json_for_script(browser_data(report)),
        subtitle=_subtitle(report),
        cards=_cards(report),
        comparison=comparison_tables(report),
        flags=_flags(report),
        flag_count=len({check.flag for check in report.flags}),
        charts=charts.charts(report),
        attacks=attack_table(report),
        details=_details(report),
    )


def json_for_script(value: Any) -> str:
    """JSON that cannot end the script element it stands in, whatever the texts hold."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _subtitle(report: Report) -> str:
    models = len(report.model_names)
    data = list(dict.fromkeys(evaluation.data.name for evaluation in report.evaluations))
    attacks = {run.attack for evaluation in report.evaluations for run in evaluation.attacks}
    created = max(evaluation.created for evaluation in report.evaluations)[:10]
    counts = [_count(models, "model"), _count(len(data), "data set"), _count(len(attacks), "attack"), created]
    return " · ".join(escape(item) for item in counts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def hardest(evaluation: Evaluation) -> str:
    """The condition a summary quotes: the worst case of all attacks, or the only attack, or the clean answers."""
    return evaluation.conditions[-1]


def _cards(report: Report) -> str:
    """A row of cards for each data set, one card a model."""
    rows = ("".join(_card(report, evaluation) for evaluation in group) for group in by_data(report).values())
    return "".join(f'<div class="cards">{row}</div>' for row in rows)


def _card(report: Report, evaluation: Evaluation) -> str:
    condition = hardest(evaluation)
    baseline = evaluation.majority_baseline
    series = list(report.model_names).index(evaluation.model.fingerprint)
    label = "Accuracy" if evaluation.is_static else "Clean accuracy"
    figures = _figure(label, evaluation.clean, baseline, series)
    if condition != CLEAN:
        label = f"Worst of {len(evaluation.attacks)} attacks" if condition == WORST_CASE else f"Under {condition}"
        figures += _figure(label, evaluation.accuracy(condition), baseline, series)
    elif evaluation.groups:
        lowest = min(evaluation.groups, key=lambda name: evaluation.groups[name].value)
        figures += _figure(f"Lowest: {lowest}", evaluation.groups[lowest], baseline, series)
    return (
        f'<article class="card"><h3>{escape(report.name_of(evaluation))}</h3>'
        f'<p class="muted">{escape(evaluation.data.name)} · {len(evaluation.predictions)} examples · '
        f"majority baseline {100 * baseline:.1f}{_headline(evaluation)}{_cut(evaluation)}</p>"
        f'<div class="figures">{figures}</div></article>'
    )


def _headline(evaluation: Evaluation) -> str:
    """The task's own metric, where it is another than accuracy."""
    metric = evaluation.data.metric
    if metric == "accuracy" or metric not in evaluation.metrics:
        return ""
    return f" · {escape(metric.replace('_', ' '))} {100 * evaluation.metrics[metric]:.1f}"


def _cut(evaluation: Evaluation) -> str:
    cut = sum(bool(row.truncated) for row in evaluation.predictions)
    return f" · {100 * cut / len(evaluation.predictions):.0f}% truncated" if cut else ""


def _figure(label: str, share: Proportion, baseline: float, series: int) -> str:
    return (
        f'<div class="figure"><div class="figure-label">{escape(label)}</div>'
        f'<div class="figure-value">{percent(share)}<small>%</small></div>'
        f'<div class="muted">{interval(share)}</div>{charts.whisker_track([(series, "", share)], baseline)}</div>'
    )


# --------------------------------------------------------------------------------------------------------- flags


def _flags(report: Report) -> str:
    raised = {flag: [check for check in report.flags if check.flag == flag] for flag in FLAGS}
    shown = "".join(_flag(flag, checks) for flag, checks in raised.items() if checks)
    if not shown:
        shown = '<p class="quiet">No flag was raised.</p>'
    rest = [check for check in report.checks if check.verdict != "raised"]
    body = "".join(
        f'<tr><td>{escape(check.flag)}</td><td><span class="chip {"good" if check.verdict == "clear" else "plain"}">'
        f"{check.verdict}</span></td><td>{escape(check.subject)}</td><td>{escape(check.evidence)}</td>"
        f"<td>{escape(check.settle)}</td></tr>"
        for check in rest
    )
    head = table_row("th", ["check", "verdict", "where", "evidence", "what to run"])
    unknown = sum(check.verdict == "unknown" for check in rest)
    summary = f"{len(rest) - unknown} checks clear, {unknown} not checked"
    return f"{shown}<details><summary>{summary}</summary>{plain_table('Other checks', head, body)}</details>"


def _flag(flag: str, checks: list[Check]) -> str:
    items = "".join(f"<li><b>{escape(check.subject)}</b>: {escape(check.evidence)}.</li>" for check in checks)
    settle = "; ".join(dict.fromkeys(check.settle for check in checks))
    return (
        f'<article class="flag"><h3>{escape(flag.replace("-", " ").capitalize())}</h3>'
        f"<p>{escape(FLAGS[flag].capitalize())}.</p>"
        f'<ul>{items}</ul><p class="settle"><b>To settle it:</b> {escape(settle)}.</p></article>'
    )


def _details(report: Report) -> str:
    blocks = []
    for evaluation in report.evaluations:
        facts = {
            "model": {
                "name": evaluation.model.name,
                "fingerprint": evaluation.model.fingerprint,
                "max_length": evaluation.model.max_length,
                "connection": evaluation.model.connection,
                "training": evaluation.model.training,
            },
            "data": {
                "name": evaluation.data.name,
                "fingerprint": evaluation.data.fingerprint,
                "examples": len(evaluation.predictions),
                "metrics": evaluation.metrics,
            },
            "attacks": [{"attack": run.attack, "settings": run.settings} for run in evaluation.attacks],
            "seed": evaluation.seed,
            "created": evaluation.created,
            "environment": evaluation.environment,
        }
        title = f"{report.name_of(evaluation)} on {evaluation.data.name}"
        text = json.dumps(facts, indent=2, ensure_ascii=False, default=str)
        blocks.append(f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>")
    return "".join(blocks)
