"""The informative term against a loop over classes, and where its features come from."""

from __future__ import annotations

import copy
import json
import logging
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tiny import gradients, ready, run, tiny_model, tiny_step
from tiny_texts import TEXTS, text_step
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification

from unshaken.defences import SWAP, InformativeTerm, Standard
from unshaken.defences.features import choose_feature
from unshaken.embedded import minilm_path
from unshaken.errors import UnshakenError
from unshaken.substitutions import Dictionary


def literal(term: InformativeTerm, student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
    """Class by class, on the rows of the class alone."""
    losses = []
    for label in range(3):
        rows = (labels == label).nonzero()[:, 0]
        if len(rows) < 2:
            continue
        s = F.normalize(term.student_projections[label](student[rows]), dim=-1)
        t = F.normalize(term.teacher_projections[label](teacher[rows]), dim=-1)
        scores = s @ t.T / 0.2
        paper = -sum(torch.log(scores[i, i].exp() / scores[i].exp().sum()) for i in range(len(rows))) / len(rows)
        code = -sum(torch.log(scores[j, j].exp() / scores[:, j].exp().sum()) for j in range(len(rows))) / len(rows)
        losses.append({"paper": paper, "code": code, "symmetric": (paper + code) / 2}[term.direction])
    return torch.stack(losses).mean()


@pytest.mark.parametrize("direction", ["paper", "code", "symmetric"])
@pytest.mark.parametrize("labels", [[0, 1, 2, 0, 1, 2], [0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 1, 2], [2, 2, 2, 2, 2, 2]])
def test_it_is_infonce_within_each_class(direction: Any, labels: list[int]) -> None:
    model = tiny_model()
    term = ready(InformativeTerm(direction=direction), model)
    student = torch.randn(6, 16).double().requires_grad_()
    teacher, classes = torch.randn(6, 16).double(), torch.tensor(labels)
    found, expected = term.loss_of(student, teacher, classes), literal(term, student, teacher, classes)
    torch.testing.assert_close(found, expected)
    projections = [parameter for parameter in term.parameters() if parameter.requires_grad]
    got = torch.autograd.grad(found, [student, *projections], retain_graph=True)
    wanted = torch.autograd.grad(expected, [student, *projections], materialize_grads=True)
    torch.testing.assert_close(got, wanted)


def test_a_batch_with_no_two_of_a_class_costs_nothing() -> None:
    term = ready(InformativeTerm(), tiny_model())
    features = torch.randn(3, 16).double().requires_grad_()
    loss = term.loss_of(features, features.detach(), torch.tensor([0, 1, 2]))
    loss.backward()
    assert loss == 0
    assert not features.grad.any()


def test_unconditional_compares_the_whole_batch() -> None:
    term = ready(InformativeTerm(conditional=False), tiny_model())
    assert len(term.student_projections) == 1
    assert not term.balanced_batches
    student, teacher = torch.randn(5, 16).double(), torch.randn(5, 16).double()
    s = F.normalize(term.student_projections[0](student), dim=-1)
    t = F.normalize(term.teacher_projections[0](teacher), dim=-1)
    expected = F.cross_entropy(s @ t.T / 0.2, torch.arange(5))
    torch.testing.assert_close(term.loss_of(student, teacher, torch.tensor([0, 1, 2, 0, 1])), expected)


def test_unconditional_takes_regression_labels() -> None:
    model = tiny_model(num_labels=1)
    parts, _ = run(ready(InformativeTerm(on="clean", conditional=False), model), tiny_step(model, regression=True))
    assert parts["informative"] > 0


def literal_features(encoder: Any, inputs: dict[str, Tensor], feature: str) -> Tensor:
    output = encoder(**inputs)
    if feature == "pooled":
        pooled: Tensor = output.pooler_output
        return pooled
    if feature == "cls":
        return output.last_hidden_state[:, 0]
    lengths = inputs["attention_mask"].sum(1).tolist()
    return torch.stack([row[:length].mean(0) for row, length in zip(output.last_hidden_state, lengths, strict=True)])


@pytest.mark.parametrize(
    ("backbone", "feature"),
    [
        ("bert", "pooled"),
        ("bert", "cls"),
        ("bert", "mean"),
        ("albert", "pooled"),
        ("albert", "mean"),
        ("roberta", "mean"),
        ("distilbert", "cls"),
        ("deberta-v2", "mean"),
    ],
)
def test_loss_and_gradients_are_those_written_out(backbone: str, feature: Any) -> None:
    """Student moved away from its teacher and with dropout, teacher without: values, and gradients of both."""
    model = tiny_model(backbone, dropout=0.2)
    term = ready(InformativeTerm(on="clean", alpha=0.5, feature=feature), model)
    teacher = copy.deepcopy(model.base_model).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    step, twin = tiny_step(model), copy.deepcopy(model)
    parts, found = run(term, step)
    projections = [parameter.grad.clone() for parameter in term.parameters() if parameter.grad is not None]
    assert len(projections) == 24  # two layers with bias, a pair a class

    term.zero_grad()
    torch.manual_seed(7)
    seen: list[Tensor] = []
    twin.base_model.register_forward_hook(lambda module, given, output: seen.append(output.last_hidden_state))
    task = F.cross_entropy(twin(**step.inputs).logits, step.labels)
    student = feature_from(twin.base_model, seen[0], step.inputs["attention_mask"], feature)
    fixed = literal_features(teacher, step.inputs, feature).detach()
    expected = 0.5 * literal(term, student, fixed, step.labels)
    torch.testing.assert_close(parts["task"], task)
    torch.testing.assert_close(parts["informative"], expected)
    (task + expected).backward()
    torch.testing.assert_close(found, gradients(twin))
    torch.testing.assert_close(
        projections, [parameter.grad for parameter in term.parameters() if parameter.grad is not None]
    )


def test_means_are_over_the_tokens_of_the_texts_that_they_are_of() -> None:
    """Rewordings longer than their texts: what each is alone and unpadded, and not under the other's mask."""
    model = tiny_model(dropout=0.0)
    step = text_step(model)
    swap = SWAP(substitutions=Dictionary(entries={"good": ["fine and great"]}), variants=1, rate=0.5)
    term = InformativeTerm(feature="mean", alpha=1.0, conditional=False)
    parts, _ = run(ready(swap + term, model, step.tokenizer), step)
    drawn = [text for (text,) in swap.draw(step, step.examples)]
    lengths = {len(new.split()) - len(old.split()) for new, old in zip(drawn, TEXTS, strict=True)}
    assert lengths == {0, 2}

    def means(encoder: Any, texts: Sequence[str]) -> Tensor:
        alone = (encoder(**step.tokenizer([text], return_tensors="pt")).last_hidden_state[0] for text in texts)
        return torch.stack([tokens.mean(0) for tokens in alone])

    expected = term.loss_of(means(model.base_model, drawn), means(term.teacher, TEXTS), step.labels)
    torch.testing.assert_close(parts["informative"], expected)


def feature_from(encoder: Any, hidden: Tensor, mask: Tensor, feature: str) -> Tensor:
    if feature == "pooled" and isinstance(encoder.pooler, nn.Linear):
        return torch.tanh(encoder.pooler(hidden[:, 0]))
    if feature == "pooled":
        return torch.tanh(encoder.pooler.dense(hidden[:, 0]))
    if feature == "cls":
        return hidden[:, 0]
    return torch.stack([row[: int(own.sum())].mean(0) for row, own in zip(hidden, mask, strict=True)])


def test_the_projections_are_those_of_the_official_code() -> None:
    term = ready(InformativeTerm(on="clean"), tiny_model())
    for pair in (*term.student_projections, *term.teacher_projections):
        first, middle, last = pair
        assert (first.in_features, first.out_features, last.in_features, last.out_features) == (16, 512, 512, 256)
        assert isinstance(middle, nn.ReLU)


def saved(
    folder: Path, backbone: str = "bert", without: str | None = None, pooling: dict[str, Any] | None = None
) -> Any:
    """A classifier loaded from a folder whose file lacks some weights, with or without sentence-transformers' note."""
    model = tiny_model(backbone, dtype=torch.float32)
    state = {name: value for name, value in model.state_dict().items() if without is None or without not in name}
    model.save_pretrained(folder, state_dict=state)
    if pooling is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return AutoModelForSequenceClassification.from_pretrained(folder)


@pytest.mark.parametrize(
    ("name", "options", "chosen"),
    [
        ("plain", {}, "pooled"),
        ("without", {"without": "pooler"}, "cls"),
        ("roberta", {"backbone": "roberta"}, "cls"),
        ("gte-tiny", {}, "mean"),
        ("said", {"pooling": {"pooling_mode_mean_tokens": True}}, "mean"),
        ("said-anew", {"pooling": {"pooling_mode": "mean"}, "without": "pooler"}, "mean"),
        ("said-first", {"pooling": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}}, "pooled"),
        ("damaged", {"pooling": ["x"]}, "pooled"),
    ],
)
def test_auto_takes_the_feature_that_the_checkpoint_holds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, options: dict[str, Any], chosen: str
) -> None:
    model = saved(tmp_path / name, **options)
    with caplog.at_level(logging.INFO, logger="unshaken"):
        term = ready(InformativeTerm(on="clean"), model.double())
    assert term.facts() == {"informative_feature": chosen}
    assert f"the feature '{chosen}'" in caplog.text
    named = ready(InformativeTerm(on="clean", feature=chosen), model)
    named.load_state_dict(term.state_dict())
    torch.testing.assert_close(run(term, tiny_step(model))[0], run(named, tiny_step(model))[0])


