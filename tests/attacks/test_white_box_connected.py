"""White-box attacks on a connected model whose own gradients never reach the words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from victims import WORD_LIST, labelled, make_tokenizer, tiny_bert

from unshaken import Connection, UnshakenError, connect
from unshaken.attacks import HotFlip, HullAttack, Victim
from unshaken.attacks.questions import Inspection
from unshaken.attacks.spaces import Spaces
from unshaken.connections import Implicit, Phantom
from unshaken.solvers import Anderson

TEXT = "a good film with a bad plot"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return make_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def gentle_bert(tokenizer: Any) -> Any:
    """Layers flat enough that their equation is solved to the last digits."""
    model = tiny_bert(tokenizer)
    with torch.no_grad():
        for weight in model.bert.encoder.parameters():
            if weight.dim() > 1:
                weight.mul_(0.3)
    return model


def promises(model: Any, tokenizer: Any, attack: Any) -> np.ndarray:
    victim = Victim.from_model(model, tokenizer)
    (example,) = labelled(victim, [TEXT])
    (space,) = Spaces(attack, victim, (), None).of([example])
    (seen,) = attack.inspect(victim, [Inspection(space, space.clean, 1)])
    return seen[np.isfinite(seen) & (seen != 0)]


@pytest.mark.parametrize("kind", [HotFlip, HullAttack])
def test_attacks_climb_the_solution_whatever_the_model_was_trained_with(tokenizer: Any, kind: Any) -> None:
    solver = Anderson(steps=60, tolerance=1e-10)
    blind = connect(gentle_bert(tokenizer), Connection(form="layer", solver=solver, gradient=Phantom()))
    exact = connect(gentle_bert(tokenizer), Connection(form="layer", solver=solver, gradient=Implicit(solver=solver)))
    ours, truth = (promises(model, tokenizer, kind(substitutions=WORD_LIST)) for model in (blind, exact))
    assert len(ours) == len(truth) > 5
    assert np.corrcoef(ours, truth)[0, 1] > 0.7


@pytest.mark.parametrize("kind", [HotFlip, HullAttack])
def test_a_model_that_holds_its_words_fixed_is_refused(tokenizer: Any, kind: Any) -> None:
    model = tiny_bert(tokenizer)
    model.bert.encoder.layer[0].register_forward_hook(lambda module, inputs, output: output.detach() + 0 * inputs[0])
    victim = Victim.from_model(model, tokenizer)
    with pytest.raises(UnshakenError, match="zero at every word"):
        kind(substitutions=WORD_LIST)(victim, labelled(victim, [TEXT]))
