"""What every attack must do, whatever its search: these read the attacks from `table.py`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from victims import bag_victim, labelled, make_tokenizer, tiny_bert

import table
from unshaken.attacks import AttackResults, Victim
from unshaken.substitutions.words import segment

ATTACKS = table.attacks()
IDS = [f"{attack.name}-{number}" for number, attack in enumerate(ATTACKS)]
BLACK_BOX = [attack for attack in ATTACKS if not attack.white_box]


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Any:
    tokenizer = make_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    return Victim.from_model(tiny_bert(tokenizer), tokenizer)


@pytest.fixture(scope="module")
def found(victim: Any) -> Callable[[Any], list[dict[str, Any]]]:
    """What an attack finds on all examples at once, which most tests compare with: searched for once."""
    kept: dict[int, list[dict[str, Any]]] = {}

    def find(attack: Any) -> list[dict[str, Any]]:
        place = next(place for place, other in enumerate(ATTACKS) if other is attack)
        if place not in kept:
            kept[place] = plain(attack(victim, labelled(victim)))
        return copy.deepcopy(kept[place])

    return find


def plain(results: AttackResults) -> list[dict[str, Any]]:
    return [{key: value for key, value in asdict(row).items() if key != "seconds"} for row in results]


@pytest.mark.parametrize("attack", ATTACKS, ids=IDS)
def test_side_by_side_equals_one_at_a_time(attack: Any, victim: Any, found: Any) -> None:
    examples = labelled(victim)[:-1]  # the last text has no word to change, which alone is an error
    alone = [plain(attack(victim, [example], in_flight=1))[0] for example in examples]
    assert alone == found(attack)[:-1]


@pytest.mark.full
@pytest.mark.parametrize("attack", ATTACKS, ids=IDS)
def test_any_batch_size_gives_the_same_results(attack: Any, victim: Any) -> None:
    examples = labelled(victim)
    expected = plain(attack(victim, examples, in_flight=3))
    small = Victim.from_model(victim.model, victim.tokenizer, batch_tokens=1)
    assert plain(attack(small, examples)) == expected
    assert plain(attack(victim, examples[::-1]))[::-1] == expected


@pytest.mark.parametrize("attack", ATTACKS, ids=IDS)
def test_two_cohorts_and_a_worker_change_nothing(attack: Any, victim: Any, found: Any) -> None:
    """As on a GPU: one cohort is answered by a worker while the questions of the other are prepared."""
    examples = labelled(victim)
    beside = Victim.from_model(victim.model, victim.tokenizer)
    beside.runs_beside_python = True
    expected = found(attack)
    for in_flight in (2, 5, 64):
        assert plain(attack(beside, examples, in_flight=in_flight)) == expected


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("attack", ATTACKS, ids=IDS)
def test_a_gpu_finds_what_the_cpu_finds(attack: Any, victim: Any) -> None:
    examples = labelled(victim)
    on_gpu = Victim.from_model(copy.deepcopy(victim.model).cuda(), victim.tokenizer)
    assert [row.adversarial for row in attack(on_gpu, examples)] == [
        row.adversarial for row in attack(victim, examples)
    ]


@pytest.mark.parametrize("attack", ATTACKS, ids=IDS)
def test_results_say_the_truth(attack: Any, victim: Any) -> None:
    """An adversarial text is what its swaps make of the original, in allowed words, and it does fool the victim."""
    examples = labelled(victim)
    results = attack(victim, examples)
    assert {row.outcome for row in results} == {"success", "failure"}
    for example, row in zip(examples, results, strict=True):
        assert row.original == example.texts
        assert row.queries >= 1
        assert row.rows >= 1
        if row.outcome != "success":
            assert row.adversarial is None
            continue
        swaps = {position: after for _, position, _, after in row.swaps}
        words = segment(row.original[0])
        assert words.replace(swaps, carry_case=False) == row.adversarial[0]
        (merged,) = attack.merged([words])
        for _, position, before, after in row.swaps:
            assert words[position] == before
            allowed = attack.substitutions.candidates(words.surfaces, position) + merged.get(position, [])
            assert after.lower() in allowed or (not after and position - 1 in merged)
        answer = victim.log_probabilities([row.adversarial])[0]
        assert answer.argmax() == row.adversarial_prediction != row.label
        np.testing.assert_allclose(np.exp(answer[row.label]), row.score_after, rtol=1e-5)


@pytest.mark.parametrize("attack", BLACK_BOX, ids=[f"{attack.name}-{n}" for n, attack in enumerate(BLACK_BOX)])
def test_tokens_made_from_words_change_nothing(attack: Any, victim: Any, found: Any) -> None:
    """The same model behind a plain function, which sees whole texts, is attacked in the same way."""
    function = Victim.from_callable(lambda texts: np.exp(victim.log_probabilities([(text,) for text in texts])), 2)
    by_tokens, by_texts = found(attack), plain(attack(function, labelled(victim)))
    for one, other in zip(by_tokens, by_texts, strict=True):
        for key in ("outcome", "adversarial", "queries", "swaps"):
            assert one[key] == other[key]


@pytest.mark.parametrize("attack", ATTACKS, ids=IDS)
def test_tokenising_whole_texts_changes_nothing(
    attack: Any, victim: Any, found: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of tokenizers that cannot be cut. Only `rows` may differ: equal tokens are not seen as equal."""
    expected = [{**row, "rows": None} for row in found(attack)]
    monkeypatch.setattr("unshaken.wordings.assembly.family_of", lambda tokenizer: None)
    assert [{**row, "rows": None} for row in plain(attack(victim, labelled(victim)))] == expected


@pytest.mark.parametrize("attack", ATTACKS, ids=IDS)
def test_more_budget_never_helps_the_victim(attack: Any, victim: Any) -> None:
    examples = labelled(victim)
    held = []
    for budget in (2, 5, 7, 14, 25, 60, 400):
        results = replace(attack, query_budget=budget)(victim, examples)
        assert max(row.queries for row in results) <= budget
        held.append({row.example_id for row in results if row.outcome == "failure"})
    for smaller, larger in pairwise(held):
        assert larger <= smaller


@pytest.mark.parametrize("attack", BLACK_BOX, ids=[f"{attack.name}-{n}" for n, attack in enumerate(BLACK_BOX)])
def test_pairs_with_a_frozen_premise(attack: Any) -> None:
    victim = bag_victim()
    examples = labelled(victim, [("a good film", "the film was good"), ("the plot was slow", "a bad plot")])
    results = replace(attack, frozen_columns=("premise",))(victim, examples)
    for row in results:
        assert all(column == 1 for column, *_ in row.swaps)
        assert row.words == len(segment(row.original[1]))
    free = attack(victim, examples)
    assert all(row.words == len(segment(row.original[0])) + len(segment(row.original[1])) for row in free)


def test_table_holds_every_search() -> None:
    from unshaken.attacks import ATTACKS as REGISTERED
    from unshaken.attacks import SearchAttack

    searches = {name for name, kind in REGISTERED.items() if issubclass(kind, SearchAttack)}
    assert searches == {attack.name for attack in ATTACKS}