def test_a_note_that_cannot_be_read_or_fetched_is_no_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = saved(tmp_path)
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text("{")
    assert choose_feature(model.base_model)[0] == "pooled"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    model.config._name_or_path = "nobody/has-this"
    assert choose_feature(model.base_model)[0] == "pooled"


class _GatedHub(BaseHTTPRequestHandler):
    """A hub that shows its files to nobody."""

    def do_HEAD(self) -> None:
        self.send_response(403)
        self.send_header("X-Error-Code", "GatedRepo")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def test_a_hub_that_shows_nothing_has_no_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = saved(tmp_path)
    with HTTPServer(("127.0.0.1", 0), _GatedHub) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{hub.server_port}"
        template = address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        model.config._name_or_path = "nobody/shows-this"
        assert choose_feature(model.base_model)[0] == "pooled"
        hub.shutdown()


def test_a_random_pooler_is_warned_of(tmp_path: Path) -> None:
    model = saved(tmp_path, without="pooler")
    with pytest.warns(UserWarning, match="weights were not in the checkpoint"):
        ready(InformativeTerm(on="clean", feature="pooled"), model)
    ready(InformativeTerm(on="clean", feature="pooled"), tiny_model())  # no checkpoint at all: a test, or from scratch


def test_minilm_is_read_by_its_mean() -> None:
    model = AutoModelForSequenceClassification.from_pretrained(minilm_path())
    assert ready(InformativeTerm(on="clean"), model).chosen == "mean"


