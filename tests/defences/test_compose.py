"""How defences are put together, in Python and by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import ready, run, tiny_model, tiny_step
from torch import Tensor

from unshaken.defences import (
    PLAIN,
    PTWD,
    R3F,
    SMART,
    CreAT,
    Defence,
    FreeLB,
    Mixout,
    Passes,
    Regulariser,
    Standard,
    Step,
    parse,
)
from unshaken.errors import UnshakenError
from unshaken.substitutions import Dictionary


@dataclass(eq=False, kw_only=True)
class StateSize(Regulariser):
    """A user's own term: the size of the last state in the pass it reads."""

    of: str = "adversarial"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.reads = (self.of,)

    def penalty(self, step: Step) -> dict[str, Tensor]:
        return {"size": step.read(self.of, "StateSize").hidden_states[-1].square().mean()}


def test_a_sum_adds_terms_to_one_objective_in_any_order() -> None:
    model = tiny_model()
    for composed in (R3F() + PTWD(), PTWD() + R3F(), PTWD() + (R3F() + Mixout())):
        assert isinstance(composed.parts[0], R3F)
    parts, _ = run(ready(R3F() + PTWD(), model), tiny_step(model))
    assert list(parts) == ["task", "consistency", "ptwd"]


def test_a_regulariser_alone_stands_beside_the_plain_loss() -> None:
    model = tiny_model()
    alone, gradients = run(ready(PTWD(weight=0.2), model), tiny_step(model))
    beside, same_gradients = run(ready(Standard() + PTWD(weight=0.2), model), tiny_step(model))
    torch.testing.assert_close(alone, beside)
    torch.testing.assert_close(gradients, same_gradients)
    both, _ = run(ready(PTWD() + Mixout(), model), tiny_step(model))
    assert list(both) == ["task", "ptwd"]


def test_two_objectives_or_one_term_twice_are_refused() -> None:
    with pytest.raises(UnshakenError, match="R3F \\+ SMART: each of these is a whole objective"):
        R3F() + SMART()
    with pytest.raises(UnshakenError, match="PTWD is given 2 times"):
        R3F() + PTWD() + PTWD()


def test_a_term_reads_the_passes_of_its_objective() -> None:
    model = tiny_model()
    defence = ready(CreAT() + StateSize(), model)
    step = tiny_step(model)
    parts, _ = run(defence, step)
    assert list(parts) == ["task", "adversarial", "size"]
    torch.testing.assert_close(parts["size"], step.published["adversarial"].hidden_states[-1].square().mean())
    assert defence.passes() == CreAT().passes() == Passes(forward=3, activations=3, weights=2)
    alone, _ = run(ready(StateSize(of="clean"), model), tiny_step(model))
    assert list(alone) == ["task", "size"]


def test_a_term_that_reads_a_pass_nobody_makes_is_refused() -> None:
    with pytest.raises(UnshakenError, match="StateSize reads the adversarial pass, but Standard has clean"):
        Standard() + StateSize()
    with pytest.raises(UnshakenError, match="reads the clean pass, but FreeLB has adversarial"):
        FreeLB() + StateSize(of="clean")
    with pytest.raises(UnshakenError, match="reads the adversarial pass"):
        StateSize().loss(tiny_step(tiny_model()))


def test_terms_are_added_once_whatever_the_number_of_passes() -> None:
    model = tiny_model()
    defence = ready(FreeLB(steps=4) + PTWD(weight=2, form="l2_squared"), model)
    with torch.no_grad():
        for parameter in model.bert.parameters():
            parameter.add_(0.1)
    parts, _ = run(defence, tiny_step(model))
    count = sum(parameter.numel() for parameter in model.bert.parameters())
    assert parts["ptwd"].item() == pytest.approx(0.01 * count)


def test_after_step_and_state_reach_every_part() -> None:
    model = tiny_model()
    defence = ready(SMART.paper() + PTWD(weight=0.5, form="l2_squared", decoupled=True), model)
    assert any("teacher" in name for name in defence.state_dict())
    assert any("pretrained" in name for name in defence.state_dict())
    with torch.no_grad():
        model.bert.pooler.dense.bias.add_(1)
    defence.after_step(model)
    assert (model.bert.pooler.dense.bias - 0.5).abs().max() < 1e-6


def test_cost_is_in_plain_steps() -> None:
    assert Standard().passes().cost == 1
    assert FreeLB(steps=3).passes().cost == 3
    assert SMART().passes().cost == pytest.approx(8 / 3)
    assert (SMART.paper() + PTWD()).passes().cost == 3


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("freelb:steps=2,max_norm=none", FreeLB(steps=2, max_norm=None)),
        ("r3f:eps=1e-4,noise=normal+ptwd:weight=0.02", R3F(eps=1e-4, noise="normal") + PTWD(weight=0.02)),
        ("smart:step-size=1e+0", SMART(step_size=1.0)),
        ("ptwd+mixout:p=0.7", PTWD() + Mixout(p=0.7)),
    ],
)
def test_names_on_the_command_line(spec: str, expected: Any) -> None:
    assert repr(parse(spec)) == repr(expected)
    assert isinstance(parse(spec), type(expected))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("frelb", "did you mean 'freelb'"),
        ("r3f+smart", "whole objective"),
        ("r3f:noise=pink", "noise is 'pink'; allowed: uniform, normal"),
        ("freelb:step=2", "did you mean 'steps'"),
        ("freelb:steps=0", "above 0"),
        ("r3f+", "unknown defence"),
        ("os.path:join", "class path"),
    ],
)
def test_wrong_names_say_what_to_do(spec: str, message: str) -> None:
    with pytest.raises(UnshakenError, match=message):
        parse(spec)


def test_a_users_own_class_composes_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "mine_pkg"
    package.mkdir()
    (package / "terms.py").write_text("from unshaken.defences import PTWD\nclass Mine(PTWD): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    defence = parse("r3f+mine_pkg.terms:Mine", allow_paths=True)
    assert [type(part).__name__ for part in defence.parts] == ["R3F", "Mine"]


def test_the_defence_of_the_documentation_runs_and_composes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "defences" / "index.md").read_text(encoding="utf-8")
    code = page.split("## Write your own")[1].split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {"dataclass": dataclass, "torch": torch, "Defence": Defence, "PLAIN": PLAIN}
    exec(code, names)
    model = tiny_model(dropout=0.0)
    step = tiny_step(model)
    parts, _ = run(ready(names["LabelSmoothing"](share=0.3) + PTWD() + StateSize(of="clean"), model), step)
    log_p = model(**step.inputs).logits.log_softmax(-1)
    expected = -0.7 * log_p[range(6), step.labels].mean() - 0.3 * log_p.mean()
    torch.testing.assert_close(parts["smoothed"], expected)
    assert list(parts) == ["smoothed", "ptwd", "size"]


def test_substitutions_of_a_command_go_to_the_parts_that_name_none():
    given = Dictionary(entries={"good": ["fine"]})
    ascc, decay = parse("ascc+ptwd", substitutions=given).parts
    assert ascc.substitutions is given
    assert not hasattr(decay, "substitutions")
    assert parse("swap:substitutions=wordnet", substitutions=given).substitutions == "wordnet"
