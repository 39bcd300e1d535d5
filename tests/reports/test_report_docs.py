"""The docs name every flag and every key, so that neither can change alone."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from unshaken.attacks.results import AttackResult
from unshaken.certificates import Certified, CertifiedText
from unshaken.evaluation.comparison import Comparison
from unshaken.evaluation.results import AttackRun, DataInfo, Evaluation, ModelInfo, Prediction, Probes, Recheck
from unshaken.reports import FLAGS, SCHEMA_VERSION, Check, TrainingRecord

DOCS = Path(__file__).parents[2] / "docs"


def test_every_flag_has_its_row() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|", (DOCS / "flags.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == list(FLAGS)


@pytest.mark.parametrize(
    "kind",
    [
        Evaluation,
        ModelInfo,
        DataInfo,
        Prediction,
        Probes,
        AttackRun,
        Certified,
        CertifiedText,
        Recheck,
        AttackResult,
        TrainingRecord,
        Comparison,
        Check,
    ],
)
def test_every_key_of_the_schema_is_documented(kind: type) -> None:
    text = (DOCS / "result-schema.md").read_text(encoding="utf-8")
    assert f"version {SCHEMA_VERSION}" in text
    documented = set(re.findall(r"`(\w+)(?:\[\])?`", text))
    # The original texts are not written: they stand under predictions.
    wanted = {field.name for field in fields(kind)} - ({"original"} if kind is AttackResult else set())
    assert wanted <= documented