def test_the_teacher_stays_frozen_and_without_dropout() -> None:
    model = tiny_model(dropout=0.5)
    term = ready(InformativeTerm(on="clean"), model)
    term.train()
    assert not any(module.training for module in term.teacher.modules())
    run(term, tiny_step(model))
    assert all(parameter.grad is None for parameter in term.teacher.parameters())
    assert all(parameter.grad is not None for parameter in term.student_projections.parameters())
    assert all(parameter.grad is not None for parameter in term.teacher_projections.parameters())


def test_it_stands_beside_any_defence_that_makes_its_pass() -> None:
    model = tiny_model(dropout=0.0)
    alone, _ = run(ready(InformativeTerm(on="clean"), model), tiny_step(model))
    assert set(alone) == {"task", "informative"}
    beside, _ = run(ready(Standard() + InformativeTerm(on="clean"), model), tiny_step(model))
    assert set(beside) == set(alone)
    with pytest.raises(UnshakenError, match="reads the adversarial pass, but Standard has clean"):
        Standard() + InformativeTerm()


def test_bad_input() -> None:
    model = tiny_model()
    with pytest.raises(UnshakenError, match="no teacher"):
        InformativeTerm(on="clean").loss(tiny_step(model))
    one = tiny_model(num_labels=1)
    with pytest.raises(UnshakenError, match="conditional=False"):
        ready(InformativeTerm(on="clean"), one).loss(tiny_step(one, regression=True))
    with pytest.raises(UnshakenError, match="no pooler"):
        ready(InformativeTerm(feature="pooled"), tiny_model("roberta"))
    with pytest.raises(UnshakenError, match="no base_model"):
        InformativeTerm().setup(nn.Linear(2, 2), num_labels=2)
    with pytest.raises(UnshakenError, match="adversarial pass"):
        ready(InformativeTerm(), model).loss(tiny_step(model))
    for options in ({"direction": "x"}, {"on": "x"}, {"feature": "x"}):
        with pytest.raises(UnshakenError, match="it is one of"):
            InformativeTerm(**options)
