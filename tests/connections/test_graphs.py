"""Passes as CUDA graphs: the same values and gradients, and everything else eagerly."""

from __future__ import annotations

import copy
import inspect
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from models import tiny, tokens
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from unshaken import Connection, connect
from unshaken.connections import captured, graphs
from unshaken.connections.graphs import Awaited, Captured, Pass, can_be_held, first_cause
from unshaken.precision import full_products
from unshaken.solvers import Anderson
from unshaken.solvers.base import looking_later
from unshaken.word_gradients import word_gradients

LABELS = torch.tensor([0, 1, 0])
on_gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def connected(**settings: Any) -> Any:
    return connect(tiny("bert"), Connection(solver=Anderson(steps=3), **settings))


def autocast(dtype: torch.dtype | None) -> Any:
    return torch.autocast("cuda", dtype=dtype, enabled=dtype is not None)


def gradients(model: Any) -> list[Tensor]:
    return [weight.grad.clone() for weight in model.parameters() if weight.grad is not None]


def test_on_a_cpu_nothing_changes():
    model, batch = connected(), tokens()
    expected = model(**batch).logits
    with captured(model) as runner:
        assert torch.equal(model(**batch).logits, expected)
        assert "input_ids" in inspect.signature(model.forward).parameters
    assert (runner.replays, runner.eager) == (0, 1)
    assert "forward" not in vars(model)


