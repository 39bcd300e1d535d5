"""What every defence of the table must do."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import BACKBONES, ready, run, tiny_model, tiny_step
from tiny_texts import text_step, tokenizer
from torch import Tensor, nn

from table import DefenceRow, defences
from unshaken.connections import Connection, connect
from unshaken.defences import DEFENCES, PTWD, SMART, Defence, Passes, PlainTeacher, Regulariser, Step
from unshaken.defences.perturbations import word_embeddings
from unshaken.errors import UnshakenError
from unshaken.solvers import Anderson

ROWS = defences()
every_defence = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
embedding_rows = pytest.mark.parametrize("row", [row for row in ROWS if not row.reads_texts], ids=lambda row: row.name)


def step_for(row: DefenceRow, model: nn.Module, **options: Any) -> Step:
    if row.reads_texts:
        return text_step(model, **options)
    return tiny_step(model, **options)


def set_up(row: DefenceRow, model: nn.Module) -> Defence:
    if row.reads_texts:
        return ready(row.make(), model, tokenizer())
    return ready(row.make(), model)


def test_the_table_holds_every_name_of_the_command_line() -> None:
    tested = {type(row.make()) for row in ROWS}
    assert all(kind_of(make) in tested for make in DEFENCES.values())


def kind_of(make: Any) -> Any:
    """The class behind a name; a preset is a class method of it."""
    return getattr(make, "__self__", make)


@pytest.mark.full
@every_defence
def test_the_loss_falls(row: DefenceRow) -> None:
    model = tiny_model(dropout=0.1)
    defence = set_up(row, model)
    step = step_for(row, model)
    optimizer = torch.optim.AdamW([*model.parameters(), *defence.parameters()], lr=5e-3)

    def task_loss() -> float:
        with torch.no_grad():
            return step.task_loss(step.forward(copy.deepcopy(model).eval()).logits).item()

    before = task_loss()
    for number in range(30):
        optimizer.zero_grad()
        current = step_for(row, model, progress=number / 30)
        parts = defence.loss(current)
        torch.stack(list(parts.values())).sum().backward()
        optimizer.step()
        defence.after_step(model)
    assert task_loss() < 0.7 * before


@every_defence
def test_modes_gradients_and_inputs_are_left_as_they_were(row: DefenceRow) -> None:
    model = tiny_model()
    defence = set_up(row, model)
    model.bert.encoder.layer[0].eval()  # a layer the user froze
    step = step_for(row, model)
    step.forward(output_hidden_states=True)  # the first such call leaves transformers' own hooks behind
    inputs = {name: values.clone() for name, values in step.inputs.items()}
    modes = {name: module.training for name, module in model.named_modules()}
    hooks = sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())
    weights = copy.deepcopy(model.state_dict())

    defence.loss(step)

    assert {name: module.training for name, module in model.named_modules()} == modes
    assert all(parameter.requires_grad for parameter in model.parameters())
    if not row.calls_backward:
        assert all(parameter.grad is None for parameter in model.parameters())
    assert sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()) == hooks
    torch.testing.assert_close(dict(model.state_dict()), dict(weights), rtol=0, atol=0)
    torch.testing.assert_close(step.inputs, inputs, rtol=0, atol=0)


class Probe:
    """Counts passes through the last layer's query projection, in batches, of the model and of every teacher."""

    def __init__(self, rows: int, *roots: nn.Module) -> None:
        self.counts: Counter[str] = Counter()
        self.rows = rows
        name = "layer.1.attention.self.query"
        for module in {m for root in roots for path, m in root.named_modules() if path.endswith(name)}:
            module.register_forward_pre_hook(self.enter)
            module.register_forward_hook(self.leave)

    def enter(self, module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        (states,) = inputs
        share = len(states) / self.rows
        self.counts["forward"] += share
        weight = module.weight
        if weight.requires_grad and torch.is_grad_enabled():
            weight = weight * 1.0
            weight.register_hook(lambda gradient: self.counts.update({"weights": share}))
        module.__dict__["weight"] = weight
        if states.requires_grad:
            states = states * 1.0
            states.register_hook(lambda gradient: self.counts.update({"activations": share}))
        return (states,)

    def leave(self, module: nn.Module, inputs: Any, output: Any) -> None:
        module.__dict__.pop("weight", None)


@every_defence
def test_it_runs_as_many_passes_as_it_declares(row: DefenceRow) -> None:
    model = tiny_model()
    defence = set_up(row, model)
    step = step_for(row, model)
    teacher = [defence.victim.model] if isinstance(defence, PlainTeacher) else []
    probe = Probe(len(step.labels), model, defence, *teacher)
    run(defence, step)
    assert Passes(**{name: round(count, 6) for name, count in probe.counts.items()}) == defence.passes()


@every_defence
def test_it_publishes_what_it_says(row: DefenceRow) -> None:
    model = tiny_model()
    defence = set_up(row, model)
    step = step_for(row, model, keep_hidden_states=True)
    defence.loss(step)
    expected = ("clean",) if isinstance(defence, Regulariser) else defence.publishes
    assert tuple(step.published) == expected
    for output in step.published.values():
        assert output.logits.shape == (len(step.labels), 3)
        assert output.hidden_states[-1].shape[0] == len(step.labels)


@pytest.mark.parametrize("row", [row for row in ROWS if not isinstance(row.make(), PTWD)], ids=lambda row: row.name)
def test_a_regulariser_beside_it_adds_its_part_and_changes_no_other(row: DefenceRow) -> None:
    model = tiny_model()
    alone, _ = run(set_up(row, model), step_for(row, model))
    model = tiny_model()
    both = set_up(row, model) + PTWD(weight=0.5)
    both.parts[-1].setup(model, num_labels=3)
    parts, _ = run(both, step_for(row, model))
    assert parts.keys() == alone.keys() | {"ptwd"}
    torch.testing.assert_close({name: parts[name] for name in alone}, alone)
    assert both.passes() == row.make().passes()


@every_defence
def test_pairs_of_texts(row: DefenceRow) -> None:
    model = tiny_model()
    step = step_for(row, model, pairs=True)
    assert step.inputs["token_type_ids"].any()
    _, found = run(set_up(row, model), step)
    assert all(value.isfinite().all() for value in found.values())
    segments = found["bert.embeddings.token_type_embeddings.weight"]
    assert (segments.abs().sum(1) > 0).all()


@embedding_rows
def test_regression_or_a_clear_refusal(row: DefenceRow) -> None:
    model = tiny_model(num_labels=1)
    defence = ready(row.make(), model)
    if row.regression:
        parts, found = run(defence, tiny_step(model, regression=True))
        assert all(value.isfinite() for value in parts.values())
        assert found
    else:
        with pytest.raises(UnshakenError, match=r"regression|floats"):
            defence.loss(tiny_step(model, regression=True))


@pytest.mark.parametrize("backbone", BACKBONES)
@embedding_rows
def test_every_backbone(row: DefenceRow, backbone: str) -> None:
    model = tiny_model(backbone)
    parts, found = run(ready(row.make(), model), tiny_step(model))
    assert all(value.isfinite() for value in parts.values())
    word_table = model.get_input_embeddings().weight
    assert word_table.grad is not None
    assert word_table.grad.abs().sum() > 0
    assert all(value.isfinite().all() for value in found.values())


@pytest.mark.parametrize("backbone", BACKBONES)
def test_unperturbed_embeddings_give_the_clean_prediction(backbone: str) -> None:
    model = tiny_model(backbone).eval()
    step = tiny_step(model)
    torch.testing.assert_close(step.forward(inputs_embeds=word_embeddings(step)).logits, step.forward().logits)


@every_defence
def test_a_connected_model(row: DefenceRow) -> None:
    model = connect(tiny_model(), Connection(layers="2", solver=Anderson(steps=2)))
    parts, found = run(set_up(row, model), step_for(row, model))
    assert all(value.isfinite() for value in parts.values())
    assert all(value.isfinite().all() for value in found.values())
    connected = [name for name in found if "layer.1." in name]
    assert connected
    assert all(found[name].abs().sum() > 0 for name in connected if "key.bias" not in name)


@every_defence
def test_half_precision_gives_float32_losses(row: DefenceRow) -> None:
    model = tiny_model().float()
    defence = set_up(row, model).float()
    step = step_for(row, model)
    with torch.autocast("cpu", torch.bfloat16):
        parts, found = run(defence, step)
    assert all(value.dtype == torch.float32 and value.isfinite() for value in parts.values())
    assert all(value.isfinite().all() for value in found.values())


@every_defence
def test_its_state_survives_a_file(row: DefenceRow, tmp_path: Path) -> None:
    model = tiny_model()
    defence = set_up(row, model)
    state = {name: value.contiguous() for name, value in defence.state_dict().items()}
    assert bool(state) == row.keeps_state
    for value in state.values():
        if value.is_floating_point():
            value.add_(1)
    save_file(state, tmp_path / "defence.safetensors")
    fresh = set_up(row, tiny_model())
    fresh.load_state_dict(load_file(tmp_path / "defence.safetensors"))
    torch.testing.assert_close(dict(fresh.state_dict()), state, rtol=0, atol=0)


@pytest.mark.parametrize("row", [row for row in ROWS if row.without_noise], ids=lambda row: row.name)
def test_a_batch_is_the_mean_of_its_examples(row: DefenceRow) -> None:
    model = tiny_model(dropout=0.0)
    assert row.without_noise is not None
    defence = ready(row.without_noise(), model)
    step = step_for(row, model)
    rows = len(step.labels)
    _, whole = run(defence, step)
    mean = {name: torch.zeros_like(value) for name, value in whole.items()}
    for i in range(rows):
        inputs = {name: values[i : i + 1] for name, values in step.inputs.items()}
        examples = None if step.examples is None else step.examples[i : i + 1]
        alone = replace(step, inputs=inputs, labels=step.labels[i : i + 1], examples=examples, published={})
        for name, value in run(defence, alone)[1].items():
            mean[name] += value / rows
    torch.testing.assert_close(whole, mean, rtol=1e-6, atol=1e-8)


@embedding_rows
def test_a_model_without_token_embeddings_is_refused_before_training(row: DefenceRow) -> None:
    class Opaque(nn.Module):
        def forward(self, **inputs: Any) -> None: ...

    if row.name in ("standard", "temperature"):  # they read the logits alone
        row.make().setup(Opaque(), num_labels=2)
        return
    with pytest.raises(UnshakenError, match=r"token embeddings|pretrained"):
        row.make().setup(Opaque(), num_labels=2)


def test_a_model_whose_forward_takes_no_embeddings_is_refused_before_training() -> None:
    class IdsOnly(nn.Module):
        def get_input_embeddings(self) -> nn.Module:
            return nn.Embedding(3, 2)

        def forward(self, input_ids: Tensor) -> None: ...

    for row in ROWS:
        if row.name in ("freelb", "smart-words", "r3f", "creat", "infobert"):
            with pytest.raises(UnshakenError, match="inputs_embeds"):
                row.make().setup(IdsOnly(), num_labels=2)
    with pytest.raises(UnshakenError, match=r"no embedding block of its own.*space='word_embeddings'"):
        SMART().setup(IdsOnly(), num_labels=2)


def test_left_padding_is_refused_where_positions_would_shift() -> None:
    left = copy.deepcopy(tokenizer())
    left.padding_side = "left"
    for row in ROWS:
        if row.name in ("freelb", "smart-words", "r3f", "creat", "infobert"):
            with pytest.raises(UnshakenError, match="padding_side"):
                row.make().setup(tiny_model(), num_labels=3, tokenizer=left)


def test_each_defence_says_where_it_comes_from_and_what_it_costs() -> None:
    for name, make in DEFENCES.items():
        kind = kind_of(make)
        text = kind.__doc__ or ""
        words = ["Cost:", "Example:"] if name == "standard" else ["Paper:", "Relations:", "Cost:", "Example:"]
        missing = [word for word in words if word not in text]
        assert not missing, f"{kind.__name__} lacks {missing}"


def test_each_defence_has_a_card() -> None:
    cards = Path(__file__).parents[2] / "docs" / "defences"
    index = (cards / "index.md").read_text()
    for name in chain(DEFENCES):
        card = "r3f" if name == "r4f" else name.partition("-")[0]  # rift-fast is a preset of rift
        assert (cards / f"{card}.md").is_file(), name
        assert f"({card}.md)" in index, name
