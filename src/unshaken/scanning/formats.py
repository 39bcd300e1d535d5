"""A scan for people and for machines: a terminal's table, one HTML page, JUnit for test runners, SARIF."""

from __future__ import annotations

import re
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from unshaken.console import terminal_table
from unshaken.display import visible
from unshaken.names import version
from unshaken.pages import TOOL_PAGE, render, render_part
from unshaken.scanning.families import INVISIBLE
from unshaken.scanning.results import Broken, FamilyResult, ScanResult, percent

_UNSEEN = re.compile(f"[{INVISIBLE}\U000e0000-\U000e007f]")  # tag characters
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def shown(text: str) -> str:
    """A text with what cannot be seen written as escapes, so that a reader sees what the model saw."""
    escaped = _UNSEEN.sub(lambda letter: letter[0].encode("unicode_escape").decode(), visible(text))
    return escaped if len(escaped) <= 400 else escaped[:400] + " ..."


def cells(family: FamilyResult) -> tuple[str, ...]:
    search = f"{family.found}/{family.searched}" if family.searched else "error" if family.errors else "-"
    alarms = f"{family.alarms_before} → {family.alarms_after}/{family.harmless}" if family.harmless else "-"
    is_known = family.total and not family.is_unknown
    fixed, kept = f"{family.kept_fixed}/{family.total}", percent(family.kept_share) if is_known else "-"
    return (family.name, kept, fixed, search, alarms, str(family.queries), f"{family.seconds:.1f}")


HEADINGS = ("edits", "kept", "still right", "search breaks", "false alarms", "queries", "seconds")


def terminal(result: ScanResult) -> Any:
    from rich.console import Group
    from rich.text import Text

    in_two_lines = [heading.replace(" ", "\n") for heading in HEADINGS]  # so that a row fits 80 columns
    table = terminal_table(f"{result.victim} on {result.data}", in_two_lines, map(cells, result.families))
    for column in table.columns:
        column.no_wrap = True
    lines = (result.sentence(), result.sampling(), shown(result.unanswered()))
    return Group(table, *(Text(visible(said)) for said in lines if said))


def junit(result: ScanResult, fail_under: float) -> str:
    """One test case for each family.

    It fails where the family keeps less than `fail_under` percent, and is an error where no search got an answer.
    """
    failing = {family.name for family in result.failures(fail_under)}
    # What the fixed edit alone breaks is too much, whatever a search would have added.
    unknown = {one.name for one in result.families if one.is_unknown and replace(one, errors=0).keeps(fail_under)}
    seconds = sum(family.seconds for family in result.families)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuite name={_attribute(f"unshaken scan {result.victim}")} tests="{len(result.families)}" '
        f'failures="{len(failing - unknown)}" errors="{len(unknown)}" skipped="0" time="{seconds:.3f}">',
    ]
    for family in result.families:
        name = f'classname="unshaken.scan" name={_attribute(family.name)}'
        lines.append(f'  <testcase {name} time="{family.seconds:.3f}">')
        failed = f"{family.errors} of {family.tried} searches ended in an error"
        if family.name in unknown:
            lines.append(f"    <error message={_attribute(failed)}>{escape(_xml(shown(family.error or '')))}</error>")
        elif family.name in failing:
            share = family.fixed_share if family.is_unknown else family.kept_share
            said = f"{percent(share, below=fail_under)} of the right answers survive, {fail_under:g}% are asked for"
            texts = "\n".join(f"{shown(item.before[0])}\n  -> {shown(item.after[0])}" for item in family.broken[:5])
            lines.append(f"    <failure message={_attribute(said)}>{escape(_xml(texts))}</failure>")
        if family.errors and family.name not in unknown:
            lines.append(f"    <system-err>{escape(_xml(shown(f'{failed}: {family.error}')))}</system-err>")
        lines.append("  </testcase>")
    return "\n".join([*lines, "</testsuite>"]) + "\n"


def _attribute(text: str) -> str:
    return quoteattr(_xml(visible(text)))


NOT_IN_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # version 1.0, even as references


def _xml(text: str) -> str:
    return NOT_IN_XML.sub("", text)


def sarif(result: ScanResult, fail_under: float) -> dict[str, Any]:
    """SARIF 2.1.0: a rule for each family, a result for each broken text that is kept, and a note where more broke."""
    failing = {family.name for family in result.failures(fail_under)}
    rules = [
        {
            "id": family.name,
            "shortDescription": {"text": family.title},
            "fullDescription": {"text": f"{family.title}; a person sees {family.people}"},
            "helpUri": TOOL_PAGE,
            "properties": {
                "kept": None if family.is_unknown else round(100 * family.kept_share, 1),
                "total": family.total,
                "broken": family.lost,
                "errors": family.errors,
            },
        }
        for family in result.families
    ]
    where = {"physicalLocation": {"artifactLocation": {"uri": _uri(result)}}}
    results = [
        {
            "ruleId": family.name,
            "level": "error" if family.name in failing else "warning",
            "message": {"text": _message(item)},
            "locations": [where],
            "partialFingerprints": {"example": f"{family.name}/{item.id}"},
        }
        for family in result.families
        for item in family.broken
    ]
    notes = [
        {
            "level": "note",
            "message": {"text": f"{family.name}: {len(family.broken)} of {family.lost} broken texts are listed"},
            "associatedRule": {"id": family.name},
        }
        for family in result.families
        if family.lost > len(family.broken)
    ]
    driver = {"name": "unshaken", "version": version("unshaken"), "informationUri": TOOL_PAGE, "rules": rules}
    invocation = {"executionSuccessful": True, "toolExecutionNotifications": notes}  # it came to its end
    run = {"tool": {"driver": driver}, "invocations": [invocation], "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _uri(result: ScanResult) -> str:
    """Of the file, as it was given; the name of the set where the texts are from no file."""
    if result.file is None:
        return quote(result.data)
    path = Path(result.file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())


def _message(item: Broken) -> str:
    how = "a search" if item.by_search else "the fixed edit"
    return f"{item.id}: {how} makes it {item.answer} ({item.confidence:.0%}): {shown(' | '.join(item.after))}"


def page(result: ScanResult) -> str:
    """One self-contained page: the sentence, the table, and the broken texts of each family."""
    return render(
        "scanning/page.html",
        title=f"Scan of {result.victim}",
        result=result,
        headings=HEADINGS,
        cells={family.name: cells(family) for family in result.families},
        shown=shown,
    )


def table(result: ScanResult) -> str:
    """For notebooks: the table alone."""
    return render_part("pages/parts.html", "bare_table", "scan", HEADINGS, [cells(one) for one in result.families])