def test_a_forward_that_was_wrapped_before_is_there_again_after():
    """Mixed precision wraps a model's forward, and the wrapper must outlive the graphs."""
    model, batch = connected(), tokens()
    own, calls = model.forward, []

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return own(*args, **kwargs)

    model.forward = wrapper
    runner = Captured(model)
    for _ in range(2):
        with runner.standing_in():
            model(**batch)
        assert model.forward is wrapper
    assert len(calls) == runner.eager == 2


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_pass_reads_no_cast_of_weights_that_autocast_keeps_and_leaves_none(wrapped: bool) -> None:
    """They are freed when autocast is left: on a GPU a graph that read them was an illegal access."""
    model, batch = connected(), tokens()
    forward = model.forward
    if wrapped:  # as mixed precision does it: the pass enters autocast itself, inside another one
        forward = torch.autocast("cpu", dtype=torch.bfloat16)(forward)
    once = Pass(model, forward, tuple(batch), None if wrapped else torch.bfloat16)

    def double_the_weights() -> None:
        with torch.no_grad():
            for layer in model.bert.encoder.layer:
                layer.output.dense.weight.mul_(2)

    double_the_weights()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = model(**batch).logits
    with torch.no_grad():
        for layer in model.bert.encoder.layer:
            layer.output.dense.weight.div_(2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        first = model(**batch).logits  # keeps casts of the weights as they are now
        double_the_weights()
        assert torch.equal(model(**batch).logits, first)  # and uses them, which is what a graph must not do
        diverged, *outputs = once(*batch.values())
        assert torch.equal(once.packed(tuple(outputs)).logits, expected)
        assert not diverged
        torch.clear_autocast_cache()
        once(*batch.values())
        double_the_weights()
        assert not torch.equal(model(**batch).logits, expected)


def test_a_graph_of_faster_products_does_not_answer_for_full_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, batch = Captured(connected()), tokens()
    monkeypatch.setattr(Captured, "_new_graph", lambda *_: object())
    torch.set_float32_matmul_precision("high")
    try:
        assert runner._graph(batch) is None  # the first pass of a kind is run
        faster = runner._graph(batch)
        with full_products():
            assert runner._graph(batch) is None
            full = runner._graph(batch)
            assert full is runner._graph(batch)
        assert runner._graph(batch) is faster
        assert full is not faster
        assert full is not None
    finally:
        torch.set_float32_matmul_precision("highest")


def test_passes_of_tensors_on_a_gpu_without_gradients_are_held_by_a_graph():
    """Tensors that say of themselves to lie on a GPU need none."""
    with FakeTensorMode():
        ids, embedded = torch.zeros(3, 16, device="cuda", dtype=torch.long), torch.zeros(3, 16, 8, device="cuda")
    runner = Captured(connected())
    assert runner.can_capture({"input_ids": ids, "token_type_ids": None})
    assert runner.can_capture({"inputs_embeds": embedded})
    assert not runner.can_capture({"inputs_embeds": embedded.requires_grad_()})
    assert not runner.can_capture({"input_ids": ids, "return_dict": True})
    assert not runner.can_capture({"input_ids": ids, "attention_mask": tokens()["attention_mask"]})
    assert not runner.can_capture({"input_ids": None})


def test_what_hooks_look_into_is_not_held_by_a_graph():
    model = connected()
    hook = model.bert.encoder.layer[0].register_forward_hook(lambda *_: None)
    assert not can_be_held(model)
    hook.remove()
    assert can_be_held(model)


def test_texts_are_padded_to_a_bucket_which_changes_no_prediction():
    model, batch = connected().double(), tokens()
    with captured(model) as runner:  # to a multiple of 16, as the docs say
        padded = runner._padded({**batch, "labels": LABELS})
        assert padded["input_ids"].shape == padded["attention_mask"].shape == (3, 16)
        assert padded["labels"] is LABELS
        assert (padded["input_ids"][:, 9:] == model.config.pad_token_id).all()
        assert runner._padded(tokens(length=15))["input_ids"].shape == (3, 16)
        with torch.no_grad():
            torch.testing.assert_close(model(**padded).logits, model(**batch).logits, rtol=0, atol=1e-9)
        assert runner._padded({"input_ids": batch["input_ids"]})["input_ids"].shape == (3, 9)  # nothing hides padding
    assert Captured(model)._padded(tokens(length=17))["input_ids"].shape == (3, 32)
    model.config.max_position_embeddings = 12
    with captured(model, bucket=16) as runner:
        assert runner._padded(batch)["input_ids"].shape == (3, 12)


class Kept:
    """In place of a graph, where there is no GPU: a pass that runs as it is."""

    def __init__(self, made: Pass) -> None:
        self.made = made

    def __call__(self, inputs: dict[str, Tensor]) -> Any:
        diverged, *outputs = self.made(*inputs.values())
        return None if bool(diverged) else self.made.packed(tuple(outputs))


class WithoutGPU(Captured):
    """All that is decided about graphs, with passes for graphs."""

    fails = 0

    def can_capture(self, kwargs: dict[str, Any]) -> bool:
        return True

    def _new_graph(self, inputs: dict[str, Tensor], trains: bool) -> Any:
        if self.fails:
            self.fails += 1
            raise RuntimeError("the pass waits for the device")
        return Kept(Pass(self.model, self.forward, tuple(inputs), None))


def test_a_shape_is_kept_when_it_comes_the_second_time_and_no_more_than_the_limit() -> None:
    model, lengths = connected(), (16, 32, 48)
    expected = [model(**tokens(length=length)).logits for length in lengths]
    runner = WithoutGPU(model, limit=2)
    with runner.standing_in():
        for number in range(3):
            for length, logits in zip(lengths, expected, strict=True):
                found = model(**tokens(length=length), token_type_ids=None).logits  # what is None is left out
                torch.testing.assert_close(found, logits)
            assert (runner.replays, runner.eager) == ((0, 3), (2, 4), (4, 5))[number]


@pytest.mark.parametrize("by_default", [captured, Captured])
def test_as_many_shapes_are_kept_as_the_docs_say(by_default: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "connections.md").read_text(encoding="utf-8")
    (most,) = map(int, re.findall(r"at most (\d+) shapes", page))
    monkeypatch.setattr(graphs, "Captured", WithoutGPU)
    model = tiny("bert", num_hidden_layers=1)
    with captured(model) if by_default is captured else WithoutGPU(model).standing_in() as runner, torch.no_grad():
        for size in range(1, most + 2):
            for _ in range(2):
                model(input_ids=torch.full((size, 16), 7))
    assert (runner.replays, runner.eager) == (most, most + 2)


def test_arguments_without_a_name_are_not_held_by_a_graph() -> None:
    model, batch = connected(), tokens(length=16)
    runner = WithoutGPU(model)
    with runner.standing_in():
        for _ in range(3):
            model(batch["input_ids"], attention_mask=batch["attention_mask"])
    assert (runner.replays, runner.eager) == (0, 3)


def test_a_pass_that_cannot_be_captured_is_tried_once_and_run_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    model, batch = connected(), tokens(length=16)
    runner = WithoutGPU(model)
    runner.fails = 1
    with runner.standing_in():
        for _ in range(4):
            model(**batch)
    assert runner.fails == 2
    assert (runner.replays, runner.eager) == (0, 4)
    assert [record.getMessage() for record in caplog.records] == [
        "no CUDA graph for this pass, which runs eagerly: the pass waits for the device"
    ]


def test_graphs_are_told_apart_by_all_that_changes_a_pass() -> None:
    model, batch = connected(), tokens(length=16)
    runner = WithoutGPU(model)

    def run(**more: Tensor) -> int:
        before = runner.replays
        model(**batch, **more)
        return runner.replays - before

    with runner.standing_in():
        assert [run(), run(), run()] == [0, 1, 1]
        with torch.no_grad():
            assert [run(), run()] == [0, 1]
        model.train()
        assert [run(), run()] == [0, 1]
        with word_gradients():
            assert [run(), run()] == [0, 1]
        assert [run(labels=LABELS), run(labels=LABELS)] == [0, 1]
        model.classifier.weight.requires_grad_(False)
        assert [run(), run()] == [0, 1]


def test_a_pass_is_awaited_until_its_backward_has_run_or_never_can():
    weight = torch.nn.Parameter(torch.ones(2))
    model = torch.nn.ParameterList([weight])
    awaited = Awaited(model)

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return 2 * x

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return 2 * gradient

    def run() -> Tensor:
        output: Tensor = Twice.apply(weight)
        awaited.watch(output.grad_fn)
        return output.sum()  # the output itself is gone, its node is not

    loss = run()
    assert awaited
    loss.backward()
    assert not awaited
    loss = run()
    assert awaited
    del loss
    assert not awaited


def test_gradients_that_a_replay_would_write_over_are_copied_first():
    """Two backward passes into the same memory add up, as they do without a graph."""
    weight = torch.nn.Parameter(torch.ones(2))
    awaited, memory = Awaited(torch.nn.ParameterList([weight])), torch.zeros(2)

    class Replay(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
            ctx.factor = factor
            return x * factor

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Any:
            memory.copy_(gradient * ctx.factor)
            return memory.detach(), None

    for factor in (2.0, 3.0):
        output = Replay.apply(weight, factor)
        awaited.watch(output.grad_fn)
        output.sum().backward()
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, torch.full((2,), 5.0))


class TestOnAGPU:
    pytestmark = on_gpu

    @pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.float16])
    @pytest.mark.parametrize("connection", [None, Connection(), Connection(form="increment"), Connection.ex_bert()])
    def test_replays_give_what_eager_passes_give(self, connection: Connection | None, dtype: Any) -> None:
        model = tiny("bert").cuda()
        if connection is not None:
            connect(model, connection)
        batches = [{name: value.cuda() for name, value in tokens(seed=seed).items()} for seed in range(4)]
        expected, found = [], []
        for batch in batches:  # autocast is left after every pass, and its casts are freed
            with torch.no_grad(), autocast(dtype):
                expected.append(model(**batch).logits)
        with captured(model) as runner:
            for batch in batches:
                with torch.no_grad(), autocast(dtype):
                    found.append(model(**batch).logits)
                torch.randn(1000, 1000, device="cuda")  # writes to whatever is free by now
        assert runner.replays == 3
        near = {"rtol": 1e-4, "atol": 1e-5} if dtype is None else {"rtol": 0.05, "atol": 0.05}
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs, **near)

    @pytest.mark.parametrize("dtype", [None, torch.bfloat16])
    def test_graphs_of_several_shapes_share_memory_and_see_weights_that_are_trained(self, dtype: Any) -> None:
        plain = connected().cuda()
        ours = copy.deepcopy(plain)
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.05) for model in (plain, ours)]
        batches = [{name: value.cuda() for name, value in tokens(length=length).items()} for length in (9, 20, 40)]
        with captured(ours) as runner:
            for step in range(9):
                losses = []
                for model, optimizer in zip((plain, ours), optimizers, strict=True):
                    optimizer.zero_grad()
                    with autocast(dtype):
                        loss = model(**batches[step % 3], labels=LABELS.cuda()).loss
                    loss.backward()
                    optimizer.step()
                    with torch.no_grad(), autocast(dtype):
                        answer = model(**batches[(step + 1) % 3]).logits
                    losses.append((float(loss.detach()), answer.float().cpu()))
                assert losses[1][0] == pytest.approx(losses[0][0], rel=1e-3 if dtype is None else 0.1)
                torch.testing.assert_close(losses[1][1], losses[0][1], rtol=0.1, atol=1e-2 if dtype is None else 0.2)
        assert runner.replays == 12

    @pytest.mark.parametrize("connection", [None, Connection(), Connection.im_bert(gradient="implicit")])
    @pytest.mark.parametrize("zero", [True, False])
    @pytest.mark.parametrize("dtype", [None, torch.bfloat16])
    def test_training_steps_give_the_same_gradients(
        self, connection: Connection | None, zero: bool, dtype: Any
    ) -> None:
        plain = tiny("bert").cuda()
        if connection is not None:
            connect(plain, connection)
        ours = copy.deepcopy(plain)
        labels = LABELS.cuda()
        batches = [{name: value.cuda() for name, value in tokens(seed=seed).items()} for seed in range(4)]
        with captured(ours) as runner:
            for batch in batches:
                for model in (plain, ours):
                    if zero:
                        model.zero_grad()
                    with autocast(dtype):
                        loss = model(**batch, labels=labels).loss
                    loss.backward()
                if dtype is None:
                    for a, b in zip(gradients(ours), gradients(plain), strict=True):
                        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
                else:
                    a, b = (torch.cat([part.flatten() for part in gradients(model)]) for model in (ours, plain))
                    assert torch.cosine_similarity(a, b, dim=0) > 0.95
        if connection is None or connection.solver.name == "anderson":
            assert runner.replays == 3

    @pytest.mark.parametrize("connection", [None, Connection()])
    def test_a_loop_that_still_holds_its_last_outputs_is_captured_too(self, connection: Connection | None) -> None:
        plain = tiny("bert").cuda()
        if connection is not None:
            connect(plain, connection)
        ours = copy.deepcopy(plain)
        batch = {name: value.cuda() for name, value in tokens().items()}
        with captured(ours) as runner:
            for model in (plain, ours):
                for _ in range(4):
                    model.zero_grad()
                    outputs = model(**batch, labels=LABELS.cuda())  # the leaves of the pass before live until here
                    outputs.loss.backward()
        assert runner.replays == 3
        for a, b in zip(gradients(ours), gradients(plain), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)

    def test_two_passes_before_one_backward_do_not_share_memory(self) -> None:
        plain = connected().cuda()
        ours = copy.deepcopy(plain)
        batch = {name: value.cuda() for name, value in tokens().items()}
        other = {name: value.cuda() for name, value in tokens(seed=1).items()}
        with captured(ours):
            for _ in range(3):
                for model in (plain, ours):
                    model.zero_grad()
                    (model(**batch).logits.sum() + model(**other).logits.square().sum()).backward()
                for a, b in zip(gradients(ours), gradients(plain), strict=True):
                    torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)

    def test_a_solve_makes_the_host_wait_for_nothing(self) -> None:
        model = connected().cuda()
        batch = {"input_ids": tokens()["input_ids"].cuda()}
        model(**batch).logits.sum().backward()
        torch.cuda.synchronize()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says that it may miss some
            try:
                torch.cuda.set_sync_debug_mode("error")
                with looking_later():
                    loss = model(**batch).logits.sum()
                loss.backward()
            finally:
                torch.cuda.set_sync_debug_mode("default")

    def test_dropout_is_drawn_anew_at_each_replay(self) -> None:
        model = connected().cuda().train()
        batch = {name: value.cuda() for name, value in tokens().items()}
        with captured(model) as runner:
            found = [model(**batch).logits.detach().clone() for _ in range(5)]
        assert runner.replays == 4
        assert not torch.equal(found[3], found[4])

    def test_hooks_and_gradients_at_the_inputs_run_eagerly(self) -> None:
        model = connected().cuda()
        batch = {name: value.cuda() for name, value in tokens().items()}
        words = model.get_input_embeddings()(batch["input_ids"]).detach().requires_grad_()
        with captured(model) as runner:
            for _ in range(3):
                model(inputs_embeds=words, attention_mask=batch["attention_mask"]).logits.sum().backward()
            seen = []
            model.bert.encoder.layer[0].register_forward_hook(lambda *_: seen.append(1))
            model(**batch), model(**batch)
        assert runner.replays == 0
        assert len(seen) == 2


def test_what_began_a_failure_is_told_and_not_what_it_brought_about() -> None:
    def capture() -> None:
        try:
            raise ValueError("the pass waits for the device")
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")

    with pytest.raises(RuntimeError) as failed:
        capture()
    assert str(first_cause(failed.value)) == "the pass waits for the device"
    assert first_cause(failed.value, failed.value.__context__) is failed.value  # it was there before
    assert first_cause(alone := RuntimeError("alone")) is alone
