"""FreeLB, SMART, R3F and CreAT against literal transcriptions of their formulas, in float64 and with dropout on."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tiny import gradients, moved, ready, run, tiny_model, tiny_step
from torch import Tensor

from unshaken.defences import R3F, R4F, SMART, CreAT, FreeLB, Step

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture
def model() -> Any:
    return tiny_model()


def embed(model: Any, step: Step) -> Tensor:
    return model.get_input_embeddings()(step.inputs["input_ids"])


def logits_at(model: Any, step: Step, embeddings: Tensor) -> Tensor:
    return model(inputs_embeds=embeddings, attention_mask=step.inputs["attention_mask"]).logits


def assert_same(model: Any, loss: Tensor, expected_loss: Tensor, found: dict[str, Tensor], twin: Any) -> None:
    torch.testing.assert_close(loss, expected_loss, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found, gradients(twin), rtol=1e-9, atol=1e-12)
    assert max(value.abs().max() for value in found.values()) > 1e-4


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("max_norm", [None, 0.3])
def test_freelb_is_its_official_loop(model: Any, norm: Any, max_norm: float | None) -> None:
    defence = FreeLB(steps=3, adv_lr=0.2, init_magnitude=0.5, max_norm=max_norm, norm=norm)
    compare_with_official_loop(model, defence, 3, 0.2, 0.5, max_norm, norm, True)


def test_freelb_plus_plus_is_its_official_loop(model: Any) -> None:
    """TextDefender: five passes of 0.03 from a start of 0.05, no ball, dropout drawn anew in every pass."""
    compare_with_official_loop(model, FreeLB.plus_plus(), 5, 0.03, 0.05, None, "l2", False)
    longer = FreeLB.plus_plus(steps=2, adv_lr=0.4)
    compare_with_official_loop(model, longer, 2, 0.4, 0.05, None, "l2", False)


def compare_with_official_loop(
    model: Any,
    defence: FreeLB,
    passes: int,
    rate: float,
    magnitude: float,
    max_norm: float | None,
    norm: str,
    shares_dropout: bool,
) -> None:
    step, twin = tiny_step(model), copy.deepcopy(model)
    parts, found = run(ready(defence, model), step)

    twin.zero_grad()
    torch.manual_seed(7)
    mask = step.inputs["attention_mask"].double()
    start = embed(twin, step)
    delta = torch.zeros_like(start).uniform_(-1, 1) * mask[:, :, None]
    for row in range(len(mask)):
        delta[row] *= magnitude if norm == "linf" else magnitude / (mask[row].sum() * start.shape[-1]).sqrt()
    delta = delta.detach()
    dropout_state = torch.get_rng_state()
    expected = 0.0
    for ascent in range(passes):
        delta.requires_grad_()
        if shares_dropout:
            torch.set_rng_state(dropout_state)
        loss = F.cross_entropy(logits_at(twin, step, embed(twin, step) + delta), step.labels) / passes
        loss.backward()
        expected += loss.detach()
        if ascent == passes - 1:
            break
        moved = []
        for row in range(len(mask)):
            order = 2 if norm == "l2" else float("inf")
            gradient = delta.grad[row]
            new = delta[row].detach() + rate * gradient / gradient.flatten().norm(p=order).clamp(min=1e-8)
            if max_norm is not None and norm == "linf":
                new = new.clamp(-max_norm, max_norm)
            if max_norm is not None and norm == "l2" and new.norm() > max_norm:
                new = new * max_norm / new.norm()
            moved.append(new)
        delta = torch.stack(moved).detach()
    assert_same(model, parts["adversarial"], expected, found, twin)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, needs_gpu])])
def test_freelb_shares_dropout_between_its_passes(model: Any, shared: bool, device: str) -> None:
    seen: list[Tensor] = []
    step = tiny_step(model.to(device))
    step = Step(model=model, inputs={k: v.to(device) for k, v in step.inputs.items()}, labels=step.labels.to(device))
    model.register_forward_hook(lambda module, inputs, output: seen.append(output.logits.detach()))
    # A path that does not move: the passes differ by their dropout alone.
    run(ready(FreeLB(steps=3, adv_lr=1e-15, init_magnitude=0, share_dropout=shared), model), step)
    assert len(seen) == 3
    for later in seen[1:]:
        assert torch.allclose(seen[0], later, atol=1e-9) == shared


def test_a_pass_that_the_trainer_skips_still_shows_in_the_loss(model: Any) -> None:
    step = tiny_step(model, backward=lambda loss: None)
    scales = iter([1.0, float("nan"), 1.0])
    model.register_forward_hook(
        lambda module, inputs, output: output.__setitem__("logits", output.logits * next(scales))
    )
    assert ready(FreeLB(steps=3), model).loss(step)["adversarial"].isnan()


def test_sharing_dropout_leaves_later_random_numbers_alone(model: Any) -> None:
    def number_after(steps: int) -> Tensor:
        run(ready(FreeLB(steps=steps, init_magnitude=0), model), tiny_step(model))
        return torch.rand(3)

    torch.testing.assert_close(number_after(1), number_after(4))


def official_symmetric_kl(logits: Tensor, other: Tensor) -> Tensor:
    def one_side(values: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(values.log_softmax(-1), target.detach().softmax(-1), reduction="batchmean")

    return one_side(logits, other) + one_side(other, logits)


def logits_of(model: Any, step: Step, noise: Tensor, space: str) -> Tensor:
    """The prediction with noise on the word embeddings, or on what BERT's embedding block gives to its first layer."""
    if space == "word_embeddings":
        return logits_at(model, step, embed(model, step) + noise)
    allowed = step.inputs["attention_mask"].bool()[:, None, None, :]
    hidden = model.bert.encoder(model.bert.embeddings(step.inputs["input_ids"]) + noise, attention_mask=allowed)
    logits: Tensor = model.classifier(model.dropout(model.bert.pooler(hidden.last_hidden_state)))
    return logits


