"""Answers in float32 are that, whatever products a process allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from victims import TEXTS as WORDS
from victims import labelled, make_tokenizer, tiny_bert

from unshaken.attacks import PWWS, Victim
from unshaken.precision import full_products
from unshaken.substitutions import Dictionary

TEXTS = [(text,) for text in WORDS if isinstance(text, str)]
MATMUL = torch.backends.cuda.matmul
ONEDNN = torch.backends.mkldnn.matmul


def of_all(precision: str) -> None:
    torch.backends.fp32_precision = precision


def of_a_gpu(precision: str) -> None:
    MATMUL.fp32_precision = precision


WAYS: dict[str, Callable[[], None]] = {
    "high": lambda: torch.set_float32_matmul_precision("high"),
    "medium": lambda: torch.set_float32_matmul_precision("medium"),
    "allow_tf32": lambda: setattr(MATMUL, "allow_tf32", True),
    "a GPU's own": lambda: of_a_gpu("tf32"),
    "all": lambda: of_all("tf32"),
}


def state() -> list[str]:
    try:
        chosen = torch.get_float32_matmul_precision()
    except RuntimeError:
        chosen = "by the newer names"
    return [chosen, MATMUL.fp32_precision, ONEDNN.fp32_precision, torch.backends.fp32_precision]


@pytest.fixture(params=list(WAYS))
def allowed(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Faster products are allowed, by each of the ways that torch has."""
    for part in (MATMUL, ONEDNN):
        part.fp32_precision = "none"  # as in a new process
    WAYS[request.param]()
    yield state()
    of_all("none")
    torch.set_float32_matmul_precision("highest")


@pytest.fixture
def watched(tmp_path: Any) -> Any:
    """A victim, and what its model was allowed in each pass."""
    tokenizer = make_tokenizer(tmp_path)
    model, seen = tiny_bert(tokenizer), []
    model.register_forward_pre_hook(lambda *_: seen.append((MATMUL.fp32_precision, ONEDNN.fp32_precision)))
    return Victim.from_model(model, tokenizer), seen


def test_each_answer_is_in_full_float32(allowed: list[str], watched: Any) -> None:
    victim, seen = watched
    asked = {
        "queries": lambda: victim.log_probabilities(TEXTS),
        "one alone": lambda: victim.answer_alone(TEXTS[0]),
        "many alone": lambda: victim.answers_alone(TEXTS),
        "together": lambda: victim.answers_together(TEXTS[:2]),
        "a search": lambda: PWWS(substitutions=Dictionary(entries={"good": ["bad"], "film": ["films"]}))(
            victim, labelled(victim, TEXTS)
        ),
    }
    assert {MATMUL.fp32_precision, ONEDNN.fp32_precision} & {"tf32", "bf16"}
    for name, ask in asked.items():
        seen.clear()
        ask()
        assert set(seen) == {("ieee", "ieee")}, name
        assert state() == allowed, name


def test_half_precision_that_was_asked_for_is_borne_out_in_full(watched: Any) -> None:
    victim, seen = watched
    torch.set_float32_matmul_precision("high")
    try:
        half = Victim.from_model(victim.model, victim.tokenizer, scoring_dtype="bf16")
        for ask in (half.exact.log_probabilities, half.answers_alone):
            seen.clear()
            ask(TEXTS)
            assert set(seen) == {("ieee", "ieee")}
    finally:
        torch.set_float32_matmul_precision("highest")


def test_what_a_process_allows_is_back_after_an_error(allowed: list[str]) -> None:
    within = []

    def fail() -> None:
        within.extend(state())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), full_products():
        fail()
    assert within[:3] == ["highest", "ieee", "ieee"]
    assert state() == allowed


def test_a_process_that_allows_nothing_faster_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    before = state()

    def refuse(_: str) -> None:
        raise AssertionError

    monkeypatch.setattr(torch, "set_float32_matmul_precision", refuse)
    with full_products():
        assert state() == before
