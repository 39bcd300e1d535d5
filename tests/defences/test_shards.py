"""Weights in shards, in a group of one process: values and gradients are those of whole weights."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tiny import gradients, ready, run, tiny_model, tiny_step
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from unshaken.defences import PTWD
from unshaken.defences.shards import like, local, summed_over_processes, whole


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        yield DeviceMesh("cpu", [0])
    finally:
        torch.distributed.destroy_process_group()


def test_a_shard_and_what_shards_are_together_keep_their_gradient(mesh: DeviceMesh) -> None:
    given = torch.arange(6.0).reshape(3, 2)
    for view in (local, whole):
        for made in (given.clone().requires_grad_(), distribute_tensor(given, mesh, [Shard(0)]).requires_grad_()):
            seen = view(made)
            assert not isinstance(seen, DTensor)
            (seen.square().sum() / 2).backward()
            assert torch.equal(seen, given)
            assert torch.equal(local(made.grad), given)
    assert torch.equal(like(given, distribute_tensor(given, mesh, [Shard(0)])).to_local(), given)
    assert like(given, given) is given


def test_a_sum_over_processes_has_the_gradient_of_the_own_part(mesh: DeviceMesh) -> None:
    part = torch.tensor(3.0, requires_grad=True)
    total = summed_over_processes(part * 2)
    total.backward()
    assert (total.item(), part.grad.item()) == (6.0, 2.0)


@pytest.mark.parametrize("form", ["l2", "l2_squared"])
def test_ptwd_of_shards_is_that_of_whole_weights(mesh: DeviceMesh, form: str) -> None:
    losses, found = [], []
    for in_shards in (False, True):
        model = tiny_model()
        defence = ready(PTWD(weight=0.5, form=form), model)
        with torch.no_grad():
            torch.manual_seed(1)
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        if in_shards:
            fully_shard(model.bert.encoder, mesh=mesh, reshard_after_forward=True)  # embeddings and head stay whole
        parts, _ = run(defence, tiny_step(model))
        losses.append(parts["ptwd"])
        found.append({name: local(gradient) for name, gradient in gradients(model).items()})
    torch.testing.assert_close(losses[1], losses[0])
    torch.testing.assert_close(found[1], found[0])
