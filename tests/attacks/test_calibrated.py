"""A temperature that makes confidence right: its closed form, and what it takes from models with masked scores."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from victims import WORD_LIST, bag_victim, labelled, make_tokenizer, tiny_bert

from unshaken.attacks import Genetic, Greedy, Victim
from unshaken.errors import UnshakenError
from unshaken.evaluation import Report, evaluate
from unshaken.examples import Example, Examples
from unshaken.victims import Vote
from unshaken.victims.calibrated import at_temperature, calibrated, fitted_temperature
from unshaken.victims.hugging_face import ModelVictim


def scaled(factor: float, folder: Any) -> ModelVictim:
    """The same network with its logits multiplied."""
    tokenizer = make_tokenizer(folder)
    model = tiny_bert(tokenizer)
    with torch.no_grad():
        model.classifier.weight *= factor
        model.classifier.bias *= factor
    return Victim.from_model(model, tokenizer, name="tiny")


def with_one_error(victim: Victim) -> Examples:
    """The label of the least certain text is not what the victim says, so that there is a best temperature."""
    rows = labelled(victim)
    least = int(victim.log_probabilities(rows.texts).max(1).argmin())
    return rows.with_rows(replace(row, label=1 - int(row.label)) if at == least else row for at, row in enumerate(rows))


@given(st.floats(0.1, 50), st.integers(55, 95))
def test_the_temperature_of_a_victim_of_one_confidence_is_known(gap: float, right: int) -> None:
    scores = np.array([[0.0, gap]] * 100)
    scores -= np.logaddexp.reduce(scores, axis=1, keepdims=True)
    labels = [1] * right + [0] * (100 - right)
    share = right / 100
    # Right where sigmoid(gap / T) is the share of right answers.
    assert fitted_temperature(scores, labels) == pytest.approx(gap / math.log(share / (1 - share)), rel=1e-6)


def test_multiplied_logits_have_the_multiplied_temperature(tmp_path: Any) -> None:
    plain, sharp = scaled(1, tmp_path), scaled(100, tmp_path)
    rows = with_one_error(plain)
    texts = [row.texts for row in rows]
    labels = [int(row.label) for row in rows]
    own = fitted_temperature(plain.log_probabilities(texts), labels)
    assert fitted_temperature(sharp.log_probabilities(texts), labels) == pytest.approx(100 * own, rel=1e-4)
    for ask in ("log_probabilities", "answers_alone"):
        found, expected = (getattr(calibrated(victim, rows), ask)(texts) for victim in (sharp, plain))
        np.testing.assert_allclose(found, expected, rtol=2e-2)  # temperatures have three digits
        assert (found.argmax(1) == getattr(plain, ask)(texts).argmax(1)).all()


def test_half_precision_calibrates_as_float32_does(tmp_path: Any) -> None:
    """A temperature belongs to the answers that float32 gives; half precision is for the queries of searches."""
    plain = scaled(1, tmp_path)
    plain = Victim.from_model(plain.model.float(), plain.tokenizer, name="tiny")
    rows = with_one_error(plain)
    texts = [row.texts for row in rows]
    half = Victim.from_model(plain.model, plain.tokenizer, name="tiny", scoring_dtype="bf16")
    expected, found = calibrated(plain, rows), calibrated(half, rows)
    assert found.temperature == expected.temperature
    assert half.fingerprint != plain.fingerprint  # asked for before the twin is made, which must not take it over
    assert half.exact.fingerprint == plain.fingerprint
    assert found.exact.fingerprint == expected.fingerprint != found.fingerprint
    assert (found.exact.log_probabilities(texts) == expected.log_probabilities(texts)).all()
    assert (found.log_probabilities(texts) != expected.log_probabilities(texts)).any()


def test_a_masked_model_loses_its_apparent_robustness(tmp_path: Any) -> None:
    plain, masked = scaled(1, tmp_path), scaled(1000, tmp_path)
    rows = labelled(plain)
    attack = Genetic(population=8, generations=6, substitutions=WORD_LIST, scoring="probability")
    broken = {
        name: attack(victim, rows).tally("success")
        for name, victim in {
            "plain": plain,
            "masked": masked,
            "calibrated": calibrated(masked, with_one_error(plain)),
        }.items()
    }
    assert broken["masked"] < broken["plain"]
    assert broken["calibrated"] == broken["plain"]


def test_a_model_stays_a_model_and_anything_else_is_wrapped(tmp_path: Any) -> None:
    model = scaled(1, tmp_path)
    warm = at_temperature(model, 4.0)
    texts = [("a good film",), ("bad film , slow plot",)]
    logits = model.log_probabilities(texts).astype(np.float64) / 4
    expected = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    assert isinstance(warm, ModelVictim)
    np.testing.assert_allclose(warm.log_probabilities(texts), expected, rtol=1e-5)
    np.testing.assert_allclose(
        at_temperature(Vote(model, k=1, rate=1e-9), 4.0).log_probabilities(texts), expected, 1e-5
    )
    assert len({model.fingerprint, warm.fingerprint, at_temperature(model, 2.0).fingerprint}) == 3
    assert (warm.folder, at_temperature(bag_victim(), 2.0).network) == (model.folder, None)
    with pytest.raises(UnshakenError, match="above 0"):
        at_temperature(model, 0.0)


def test_what_no_temperature_can_be_fitted_on_is_refused() -> None:
    victim = bag_victim()
    right = labelled(victim)
    strange = right.with_rows([replace(right[0], label=7), *right[1:]])
    for rows, said in (
        (right[:0], "no examples"),
        (strange, "labels 0 to 1; one here is 7"),
        (right, f"right on all {len(right)}"),
    ):
        with pytest.raises(UnshakenError, match=said):
            calibrated(victim, rows)


def test_a_large_set_is_sampled() -> None:
    """The temperature is that of 2,000 texts drawn by seed 0; of others, and of all, it would be another."""
    rng = np.random.default_rng(0)
    rows = [Example(id=str(n), texts=(str(n),), label=int(rng.random() < 0.7)) for n in range(2_500)]
    data, asked = Examples(rows=tuple(rows), name="many"), []

    def answers(texts: list[str]) -> np.ndarray:
        asked.extend(texts)
        return np.array([[0.1, 0.9] if int(text) % 3 else [0.4, 0.6] for text in texts])

    victim = Victim.from_callable(answers, 2)

    def best(some: Examples) -> float:
        scores = victim.log_probabilities([row.texts for row in some])
        return float(f"{fitted_temperature(scores, [int(row.label) for row in some]):.3g}")

    expected, others = best(data.sample(2_000, 0)), {best(data), best(data.sample(2_000, 1))}
    asked.clear()
    assert calibrated(victim, data).temperature == expected not in others
    assert len(asked) == 2_000
    few = data[:2_000]
    assert calibrated(victim, few).temperature == best(few)


def test_no_temperature_is_looked_for_beyond_ten_thousand() -> None:
    always_wrong = np.log([[0.2, 0.8]] * 4)  # best where it says nothing
    assert fitted_temperature(always_wrong, [0] * 4) == pytest.approx(1e4)


def test_evaluate_shows_both(tmp_path: Any) -> None:
    model = scaled(100, tmp_path)
    rows = with_one_error(model)
    report = evaluate({"mine": model}, rows, Greedy(substitutions=WORD_LIST), calibrate=True)
    first, second = report.evaluations
    assert [one.model.name for one in (first, second)] == ["mine", "mine, calibrated"]
    assert first.model.temperature is None
    assert second.model.temperature == calibrated(model, rows).temperature
    assert first.clean == second.clean
    assert [row.prediction for row in first.predictions] == [row.prediction for row in second.predictions]
    assert np.mean([row.confidence for row in first.predictions]) > np.mean(
        [row.confidence for row in second.predictions]
    )
    path = report.save(tmp_path / "report.json")
    assert Report.load(path).evaluations[1].model.temperature == second.model.temperature
