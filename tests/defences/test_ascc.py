"""ASCC against the official code's own layout, written out: padded slots for every token, a mask, two passes."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tiny import gradients, ready, run, tiny_model
from tiny_texts import text_step, tokenizer
from torch import Tensor, nn

from unshaken.defences import ASCC, PTWD, Step
from unshaken.errors import UnshakenError
from unshaken.substitutions.dictionary import Dictionary
from unshaken.substitutions.hull_search import HullSearch

WORDS = Dictionary(entries={"good": ["fine", "great"], "bad": ["poor", "awful"], "film": ["movie"]})
SLOTS = 10


def sensitive_model(dropout: float = 0.0) -> Any:
    """A tiny model whose prediction depends on its words."""
    model = tiny_model(dropout=dropout)
    with torch.no_grad():
        for module in (model.bert.embeddings.word_embeddings, model.bert.pooler.dense, model.classifier):
            module.weight.mul_(10)
    return model


def candidates_of(ids: Tensor) -> tuple[Tensor, Tensor]:
    """(batch, seq, 10) candidates and their mask, from the dictionary word by word."""
    vocabulary = tokenizer().get_vocab()
    candidates, mask = torch.zeros(*ids.shape, SLOTS, dtype=torch.long), torch.zeros(*ids.shape, SLOTS).double()
    for row, column in torch.cartesian_prod(*(torch.arange(size) for size in ids.shape)).tolist():
        own = ids[row, column].item()
        word = tokenizer().convert_ids_to_tokens(own)
        choices = [own, *(vocabulary[other] for other in WORDS.candidates([word], 0))]
        candidates[row, column, : len(choices)] = torch.tensor(choices)
        mask[row, column, : len(choices)] = 1
    return candidates, mask


def encode(model: Any, embedded: Tensor, step: Step) -> Tensor:
    """Everything after the embedding block of BERT."""
    allowed = step.inputs["attention_mask"].bool()[:, None, None, :]
    hidden = model.bert.encoder(embedded, attention_mask=allowed).last_hidden_state
    logits: Tensor = model.classifier(model.dropout(model.bert.pooler(hidden)))
    return logits


def literal_loss(model: Any, step: Step, start: Tensor, steps: int, beta: float, mean_entropy: bool = False) -> Tensor:
    """The official training step; `start` are mixing logits (batch, seq, 10)."""
    ids, types = step.inputs["input_ids"], step.inputs["token_type_ids"]
    candidates, mask = candidates_of(ids)

    def embed() -> Tensor:  # (batch, seq, 10, hidden), every candidate at its own position
        slots = [model.bert.embeddings(input_ids=candidates[..., s], token_type_ids=types) for s in range(SLOTS)]
        return torch.stack(slots, dim=2)

    def mix(point: Tensor, embedded: Tensor) -> tuple[Tensor, Tensor]:
        weights = torch.softmax(point * mask + 500 * (mask - 1), dim=-1)
        return torch.einsum("bls,blsh->blh", weights, embedded), weights

    with torch.no_grad():
        clean = F.softmax(encode(model, model.bert.embeddings(input_ids=ids, token_type_ids=types), step), -1)
        fixed = embed()
    point = start.clone().requires_grad_()
    adam = torch.optim.Adam([point], lr=1.0, weight_decay=2e-5)
    for _ in range(steps):
        mixed, weights = mix(point, fixed)
        divergence = F.kl_div(F.log_softmax(encode(model, mixed, step), -1), clean, reduction="sum")
        entropy = -(weights * (weights + 1e-300).log()).sum()
        scale = ids.numel() if mean_entropy else 300 * 128
        (point.grad,) = torch.autograd.grad(-divergence + 15 * entropy / scale, point)
        adam.step()

    mixed, _ = mix(point.detach(), embed())
    logits = encode(model, model.bert.embeddings(input_ids=ids, token_type_ids=types), step)
    penalty = F.kl_div(F.log_softmax(encode(model, mixed, step), -1), F.softmax(logits, -1), reduction="batchmean")
    return F.cross_entropy(logits, step.labels) + beta * penalty


def start_of(defence: ASCC, step: Step) -> Tensor:
    """The defence's own first guess in the padded layout."""
    hull = defence._hull(step)
    full = torch.zeros(*step.inputs["input_ids"].shape, SLOTS).double()
    guess = defence.search.first_guess(hull, step.max_length, step.progress).double()
    full[hull.rows, hull.columns, : guess.shape[1]] = guess[hull.word_of]
    return full


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("entropy", ["sum", "mean"])
def test_loss_and_gradients_are_the_official_ones(pairs: bool, entropy: Any) -> None:
    model = sensitive_model()
    step = text_step(model, pairs=pairs)
    defence = ready(ASCC(substitutions=WORDS, beta=3.0, steps=4, entropy=entropy), model, tokenizer())
    parts, found = run(defence, step)
    assert set(parts) == {"task", "ascc"}
    assert parts["ascc"] > 1e-4
    model.zero_grad()
    expected = literal_loss(model, step, start_of(defence, step), 4, 3.0, mean_entropy=entropy == "mean")
    expected.backward()
    torch.testing.assert_close(sum(parts.values()), expected)
    torch.testing.assert_close(found, gradients(model))