@pytest.mark.parametrize("space", ["embedding_output", "word_embeddings"])
@pytest.mark.parametrize("projection", ["official_unit_linf", "ball"])
@pytest.mark.parametrize("regression", [False, True])
def test_smart_is_its_official_loss(projection: Any, regression: bool, space: Any) -> None:
    model = tiny_model(num_labels=1 if regression else 3)
    step, teacher = tiny_step(model, regression=regression), copy.deepcopy(model).eval()
    options = {"projection": projection, "eps": 5e-2, "space": space, "bregman_weight": 0.5}
    defence = ready(SMART(weight=2, steps=2, step_size=0.1, noise=1e-3, **options), model)
    twin = copy.deepcopy(moved(model))
    parts, found = run(defence, step)

    torch.manual_seed(7)
    clean = twin(**step.inputs).logits
    start = embed(twin, step)
    noise = torch.randn_like(start) * 1e-3
    for _ in range(2):
        noise = noise.detach().requires_grad_()
        shifted = logits_of(twin, step, noise, space)
        if regression:
            inner = ((shifted - clean.detach()) ** 2).sum()
        else:
            p, y = shifted.softmax(-1), clean.detach().softmax(-1)
            odds_p, odds_y = (-(1 / (r.detach() + 1e-6) - 1 + 1e-6).log() for r in (p, y))
            inner = (p * (odds_p - odds_y) * 2).sum()
        stepped = noise + 0.1 * torch.autograd.grad(inner, noise)[0]
        if projection == "ball":
            noise = stepped.clamp(-5e-2, 5e-2)
        else:
            noise = stepped / (stepped.abs().max(-1, keepdim=True)[0] + 1e-6)
    shifted = logits_of(twin, step, noise.detach(), space)
    mean = teacher(**step.inputs).logits.detach()
    if regression:
        task, smoothness = F.mse_loss(clean.squeeze(-1), step.labels), ((shifted - clean) ** 2).mean()
        proximal = ((clean - mean) ** 2).mean()
    else:
        task, smoothness = F.cross_entropy(clean, step.labels), official_symmetric_kl(shifted, clean)
        difference = (clean.softmax(-1) - mean.softmax(-1)) * (clean.log_softmax(-1) - mean.log_softmax(-1))
        proximal = difference.sum(-1).mean()
    expected = task + 2 * smoothness + 0.5 * proximal
    expected.backward()
    torch.testing.assert_close(parts["smoothness"], 2 * smoothness)
    assert proximal > 1e-6
    assert_same(model, sum(parts.values()), expected, found, twin)


