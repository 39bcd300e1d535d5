"""Which layers a specification names, and by which names connections and their classes are found again."""

from __future__ import annotations

import pickle

import pytest
import torch
import transformers
from models import SETTINGS, tiny
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

from unshaken import Connection, IncompatibleModelError, UnshakenError, check, connect
from unshaken.connections import auto, parse
from unshaken.connections.backbones import parse_layers, stacks_of
from unshaken.solvers import Anderson, FixedPoint

SIZES = {"encoder": 2, "decoder": 3}


def test_an_explicit_connection_takes_neither_solver_nor_gradient_and_an_implicit_one_both() -> None:
    for option in ({"solver": "anderson"}, {"gradient": "implicit"}):
        with pytest.raises(UnshakenError, match="nothing to solve"):
            parse("ex-bert", **option)
        made = parse("im-bert", **option)
        assert made is not None
        assert made.theta == 1
        part = made.solver if "solver" in option else made.gradient
        assert [part.name] == list(option.values())
    path = "unshaken.solvers.anderson:Anderson"  # importing a module runs its code: only where that was asked for
    with pytest.raises(UnshakenError, match="class path"):
        parse("im-bert", solver=path)
    allowed = parse("im-bert", solver=path, allow_paths=True)
    assert allowed is not None
    assert isinstance(allowed.solver, Anderson)
    explicit = parse("ex-bert")
    assert explicit is not None
    assert explicit.theta == 0


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("all", [("encoder", 1), ("encoder", 2), ("decoder", 1), ("decoder", 2), ("decoder", 3)]),
        ("encoder:2,decoder:all", [("encoder", 2), ("decoder", 1), ("decoder", 2), ("decoder", 3)]),
        ("1-2", [("encoder", 1), ("encoder", 2)]),
        (2, [("encoder", 2)]),
    ],
)
def test_layers_are_counted_from_one_in_every_stack(spec: str | int, expected: list[tuple[str, int]]) -> None:
    assert parse_layers(spec, SIZES) == expected


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("1-9", "layer 9 does not exist; layers are 1 to 2"),
        ("0-2", "layer 0 does not exist"),
        ("encoder:1:2", "'1:2' is not a number or a range"),
        ("999999", "layer 999999 does not exist"),
        ("1000000", "'1000000' is not a number or a range"),
    ],
)
def test_the_layer_that_is_wrong_is_named(spec: str, message: str) -> None:
    with pytest.raises(UnshakenError, match=message):
        parse_layers(spec, SIZES)


def test_groups_of_shared_layers_are_told_apart() -> None:
    model = tiny("albert", num_hidden_layers=4, num_hidden_groups=2)
    first, second = (group.albert_layers[0] for group in model.albert.encoder.albert_layer_groups)
    layers = stacks_of(model)["encoder"]
    assert [id(layer) for layer in layers] == [id(layer) for layer in (first, first, second, second)]
    assert check(model, Connection(layers="3-4")) == []
    ((reason, cure),) = check(model, Connection(layers="2-3"))
    assert "share their weights" in reason
    assert "layers='all'" in cure


def test_an_encoder_without_its_decoder_has_one_stack_and_a_model_without_its_main_one_is_refused() -> None:
    alone = transformers.T5EncoderModel(transformers.T5Config(**SETTINGS["t5"]))
    assert {name: len(layers) for name, layers in stacks_of(alone).items()} == {"encoder": 2}
    model = tiny("bert")
    del model.bert.encoder
    with pytest.raises(IncompatibleModelError, match=r"it has no 'encoder\.layer'"):
        stacks_of(model)


def test_a_language_model_may_be_connected_where_no_later_token_has_a_say() -> None:
    model = tiny("gpt2", head=AutoModelForCausalLM)
    ((reason, _),) = check(model, Connection())
    assert "the tokens it is to predict" in reason
    for harmless in (Connection.ex_bert(form="layer"), Connection(solver=FixedPoint(steps=2))):
        assert check(model, harmless) == []
    both = tiny("t5", head=AutoModelForSeq2SeqLM)
    assert check(both, Connection(layers="encoder:all")) == []
    assert len(check(both, Connection(layers="decoder:1"))) == 1
    assert check(tiny("gpt2"), Connection()) == []  # a classifier predicts no token


def test_the_decoder_of_a_connected_pair_is_told_which_of_its_tokens_are_real() -> None:
    model = connect(tiny("bart"), Connection())
    ids = torch.tensor([[5, 6, 7, 2], [5, 2, 0, 0]])
    with torch.no_grad():
        model(input_ids=ids, attention_mask=(ids != 0).long())
    layer = model.model.decoder.layers[0]
    # shifted one place to the right: the start token, then the text without its end
    assert layer.decoded_tokens.tolist() == [[True, True, True, True], [True, True, False, False]]
    assert not hasattr(connect(tiny("bert"), Connection()).bert.encoder, "decoded_tokens_hook")


def test_presets_and_what_makes_a_connection_implicit() -> None:
    half = Connection.crank_nicolson()
    assert (half.form, half.theta) == ("increment", 0.5)
    assert [Connection(solver=Anderson(steps=steps)).is_implicit for steps in (0, 1, 2)] == [False, True, True]
    assert not Connection.ex_bert().is_implicit
    assert Connection(theta=0.5).is_implicit


def test_a_class_is_made_for_a_name_that_was_never_asked_for() -> None:
    made = auto.connected_config_class(transformers.FNetConfig)
    assert (made.__name__, made.model_type) == ("ConnectedFNetConfig", "unshaken-fnet")
    assert pickle.loads(pickle.dumps(made)) is made
    assert auto.__getattr__("ConnectedBertConfig") is auto.connected_config_class(transformers.BertConfig)
    layer = auto.__getattr__("ConnectedBertLayer")
    assert layer is auto.connected_class(transformers.models.bert.modeling_bert.BertLayer)
    for name in ("BertModel", "ConnectedNothing"):
        with pytest.raises(AttributeError, match=name):
            auto.__getattr__(name)


def test_registering_again_is_no_error() -> None:
    """As a reload or a second copy of the library does it."""
    auto.register()
    config_class = auto.connected_config_class(transformers.BertConfig)
    for _ in range(2):
        auto.register_models.cache_clear()
        auto.register_models(config_class)
    assert transformers.AutoModel._model_mapping[config_class] is auto.connected_class(transformers.BertModel)
