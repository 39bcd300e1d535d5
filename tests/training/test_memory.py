"""Training holds on to nothing: memory stays flat however many steps it takes."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from test_trainer import arguments, network, reviews, tokenizer
from transformers import TrainerCallback

from unshaken import Connection, RobustTrainer, connect
from unshaken.connections import GRADIENTS
from unshaken.defences import RIFT, SMART, SWAP, Compose, FreeLB, InformativeTerm, Standard
from unshaken.solvers import Anderson, GradientDescent
from unshaken.substitutions import Dictionary

__all__ = ["tokenizer"]  # the fixture

MODES = [*sorted(GRADIENTS), "detached by descent", "unrolled by descent"]  # descent differentiates within the solve


class Measure(TrainerCallback):
    """Notes something at chosen steps."""

    def __init__(self, what: Any, every: int) -> None:
        self.what, self.every = what, every
        self.found: dict[int, int] = {}

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % self.every == 0:
            gc.collect()
            self.found[state.global_step] = self.what()


def measured(
    folder: Any, tokenizer: Any, gradient: str, what: Any, steps: int, every: int, **options: Any
) -> dict[int, int]:
    mode, _, solver = gradient.partition(" by ")
    how = GradientDescent(steps=2) if solver else Anderson(steps=2)
    model = connect(network(dropout=0.1), Connection(solver=how, gradient=GRADIENTS[mode]()))
    callback = Measure(what, every)
    settings = arguments(folder, max_steps=steps, logging_steps=every, **options)
    RobustTrainer(model, settings, processing_class=tokenizer, train_dataset=reviews(32), callbacks=[callback]).train()
    return callback.found


def living_tensors() -> int:
    return sum(issubclass(type(item), torch.Tensor) for item in gc.get_objects())


def resident_bytes() -> int:
    import psutil

    return int(psutil.Process().memory_info().rss)


@pytest.mark.full
@pytest.mark.parametrize("gradient", MODES)
def test_no_tensor_outlives_its_step(tmp_path: Any, tokenizer: Any, gradient: str) -> None:
    found = measured(tmp_path, tokenizer, gradient, living_tensors, steps=40, every=10)
    assert found[20] == found[40], found


@pytest.mark.slow
@pytest.mark.parametrize("gradient", MODES)
def test_memory_is_flat_over_two_thousand_steps(tmp_path: Any, tokenizer: Any, gradient: str) -> None:
    found = measured(tmp_path, tokenizer, gradient, resident_bytes, steps=2000, every=250)
    print(gradient, {step: f"{size / 2**20:.1f} MiB" for step, size in found.items()})
    assert found[2000] - found[500] < 2**20, found


class Passes(TrainerCallback):
    """Counts the passes of earlier steps that still live when a step begins."""

    def __init__(self, model: Any) -> None:
        self.passes: list[Any] = []
        self.living: list[int] = []
        model.register_forward_hook(lambda module, args, output: self.passes.append(weakref.ref(output.logits)))

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.living.append(sum(logits() is not None for logits in self.passes))


WORDS = Dictionary(entries={"good": ["bad"], "fine": ["poor"]})
DEFENCES = [
    Standard(),
    FreeLB(),
    SMART(),
    Compose(Standard(), InformativeTerm(on="clean")),
    RIFT(substitutions=WORDS, steps=1),
    SWAP(substitutions=WORDS),
]


@pytest.mark.full
@pytest.mark.parametrize("defence", DEFENCES, ids=lambda defence: type(defence).__name__)
def test_a_step_lets_go_of_its_passes_without_the_collector(tmp_path: Any, tokenizer: Any, defence: Any) -> None:
    model = network(dropout=0.1)
    callback = Passes(model)
    trainer = RobustTrainer(
        model, arguments(tmp_path, max_steps=4), defence=defence, processing_class=tokenizer,
        train_dataset=reviews(32), callbacks=[callback],
    )  # fmt: skip
    gc.collect()
    gc.disable()
    try:
        trainer.train()
    finally:
        gc.enable()
    assert len(callback.passes) >= 4
    assert callback.living == [0, 0, 0, 0]