def run_part(defence: Any, step: Step, part: str) -> dict[str, Tensor]:
    """The gradients of one part of the loss."""
    step.model.zero_grad()
    torch.manual_seed(7)
    defence.loss(step)[part].backward()
    return gradients(step.model)


def test_smart_stays_near_its_mean_teacher() -> None:
    model = tiny_model(dropout=0.0)
    defence = SMART.paper()
    ready(defence, model)
    before = copy.deepcopy(model)
    parts, _ = run(defence, tiny_step(model))
    assert parts["bregman"].abs() < 1e-20  # the teacher starts as the model

    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    defence.after_step(model)  # early in training: 0.99
    for mean, old, new in zip(defence.teacher.parameters(), before.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mean, 0.99 * old + 0.01 * new)

    step = tiny_step(model, progress=0.5)
    parts, _ = run(defence, step)
    p, q = (m(**step.inputs).logits.log_softmax(-1) for m in (model, defence.teacher.eval()))
    expected = ((p.exp() * (p - q)).sum(-1) + (q.exp() * (q - p)).sum(-1)).mean()
    torch.testing.assert_close(parts["bregman"], expected)
    assert all(parameter.grad is None for parameter in defence.teacher.parameters())
    found = run_part(defence, step, "bregman")
    model.zero_grad()
    torch.manual_seed(7)
    p, q = model(**step.inputs).logits.log_softmax(-1), q.detach()
    ((p.exp() * (p - q)).sum(-1) + (q.exp() * (q - p)).sum(-1)).mean().backward()  # through p on both sides
    torch.testing.assert_close(found, gradients(model))

    previous = copy.deepcopy(defence.teacher)
    defence.after_step(model)  # after the first tenth: 0.999
    for mean, old, new in zip(defence.teacher.parameters(), previous.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mean, 0.999 * old + 0.001 * new)


