"""RIFT is ASCC and the informative term with one adversarial pass."""

from __future__ import annotations

import copy
import inspect

import pytest
import torch
from literal_hull import WORDS, literal_loss, sensitive_model, start_of
from tiny import gradients, ready, run, tiny_model
from tiny_texts import text_step, tokenizer
from torch import Tensor

from unshaken.defences import ASCC, RIFT, InformativeTerm, parse


def literal_infonce(term: InformativeTerm, student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
    """Eq. 10 of the paper, class by class, with the projections' layers written out."""
    losses = []
    for label in labels.unique().tolist():
        rows = (labels == label).nonzero()[:, 0]
        projected = []
        for (first, _, last), features in (
            (term.student_projections[label], student),
            (term.teacher_projections[label], teacher),
        ):
            inner = (features[rows] @ first.weight.T + first.bias).clamp_min(0)
            outer = inner @ last.weight.T + last.bias
            projected.append(outer / outer.norm(dim=-1, keepdim=True))
        scores = projected[0] @ projected[1].T / 0.2
        losses.append((scores.logsumexp(1) - scores.diagonal()).mean())
    return torch.stack(losses).mean()


@pytest.mark.parametrize("fast", [False, True])
def test_loss_and_gradients_are_those_written_out(fast: bool) -> None:
    """A student that has moved away from its teacher, with dropout: every gradient of model and projections."""
    model = sensitive_model(dropout=0.2)
    rift = (
        RIFT.fast(substitutions=WORDS, alpha=0.3, beta=2.0) if fast else RIFT(substitutions=WORDS, alpha=0.3, beta=2.0)
    )
    ready(rift, model, tokenizer())
    ascc, term = rift.parts
    assert isinstance(ascc, ASCC)
    assert isinstance(term, InformativeTerm)
    teacher = copy.deepcopy(model.bert).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    step = text_step(model)
    start = start_of(ascc, step)  # nothing is remembered yet, so a warm start is the first guess
    parts, found = run(rift, step)
    assert set(parts) == {"task", "ascc", "informative"}
    assert ascc.steps == (3 if fast else 10)
    projections = [parameter.grad.clone() for parameter in term.parameters() if parameter.grad is not None]

    model.zero_grad()
    term.zero_grad()
    objective = "ce" if fast else "kl"
    expected, hidden = literal_loss(model, step, start, ascc.steps, 2.0, objective=objective)
    told = teacher(**step.inputs).last_hidden_state[:, 0].detach()  # no checkpoint: the first token
    expected = expected + 0.3 * literal_infonce(term, hidden[:, 0], told, step.labels)
    expected.backward()
    torch.testing.assert_close(sum(parts.values()), expected)
    torch.testing.assert_close(found, gradients(model), rtol=1e-4, atol=1e-6)  # mixing weights are single precision
    torch.testing.assert_close(
        projections,
        [parameter.grad for parameter in term.parameters() if parameter.grad is not None],
        rtol=1e-4,
        atol=1e-6,
    )


def test_only_the_training_pass_keeps_hidden_states() -> None:
    model = sensitive_model()
    rift = ready(RIFT(substitutions=WORDS, steps=2), model, tokenizer())
    asked: list[bool] = []
    model.register_forward_pre_hook(
        lambda module, args, kwargs: asked.append(kwargs.get("output_hidden_states", False)), with_kwargs=True
    )
    run(rift, text_step(model))
    assert asked == [False, False, False, True]  # the clean prediction, two inner steps, both halves together


def test_options_of_its_parts_pass_through() -> None:
    ascc, term = RIFT(pieces="same", feature="mean", direction="code", columns=(1,)).parts
    assert (ascc.pieces, term.feature, term.direction, ascc.columns) == ("same", "mean", "code", (1,))


def test_presets_hold_the_papers_values() -> None:
    def values(defence: RIFT) -> tuple[float, float]:
        ascc, term = defence.parts
        return term.alpha, ascc.beta

    assert values(RIFT.imdb()) == (0.1, 10)
    assert values(RIFT.snli()) == (0.7, 5)
    assert RIFT.snli().parts[0].columns == (1,)
    fast = RIFT.fast().parts[0]
    assert (values(RIFT.fast()), fast.steps, fast.objective, fast.warm_start) == ((0.1, 4), 3, "ce", True)
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
    hulls = [
        part.hull_of(text_step(model, pairs=True)) for part in (hypothesis_alone, ready(named, model, tokenizer()))
    ]
    assert torch.equal(hulls[0].columns, hulls[1].columns)
    assert len(hulls[0]) < len(
        ready(ASCC(substitutions=WORDS), model, tokenizer()).hull_of(text_step(model, pairs=True))
    )
    assert parse("swap:columns=1").columns == (1,)


def test_the_command_line_reaches_its_options() -> None:
    defence = parse("rift:alpha=0.7,beta=5,steps=2,direction=code")
    ascc, term = defence.parts
    assert (term.alpha, ascc.beta, ascc.steps, term.direction) == (0.7, 5, 2, "code")
    signature = inspect.signature(RIFT).parameters
    for part in (ASCC, InformativeTerm):
        shared = set(inspect.signature(part).parameters) & set(signature)
        assert all(signature[name].default == inspect.signature(part).parameters[name].default for name in shared)
