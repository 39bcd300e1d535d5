"""Connected models where users run them: any batch and padding, no_grad, autocast, checkpoints, compile."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from models import SETTINGS, tiny, tokens
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AutoModelForCausalLM

from unshaken import Connection, IncompatibleModelError, UnshakenError, check, connect, connection_of, disconnect
from unshaken.connections import Implicit, solve_records
from unshaken.connections.backbones import stacks_of
from unshaken.connections.layer import token_mask
from unshaken.solvers import Anderson, Broyden, FixedPoint, GradientDescent, NewtonKrylov

CONNECTIONS = {
    "descent": Connection.im_bert(),
    "descent unrolled": Connection.im_bert(gradient="unrolled"),
    "anderson": Connection(solver=Anderson(steps=3)),
    "anderson to tolerance": Connection(solver=Anderson(steps=30, tolerance=1e-4)),
    "anderson implicit": Connection(solver=Anderson(steps=8), gradient="implicit"),
    "broyden": Connection(solver=Broyden(steps=3)),
    "newton": Connection(solver=NewtonKrylov(steps=1)),
    "picard": Connection(solver=FixedPoint(steps=3)),
    "crank-nicolson": Connection.crank_nicolson(),
    "runge-kutta": Connection.runge_kutta(order=4),
    "explicit": Connection.ex_bert(),
}
every_connection = pytest.mark.parametrize("name", list(CONNECTIONS))
LABELS = torch.tensor([0, 1, 0])


def connected(name: str, kind: str = "bert", **settings):
    return connect(tiny(kind, **settings), CONNECTIONS[name])


@pytest.mark.parametrize("kind", sorted(SETTINGS))
def test_neither_batch_nor_padding_changes_a_prediction(kind):
    """In float64, where what is left is no rounding. Left padding as far as the plain model does not see it."""
    batch = tokens(kind)
    row = {key: value[1:2] for key, value in batch.items()}
    real = int(row["attention_mask"].sum())
    bare = {key: value[:, :real] for key, value in row.items()}

    def spread(model: torch.nn.Module) -> tuple[float, float]:
        """Largest difference to the bare text, with padding on the right or in a batch, and with it on the left."""

        def pad(*sides: int) -> dict[str, torch.Tensor]:
            return {key: torch.nn.functional.pad(value, sides) for key, value in bare.items()}

        with torch.no_grad():
            alone, together = model(**bare).logits, model(**batch).logits[1:2]
            right = [model(**pad(0, 7)).logits, together]
            left = model(**pad(5, 0)).logits
        return max(float((other - alone).abs().max()) for other in right), float((left - alone).abs().max())

    stock = spread(tiny(kind).double())
    # T5 starts so steep that descent makes 1e-5 of the last digit, which a mask that is not there would make 1.
    bound = 1e-3 if kind == "t5" else 1e-7
    for name in ("descent", "anderson", "broyden", "crank-nicolson"):
        right, left = spread(connected(name, kind).double())
        assert right <= bound, name
        if stock[1] < 1e-12:
            assert left <= bound, name


@pytest.mark.parametrize("name", [name for name in CONNECTIONS if name != "newton"])
def test_no_connection_of_a_bert_sees_batch_or_padding(name):
    model, batch = connected(name).double(), tokens()
    with torch.no_grad():
        bare = model(**{key: value[1:2, :6] for key, value in batch.items()}).logits
        torch.testing.assert_close(model(**batch).logits[1:2], bare, rtol=0, atol=1e-9)


def test_a_language_model_is_not_shown_the_tokens_it_predicts():
    for solver in (Anderson(), Broyden(), NewtonKrylov(), GradientDescent()):
        with pytest.raises(IncompatibleModelError, match="tokens it is to predict"):
            connect(tiny("gpt2", head=AutoModelForCausalLM), Connection(solver=solver))
    model = connect(tiny("llama", head=AutoModelForCausalLM), Connection(solver=FixedPoint(steps=3)))
    ids = tokens("llama", batch=1, padded=False)["input_ids"]
    other = ids.clone()
    other[0, -1] = 7
    with torch.no_grad():
        assert torch.equal(model(input_ids=ids).logits[:, :-1], model(input_ids=other).logits[:, :-1])


def test_presets_fit_layers_that_end_in_a_residual_sum():
    """h + layer(z) of such layers doubles the state at every layer; the explicit one is the plain model."""
    model = connect(tiny("gpt2"), Connection.im_bert())
    assert model.base_model.h[0].connection_form == "increment"
    assert connect(tiny("bert"), Connection.im_bert()).base_model.encoder.layer[0].connection_form == "layer"
    with pytest.raises(IncompatibleModelError, match="explicit Euler steps already"):
        connect(tiny("gpt2"), Connection.ex_bert())


@pytest.mark.parametrize("kind", sorted(SETTINGS))
def test_the_form_is_that_of_the_last_thing_a_layer_does(kind):
    """A random layer's output has mean 0 and variance 1 at every token if a LayerNorm made it."""
    plain, outputs = tiny(kind), []
    layer = next(iter(stacks_of(plain).values()))[0]
    hook = layer.register_forward_hook(lambda *given: outputs.append(given[-1]))
    with torch.no_grad():
        plain(**tokens(kind))
    hook.remove()
    output = outputs[0][0] if isinstance(outputs[0], tuple) else outputs[0]
    variance, mean = torch.var_mean(output, dim=-1, correction=0)
    is_normed = bool((mean.abs() < 1e-4).all() and ((variance - 1).abs() < 1e-2).all())
    connect(plain, Connection())
    assert layer.connection_form == ("layer" if is_normed else "increment")