def test_the_search_is_without_dropout_and_the_training_pass_with_it() -> None:
    model = sensitive_model(dropout=0.3)
    step = text_step(model)
    defence = ready(ASCC(substitutions=WORDS, steps=2), model, tokenizer())
    hull = defence._hull(step)
    torch.manual_seed(1)
    first = defence._worst(step, hull)
    torch.manual_seed(2)
    assert torch.equal(first, defence._worst(step, hull))
    assert model.training
    assert run(defence, step, seed=1)[0]["ascc"] != run(defence, step, seed=2)[0]["ascc"]
    noisy = ready(ASCC(substitutions=WORDS, steps=2, attack_dropout=True), model, tokenizer())
    torch.manual_seed(1)
    first = noisy._worst(step, hull)
    torch.manual_seed(2)
    assert not torch.equal(first, noisy._worst(step, hull))


def test_the_loss_of_an_example_does_not_depend_on_the_batch() -> None:
    model = sensitive_model()
    step = text_step(model)
    defence = ready(ASCC(substitutions=WORDS, steps=3), model, tokenizer())
    whole = sum(run(defence, step)[0].values())
    alone = []
    for row in range(len(step.labels)):
        length = int(step.inputs["attention_mask"][row].sum())
        inputs = {name: values[row : row + 1, :length] for name, values in step.inputs.items()}
        options = {"tokenizer": step.tokenizer, "max_length": step.max_length}
        part = Step(
            model=model,
            inputs=inputs,
            labels=step.labels[row : row + 1],
            examples=step.examples[row : row + 1],
            **options,
        )
        alone.append(sum(run(defence, part)[0].values()))
    torch.testing.assert_close(whole, torch.stack(alone).mean())


def test_a_warm_start_begins_where_the_last_search_of_word_and_label_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    model = sensitive_model()
    step = text_step(model)
    defence = ready(ASCC(substitutions=WORDS, steps=2, warm_start=True, objective="ce"), model, tokenizer())
    hull = defence._hull(step)
    guess = defence.search.first_guess(hull, step.max_length, step.progress)
    found = defence._worst(step, hull)
    assert not torch.equal(found, guess)
    ended = {}  # the last word of a label in the batch is the one remembered
    for number, word in enumerate(hull.words):
        ended[step.labels[word.row].item(), word.choices[0]] = found[number] - found[number].mean()
    for (label, word), logits in ended.items():
        kept = defence.memory[label, tokenizer().convert_tokens_to_ids(word)]
        torch.testing.assert_close(kept[: len(logits)], logits.to(kept.dtype))
    assert defence.memory.any(-1).sum() == len(ended)

    starts: list[Tensor] = []
    monkeypatch.setattr(
        HullSearch, "__call__", lambda self, model, hull, start, *_, **__: starts.append(start) or start
    )
    defence._worst(step, hull)
    again = [ended[step.labels[word.row].item(), word.choices[0]] for word in hull.words]
    torch.testing.assert_close(starts[0], guess + torch.stack(again))
    assert "memory" in defence.state_dict()


def test_options_reach_the_search() -> None:
    names = {field.name for field in fields(HullSearch)}
    assert names <= {field.name for field in fields(ASCC)}
    official = ASCC()
    assert {name: getattr(official, name) for name in names} == {
        field.name: field.default for field in fields(HullSearch)
    }
    assert ASCC(init="clean", space="word").search == HullSearch(init="clean", space="word")


def test_a_batch_without_substitutable_words_is_the_task_alone() -> None:
    model = sensitive_model()
    step = text_step(model)
    defence = ready(ASCC(substitutions=Dictionary(entries={"nowhere": ["else"]})), model, tokenizer())
    parts, _ = run(defence, step)
    torch.testing.assert_close(parts["ascc"], torch.zeros_like(parts["ascc"]))
    for _ in range(9):
        defence.loss(step)
    with pytest.raises(UnshakenError, match="no usable substitute for any word of the first 66 texts"):
        defence.loss(step)


def test_bad_input() -> None:
    model = tiny_model()
    with pytest.raises(UnshakenError, match="token embeddings"):
        ASCC(substitutions=WORDS).setup(nn.Linear(2, 2), num_labels=2)
    with pytest.raises(UnshakenError, match="objective"):
        ASCC(objective="x")  # type: ignore[arg-type]
    with pytest.raises(UnshakenError, match="did you mean 'wordnet'"):
        ready(ASCC(substitutions="wordnett"), model)
    defence = ready(ASCC(substitutions=WORDS), model)
    step = text_step(model)
    step.tokenizer = None
    with pytest.raises(UnshakenError, match="processing_class"):
        defence.loss(step)
    step = text_step(model)
    step.examples = None
    with pytest.raises(UnshakenError, match="Examples"):
        defence.loss(step)
    step = text_step(model)
    step.labels = step.labels.double()
    with pytest.raises(UnshakenError, match="regression"):
        defence.loss(step)
    with pytest.raises(UnshakenError, match="whole objective"):
        ASCC() + ASCC()
    assert len((ASCC() + PTWD()).parts) == 2
