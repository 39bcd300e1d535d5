"""One look a forward pass: a pass in which a solve diverged is the pass in which every layer looks for itself."""

from __future__ import annotations

from typing import Any

import torch
from models import tiny, tokens
from torch import nn

from unshaken import Connection, connect
from unshaken.connections import solve_records
from unshaken.solvers import FixedPoint


def steep() -> Any:
    """The second of three layers throws every iterate far away."""
    model = tiny("bert")
    norm = model.base_model.encoder.layer[1].output.LayerNorm
    nn.init.constant_(norm.weight, 40.0)
    return connect(model, Connection(form="layer", solver=FixedPoint(steps=6, growth=1.01))).double()


def test_a_pass_that_diverged_is_run_again_with_guards_and_the_same_dropout():
    found = []
    for now in (False, True):
        model = steep().train()
        torch.manual_seed(3)
        forward = type(model).unshaken_plain_class.forward  # without the model's one look every layer has its own
        output = forward(model, **tokens()) if now else model(**tokens())
        after = torch.rand(3)
        records = solve_records(model)
        assert any(bool(record.diverged.any()) for record in records.values())
        found.append((output.logits.detach(), after))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=0, atol=0)
    assert torch.equal(found[0][1], found[1][1])


def test_a_pass_without_trouble_runs_once():
    model = connect(tiny("bert"), Connection())
    calls = []
    model.base_model.embeddings.register_forward_hook(lambda *_: calls.append(1))
    model(**tokens())
    assert len(calls) == 1
    model = steep().train()
    torch.manual_seed(3)
    model.base_model.embeddings.register_forward_hook(lambda *_: calls.append(1))
    model(**tokens())
    assert len(calls) == 3
