"""The batched forms of HotFlip and the hull attack find what their searches of each example find, to the last query."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from victims import TEXTS, WORD_LIST, labelled, make_tokenizer, tiny_bert

from unshaken.attacks import HotFlip, HullAttack, Targeted, Untargeted, Victim
from unshaken.attacks.constraints import MaxChanged, NoRepeat
from unshaken.attacks.many.searches import ManySearches

SEARCHES = (
    HotFlip(substitutions=WORD_LIST, asked=2, draws=12),
    HotFlip(substitutions=WORD_LIST, asked=1, draws=0, most=2),
    HullAttack(substitutions=WORD_LIST, steps=2, restarts=2, draws=5),
)
every_search = pytest.mark.parametrize("attack", SEARCHES, ids=["hotflip", "hotflip as published", "hull"])
PAIRS = tuple((text, other) for text, other in zip(TEXTS, TEXTS[3:] + TEXTS[:3], strict=True))


@pytest.fixture(scope="module")
def victims(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Any]:
    tokenizer = make_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    return {
        classes: Victim.from_model(tiny_bert(tokenizer, num_labels=classes, seed=seed).double(), tokenizer)
        for classes, seed in ((2, 4), (3, 7))
    }


def assert_equal(attack: Any, victim: Any, examples: Any) -> set[str]:
    """Compare everything but the seconds, and give the outcomes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attack.__class__, "search", None)  # not what is used here
        together = attack(victim, examples)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ManySearches, "serves", staticmethod(lambda attack: False))
        alone = attack(victim, examples)
    for one, other in zip(together, alone, strict=True):
        assert {**asdict(one), "seconds": 0} == {**asdict(other), "seconds": 0}
    return {row.outcome for row in together}


@pytest.mark.full
@every_search
@pytest.mark.parametrize("classes", [2, 3])
def test_equal_for_any_goal(attack: Any, classes: int, victims: Any) -> None:
    victim = victims[classes]
    goals = (Untargeted(), Untargeted(margin=0.4), Targeted(label=0), Targeted(label=classes - 1))
    outcomes = [assert_equal(replace(attack, goal=goal), victim, labelled(victim)) for goal in goals]
    assert set().union(*outcomes) == {"success", "failure"}


@pytest.mark.full
@every_search
def test_equal_under_budgets_and_constraints(attack: Any, victims: Any) -> None:
    victim = victims[2]
    for budget in (1, 3, 8, 15):
        assert_equal(replace(attack, query_budget=budget), victim, labelled(victim))
    for constraints in ((MaxChanged(share=0.2),), (NoRepeat(), MaxChanged(share=0.3))):
        limited = replace(attack, constraints=constraints)
        assert_equal(limited, victim, labelled(victim))
        assert_equal(replace(limited, query_budget=5), victim, labelled(victim))


@every_search
def test_equal_for_pairs_and_frozen_columns(attack: Any, victims: Any) -> None:
    for frozen in ((), ("premise",)):
        assert_equal(replace(attack, frozen_columns=frozen), victims[3], labelled(victims[3], PAIRS))


def test_a_promise_that_is_no_number_is_never_asked(victims: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    look = HotFlip._look

    def partly_lost(*given: Any) -> torch.Tensor:
        seen = look(*given)
        return seen.masked_fill(torch.arange(seen.numel()).view_as(seen) % 3 == 1, torch.nan)

    direct = SEARCHES[0](victims[2], labelled(victims[2]))
    monkeypatch.setattr(HotFlip, "_look", partly_lost)
    assert assert_equal(SEARCHES[0], victims[2], labelled(victims[2])) == {"success", "failure"}
    lost = SEARCHES[0](victims[2], labelled(victims[2]))
    assert [row.queries for row in lost] != [row.queries for row in direct]  # something was lost


def test_looks_go_on_where_a_worker_reads(victims: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU successes are tokenised meanwhile, by the tokenizer that the hull needs too."""
    victim = victims[2]
    examples = labelled(victim, TEXTS * 3)
    expected = SEARCHES[0](victim, examples)
    monkeypatch.setattr(victim, "runs_beside_python", True)
    found = SEARCHES[0](victim, examples)
    assert [(row.outcome, row.adversarial) for row in found] == [(row.outcome, row.adversarial) for row in expected]
