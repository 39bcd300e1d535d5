"""Defences that climb in embedding space, on connected models whose own gradients never reach the words."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
from tiny import ready, tiny_model, tiny_step
from torch import Tensor

from unshaken import Connection, UnshakenError, connect
from unshaken.connections import Phantom
from unshaken.defences import SMART, CreAT, Defence, FreeLB, InfoBERT

DEFENCES = {"freelb": FreeLB(steps=2), "smart": SMART(), "creat": CreAT(), "infobert": InfoBERT(steps=2)}
every_defence = pytest.mark.parametrize("name", list(DEFENCES))


@every_defence
def test_the_climb_sees_every_word(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = connect(tiny_model(), Connection(form="layer", gradient=Phantom()))
    seen: list[Tensor] = []
    home = importlib.import_module(f"unshaken.defences.{name}")
    monkeypatch.setattr(home, "check_reaches_words", lambda step, gradient: seen.append(gradient))
    defence: Defence = DEFENCES[name]
    step = tiny_step(model)
    torch.manual_seed(7)
    sum(ready(defence, model).loss(step).values(), torch.zeros(())).backward()
    assert seen
    for gradient in seen:
        assert (gradient.norm(dim=-1) > 0)[step.inputs["attention_mask"].bool()].all()


@every_defence
def test_a_model_that_holds_its_words_fixed_is_refused(name: str) -> None:
    model: Any = tiny_model()

    def only_first(module: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        states = inputs[0]
        return torch.cat([states[:, :1], states[:, 1:].detach()], dim=1), *inputs[1:]

    for layer in model.bert.encoder.layer:
        layer.register_forward_pre_hook(only_first)
    with pytest.raises(UnshakenError, match="all tokens but one"):
        ready(DEFENCES[name], model).loss(tiny_step(model))
