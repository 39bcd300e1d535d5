"""What the guard does with a loss or a gradient that is not finite, and what it says of them."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from unshaken import UnshakenError
from unshaken.training.nonfinite import FiniteGuard, SolveWatch, finite_gradients, first_nonfinite_module


def fake_trainer(model: nn.Module | None = None, **changes: Any) -> Any:
    """What the guard asks of a trainer, at the first step."""
    arguments = SimpleNamespace(on_nonfinite="skip", world_size=1, process_index=0, device=torch.device("cpu"))
    logs: list[dict[str, float]] = []
    parts = {
        "model": nn.Linear(2, 2) if model is None else model,
        "args": arguments,
        "state": SimpleNamespace(global_step=0),
        "accelerator": SimpleNamespace(scaler=None),
        "is_fsdp_enabled": False,
        "logs": logs,
        "log": logs.append,
    }
    return SimpleNamespace(**{**parts, **changes})


def lost_in(guard: FiniteGuard, steps: list[int]) -> list[int]:
    """How many are lost in a row after each loss."""
    found = []
    for step in steps:
        guard.trainer.state.global_step = step - 1
        guard._stop_or_say("lost")
        found.append(guard.lost_in_a_row)
    return found


def test_batches_lost_in_a_row_are_counted_and_a_step_between_counts_anew(caplog):
    assert lost_in(FiniteGuard(fake_trainer()), [1, 2, 2, 3, 5, 6, 9]) == [1, 2, 3, 4, 1, 2, 1]
    assert lost_in(FiniteGuard(fake_trainer()), [4, 5]) == [1, 2]
    assert [record.message for record in caplog.records][-1] == "step 5: lost; the batch is left out"


def test_fifty_batches_in_a_row_may_be_left_out_and_no_more():
    guard = FiniteGuard(fake_trainer())
    assert lost_in(guard, list(range(1, 51)))[-1] == 50
    assert guard.trainer.logs == [{"skipped_nonfinite": 1.0}] * 50
    with pytest.raises(UnshakenError, match="step 51: lost; 50 batches in a row were left out: training is lost"):
        lost_in(guard, [51])
    guard = FiniteGuard(fake_trainer())
    guard.trainer.args.on_nonfinite = "stop"
    with pytest.raises(UnshakenError, match="step 1: lost; lower the learning rate"):
        lost_in(guard, [1])


def test_of_several_processes_each_says_which_it_is(caplog):
    trainer = fake_trainer()
    for trainer.args.world_size, trainer.args.process_index in ((1, 0), (2, 1)):
        FiniteGuard(trainer).warn("lost")
        FiniteGuard(trainer).warn("lost before", 7)
    said = ["step 1: lost", "step 7: lost before"]
    assert [record.message for record in caplog.records] == [*said, *(f"process 1, {line}" for line in said)]


@pytest.mark.parametrize("weight", [1.0, math.nan, math.inf, -math.inf])
def test_a_lost_batch_is_trained_on_as_zero_with_a_gradient_of_zero(weight, monkeypatch):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    with torch.no_grad():
        model[1].bias.fill_(weight)
    step = SimpleNamespace(core=model, inputs={"input": torch.ones(1, 2)})
    loss = FiniteGuard(fake_trainer(model)).lost_loss({"task": torch.tensor(math.nan)}, torch.tensor(math.nan), step)
    assert loss.item() == 0
    loss.backward()
    assert all(torch.equal(each.grad, torch.zeros_like(each)) for each in model.parameters())


@pytest.mark.parametrize("sharded", [False, True])
def test_what_is_lost_is_said_with_parts_solve_and_layer(sharded, monkeypatch, caplog):
    """Shards look at no layer, for which all would have to pass, and go backward through the loss as it is."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    with torch.no_grad():
        model[1].weight.fill_(1e30)
        model[0].weight.fill_(1e30)
    records = {
        layer: SimpleNamespace(worst_residual=value) for layer, value in ((1, 0.5), (2, math.inf), (3, math.nan))
    }
    monkeypatch.setattr("unshaken.training.nonfinite.solve_records", lambda model: records)
    parts, loss = {"task": torch.tensor(0.5), "extra": torch.tensor(math.nan)}, torch.tensor(math.nan)
    step = SimpleNamespace(core=model, inputs={"input": torch.full((1, 2), 1e-5)})
    found = FiniteGuard(fake_trainer(model, is_fsdp_enabled=sharded)).lost_loss(parts, loss, step)
    where = "task = 0.5, extra = nan; the implicit solve of layer 2 gave no finite residual"
    where += "" if sharded else "; numbers are lost in 1"
    assert caplog.messages == [f"step 1: the loss is not finite ({where}); the batch is left out"]
    assert (found is loss) == sharded


