"""The official training step of ASCC and RIFT written out for BERT, in the padded layout of their code."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from tiny import tiny_model
from tiny_texts import tokenizer
from torch import Tensor

from unshaken.defences import ASCC, Step
from unshaken.substitutions.dictionary import Dictionary

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


def encode(model: Any, embedded: Tensor, attention: Tensor) -> tuple[Tensor, Tensor]:
    """Everything after the embedding block of BERT: last hidden states and logits."""
    hidden = model.bert.encoder(embedded, attention_mask=attention.bool()[:, None, None, :]).last_hidden_state
    return hidden, model.classifier(model.dropout(model.bert.pooler(hidden)))


def start_of(defence: ASCC, step: Step) -> Tensor:
    """The defence's own first guess in the padded layout."""
    hull = defence.hull_of(step)
    full = torch.zeros(*step.inputs["input_ids"].shape, SLOTS).double()
    guess = defence.search.first_guess(hull, step.max_length, step.progress).double()
    full[hull.rows, hull.columns, : guess.shape[1]] = guess[hull.word_of]
    return full


def worst_weights(
    model: Any, step: Step, start: Tensor, steps: int, *, mean_entropy: bool = False, objective: str = "kl"
) -> Tensor:
    """The search, without dropout. (batch, seq, 10) -> (batch, seq, 10)"""
    ids, types, attention = (step.inputs[name] for name in ("input_ids", "token_type_ids", "attention_mask"))
    candidates, mask = candidates_of(ids)
    model.eval()
    with torch.no_grad():
        clean = F.softmax(encode(model, model.bert.embeddings(input_ids=ids, token_type_ids=types), attention)[1], -1)
        slots = [model.bert.embeddings(input_ids=candidates[..., s], token_type_ids=types) for s in range(SLOTS)]
        fixed = torch.stack(slots, dim=2)  # every candidate at its own position
    point = start.clone().requires_grad_()
    adam = torch.optim.Adam([point], lr=1.0, weight_decay=2e-5)
    for _ in range(steps):
        weights = torch.softmax(point * mask + 500 * (mask - 1), dim=-1)
        _, logits = encode(model, torch.einsum("bls,blsh->blh", weights, fixed), attention)
        if objective == "kl":
            gain = F.kl_div(F.log_softmax(logits, -1), clean, reduction="sum")
        else:
            gain = F.cross_entropy(logits, step.labels, reduction="sum")
        entropy = -(weights * (weights + 1e-300).log()).sum()
        scale = ids.numel() if mean_entropy else 300 * 128
        (point.grad,) = torch.autograd.grad(-gain + 15 * entropy / scale, point)
        adam.step()
    model.train()
    return torch.softmax(point.detach() * mask + 500 * (mask - 1), dim=-1)


def training_pass(model: Any, step: Step, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Clean logits, adversarial logits, adversarial last states, in one pass with dropout and gradients.

    Dropout is drawn for the embeddings of both halves, then for every candidate slot on its own, then by the encoder.
    """
    ids, types, attention = (step.inputs[name] for name in ("input_ids", "token_type_ids", "attention_mask"))
    candidates, mask = candidates_of(ids)
    block = model.bert.embeddings
    embedded = block(input_ids=torch.cat([ids, ids]), token_type_ids=torch.cat([types, types]))
    rows, columns = (mask.sum(-1) > 1).nonzero(as_tuple=True)
    slots = int(mask.sum(-1).max())
    vectors = (
        block.word_embeddings(candidates[rows, columns, :slots])
        + block.position_embeddings(columns)[:, None]
        + block.token_type_embeddings(types[rows, columns])[:, None]
    )
    dropped = block.dropout(block.LayerNorm(vectors).flatten(0, 1)[None]).view_as(vectors)
    mixed = torch.einsum("ts,tsh->th", weights[rows, columns, :slots], dropped)
    both = torch.cat([embedded[: len(ids)], embedded[len(ids) :].index_put((rows, columns), mixed)])
    hidden, logits = encode(model, both, torch.cat([attention, attention]))
    return logits[: len(ids)], logits[len(ids) :], hidden[len(ids) :]


def literal_loss(
    model: Any, step: Step, start: Tensor, steps: int, beta: float, seed: int = 7, **search: Any
) -> tuple[Tensor, Tensor]:
    """Loss and adversarial states of the official training step; `start` are mixing logits (batch, seq, 10)."""
    torch.manual_seed(seed)
    clean, adversarial, hidden = training_pass(model, step, worst_weights(model, step, start, steps, **search))
    penalty = F.kl_div(F.log_softmax(adversarial, -1), F.softmax(clean, -1), reduction="batchmean")
    return F.cross_entropy(clean, step.labels) + beta * penalty, hidden
