"""What a run costs: counted by torch, counted by the paper, and estimated before it is spent."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import BertConfig, BertForSequenceClassification

from unshaken import Connection, Victim, connect
from unshaken.attacks import PWWS, Genetic, Greedy, SearchAttack, TextFooler
from unshaken.connections import GRADIENTS, Detached, Implicit, Phantom, Unrolled
from unshaken.connections.cost import connection_cost
from unshaken.connections.gradients import Gradient
from unshaken.evaluation.outlook import queries_to_the_end
from unshaken.examples import Example, Examples
from unshaken.solvers import SOLVERS, Anderson, Broyden, FixedPoint, GradientDescent, NewtonKrylov, Solver
from unshaken.substitutions import Dictionary
from unshaken_experiments.cost import cost_factors
from unshaken_experiments.flops import count_gflops, count_parameters, counted_flops
from unshaken_experiments.runs import Run, make_settings
from unshaken_experiments.schedule import Job, expected_cost, merge

LAYERS, HIDDEN, INNER, TOKENS = 4, 128, 512, 128
FEW = 8  # tokens with which attention weighs little: its products cost twice an evaluation


def bert() -> BertForSequenceClassification:
    config = BertConfig(
        vocab_size=50,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        intermediate_size=INNER,
        max_position_embeddings=256,
    )
    return BertForSequenceClassification(config)


def test_plain_flops_follow_the_formula() -> None:
    linear = 2 * TOKENS * (4 * HIDDEN**2 + 2 * HIDDEN * INNER)
    attention = 2 * 2 * TOKENS**2 * HIDDEN
    head = 2 * (HIDDEN**2 + 2 * HIDDEN)
    assert count_gflops(bert())["gflops"] == pytest.approx((LAYERS * (linear + attention) + head) / 1e9, abs=1e-3)


def test_the_paper_leaves_out_the_descents_backward_passes() -> None:
    plain = count_gflops(bert())["gflops"]
    found = count_gflops(connect(bert(), Connection.im_bert(solver=GradientDescent(steps=5))))
    assert found["counted_gflops"] == pytest.approx(6 * plain, rel=0.05)  # IM-BERT, Table 6: T + 1
    # T evaluations and T products more, and a look at the end
    assert found["gflops"] == pytest.approx(12 * plain, rel=0.1)
    some = count_gflops(connect(bert(), Connection.im_bert(layers="1-2", solver=GradientDescent(steps=5))))
    assert some["counted_gflops"] == pytest.approx((1 + 5 / 2) * plain, rel=0.05)


def test_an_explicit_connection_costs_nothing() -> None:
    plain = count_gflops(bert())
    assert count_gflops(connect(bert(), Connection.ex_bert())) == plain


@pytest.mark.parametrize(
    ("settings", "training", "inference"),
    [
        ({}, 1, 1),
        ({"defence": "freelb"}, 3, 1),
        ({"connection": "im-bert"}, 14 / 3, 12),
        ({"connection": "im-bert", "layers": "1-2"}, 1 + (14 / 3 - 1) / 2, 6.5),
        ({"connection": "im-bert", "gradient": "unrolled"}, 11 + 1 / 3, 12),
        ({"connection": "im-bert", "gradient": "phantom"}, 5, 13),  # the descent starts and ends with an evaluation
        ({"connection": "implicit", "solver": "anderson:steps=3"}, 8 / 3, 4),
        ({"connection": "implicit", "solver": "anderson:steps=3", "gradient": "phantom"}, 2, 4),
        ({"connection": "ex-bert"}, 1, 1),
    ],
)
def test_cost_before_it_is_spent(settings: dict[str, str], training: float, inference: float) -> None:
    assert cost_factors(make_settings("x", {"task": "sst2", **settings}), LAYERS) == pytest.approx(
        (training, inference)
    )


@pytest.mark.parametrize("attack", [PWWS, Genetic, Greedy, TextFooler], ids=lambda attack: attack.name)
def test_queries_before_they_are_spent(attack: type[SearchAttack]) -> None:
    """A search that finds nothing asks as often as planned, or less where it gives up."""
    words = Dictionary(entries={f"w{number}": [f"a{number}", f"b{number}", f"c{number}"] for number in range(6)})
    steady = Victim.from_callable(lambda texts: [[0.9, 0.1] for _ in texts], 2, name="steady")
    examples = Examples(rows=(Example(id="1", texts=(" ".join(f"w{number}" for number in range(6)),), label=0),))
    sizes = {"population": 5, "generations": 3} if attack is Genetic else {}
    search = attack(substitutions=words, constraints=(), **sizes)
    planned = queries_to_the_end(search, words=6, choices=18)
    asked = search(steady, examples)[0].queries
    assert asked <= planned
    if attack in (PWWS, Genetic):
        assert asked == planned


@pytest.mark.parametrize(
    "connection",
    [
        *(Connection(gradient=Implicit(order=2)), Connection(gradient=Phantom(steps=3))),
        Connection(layers="1-2", solver=NewtonKrylov(steps=2, krylov=3)),
        *(Connection(gradient=mode, theta=theta) for mode in (Unrolled(), Detached()) for theta in (1, 0.5)),
    ],
)
def test_inference_of_any_connection_agrees_with_counted_flops(connection: Connection) -> None:
    plain, solved = (count_gflops(model)["gflops"] for model in (bert(), connect(bert(), connection)))
    assert connection_cost(connection, {"encoder": LAYERS})[1] == pytest.approx(solved / plain, rel=0.01)


@pytest.mark.parametrize("mode", [kind() for kind in GRADIENTS.values()], ids=str)
@pytest.mark.parametrize("solver", [kind(steps=n) for kind in SOLVERS.values() for n in (0, 1, 3)], ids=str)
def test_inference_is_what_is_called(solver: Solver, mode: Gradient, monkeypatch: pytest.MonkeyPatch) -> None:
    model, calls = connect(bert(), Connection(layers="2", solver=solver, gradient=mode)).eval(), 0

    def counted(*_: Any) -> None:
        nonlocal calls
        calls += 1

    def product(*args: Any, **options: Any) -> Any:
        counted()
        return grad(*args, **options)

    grad = torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", product)
    model.bert.encoder.layer[1].attention.register_forward_hook(counted)
    with torch.no_grad():
        model(input_ids=torch.full((1, FEW), 5))
    cost = connection_cost(Connection(solver=solver, gradient=mode), {"encoder": 1})
    assert cost[1] == calls


def test_inference_factors_agree_with_counted_flops() -> None:
    plain = count_gflops(bert())["gflops"]
    solved = count_gflops(connect(bert(), Connection(form="layer", solver=Anderson(steps=3))))["gflops"]
    settings = make_settings("x", {"task": "sst2", "connection": "implicit", "solver": "anderson:steps=3"})
    assert solved / plain == pytest.approx(cost_factors(settings, LAYERS)[1], rel=0.1)


def step(model: BertForSequenceClassification, tokens: int) -> int:
    ids = torch.full((1, tokens), 5)
    with sdpa_kernel(SDPBackend.MATH), counted_flops() as counter:
        model.train()(input_ids=ids).logits.sum().backward()
    return int(counter.total)


@cache
def plain_step() -> int:
    return step(bert(), FEW)


@pytest.mark.parametrize(
    "connection",
    [
        *(Connection.im_bert(), Connection.im_bert("1-2"), Connection.im_bert(gradient=Unrolled())),
        *(Connection(), Connection(form="increment"), Connection(gradient=Phantom()), Connection(gradient=Unrolled())),
        *(Connection(gradient=Implicit(solver=solver)) for solver in (Anderson(steps=5), FixedPoint(steps=2))),
        *(Connection(gradient=Implicit(order=2)), Connection(layers="1-2", gradient=Implicit(order=3))),
        Connection(form="increment", gradient=Implicit(solver=Broyden(steps=4), order=2)),
        *(Connection(gradient=Phantom(steps=3)), Connection(solver=NewtonKrylov(steps=2, krylov=3))),
        *(Connection(gradient=Detached(), theta=0.5), Connection.im_bert(theta=0.5, gradient=Phantom())),
        *(Connection.crank_nicolson(), Connection.im_bert(theta=0.5), Connection(layers="2", where="sublayers")),
        *(Connection.ex_bert(), Connection.runge_kutta(order=2), Connection.runge_kutta("1-3", order=4)),
    ],
)
def test_training_factors_agree_with_counted_flops(connection: Connection) -> None:
    expected = step(connect(bert(), connection), FEW) / plain_step()
    # Left out: the two operands of an attention's product, and that a phantom's first input needs no gradient.
    off = 0.05 if isinstance(connection.gradient_mode, Phantom) else 0.015
    assert connection_cost(connection, {"encoder": LAYERS})[0] == pytest.approx(expected, rel=off)


def test_second_derivatives_are_counted_by_hand() -> None:
    """Anderson, three steps both ways; all in evaluations of a layer, of which a plain step makes three."""
    solve, backward_solve, to_weights, image, graph_of_products, newton_step = 3, 3, 2, 1, 1, 1
    exact = solve + image + graph_of_products + newton_step + 2 * (backward_solve + to_weights)
    for layers, share in (("all", 1), ("1-2", 1 / 2)):
        twice = Connection(layers=layers, gradient=Implicit(order=2))
        found = connection_cost(twice, {"encoder": LAYERS})
        assert found == pytest.approx((1 + share * (exact / 3 - 1), 1 + share * (solve + image - 1)))
    once = Connection(gradient=Implicit(solver=FixedPoint(steps=3)))  # which cannot leave its last product to the pass
    assert connection_cost(once, {"encoder": LAYERS})[0] * 3 == solve + image + backward_solve + to_weights


def test_training_factors_agree_where_attention_weighs_more() -> None:
    expected = step(connect(bert(), Connection()), 2 * TOKENS) / step(bert(), 2 * TOKENS)
    assert connection_cost(Connection(), {"encoder": LAYERS})[0] == pytest.approx(expected, rel=0.13)


def test_a_plan_expects_rows_times_epochs_times_tokens_times_passes_and_has_the_longest_of_a_seed_first() -> None:
    def run(seed: int = 0, **settings: Any) -> Run:
        return Run(encoder="e", seed=seed, settings=make_settings("a test", {"task": "sst2", **settings}))

    small: dict[str, Any] = {"rows": 100, "epochs": 2.0, "max_length": 16}
    plain = 100 * 2 * 16
    assert expected_cost(run(**small)) == plain
    assert expected_cost(run(**small, defence="swap:variants=2")) == pytest.approx(plain * (4 + 2 + 2) / 3)
    solved = run(**small, connection="im-bert", solver="fixed-point:steps=7")
    assert expected_cost(solved) == plain * (1 + 7)
    assert expected_cost(run(**small, connection="ex-bert")) == plain  # there is nothing to solve
    whole = run(epochs=2.0, max_length=16)
    assert expected_cost(whole) == 50_000 * 2 * 16  # of a task of unknown size
    ordered = [whole, solved, run(**small), run(1, **small, connection="im-bert"), run(1, **small)]
    assert [job.run for job in merge(Job(run=one, measures=()) for one in ordered[::-1])] == ordered


def test_parameters_are_counted_and_a_connection_adds_none_but_learned_steps() -> None:
    layer = 4 * (HIDDEN**2 + HIDDEN) + 2 * HIDDEN * INNER + INNER + HIDDEN + 2 * 2 * HIDDEN
    embeddings = (bert().config.vocab_size + 256 + 2) * HIDDEN + 2 * HIDDEN
    head = HIDDEN**2 + HIDDEN + 2 * HIDDEN + 2
    exact = (embeddings + LAYERS * layer + head) / 1e6
    assert count_parameters(bert()) == pytest.approx(exact, abs=5e-4)
    assert count_parameters(connect(bert(), Connection.im_bert())) == count_parameters(bert())
