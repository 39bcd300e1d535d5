"""The settings that papers and official code print, and what a step and its passes are by themselves."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from tiny import tiny_model, tiny_step

from table import defences
from unshaken.defences import (
    ASCC,
    PTWD,
    R3F,
    R4F,
    SMART,
    SWAP,
    Compose,
    CreAT,
    FreeLB,
    HighTemperature,
    InfoBERT,
    InformativeTerm,
    Mixout,
    Passes,
    PlainTeacher,
    Standard,
    Step,
)
from unshaken.defences.features import feature_of

# From the papers and the official code, as each file says; a changed default changes every comparison.
DEFAULTS: dict[type, dict[str, Any]] = {
    Standard: {},
    FreeLB: {"steps": 3, "adv_lr": 0.1, "init_magnitude": 1.0, "max_norm": 0.6, "norm": "l2", "share_dropout": True},
    SMART: {
        "weight": 1.0,
        "steps": 1,
        "step_size": 1e-5,
        "noise": 1e-5,
        "projection": "official_unit_linf",
        "eps": 1e-5,
        "bregman_weight": 0.0,
        "space": "embedding_output",
    },
    R3F: {"weight": 1.0, "eps": 1e-5, "noise": "uniform", "share_dropout": False, "detach_embeddings": True},
    R4F: {"weight": 1.0, "eps": 1e-5, "noise": "uniform", "share_dropout": False, "detach_embeddings": True},
    CreAT: {
        "ascents": 1,
        "adv_lr": 0.1,
        "max_norm": 0.1,
        "init_std": 0.01,
        "temperature": 1.0,
        "cosine_reduction": "sum",
    },
    InfoBERT: {
        "steps": 3,
        "adv_lr": 0.04,
        "init_magnitude": 0.08,
        "max_norm": None,
        "beta": 0.005,
        "alpha": 0.005,
        "anchors_from": 0.5,
        "anchors_to": 0.9,
    },
    ASCC: {
        "substitutions": None,
        "beta": 4.0,
        "steps": 10,
        "learning_rate": 1.0,
        "weight_decay": 2e-5,
        "sparsity": 15.0,
        "entropy": "sum",
        "init": "uniform",
        "optimiser": "adam",
        "space": "embedding_output",
        "objective": "kl",
        "attack_dropout": False,
        "warm_start": False,
        "pieces": "mean",
        "columns": None,
    },
    SWAP: {
        "substitutions": None,
        "variants": 4,
        "rate": 0.5,
        "beta": 5.0,
        "greed": 0.0,
        "recall": 0.0,
        "spread": False,
        "columns": None,
        "seed": 0,
    },
    InformativeTerm: {
        "alpha": 0.1,
        "conditional": True,
        "direction": "paper",
        "on": "adversarial",
        "feature": "auto",
        "temperature": 0.2,
    },
    PTWD: {"weight": 0.01, "form": "l2", "scope": "all_encoder", "decoupled": False},
    Mixout: {"p": 0.6, "granularity": "neuron"},
    HighTemperature: {"temperature": 200.0},
    PlainTeacher: {"model": None, "weight": 1.0},
}


def test_defaults_are_those_of_papers_and_official_code() -> None:
    for kind, expected in DEFAULTS.items():
        made = kind()
        assert {field.name: getattr(made, field.name) for field in dataclasses.fields(made)} == expected, kind


def test_every_class_of_the_table_has_its_defaults_written_down() -> None:
    kinds = {type(part) for row in defences() for part in parts_of(row.make())}
    assert kinds == set(DEFAULTS)


def parts_of(defence: Any) -> list[Any]:
    return defence.parts if isinstance(defence, Compose) else [defence]


def test_which_defences_compare_rows_and_which_need_every_class() -> None:
    compare = {kind for kind in DEFAULTS if kind().compares_rows}
    assert compare == {InfoBERT, InformativeTerm}
    assert {kind for kind in DEFAULTS if kind().balanced_batches} == {InformativeTerm}
    assert not InformativeTerm(conditional=False).balanced_batches


def test_passes_add_up_and_cost_a_third_each() -> None:
    one, other = Passes(forward=1, activations=2, weights=4), Passes(forward=10, activations=20, weights=40)
    assert one + other == Passes(forward=11, activations=22, weights=44)
    assert one * 3 == Passes(forward=3, activations=6, weights=12)
    assert one.cost == pytest.approx(7 / 3)


def test_a_step_as_it_is_made() -> None:
    model = tiny_model(dropout=0.0)
    step = tiny_step(model)
    assert (step.max_length, step.temperature, step.progress, step.keep_hidden_states) == (128, 1.0, 0.0, False)
    assert step.forward().hidden_states is None
    plain = step.forward().logits
    torch.testing.assert_close(tiny_step(model, temperature=4.0).forward().logits, plain / 4)
    torch.testing.assert_close(plain, model(**step.inputs).logits)


def test_a_published_pass_has_its_own_mask_or_that_of_the_inputs() -> None:
    step = tiny_step(tiny_model())
    step.publish("clean", "output")
    step.publish("adversarial", "other", torch.zeros(2, 3))
    assert step.mask_of("clean") is step.inputs["attention_mask"]
    assert torch.equal(step.mask_of("adversarial"), torch.zeros(2, 3))


def test_texts_of_one_batch_have_as_many_columns() -> None:
    class Unused:
        def __call__(self, *columns: Any, **options: Any) -> Any:
            raise AssertionError("rows of one and of two texts have no columns")

    step = Step(model=tiny_model(), inputs={}, labels=torch.zeros(2), tokenizer=Unused())
    with pytest.raises(ValueError, match="zip"):
        step.encode([("one",), ("one", "two")])


def test_the_mean_feature_leaves_padding_out() -> None:
    hidden, mask = torch.randn(2, 3, 4).double(), torch.tensor([[1, 1, 0], [1, 1, 1]])
    expected = torch.stack([(hidden[0, 0] + hidden[0, 1]) / 2, (hidden[1, 0] + hidden[1, 1] + hidden[1, 2]) / 3])
    torch.testing.assert_close(feature_of(None, hidden, mask, "mean"), expected)
    torch.testing.assert_close(feature_of(None, hidden, None, "mean"), hidden.sum(1) / 3)
    torch.testing.assert_close(feature_of(None, hidden, mask, "cls"), hidden[:, 0])
