"""Tables of the HTML page: accuracies side by side, paired tests, seeds and the cost of attacks."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import TYPE_CHECKING

from unshaken.display import visible
from unshaken.evaluation.comparison import Comparison
from unshaken.evaluation.results import WORST_CASE, Evaluation, Proportion, summarise
from unshaken.reports.views import baselines, p_text

if TYPE_CHECKING:
    from unshaken.evaluation.report import Report


def escape(value: object) -> str:
    return html.escape(visible(str(value)), quote=True)


def percent(share: Proportion) -> str:
    return f"{100 * share.value:.1f}" if share.total else "–"


def interval(share: Proportion) -> str:
    if not share.total:
        return ""
    low, high = share.interval
    return f"{100 * low:.1f} – {100 * high:.1f}"


def by_data(report: Report) -> dict[str, list[Evaluation]]:
    """The evaluations of each data set, in the order of the report."""
    groups: dict[str, list[Evaluation]] = {}
    for evaluation in report.evaluations:
        groups.setdefault(evaluation.data.fingerprint, []).append(evaluation)
    return groups


def comparison_tables(report: Report) -> str:
    compared = {(item.data, item.model, item.condition): item for item in report.comparisons}
    tables = [_data_table(report, group, compared) for group in by_data(report).values()]
    note = (
        '<p class="muted">Accuracy in per cent with its 95% Wilson interval. A chip is the difference in points to '
        "the first model on the same examples; <b>✓</b> marks p &lt; 0.05 by McNemar's mid-p test after Holm's "
        "correction.</p>"
    )
    return "".join(tables) + note + _tests(report) + _spreads(report)


def _data_table(report: Report, group: list[Evaluation], compared: dict[tuple[str, str, str], Comparison]) -> str:
    data = group[0].data.name
    conditions = list(dict.fromkeys(name for evaluation in group for name in evaluation.conditions))
    conditions.sort(key=lambda name: name == WORST_CASE)
    groups = list(dict.fromkeys(name for evaluation in group for name in evaluation.groups))
    titles = [*(group[0].title(name) for name in conditions), *groups]
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in titles)
    body = ""
    for evaluation in group:
        model = report.name_of(evaluation)
        body += f'<tr><th scope="row">{escape(model)}</th>'
        for condition in conditions:
            known = condition in evaluation.conditions
            share = evaluation.accuracy(condition) if known else None
            body += _share_cell(share, compared.get((data, model, condition)))
        for name in groups:
            body += _share_cell(evaluation.groups.get(name), None)
        body += "</tr>"
    baseline = 100 * baselines(report)[data]
    return (
        f'<div class="block"><h3>{escape(data)} <span class="muted">majority baseline {baseline:.1f}</span></h3>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="Accuracy on {escape(data)}"><table>'
        f'<thead><tr><th scope="col">model</th>{head}</tr></thead><tbody>{body}</tbody></table></div></div>'
    )


def _share_cell(share: Proportion | None, comparison: Comparison | None) -> str:
    if share is None:
        return '<td class="muted">–</td>'
    return f'<td><b>{percent(share)}</b> {_chip(comparison)}<br><span class="muted small">{interval(share)}</span></td>'


def _chip(comparison: Comparison | None) -> str:
    if comparison is None:
        return ""
    kind = "plain" if not comparison.significant else "good" if comparison.difference > 0 else "bad"
    mark = " ✓" if comparison.significant else ""
    title = f"p = {p_text(comparison.p_adjusted)} against {comparison.reference}"
    return f'<span class="chip {kind}" title="{escape(title)}">{100 * comparison.difference:+.1f}{mark}</span>'


def _tests(report: Report) -> str:
    if not report.comparisons:
        return ""
    headings = ["data", "condition", "model", "against", "points [95%]", "alone right", "n", "p", "p (Holm)"]
    body = "".join(
        table_row(
            "td",
            [
                item.data,
                item.condition,
                item.model,
                item.reference,
                f"{100 * item.difference:+.1f} [{100 * item.interval[0]:+.1f}, {100 * item.interval[1]:+.1f}]",
                f"{item.only_model} : {item.only_reference}",
                item.total,
                p_text(item.p_value),
                p_text(item.p_adjusted),
            ],
        )
        for item in report.comparisons
    )
    table = plain_table("Model against reference on the same examples", table_row("th", headings), body)
    return f"<details><summary>Paired tests</summary>{table}</details>"


def _spreads(report: Report) -> str:
    if not report.spreads:
        return ""
    head = table_row("th", ["method", "data", "condition", "mean ± standard deviation", "each seed"])
    body = "".join(
        table_row(
            "td",
            [
                spread.method,
                spread.data,
                spread.condition,
                f"{100 * spread.accuracy.mean:.1f} ± {100 * (spread.accuracy.std or 0):.1f}",
                ", ".join(f"{100 * value:.1f}" for value in spread.accuracy.values),
            ],
        )
        for spread in report.spreads
    )
    return plain_table("Over training seeds", head, body)


def table_row(tag: str, values: Iterable[object]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(value)}</{tag}>" for value in values) + "</tr>"


def plain_table(caption: str, head: str, body: str) -> str:
    return (
        f'<div class="block"><h3>{escape(caption)}</h3><div class="scroll" tabindex="0" role="region" '
        f'aria-label="{escape(caption)}"><table class="text"><thead>{head}</thead><tbody>{body}</tbody></table>'
        "</div></div>"
    )


def attack_table(report: Report) -> str:
    body = ""
    for evaluation in report.evaluations:
        for name, run in zip(evaluation.attack_names, evaluation.attacks, strict=True):
            found = summarise(run)
            body += table_row(
                "td",
                [
                    report.name_of(evaluation),
                    evaluation.data.name,
                    name,
                    f"{percent(found.success)} of {found.success.total}",
                    f"{found.queries_mean:.0f} / {found.queries_median:.0f} / {found.queries_max}",
                    "–" if found.words_changed is None else f"{100 * found.words_changed:.1f}",
                    "–" if found.similarity is None else f"{found.similarity:.3f}",
                    found.errors,
                    f"{found.seconds:.1f}",
                ],
            )
    if not body:
        return '<p class="muted">No attack was run.</p>'
    headings = ["model", "data", "attack", "success %", "queries mean / median / max", "words changed %", "similarity"]
    head = table_row("th", [*headings, "errors", "seconds"])
    return plain_table("Success among the originally right examples, and cost", head, body)
