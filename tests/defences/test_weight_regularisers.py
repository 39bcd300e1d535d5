"""PTWD, Mixout and HighTemperature against their formulas, and the weight swap Mixout and R4F stand on."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from literal_hull import WORDS
from tiny import gradients, moved, ready, run, tiny_model, tiny_step
from tiny_texts import text_step, tokenizer

from unshaken.defences import ASCC, PTWD, R3F, R4F, SMART, SWAP, CreAT, FreeLB, HighTemperature, Mixout, release
from unshaken.defences.weights import WeightSwap
from unshaken.errors import UnshakenError


@pytest.mark.parametrize("form", ["l2", "l2_squared"])
@pytest.mark.parametrize("scope", ["all_encoder", "no_bias_layernorm"])
def test_ptwd_is_its_formula(form: Any, scope: Any) -> None:
    model = tiny_model()  # with dropout, drawn once by the task's pass
    pretrained = {name: value.detach().clone() for name, value in model.bert.named_parameters()}
    defence = ready(PTWD(weight=0.3, form=form, scope=scope), model)
    step = tiny_step(moved(model))
    parts, found = run(defence, step)

    model.zero_grad()
    squared = 0.0
    for name, value in model.bert.named_parameters():
        if scope == "all_encoder" or not (name.endswith("bias") or "LayerNorm" in name):
            squared = squared + ((value - pretrained[name]) ** 2).sum()
    penalty = 0.3 * (1e-10 + squared) ** 0.5 if form == "l2" else 0.15 * squared
    torch.manual_seed(7)
    task = F.cross_entropy(model(**step.inputs).logits, step.labels)
    (task + penalty).backward()
    torch.testing.assert_close(parts, {"task": task, "ptwd": penalty})
    torch.testing.assert_close(found, gradients(model))


def test_ptwd_has_no_gradient_where_pretraining_ended() -> None:
    model = tiny_model(dropout=0.0)
    step = tiny_step(model)
    parts, found = run(ready(PTWD(), model), step)
    assert parts["ptwd"].item() == pytest.approx(0.01 * 1e-5)
    model.zero_grad()
    F.cross_entropy(model(**step.inputs).logits, step.labels).backward()
    torch.testing.assert_close(found, gradients(model))


def test_decoupled_ptwd_moves_the_encoder_back_and_leaves_the_head() -> None:
    model = tiny_model()
    defence = ready(PTWD(weight=0.25, form="l2_squared", decoupled=True), model)
    before = copy.deepcopy(model)
    parts, _ = run(defence, tiny_step(moved(model)))
    assert list(parts) == ["task"]
    after = copy.deepcopy(model)
    defence.after_step(model)
    for old, new, now in zip(before.bert.parameters(), after.bert.parameters(), model.bert.parameters(), strict=True):
        torch.testing.assert_close(now, new + 0.25 * (old - new))
    torch.testing.assert_close(model.classifier.weight, after.classifier.weight)


def test_frozen_weights_are_not_penalised() -> None:
    model = tiny_model()
    model.bert.embeddings.requires_grad_(False)
    defence = ready(PTWD(), model)
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight.add_(1)
    parts, _ = run(defence, tiny_step(model))
    assert parts["ptwd"].item() == pytest.approx(0.01 * 1e-5)


def test_high_temperature_trains_on_softened_logits() -> None:
    model = tiny_model()
    step, defence = tiny_step(moved(model)), ready(HighTemperature(temperature=2.0), model)
    parts, found = run(defence, step)

    model.zero_grad()
    torch.manual_seed(7)
    scaled = model(**step.inputs).logits / 2
    right = scaled.gather(1, step.labels[:, None])[:, 0]
    expected = (scaled.exp().sum(1).log() - right).mean()
    expected.backward()
    torch.testing.assert_close(sum(parts.values()), expected)
    torch.testing.assert_close(found, gradients(model))


@pytest.mark.parametrize(
    "objective",
    [
        lambda: ASCC(substitutions=WORDS, steps=3),
        lambda: SWAP(substitutions=WORDS, variants=3, greed=0.5),
        FreeLB,
        SMART.paper,
        CreAT,
        R3F,
    ],
)
def test_a_temperature_is_a_head_divided_by_it_in_every_pass_of_an_objective(objective: Any) -> None:
    model = tiny_model(dropout=0.2)
    divided = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in divided.classifier.parameters():
            parameter.div_(4)
    wanted, its_gradients = run(ready(objective(), divided, tokenizer()), text_step(divided))
    softened = ready(objective() + HighTemperature(temperature=4.0), model, tokenizer())
    parts, found = run(softened, text_step(model))
    torch.testing.assert_close(parts, wanted)
    head = [name for name in found if name.startswith("classifier")]
    for name in head:
        its_gradients[name] = its_gradients[name] / 4
    torch.testing.assert_close(found, its_gradients)


@pytest.mark.parametrize("granularity", ["neuron", "element"])
def test_mixout_is_its_formula_with_the_true_gradient(granularity: Any) -> None:
    model, p = tiny_model(dropout=0.0), 0.4
    layer = model.bert.encoder.layer[1].intermediate.dense
    U = layer.weight.detach().clone()
    ready(Mixout(p=p, granularity=granularity), model)
    moved(model)
    x = torch.randn(5, 16).double()

    torch.manual_seed(11)
    out = layer(x)
    out.square().sum().backward()

    torch.manual_seed(11)
    W = layer.weight.detach().clone().requires_grad_()
    shape = W.shape if granularity == "element" else W[0].shape
    M = (F.dropout(torch.ones(shape).double(), p) > 0).double().expand_as(W)  # the same random numbers
    assert 0 < M.mean() < 1
    W_mix = ((1 - M) * U + M * W - p * U) / (1 - p)
    expected = x @ W_mix.T + layer.bias.detach()
    torch.testing.assert_close(out, expected)
    expected.square().sum().backward()
    torch.testing.assert_close(layer.weight.grad, W.grad)
    rows_alike = bool((M[0] == M).all())
    assert rows_alike == (granularity == "neuron")


class LiteralMixLinear(torch.nn.Module):
    """Lee et al., Eq. 6: each column (or element) of W is put back to U with probability p, the rest is stretched."""

    def __init__(self, layer: Any, p: float, by_element: bool) -> None:
        super().__init__()
        self.weight, self.bias, self.p, self.by_element = layer.weight, layer.bias, p, by_element
        self.U = layer.weight.detach().clone()

    def forward(self, x: Any) -> Any:
        ones = torch.ones_like(self.weight if self.by_element else self.weight[0])
        M = (F.dropout(ones, self.p) > 0).to(x.dtype)  # drawn where the layer runs, as its dropouts are
        mixed = ((1 - M) * self.U + M * self.weight - self.p * self.U) / (1 - self.p)
        return x @ mixed.T + self.bias


@pytest.mark.parametrize("granularity", ["neuron", "element"])
def test_a_step_with_mixout_is_that_of_a_model_of_mixing_layers(granularity: Any) -> None:
    """Loss and every gradient of a whole model with moved weights and dropout."""
    model, p = tiny_model(), 0.3
    twin = copy.deepcopy(model)
    linears = [name for name, layer in twin.bert.named_modules() if isinstance(layer, torch.nn.Linear)]
    assert len(linears) == 13  # two layers of six, and the pooler
    for name in linears:
        parent, _, own = name.rpartition(".")
        mixing = LiteralMixLinear(twin.bert.get_submodule(name), p, granularity == "element")
        setattr(twin.bert.get_submodule(parent), own, mixing)
    parts, found = run(ready(Mixout(p=p, granularity=granularity), model), tiny_step(moved(model)))

    moved(twin)
    step = tiny_step(twin)
    torch.manual_seed(7)
    expected = F.cross_entropy(twin(**step.inputs).logits, step.labels)
    expected.backward()
    torch.testing.assert_close(parts, {"task": expected})
    torch.testing.assert_close(found, gradients(twin))


def test_mixout_keeps_the_weights_in_expectation() -> None:
    model = tiny_model(dropout=0.0)
    layer = model.bert.encoder.layer[0].attention.self.query
    ready(Mixout(p=0.6), model)
    moved(model, by=0.5)
    inputs = torch.eye(16).double()
    torch.manual_seed(0)
    with torch.no_grad():
        mean = torch.stack([layer(inputs) for _ in range(4_000)]).mean(0)
        plain = layer.eval()(inputs)
    assert (mean - plain).abs().max() < 0.1
    assert (layer.train()(inputs) - plain).abs().max() > 0.3


def test_mixout_is_the_plain_model_in_evaluation_in_files_and_at_zero(tmp_path: Any) -> None:
    model = tiny_model(dropout=0.0)
    keys = list(model.state_dict())
    ready(Mixout(p=0.6), model)
    moved(model)
    inputs = tiny_step(model).inputs
    assert list(model.state_dict()) == keys
    plain = copy.deepcopy(model)
    release(plain)
    assert not torch.equal(model(**inputs).logits, plain(**inputs).logits)
    model.eval(), plain.eval()
    assert torch.equal(model(**inputs).logits, plain(**inputs).logits)

    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path, dtype=torch.float64)
    assert torch.equal(loaded(**inputs).logits, plain(**inputs).logits)

    zero = tiny_model(dropout=0.0)
    before = zero(**inputs).logits
    ready(Mixout(p=0), zero)
    torch.testing.assert_close(zero(**inputs).logits, before)


def test_mixout_leaves_the_head_alone() -> None:
    model = tiny_model(dropout=0.0)
    ready(Mixout(p=0.9), model)
    moved(model)
    features = torch.randn(4, 16).double()
    assert torch.equal(model.classifier(features), model.classifier(features))


def test_mixout_draws_the_same_masks_when_a_checkpointed_layer_runs_again() -> None:
    def of(checkpointing: bool) -> dict[str, Any]:
        model = tiny_model()
        defence = ready(Mixout(p=0.5), model)
        moved(model)
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        return run(defence, tiny_step(model))[1]

    torch.testing.assert_close(of(True), of(False))


def test_a_teacher_copied_from_a_mixed_model_computes_with_plain_weights() -> None:
    model = tiny_model(dropout=0.0)
    ready(Mixout(p=0.6), model)
    teacher = SMART.paper()
    moved(ready(teacher, model).teacher, by=0.3)
    inputs = tiny_step(model).inputs
    first, second = (teacher.teacher(**inputs).logits for _ in range(2))
    assert torch.equal(first, second)


def test_a_forward_that_fails_leaves_the_plain_weight() -> None:
    layer = torch.nn.Linear(3, 2)
    WeightSwap(layer, lambda weight: 2 * weight)
    with pytest.raises(RuntimeError):
        layer(torch.ones(1, 4))
    assert layer.weight is layer._parameters["weight"]


@pytest.mark.parametrize("defence", [Mixout, R4F])
def test_a_second_run_says_that_the_first_still_swaps_weights(defence: Any) -> None:
    model = tiny_model()
    ready(defence(), model)
    with pytest.raises(UnshakenError, match="release"):
        ready(defence(), model)
    release(model)
    ready(defence(), model)


@pytest.mark.parametrize(
    "make",
    [
        lambda: PTWD(weight=0),
        lambda: PTWD(form="l1"),
        lambda: PTWD(decoupled=True),
        lambda: PTWD(decoupled=True, form="l2_squared", weight=1.5),
        lambda: Mixout(p=1),
        lambda: Mixout(granularity="row"),
    ],
)
def test_impossible_options_are_refused(make: Any) -> None:
    with pytest.raises(UnshakenError):
        make()


@pytest.mark.parametrize("defence", [PTWD, Mixout, R4F])
def test_a_model_that_does_not_say_what_is_pretrained_is_refused(defence: Any) -> None:
    class Classifier(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(5, 4)

        def get_input_embeddings(self) -> torch.nn.Module:
            return self.table

        def forward(self, input_ids: Any = None, inputs_embeds: Any = None) -> None: ...

    with pytest.raises(UnshakenError, match="pretrained"):
        defence().setup(Classifier(), num_labels=2)
