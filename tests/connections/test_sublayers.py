"""`Connection(where="sublayers")`: attention and feed-forward connected apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from models import SETTINGS, tiny, tokens
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from unshaken import Connection, connect, connection_of, disconnect
from unshaken.connections import Implicit, Phantom, Unrolled, check, parse, solve_records
from unshaken.connections.quality import noise
from unshaken.connections.stability import layer_residuals
from unshaken.connections.sublayers import SUBLAYERS
from unshaken.errors import IncompatibleModelError, UnshakenError
from unshaken.solvers import Anderson, Broyden, FixedPoint, GradientDescent, NewtonKrylov

separable = pytest.mark.parametrize("kind", sorted(SUBLAYERS))
EXACT = Anderson(steps=60, window=8, tolerance=1e-12)
CONNECTIONS = {
    "im-bert": Connection.im_bert(where="sublayers"),
    "explicit": Connection.ex_bert(where="sublayers", form="layer"),
    "anderson": Connection(where="sublayers"),
    "increment": Connection(where="sublayers", form="increment"),
    "runge-kutta": Connection.runge_kutta(where="sublayers"),
}


def sublayers(layer: Any, mask: Tensor) -> list[Any]:
    """The two sub-layers of a stock BERT layer, written out."""
    own, out = layer.attention.self, layer.attention.output

    def heads(x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], own.num_attention_heads, -1).transpose(1, 2)

    def attention(x: Tensor) -> Tensor:
        scores = heads(own.query(x)) @ heads(own.key(x)).transpose(2, 3) / own.attention_head_size**0.5
        scores = scores.masked_fill(mask[:, None, None] == 0, -torch.inf)
        mixed = (scores.softmax(3) @ heads(own.value(x))).transpose(1, 2).flatten(2)
        return out.LayerNorm(x + out.dense(mixed))

    def feed_forward(x: Tensor) -> Tensor:
        inner = torch.nn.functional.gelu(layer.intermediate.dense(x))
        return layer.output.LayerNorm(x + layer.output.dense(inner))

    return [attention, feed_forward]


def transcribed(model: Any, batch: dict[str, Tensor], step: Any) -> Tensor:
    """A stock BERT classifier whose sub-layers are joined by `step(h, sublayer)`."""
    h = model.bert.embeddings(batch["input_ids"])
    for layer in model.bert.encoder.layer:
        for part in sublayers(layer, batch["attention_mask"]):
            h = step(h, part)
    return model.classifier(model.bert.pooler(h))


def descend(h: Tensor, part: Any, mask: Tensor, steps: int, rate: float = 0.1) -> Tensor:
    """Algorithm 1 with a sub-layer for phi."""
    z = (h + part(h)).detach()
    for _ in range(steps):
        z.requires_grad_()
        residual = (z - h.detach() - part(z)) * mask[..., None]
        z = (z - rate * torch.autograd.grad(residual.square().sum(), z)[0]).detach()
    return z


@separable
@pytest.mark.parametrize("identity", [{"theta": 0.0}, {"solver": Anderson(steps=0)}], ids=["theta 0", "zero steps"])
def test_one_behind_the_other_they_are_the_stock_layer_bit_for_bit(kind, identity):
    model, batch = tiny(kind), tokens(kind)
    with torch.no_grad():
        stock = model(**batch).logits
        connect(model, Connection(where="sublayers", form="increment", **identity))
        assert torch.equal(model(**batch).logits, stock)
        assert torch.equal(disconnect(model)(**batch).logits, stock)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((kind, "anderson") for kind in sorted(SUBLAYERS)),
        *(("bert", name) for name in CONNECTIONS if name != "anderson"),
    ],
)
def test_they_differ_from_whole_layers_and_come_back_from_disk(kind, name, tmp_path):
    batch = tokens(kind)
    model = connect(tiny(kind), CONNECTIONS[name])
    whole = connect(tiny(kind), replace(CONNECTIONS[name], where="layers"))
    with torch.no_grad():
        logits = model(**batch).logits
        assert not torch.allclose(logits, whole(**batch).logits)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert connection_of(loaded) == connection_of(model)
    assert connection_of(loaded).where == "sublayers"
    with torch.no_grad():
        torch.testing.assert_close(loaded(**batch).logits, logits, rtol=0, atol=0)
    assert sorted(loaded.state_dict()) == sorted(tiny(kind).state_dict())


def test_explicit_and_descent_are_their_literal_transcriptions():
    model, batch = tiny("bert").double(), tokens()
    mask = batch["attention_mask"].double()
    literal = {
        "explicit": transcribed(model, batch, lambda h, part: h + part(h)),
        "descent": transcribed(model, batch, lambda h, part: descend(h, part, mask, steps=4)),
        "none": transcribed(model, batch, lambda h, part: part(h)),
    }
    torch.testing.assert_close(model(**batch).logits, literal["none"], rtol=0, atol=1e-12)
    for name, connection in {
        "explicit": Connection.ex_bert(where="sublayers"),
        "descent": Connection.im_bert(where="sublayers", solver=GradientDescent(steps=4)),
    }.items():
        ours = connect(tiny("bert").double(), connection)(**batch).logits
        torch.testing.assert_close(ours, literal[name], rtol=0, atol=1e-10)


@pytest.mark.full
@pytest.mark.parametrize(
    "solver", [EXACT, Broyden(steps=80, tolerance=1e-11), NewtonKrylov(steps=12, krylov=30, tolerance=1e-11)], ids=str
)
def test_a_converged_solve_solves_the_literal_equations(solver):
    """The increment form with a short step contracts, so that every solver arrives."""
    step = 0.2
    model, batch = tiny("bert").double(), tokens()
    mask = batch["attention_mask"].double()[..., None]

    def solved(h: Tensor, part: Any) -> Tensor:
        z = h
        for _ in range(300):
            z = (h + step * part(z)) / (1 + step)
        assert ((z - h - step * (part(z) - z)) * mask).abs().max() < 1e-9
        return z

    with torch.no_grad():
        expected = transcribed(model, batch, solved)
        connect(model, Connection(where="sublayers", form="increment", step=step, solver=solver))
        torch.testing.assert_close(model(**batch).logits, expected, rtol=0, atol=1e-7)
        residuals = layer_residuals(model, batch)
    assert (
        sorted(residuals)
        == sorted(solve_records(model))
        == [f"{layer} {part}" for layer in (1, 2, 3) for part in ("attention", "feed-forward")]
    )
    assert max(residuals.values()) < 1e-7


@pytest.mark.full
@pytest.mark.parametrize(
    "gradient", [Implicit(solver=EXACT), Implicit(solver=EXACT, order=2), Unrolled(), Phantom(steps=80)], ids=str
)
def test_gradients_are_those_of_finite_differences(gradient):
    solver = FixedPoint(steps=3) if isinstance(gradient, Unrolled) else EXACT
    connection = Connection(where="sublayers", form="increment", step=0.2, solver=solver, gradient=gradient)
    model, batch = connect(tiny("bert").double(), connection), tokens()
    cotangent = torch.randn(3, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    def value() -> Tensor:
        return (model(**batch).logits * cotangent).sum()

    value().backward()
    layer = model.bert.encoder.layer[1]
    weights = (layer.attention.self.value.weight, layer.output.dense.weight, model.get_input_embeddings().weight)
    for weight in weights:
        direction = torch.randn(weight.shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
        found, reach = float((weight.grad * direction).sum()), 1e-5
        with torch.no_grad():
            ends = []
            for sign in (1, -1):
                weight.add_(direction, alpha=sign * reach)
                ends.append(float(value()))
                weight.sub_(direction, alpha=sign * reach)
        assert found == pytest.approx((ends[0] - ends[1]) / (2 * reach), rel=1e-4)


@pytest.mark.parametrize(
    ("kind", "solver"),
    [*((kind, Anderson(steps=3)) for kind in sorted(SUBLAYERS)), ("bert", GradientDescent(steps=3))],
    ids=str,
)
def test_neither_the_batch_nor_padding_matters(kind, solver):
    model, batch = connect(tiny(kind).double(), Connection(where="sublayers", solver=solver)), tokens(kind)
    assert noise(model, batch, connection_of(model)) < 1e-7
    longer = {name: torch.nn.functional.pad(value, (0, 5)) for name, value in batch.items()}
    with torch.no_grad():
        torch.testing.assert_close(model(**longer).logits, model(**batch).logits, rtol=0, atol=1e-7)


@separable
def test_training_reaches_the_weights_that_it_reaches_in_the_stock_model(kind):
    plain, model = tiny(kind), connect(tiny(kind), Connection(where="sublayers", learn_step=True))
    reached = []
    for network in (plain, model):
        network(**tokens(kind), labels=torch.tensor([0, 1, 0])).loss.backward()
        reached.append({name for name, weight in network.named_parameters() if weight.grad is not None})
    assert {name.rpartition(".")[2] for name in reached[1] - reached[0]} == {"connection_step"}
    assert reached[0] < reached[1]


def test_checkpoints_change_no_gradient():
    found = []
    for checkpointed in (False, True):
        model = connect(tiny("bert", hidden_dropout_prob=0.0).double(), Connection(where="sublayers")).train()
        if checkpointed:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        torch.manual_seed(0)
        model(**tokens(), labels=torch.tensor([0, 1, 0])).loss.backward()
        found.append(torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]))
    torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", sorted(set(SETTINGS) - set(SUBLAYERS)))
def test_other_backbones_refuse_and_name_those_that_work(kind):
    problems = check(tiny(kind), Connection(where="sublayers", solver=FixedPoint()))
    assert any("roberta" in cure and "deberta-v2" in cure for _, cure in problems)
    with pytest.raises(IncompatibleModelError, match="sub-layers"):
        connect(tiny(kind), Connection(where="sublayers", solver=FixedPoint()))


def test_a_decoder_of_the_bert_family_refuses_too():
    with pytest.raises(IncompatibleModelError, match="sub-layers"):
        connect(tiny("bert", is_decoder=True), Connection(where="sublayers", solver=FixedPoint()))


def test_attentions_are_recorded_once_a_layer():
    model, batch = tiny("bert", attn_implementation="eager"), tokens()
    with torch.no_grad():
        connect(model, Connection(where="sublayers"))
        assert len(model(**batch, output_attentions=True).attentions) == 3
        assert len(model(**batch, output_hidden_states=True).hidden_states) == 4


def test_a_command_line_and_a_recipe_can_name_it():
    named = parse("im-bert:where=sublayers", layers="4-6")
    assert named == Connection.im_bert("4-6", where="sublayers")
    with pytest.raises(UnshakenError, match="sublayers"):
        Connection(where="sublayer")  # type: ignore[arg-type]