def test_the_first_module_whose_output_is_lost_is_named():
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1), nn.Linear(1, 1))
    for layer in model:
        nn.init.constant_(layer.weight, 1e20)
        nn.init.zeros_(layer.bias)
    assert first_nonfinite_module(model, {"input": torch.ones(1, 1)}) == "numbers are lost in 1"
    assert first_nonfinite_module(model, {"input": torch.zeros(1, 1)}) == "a pass on the text as it is stays finite"
    nn.init.constant_(model[2].bias, math.inf)
    assert first_nonfinite_module(model, {"input": torch.zeros(1, 1)}) == "the weight 2.bias is not finite"
    assert not any(layer._forward_hooks for layer in model)


def test_the_gradient_that_was_lost_first_is_named_and_the_optimizer_gets_none(caplog):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    named = list(model.named_parameters())
    guard = FiniteGuard(fake_trainer(model))

    def with_gradients(*lost: str) -> None:
        for name, parameter in named:
            parameter.grad = torch.full_like(parameter, math.nan if name in lost else 1.0)
        guard.check_gradients(named)

    with_gradients()
    assert all(parameter.grad is not None for _, parameter in named)
    assert guard.trainer.logs == []
    with_gradients("0.bias", "1.weight")  # backward came to 1.weight first
    where = "the gradient is not finite, first at 1.weight (2 of 6 weights)"
    assert caplog.messages == [f"step 1: {where}; the batch is left out"]
    assert all(parameter.grad is None for _, parameter in named)
    assert guard.trainer.logs == [{"skipped_nonfinite": 1.0}]


def test_a_gradient_that_one_process_lost_is_lost_for_all(caplog):
    """Averaged over two processes, the flag of what one of them lost is a half."""
    model = nn.Linear(2, 2)
    shared = SimpleNamespace(scaler=None, reduce=lambda flags, reduction: flags * torch.tensor([1.0, 0.5]))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    guard = FiniteGuard(fake_trainer(model, is_fsdp_enabled=True, accelerator=shared))
    guard.check_gradients(list(model.named_parameters()))
    assert "first at bias (1 of 2 weights)" in caplog.text
    assert model.weight.grad is None


@pytest.mark.parametrize(("scale", "said"), [(1.5, {"overflowed": 1.0}), (1.0, {"skipped_nonfinite": 1.0})])
def test_the_scaler_of_float16_sees_the_gradients_either_way(scale, said, caplog):
    model = nn.Linear(1, 1)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, math.inf)
    scaler = SimpleNamespace(get_scale=lambda: scale)
    guard = FiniteGuard(fake_trainer(model, accelerator=SimpleNamespace(scaler=scaler)))
    guard.check_gradients(list(model.named_parameters()))
    assert guard.trainer.logs == [said]
    assert all(parameter.grad.isinf().all() for parameter in model.parameters())  # it leaves the step out by itself


def test_a_gradient_is_looked_at_where_there_is_one():
    one, none, empty = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(0))
    for value, flag in ((1.0, 1), (math.inf, 0)):
        one.grad, empty.grad = torch.tensor([0.0, value]), torch.zeros(0)
        assert finite_gradients([one]).tolist() == [flag]
        assert finite_gradients([none, one]).tolist() == [1, flag]
        assert finite_gradients([empty, one, none]).tolist() == [1, flag, 1]
    assert finite_gradients([]).tolist() == []


def test_solves_that_diverge_are_counted_between_logs_and_told_once(monkeypatch):
    watch = SolveWatch()

    def look(step: int, **diverged: list[bool]) -> None:
        records = {layer: SimpleNamespace(diverged=torch.tensor(value)) for layer, value in diverged.items()}
        monkeypatch.setattr("unshaken.training.nonfinite.solve_records", lambda model: records)
        watch.look(nn.Linear(1, 1), step)

    look(1, a=[False, False], b=[False, False])
    look(2, a=[True, True], b=[False, False])  # of several texts: one step
    look(3, a=[False, True], b=[False, False])
    assert (watch.counts(), watch.news()) == ({"a": 2}, {"a": 2})
    assert (watch.counts(), watch.news()) == ({}, {})
    look(4, a=[True, False], b=[False, False])
    look(5, a=[False, False], b=[True, False])
    assert (watch.counts(), watch.news()) == ({"a": 1, "b": 1}, {"b": 5})
