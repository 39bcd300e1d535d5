"""RIFT is ASCC and the informative term with one adversarial pass."""

from __future__ import annotations

import inspect

import torch
from tiny import ready, run, tiny_model
from tiny_texts import text_step, tokenizer

from unshaken.defences import ASCC, RIFT, InformativeTerm, parse
from unshaken.substitutions.dictionary import Dictionary
from unshaken.substitutions.hull_search import HullMixer

WORDS = Dictionary(entries={"good": ["fine", "great"], "bad": ["poor", "awful"], "film": ["movie"]})


def test_it_is_the_sum_of_its_parts() -> None:
    model = tiny_model(dropout=0.0)
    step = text_step(model)
    rift = ready(RIFT(substitutions=WORDS, alpha=0.3, beta=2.0, steps=3), model, tokenizer())
    parts, _ = run(rift, step)
    assert set(parts) == {"task", "ascc", "informative"}
    ascc, term = rift.parts
    assert isinstance(ascc, ASCC)
    assert isinstance(term, InformativeTerm)

    alone, _ = run(ready(ASCC(substitutions=WORDS, beta=2.0, steps=3), model, tokenizer()), text_step(model))
    torch.testing.assert_close(parts["ascc"], alone["ascc"])
    hull = ascc._hull(step)
    weights = hull.weights(ascc._worst(step, hull)).double()
    with HullMixer(model).at(hull, weights):
        student = model.bert(**step.inputs).pooler_output
    teacher = term.teacher(**step.inputs).pooler_output
    torch.testing.assert_close(parts["informative"], 0.3 * term.loss_of(student, teacher, step.labels))


def test_presets_hold_the_papers_values() -> None:
    def values(defence: RIFT) -> tuple[float, float]:
        ascc, term = defence.parts
        return term.alpha, ascc.beta

    assert values(RIFT.imdb()) == (0.1, 10)
    assert values(RIFT.snli()) == (0.7, 5)
    assert RIFT.snli().parts[0].columns == (1,)
    assert RIFT.fast().passes().cost < RIFT().passes().cost / 2


def test_ablations_change_one_value_of_a_preset() -> None:
    ascc, term = parse("rift-imdb:alpha=0.3,conditional=false").parts
    assert (ascc.beta, term.alpha, term.conditional) == (10, 0.3, False)
    ascc, term = parse("rift-snli:beta=2").parts
    assert (ascc.beta, term.alpha, ascc.columns) == (2, 0.7, (1,))


def test_one_column_can_be_named_on_the_command_line() -> None:
    model = tiny_model()
    hypothesis_alone = ready(ASCC(substitutions=WORDS, columns=(1,)), model, tokenizer())
    named = parse("ascc:columns=1")
    named.substitutions = WORDS
    hulls = [part._hull(text_step(model, pairs=True)) for part in (hypothesis_alone, ready(named, model, tokenizer()))]
    assert torch.equal(hulls[0].columns, hulls[1].columns)
    assert len(hulls[0]) < len(ready(ASCC(substitutions=WORDS), model, tokenizer())._hull(text_step(model, pairs=True)))
    assert parse("swap:columns=1").columns == (1,)


def test_the_command_line_reaches_its_options() -> None:
    defence = parse("rift:alpha=0.7,beta=5,steps=2,direction=code")
    ascc, term = defence.parts
    assert (term.alpha, ascc.beta, ascc.steps, term.direction) == (0.7, 5, 2, "code")
    signature = inspect.signature(RIFT).parameters
    for part in (ASCC, InformativeTerm):
        shared = set(inspect.signature(part).parameters) & set(signature)
        assert all(signature[name].default == inspect.signature(part).parameters[name].default for name in shared)
