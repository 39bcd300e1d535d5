"""What only a GPU shows: float16 and its loss scale, its random generator in checkpoints, equal bytes."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from test_trainer import network, tokenizer, train, weights
from uneven import NEIGHBOURS, uneven

from unshaken import Connection, connect
from unshaken.connections import Implicit
from unshaken.defences import FreeLB, parse
from unshaken.solvers import Anderson
from unshaken.substitutions.dictionary import Dictionary

__all__ = ["tokenizer"]  # the fixture

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning"),
]
ON_GPU = {"use_cpu": False}


def implicit() -> Any:
    return connect(network(dropout=0.1), Connection(solver=Anderson(steps=3), gradient=Implicit()))


def test_float16_overflow_is_said_and_training_goes_on(tmp_path: Any, tokenizer: Any, caplog: Any) -> None:
    model = network()
    model.bert.encoder.layer[1].output.dense.weight.data.mul_(1e5)
    model.bert.encoder.layer[1].output.LayerNorm.weight.data.mul_(50)
    trainer = train(tmp_path, tokenizer, model=model, fp16=True, num_train_epochs=10, **ON_GPU)
    overflowed = [row for row in trainer.state.log_history if "overflowed" in row]
    assert overflowed
    assert "float16 overflowed at loss scale" in caplog.text
    assert all(torch.isfinite(weight).all() for weight in weights(trainer).values())


@pytest.mark.parametrize("precision", [{}, {"fp16": True}, {"bf16": True}], ids=str)
def test_a_resumed_run_ends_where_an_unbroken_one_does(tmp_path: Any, tokenizer: Any, precision: Any) -> None:
    settings = {"save_strategy": "steps", "save_steps": 2, "save_total_limit": None, **precision, **ON_GPU}
    unbroken = train(tmp_path / "whole", tokenizer, model=implicit(), defence=FreeLB(), **settings)
    checkpoint = str(tmp_path / "whole" / "checkpoint-2")
    resumed = train(tmp_path / "again", tokenizer, model=implicit(), defence=FreeLB(), resume=checkpoint, **settings)
    for name, weight in weights(unbroken).items():
        torch.testing.assert_close(weights(resumed)[name], weight, rtol=0, atol=0, msg=name)


@pytest.mark.parametrize("precision", [{}, {"fp16": True}, {"bf16": True}], ids=str)
@pytest.mark.parametrize("connected", [False, True])
def test_training_by_graphs_is_training(tmp_path: Any, tokenizer: Any, precision: Any, connected: bool) -> None:
    trainers = []
    for graphs in (False, True):
        model = connect(network(), Connection(solver=Anderson(steps=3))) if connected else network()
        settings = {"num_train_epochs": 4, "learning_rate": 1e-3, "cuda_graphs": graphs, **precision, **ON_GPU}
        trainers.append(train(tmp_path / str(graphs), tokenizer, model=model, **settings))
    eager, replayed = trainers
    assert replayed._graphs.replays > replayed._graphs.eager
    assert "forward" not in vars(replayed.model) or replayed.model.forward is not replayed._graphs
    for name, weight in weights(eager).items():
        near = {"rtol": 1e-2, "atol": 1e-4} if not precision else {"rtol": 0.1, "atol": 5e-3}
        torch.testing.assert_close(
            weights(replayed)[name], weight, msg=lambda text, name=name: f"{name}: {text}", **near
        )


@pytest.mark.parametrize("precision", [{}, {"bf16": True}], ids=str)
def test_a_resumed_run_by_graphs_goes_on(tmp_path: Any, tokenizer: Any, precision: Any) -> None:
    settings = {"save_strategy": "steps", "save_steps": 2, "cuda_graphs": True, "num_train_epochs": 2, **precision}
    train(tmp_path / "whole", tokenizer, model=implicit(), save_total_limit=None, **settings, **ON_GPU)
    checkpoint = str(tmp_path / "whole" / "checkpoint-2")
    resumed = train(tmp_path / "again", tokenizer, model=implicit(), resume=checkpoint, **settings, **ON_GPU)
    assert all(torch.isfinite(weight).all() for weight in weights(resumed).values())
    assert resumed._graphs.replays > 0


@pytest.mark.parametrize("precision", [{}, {"bf16": True}], ids=str)
@pytest.mark.parametrize("name", ["ascc:steps=6", "rift:steps=6", "swap:variants=2", "freelb"])
def test_packed_rows_and_replayed_searches_are_training(
    tmp_path: Any, tokenizer: Any, precision: Any, name: str, monkeypatch: Any
) -> None:
    def trained(folder: str) -> Any:
        torch.manual_seed(0)  # of a defence's own weights
        made = parse(name)
        for part in made.modules():
            if hasattr(part, "substitutions"):
                part.substitutions = Dictionary(entries=NEIGHBOURS)
        settings = {"num_train_epochs": 6, "learning_rate": 1e-2, "optim": "sgd", "seed": 3, "balance_classes": True}
        settings |= {**precision, **ON_GPU}
        return train(tmp_path / folder, tokenizer, defence=made, rows=uneven(32), **settings)

    monkeypatch.setattr("unshaken.replays.OFTEN", 8)
    replayed = trained("replayed")
    # The first passes of a shape run as always, and so does whatever is no search.
    assert replayed._rows.replays.replays > 30 if "steps" in name else replayed._rows.replays.replays == 0
    monkeypatch.setattr("unshaken.packing.can_pack", lambda model: False)
    padded = trained("padded")
    start = dict(network().named_parameters())
    for key, weight in weights(padded).items():
        moved = (weight.cpu() - start[key]).abs().max().item()
        off = (weights(replayed)[key] - weight).abs().max().item()
        assert off <= (0.2 if precision else 1e-3) * moved + 1e-6, f"{key}: {off} of {moved}"


def test_equal_runs_give_equal_bytes(tmp_path: Any, tokenizer: Any) -> None:
    from unshaken.training.determinism import make_deterministic

    make_deterministic()
    try:
        runs = [
            train(tmp_path / str(run), tokenizer, model=implicit(), defence=FreeLB(), num_train_epochs=5, **ON_GPU)
            for run in range(2)
        ]
    finally:
        torch.use_deterministic_algorithms(False)
        os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
    for name, weight in weights(runs[0]).items():
        assert torch.equal(weights(runs[1])[name], weight), name


def test_device_memory_is_flat(tmp_path: Any, tokenizer: Any) -> None:
    from test_memory import measured

    found = measured(tmp_path, tokenizer, "implicit", torch.cuda.memory_allocated, steps=200, every=50, **ON_GPU)
    assert found[100] == found[200] > 0, found
