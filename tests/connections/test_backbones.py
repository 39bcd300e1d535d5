"""Every backbone of the table: connected, compared with the stock model, saved, loaded, pickled, copied."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest
import torch
from models import SETTINGS, tiny, tokens
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from unshaken import Connection, connect, connection_of, disconnect
from unshaken.connections import BACKBONES, solve_records
from unshaken.solvers import Anderson, FixedPoint

CONNECTIONS = {
    "im-bert": Connection.im_bert(),
    "explicit": Connection.ex_bert(form="layer"),
    "anderson": Connection(solver=Anderson(steps=2)),
    "increment": Connection(form="increment", solver=Anderson(steps=3)),
}
every_backbone = pytest.mark.parametrize("kind", sorted(SETTINGS))


def test_the_tiny_models_cover_the_table():
    assert sorted(SETTINGS) == sorted(BACKBONES)


@every_backbone
@pytest.mark.parametrize(
    "identity",
    [
        Connection(form="increment", theta=0.0),
        Connection(form="increment", solver=Anderson(steps=0)),
        Connection.im_bert(form="increment", theta=0.0),
    ],
    ids=["theta 0", "zero steps", "theta 0 with descent"],
)
def test_the_identity_of_the_equation_is_the_stock_model_bit_for_bit(kind, identity):
    model, batch = tiny(kind), tokens(kind)
    with torch.no_grad():
        stock = model(**batch).logits
        assert torch.equal(connect(model, identity)(**batch).logits, stock)
        assert torch.equal(disconnect(model)(**batch).logits, stock)


@every_backbone
@pytest.mark.parametrize("name", list(CONNECTIONS))
def test_a_connection_changes_the_model_and_comes_back_from_disk(kind, name, tmp_path):
    model, batch = tiny(kind), tokens(kind)
    with torch.no_grad():
        stock = model(**batch).logits
        connected = connect(model, CONNECTIONS[name])(**batch).logits
    assert not torch.allclose(connected, stock)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert type(loaded) is type(model)
    assert connection_of(loaded) == connection_of(model)
    with torch.no_grad():
        torch.testing.assert_close(loaded(**batch).logits, connected, rtol=0, atol=0)
    assert sorted(loaded.state_dict()) == sorted(model.state_dict())


@every_backbone
def test_deepcopy_and_pickle_keep_the_connection(kind):
    model, batch = connect(tiny(kind), Connection(solver=FixedPoint(steps=2))), tokens(kind)
    with torch.no_grad():
        expected = model(**batch).logits
        assert torch.equal(copy.deepcopy(model)(**batch).logits, expected)
        assert torch.equal(pickle.loads(pickle.dumps(model))(**batch).logits, expected)


@every_backbone
def test_hidden_states_keep_their_number(kind):
    model, batch = tiny(kind), tokens(kind)
    with torch.no_grad():
        stock = model(**batch, output_hidden_states=True)
        connected = connect(model, Connection(solver=Anderson(steps=2)))(**batch, output_hidden_states=True)
    for key in ("hidden_states", "encoder_hidden_states", "decoder_hidden_states"):
        if stock.get(key) is not None:
            assert len(connected[key]) == len(stock[key])


@every_backbone
def test_gradients_reach_every_layer(kind):
    model, batch = connect(tiny(kind), Connection(solver=Anderson(steps=2))).train(), tokens(kind)
    model(**batch, labels=torch.tensor([0, 1, 0])).loss.backward()
    used = [name for name, parameter in model.named_parameters() if parameter.grad is not None]
    plain = tiny(kind).train()
    plain(**batch, labels=torch.tensor([0, 1, 0])).loss.backward()
    assert used == [name for name, parameter in plain.named_parameters() if parameter.grad is not None]


@pytest.mark.parametrize("head", [AutoModel, AutoModelForTokenClassification])
def test_other_heads_come_back_too(head, tmp_path):
    model, batch = connect(tiny("bert", head=head), Connection(layers="2-3")), tokens()
    model.save_pretrained(tmp_path)
    loaded = head.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        torch.testing.assert_close(loaded(**batch)[0], model(**batch)[0], rtol=0, atol=0)
        assert len(loaded(**batch, output_hidden_states=True).hidden_states) == 4


@pytest.mark.full
def test_loading_without_unshaken_fails_loudly(tmp_path):
    connect(tiny("bert"), Connection()).save_pretrained(tmp_path)
    program = (
        f"from transformers import AutoModelForSequenceClassification as A\nA.from_pretrained({str(tmp_path)!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "unshaken-bert" in done.stderr
    done = subprocess.run(
        [sys.executable, "-c", "import unshaken\n" + program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_from_config_and_other_heads_know_a_connected_config(tmp_path):
    model = connect(tiny("bert", head=AutoModelForMaskedLM), Connection(solver=FixedPoint(steps=2)))
    assert type(AutoModelForMaskedLM.from_config(model.config)) is type(model)
    model.save_pretrained(tmp_path)
    assert connection_of(AutoModelForMaskedLM.from_pretrained(tmp_path)) == connection_of(model)


def test_position_biases_keep_their_gradient():
    """T5's first block hands its bias to all others: it must be the one of a pass with gradients."""
    norms = []
    for gradient in ("detached", "phantom"):
        model = connect(tiny("t5"), Connection(layers="1", solver=FixedPoint(steps=1), gradient=gradient, step=1e-6))
        model(**tokens("t5"), labels=torch.tensor([0, 1, 0])).loss.backward()
        norms.append(
            float(model.transformer.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight.grad.norm())
        )
    assert norms[0] == pytest.approx(norms[1], rel=1e-3)


def test_only_the_named_layers_are_connected():
    model, batch = connect(tiny("bert"), Connection(layers=[1, 3])), tokens()
    with torch.no_grad():
        model(**batch)
    assert sorted(solve_records(model)) == ["1", "3"]
    assert connection_of(model) == connection_of(copy.deepcopy(model))


def test_decoder_stacks_are_named():
    model, batch = connect(tiny("t5"), Connection(layers="encoder:2,decoder:1-2")), tokens("t5")
    with torch.no_grad():
        model(**batch)
    assert sorted(solve_records(model)) == ["2", "decoder:1", "decoder:2"]


def test_attentions_are_recorded_once_a_layer():
    model, batch = tiny("bert", attn_implementation="eager"), tokens()
    with torch.no_grad():
        connected = connect(model, Connection(solver=Anderson(steps=3)))(**batch, output_attentions=True)
    assert len(connected.attentions) == 3


def test_a_learnable_step_is_trained_and_saved(tmp_path):
    model = connect(tiny("bert"), Connection.ex_bert(step=0.5, learn_step=True)).train()
    steps = [parameter for name, parameter in model.named_parameters() if name.endswith("connection_step")]
    assert [step.item() for step in steps] == [0.5] * 3
    model(**tokens(), labels=torch.tensor([0, 1, 0])).loss.backward()
    with torch.no_grad():
        for step in steps:
            assert step.grad is not None
            step.add_(0.125)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert loaded.base_model.encoder.layer[1].connection_step.item() == 0.625
    assert "connection_step" not in "".join(disconnect(model).state_dict())