def test_a_decoder_that_is_given_its_tokens_by_position_knows_which_are_real():
    model = connect(tiny("bart"), Connection())
    ids = torch.tensor([[2, 7, 8, 0], [2, 9, 2, 0]])
    with torch.no_grad():
        model.base_model.decoder(ids, encoder_hidden_states=torch.zeros(2, 3, 16))
    expected = torch.tensor([[True, True, True, False], [True, True, False, False]])
    assert torch.equal(model.base_model.decoder.layers[0].decoded_tokens, expected)


def test_the_default_costs_what_the_docs_count():
    """k evaluations of a layer without gradients and one with, in an example for k = b = 3."""
    page = (Path(__file__).parents[2] / "docs" / "connections.md").read_text(encoding="utf-8")
    (steps,) = map(int, re.findall(r"\(k \+ 1\) \+ \(b - 1\) \+ 2 against 3: .* for k = b = (\d)", page))
    model = connect(tiny("bert"), Connection())
    model(**tokens())
    assert {record.evaluations for record in solve_records(model).values()} == {steps + 1}


@pytest.mark.parametrize("kind", ["bert", "deberta-v2"])
def test_a_mask_of_floating_point_hides_padding_as_one_of_integers_does(kind):
    """BERT makes an additive mask of either; DeBERTa hands zeros and ones to its layers as they are."""
    model, batch = connect(tiny(kind).double(), Connection()), tokens(kind)
    with torch.no_grad():
        found = model(**{**batch, "attention_mask": batch["attention_mask"].double()}).logits
        torch.testing.assert_close(found, model(**batch).logits)


@pytest.mark.parametrize("kind", ["bart", "t5"])
def test_padding_in_a_decoder_that_is_given_no_mask_changes_no_prediction(kind):
    model, batch = connect(tiny(kind).double(), Connection(layers="decoder:all")), tokens(kind)
    with torch.no_grad():
        alone = model(**{name: value[1:2, :6] for name, value in batch.items()}).logits
        torch.testing.assert_close(model(**batch).logits[1:2], alone, rtol=0, atol=1e-9)


def test_the_letter_of_the_paper_depends_on_padding():
    """Without the mask, pad rows' residuals reach real tokens: what mask_padding is for."""
    model, batch = connect(tiny("bert"), Connection.im_bert(mask_padding=False)), tokens()
    with torch.no_grad():
        row = {key: value[1:2] for key, value in batch.items()}
        wide = model(**{key: torch.nn.functional.pad(value, (0, 30)) for key, value in row.items()}).logits
        assert not torch.allclose(wide, model(**row).logits, atol=1e-4)


@every_connection
def test_every_way_to_switch_gradients_off_gives_the_same_value(name):
    model, batch = connected(name), tokens()
    expected = model(**batch).logits.detach()
    with torch.no_grad():
        torch.testing.assert_close(model(**batch).logits, expected)
    with torch.inference_mode():
        torch.testing.assert_close(model(**batch).logits.clone(), expected)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    torch.testing.assert_close(model(**batch).logits, expected)


def test_a_first_solve_in_inference_mode_leaves_nothing_that_cannot_be_differentiated():
    # With a ridge of its own, for which nothing is kept from other tests.
    model = connect(tiny("bert"), Connection(solver=Anderson(steps=4, ridge=3e-6), gradient="unrolled"))
    with torch.inference_mode():
        model(**tokens())
    model(**tokens(), labels=LABELS).loss.backward()
    assert all(weight.grad is not None for weight in model.base_model.encoder.parameters())


