"""InfoBERT against a literal transcription of its official training step, in float64 and with dropout on."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tiny import gradients, moved, ready, run, tiny_batch, tiny_model, tiny_step
from torch import Tensor, nn

from unshaken.defences import FreeLB, InfoBERT, Step
from unshaken.defences.infobert import PairCritic


def literal_critic(critic: PairCritic) -> nn.Sequential:
    """The same network as one that reads concatenated pairs."""
    width, hidden = critic.local.in_features, critic.local.out_features
    network = nn.Sequential(nn.Linear(2 * width, hidden), nn.ReLU(), nn.Linear(hidden, 1), nn.Softplus()).double()
    with torch.no_grad():
        network[0].weight.copy_(torch.cat([critic.local.weight, critic.whole.weight], dim=1))
        network[0].bias.copy_(critic.local.bias)
        network[2].weight.copy_(critic.score.weight)
        network[2].bias.copy_(critic.score.bias)
    return network


def literal_info_nce(network: nn.Sequential, local: Tensor, whole: Tensor) -> Tensor:
    n = len(local)
    positive = torch.stack([network(torch.cat([local[i], whole[i]])) for i in range(n)]).mean()
    rows = []
    for i in range(n):  # a sentence, against all words
        scores = torch.stack([network(torch.cat([local[j], whole[i]])).squeeze() for j in range(n)])
        rows.append(scores.logsumexp(0))
    return positive - (torch.stack(rows).mean() - math.log(n))


@pytest.mark.parametrize("passes", [1, 3])
def test_it_is_its_official_step(passes: int) -> None:
    model = tiny_model()
    step = tiny_step(model)
    defence = InfoBERT(steps=passes, adv_lr=0.2, init_magnitude=0.5, beta=0.3, alpha=0.4)
    ready(defence, model)
    moved(defence.critic)
    twin = copy.deepcopy(moved(model))
    network = literal_critic(defence.critic)
    assert network[0].out_features == 300  # official code
    parts, found = run(defence, step)
    critic_gradients = gradients(defence.critic)

    torch.manual_seed(7)
    mask = step.inputs["attention_mask"]
    lengths = [int(n) for n in mask.sum(1)]
    batch, width = mask.shape
    table = twin.get_input_embeddings()
    delta = torch.zeros(batch, width, 16).double().uniform_(-1, 1) * mask[:, :, None]
    delta = torch.stack([delta[i] * 0.5 / math.sqrt(n * 16) for i, n in enumerate(lengths)]).detach()
    dropout_state: Tensor | None = None
    totals = {"adversarial": 0.0, "upper_bound": 0.0, "lower_bound": 0.0}
    for ascent in range(passes):
        delta.requires_grad_()
        here = torch.get_rng_state()
        if dropout_state is None:
            dropout_state = here
        torch.set_rng_state(dropout_state)
        embeddings = table(step.inputs["input_ids"]) + delta
        output = twin(inputs_embeds=embeddings, attention_mask=mask, output_hidden_states=True)
        if ascent:
            torch.set_rng_state(here)
        task = F.cross_entropy(output.logits, step.labels) / passes
        embedded, sentence = output.hidden_states[0], output.hidden_states[-1][:, 0]

        tokens = torch.cat([embedded[i, :n] for i, n in enumerate(lengths)])
        drawn = torch.randint(len(tokens), (len(tokens),))
        upper = 0.3 * sum(0.5 * ((a - tokens[j]) ** 2).sum() for a, j in zip(tokens, drawn, strict=True)) / len(tokens)
        upper = upper / passes
        (task + upper).backward(retain_graph=True)
        gradient = delta.grad.clone()

        local, whole = [], []
        for i, n in enumerate(lengths):
            order = gradient[i, :n].norm(dim=1).argsort()
            chosen = set(order[math.ceil(n * 0.5) : math.ceil(n * 0.9)].tolist())
            for position in range(n):
                if position in chosen:
                    local.append(embedded[i, position])
                    whole.append(sentence[i])
        shuffled = torch.randperm(len(local)).tolist()
        bounds = []
        for first in range(0, len(local), batch):
            chunk = shuffled[first : first + batch]
            bounds.append(
                literal_info_nce(
                    network, torch.stack([local[i] for i in chunk]), torch.stack([whole[i] for i in chunk])
                )
            )
        lower = -0.4 * torch.stack(bounds).mean() / passes
        lower.backward()

        for name, value in (("adversarial", task), ("upper_bound", upper), ("lower_bound", lower)):
            totals[name] = totals[name] + value.detach()
        if ascent < passes - 1:
            delta = torch.stack([d + 0.2 * g / g.norm() for d, g in zip(delta.detach(), gradient, strict=True)])

    assert len(local) > batch  # more than one chunk, the last one short
    assert len(local) % batch
    torch.testing.assert_close(parts, totals, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found, gradients(twin), rtol=1e-8, atol=1e-12)
    torch.testing.assert_close(critic_gradients["score.weight"], network[2].weight.grad, rtol=1e-8, atol=1e-12)
    torch.testing.assert_close(critic_gradients["score.bias"], network[2].bias.grad, rtol=1e-8, atol=1e-12)
    torch.testing.assert_close(critic_gradients["local.bias"], network[0].bias.grad, rtol=1e-8, atol=1e-12)
    both = torch.cat([critic_gradients["local.weight"], critic_gradients["whole.weight"]], dim=1)
    torch.testing.assert_close(both, network[0].weight.grad, rtol=1e-8, atol=1e-12)


def test_without_its_terms_it_is_freelb() -> None:
    model, tiny = tiny_model(), 1e-30
    # Random numbers are drawn for the terms between passes, which shared dropout must not see.
    parts, found = run(ready(InfoBERT(beta=tiny, alpha=tiny, init_magnitude=0, adv_lr=0.2), model), tiny_step(model))
    freelb = ready(FreeLB(init_magnitude=0, adv_lr=0.2, max_norm=None), model)
    expected_parts, expected = run(freelb, tiny_step(model))
    torch.testing.assert_close(parts["adversarial"], expected_parts["adversarial"])
    torch.testing.assert_close(found, expected)


def test_texts_too_short_for_an_anchor_leave_the_bound_at_zero() -> None:
    model = tiny_model()
    inputs = {name: values[:, :1] for name, values in tiny_batch().items()}
    parts, found = run(ready(InfoBERT(), model), Step(model=model, inputs=inputs, labels=torch.arange(6) % 3))
    assert parts["lower_bound"] == 0
    assert all(value.isfinite().all() for value in found.values())


@pytest.mark.parametrize("options", [{"anchors_from": 0.9, "anchors_to": 0.5}, {"anchors_to": 1.5}, {"steps": 0}])
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"anchors_from|steps"):
        InfoBERT(**options)
