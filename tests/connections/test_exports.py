"""Connected models as recorded programs: right for every batch, or refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from models import tiny, tokens

from unshaken import Connection, IncompatibleModelError, connect
from unshaken.solvers import Anderson

ANY_SIZE = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}  # rows and tokens


@pytest.mark.parametrize(
    "connection", [Connection.ex_bert(learn_step=True), Connection.runge_kutta(order=2)], ids=["explicit", "order 2"]
)
def test_an_explicit_connection_exports_for_any_size(connection: Connection) -> None:
    model, batch = connect(tiny("bert"), connection), tokens()
    program: Any = torch.export.export(model, (), batch, dynamic_shapes=dict.fromkeys(batch, ANY_SIZE)).module()
    with torch.no_grad():
        for rows, width, padded in ((3, 9, True), (1, 9, False), (5, 14, True), (1, 2, False)):
            texts = tokens(batch=rows, length=width, padded=padded, seed=rows)
            torch.testing.assert_close(program(**texts).logits, model(**texts).logits, rtol=0, atol=1e-6)


@pytest.mark.parametrize("record", [torch.export.export, torch.jit.trace], ids=["exported", "traced"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*", "ignore::torch.jit.TracerWarning")
def test_an_implicit_connection_is_refused_and_goes_on_answering(record: Any) -> None:
    """A recorded solve takes the course of its first batch, and what it keeps for later would belong to the record."""
    # With a ridge of its own, for which nothing is kept from other tests.
    connection, batch = Connection(solver=Anderson(steps=3, ridge=5e-6)), tokens()
    model = connect(tiny("bert"), connection)
    with pytest.raises(IncompatibleModelError, match=r"cannot be exported: .*theta=0"):
        record(model, tuple(batch.values()))
    with torch.no_grad():
        torch.testing.assert_close(model(**batch).logits, connect(tiny("bert"), connection)(**batch).logits)