@pytest.mark.parametrize("noise", ["uniform", "normal"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("detached", [True, False])
def test_r3f_is_its_official_loss(model: Any, noise: Any, shared: bool, detached: bool) -> None:
    step, twin = tiny_step(model), copy.deepcopy(model)
    defence = R3F(weight=0.7, eps=0.05, noise=noise, share_dropout=shared, detach_embeddings=detached)
    parts, found = run(ready(defence, model), step)

    torch.manual_seed(7)
    start = embed(twin, step)
    drawn = torch.zeros_like(start)
    drawn = drawn.uniform_(-0.05, 0.05) if noise == "uniform" else drawn.normal_(0, 0.05)
    moved = (start.detach() if detached else start) + drawn
    if shared:
        dropout_state = torch.get_rng_state()
        clean = twin(**step.inputs).logits
        torch.set_rng_state(dropout_state)
        noised = logits_at(twin, step, moved)
    else:
        mask = torch.cat([step.inputs["attention_mask"]] * 2)
        clean, noised = twin(inputs_embeds=torch.cat([start, moved]), attention_mask=mask).logits.chunk(2)
    p, q = clean.log_softmax(-1), noised.log_softmax(-1)
    both = F.kl_div(q, p, log_target=True, reduction="sum") + F.kl_div(p, q, log_target=True, reduction="sum")
    expected = F.cross_entropy(clean, step.labels) + 0.7 * both / len(step.labels)
    expected.backward()
    assert_same(model, parts["task"] + parts["consistency"], expected, found, twin)


@pytest.mark.parametrize(("noise", "spread"), [("uniform", 0.05 / 3**0.5), ("normal", 0.05)])
def test_noise_of_r3f_lies_around_nothing(noise: Any, spread: float) -> None:
    """A model that normalises its embeddings would not show a shift of all of them."""
    torch.manual_seed(0)
    drawn = R3F(eps=0.05, noise=noise)._draw(torch.zeros(100, 100, dtype=torch.float64))
    assert float(drawn.mean()) == pytest.approx(0, abs=0.002)
    assert float(drawn.std()) == pytest.approx(spread, rel=0.03)
    assert noise == "normal" or 0.0499 < float(drawn.max()) < 0.05


def test_r4f_trains_a_head_of_spectral_norm_one(model: Any) -> None:
    step = tiny_step(model)
    keys = list(model.state_dict())
    twin = copy.deepcopy(model)
    defence = ready(R4F(eps=1e-3, share_dropout=True), model)
    moved(model)
    parts, found = run(defence, step)
    assert list(model.state_dict()) == keys

    # The same gradient as torch's own reparametrisation, started at the same point.
    twin.load_state_dict(model.state_dict())
    torch.nn.utils.parametrizations.spectral_norm(twin.classifier, n_power_iterations=100)
    twin.classifier.parametrizations.weight.train()
    expected_parts, _ = run(ready(R3F(eps=1e-3, share_dropout=True), twin), step_on(twin, step))
    torch.testing.assert_close(parts, expected_parts, rtol=1e-6, atol=1e-12)
    expected = gradients(twin)
    expected["classifier.weight"] = expected.pop("classifier.parametrizations.weight.original")
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)

    with torch.no_grad():
        model.classifier.weight.mul_(3)
    defence.after_step(model)
    assert torch.linalg.svdvals(model.classifier.weight)[0].item() == pytest.approx(1)


def step_on(model: Any, step: Step) -> Step:
    return Step(model=model, inputs=step.inputs, labels=step.labels)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_creat_is_its_official_loss(model: Any, reduction: Any) -> None:
    step, twin = tiny_step(model), copy.deepcopy(model)
    defence = CreAT(ascents=2, adv_lr=0.3, max_norm=0.4, temperature=0.5, cosine_reduction=reduction)
    parts, found = run(ready(defence, model), step)

    def states_and_logits(embeddings: Tensor) -> tuple[Tensor, Tensor]:
        mask = step.inputs["attention_mask"]
        output = twin(inputs_embeds=embeddings, attention_mask=mask, output_hidden_states=True)
        return output.hidden_states[-1][:, 0], output.logits

    torch.manual_seed(7)
    start = embed(twin, step)
    clean_state, clean = states_and_logits(start)
    delta = torch.randn_like(start) * 1e-2
    for _ in range(2):
        delta = delta.detach().requires_grad_()
        state, logits = states_and_logits(start.detach() + delta)
        cosines = torch.stack(
            [torch.dot(a, b) / (a.norm() * b.norm()) for a, b in zip(state, clean_state.detach(), strict=True)]
        )
        objective = F.cross_entropy(logits, step.labels)
        objective = objective - 0.5 * (cosines.sum() if reduction == "sum" else cosines.mean())
        gradient = torch.autograd.grad(objective, delta)[0]
        moved = []
        for row in range(len(delta)):
            new = delta[row].detach() + 0.3 * gradient[row] / gradient[row].norm().clamp(min=1e-8)
            moved.append(new * 0.4 / new.norm() if new.norm() > 0.4 else new)
        delta = torch.stack(moved)
    expected = 0.5 * (
        F.cross_entropy(clean, step.labels) + F.cross_entropy(states_and_logits(start + delta)[1], step.labels)
    )
    expected.backward()
    assert_same(model, parts["task"] + parts["adversarial"], expected, found, twin)