@every_connection
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_and_half_precision_weights_stay_near_float32(name, dtype):
    model, batch = connected(name), tokens()
    with torch.no_grad():
        expected = model(**batch).logits
        with torch.autocast("cpu", dtype=dtype):
            cast = model(**batch).logits
        half = model.to(dtype)(**batch).logits
    for other in (cast, half):
        assert torch.isfinite(other).all()
        torch.testing.assert_close(other.float(), expected, rtol=0.1, atol=0.15)
    assert half.dtype == dtype


@every_connection
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_backward_inside_autocast_is_backward_outside(name, dtype):
    """Defences with inner passes run backward in the middle of a step, where autocast is still on."""
    gradients = []
    for inside in (True, False):
        model, batch = connected(name), tokens()
        with torch.autocast("cpu", dtype=dtype):
            loss = model(**batch, labels=LABELS).loss
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
    # A second derivative has products of its own, which autocast rounds.
    bounds = {"rtol": 1e-2, "atol": 1e-4} if name == "descent unrolled" else {"rtol": 1e-6, "atol": 1e-7}
    for within, after in zip(*gradients, strict=True):
        torch.testing.assert_close(within, after, **bounds)


@every_connection
@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 2e-2), (torch.float16, 2e-3)])
def test_gradients_under_autocast_are_those_of_float32(name, dtype, bound):
    """Of every weight: the solve reads them first, without gradients, and autocast keeps what it makes of them."""
    gradients = []
    for is_cast in (False, True):
        model, batch = connected(name), tokens()
        with torch.autocast("cpu", dtype=dtype, enabled=is_cast):
            loss = model(**batch, labels=LABELS).loss
        loss.backward()
        gradients.append({name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    exact, cast = (torch.cat([gradient.flatten() for gradient in found.values()]) for found in gradients)
    if name == "newton":  # differences of rounded values know half of their digits
        bound **= 0.5
    assert (cast - exact).norm() < bound * exact.norm()


@every_connection
def test_gradient_checkpointing_gives_the_same_gradients(name):
    """Also with dropout: a checkpoint replays the solve, masks included."""
    gradients = []
    for checkpoint in (False, True):
        model, batch = connected(name).train(), tokens()
        if checkpoint:
            model.gradient_checkpointing_enable()
        torch.manual_seed(3)
        model(**batch, labels=LABELS).loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
    for plain, checkpointed in zip(*gradients, strict=True):
        torch.testing.assert_close(checkpointed, plain)


@pytest.mark.parametrize("name", ["descent", "anderson implicit", "anderson"])
def test_a_checkpoint_runs_a_solve_once_more_and_not_for_every_product(name):
    counts = []
    for checkpoint in (False, True):
        model = connected(name).train()
        if checkpoint:
            model.gradient_checkpointing_enable()
        calls = 0

        def count(*_: object) -> None:
            nonlocal calls
            calls += 1

        for layer in model.base_model.encoder.layer:
            layer.attention.register_forward_hook(count)
        model(**tokens(), labels=LABELS).loss.backward()
        counts.append(calls)
    # Implicit gradients make a graph for their products in backward, and drop it: one evaluation more a layer.
    assert counts[1] <= 2 * counts[0] + len(model.base_model.encoder.layer)


def test_reentrant_checkpointing_is_refused_with_a_cure():
    model, batch = connected("descent").train(), tokens()
    model.gradient_checkpointing_enable({"use_reentrant": True})
    with pytest.raises(IncompatibleModelError, match="use_reentrant"):
        model(**batch, labels=LABELS)
    assert "use_reentrant" in check(disconnect(model), Connection.im_bert())[0][1]


@pytest.mark.full
def test_the_rest_of_a_compiled_model_still_compiles():
    model, batch = connected("descent"), tokens()
    with torch.no_grad():
        expected = model(**batch).logits
        compiled = torch.compile(model, backend="eager")
        torch.testing.assert_close(compiled(**batch).logits, expected)


def test_one_dropout_mask_serves_a_whole_solve():
    """With one mask g is one function, so more steps bring the residual down in training as well."""
    residuals = {}
    for mode in ("shared", "resample"):
        model = connect(tiny("bert"), Connection(solver=Anderson(steps=12), inner_dropout=mode)).train()
        torch.manual_seed(0)
        model(**tokens())
        residuals[mode] = max(record.worst_residual for record in solve_records(model).values())
    assert residuals["shared"] < residuals["resample"] / 3


def test_inner_dropout_off_keeps_it_in_the_pass_that_carries_gradients():
    model, batch = connect(tiny("bert"), Connection(inner_dropout="off")).train(), tokens()
    first, second = model(**batch).logits, model(**batch).logits
    assert not torch.equal(first, second)
    assert all(module.training for module in model.modules())


def test_a_training_step_draws_as_much_randomness_as_a_plain_one():
    """The stream after a connected forward is the stream after a plain one: seeds stay comparable."""
    after = []
    for connection in (None, CONNECTIONS["anderson"], CONNECTIONS["descent"]):
        model = tiny("bert").train()
        if connection is not None:
            connect(model, connection)
        torch.manual_seed(5)
        model(**tokens())
        after.append(torch.rand(4))
    assert torch.equal(after[0], after[1])
    assert torch.equal(after[0], after[2])


def test_second_order_runs_on_sdpa_without_dropout():
    """Eval mode is where other SDPA kernels have no second derivative: the layer must pick the one that has."""
    model, batch = connected("descent unrolled", attn_implementation="sdpa"), tokens()
    model(**batch, labels=LABELS).loss.backward()
    assert all(parameter.grad is not None for parameter in model.base_model.encoder.parameters())


def test_descent_in_a_layer_is_algorithm_1_to_the_letter():
    model, batch = tiny("bert", num_hidden_layers=1), tokens(padded=False)
    layer = model.base_model.encoder.layer[0]
    with torch.no_grad():
        h = model.base_model.embeddings(input_ids=batch["input_ids"])
        x = h + layer(h)
    with sdpa_kernel(SDPBackend.MATH):
        for _ in range(5):
            x = x.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(((x - h - layer(x)) ** 2).sum(), x)
            x = x - 0.1 * gradient
    with torch.no_grad():
        ours = connect(model, Connection.im_bert())(**batch, output_hidden_states=True).hidden_states[-1]
    torch.testing.assert_close(ours, x.detach(), rtol=1e-4, atol=1e-5)


def test_anderson_meets_the_tolerance_that_descent_misses():
    model, batch = connect(tiny("bert"), Connection(solver=Anderson(steps=60, tolerance=1e-4))), tokens()
    with torch.no_grad():
        model(**batch)
    records = solve_records(model)
    assert all(record.worst_residual <= 1e-4 for record in records.values())
    assert all(record.evaluations < 62 for record in records.values())


@pytest.mark.parametrize("name", ["descent", "anderson", "newton", "picard"])
def test_a_record_counts_what_its_layer_did(name):
    model, calls = connected(name), 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    model.base_model.encoder.layer[1].attention.register_forward_hook(count)
    model(**tokens())
    assert solve_records(model)["2"].evaluations == calls


def test_runge_kutta_in_a_model_is_its_formula():
    plain, batch = tiny("bert", num_hidden_layers=1), tokens(padded=False)
    layer = plain.base_model.encoder.layer[0]
    with torch.no_grad():
        h = plain.base_model.embeddings(input_ids=batch["input_ids"])
        k1 = layer(h)
        expected = h + (k1 + layer(h + k1)) / 2
        model = connect(plain, Connection.runge_kutta(order=2))
        torch.testing.assert_close(model(**batch, output_hidden_states=True).hidden_states[-1], expected)


def test_a_mask_counts_by_position_as_it_does_by_name():
    """Padding would be seen by a solver that does not find the mask."""
    layer = connected("anderson", num_hidden_layers=1).double().base_model.encoder.layer[0]
    h = torch.randn(1, 6, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mask = torch.zeros(1, 1, 1, 6, dtype=torch.float64)
    mask[..., 4:] = torch.finfo(torch.float64).min
    with torch.no_grad():
        bare = layer(h[:, :4])
        for found in (layer(h, mask), layer(h, attention_mask=mask)):
            torch.testing.assert_close(found[:, :4], bare)


def test_every_kind_of_mask_says_which_tokens_are_real():
    least = torch.finfo(torch.float32).min
    real = torch.tensor([[True, True, False]])
    row = torch.where(real, 0.0, least)
    causal = torch.full((3, 3), least).triu(1)
    assert token_mask(None) is None
    for mask in (
        real,
        row,
        row[:, None, None],
        row[:, None, None].expand(1, 2, 3, 3),
        (causal + row).clamp_min(least)[None, None],
    ):
        assert torch.equal(token_mask(mask), real)
    assert torch.equal(token_mask(real.float(), binary=True), real)


@pytest.mark.parametrize("kind", ["mpnet", "deberta-v2"])
def test_attention_maps_are_those_of_the_pass_that_carries_gradients(kind):
    """These layers return their maps; those of a solver's evaluations have no gradient."""
    model = connect(tiny(kind, attn_implementation="eager"), Connection())
    maps = model(**tokens(kind), output_attentions=True).attentions
    weights = dict(model.base_model.encoder.layer[2].attention.named_parameters())
    query = next(weight for name, weight in weights.items() if name.endswith(("q.weight", "query_proj.weight")))
    (gradient,) = torch.autograd.grad(maps[2].square().sum(), query)
    assert float(gradient.abs().max()) > 0


# ------------------------------------------------------------------------------------------------------- bad requests


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ("4", "layers are 1 to 3"),
        ("0-2", "layer 0 does not exist"),
        ("3-1", "write 1-3"),
        ("", "names no layer"),
        ([], "names no layer"),
        ("first", "not a number"),
        ("1,1", "named twice"),
        ("decoder:1", "no stack 'decoder'"),
        ("²", "not a number"),
    ],
)
def test_layers_that_do_not_exist(layers, message):
    with pytest.raises(UnshakenError, match=message):
        connect(tiny("bert"), Connection(layers=layers))


def test_not_a_model_of_the_table():
    with pytest.raises(IncompatibleModelError, match="not a Hugging Face model"):
        connect(torch.nn.Linear(2, 2), Connection())
    model = tiny("bert")
    model.config.__class__.model_type, kept = "bertt", model.config.__class__.model_type
    try:
        with pytest.raises(IncompatibleModelError, match="did you mean 'bert'"):
            connect(model, Connection())
    finally:
        model.config.__class__.model_type = kept


def test_connecting_twice_and_disconnecting_a_plain_model():
    model = connect(tiny("bert"), Connection())
    with pytest.raises(UnshakenError, match="connected already"):
        connect(model, Connection())
    with pytest.raises(UnshakenError, match="is not connected"):
        disconnect(disconnect(model))
    assert connection_of(model) is None


def test_albert_takes_all_depths_of_a_shared_layer_or_none():
    with pytest.raises(IncompatibleModelError, match="layers='all'"):
        connect(tiny("albert"), Connection(layers="2-3"))
    connect(tiny("albert"), Connection(layers="1-3"))


def test_flash_attention_with_unrolled_descent_is_refused_with_a_cure():
    model = tiny("bert")
    model.config._attn_implementation_internal = "flash_attention_2"
    assert "sdpa" in check(model, Connection.im_bert(gradient="unrolled"))[0][1]
    assert check(model, Connection.im_bert()) == []
    assert "sdpa" in check(model, Connection(gradient=Implicit(order=2)))[0][1]
    assert check(model, Connection(gradient=Implicit())) == []


def test_a_cache_is_refused_and_switched_off():
    model = connect(tiny("gpt2", head=AutoModelForCausalLM), Connection(solver=FixedPoint(steps=2)))
    assert model.config.use_cache is False
    ids = tokens("gpt2")["input_ids"]
    model(input_ids=ids)
    with pytest.raises(IncompatibleModelError, match="use_cache=False"):
        model(input_ids=ids, use_cache=True)
    assert disconnect(model).config.use_cache is True


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"theta": 1.5}, "between 0"),
        ({"step": 0}, "above 0"),
        ({"form": "layers"}, "did you mean 'layer'"),
        ({"order": 3}, "Runge-Kutta"),
        ({"order": 2}, "theta=0"),
        ({"gradient": "fantom"}, "did you mean 'phantom'"),
        ({"inner_dropout": "share"}, "did you mean 'shared'"),
        ({"solver": "anderson"}, "pass a solver"),
    ],
)
def test_a_connection_that_makes_no_sense(settings, message):
    with pytest.raises(UnshakenError, match=message):
        Connection(**settings)


def test_a_backward_pass_is_not_solved_by_descent():
    """Its products have no graph of their own to descend by."""
    with pytest.raises(UnshakenError, match="solve it by Anderson"):
        Implicit(solver=GradientDescent())


def test_connections_survive_json():
    import json

    others = Connection(solver=GradientDescent(steps=7), gradient="implicit"), Connection.runge_kutta(order=2)
    for connection in (*CONNECTIONS.values(), *others):
        saved = json.loads(json.dumps(connection.to_dict()))
        assert Connection.from_dict(saved).to_dict() == connection.to_dict()
    assert (
        Connection.from_dict({"solver": {"name": "anderson"}, "gradient": {"name": "implicit"}, "theta": 0.5}).theta
        == 0.5
    )
    with pytest.raises(UnshakenError, match="unknown key 'speed'"):
        Connection.from_dict({**Connection().to_dict(), "speed": 1})
