"""Whoever tokenises a text of megabytes cuts it first: a library's truncation comes after the tokens of all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from onnx_bag import write_onnx_bag
from report_parts import tiny_model, tokenizer
from transformers import PreTrainedTokenizerBase

from unshaken import Victim
from unshaken.attacks import HotFlip
from unshaken.attacks.constraints.encoder import SentenceEncoder
from unshaken.defences.step import Step
from unshaken.evaluation.probes import probe
from unshaken.examples import Example, Examples
from unshaken.substitutions import Dictionary
from unshaken.substitutions.hull_builder import HullBuilder
from unshaken.substitutions.pretrained import batches

LENGTH = 32
LONG = "a good film " * 10_000
TEXTS = [(LONG,), ("a bad film",)]
WORDS = Dictionary(entries={"good": ["fine"], "bad": ["poor"]})


def probes(victim: Any, folder: Path) -> None:
    probe(victim, labelled(victim), 0)


def defences(victim: Any, folder: Path) -> None:
    inputs = {"input_ids": torch.zeros(2, 3, dtype=torch.long)}
    step = Step(model=victim.model, inputs=inputs, labels=torch.zeros(2), tokenizer=tokenizer(), max_length=LENGTH)
    assert step.encode(TEXTS)["input_ids"].shape == (2, LENGTH)


def hulls(victim: Any, folder: Path) -> None:
    short = tokenizer()([text[:400] for (text,) in TEXTS], padding=True, truncation=True, max_length=LENGTH)
    builder = HullBuilder(WORDS, tokenizer(), max_length=LENGTH)
    assert len(builder(TEXTS, torch.tensor(short["input_ids"]))) == 11  # "good" ten times, "bad" once


def onnx(victim: Any, folder: Path) -> None:
    pytest.importorskip("onnxruntime")
    write_onnx_bag(folder, tokenizer(), 2)
    Victim.from_onnx(folder / "model.onnx").log_probabilities(TEXTS)


def encoders(victim: Any, folder: Path) -> None:
    list(batches(victim.model, tokenizer(), [text for (text,) in TEXTS], 2))


def sentences(victim: Any, folder: Path) -> None:
    SentenceEncoder.load()([text for (text,) in TEXTS])


def gradients(victim: Any, folder: Path) -> None:
    assert HotFlip(substitutions=WORDS)(victim, labelled(victim)).errors == 0


def labelled(victim: Any) -> Examples:
    labels = victim.log_probabilities(TEXTS).argmax(-1).tolist()
    rows = zip(TEXTS, labels, strict=True)
    return Examples(rows=tuple(Example(id=str(n), texts=texts, label=label) for n, (texts, label) in enumerate(rows)))


@pytest.mark.parametrize("work", [probes, defences, hulls, onnx, encoders, sentences, gradients])
def test_nobody_tokenises_what_no_model_reads(work: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    call = PreTrainedTokenizerBase.__call__

    def heard(self: Any, *columns: Any, **options: Any) -> Any:
        given.extend(len(text) for column in columns for text in ([column] if isinstance(column, str) else column))
        return call(self, *columns, **options)

    monkeypatch.setattr(PreTrainedTokenizerBase, "__call__", heard)
    work(Victim.from_model(tiny_model(), tokenizer(), max_length=LENGTH), tmp_path)
    assert 100 < max(given) < 10_000
