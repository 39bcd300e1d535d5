"""Gradients that reach the words: in every backbone, by every connection and mode, against converged solves."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import weakref

import pytest
import torch
from models import SETTINGS, tiny, tokens
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from unshaken import Connection, UnshakenError, connect
from unshaken.connections import Detached, Implicit, Phantom, Unrolled, gradients
from unshaken.connections.implicit import differentiate_once, differentiate_repeatedly
from unshaken.embedded import minilm_path
from unshaken.solvers import Anderson, Broyden, FixedPoint, NewtonKrylov, Solver
from unshaken.word_gradients import refuse_blind_tokens, refuse_blind_words, word_gradients

LAYERS = {"distilbert": "n_layers", "gpt2": "n_layer"}
LABELS = torch.tensor([0, 1, 0])
CONNECTIONS = {
    "auto": Connection(solver=Anderson(steps=4)),
    "increment": Connection(form="increment", solver=Anderson(steps=4)),
    "crank-nicolson": Connection.crank_nicolson(),
    "im-bert": Connection.im_bert(form="auto"),
}


def at_embeddings(model: nn.Module, batch: dict[str, Tensor], *, for_words: bool) -> Tensor:
    """Gradient of the loss at every embedded token of the main input. (batch, seq, width)"""
    found: list[Tensor] = []

    def keep(module: nn.Module, inputs: object, output: Tensor) -> None:
        if not found:  # BART embeds its decoder's tokens by the same table
            output.retain_grad()
            found.append(output)

    encoder = getattr(model.base_model, "encoder", None)
    owner = encoder if hasattr(encoder, "get_input_embeddings") else model  # BART and T5: the encoder has its own
    hook = owner.get_input_embeddings().register_forward_hook(keep)
    with word_gradients() if for_words else contextlib.nullcontext():
        loss = model(**batch, labels=LABELS[: len(batch["input_ids"])]).loss
    hook.remove()
    loss.backward()
    assert found[0].grad is not None
    return found[0].grad


def gentle(kind: str) -> nn.Module:
    """Two layers, not so steep that a few steps leave a descent far from any solution."""
    model = tiny(kind, **({} if kind in ("bart", "t5") else {LAYERS.get(kind, "num_hidden_layers"): 2}))
    with torch.no_grad():
        for parameter in model.base_model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(0.1 if kind == "t5" else 0.5)  # T5 starts with weights of its own size
    return model


def cosine(a: Tensor, b: Tensor) -> float:
    return float(torch.cosine_similarity(a.flatten().double(), b.flatten().double(), dim=0))


def reaches_every_token(gradient: Tensor, mask: Tensor) -> bool:
    return bool((gradient.norm(dim=-1) > 0)[mask.bool()].all())


@pytest.mark.full
@pytest.mark.parametrize("kind", sorted(SETTINGS))
@pytest.mark.parametrize("name", list(CONNECTIONS))
def test_the_gradient_at_the_words_is_near_a_converged_one_in_every_mode(kind, name, monkeypatch):
    batch = tokens(kind, batch=2)
    for values in ([Implicit(), Phantom()], [Detached(), Unrolled()]):  # modes of one value share what they must meet
        converged = None
        for mode in values:
            model = gentle(kind)
            connect(model, dataclasses.replace(CONNECTIONS[name], gradient=mode))
            if converged is None:
                with monkeypatch.context() as patch:
                    patch.setattr(gradients, "WORD_STEPS", 40)
                    converged = at_embeddings(model, batch, for_words=True)
            for for_words in {True, not isinstance(mode, Implicit)}:  # the default mode serves words as it is
                ours = at_embeddings(model, batch, for_words=for_words)
                assert reaches_every_token(ours, batch["attention_mask"]), mode
                assert cosine(ours, converged) > 0.5, mode


@pytest.mark.parametrize("mode", [Detached(), Phantom(), Phantom(steps=3), Unrolled(), Implicit()], ids=str)
def test_asking_for_word_gradients_does_not_change_a_value(mode):
    model, batch = connect(tiny("bert"), Connection(gradient=mode)), tokens()
    expected = model(**batch).logits
    with word_gradients():
        torch.testing.assert_close(model(**batch).logits, expected)


@pytest.mark.parametrize("mode", [Detached(), Phantom(), Phantom(steps=2, damping=0.5), Unrolled()], ids=str)
def test_word_gradients_are_those_of_the_solution_in_every_mode(mode):
    """Modes of a solve that has converged share their value, and for words the gradient of `Implicit`."""
    found = []
    for each in (Implicit(), mode):
        connection = Connection(form="layer", solver=Anderson(steps=30, window=10), gradient=each)
        found.append(at_embeddings(connect(gentle("bert").double(), connection), tokens(), for_words=True))
    torch.testing.assert_close(found[1], found[0])


def test_word_gradients_keep_a_backward_solver_that_was_chosen():
    chosen = Connection(form="layer", gradient=Implicit(solver=FixedPoint(steps=1)))
    model = connect(gentle("bert").double(), chosen)
    ours = at_embeddings(model, tokens(), for_words=True)
    torch.testing.assert_close(ours, at_embeddings(model, tokens(), for_words=False))
    default = connect(gentle("bert").double(), Connection(form="layer"))
    assert not torch.allclose(ours, at_embeddings(default, tokens(), for_words=True), rtol=1e-3)


def test_one_phantom_step_does_not_see_the_words_and_word_gradients_do():
    """Why `Implicit` is the default: z = h + layer(z*) has the identity for its derivative in h."""
    model, batch = connect(tiny("bert"), Connection(form="layer", gradient=Phantom())), tokens()
    blind = at_embeddings(model, batch, for_words=False)
    assert float(blind[:, 1:].abs().max()) == 0
    with pytest.raises(UnshakenError, match="all tokens but one"):
        refuse_blind_tokens(blind, batch["attention_mask"])
    seeing = at_embeddings(model, batch, for_words=True)
    refuse_blind_tokens(seeing, batch["attention_mask"])


def test_a_gradient_that_is_zero_everywhere_is_a_saturated_loss_and_no_reason_to_refuse():
    refuse_blind_tokens(torch.zeros(2, 5, 3), torch.ones(2, 5))
    refuse_blind_words(torch.zeros(4, 3), torch.zeros(2, 2))
    with pytest.raises(UnshakenError, match="every word"):
        refuse_blind_words(torch.zeros(4, 3), torch.ones(2, 2))


def test_word_gradients_survive_a_checkpoint():
    """Backward runs the layers again, outside of the context."""
    found = []
    for checkpoint in (False, True):
        model, batch = connect(tiny("bert"), Connection.im_bert()).train(), tokens()
        if checkpoint:
            model.gradient_checkpointing_enable()
        torch.manual_seed(3)
        found.append(at_embeddings(model, batch, for_words=True))
    torch.testing.assert_close(found[0], found[1])


@pytest.fixture(scope="module")
def pretrained() -> tuple[nn.Module, dict[str, Tensor]]:
    torch.manual_seed(0)
    path = str(minilm_path())
    model = AutoModelForSequenceClassification.from_pretrained(path, num_labels=2, dtype=torch.float32).eval()
    texts = ["A film of rare charm, told with wit.", "The plot is thin, and nobody seems to care.", "Not bad."]
    return model, dict(AutoTokenizer.from_pretrained(path)(texts, padding=True, return_tensors="pt"))


def test_the_default_gradient_on_pretrained_weights(pretrained):
    """Cosine above 0.8 to a converged backward solve at the same solution, for weights and for words."""
    plain, batch = pretrained
    found = []
    for gradient in (None, Implicit(solver=Anderson(steps=60, window=10, tolerance=1e-6))):
        model = connect(copy.deepcopy(plain), Connection(form="layer", gradient=gradient))
        words = at_embeddings(model, batch, for_words=False)
        weights = torch.cat([weight.grad.flatten() for weight in model.base_model.encoder.parameters()])
        found.append((words, weights))
    (words, weights), (true_words, true_weights) = found
    assert reaches_every_token(words, batch["attention_mask"])
    assert cosine(words, true_words) > 0.8
    assert cosine(weights, true_weights) > 0.8


# ------------------------------------------------------------------------------------------------------ on one graph


def test_the_layer_is_evaluated_once_with_a_graph_and_products_use_it():
    model, batch = connect(tiny("bert"), Connection(solver=Anderson(steps=3))), tokens()
    recorded = calls = 0

    def count(module: nn.Module, inputs: object, output: object) -> None:
        nonlocal recorded, calls
        calls += 1
        recorded += torch.is_grad_enabled()

    model.base_model.encoder.layer[1].attention.register_forward_hook(count)
    model(**batch, labels=LABELS).loss.backward()
    assert (calls, recorded) == (4, 1)


def test_a_frozen_model_on_frozen_inputs_asks_for_no_gradient():
    model = connect(tiny("bert"), Connection())
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    assert not model(**tokens()).logits.requires_grad


@pytest.mark.parametrize("has_input", [False, True])
def test_only_weights_and_inputs_keep_a_gradient(has_input):
    """The point at which the layer is differentiated must not hold on to memory."""
    points = []
    weight, base = torch.full((1,), 0.5, requires_grad=True), torch.ones(1, 1, requires_grad=has_input)

    def g(base: Tensor, z: Tensor) -> Tensor:
        points.append(z)
        return base + weight * z

    differentiate_once(g, base, torch.full((1, 1), 2.0), Anderson(steps=3)).sum().backward()
    assert not points[0].is_leaf or points[0].grad is None
    torch.testing.assert_close(weight.grad, torch.tensor([4.0]))  # z = b / (1 - w), dz/dw = b / (1 - w)^2
    if has_input:
        torch.testing.assert_close(base.grad, torch.tensor([[2.0]]))


def products_by(solver: Solver, has_input: bool = True) -> tuple[int, Tensor, Tensor | None, Tensor]:
    """Products of the backward solve of z = b + z W beside the pass to the weights, what W and b get, and z."""
    weight, cotangent = linear_problem()
    weight, base = weight.clone().requires_grad_(), torch.ones(1, 4, dtype=torch.float64, requires_grad=has_input)
    products = 0

    def g(base: Tensor, z: Tensor) -> Tensor:
        image = z @ weight

        def count(gradient: Tensor) -> None:
            nonlocal products
            products += 1

        image.register_hook(count)
        return base + image

    z = torch.linalg.solve(torch.eye(4).double() - weight.detach(), base.detach(), left=False)
    differentiate_once(g, base, z, solver).backward(cotangent)
    assert weight.grad is not None
    return products - 1, weight.grad, base.grad, z


def linear_problem() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    weight = 0.3 * torch.randn(4, 4, generator=generator, dtype=torch.float64)
    return weight, torch.randn(1, 4, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_the_pass_to_the_weights_makes_the_last_product_of_the_backward_solve(steps):
    """What lies below gets the u of all steps, for one product less; the weights get the u of the step before."""
    weight, cotangent = linear_problem()

    def solved(steps: int) -> Tensor:
        with torch.no_grad():
            return Anderson(steps=steps)(lambda u: u @ weight.T + cotangent, cotangent).z

    products, at_weight, at_base, z = products_by(Anderson(steps=steps))
    assert products == steps - 1
    torch.testing.assert_close(at_base, solved(steps))
    torch.testing.assert_close(at_weight, z.T @ solved(steps - 1))
    # Where nothing lies below, and where a solver cannot be left before its last step, it makes all of them.
    products, at_weight, _, z = products_by(Anderson(steps=steps), has_input=False)
    assert products == steps
    torch.testing.assert_close(at_weight, z.T @ solved(steps))
    products, at_weight, at_base, z = products_by(FixedPoint(steps=steps))
    assert products == steps
    series = sum((torch.linalg.matrix_power(weight.T, power) for power in range(steps + 1)), torch.zeros(4, 4).double())
    torch.testing.assert_close(at_base, cotangent @ series)
    torch.testing.assert_close(at_weight, z.T @ (cotangent @ series))


def test_a_backward_solve_that_runs_away_leaves_the_gradient_that_came_in():
    """The residual after one step is a hundred times the first: what lies below gets neither that nor its mixture."""
    base = torch.ones(1, 4, dtype=torch.float64, requires_grad=True)
    cotangent = torch.tensor([[1.0, -2.0, 0.5, 3.0]], dtype=torch.float64)
    turn = 100 * torch.eye(4, dtype=torch.float64).roll(1, 0)
    image = differentiate_once(lambda base, z: base + z @ turn, base, torch.zeros_like(base), Anderson(steps=2))
    image.backward(cotangent)
    torch.testing.assert_close(base.grad, cotangent)


def test_two_backward_passes_on_one_graph_are_two_times_one():
    """A last step belongs to its own pass."""
    found = []
    for passes in (1, 2):
        model, batch = connect(tiny("bert"), Connection()), tokens()
        loss = model(**batch, labels=LABELS).loss
        for number in range(passes):
            loss.backward(retain_graph=number < passes - 1)
        found.append([weight.grad for weight in model.parameters() if weight.grad is not None])
    for once, twice in zip(*found, strict=True):
        torch.testing.assert_close(twice, 2 * once)


@pytest.mark.parametrize("order", [1, 2])
def test_a_graph_that_is_not_differentiated_is_let_go(order):
    """What backward needs must not hold itself alive: no collector of garbage would find it. A tanh saves what it
    returns."""
    model, batch = connect(tiny("bert", hidden_act="tanh"), Connection(gradient=Implicit(order=order))), tokens()
    seen = []

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if output.requires_grad:
            seen.append(weakref.ref(output))

    model.base_model.encoder.layer[1].intermediate.register_forward_hook(keep)
    output = model(**batch)
    assert any(reference() is not None for reference in seen)
    del output
    assert all(reference() is None for reference in seen)


@pytest.mark.parametrize(
    "weight", ["bert.embeddings.word_embeddings", "bert.encoder.layer.0.output.dense", "classifier"]
)
def test_a_second_derivative_by_some_weights_alone_is_refused_too(weight):
    """By what lies below the layers, in them and above them: Hessian-vector products are made this way."""
    model = connect(tiny("bert", num_hidden_layers=1, attn_implementation="eager"), Connection())
    weights = [*model.parameters()]
    found = torch.autograd.grad(model(**tokens(), labels=LABELS).loss, weights, create_graph=True, allow_unused=True)
    size = sum(gradient.square().sum() for gradient in found if gradient is not None)
    with pytest.raises(UnshakenError, match="order=2"):
        torch.autograd.grad(size, model.get_submodule(weight).weight)


@pytest.mark.parametrize("for_words", [False, True])
@pytest.mark.parametrize(
    "connection",
    [
        *CONNECTIONS.values(),
        *(Connection(gradient=mode) for mode in (Unrolled(), Phantom(steps=2), Implicit(order=2))),
        Connection(solver=Anderson(steps=30, tolerance=1e-4), gradient=Implicit(solver=Broyden(steps=4))),
        Connection(where="sublayers", learn_step=True),
    ],
    ids=str,
)
def test_gradients_of_texts_alone_add_up_to_those_of_their_batch(connection: Connection, for_words: bool) -> None:
    """As small batches do that are accumulated: without padding, and with losses that are smaller by their share."""
    batch, found = tokens(), []
    alone = [slice(row, row + 1) for row in range(len(LABELS))]
    for parts in ([slice(None)], alone):
        model = connect(tiny("bert").double(), connection)
        for rows in parts:
            width = int(batch["attention_mask"][rows].sum(1).max())
            texts = {name: values[rows, :width] for name, values in batch.items()}
            with word_gradients() if for_words else contextlib.nullcontext():
                loss = model(**texts, labels=LABELS[rows]).loss
            (loss / len(parts)).backward()
        found.append({name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None})
    torch.testing.assert_close(found[1], found[0], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("form", ["layer", "increment"])
def test_a_scaled_loss_has_scaled_gradients_in_half_precision(form: str) -> None:
    """By differences of products too, which must reach as far as the rounding of a large gradient."""
    found = []
    for scale in (1, 2**16):
        model = connect(tiny("bert"), Connection(form=form, gradient=Implicit(solver=NewtonKrylov())))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(**tokens(), labels=LABELS).loss
        (loss * scale).backward()
        gradients = [weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]
        found.append(torch.cat(gradients) / scale)
    assert (found[1] - found[0]).norm() < 2e-2 * found[0].norm()


def test_asking_for_a_graph_changes_no_gradient():
    weight, cotangent = linear_problem()
    found = []
    for create_graph in (False, True):
        base = torch.ones(1, 4, dtype=torch.float64, requires_grad=True)
        image = differentiate_once(lambda base, z: base + z @ weight, base, torch.ones_like(base), Anderson(steps=3))
        found += torch.autograd.grad(image, base, cotangent, create_graph=create_graph)
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize(("options", "evaluations"), [({}, 2), ({"order": 2}, 3), ({"order": 3}, 4)])
def test_a_derivative_more_costs_an_evaluation_more(options, evaluations):
    """Each of them is a Newton step: z = 1 + w z is solved by the first, wherever it starts."""
    calls, weight = 0, torch.full((1,), 0.5, dtype=torch.float64, requires_grad=True)

    def g(z: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return weight * z + 1

    z = torch.full((1, 1), 2.0, dtype=torch.float64)
    differentiate_repeatedly(g, z, Anderson(steps=20, tolerance=1e-12), **options)
    assert calls == evaluations


def test_a_second_derivative_of_order_one_is_refused_and_of_order_two_is_exact():
    def gradient(weight: Tensor, order: int, solver: Solver, has_input: bool = False) -> Tensor:
        z = torch.full((1, 1), 2.0, dtype=torch.float64)
        base = torch.ones(1, 1, dtype=torch.float64, requires_grad=has_input)
        if order == 1:
            value = differentiate_once(lambda base, z: weight * z + base, base, z, solver)
        else:
            value = differentiate_repeatedly(lambda z: weight * z + base, z, solver, order)
        return torch.autograd.grad(value.sum(), base if has_input else weight, create_graph=True)[0]

    weight = torch.full((1,), 0.5, dtype=torch.float64, requires_grad=True)
    exact = Anderson(steps=20, tolerance=1e-12)
    for solver in (exact, Anderson(steps=3)):
        for has_input in (False, True):
            with pytest.raises(UnshakenError, match="order=2"):
                gradient(weight, 1, solver, has_input).sum().backward()
    (second,) = torch.autograd.grad(gradient(weight, 2, exact), weight)
    torch.testing.assert_close(second, torch.full_like(second, 16.0))  # 2 / (1 - w)^3
